"""The CI files of `docs/`, checked against the CI systems' schemas and run as the CI systems run them."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from typing import Any

import pytest
import yaml

from perfkit.cli.main import main, make_parser
from tests.action_runner import run_action
from tests.cli.test_gate_stored import run
from tests.json_server import JsonHandler, serving
from tests.stored_results import write, write_log

ROOT = pathlib.Path(__file__).parents[2]
ACTION, GITLAB = ROOT / "docs/github-action/action.yml", ROOT / "docs/gitlab-ci.yml"
WORKFLOW = ACTION.with_name("example-workflow.yml")
# what perfkit is built from besides its packages, and the versions of its tests
BUILT_FROM = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "THIRD_PARTY_LICENSES.md", "constraints.txt")
WAIT_S = 120
STORED = {"baseline": "baselines/a b.json", "candidate": "slower.json"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder with a baseline and a slower candidate."""
    folder = tmp_path_factory.mktemp("results")
    with contextlib.chdir(folder):
        for name, factor in (("baselines/a b.json", 1), ("slower.json", 1.2)):
            for day in range(1, 6):
                made = run(factor + day / 1000, day + round(50 * (factor - 1)))
                write_log(write(folder / f"run{day}", made), made)
            assert main(["baseline", *(f"run{day}" for day in range(1, 6)), "--out", name]) == 0
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch, results):
    """A working folder with the results, and `perfkit` on the path."""
    folder = shutil.copytree(results, tmp_path / "work")
    monkeypatch.chdir(folder)
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "perfkit", f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m perfkit "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return folder


def program(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """Variables by which pip installs a checkout without a network: all packages of the tests' environment but perfkit are there."""
    packages = tmp_path_factory.mktemp("packages")
    for path in pathlib.Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match("perfkit|__editable__|pip", path.name):
            (packages / path.name).symlink_to(path)
    return {"PYTHONPATH": str(packages), "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PYTHONNOUSERSITE": "1", "PIP_NO_COMPILE": "1"}


@pytest.fixture
def checkout(tmp_path):
    """A repository that is built as perfkit's is, of packages that only start the tests' perfkit: what else a wheel holds takes seconds."""
    folder = tmp_path / "checkout" / "perfkit"
    for package in ("perfkit", "server_stub"):
        (folder / package).mkdir(parents=True)
        shutil.copy(ROOT / package / "__init__.py", folder / package)
    (folder / "perfkit" / "cli").mkdir()
    (folder / "perfkit" / "cli" / "__init__.py").write_text(
        "import os, sys\ndef start():\n    os.execvp('perfkit', ['perfkit', *sys.argv[1:]])\n"
    )
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ACTION.parent, folder / "docs" / ACTION.parent.name)
    return folder


def test_the_action_installs_its_own_repository_and_gates(place, checkout, offline):
    ran = run_action(checkout / "docs/github-action/action.yml", place, STORED, **offline)
    assert ran.returncodes == {"Set up Python": 0, "Install perfkit": 0, "Gate": 1, "Report": 0, "Upload the verdict": 0}, ran.log
    assert not ran.succeeded
    installed = pathlib.Path(ran.outputs["perfkit"])
    assert installed.is_relative_to(place.with_name("work.runner"))
    (package,) = installed.parents[1].glob("lib/python*/site-packages/perfkit/cli")  # a copy, of which nothing refers to the checkout
    assert package.is_dir()
    assert ran.outputs["verdict"] == "regressed"
    assert ran.outputs["markdown"] == "perfkit-gate.md"
    assert "::error title=regressed" in ran.log["Gate"]
    assert ran.summary.count("❌ perfkit gate: smoke") == 1
    assert ran.summary == (place / "perfkit-gate.md").read_text()
    assert ran.uploaded == ["perfkit-gate", "perfkit-gate.md", "perfkit-gate.html", "perfkit-gate.junit.xml"]


def test_the_action_takes_a_wheel_and_installs_nothing_that_has_a_mere_name(place, tmp_path):
    program(tmp_path / "bin" / "python3", 'echo "$@" >> called')
    (place / "perfkit-1-py3-none-any.whl").touch()
    for given in ("perfkit", "perfkit==1.4.0", "nowhere/perfkit"):
        ran = run_action(ACTION, place, {**STORED, "perfkit": given, "python-version": ""})
        assert ran.returncodes == {"Install perfkit": 2, "Report": 0, "Upload the verdict": 0}
        assert f"::error title=perfkit::{given} is not perfkit's repository and no wheel" in ran.log["Install perfkit"]
        assert ran.outputs["verdict"] == "error"
    assert not (place / "called").exists()
    wheels = ["perfkit-1-py3-none-any.whl[server]", "https://example.org/perfkit-1-py3-none-any.whl", "git+https://example.org/perfkit@1"]
    expected = [f"{place}/{wheels[0]}", *wheels[1:]]
    for given, installs in zip(wheels, expected, strict=True):
        program(
            tmp_path / "bin" / "python3",
            'mkdir -p "$3/bin" && printf \'#!/bin/sh\\necho "$@" >> called\' > "$3/bin/python" && chmod +x "$3/bin/python"',
        )
        run_action(ACTION, place, {**STORED, "perfkit": given, "python-version": "", "install-only": "true"})
        assert (place / "called").read_text().split()[-1] == installs


def test_only_installing_gives_the_program(place, tmp_path):
    ran = run_action(ACTION, place, {"perfkit": "installed", "install-only": "true"})
    assert ran.returncodes == {"Install perfkit": 0}
    assert ran.outputs["perfkit"] == str(tmp_path / "bin" / "perfkit")


def test_an_earlier_verdict_is_not_reported_again(place):
    (place / "perfkit-gate").mkdir()
    (place / "perfkit-gate" / "verdict.json").write_text('{"kind": "pass"}')
    (place / "perfkit-gate.md").write_text("an earlier gate")
    ran = run_action(ACTION, place, {**STORED, "candidate": "nowhere", "perfkit": "installed"})
    assert ran.returncodes["Gate"] == 2
    assert ran.outputs["verdict"] == "error"
    assert "an earlier gate" not in ran.summary


def test_a_killed_gate_is_reported_and_what_it_measured_is_uploaded(place, tmp_path):
    program(tmp_path / "bin" / "perfkit", 'if [ "$1" = gate ]; then mkdir perfkit-gate.partial; kill -KILL $$; fi')
    ran = run_action(ACTION, place, {**STORED, "perfkit": "installed"})
    assert ran.returncodes == {"Install perfkit": 0, "Gate": -signal.SIGKILL, "Report": 0, "Upload the verdict": 0}
    assert ran.outputs["verdict"] == "error"
    assert "perfkit gate has no verdict" in ran.summary
    assert "::error title=perfkit gate::" in ran.log["Report"]
    assert ran.uploaded == ["perfkit-gate.partial", "perfkit-gate.md"]


def test_the_report_of_a_killed_gate_is_its_own_if_it_has_one(place, tmp_path):
    program(tmp_path / "bin" / "perfkit", 'if [ "$1" = gate ]; then echo "killed in pair 3" > perfkit-gate.md; kill -KILL $$; fi')
    ran = run_action(ACTION, place, {**STORED, "perfkit": "installed"})
    assert ran.summary == "killed in pair 3\n"


def test_the_gate_takes_the_place_of_the_shell_so_that_it_gets_the_signal_of_a_cancelled_job(place, tmp_path):
    program(tmp_path / "bin" / "perfkit", 'echo "$$"')
    (step,) = [one for one in yaml.safe_load(ACTION.read_text())["runs"]["steps"] if one["name"] == "Gate"]
    known = {**os.environ, **dict.fromkeys(step["env"], "x"), "PERFKIT": "perfkit"}
    (place / "script").write_text(step["run"])  # of a text, bash would replace itself by the last command anyway
    with subprocess.Popen(["/bin/bash", "-e", "script"], cwd=place, env=known, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.communicate(timeout=WAIT_S)[0] == f"{shell.pid}\n"


def test_every_input_of_the_action_becomes_an_option(place, tmp_path):
    program(tmp_path / "bin" / "perfkit", 'printf "%s\\n" "$@" > options')
    given = {
        "scenario": "a b.yaml", "baseline": "cmd:a $x", "candidate": "cmd:b `y`", "control": "3", "time": "10m", "pairs": "14",
        "ready-timeout": "2m", "on-inconclusive": "pass", "out": "o u t", "perfkit": "installed",
    }  # fmt: skip
    run_action(ACTION, place, given)
    expected = (
        "gate|a b.yaml|--baseline|cmd:a $x|--candidate|cmd:b `y`|--on-inconclusive|pass|--out|o u t|--junit|o u t.junit.xml|"
        "--markdown|o u t.md|--html|o u t.html|--control|3|--time|10m|--pairs|14|--ready-timeout|2m"
    )
    (place / "a b.yaml").touch()
    options = (place / "options").read_text().splitlines()
    assert options == expected.split("|")
    make_parser(["gate"])[0].parse_args(options)  # exits if perfkit has no such option


def test_no_expression_is_pasted_into_a_script():
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    steps += [step for job in yaml.safe_load(WORKFLOW.read_text())["jobs"].values() for step in job["steps"]]
    assert not [step["run"] for step in steps if "${{" in step.get("run", "")]


class Comments(JsonHandler):
    """GitHub's comments of a pull request: 100 to a page."""

    stored: list[dict[str, Any]]
    requests: list[tuple[str, ...]]
    refuses = False

    def do_GET(self):
        page = int(self.path.rpartition("&page=")[2])
        self.answer(200, self.stored[100 * (page - 1) : 100 * page])

    def do_POST(self):
        self.requests.append((self.command, self.path, json.loads(self.body())["body"]))
        self.answer(403 if self.refuses else 201, {})

    do_PATCH = do_POST  # noqa: N815 - the server's name


def comment(number, text, kind="Bot"):
    return {"id": number, "body": text, "user": {"type": kind}}


MARK = "<!-- perfkit gate: perfkit-gate -->"
BRANCH = {
    "event_name": "pull_request",
    "repository": "a/b",
    "event": {"pull_request": {"number": 7, "head": {"repo": {"full_name": "a/b"}}}},
}
FORK = {**BRANCH, "event": {"pull_request": {"number": 7, "head": {"repo": {"full_name": "fork/b"}}}}}


@pytest.mark.parametrize(
    ("stored", "request_line"),
    [
        ([], ("POST", "/repos/a/b/issues/7/comments")),
        ([comment(1, f"{MARK}\nold", "User"), comment(2, f"see {MARK}")], ("POST", "/repos/a/b/issues/7/comments")),
        ([*(comment(n, "x") for n in range(150)), comment(400, f"{MARK}\nold")], ("PATCH", "/repos/a/b/issues/comments/400")),
    ],
)
def test_a_pull_request_gets_one_comment_which_is_updated(place, stored, request_line):
    requests: list[tuple[str, ...]] = []
    with serving(type("Handler", (Comments,), {"stored": stored, "requests": requests})) as port:
        ran = comment_on(place, port, BRANCH)
    ((*line, body),) = requests
    assert tuple(line) == request_line
    assert body == f"{MARK}\n## report\n\n[Files and log](https://github.example/a/b/actions/runs/99)\n"
    assert "notice" not in ran.log["Comment on the pull request"]


def test_a_fork_gets_no_comment_and_a_refusal_does_not_fail_the_job(place):
    requests: list[tuple[str, ...]] = []
    with serving(type("Handler", (Comments,), {"stored": [], "requests": requests, "refuses": True})) as port:
        assert "Comment on the pull request" not in comment_on(place, port, FORK).returncodes
        assert "Comment on the pull request" not in comment_on(place, port, {"event_name": "push"}).returncodes
        assert not requests
        ran = comment_on(place, port, BRANCH)
    assert ran.returncodes["Comment on the pull request"] == 0
    assert "::notice title=perfkit gate::No comment" in ran.log["Comment on the pull request"]


def comment_on(place, port, github):
    program(place.with_name("bin") / "perfkit", 'echo "## report" > perfkit-gate.md')
    variables = {
        "GITHUB_API_URL": f"http://127.0.0.1:{port}",
        "GITHUB_REPOSITORY": "a/b",
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_RUN_ID": "99",
    }
    return run_action(ACTION, place, {**STORED, "perfkit": "installed"}, github={**github, "token": "t"}, **variables)


def gitlab(job, place, shell, **environ):
    """Runs a job's script in this shell, with a home of its own."""
    jobs = yaml.safe_load(GITLAB.read_text())
    job = {**jobs[".perfkit"], **jobs[job], "variables": jobs[".perfkit"]["variables"] | jobs[job].get("variables", {})}
    script = "\n".join(line for part in job["script"] for line in ([part] if isinstance(part, str) else part))
    known = {"PATH": os.environ["PATH"], "HOME": str(place.parent), **job["variables"], **environ}
    done = subprocess.run([shell, "-ec", script], cwd=place, env=known, capture_output=True, text=True, timeout=WAIT_S, check=False)
    return job, done


def test_the_gitlab_job_gives_report_and_exit_code(place):
    stored = {"SCENARIO": "", "BASELINE": STORED["baseline"], "CANDIDATE": STORED["candidate"]}
    job, done = gitlab("perfkit gate", place, "bash", PERFKIT="installed", **stored)
    assert done.returncode == 1, done.stderr
    assert (place / job["artifacts"]["reports"]["junit"]).read_text().startswith("<?xml")
    assert [path for path in job["artifacts"]["paths"] if not (place / path).exists()] == ["perfkit-gate.partial"]
    assert json.loads((place / "perfkit-gate" / "verdict.json").read_text())["kind"] == "regressed"


def test_the_gitlab_job_installs_a_submodule(place, tmp_path):
    """The action's test lets pip install the repository in this way."""
    (place / "perfkit").mkdir()
    for name in ("pyproject.toml", "constraints.txt"):
        (place / "perfkit" / name).touch()
    made = (
        'mkdir -p "$4/bin" && ln -s "$(command -v perfkit)" "$4/bin/perfkit" && printf \'#!/bin/sh\\necho "$@" > called\' > "$4/bin/python"'
    )
    program(tmp_path / "bin" / "python3", f'{made} && chmod +x "$4/bin/python"')
    stored = {"SCENARIO": "", "BASELINE": STORED["baseline"], "CANDIDATE": STORED["candidate"]}
    _, done = gitlab("perfkit gate", place, "sh", **stored)
    assert done.returncode == 1, done.stderr
    assert (place / "called").read_text().split()[-3:] == ["--constraint", "./perfkit/constraints.txt", f"{place}/perfkit"]


def test_the_gitlab_job_installs_nothing_that_has_a_mere_name(place):
    _, done = gitlab("perfkit gate", place, "sh", PERFKIT="perfkit")
    assert (done.returncode, done.stdout) == (
        2,
        "PERFKIT: perfkit is not perfkit's repository and no wheel: give a folder, a wheel or a URL\n",
    )


@pytest.mark.parametrize("gate_code", [0, 1])
def test_the_gitlab_night_measures_whatever_the_canary_says(place, tmp_path, gate_code):
    stub = 'echo "$1 $2 $3" >> calls; if [ "$1" = gate ]; then mkdir perfkit-canary; touch perfkit-canary/verdict.json; exit CODE; fi'
    program(tmp_path / "bin" / "perfkit", stub.replace("CODE", str(gate_code)))
    _, done = gitlab("perfkit nightly", place, "sh", PERFKIT="installed", CI_RUNNER_DESCRIPTION="a runner")
    assert done.returncode == gate_code
    calls = [line.split() for line in (place / "calls").read_text().splitlines()]
    added = ["perfkit-nightly", "perfkit-canary"]
    history = [["history", "add", name] for name in added] + [["history", "check", "--max-age"]]
    assert calls == [["--version"], ["gate", "scenarios/gate.yaml", "--baseline"], ["run", "scenarios/nightly.yaml", "--out"], *history]


@pytest.mark.parametrize(
    ("schema", "file"),
    [("github-actions", ACTION), ("github-workflows", WORKFLOW), ("gitlab-ci", GITLAB)],
    ids=["action", "workflow", "gitlab"],
)
def test_the_files_fit_the_schemas_of_the_ci_systems(schema, file):
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def scripts():
    """All scripts of the CI files, with their shells."""
    for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"]:
        yield "bash", step.get("run")
    for job in yaml.safe_load(WORKFLOW.read_text())["jobs"].values():
        yield from (("bash", step.get("run")) for step in job["steps"])
    for job in yaml.safe_load(GITLAB.read_text()).values():
        parts = job.get("script", ()) if isinstance(job, dict) else ()
        yield "sh", "\n".join(line for part in parts for line in ([part] if isinstance(part, str) else part))


@pytest.mark.parametrize(("shell", "script"), [(shell, script) for shell, script in scripts() if script])
def test_shellcheck_has_nothing_to_say(shell, script):
    command = [
        str(pathlib.Path(sys.executable).with_name("shellcheck")),
        f"--shell={shell}",
        "--enable=all",
        "--exclude=SC2154,SC2250,SC2292,SC2312",
        "-",
    ]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout


def examples():
    """The example workflow, and the YAML of docs/how-to/ci.md."""
    written = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/how-to/ci.md").read_text(), re.DOTALL)
    return [yaml.safe_load(text) for text in (WORKFLOW.read_text(), *written)]


def test_the_examples_use_inputs_outputs_and_variables_that_exist():
    action = yaml.safe_load(ACTION.read_text())
    workflow, gate, included = examples()
    for jobs in (workflow["jobs"], gate["jobs"]):
        used = [step for job in jobs.values() for step in job["steps"] if "perfkit" in step.get("uses", "")]
        assert len(used) == len(jobs)
        for step in used:
            assert set(step["with"]) <= set(action["inputs"])
            assert step["with"].get("install-only") or {"scenario", "baseline", "candidate"} <= set(step["with"])
    outputs = re.findall(r"steps\.(?:canary|perfkit)\.outputs\.([\w-]+)", WORKFLOW.read_text())
    assert set(outputs) <= set(action["outputs"])
    assert set(included[".perfkit"]["variables"]) <= set(yaml.safe_load(GITLAB.read_text())[".perfkit"]["variables"])

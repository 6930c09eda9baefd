"""The CI files of `docs/`, run as the CI systems run them."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from perfkit.cli.main import main
from tests.cli.test_gate_stored import run
from tests.stored_results import write, write_log

DOCS = pathlib.Path(__file__).parents[2] / "docs"
WAIT_S = 60


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with a baseline, a slower candidate, and `perfkit` on the path."""
    monkeypatch.chdir(tmp_path)
    for day in range(1, 6):
        made = run(1 + day / 1000, day)
        write_log(write(tmp_path / f"run{day}", made), made)
    assert main(["baseline", *(f"run{day}" for day in range(1, 6)), "--out", "baselines/a b.json"]) == 0
    write(tmp_path / "new", run(1.2, 20))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "perfkit").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perfkit "$@"\n')
    (tmp_path / "bin" / "perfkit").chmod(0o755)
    return tmp_path


def bash(place, script, **environ):
    root = str(DOCS.parent)
    known = {**os.environ, "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": root, **environ}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=place, env=known, capture_output=True, text=True, timeout=WAIT_S, check=False)


def action():
    return yaml.safe_load((DOCS / "github-action" / "action.yml").read_text())


def test_the_action_gives_verdict_summary_and_exit_code(place):
    (step,) = [one for one in action()["runs"]["steps"] if one.get("id") == "gate"]
    inputs = {name: str(given.get("default", "")) for name, given in action()["inputs"].items()}
    inputs |= {"baseline": "baselines/a b.json", "candidate": "new"}
    environ = {name: re.sub(r"\$\{\{ inputs\.([\w-]+) }}", lambda found: inputs[found[1]], value) for name, value in step["env"].items()}
    output, summary = place / "output", place / "summary"
    done = bash(place, step["run"], **environ, GITHUB_ACTIONS="true", GITHUB_OUTPUT=str(output), GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 1, done.stderr
    assert output.read_text() == "verdict=regressed\nmarkdown=perfkit-gate.md\n"
    assert "::error title=regressed" in done.stdout
    assert summary.read_text().startswith("## ❌ perfkit gate: smoke")
    assert (place / "perfkit-gate.junit.xml").exists()


def test_an_action_without_a_verdict_outputs_error(place):
    (step,) = [one for one in action()["runs"]["steps"] if one.get("id") == "gate"]
    environ = dict.fromkeys(step["env"], "") | {"BASELINE": "nowhere", "CANDIDATE": "new", "ON_INCONCLUSIVE": "fail", "OUT": "out"}
    (place / "out").mkdir()
    (place / "out" / "verdict.json").write_text('{"kind": "pass"}')  # of an earlier gate
    os.utime(place / "out" / "verdict.json", (1_700_000_000, 1_700_000_000))
    done = bash(place, step["run"], **environ, GITHUB_OUTPUT=str(place / "output"))
    assert done.returncode == 2
    assert (place / "output").read_text().splitlines()[0] == "verdict=error"


def test_no_input_of_the_action_is_pasted_into_a_script():
    for step in action()["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_the_gitlab_job_gives_report_and_exit_code(place):
    (job,) = yaml.safe_load((DOCS / "gitlab-ci.yml").read_text()).values()
    environ = {**job["variables"], "PERFKIT": "", "SCENARIO": "", "BASELINE": "baselines/a b.json", "CANDIDATE": "new"}
    done = bash(place, "\n".join(job["script"]), **environ)
    assert done.returncode == 1, done.stderr
    assert (place / job["artifacts"]["reports"]["junit"]).read_text().startswith("<?xml")
    assert all((place / path).exists() for path in job["artifacts"]["paths"])
    assert json.loads((place / "perfkit-gate" / "verdict.json").read_text())["kind"] == "regressed"


def test_the_documented_examples_are_yaml_with_existing_inputs():
    examples = re.findall(r"```yaml\n(.*?)```", (DOCS / "ci.md").read_text(), re.DOTALL)
    assert examples
    for example in examples:
        steps = yaml.safe_load(example)["jobs"]["gate"]["steps"]
        (used,) = [step for step in steps if "perfkit" in step.get("uses", "")]
        assert set(used["with"]) <= set(action()["inputs"])
        assert {name for name, given in action()["inputs"].items() if given.get("required")} <= set(used["with"])

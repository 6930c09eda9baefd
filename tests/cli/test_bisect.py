"""`perfkit bisect` from outside: a repository whose revisions are built and served, with most pairs measured beforehand."""

import json
import signal
import sys

import pytest

import perfkit as package
from perfkit.bisection.folder import Bisection, BisectionFolder, BisectionInputs, Progress
from perfkit.bisection.revisions import read_path
from perfkit.gate.arm import Arm
from perfkit.gate.folder import FixedSettings, GateFolder, GateManifest
from perfkit.gate.paired_gate import GateRequest
from perfkit.scenario.file import read_scenario, scenario_document
from tests.cli.gate_scenario import write_gate_scenario
from tests.conditions import until_ended
from tests.git_repository import GitRepository
from tests.simulated_pairs import make_pairs
from tests.undisturbed import undisturbed

SERVER = """
import os, sys
from built import SERVICE
words = ["--model", "synthetic", "--synthetic", f"service=constant:{SERVICE}", "--http-port", sys.argv[1], "--grpc-port", "0", "--exit-with-stdin"]
os.execv(sys.executable, [sys.executable, "-m", "server_stub", *words])
"""
BUILD, SERVE = "cp service.py built.py", f"{sys.executable} ./serve.py {{port}}"


@pytest.fixture
def repository(tmp_path):
    """Three revisions, of which the second is three times as slow as the first."""
    made = GitRepository(tmp_path / "repository")
    for subject, service in (("First", "4ms"), ("Slower", "12ms"), ("Last", "12ms")):
        made.commit(subject, serve=SERVER, service=f"SERVICE = '{service}'\n# {subject}\n")
    return made


@pytest.fixture
def scenario(tmp_path):
    return write_gate_scenario(tmp_path, "throughput", telemetry=False)


def begin(scenario, repository, out, gates, build=BUILD):
    """Leave the folder of a bisection that was interrupted after these pairs of its gates, by position of the revision."""
    loaded, path = read_scenario(scenario), read_path(repository.folder, "main~2", "main")
    inputs = BisectionInputs(
        scenario=scenario_document(loaded.scenario), repository=str(repository.folder), good=path[0].sha, bad=path[-1].sha, build=build,
        serve=SERVE, perfkit=package.__version__,
    )  # fmt: skip
    folder = BisectionFolder(out, Progress(inputs=inputs, seed=1, started_at="2026-01-02T03:04:05.678+00:00"))
    for number, (position, pairs) in enumerate(gates.items(), 1):
        good, other = (Arm(command=SERVE, folder=folder.worktrees.resolve() / path[at].short) for at in (0, position))
        inputs_of_gate = GateRequest(loaded, good, other).inputs
        manifest = GateManifest(inputs=inputs_of_gate, seed=1, started_at="2026-01-02T03:04:05.678+00:00")
        gate = GateFolder(folder.gates / f"{number:02}-{path[position].short}", manifest)
        gate.fix(FixedSettings(warmup_ns=50_000_000, window_ns=300_000_000, concurrency=4, rate_per_s=70.0))
        for pair in pairs:
            gate.add(pair)
    return path


def options(scenario, repository, out, build=BUILD):
    words = ["bisect", scenario, "--good", "main~2", "--bad", "main", "--build", build, "--serve", SERVE]
    return [*words, "--repository", repository.folder, "--out", out]


def test_the_first_slower_revision_is_built_served_and_found(perfkit, scenario, repository, tmp_path):
    out, markdown = tmp_path / "out", tmp_path / "bisect.md"
    path = begin(scenario, repository, out, {2: make_pairs(12, 3.0), 1: make_pairs(9, 3.0)})
    with undisturbed():
        finished = perfkit.run(*options(scenario, repository, out), "--markdown", markdown)
    assert finished.code == 0, finished.stderr
    assert f"FOUND: {path[1].short} (Slower) is the first revision that is slower." in finished.stdout
    assert "gate 2 of at most 2" in finished.stderr
    assert "status: found (2 gates; exit code 0)" in finished.stderr
    stored = Bisection.model_validate_json((out / "bisection.json").read_text())
    assert stored.first_slower == path[1]
    assert stored.gates[0].pairs >= 10
    assert f"`{path[1].sha}` Slower" in markdown.read_text()
    last = json.loads((out / "gates" / f"02-{path[1].short}" / "pairs.json").read_text())[9]  # one pair at least was measured here
    assert last["baseline"]["points"][0]["load_point"] == "http, concurrency 4"
    assert last["baseline"]["points"][0]["scheduled"] > last["baseline"]["points"][0]["failed"] == 0
    # nothing of it is left in the repository, and of the worktrees only the logs
    assert repository.git("status", "--porcelain") == ""
    assert repository.git("worktree", "list").count("\n") == 0
    assert {entry.name for entry in (out / "worktrees").iterdir()} == {f"{revision.short}.log" for revision in path}
    assert not (out / "progress.json").exists()


def test_a_revision_whose_server_does_not_start_is_skipped_and_worktrees_can_be_kept(perfkit, scenario, repository, tmp_path):
    out, build = tmp_path / "out", "grep -q Slower service.py && echo 'SERVICE = 1 / 0' > built.py || cp service.py built.py"
    path = begin(scenario, repository, out, {2: make_pairs(12, 3.0)}, build)
    with undisturbed():
        finished = perfkit.run(*options(scenario, repository, out, build), "--keep", "--format", "json")
    assert finished.code == 3, finished.stderr
    document = json.loads(finished.stdout)
    assert (document["kind"], document["first_slower"]) == ("inconclusive", None)
    assert [one["subject"] for one in document["suspects"]] == ["Slower", "Last"]
    assert document["gates"][0]["outcome"] == "skipped"
    assert "ZeroDivisionError" in document["gates"][0]["reason"]
    assert (out / "worktrees" / path[0].short / "built.py").exists()


def test_a_bad_revision_whose_server_does_not_start_is_an_error_that_names_it(perfkit, scenario, repository, tmp_path):
    out, build = tmp_path / "out", "grep -q Last service.py && echo 'SERVICE = 1 / 0' > built.py || cp service.py built.py"
    path = begin(scenario, repository, out, {2: make_pairs(3, 3.0)}, build)
    finished = perfkit.run(*options(scenario, repository, out, build), "--quiet")
    assert finished.code == 6, finished.stderr
    assert f"the gate of {path[-1].short}: `{SERVE.removesuffix('{port}')}" in finished.stderr
    assert f"` in {out / 'worktrees' / path[-1].short} ended with exit code 1 before it was ready" in finished.stderr
    assert "ZeroDivisionError" in finished.stderr
    assert (out / "worktrees" / path[-1].short).exists()  # it is there for a look, and for the same command


def test_a_bad_revision_that_is_not_slower_ends_the_search(perfkit, scenario, repository, tmp_path):
    begin(scenario, repository, tmp_path / "out", {2: make_pairs(20)})
    finished = perfkit.run(*options(scenario, repository, tmp_path / "out"))
    assert finished.code == 3, finished.stderr
    assert "INCONCLUSIVE: There is no regression to search for" in finished.stdout


def test_a_good_or_bad_revision_that_cannot_be_built_is_an_error_with_the_last_lines(perfkit, scenario, repository, tmp_path):
    finished = perfkit.run(*options(scenario, repository, tmp_path / "out", "echo no compiler; false"))
    assert finished.code == 2
    short = repository.git("rev-parse", "main~2")[:10]
    assert f"the good revision {short} could not be built: `echo no compiler; false` ended with exit code 1" in finished.stderr
    assert "it said: no compiler; its log: " in finished.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--good", "main", "--bad", "main~1"], "--bad main~1 comes before --good main"),
        (["--good", "main~1", "--bad", "nothing"], "--bad nothing: this repository has no such revision"),
        (["--serve", "serve"], "--serve cmd:serve: the server's address is unknown: write {port} in the command"),
        (["--pairs", "9"], "--pairs: expected a whole number from 10 to 60"),
        (["--build-within", "soon"], "--build-within: "),
        (["--set", "gate.profile=mine"], "gate.profile"),
    ],
)
def test_a_bisection_that_makes_no_sense_is_refused_before_anything_is_written(perfkit, scenario, repository, tmp_path, words, sentence):
    finished = perfkit.run(*options(scenario, repository, tmp_path / "out"), *words)
    assert finished.code == 2
    assert sentence in finished.stderr
    assert not (tmp_path / "out").exists()


def test_an_interrupted_bisection_stops_its_build_and_says_how_it_continues(perfkit, scenario, repository, tmp_path):
    build = "echo started; sleep 600"
    running = perfkit.start(*options(scenario, repository, tmp_path / "out", build))
    running.wait_for_line("building")
    processes = running.descendants()
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130, finished.stderr
    assert f"what was measured and built so far is in {tmp_path / 'out'}; to continue: perfkit bisect" in finished.stderr
    until_ended(processes)
    refused = perfkit.run(*options(scenario, repository, tmp_path / "out"))
    assert refused.code == 2
    assert "an unfinished bisection with different inputs (build)" in refused.stderr

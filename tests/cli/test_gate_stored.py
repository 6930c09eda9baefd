"""`perfkit gate` on stored results, as a CI job calls it: exact exit codes, and the verdict's outputs."""

import contextlib
import json
import shutil
from xml.etree import ElementTree

import pytest

from perfkit.cli.main import main
from tests.cli.test_gate import URLS, begin
from tests.result.test_fingerprint import HOST, MUTATIONS, TARGET
from tests.simulated_pairs import make_pairs
from tests.stored_results import changed, document, point, write, write_log

BASELINE = "baselines/smoke.json"


def run(factor, day, **options):
    """The document of a run whose times are `factor` times as long."""
    figures = {"p50_ms": 2.0 * factor, "p99_ms": 6.0 * factor, "throughput_per_s": 500 / factor}
    return document(started_at=f"2026-01-{day:02}T00:00:00.000+00:00", **figures, **options)


def gate(*options, candidate="new.json"):
    return main(["gate", "--baseline", BASELINE, "--candidate", candidate, *options])


def write_candidate(place, factor, **options):
    """Five runs of a candidate, and the file `new.json` with all of them."""
    for index, scatter in enumerate((1.001, 0.999, 1.003, 0.997, 1.0)):
        made = run(factor * scatter, 20 + index, **options)
        write_log(write(place / f"new{index}", made), made)
    assert main(["baseline", *(f"new{index}" for index in range(5)), "--out", "new.json"]) == 0


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with a baseline of five runs, a candidate `new.json` of as many, and a single run `new`."""
    folder, names = tmp_path_factory.mktemp("stored"), []
    with contextlib.chdir(folder):
        for day, factor in enumerate((1.0, 1.004, 0.996, 1.002, 0.998), 1):
            written = write(folder / f"run{day}", run(factor, day))
            write_log(written, run(factor, day))
            names.append(written.name)
        assert main(["baseline", *names]) == 0
        write(folder / "new", run(1.001, 20))
        write_candidate(folder, 1.0)
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch, stored):
    """The working folder, as the tests begin with it."""
    monkeypatch.chdir(shutil.copytree(stored, tmp_path / "place"))
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "place"


@pytest.mark.parametrize(
    ("candidate", "options", "code", "kind"),
    [
        (1.0, [], 0, "pass"),
        (1.2, [], 1, "regressed"),
        (1.2, ["--on-inconclusive", "pass"], 1, "regressed"),
        (run(1.0, 20), [], 3, "inconclusive"),
        (run(1.0, 20, host="elsewhere"), [], 3, "inconclusive"),
        (run(1.0, 20, host="elsewhere"), ["--on-inconclusive", "pass"], 0, "inconclusive"),
        (changed(run(1.0, 20), "scenario.name", "other"), [], 4, "incomparable"),
        (changed(run(1.0, 20), "summary.0.service_time_ns.p99", None), ["--on-inconclusive", "pass"], 4, "incomparable"),
        (run(1.0, 1), [], 4, "incomparable"),
        (changed(run(1.0, 20), "summary.0.valid", False), [], 5, "invalid"),
        (changed(run(1.0, 20), "status", "interrupted"), [], 5, "invalid"),
    ],
)
def test_every_verdict_has_its_exit_code(place, capsys, candidate, options, code, kind):
    if isinstance(candidate, float):
        write_candidate(place, candidate)
    else:
        write(place / "new", candidate)
    capsys.readouterr()
    assert gate("--format", "json", *options, candidate="new.json" if isinstance(candidate, float) else "new") == code
    shown = json.loads(capsys.readouterr().out)
    assert (shown["kind"], shown["mode"], shown["scenario"]) == (kind, "stored", "smoke")


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.usefixtures("place")
def test_a_quiet_gate_ends_with_its_verdict_as_the_status(capsys, form):
    assert gate("--quiet", "--format", form) == 0
    said = capsys.readouterr()
    assert said.err == "status: pass (5 metrics gated; exit code 0)\n"
    assert ("\nPASS: " in said.out) == (form == "text")


# one of each object; tests/result/test_fingerprint.py has every other change
@pytest.mark.parametrize(
    ("path", "value"), [next(one for one in MUTATIONS if one[0].startswith(kind))[:2] for kind in ("scenario", "summary", TARGET, HOST)]
)
@pytest.mark.usefixtures("place")
def test_a_change_of_the_fingerprint_is_incomparable(place, capsys, path, value):
    made = changed(run(1.0, 20), path, value)
    for number in range(len(made["points"]) if path.startswith("summary.0.") else 0):
        made = changed(made, path.replace("summary.0", f"points.{number}"), value)
    write(place / "new", made)
    assert gate(candidate="new") == 4
    assert "INCOMPARABLE: " in capsys.readouterr().out


def torn(place):
    file = place / "new" / "result.json"
    file.write_text(file.read_text()[:-200])


def torn_baseline(place):
    file = place / BASELINE
    file.write_text(file.read_text()[:-200])


def newer_baseline(place):
    file = place / BASELINE
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema": "perfkit.baseline/2"}))


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (torn, "new/result.json: cannot be read"),
        (torn_baseline, f"{BASELINE}: cannot be read"),
        (newer_baseline, f"{BASELINE}: this perfkit reads perfkit.baseline/1, found 'perfkit.baseline/2': a newer perfkit may read it"),
        (
            lambda place: write(place / "new", changed(document(), "schema", "perfkit.result/9")),
            "found 'perfkit.result/9': a newer perfkit may read it",
        ),
        (lambda place: (place / BASELINE).unlink(), "no such file or folder"),
    ],
)
def test_an_unreadable_file_is_a_usage_error_with_a_sentence(place, capsys, harm, sentence):
    harm(place)
    assert gate(candidate="new") == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "option",
    [
        ["--control", "3"],
        ["--pairs", "12"],
        ["--time", "6m"],
        ["--ready-timeout", "2m"],
        ["--set", "workload.seed=1"],
        ["--otlp", "http://127.0.0.1:4318"],
    ],
)
@pytest.mark.usefixtures("place")
def test_options_of_a_measuring_gate_are_refused(capsys, option):
    assert gate(*option) == 2
    assert "are for a gate that measures, not for stored results" in capsys.readouterr().err


def test_equal_builds_are_incomparable_unless_allowed(place):
    for name, day in (("old", 20), ("new", 21)):
        write(place / name, changed(run(1.0, day), "environment.target.build", "b1"))
    arguments = ["gate", "--baseline", "old", "--candidate", "new"]
    assert main(arguments) == 4
    assert main([*arguments, "--same-build"]) == 3


def test_the_verdict_is_written_to_every_requested_output(place, capsys, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place / "summary.md"))
    write_candidate(place, 1.2)
    assert gate("--junit", "ci/junit.xml", "--markdown", "ci/gate.md", "--out", "verdict") == 1
    out = capsys.readouterr().out
    assert "REGRESSED: " in out
    assert "\n::error title=regressed%3A p50%2C http%2C concurrency 4 (smoke)::p50 +20.0 %25 [" in out
    assert "This verdict rests on stored results" in out
    suite = ElementTree.parse(place / "ci" / "junit.xml").getroot()[0]  # noqa: S314 - what we have just written
    assert (suite.get("tests"), suite.get("failures")) == ("5", "4")
    assert (place / "summary.md").read_text().strip() == (place / "ci" / "gate.md").read_text().strip()
    assert json.loads((place / "verdict" / "verdict.json").read_text())["kind"] == "regressed"


def test_a_paired_verdict_is_written_with_its_pairs(place, capsys):
    scenario = place / "scenario.yaml"
    scenario.write_text(
        "{target: {model: synthetic}, workload: {inputs: {INPUT0: {generate: zeros, shape: [4]}}}, load: {open: {rate: 10}}, "
        "measure: {warmup: 50ms, duration: 300ms}, gate: {profile: standard, metrics: [throughput, p50]}}"
    )
    begin(scenario, place / "out", make_pairs(12, 1.1))
    targets = ["--baseline", URLS[0], "--candidate", URLS[1]]
    assert main(["gate", str(scenario), *targets, "--out", "out", "--junit", "j.xml", "--markdown", "m.md", "--github", "on"]) == 1
    assert "::error title=regressed" in capsys.readouterr().out
    assert '<failure message="p50 +' in (place / "j.xml").read_text()
    assert "Pairs: candidate against baseline" in (place / "m.md").read_text()


def test_annotations_go_to_stderr_if_stdout_is_json(place, capsys):
    write_candidate(place, 1.2)
    capsys.readouterr()
    assert gate("--format", "json", "--github", "on") == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["kind"] == "regressed"
    assert "\n::error title=regressed" in said.err


def test_runs_of_a_stored_gate_are_not_drawn_as_pairs(place):
    assert gate("--html", "gate.html") == 0
    page = (place / "gate.html").read_text()
    assert "http, concurrency 4" in page
    assert "Change in each pair" not in page


@pytest.mark.usefixtures("place")
def test_there_are_no_annotations_outside_github(capsys):
    assert gate() == 0
    assert "::" not in capsys.readouterr().out


def test_an_output_that_cannot_be_written_is_refused_at_once(place, capsys):
    assert gate("--junit", str(place)) == 2
    assert "this is a folder; give a file" in capsys.readouterr().err


def test_errors_of_the_candidate_alone_are_a_regression(place):
    requests = {**point()["requests"], "ok": 4800, "timed_out": 200}
    write_candidate(place, 1.0, requests=requests, error_rate=0.04)
    assert gate() == 1

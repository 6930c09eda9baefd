"""`perfkit run --resume` after a kill, an interrupt, and without either."""

import json
import shlex
import signal

import pytest

from perfkit.cli.main import main
from perfkit.result.file import read_result
from perfkit.result.interval_log import check_log
from tests.undisturbed import undisturbed

QUICK = {"warmup": "20ms", "duration": "200ms", "repetitions": 2}
CLOSED = {"closed": {"concurrency": [1, 2, 3], "think_time": "5ms"}}
SEARCH = {"search": {"slo": {"p50": "10s", "error_rate": "90%"}, "start_rate": 20, "max_rate": 120}}


def figures(points):
    """What no verdict on the load generator changes, which the killed process and this one give differently on a busy machine."""
    return [[point[name] for name in ("load", "repetition", "requests", "service_time_ns", "throughput_series_per_s")] for point in points]


def resume(perfkit, scenario, out):
    with undisturbed():
        return perfkit.run("run", scenario, "--out", out, "--resume")


@pytest.mark.parametrize(("load", "points"), [(CLOSED, 6), (SEARCH, None)], ids=["fixed load points", "search"])
def test_a_killed_run_measures_only_the_rest(perfkit, write_quick_scenario, tmp_path, load, points):
    measured = {**QUICK, "repetitions": 1} if "search" in load else QUICK
    scenario, out = write_quick_scenario(load=load, measure=measured), tmp_path / "out"
    running = perfkit.start("run", scenario, "--out", out)
    running.wait_for_line("[2/")
    running.signal(signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL
    before = json.loads((tmp_path / "out.partial" / "result.json").read_text())
    finished = resume(perfkit, scenario, out)
    assert finished.code == 0, finished.stderr
    assert "load points are taken from there" in finished.stderr
    assert "[1/" not in finished.stderr
    assert [path.name for path in tmp_path.glob("out*")] == ["out"]
    result, _ = read_result(out)
    check_log(out, result)
    assert result.status == "complete"
    assert len({(point.key, point.repetition) for point in result.points}) == len(result.points) == (points or len(result.points))
    (resumption,) = result.resumptions
    assert resumption.after_points >= 2
    assert figures(finished.result["points"][:2]) == figures(before["points"][:2])
    assert finished.result["started_at"] == before["started_at"]
    again = resume(perfkit, scenario, out)
    assert (again.code, again.result) == (0, finished.result), "a complete result is shown, and nothing is measured"
    assert "[" not in again.stderr.splitlines()[0]


def test_an_interrupted_run_prints_the_command_that_resumes_it(perfkit, write_quick_scenario, tmp_path):
    scenario, out = write_quick_scenario(load=CLOSED, measure={**QUICK, "repetitions": 500}), tmp_path / "out"
    running = perfkit.start("run", scenario, "--out", out)
    running.wait_for_line("[1/1500]")
    running.signal(signal.SIGINT)
    interrupted = running.finish()
    hint = interrupted.stderr.splitlines()[-2]
    assert hint == f"to measure the remaining load points: perfkit run {scenario} --out {out} --no-report --resume"
    refused = perfkit.run(*shlex.split(hint.partition(": perfkit ")[2]), "--set", "measure.repetitions=1")
    assert refused.code == 2
    assert "is of another scenario, which differs in measure.repetitions: give the same" in refused.stderr
    assert perfkit.run("run", scenario, "--resume", "--print-scenario").code == 0
    assert main(["run", str(scenario), "--resume"]) == 2, "without --out there is nothing to resume"


def test_a_killed_sweep_continues_within_its_interleaved_cases(perfkit, write_quick_scenario, tmp_path):
    out = tmp_path / "sweep"
    scenario = write_quick_scenario(load=CLOSED, measure=QUICK, sweep={"target.timeout": ["5s", "6s"]})
    running = perfkit.start("run", scenario, "--out", out)
    running.wait_for_line("[3/")
    running.signal(signal.SIGKILL)
    running.finish()
    folders = [case["folder"] for case in json.loads((out / "sweep.json").read_text())["cases"]]
    before = {
        name: json.loads(file.read_text())["points"] for name in folders if (file := out / f"{name}.partial" / "result.json").exists()
    }
    assert before
    finished = resume(perfkit, scenario, out)
    assert finished.code == 0, finished.stderr
    cases = json.loads((out / "sweep.json").read_text())["cases"]
    assert [case["status"] for case in cases] == ["complete", "complete"]
    assert [case["interleaved_group"] for case in cases] == [1, 1]
    for name, points in before.items():
        result = json.loads((out / name / "result.json").read_text())
        taken = result["resumptions"][0]["after_points"]
        assert figures(result["points"][:taken]) == figures(points[:taken])
        assert len(result["points"]) == 6
    assert {path.name for path in out.iterdir()} == {"sweep.json", *folders}

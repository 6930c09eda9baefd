"""`perfkit run --resume` after a kill, an interrupt, and without either."""

import json
import shlex
import signal

from perfkit.cli.main import main
from perfkit.result.file import read_result
from perfkit.result.interval_log import check_log

QUICK = {"warmup": "20ms", "duration": "200ms", "repetitions": 2}
CLOSED = {"closed": {"concurrency": [1, 2, 3], "think_time": "5ms"}}


def resume(perfkit, scenario, out):
    """Continues in this process, without `undisturbed`: the killed one judged the load generator, too, and a search decides by that."""
    return perfkit.run("run", scenario, "--out", out, "--resume")


def kill_after(perfkit, line, scenario, out):
    running = perfkit.start("run", scenario, "--out", out)
    running.wait_for_line(line)
    running.signal(signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL


def check_resumed(perfkit, scenario, out, finished):
    """A killed run was resumed, with all that was measured of it, and is not measured again."""
    assert "taken from there" in finished.stderr
    assert "[1/" not in finished.stderr
    result, _ = read_result(out)
    check_log(out, result)
    # other processes may have disturbed the load generator
    assert finished.code == (0 if result.status == "complete" else 5), finished.stderr
    assert len({(point.key, point.repetition) for point in result.points}) == len(result.points)
    assert len(result.resumptions) == 1
    if result.status == "complete":
        again = resume(perfkit, scenario, out)
        assert again.result == finished.result
        assert "[" not in again.stderr.splitlines()[0]
    return result


def test_a_killed_run_measures_only_the_rest(perfkit, write_quick_scenario, tmp_path):
    scenario, out = write_quick_scenario(load=CLOSED, measure=QUICK), tmp_path / "out"
    kill_after(perfkit, "[2/6]", scenario, out)
    before = json.loads((tmp_path / "out.partial" / "result.json").read_text())
    finished = resume(perfkit, scenario, out)
    result = check_resumed(perfkit, scenario, out, finished)
    assert len(result.points) == 6
    assert result.resumptions[0].after_points in (2, 3)
    assert finished.result["points"][:2] == before["points"][:2]
    assert finished.result["started_at"] == before["started_at"]
    assert [path.name for path in tmp_path.glob("out*")] == ["out"]


def test_a_killed_search_decides_from_its_recorded_probes(perfkit, write_scenario, slow_server, tmp_path):
    load = {"search": {"slo": {"p50": "1h", "error_rate": "90%"}, "start_rate": 20, "max_rate": 40}}
    target = {"model": "synthetic"}
    server = {"synthetic": "service=constant:300ms,servers=1000"}
    scenario = write_scenario(
        **{**slow_server, "target": target, "server": server}, load=load, measure={"warmup": "20ms", "duration": "200ms"}
    )
    out = tmp_path / "out"
    kill_after(perfkit, "[1/", scenario, out)
    before = json.loads((tmp_path / "out.partial" / "result.json").read_text())
    finished = resume(perfkit, scenario, out)
    result = check_resumed(perfkit, scenario, out, finished)
    assert finished.result["points"][0] == before["points"][0]
    assert finished.result["search"]["probes"][0] == before["search"]["probes"][0]
    assert [probe.rate_per_s for probe in result.search.probes] == [point.load.rate_per_s for point in result.points]


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
    kill_after(perfkit, "[3/12]", scenario, out)
    folders = [case["folder"] for case in json.loads((out / "sweep.json").read_text())["cases"]]
    before = {
        name: json.loads(file.read_text())["points"] for name in folders if (file := out / f"{name}.partial" / "result.json").exists()
    }
    assert before
    finished = resume(perfkit, scenario, out)
    cases = json.loads((out / "sweep.json").read_text())["cases"]
    assert finished.code == (0 if {case["status"] for case in cases} == {"complete"} else 5), finished.stderr
    assert [case["interleaved_group"] for case in cases] == [1, 1]
    for name, points in before.items():
        result = json.loads((out / name / "result.json").read_text())
        taken = result["resumptions"][0]["after_points"]
        assert result["points"][:taken] == points[:taken]
        assert len(result["points"]) == 6
    assert {path.name for path in out.iterdir()} == {"sweep.json", *folders}


def test_more_time_is_only_given_to_a_search_that_is_continued(tmp_path, capsys):
    scenario = tmp_path / "s.yaml"
    for load, options in (("{closed: {concurrency: 1}}", ["--resume", "--out", str(tmp_path / "out")]), ("{search: {slo: {p99: 1s}}}", [])):
        scenario.write_text(f"target: {{model: m}}\nload: {load}\n")
        assert main(["run", str(scenario), "--budget", "10m", *options]) == 2
        assert "--budget gives one search, of a scenario without a sweep, more time, with --resume" in capsys.readouterr().err

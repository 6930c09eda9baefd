"""`perfkit run` of a sweep: a result folder for each case, a table over all, and nothing measured twice."""

import json
import signal

import pytest

from tests.undisturbed import undisturbed

QUICK = {"warmup": "20ms", "duration": "100ms", "repetitions": 1}
CLOSED = {"closed": {"concurrency": 1, "think_time": "5ms"}}


def test_a_sweep_is_a_folder_of_results_and_continues_after_its_complete_cases(perfkit, write_quick_scenario, tmp_path):
    folder = tmp_path / "sweep"
    scenario = write_quick_scenario(load=CLOSED, measure=QUICK, sweep={"workload.batch_size": [1, 99]})
    with undisturbed():
        first = perfkit.run("run", scenario, "--out", folder)
    document = json.loads((folder / "sweep.json").read_text())
    assert document["schema"] == "perfkit.sweep/1"
    assert [case["folder"] for case in document["cases"]] == ["batch_size=1", "batch_size=99"]
    assert document["cases"][1]["status"] == "failed"  # 99 is more than the model takes
    assert "99" in document["cases"][1]["reason"]
    assert (document["cases"][0]["status"], first.code) == ("complete", 2), first.stderr
    assert {path.name for path in folder.iterdir()} == {"sweep.json", "batch_size=1"}, "nothing is drawn"
    kept = (folder / "batch_size=1" / "result.json").read_bytes()
    scenario = write_quick_scenario(load=CLOSED, measure=QUICK, sweep={"workload.batch_size": [1, 4]})
    with undisturbed():
        second = perfkit.run("run", scenario, "--out", folder, report=True)
    assert "1 of 2 cases are measured already" in second.stderr
    assert "case 2 of 2: workload.batch_size 4" in second.stderr
    assert "case 1 of 2" not in second.stderr
    assert second.stderr.splitlines()[-1] == "status: complete (2 of 2 cases complete; 2 load points; exit code 0)"
    assert (folder / "batch_size=1" / "result.json").read_bytes() == kept
    result = json.loads((folder / "batch_size=4" / "result.json").read_text())
    assert result["scenario"]["workload"]["batch_size"] == 4
    assert "workload.batch_size=4" in result["overrides"]
    table = (folder / "sweep.csv").read_text().splitlines()
    assert table[0].startswith("workload.batch_size,protocol,load,level,throughput_per_s")
    assert [line.split(",")[0] for line in table[1:]] == ["1", "4"]
    assert all((folder / name).exists() for name in ("report.md", "report.html"))


@pytest.mark.parametrize(
    ("key", "statuses"),
    [("server.threads", ["interrupted", "pending"]), ("workload.batch_size", ["interrupted", "interrupted"])],  # one by one, interleaved
)
def test_an_interrupted_sweep_prints_the_command_that_continues_it(perfkit, write_scenario, tmp_path, key, statuses):
    folder = tmp_path / "sweep"
    scenario = write_scenario(load=CLOSED, measure={**QUICK, "duration": "60s"}, sweep={key: [1, 4]})
    running = perfkit.start("run", scenario, "--out", folder)
    running.wait_for_line("target:")
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130
    *_, hint, status = finished.stderr.splitlines()
    assert hint == f"to measure the remaining cases: perfkit run {scenario} --out {folder} --no-report"
    assert status.startswith("status: interrupted (0 of 2 cases complete, ")
    cases = json.loads((folder / "sweep.json").read_text())["cases"]
    assert [case["status"] for case in cases] == statuses
    assert {case["interleaved_group"] for case in cases} == ({1} if statuses[1] == "interrupted" else {None})


def test_every_case_of_a_sweep_is_validated_and_a_foreign_folder_is_refused(perfkit, write_scenario, tmp_path):
    path = write_scenario(load=CLOSED, measure=QUICK, sweep={"workload.batch_size": [1, 4], "server.threads": [1, 2]})
    assert "a sweep over 4 cases" in perfkit.run("validate", path).stdout
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    refused = perfkit.run("run", path, "--out", tmp_path / "mine")
    assert refused.code == 2
    assert "this exists and is not the folder of a sweep" in refused.stderr


def test_choices_are_measured_interleaved_and_ranked(perfkit, write_scenario, tmp_path):
    folder = tmp_path / "sweep"
    choices = {"plain": {}, "shared": {"shared_memory": "system"}, "text": {"workload.encoding": "typed"}}
    scenario = write_scenario(
        target={"model": "simple", "protocols": ["http", "grpc"]},
        load=CLOSED,
        measure={**QUICK, "repetitions": 2},
        sweep={"choices": choices},
        telemetry=False,
    )
    finished = perfkit.run("run", scenario, "--out", folder)
    assert perfkit.run("report", "--table-only", folder).code == 0
    lines = [line for line in finished.stderr.splitlines() if line.startswith("[")]
    names = [line.split(": ")[0] for line in lines]
    assert names == [f"[{number}/12] choices {name}" for number, name in enumerate(
        ["plain", "shared", "text"] * 2 + ["text", "shared", "plain"] * 2, 1
    )]  # fmt: skip
    assert "3 of 3 cases on one server, interleaved load point by load point" in finished.stderr
    document = json.loads((folder / "sweep.json").read_text())
    assert [case["values"] for case in document["cases"]] == [{"choices": name} for name in choices]
    assert [case["interleaved_group"] for case in document["cases"]] == [1, 1, 1]
    assert {line.split(",")[0] for line in (folder / "sweep.csv").read_text().splitlines()} == {"choices", *choices}

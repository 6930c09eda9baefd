"""`perfkit run` as a process: results, exit codes, signals, lost servers."""

import json
import pathlib
import signal
import subprocess
import sys

import pytest

from tests import forked
from tests.conditions import until_ended

ROOT = pathlib.Path(__file__).parents[2]


def test_a_run_on_the_bundled_server_measures_both_protocols(perfkit, write_scenario):
    finished = perfkit.measure(write_scenario(target={"model": "simple", "protocols": ["http", "grpc"]}), report=True)
    result = finished.result
    assert [(point["protocol"], point["load"]["concurrency"]) for point in result["points"]] == [
        ("http", 1),
        ("http", 2),
        ("grpc", 1),
        ("grpc", 2),
    ]
    for point in result["points"]:
        assert point["requests"]["ok"] == point["requests"]["sent"] == point["service_time_ns"]["count"] > 0
        assert point["error_rate"] == 0
        assert 0 < point["service_time_ns"]["min"] <= point["service_time_ns"]["p50"] <= point["service_time_ns"]["max"]
    names = {path.name for path in finished.folder.iterdir()}
    assert names - {"telemetry.parquet", "telemetry.csv"} == {
        "checksums.sha256", "result.json", "latency.hlog", "report.html", "report.md", "plots",
    }  # fmt: skip
    assert len(names) == 7
    target = result["environment"]["target"]
    assert {protocol: (one["path"], one["tls"]) for protocol, one in target["protocols"].items()} == dict.fromkeys(
        ("http", "grpc"), ("loopback", False)
    )
    assert len({one["payload_sha256"] for one in target["protocols"].values()}) == 1  # the same tensors over both
    assert {len(one["model_config_sha256"]) for one in target["protocols"].values()} == {64}
    assert 0 < target["bundled_server"]["ready_after_s"] < 60
    assert "concurrency" in finished.stdout
    assert not finished.folder.with_name("out.partial").exists()
    page = finished.folder / "report.html"
    before = page.read_bytes()
    page.unlink()
    assert perfkit.run("report", finished.folder / "result.json").code == 0
    assert page.read_bytes() == before, "a report is written again from the folder alone"


def test_the_reference_engine_measures_the_same_model(perfkit, write_quick_scenario):
    finished = perfkit.measure(write_quick_scenario(target={"model": "simple", "engine": "reference", "protocols": ["http", "grpc"]}))
    assert finished.result["environment"]["target"]["engine"] == "reference"
    assert all(point["requests"]["ok"] == point["requests"]["sent"] > 0 for point in finished.result["points"])


def test_requests_share_connections_as_streams_if_the_scenario_says_so(perfkit, write_quick_scenario):
    target = {"model": "simple", "protocols": ["http", "grpc"], "streams_per_connection": 2}
    finished = perfkit.measure(write_quick_scenario(target=target), "--set", "load.closed.concurrency=[3]")
    assert [point["connections"]["opened"] for point in finished.result["points"]] == [3, 2]


def test_format_json_prints_the_result_and_nothing_else(perfkit, write_quick_scenario):
    finished = perfkit.measure(write_quick_scenario(), "--format", "json")
    assert json.loads(finished.stdout) == finished.result


def test_a_run_without_a_report_writes_its_data_only_and_the_report_can_be_written_later(perfkit, write_quick_scenario):
    finished = perfkit.measure(write_quick_scenario())
    data = {path.name for path in finished.folder.iterdir()}
    assert data - {"telemetry.parquet", "telemetry.csv"} == {"result.json", "latency.hlog", "checksums.sha256"}
    assert "out/: result.json, latency.hlog\n" in finished.stdout
    assert perfkit.run("report", finished.folder).code == 0
    assert {path.name for path in finished.folder.iterdir()} - data == {"report.html", "report.md", "plots"}


def test_a_window_of_a_number_of_requests_has_exactly_that_many(perfkit, write_quick_scenario):
    finished = perfkit.measure(write_quick_scenario(measure={"warmup": "0s", "requests": 70, "repetitions": 2}))
    assert [point["requests"]["sent"] for point in finished.result["points"]] == [70] * 4
    assert [point["requests"]["sent"] for point in finished.result["summary"]] == [140] * 2


def test_overrides_and_environment_reach_the_result(perfkit, write_quick_scenario):
    environ = {"PERFKIT_SET_LOAD__CLOSED__CONCURRENCY": "[3]", "PERFKIT_SET_MEASURE__REPETITIONS": "2"}
    finished = perfkit.measure(write_quick_scenario(), "--set", "measure.repetitions=1", environ=environ)
    assert [point["load"]["concurrency"] for point in finished.result["points"]] == [3]
    assert finished.result["overrides"] == ["load.closed.concurrency=[3]", "measure.repetitions=2", "measure.repetitions=1"]


def test_an_existing_result_is_replaced_but_any_other_folder_is_refused(perfkit, write_quick_scenario, tmp_path):
    scenario = write_quick_scenario(load={"closed": {"concurrency": 1}})
    first, second = perfkit.run("run", scenario).result, perfkit.run("run", scenario).result
    assert first["started_at"] < second["started_at"]
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("do not lose me")
    refused = perfkit.run("run", scenario, "--out", precious)
    assert refused.code == 2
    assert (precious / "thesis.txt").read_text() == "do not lose me"


@pytest.mark.parametrize(
    ("sections", "settings", "code", "sentence"),
    [
        ({"target": {"model": "simple", "modle": "x"}}, [], 2, "unknown key; did you mean 'model'?"),
        ({"measure": {"repetitions": "three"}}, [], 2, "measure.repetitions: expected an integer, found 'three'"),
        ({"load": {"closed": {"concurrency": 1}, "open": {"rate": 5}}}, [], 2, "give exactly one of closed, cold_start, idle, open, replay, search, surge; found closed and open"),
        ({"target": {"model": "simple", "url": "http://127.0.0.1:9"}}, [], 6, "http://127.0.0.1:9 cannot be reached"),
        ({"target": {"model": "simple", "url": "grpc://127.0.0.1:9"}}, [], 6, "grpc://127.0.0.1:9 cannot be reached"),
        ({"target": {"model": "nope"}}, [], 6, "nope"),
        ({"workload": {"inputs": {"INPUT0": {"generate": "ones", "shape": [15]}}}}, [], 2, "workload.inputs.INPUT0: the model takes shape [16], found [15]"),
        ({"workload": {"inputs": {"INPUT0": {"value": [0.5] * 16}}}}, [], 2, "do not fit INT32"),
        ({"workload": {"inputs": {"INPUT_1": {"generate": "ones"}}}}, [], 2, "did you mean 'INPUT1'?"),
        ({"workload": {"batch_size": 9}}, [], 2, "takes at most 8, found 9"),
        ({}, ["load.closed.concurrency"], 2, "expected KEY=VALUE"),
        ({"server": {"cpus": [4096]}}, [], 2, "this process may not use CPU 4096"),
    ],
)  # fmt: skip
def test_bad_input_ends_with_its_exit_code_and_a_message(perfkit, write_scenario, write_quick_scenario, sections, settings, code, sentence):
    write = write_quick_scenario if "workload" in sections else write_scenario
    finished = perfkit.run("run", write(**sections), *(f"--set={setting}" for setting in settings))
    assert finished.code == code, finished.stderr
    assert sentence in finished.stderr
    assert "Traceback" not in finished.stderr
    assert not finished.folder.exists()
    assert not finished.folder.with_name("out.partial").exists()


def test_errors_name_a_missing_file_and_the_line_of_broken_yaml(perfkit, tmp_path):
    missing = perfkit.run("run", tmp_path / "missing.yaml")
    assert missing.code == 2
    assert "missing.yaml: no such file" in missing.stderr
    broken = tmp_path / "broken.yaml"
    broken.write_text("target: {model: simple\nload: 3\n")
    finished = perfkit.run("validate", broken)
    assert finished.code == 2
    assert "broken.yaml:2: not valid YAML" in finished.stderr


def test_unknown_options_and_commands_are_usage_errors(perfkit, write_scenario):
    assert perfkit.run("run", write_scenario(), "--fast").code == 2
    assert perfkit.run("measure").code == 2


def test_the_first_interrupt_drains_and_keeps_what_was_measured(perfkit, write_scenario):
    running = perfkit.start("run", write_scenario(measure={"warmup": "0s", "duration": "300ms", "repetitions": 500}))
    running.wait_for_line("[3/1000]")
    servers = running.descendants()
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130
    assert finished.result["status"] == "interrupted"
    assert 3 <= len(finished.result["points"]) < 1000
    assert all(point["requests"]["unfinished"] == 0 for point in finished.result["points"])
    assert servers
    until_ended(servers)


def test_the_second_interrupt_does_not_wait_for_answers(perfkit, write_scenario, hanging_server):
    scenario = write_scenario(
        target={"model": "m", "url": hanging_server.url, "timeout": "1h"},
        measure={"warmup": "0s", "duration": "1h", "drain": "1h"},
        telemetry=False,
    )
    running = perfkit.start("run", scenario, is_patient=True)
    assert hanging_server.hangs.wait(60)
    running.signal(signal.SIGINT)
    running.wait_for_line("interrupt again to stop at once")
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130
    (point,) = finished.result["points"]
    assert point["requests"]["unfinished"] == point["requests"]["sent"] == 1
    assert finished.result["status"] == "interrupted"


def test_requests_without_an_answer_time_out_and_stay_in_the_distribution(perfkit, write_scenario, hanging_server):
    scenario = write_scenario(
        target={"model": "m", "url": hanging_server.url, "timeout": "200ms"},
        load={"closed": {"concurrency": 1}},
        measure={"warmup": "0s", "requests": 2, "repetitions": 1},
        telemetry=False,
    )
    finished = perfkit.run("run", scenario)
    (point,) = finished.result["points"]
    assert point["requests"]["timed_out"] == 2
    assert point["service_time_ns"]["count"] == 2
    assert point["service_time_ns"]["max"] >= 199_000_000, "the other one's time ran while it was connected"
    assert point["error_rate"] == 1
    assert "censored" in {warning["code"] for warning in point["warnings"]}


def test_a_bundled_server_that_dies_leaves_what_was_measured(perfkit, write_scenario):
    measure = {"warmup": "0s", "duration": "300ms", "repetitions": 500}
    running = perfkit.start("run", write_scenario(measure=measure, telemetry=False))
    running.wait_for_line("[2/1000]")
    running.child("server_stub").kill()
    finished = running.finish()
    assert finished.code == 6
    assert finished.result["status"] == "incomplete"
    assert len(finished.result["points"]) >= 2
    assert "Traceback" not in finished.stderr


def test_a_server_elsewhere_that_dies_leaves_what_was_measured(perfkit, write_scenario):
    command = [sys.executable, "-m", "server_stub", "--http-port", "0", "--grpc-port", "0", "--model", "simple", "--exit-with-stdin"]
    with forked.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        ready = json.loads(server.stdout.readline())
        scenario = write_scenario(
            target={"model": "simple", "url": f"http://127.0.0.1:{ready['http_port']}"},
            measure={"warmup": "0s", "duration": "300ms", "repetitions": 500},
            telemetry=False,
        )
        running = perfkit.start("run", scenario)
        running.wait_for_line("[2/1000]")
        server.kill()
        finished = running.finish()
    assert finished.code == 6
    assert finished.result["status"] == "incomplete"
    assert len(finished.result["points"]) >= 2
    assert "Traceback" not in finished.stderr


def test_the_bundled_server_ends_even_when_perfkit_is_killed(perfkit, write_scenario):
    running = perfkit.start("run", write_scenario(measure={"warmup": "0s", "duration": "300ms", "repetitions": 500}))
    running.wait_for_line("[1/1000]")
    servers = running.descendants()
    assert servers
    running.signal(signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL
    until_ended(servers)


def test_validate_says_what_a_scenario_targets(perfkit):
    finished = perfkit.run("validate", ROOT / "scenarios" / "densenet.yaml")
    assert finished.code == 0
    assert "; model densenet_onnx over http and grpc; a run without target.url starts the bundled server, a gate " in finished.stdout


def test_validate_names_no_gate_for_a_mix_which_cannot_be_gated(perfkit):
    finished = perfkit.run("validate", ROOT / "scenarios" / "mix.yaml")
    assert finished.code == 0
    assert "small: model simple of the bundled server over http; " in finished.stdout
    assert "gate" not in finished.stdout


@pytest.mark.parametrize(("what", "key"), [("scenario", "target"), ("result", "points")])
def test_schema_prints_a_json_schema(perfkit, what, key):
    finished = perfkit.run("schema", what)
    assert finished.code == 0
    assert key in json.loads(finished.stdout)["properties"]


def test_an_interrupt_in_the_warm_up_writes_nothing(perfkit, write_scenario, hanging_server):
    measure = {"warmup": "1h", "duration": "1h", "drain": "0s"}
    scenario = write_scenario(target={"model": "m", "url": hanging_server.url}, measure=measure, telemetry=False)
    running = perfkit.start("run", scenario)
    assert hanging_server.hangs.wait(60)
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130
    assert "nothing was measured" in finished.stderr
    assert not finished.folder.exists()
    assert not finished.folder.with_name("out.partial").exists()

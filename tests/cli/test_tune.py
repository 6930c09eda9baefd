"""`perfkit tune` from outside, on a server that can load its model with another configuration, and on commands.

The server is as quick as its instances: the truth is known. Whatever ends the command, its configuration is the one before, to the byte.
"""

import itertools
import json
import pathlib
import shlex
import signal
import sys
import threading

import pytest
import yaml

from perfkit.cli.main import main
from tests.cli.tune_target import CONFIG, outcome_of
from tests.closed_schema import validator_of
from tests.undisturbed import undisturbed_tunes

ROOT = pathlib.Path(__file__).parents[2]
WAIT_S = 60
ENOUGH = "60s"
"""The time of tunes that end long before it, unless the machine is busy."""
SOME = "12s"
"""The time of tunes that may confirm until it is over, on a noisy machine."""
QUICK = ("--set", "measure.warmup=20ms")
OTHERS = "instance_group.count=2,8"
CODES = {"better": 0, "kept": 0, "undecided": 3}
"""The exit code of each kind of answer; how many pairs an answer takes is up to the machine, so that its kind is none of these tests'."""


def options(triton, tmp_path, *more, space=OTHERS, time=SOME, load=("-c", "2,8")):
    return [
        "tune", triton.url, "-m", "m", *load, "--space", space, "--time", time, "--out", str(tmp_path / "tune"),
        *QUICK, "--set", "telemetry=false", *more,
    ]  # fmt: skip


def tuned(tmp_path, arguments):
    """The outcome of a tune that ends by itself, with the exit code of its kind."""
    with undisturbed_tunes():
        code = main(arguments)
    outcome = outcome_of(tmp_path)
    assert code == CODES[outcome["kind"]]
    return outcome


def start(perfkit, triton, tmp_path, act):
    """A tune; its server calls `act` with it when it loads the other configuration for the second time: windows of both are measured by then."""
    eights = itertools.count(1)

    def on_load(config):
        if config is not None and json.loads(config)["instance_group"][0]["count"] == 8 and next(eights) == 2:
            act(running)

    triton.on_load = on_load
    running = perfkit.start(*options(triton, tmp_path, "--indifference", "50%", time=ENOUGH), is_undisturbed=True)
    return running


def test_the_best_configuration_is_found_and_the_present_one_is_put_back(triton, tmp_path, capsys):
    before = triton.loaded
    outcome = tuned(tmp_path, options(triton, tmp_path, "--indifference", "50%"))
    shown = capsys.readouterr()
    assert triton.loaded == before
    validator_of("tune").validate(outcome)
    assert outcome["rows"][outcome["best"]]["values"] == {"instance_group.count": "8"}
    if outcome["interval"] is not None:  # a busy machine leaves too little time for it
        assert outcome["interval"][0] < 5, "8 instances serve four times as much as 2"
        assert outcome["interval"][1] > 3
    assert shown.out.startswith("instance_group.count 2 → 8")
    assert "instance_group {\n  kind: KIND_CPU\n  count: 8\n}" in (tmp_path / "tune" / "best.config.pbtxt").read_text()
    assert '+      "count": 8' in (tmp_path / "tune" / "best.diff").read_text()
    assert "Tune: m" in (tmp_path / "tune" / "report.html").read_text()
    assert list((tmp_path / "state").rglob("*.json")) == []


def test_metrics_that_a_scenario_without_telemetry_does_not_have_are_not_pushed(triton, tmp_path, capsys):
    before = triton.loaded
    assert main(options(triton, tmp_path, "--otlp", "http://127.0.0.1:4318")) == 2
    assert "--otlp: the scenario turns telemetry off, so there are no live metrics" in capsys.readouterr().err
    assert triton.loaded == before


def test_a_configuration_that_does_not_load_is_a_row_with_the_servers_words(triton, tmp_path):
    triton.refused_counts = {16}
    before = triton.loaded
    outcome = tuned(tmp_path, options(triton, tmp_path, space="instance_group.count=2,16", time=ENOUGH))
    assert outcome["kind"] == "kept"
    row = next(row for row in outcome["rows"] if row["values"] == {"instance_group.count": "16"})
    assert row["state"] == "refused"
    assert "out of memory" in row["reason"]
    assert triton.loaded == before


def test_a_configuration_that_loads_no_longer_is_out(triton, tmp_path):
    before = triton.loaded

    def refuse_the_second_time(_):
        eights = [one for one in triton.loads if one and json.loads(one)["instance_group"][0]["count"] == 8]
        triton.refused_counts = {8} if len(eights) > 1 else set()

    triton.on_load = refuse_the_second_time
    outcome = tuned(tmp_path, options(triton, tmp_path, time=ENOUGH))
    assert outcome["rows"][1]["state"] == "refused"
    assert (outcome["kind"], outcome["best"]) == ("kept", 0)
    assert triton.loaded == before


def test_a_configuration_that_loads_but_answers_no_request_is_a_row_with_the_reason(triton, tmp_path):
    triton.failing_counts = {8}
    before = triton.loaded
    outcome = tuned(tmp_path, options(triton, tmp_path, time=ENOUGH))
    assert outcome["rows"][1]["state"] == "failed"
    assert "unexpected shape for input 'i'" in outcome["rows"][1]["reason"]
    assert (outcome["kind"], outcome["best"]) == ("kept", 0)
    assert outcome["sentence"].endswith("; 1 could not be compared (1 failed).")
    assert triton.loaded == before


def test_a_request_that_is_wrong_for_the_present_configuration_ends_the_tune(triton, tmp_path, capsys):
    triton.failing_counts = {2}
    before = triton.loaded
    assert main(options(triton, tmp_path)) == 2
    assert "unexpected shape for input 'i'" in capsys.readouterr().err
    assert triton.loaded == before


def test_a_server_that_does_not_load_on_request_is_left_alone(triton, tmp_path, capsys):
    triton.is_explicit = False
    before = triton.loaded
    assert main(options(triton, tmp_path)) == 2
    assert "--model-control-mode=explicit --load-model=m" in capsys.readouterr().err
    assert triton.loaded == before


def test_a_slo_that_no_load_meets_is_said(triton, tmp_path):
    outcome = tuned(tmp_path, options(triton, tmp_path, "--slo", "p50=1ms", time=ENOUGH))
    assert {row["state"] for row in outcome["rows"]} == {"unmet"}
    assert outcome["sentence"] == "No configuration was found that answers requests with p50 < 1ms."


def test_a_dry_run_changes_nothing(triton, tmp_path, capsys):
    assert main(options(triton, tmp_path, "--dry-run")) == 0
    shown = capsys.readouterr().out
    assert "instance_group.count 2  (present)" in shown
    assert triton.loads == []
    assert not (tmp_path / "tune").exists()


@pytest.mark.parametrize(("number", "code", "reads_repository"), [(signal.SIGINT, 130, True), (signal.SIGTERM, 143, False)])
def test_a_signal_ends_a_tune_with_the_configuration_put_back(perfkit, triton, tmp_path, number, code, reads_repository):
    """Also on a server that does not read its repository again: it gets the stored configuration."""
    before, is_loading = triton.loaded, threading.Event()
    triton.reads_repository = reads_repository
    running = start(perfkit, triton, tmp_path, lambda _: is_loading.set())
    assert is_loading.wait(WAIT_S)
    running.signal(number)
    finished = running.finish()
    assert finished.code == code, finished.stderr
    assert triton.loaded == before
    assert "--resume" in finished.stderr
    assert list((tmp_path / "state").rglob("*.json")) == []


@pytest.mark.parametrize(("is_explicit", "code"), [(True, 130), (False, 6)])
def test_two_interrupts_while_a_configuration_is_loaded_end_a_tune_once_it_is_put_back(perfkit, triton, tmp_path, is_explicit, code):
    before, loads, goes_on = triton.loaded, threading.Event(), threading.Event()

    def hang(_):
        loads.set()
        goes_on.wait(WAIT_S)

    running = start(perfkit, triton, tmp_path, hang)
    assert loads.wait(WAIT_S)
    running.signal(signal.SIGINT)
    running.wait_for_line("the server is put back")
    running.signal(signal.SIGINT)
    running.wait_for_line("a load that is under way is awaited")  # by the thread of the signals, which ends the process
    triton.is_explicit = is_explicit
    goes_on.set()
    finished = running.finish()
    assert finished.code == code, finished.stderr
    assert ("the configuration was put back" in finished.stderr) == is_explicit
    assert (f"perfkit tune --restore {tmp_path / 'tune'}" in finished.stderr) != is_explicit
    assert (triton.loaded == before) == is_explicit


def test_a_killed_tune_is_told_by_the_next_command_and_put_back(perfkit, triton, tmp_path, capsys):
    before = triton.loaded
    running = start(perfkit, triton, tmp_path, lambda tune: tune.signal(signal.SIGKILL))
    assert running.finish().code == -signal.SIGKILL
    assert triton.loaded != before

    def run(name):
        arguments = ["run", triton.url, "-m", "m", "-c", "1", "--duration", "50ms", "--set", "measure.warmup=0s", "--no-report"]
        main([*arguments, "--out", str(tmp_path / name)])
        return capsys.readouterr().err

    command = f"perfkit tune --restore {tmp_path / 'tune'}"
    assert run("before").count(command) == 1
    assert '"changed_model"' in (tmp_path / "before" / "result.json").read_text()
    assert main(options(triton, tmp_path, "--out", str(tmp_path / "another"))) == 2
    assert command in capsys.readouterr().err
    loads = list(triton.loads)
    assert main(options(triton, tmp_path, "--dry-run", "--resume")) == 2
    assert command in capsys.readouterr().err
    assert main(["tune", triton.url, "-m", "other", "--restore", str(tmp_path / "tune")]) == 2
    assert "model 'm'" in capsys.readouterr().err
    assert main(["tune", "http://127.0.0.1:9", "-m", "m", "--restore", str(tmp_path / "tune")]) == 2
    assert triton.url in capsys.readouterr().err
    assert triton.loads == loads
    assert main(["tune", "--restore", str(tmp_path / "tune")]) == 0
    assert triton.loaded == before
    assert command not in run("after")
    assert '"changed_model"' not in (tmp_path / "after" / "result.json").read_text()


def test_a_killed_tune_goes_on_where_it_was(perfkit, triton, tmp_path):
    before = triton.loaded
    running = start(perfkit, triton, tmp_path, lambda tune: tune.signal(signal.SIGKILL))
    assert running.finish().code == -signal.SIGKILL
    windows = tmp_path / "tune" / "windows.jsonl"
    measured = windows.read_text().rpartition("\n")[0].splitlines()  # without a line that the kill cut
    tuned(tmp_path, options(triton, tmp_path, "--resume", "--indifference", "50%", time=ENOUGH))
    kept = windows.read_text().splitlines()
    assert len(kept) > len(measured) > 0
    assert kept[: len(measured)] == measured
    assert triton.loaded == before


def test_a_server_that_is_lost_is_said_with_the_command_that_puts_it_back(perfkit, triton, tmp_path):
    running = start(perfkit, triton, tmp_path, lambda _: setattr(triton, "is_explicit", False))
    finished = running.finish()
    assert finished.code == 6
    assert f"perfkit tune --restore {tmp_path / 'tune'}" in finished.stderr


@pytest.mark.parametrize(
    "config", ['{"instance_group": 3}', '{"instance_group": ["x"]}', '{"max_batch_size": "many"}', '{"instance_group": [{"count": [2]}]}']
)
def test_a_configuration_of_another_form_is_no_bug(triton, capsys, config):
    triton.loaded = config
    assert main(["tune", triton.url, "-m", "m", "--dry-run"]) in (2, 6)
    assert "bug in perfkit" not in capsys.readouterr().err


def synthetic(tmp_path, *more, time="20s"):
    server = "-m server_stub --model synthetic --synthetic service=constant:5ms,servers={servers} --http-port {port} --grpc-port 0"
    command = f"cmd:{shlex.quote(sys.executable)} {server} --exit-with-stdin"
    return [
        "tune", command, "-m", "synthetic", "--shape", "INPUT0=4", "-c", "2,8", "--space", "servers=1,4", "--time", time,
        "--out", str(tmp_path / "tune"), "--indifference", "50%", *QUICK, *more,
    ]  # fmt: skip


def test_a_command_is_started_with_each_value(tmp_path):
    tuned(tmp_path, synthetic(tmp_path))
    assert json.loads((tmp_path / "tune" / "best.json").read_text())["values"] == {"servers": "4"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "a target is missing"),
        (["cmd:serve {port} {threads}"], "-m MODEL is missing"),
        (["cmd:serve {port} {threads}", "-m", "m"], "{threads} has no values"),
        (["cmd:serve {port}", "-m", "m", "--rate", "5"], "load: a tune measures closed loops"),
        (["cmd:serve {port}", "-m", "m", "--set", "load.closed.concurrency={to: 9, over: 5s}"], "load: a tune measures closed loops"),
        (["grpc://127.0.0.1:1", "-m", "m"], "over HTTP"),
        (["http://127.0.0.1:1", "grpc://127.0.0.1:1", "-m", "m", "--protocol", "http,grpc"], "one protocol"),
        (["cmd:serve {http_port} {grpc_port}", "-m", "m", "--protocol", "http,grpc"], "one protocol"),
        (["http://127.0.0.1:1", "-m", "m", "--repository", "models"], "--repository goes with a command"),
        (["cmd:serve {port}", "-m", "m", "--repository", "{folder}"], "it has no folder m"),
        (["http://127.0.0.1:1", "-m", "m", "--resume"], "--resume needs --out DIR"),
        (["--restore", "{folder}"], "progress.json"),
        (["http://127.0.0.1:1", "-m", "m", "--objective", "latency"], "give --rate 200"),
        (["http://127.0.0.1:1", "-m", "m", "--objective", "latency", "--rate", "5,6"], "at one rate"),
        (["http://127.0.0.1:1", "-m", "m", "--objective", "cost"], "only of a server that perfkit starts"),
        (["http://127.0.0.1:1", "-m", "m", "--set", "tune.rate=5"], "only the objective latency has a rate"),
    ],
)
def test_a_tune_that_makes_no_sense_is_refused(tmp_path, capsys, arguments, sentence):
    assert main(["tune", *(one.replace("{folder}", str(tmp_path)) for one in arguments)]) == 2
    assert sentence in capsys.readouterr().err


def test_a_command_whose_server_ends_while_it_is_measured_is_no_refusal(tmp_path):
    server = tmp_path / "server.py"
    server.write_text(
        "import os, sys, time\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.json_server import JsonServer, v2_handler\n"
        "def on_inference(_):\n"
        "    time.sleep(0.005)\n"
        "    if sys.argv[2] == '4': os._exit(7)\n"
        "JsonServer(('127.0.0.1', int(sys.argv[1])), v2_handler(on_inference)).serve_forever()\n"
    )
    command = f"cmd:{shlex.quote(sys.executable)} {shlex.quote(str(server))} {{port}} {{servers}}"
    arguments = ["tune", command, "-m", "m", "-c", "2", "--space", "servers=1,4", "--time", ENOUGH, "--out", str(tmp_path / "tune")]
    row = tuned(tmp_path, [*arguments, *QUICK])["rows"][1]
    assert row["state"] == "failed"
    assert "exit" in row["reason"]


def test_the_space_of_a_scenario_is_used(triton, tmp_path, capsys):
    document = {
        "target": {"url": triton.url, "model": "m"},
        "load": {"closed": {"concurrency": [1, 4]}},
        "tune": {"space": {"instance_group.count": [2, 3], "dynamic_batching": [False]}},
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    assert main(["tune", str(tmp_path / "s.yaml"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "2 configurations, each at up to 2 concurrencies from 1 to 4" in shown
    assert "  1  instance_group.count 3, dynamic_batching off" in shown


FLAGS = tuple("abc")
"""Parameters of two values: with two counts 16 configurations."""


@pytest.fixture
def flagged(triton):
    parameters = {flag: {"string_value": "0"} for flag in FLAGS}
    triton.repository["m"] = triton.loaded = json.dumps({**CONFIG, "parameters": parameters}, indent=1)
    return triton


def large(triton, tmp_path, *more, **how):
    spaces = [word for one in FLAGS for word in ("--space", f"parameters.{one}=0,1")]
    return options(triton, tmp_path, *spaces, "--indifference", "60%", *more, time="20s", **how)


def test_a_large_space_begins_with_those_that_differ_by_one_key(flagged, tmp_path, capsys):
    assert main(large(flagged, tmp_path, "--dry-run")) == 0
    shown = capsys.readouterr().out
    assert "5 configurations, each at up to 2 concurrencies from 2 to 8" in shown
    assert "of 16 in the space: these differ from the present one by one key" in shown


def test_the_best_of_a_large_space_is_found_with_part_of_it_measured(flagged, tmp_path):
    triton, before = flagged, flagged.loaded
    outcome = tuned(tmp_path, large(triton, tmp_path, load=("-c", "8")))
    assert triton.loaded == before
    validator_of("tune").validate(outcome)
    assert outcome["space"] == 16
    assert 5 < len(outcome["rows"]) < 16
    best = next(row for row in outcome["rows"] if row["number"] == outcome["best"])
    assert best["values"]["instance_group.count"] == "8"
    measured = sum(row["state"] != "waiting" for row in outcome["rows"])
    assert f"{measured} of 16 configurations of the space were measured" in outcome["sentence"]
    progress = json.loads((tmp_path / "tune" / "progress.json").read_text())
    assert {row["number"] for row in outcome["rows"][5:]} <= set(progress["opened"])


def test_the_lowest_p99_at_a_rate_is_found(triton, tmp_path):
    arguments = options(triton, tmp_path, "--objective", "latency", "--indifference", "50%", time="20s", load=("--rate", "300"))
    outcome = tuned(tmp_path, arguments)
    assert (outcome["objective"], outcome["rate_per_s"]) == ("latency", 300)
    rows = {row["values"]["instance_group.count"]: row for row in outcome["rows"]}
    assert rows["8"]["concurrency"] == 0
    assert rows["8"]["p99_ns"] < rows["2"]["p99_ns"], "2 instances answer 400 a second at most, so that requests wait"


def test_the_throughput_per_cpu_of_a_command_is_compared(tmp_path):
    outcome = tuned(tmp_path, synthetic(tmp_path, "--objective", "cost", time=ENOUGH))
    assert outcome["objective"] == "cost"
    assert [row["windows"] > 0 and row["server_cpus"] > 0 for row in outcome["rows"]] == [True, True]


def test_the_objective_of_a_scenario_is_used(triton, tmp_path, capsys):
    document = {
        "target": {"url": triton.url, "model": "m"},
        "load": {"closed": {"concurrency": [1, 4]}},
        "tune": {"space": {"instance_group.count": [2, 3]}, "objective": "latency", "rate": 50},
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    assert main(["tune", str(tmp_path / "s.yaml"), "--dry-run"]) == 0
    assert "2 configurations, each with Poisson arrivals at 50.0/s" in capsys.readouterr().out

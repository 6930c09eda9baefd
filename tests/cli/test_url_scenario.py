"""`perfkit run URL`: options that stand for a scenario, which can be printed, and then measures the same."""

import argparse
import json
import pathlib
from typing import Any

import pytest
import yaml

from perfkit.cli.options import command_that_continues
from perfkit.cli.url_scenario import add_scenario_or_url_options, scenario_source
from perfkit.scenario.file import make_cases, read_scenario
from tests.json_server import serving, v2_handler

HTTP, GRPC = "http://127.0.0.1:8000", "grpc://127.0.0.1:8001"


@pytest.fixture
def printed(perfkit):
    """The scenario that a command line stands for, as its YAML has it."""

    def printed(*arguments):
        finished = perfkit.run("run", *arguments, "--print-scenario")
        assert (finished.code, finished.stderr) == (0, "")
        return yaml.safe_load(finished.stdout)

    return printed


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-c", "1,8"], {"load": {"closed": {"concurrency": [1, 8]}}}),
        ([], {"load": {"closed": {"concurrency": [1, 4, 16]}}, "measure": {"duration": "3s", "repetitions": 3}}),
        (["--rate", "50,2.5,6000/m"], {"load": {"open": {"rate": [50, 2.5, "6000/m"]}}}),
        (["--duration", "10s"], {"measure": {"duration": "10s", "repetitions": 3}}),
        (["--slo", "p99=50ms", "--slo", "p99.9<1s", "--slo", "error_rate=0.1%"], {"slo": {"p99": "50ms", "p99_9": "1s", "error_rate": "0.1%"}}),
        (["--shape", "A=1,16", "--shape", "B=4"], {"workload": {"inputs": {
            "A": {"generate": "random", "shape": [1, 16]}, "B": {"generate": "random", "shape": [4]}}}}),
        (["--input", "A=zeros", "--shape", "A=1,16", "--input", "B=x.npy", "--input", "C=[1, 2]", "--input", "D=cat.JPG",
          "--input", "E={strings: [a=b]}", "--input", "F=omit"], {"workload": {"inputs": {
            "A": {"generate": "zeros", "shape": [1, 16]}, "B": {"file": "x.npy"}, "C": {"value": [1, 2]}, "D": {"image": "cat.JPG"},
            "E": {"strings": ["a=b"]}, "F": {"generate": "omit"}}}}),
        (["--batch-size", "8"], {"workload": {"batch_size": 8}}),
        (["--set", "load.search.slo.p99=50ms"], {"load": {"search": {"slo": {"p99": "50ms"}}}}),
        (["--set", "load={open: {rate: [5]}}"], {"load": {"open": {"rate": [5]}}, "measure": {"duration": "3s", "repetitions": 3}}),
        (["--set", "load={idle: {gap: 1s}}"], {"load": {"idle": {"gap": "1s"}}}),
        (["--set", "load={replay: {trace: t.csv}}"], {"load": {"replay": {"trace": "t.csv"}}}),
        (["--set", "load.closed.think_time=1ms"], {"load": {"closed": {"think_time": "1ms", "concurrency": [1, 4, 16]}}}),
        (["--set", "measure.requests=100"], {"measure": {"requests": 100, "repetitions": 3}}),
        (["--set", "target.timeout=5s"], {"target": {"url": HTTP, "model": "m", "timeout": "5s"}}),
    ],
)  # fmt: skip
def test_each_option_is_a_key_of_the_printed_scenario(printed, arguments, expected):
    document = printed(HTTP, "-m", "m", *arguments)
    assert {key: document[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        ([HTTP, "-m", "m"], {"url": HTTP}),
        ([HTTP, GRPC, "-m", "m"], {"urls": {"http": HTTP, "grpc": GRPC}}),
        ([HTTP, "-m", "m", GRPC], {"urls": {"http": HTTP, "grpc": GRPC}}),
        ([GRPC, HTTP, "--protocol", "http,grpc", "-m", "m"], {"urls": {"grpc": GRPC, "http": HTTP}}),
        ([HTTP, GRPC, "--protocol", "grpc", "-m", "m"], {"url": GRPC}),
        (["unix:/run/v2.sock", "-m", "m"], {"url": "unix:/run/v2.sock"}),
    ],
)
def test_each_url_is_measured_unless_protocol_chooses_among_them(printed, arguments, target):
    assert printed(*arguments)["target"] == {**target, "model": "m"}


@pytest.mark.parametrize(
    "setting", ["load.search.slo.p99=50ms", "load={search: {slo: {p99: 50ms}}}", "measure.requests=100", "load={open: {rate: [5]}}"]
)
def test_a_load_or_window_set_by_key_replaces_the_defaults(setting):
    parser = argparse.ArgumentParser()
    add_scenario_or_url_options(parser)
    (case,) = make_cases(scenario_source(parser.parse_args([HTTP, "-m", "m", "--set", setting])), [setting], {})
    assert case.loaded.scenario.target.model == "m"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["run", "s.yaml"], "perfkit run s.yaml --out reports/s"),
        (
            ["run", HTTP, "-m", "m", "-c", "1,4", "--set", "sweep={workload.batch_size: [1, 2]}", "--out", "reports/s"],
            f"perfkit run {HTTP} -m m -c 1,4 --set 'sweep={{workload.batch_size: [1, 2]}}' --out reports/s",
        ),
        (
            ["run", "http://u:secret@h", "-m", "m", "--set=target.headers.x=secret"],
            "perfkit run 'http://<redacted>@h' -m m '--set=target.headers.x=<redacted>' --out reports/s (with the secrets in place of <redacted>)",
        ),
    ],
)
def test_the_command_that_continues_is_the_one_that_was_entered_without_secrets(arguments, command):
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    add_scenario_or_url_options(parser)
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    options.arguments = arguments
    assert command_that_continues(options, pathlib.Path("reports/s")) == command


def test_a_load_given_twice_is_refused(perfkit):
    finished = perfkit.run("run", HTTP, "-m", "m", "-c", "4", "--set", "load.search.slo.p99=50ms")
    assert (finished.code, "load: " in finished.stderr) == (2, True), finished.stderr


def test_the_printed_scenario_is_the_one_that_is_run(perfkit, server, tmp_path):
    options = ["-m", "simple_identity", "--shape", "INPUT0=4", "-c", "1", "--duration", "50ms", "--slo", "p50=10s"]
    options += ["--set", "measure.warmup=0s", "--set", "measure.repetitions=1", "--set", "telemetry=false"]
    file = tmp_path / "printed.yaml"
    file.write_text(perfkit.run("run", server.http, server.grpc, *options, "--print-scenario").stdout)
    finished = perfkit.run("run", server.http, server.grpc, *options)
    assert {point["protocol"] for point in finished.result["points"]} == {"http", "grpc"}
    assert all(point["requests"]["ok"] for point in finished.result["points"]), finished.stderr
    again = perfkit.run("run", file, "--out", tmp_path / "again")
    stored = json.loads((tmp_path / "again" / "result.json").read_text())["scenario"]
    assert finished.result["scenario"] == stored, again.stderr


def index_handler(*names):
    """A server that lists these models, the last of which is not ready, and has the model `m`."""
    served: Any = v2_handler(lambda _: None)

    def do_post(handler):
        if handler.path != "/v2/repository/index":
            return served.do_POST(handler)
        handler.body()
        states = [*["READY"] * (len(names) - 1), "UNAVAILABLE"]
        return handler.answer(200, [{"name": name, "version": "1", "state": state} for name, state in zip(names, states, strict=False)])

    return type("Handler", (served,), {"do_POST": do_post})


def test_the_model_may_be_left_out_where_one_alone_is_ready(perfkit):
    with serving(index_handler("m", "broken")) as port:
        finished = perfkit.run("run", f"http://127.0.0.1:{port}", "-c", "1", "--duration", "50ms")
        assert finished.result["scenario"]["target"]["model"] == "m", finished.stderr
    with serving(index_handler("a", "b", "broken")) as port:
        url = f"http://127.0.0.1:{port}"
        finished = perfkit.run("run", url)
        assert (finished.code, finished.stderr) == (2, f"perfkit: -m MODEL is missing: the server has a, b; perfkit init {url} says more\n")
    with serving(index_handler()) as port:
        assert "the server lists no model that is ready" in perfkit.run("run", f"http://127.0.0.1:{port}").stderr


def test_a_model_name_that_no_scenario_could_have_still_names_the_run(printed):
    assert printed(HTTP, "-m", "/a b")["name"] == "a-b"
    assert printed(HTTP, "-m", "名")["name"] == "scenario"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([HTTP, "--print-scenario"], "-m MODEL is missing"),
        ([HTTP, "-m", ""], "-m MODEL is missing"),
        ([HTTP, HTTP, "-m", "m"], "give one URL for each protocol"),
        ([HTTP, "-m", "m", "--protocol", "grpc"], "--protocol grpc: no URL is for grpc: add it, such as grpc://HOST:8001"),
        (["ftp://h", "-m", "m"], "expected http://HOST:PORT"),
        (["http://u:secret@h:x", "-m", "m"], "found 'http://<redacted>@h:x'"),
        ([HTTP, "simple", "-m", "m"], "simple: give either a scenario or URLs"),
        (["simple", "densenet"], "one scenario at a time"),
        (["simple", "-c", "4"], "-c goes with a URL; with a scenario: --set load.closed.concurrency='[1,4]'"),
        ([HTTP, "-m", "m", "-c", "4,4"], "-c: load.closed.concurrency: values must be unique"),
        ([HTTP, "-m", "m", "-c", "0"], "expected a whole number from 1 to 65,536, found '0'"),
        ([HTTP, "-m", "m", "-c", "1", "--rate", "5"], "not allowed with argument"),
        ([HTTP, "-m", "m", "--rate", "fast"], "expected a rate such as 100 or 100/s, found 'fast'"),
        ([HTTP, "-m", "m", "--duration", "0s"], "--duration: measure.duration: input should be greater than 0"),
        ([HTTP, "-m", "m", "--slo", "p98=5ms"], "found 'p98=5ms'"),
        ([HTTP, "-m", "m", "--slo", "p99=50"], "expected a duration such as 250us"),
        ([HTTP, "-m", "m", "--shape", "A=-1"], "such as INPUT0=1,16, found 'A=-1'"),
        ([HTTP, "-m", "m", "--input", "A=ramdom"], "A: expected random, zeros"),
        (["127.0.0.1:8000"], "no such file; for a server, write http://127.0.0.1:8000"),
        (["cmd:serve {port}", "-m", "m"], "cmd:serve {port}: a command that starts the server goes into a scenario, as target.command"),
        (["127.0.0.1:8000", "-m", "simple"], "no such file; for a server, write http://127.0.0.1:8000"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_says_what_is_expected(perfkit, arguments, sentence):
    finished = perfkit.run("run", *arguments)
    assert (finished.code, finished.stdout) == (2, "")
    assert sentence in finished.stderr
    assert "secret" not in finished.stderr


def test_a_shipped_scenario_is_found_by_name_in_any_folder_and_a_file_comes_before_it(perfkit, printed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert printed("densenet")["target"]["model"] == "densenet_onnx"
    assert "simple.yaml: valid" in perfkit.run("validate", "simple").stdout
    assert "did you mean 'densenet'" in perfkit.run("run", "densenett").stderr
    (tmp_path / "densenet").write_text("target: {model: mine}\nload: {closed: {concurrency: 1}}\n")
    assert printed("densenet")["target"]["model"] == "mine"
    assert read_scenario(tmp_path / "densenet").scenario.target.model == "mine"

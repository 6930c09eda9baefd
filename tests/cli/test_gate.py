"""`perfkit gate` from outside: exact exit codes on simulated pairs, and real servers for what only they show."""

import json
import pathlib
import shlex
import signal
import sys

import pytest
import yaml

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.gate import exit_code_of_verdict
from perfkit.cli.main import main
from perfkit.gate.arm import parse_arm
from perfkit.gate.folder import FixedSettings, GateFolder, GateManifest
from perfkit.gate.paired_gate import GateRequest
from perfkit.gate.verdict import Verdict
from perfkit.history.accepted import AcceptedChanges, read_accepted
from perfkit.scenario.file import read_scenario
from tests.cli.gate_scenario import write_gate_scenario
from tests.closed_schema import validator_of
from tests.conditions import until_ended
from tests.json_server import JsonHandler, serving
from tests.otlp_receiver import attributes_of, receiving
from tests.simulated_pairs import make_pairs

URLS = ("http://127.0.0.1:1", "http://127.0.0.1:2")
SERVER = "cmd:" + shlex.join(
    [sys.executable, "-m", "server_stub", "--model", "synthetic", "--synthetic", "service=constant:20ms", "--http-port", "{port}",
     "--grpc-port", "0", "--exit-with-stdin"]
).replace("'{port}'", "{port}")  # fmt: skip


@pytest.fixture
def scenario(tmp_path):
    return write_gate_scenario(tmp_path, "throughput", "p50")


def begin(scenario, place, measured, targets=URLS, accepted="", **options):
    """Leave the folder of a gate that was interrupted after these pairs; `accepted` is the file of accepted changes that it read."""
    loaded = read_scenario(scenario)
    if accepted:
        options["accepted"] = AcceptedChanges(read_accepted(pathlib.Path(accepted)))
    baseline, candidate = (parse_arm("", target, loaded.scenario) for target in targets)
    request = GateRequest(loaded, baseline, candidate, **options)
    folder = GateFolder(place, GateManifest(inputs=request.inputs, seed=1, started_at="2026-01-02T03:04:05.678+00:00"))
    folder.fix(FixedSettings(warmup_ns=50_000_000, window_ns=300_000_000, concurrency=4, rate_per_s=70.0))
    for pair in measured:
        folder.add(pair)


def gate(scenario, place, *options, targets=URLS):
    return main(["gate", str(scenario), "--baseline", targets[0], "--candidate", targets[1], "--out", str(place), *options])


@pytest.mark.parametrize(
    ("pairs", "options", "code", "kind"),
    [
        (make_pairs(12), [], 0, "pass"),
        (make_pairs(12, 1.1), [], 1, "regressed"),
        (make_pairs(20, noise=0.5), [], 3, "inconclusive"),
        (make_pairs(20, noise=0.5), ["--on-inconclusive", "pass"], 0, "inconclusive"),
        (make_pairs(12, 1.1), ["--on-inconclusive", "pass"], 1, "regressed"),
        (make_pairs(12, 1.1, failed=20), ["--on-inconclusive", "pass"], 5, "invalid"),
        (make_pairs(5, valid=False, codes=["generator_bound"]), [], 5, "invalid"),
        ([*make_pairs(10, 1.3, kind="control"), *make_pairs(12)], ["--control", "10"], 5, "invalid"),
        ([*make_pairs(3, kind="control"), *make_pairs(12, 1.1)], ["--control", "3"], 1, "regressed"),
        (make_pairs(10), ["--pairs", "10"], 0, "pass"),
    ],
)
def test_every_verdict_has_its_exit_code(scenario, tmp_path, capsys, pairs, options, code, kind):
    def given(option):
        return int(options[1]) if option in options else None

    begin(scenario, tmp_path / "out", pairs, pairs=given("--pairs"), control_pairs=given("--control") or 0)
    assert gate(scenario, tmp_path / "out", "--format", "json", *options) == code
    shown = json.loads(capsys.readouterr().out)
    assert shown["kind"] == kind
    assert shown == json.loads((tmp_path / "out" / "verdict.json").read_text())
    validator_of("verdict").validate(shown)
    assert Verdict.model_validate(shown).notes[0].startswith("The servers at these URLs were not restarted: the verdict covers these two")


def test_the_verdict_is_printed_as_a_table_with_its_reasons(scenario, tmp_path, capsys):
    begin(scenario, tmp_path / "out", make_pairs(12, 1.1))
    assert gate(scenario, tmp_path / "out") == 1
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].startswith("note: The servers at these URLs were not restarted")
    (p50,) = [line for line in lines if line.startswith(" p50 ") and "poisson" in line and not line.endswith("–")]
    assert "+10." in p50 or "+9." in p50
    assert p50.endswith("regressed")
    assert lines[1].startswith("note: The gate was continued after 12 pairs")
    assert any(line.startswith("REGRESSED: throughput -9.") for line in lines)
    assert any(line.startswith("After 12 pairs") and "9 of 10 gates would detect a slowdown" in line for line in lines)
    assert "continuing after 12 completed pairs" in shown.err


def test_incomparable_has_exit_code_four():
    verdict = Verdict(
        kind="incomparable",
        reasons=(),
        mode="paired",
        scenario="",
        baseline="",
        candidate="",
        false_alarm_rate=0.01,
        pairs=0,
        started_at="",
    )
    assert exit_code_of_verdict(verdict, on_inconclusive="pass") is ExitCode.INCOMPARABLE
    assert ExitCode.INCOMPARABLE.value == 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--baseline", "http://a", "--candidate", "http://b"], "a scenario is missing"),
        (["{scenario}", "--baseline", "http://a", "--candidate", "cmd:serve {port}"], "give two URLs or two commands"),
        (
            ["{scenario}", "--baseline", "cmd:serve", "--candidate", "cmd:serve {port}"],
            "write {port} in the command where the server takes its port",
        ),
        (
            ["{scenario}", "--baseline", "http://a", "--candidate", "http://b", "--ready-timeout", "5s"],
            "--ready-timeout is for cmd: targets",
        ),
        (["{scenario}", "--baseline", "x://a", "--candidate", "http://b"], "--baseline: expected"),
        (["{scenario}", "--baseline", "http://a", "--candidate", "http://b", "--set", "gate.profile=mine"], "gate.profile"),
        (["{scenario}", "--baseline", "http://a", "--candidate", "http://b", "--set", "gate.metrics=[p50,p50]"], "metrics must be unique"),
        (
            ["{scenario}", "--baseline", "http://a", "--candidate", "http://b", "--set", "gate={metrics: [throughput]}"],
            "gate.metrics: no load point of this gate has throughput",
        ),
        (
            [
                "{scenario}",
                "--baseline",
                "http://a",
                "--candidate",
                "http://b",
                "--set",
                "measure.duration=null",
                "--set",
                "load={closed: {concurrency: {to: 9, over: 5s}}}",
                "--set",
                "gate.profile=null",
            ],
            "load: a gate compares closed and open loops at given loads",
        ),
    ],
)
def test_a_gate_that_makes_no_sense_is_refused(scenario, capsys, arguments, sentence):
    assert main(["gate", *(argument.replace("{scenario}", str(scenario)) for argument in arguments)]) == 2
    assert sentence in capsys.readouterr().err


def test_an_unfinished_gate_with_different_inputs_is_refused(scenario, tmp_path, capsys):
    begin(scenario, tmp_path / "out", make_pairs(3))
    assert gate(scenario, tmp_path / "out", "--pairs", "10") == 2
    assert "an unfinished gate with different inputs (pairs)" in capsys.readouterr().err


def test_a_target_that_cannot_be_started_leaves_why_and_gives_way_to_the_next_gate(scenario, tmp_path, capsys):
    assert gate(scenario, tmp_path / "out", "--quiet", targets=("cmd:/no/such {port}",) * 2) == 6
    assert "cannot be started" in capsys.readouterr().err
    assert "cannot be started" in json.loads((tmp_path / "out.partial" / "verdict.json").read_text())["failure"]["reason"]
    assert gate(scenario, tmp_path / "out", "--quiet", targets=("cmd:/nor/this {port}",) * 2) == 6, "another gate takes its place"


def model_of(size):
    """A handler of enough v2 over HTTP for a trial; its model takes tensors of this size."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [size]}

    class Handler(JsonHandler):
        def do_GET(self):
            metadata = {"name": "m", "versions": ["1"], "platform": "x", "inputs": [tensor], "outputs": [tensor]}
            self.answer(404 if self.path.endswith("config") else 200, metadata)

        def do_POST(self):
            self.body()
            self.answer(200, {"model_name": "m", "model_version": "1", "outputs": [{**tensor, "data": [0.0] * size}]})

    return Handler


@pytest.fixture
def other_urls():
    with serving(model_of(4)) as baseline, serving(model_of(5)) as candidate:
        yield [f"http://127.0.0.1:{port}" for port in (baseline, candidate)]


def test_servers_with_different_inputs_are_incomparable(other_urls, tmp_path, capsys):
    path = tmp_path / "scenario.yaml"
    load = {"closed": {"concurrency": 1, "think_time": "20ms"}}  # slow enough for the generator never to be the bottleneck
    path.write_text(yaml.safe_dump({"target": {"model": "m"}, "load": load, "measure": {"warmup": "0s", "requests": 10}}))
    code = gate(path, tmp_path / "out", targets=other_urls)
    shown = capsys.readouterr()
    assert code == 4, shown.err
    assert "INCOMPARABLE: Between the arms the requests' payload differs" in shown.out
    assert (tmp_path / "out" / "verdict.json").exists()


def test_a_gate_continues_with_servers_that_it_restarts_for_every_run(scenario, tmp_path, capsys):
    targets = (SERVER, SERVER)
    # the candidate was not steady in two pairs: after a third usable one that is most of its runs, whatever is measured; and too many
    # discarded pairs, on a busy machine, make the gate invalid as well
    begin(scenario, tmp_path / "out", make_pairs(2, codes=["not_steady"]), targets, pairs=10)
    with receiving() as receiver:
        assert gate(scenario, tmp_path / "out", "--pairs", "10", "--format", "json", "--otlp", receiver.url, targets=targets) == 5
    pushed = [attributes_of(one.resource)["perfkit.run"] for message in receiver.received for one in message.resource_metrics]
    verdict = Verdict.model_validate_json(capsys.readouterr().out)
    assert verdict.kind == "invalid"
    assert not any("restarted" in note for note in verdict.notes)
    runs = {entry.name for entry in (tmp_path / "out" / "runs").iterdir() if entry.is_dir()}
    assert {f"002-{arm}-{load}" for arm in ("baseline", "candidate") for load in (0, 1)} <= runs
    assert set(pushed) == {run.rpartition("-")[0] for run in runs}
    logs = {log.name: log.read_text() for log in (tmp_path / "out" / "runs").glob("*.server.log")}
    assert {name.removesuffix(".server.log") for name in logs} == {run.rpartition("-")[0] for run in runs}
    assert {text.count('"event": "ready"') for text in logs.values()} == {1}  # each start serves both loads of a run
    pairs = json.loads((tmp_path / "out" / "pairs.json").read_text())
    assert [point["load_point"] for point in pairs[2]["baseline"]["points"]] == ["http, concurrency 4", "http, 70/s poisson"]
    assert not any(point["failed"] for point in pairs[2]["candidate"]["points"])


def test_an_interrupted_gate_stores_its_pairs_and_stops_its_servers(perfkit, scenario, tmp_path):
    begin(scenario, tmp_path / "out", make_pairs(3), (SERVER, SERVER))
    running = perfkit.start("gate", scenario, "--baseline", SERVER, "--candidate", SERVER, "--out", tmp_path / "out")
    running.wait_for_line("pair 4 of 5 to 20")
    processes = running.descendants()
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130, finished.stderr
    (told,) = [line for line in finished.stdout.splitlines() if line.startswith("next: ")]
    assert told == f"next: 3 pairs measured so far, in {tmp_path / 'out.partial'}; this continues after them."
    assert not (tmp_path / "out").exists()
    stored = json.loads((tmp_path / "out.partial" / "pairs.json").read_text())
    assert stored[:3] == [pair.model_dump(mode="json") for pair in make_pairs(3)]
    until_ended(processes)


def test_a_gate_interrupted_in_its_trial_stops_its_servers_and_leaves_why(perfkit, scenario, tmp_path):
    running = perfkit.start("gate", scenario, "--baseline", SERVER, "--candidate", SERVER, "--out", tmp_path / "out")
    running.wait_for_line("trial: 1 in flight")
    processes = running.descendants()
    running.signal(signal.SIGTERM)
    assert running.finish().code == 143
    failure = json.loads((tmp_path / "out.partial" / "verdict.json").read_text())["failure"]
    assert (failure["cause"], failure["phase"], failure["signal"]) == ("interrupted", "trial", "SIGTERM")
    assert {entry.name for entry in tmp_path.iterdir()} == {"scenario.yaml", "out.partial"}
    until_ended(processes)

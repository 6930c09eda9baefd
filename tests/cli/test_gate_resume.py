"""`perfkit gate --resume`: a gate that was killed goes on after its whole pairs; a complete one is not measured again."""

import json
import signal
import threading

import pytest
import yaml

from perfkit.cli.gate import exit_code_of_verdict
from perfkit.cli.main import main
from perfkit.gate.arm import parse_arm
from perfkit.gate.folder import FixedSettings, GateFolder, GateManifest, read_verdict
from perfkit.gate.paired_gate import GateRequest
from perfkit.gate.pairs import pair_seed, random_order
from perfkit.gate.sentences import changes_since
from perfkit.history.accepted import AcceptedChanges, read_accepted
from perfkit.result.file import read_result
from perfkit.scenario.file import read_scenario
from tests.cli.gate_scenario import write_gate_scenario
from tests.json_server import serving, v2_handler
from tests.simulated_pairs import make_pairs

SEED = 3
URLS = ("http://127.0.0.1:1", "http://127.0.0.1:2")


@pytest.fixture
def scenario(tmp_path):
    return write_gate_scenario(
        tmp_path, "throughput", measure={"warmup": "0s", "requests": 10}, target={"model": "m"}, workload={}, telemetry=False
    )


def words(scenario, place, urls, *options):
    return ["gate", str(scenario), "--baseline", urls[0], "--candidate", urls[1], "--out", str(place), *options]


def begin(scenario, place, measured, urls=URLS, started_at="2026-01-02T03:04:05.678+00:00", **options):
    """Leaves the folder of a gate that was killed after these pairs."""
    loaded = read_scenario(scenario)
    baseline, candidate = (parse_arm("", url, loaded.scenario) for url in urls)
    inputs = GateRequest(loaded, baseline, candidate, **options).inputs
    folder = GateFolder(place, GateManifest(inputs=inputs, seed=SEED, started_at=started_at))
    folder.fix(FixedSettings(warmup_ns=0, window_ns=None, concurrency=4, rate_per_s=70.0))
    for pair in measured:
        folder.add(pair)


def test_a_killed_gate_measures_its_last_pair_again_and_goes_on_to_its_verdict(perfkit, scenario, tmp_path):
    is_reached, may_go_on = threading.Event(), threading.Event()

    def hold(number):
        if number == 15:  # in the first run that is measured, or in the second
            is_reached.set()
            may_go_on.wait()

    place = tmp_path / "out"
    with serving(v2_handler(hold)) as port:
        urls = [f"http://127.0.0.1:{port}"] * 2
        begin(scenario, place, make_pairs(8, seed=SEED), urls, pairs=10)
        given = words(scenario, place, urls, "--pairs", "10", "--resume")
        running = perfkit.start(*given)
        assert is_reached.wait(60), "".join(running.seen)
        running.signal(signal.SIGKILL)
        may_go_on.set()
        assert running.finish().code == -signal.SIGKILL
        finished = perfkit.run(*given)
        assert finished.code == exit_code_of_verdict(read_verdict(place), on_inconclusive="fail"), finished.stderr
        again = perfkit.run(*given)
    pairs = json.loads((place / "pairs.json").read_text())
    assert len(pairs) >= 10
    assert [(pair["number"], pair["first"], pair["seed"]) for pair in pairs] == [
        (number, random_order(SEED, number)[0], pair_seed(SEED, number)) for number in range(len(pairs))
    ]
    verdict = read_verdict(place)
    first, second = verdict.resumptions
    assert (first.after_pairs, first.cause, first.set_aside) == (8, "unfinished", "")
    assert (second.after_pairs, second.cause, second.measured_again, second.set_aside) == (8, "unfinished", "pair 9", "runs/unfinished-1")
    assert {entry.name[:4] for entry in (place / "runs" / "unfinished-1").iterdir()} == {"008-"}
    told = "The gate was continued after 8 pairs and a pause of "
    assert told in finished.stderr
    assert [note.startswith(told) for note in verdict.notes[1:3]] == [True, True]
    assert again.code == finished.code
    assert "this gate is complete, and nothing was measured" in again.stdout
    assert read_verdict(place) == verdict
    eighth, ninth = (read_result(place / "runs" / f"{number:03}-baseline-0")[0] for number in (8, 9))
    environment = {**eighth.environment, "baseline": eighth.environment["target"]}
    assert changes_since(environment, "baseline", ninth) == (), "nothing differs between two runs of one gate but what belongs to a run"


def test_a_gate_that_was_killed_before_it_wrote_its_verdict_writes_it(scenario, tmp_path, capsys):
    begin(scenario, tmp_path / "out", [*make_pairs(12, 1.1)])
    assert main(words(scenario, tmp_path / "out", URLS, "--resume")) == 1
    shown = capsys.readouterr()
    assert "The gate was continued after 12 pairs" in shown.err
    assert read_verdict(tmp_path / "out").pairs == 12
    assert main(words(scenario, tmp_path / "out", URLS, "--resume", "--format", "json")) == 1
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "out" / "verdict.json").read_text())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--pairs", "10"], "holds a complete gate with different inputs (pairs)"),
        (["--set", "load.open.rate=11"], "holds a complete gate with different inputs (scenario.load.open.rate)"),
    ],
)
def test_the_verdict_of_another_gate_is_refused(scenario, tmp_path, capsys, options, sentence):
    begin(scenario, tmp_path / "out", make_pairs(12))
    main(words(scenario, tmp_path / "out", URLS, "--resume"))
    assert main(words(scenario, tmp_path / "out", URLS, "--resume", *options)) == 2
    assert sentence in capsys.readouterr().err


def test_what_is_accepted_must_be_the_same_to_the_end(scenario, tmp_path, capsys):
    begin(scenario, tmp_path / "out", make_pairs(3))
    entry = {"scenario": "scenario", "metric": "throughput", "load_point": "http, saturation", "slowdown": "9%", "reason": "Known."}
    file = {"schema": "perfkit.accepted/1", "accepted": [{**entry, "accepted": "2026-01-01", "expires": "2026-01-02"}]}
    (tmp_path / "perfkit-accepted.yaml").write_text(yaml.safe_dump(file))
    assert main(words(scenario, tmp_path / "out", URLS, "--resume")) == 2
    assert "an unfinished gate with different inputs (accepted)" in capsys.readouterr().err


def test_what_counts_is_what_was_accepted_on_the_day_on_which_the_gate_began(scenario, tmp_path, capsys):
    entry = {"scenario": "scenario", "metric": "throughput", "load_point": "http, saturation", "slowdown": "30%", "reason": "Known."}
    file = {"schema": "perfkit.accepted/1", "accepted": [{**entry, "accepted": "2026-01-01", "expires": "2026-01-02"}]}
    (tmp_path / "perfkit-accepted.yaml").write_text(yaml.safe_dump(file))
    accepted = AcceptedChanges(read_accepted(tmp_path / "perfkit-accepted.yaml"))
    begin(scenario, tmp_path / "out", make_pairs(12, 1.1), started_at="2026-01-02T23:59:05.678+00:00", accepted=accepted)
    assert main(words(scenario, tmp_path / "out", URLS, "--resume")) == 0
    assert "accepted until 2026-01-02" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["{scenario}", "--baseline", "http://a", "--candidate", "http://b", "--resume"], "--resume needs --out DIR"),
        (["--baseline", "a.json", "--candidate", "b.json", "--resume"], "--resume, --otlp and --set are for a gate that measures"),
    ],
)
def test_resuming_needs_a_folder_and_a_gate_that_measures(scenario, capsys, given, sentence):
    assert main(["gate", *(word.replace("{scenario}", str(scenario)) for word in given)]) == 2
    assert sentence in capsys.readouterr().err

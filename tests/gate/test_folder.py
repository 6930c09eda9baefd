import datetime
import json

import pytest

from perfkit.errors import ResultError
from perfkit.gate.folder import FixedSettings, GateFolder, GateInputs, GateManifest, complete_verdict, read_verdict
from perfkit.gate.verdict import GateFailure, Verdict
from perfkit.history.accepted import AcceptedChange
from tests.simulated_pairs import make_pairs

INPUTS = GateInputs(
    scenario={"name": "x"}, baseline="http://a", candidate="http://b", pairs=None, time_limit_ns=None, control_pairs=0, perfkit="1.2.3"
)
MANIFEST = GateManifest(inputs=INPUTS, seed=7, started_at="2026-01-02T03:04:05.678+00:00")
SETTINGS = FixedSettings(warmup_ns=10, window_ns=20, concurrency=4, rate_per_s=70.0, capacity_per_s=100.0, notes=("A note.",))
ACCEPTED = AcceptedChange(
    scenario="x", metric="p99", load_point="http, concurrency 4", slowdown=0.05, reason="Known.",
    accepted=datetime.date(2026, 1, 1), expires=datetime.date(2026, 2, 1),
)  # fmt: skip
VERDICT = Verdict(
    kind="pass", reasons=("Fine.",), mode="paired", scenario="x", baseline="http://a", candidate="http://b", false_alarm_rate=0.01,
    pairs=12, started_at=MANIFEST.started_at,
)  # fmt: skip


@pytest.fixture
def place(tmp_path):
    return tmp_path / "gates" / "one"


def started(place, pairs):
    folder = GateFolder(place, MANIFEST)
    folder.fix(SETTINGS)
    for pair in pairs:
        folder.add(pair)
    return folder


def without_resumptions(folder):
    return folder.manifest.model_copy(update={"resumptions": ()})


def test_an_unfinished_gate_continues_with_its_manifest_and_pairs(place):
    started(place, make_pairs(3))
    again = GateFolder(place, MANIFEST.model_copy(update={"seed": 8, "started_at": "later"}))
    assert without_resumptions(again) == MANIFEST.model_copy(update={"settings": SETTINGS})
    assert again.pairs == make_pairs(3)
    assert not place.exists()


def test_the_manifest_has_the_keys_that_earlier_versions_wrote(place):
    folder = started(place, [])
    document = json.loads((folder.partial / "gate.json").read_text())
    assert list(document) == ["schema", "asked", "seed", "started_at", "files", "fixed", "resumptions"]
    assert list(document["asked"]) == [
        "scenario", "baseline", "candidate", "pairs", "time_limit_ns", "control_pairs", "accepted", "perfkit",
    ]  # fmt: skip
    assert document["fixed"] == SETTINGS.model_dump(mode="json")


def test_a_commit_renames_the_folder_and_replaces_an_earlier_gate(place):
    started(place, make_pairs(1)).commit(VERDICT)
    assert read_verdict(place) == read_verdict(place / "verdict.json") == VERDICT
    assert {file.name for file in place.iterdir()} == {"gate.json", "pairs.json", "verdict.json", "runs"}
    started(place, make_pairs(2)).commit(VERDICT.model_copy(update={"kind": "regressed"}))
    assert read_verdict(place).kind == "regressed"
    assert [entry.name for entry in place.parent.iterdir()] == ["one"]


def test_a_gate_says_why_it_has_no_verdict_until_it_has_one(place):
    folder = started(place, make_pairs(1))
    failed = VERDICT.model_copy(update={"kind": "error", "failure": GateFailure(cause="server", reason="It ended.", arm="candidate")})
    folder.note(failed)
    assert read_verdict(folder.partial) == failed
    again = GateFolder(place, MANIFEST)
    assert again.pairs == make_pairs(1)
    again.commit(VERDICT)
    assert read_verdict(place) == VERDICT


@pytest.mark.parametrize(
    "changed", [{"inputs": INPUTS.model_copy(update={"candidate": "http://c"})}, {"files": {"/server": "another build"}}]
)
def test_a_gate_that_failed_before_its_first_pair_gives_way_to_another(place, changed):
    failed = GateFolder(place, MANIFEST.model_copy(update={"files": {"/server": "a build"}}))
    failed.fix(SETTINGS)
    (failed.runs / "trial-candidate.server.log").write_text("out of memory")
    other = GateFolder(place, MANIFEST.model_copy(update={"seed": 9, **changed}))
    assert (other.manifest.seed, other.manifest.settings) == (9, None)
    assert list(other.runs.iterdir()) == []


def test_a_gate_without_a_pair_continues_after_its_trial(place):
    started(place, [])
    assert without_resumptions(GateFolder(place, MANIFEST.model_copy(update={"seed": 9}))) == MANIFEST.model_copy(
        update={"settings": SETTINGS}
    )


def test_a_gate_that_ended_in_its_trial_begins_anew(place):
    (GateFolder(place, MANIFEST).runs / "trial-0-baseline.server.log").write_text("out of memory")
    again = GateFolder(place, MANIFEST.model_copy(update={"seed": 9}))
    assert (again.manifest.seed, again.resumption, list(again.runs.iterdir())) == (9, None, [])


def test_the_pairs_of_a_gate_with_different_inputs_are_refused(place):
    started(place, make_pairs(1))
    with pytest.raises(ResultError, match=r"an unfinished gate with different inputs \(candidate, pairs\)"):
        GateFolder(place, MANIFEST.model_copy(update={"inputs": INPUTS.model_copy(update={"candidate": "http://c", "pairs": 10})}))


def test_the_keys_of_the_scenario_that_differ_are_named(place):
    stored = MANIFEST.model_copy(update={"inputs": INPUTS.model_copy(update={"scenario": {"load": {"open": {"rate": 10}}}})})
    GateFolder(place, stored).add(make_pairs(1)[0])
    other = INPUTS.model_copy(update={"scenario": {"load": {"open": {"rate": 11}}}, "accepted": (ACCEPTED,)})
    with pytest.raises(ResultError, match=r"different inputs \(scenario\.load\.open\.rate, accepted\): give the same"):
        GateFolder(place, MANIFEST.model_copy(update={"inputs": other}))


def test_what_a_pair_that_was_not_whole_has_measured_is_set_aside(place):
    folder = started(place, make_pairs(2))
    kept = {"trial-0-baseline-0-0", "000-baseline-0", "001-candidate.server.log"}
    for name in (*kept, "002-candidate-0", "002-baseline-0.partial"):
        (folder.runs / name).mkdir()
    failure = GateFailure(cause="interrupted", reason="By SIGTERM.", arm="baseline", phase="pair 3")
    folder.note(VERDICT.model_copy(update={"kind": "error", "failure": failure}))
    again = GateFolder(place, MANIFEST)
    assert {entry.name for entry in again.runs.iterdir()} == {*kept, "unfinished-1"}
    assert {entry.name for entry in (again.runs / "unfinished-1").iterdir()} == {"002-candidate-0", "002-baseline-0.partial"}
    (only,) = again.manifest.resumptions
    assert (only.after_pairs, only.cause, only.measured_again, only.set_aside) == (2, "interrupted", "pair 3", "runs/unfinished-1")
    assert GateFolder(place, MANIFEST).manifest.resumptions[:1] == (only,), "a second interruption does not hide the first"


def test_the_verdict_of_a_complete_gate_is_given_to_the_same_gate_alone(place):
    assert complete_verdict(place, MANIFEST) is None
    built = MANIFEST.model_copy(update={"files": {"/server": "1"}})
    folder = GateFolder(place, built)
    folder.fix(SETTINGS)
    folder.add(make_pairs(1)[0])
    assert complete_verdict(place, built) is None
    folder.commit(VERDICT)
    assert complete_verdict(place, built) == VERDICT
    with pytest.raises(ResultError, match="/server has changed since"):
        complete_verdict(place, built.model_copy(update={"files": {"/server": "2"}}))
    with pytest.raises(ResultError, match=r"a complete gate with different inputs \(pairs\)"):
        complete_verdict(place, built.model_copy(update={"inputs": INPUTS.model_copy(update={"pairs": 10})}))
    started(place, [])
    assert complete_verdict(place, MANIFEST) is None, "a later gate in this folder is unfinished"


@pytest.mark.parametrize("name", ["one", "one.partial"])
def test_a_folder_of_something_else_is_left_alone(place, name):
    other = place.with_name(name) / "thesis.txt"
    other.parent.mkdir(parents=True)
    other.write_text("")
    with pytest.raises(ResultError, match="is not a gate's"):
        GateFolder(place, MANIFEST)
    assert other.exists()


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("gate.json", '{"schema": "perfkit.gate/2"}', "this perfkit reads perfkit.gate/1, found 'perfkit.gate/2': a newer perfkit"),
        ("gate.json", '{"schema": "perfkit.gate/1", "asked"', "gate.json: cannot be read: .*to start over"),
        ("gate.json", json.dumps({"asked": INPUTS.document(), "seed": 3, "started_at": "soon"}), "'soon' is no instant"),
        ("gate.json", '{"schema": "perfkit.gate/1", "seed": 3}', "gate.json: asked: .*to start over"),
        ("pairs.json", "[{", "pairs.json: cannot be read: .*to start over"),
        ("pairs.json", '[{"number": 1}]', r"pairs.json: 0\.kind: .*to start over"),
    ],
)
def test_a_torn_or_newer_file_is_refused_with_a_sentence(place, name, text, sentence):
    (started(place, make_pairs(1)).partial / name).write_text(text)
    with pytest.raises(ResultError, match=sentence):
        GateFolder(place, MANIFEST)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read: No such file"),
        ("{", "cannot be read: Expecting"),
        ("{}", "verdict.json: kind: Field required"),
        (json.dumps({"schema": "perfkit.verdict/2"}), "a newer perfkit"),
    ],
)
def test_a_file_that_is_not_a_verdict_is_refused(tmp_path, text, sentence):
    if text is not None:
        (tmp_path / "verdict.json").write_text(text)
    with pytest.raises(ResultError, match=sentence):
        read_verdict(tmp_path)


def test_a_gate_does_not_continue_after_a_change_of_its_programs(place):
    built = MANIFEST.model_copy(update={"files": {"/server": "1", "/removed": "1"}})
    GateFolder(place, built).add(make_pairs(1)[0])
    assert GateFolder(place, MANIFEST.model_copy(update={"files": {"/server": "1", "/new": "1"}})).pairs == make_pairs(1)
    with pytest.raises(ResultError, match="/server has changed since"):
        GateFolder(place, MANIFEST.model_copy(update={"files": {"/server": "2"}}))

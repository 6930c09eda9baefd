import json

import pytest

from perfkit.errors import ResultError
from perfkit.gate.folder import FixedSettings, GateFolder, GateInputs, GateManifest, read_verdict
from perfkit.gate.verdict import Verdict

ASKED = GateInputs(scenario={"name": "x"}, baseline="http://a", candidate="http://b", quick=False, control_pairs=0, perfkit="1.2.3")
PLAN = GateManifest(asked=ASKED, seed=7, started_at="2026-01-02T03:04:05.678+00:00")
FIXED = FixedSettings(warmup_ns=10, window_ns=20, concurrency=4, rate_per_s=70.0, capacity_per_s=100.0, notes=("Said.",))
VERDICT = Verdict(
    kind="pass", reasons=("Fine.",), mode="paired", scenario="x", baseline="http://a", candidate="http://b", false_alarm_rate=0.01,
    pairs=12, started_at=PLAN.started_at,
)  # fmt: skip


@pytest.fixture
def place(tmp_path):
    return tmp_path / "gates" / "one"


def begun(place, pairs):
    folder = GateFolder(place, PLAN)
    folder.fix(FIXED)
    for pair in pairs:
        folder.add(pair)
    return folder


def test_a_gate_goes_on_with_its_plan_and_its_pairs(place, pairs):
    begun(place, pairs(3))
    again = GateFolder(place, PLAN.model_copy(update={"seed": 8, "started_at": "later"}))
    assert again.plan == PLAN.model_copy(update={"fixed": FIXED})
    assert again.pairs == pairs(3)
    assert not place.exists()


def test_the_verdict_puts_it_in_its_place_and_an_earlier_gate_gives_way(place, pairs):
    assert begun(place, pairs(1)).commit(VERDICT) == place
    assert read_verdict(place) == read_verdict(place / "verdict.json") == VERDICT
    assert {file.name for file in place.iterdir()} == {"plan.json", "pairs.json", "verdict.json", "runs"}
    begun(place, pairs(2)).commit(VERDICT.model_copy(update={"kind": "regressed"}))
    assert read_verdict(place).kind == "regressed"
    assert [entry.name for entry in place.parent.iterdir()] == ["one"]


def test_a_gate_without_pairs_leaves_nothing_behind(place, pairs):
    assert not begun(place, []).discard_unless_begun()
    assert list(place.parent.iterdir()) == []
    assert begun(place, pairs(1)).discard_unless_begun()
    assert GateFolder(place, PLAN).pairs == pairs(1)


def test_another_gates_pairs_are_not_taken_for_ones_own(place, pairs):
    begun(place, pairs(1))
    with pytest.raises(ResultError, match=r"was asked something else \(candidate, quick\)"):
        GateFolder(place, PLAN.model_copy(update={"asked": ASKED.model_copy(update={"candidate": "http://c", "quick": True})}))


@pytest.mark.parametrize("name", ["one", "one.partial"])
def test_what_is_no_gates_folder_is_left_alone(place, name):
    other = place.with_name(name) / "thesis.txt"
    other.parent.mkdir(parents=True)
    other.write_text("")
    with pytest.raises(ResultError, match="is no gate's folder"):
        GateFolder(place, PLAN)
    assert other.exists()


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("plan.json", '{"schema": "perfkit.gate/2"}', "this perfkit reads perfkit.gate/1, found 'perfkit.gate/2': a newer perfkit"),
        ("plan.json", '{"schema": "perfkit.gate/1", "asked"', "plan.json: cannot be read: .*to begin anew"),
        ("plan.json", '{"schema": "perfkit.gate/1", "seed": 3}', "plan.json: cannot be read: .*to begin anew"),
        ("pairs.json", "[{", "pairs.json: cannot be read: .*to begin anew"),
        ("pairs.json", '[{"number": 1}]', "pairs.json: cannot be read: .*to begin anew"),
        ("pairs.json", "7", "pairs.json: cannot be read: .*to begin anew"),
    ],
)
def test_a_torn_or_a_newer_file_is_told_in_a_sentence(place, pairs, name, text, sentence):
    (begun(place, pairs(1)).partial / name).write_text(text)
    with pytest.raises(ResultError, match=sentence):
        GateFolder(place, PLAN)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [(None, "cannot be read: No such file"), ("{", "is no verdict"), (json.dumps({"schema": "perfkit.verdict/2"}), "a newer perfkit")],
)
def test_what_is_no_verdict_is_refused(tmp_path, text, sentence):
    if text is not None:
        (tmp_path / "verdict.json").write_text(text)
    with pytest.raises(ResultError, match=sentence):
        read_verdict(tmp_path)


def test_a_gate_does_not_go_on_with_another_build(place, pairs):
    built = PLAN.model_copy(update={"files": {"/server": "1", "/removed": "1"}})
    GateFolder(place, built).add(pairs(1)[0])
    assert GateFolder(place, PLAN.model_copy(update={"files": {"/server": "1", "/new": "1"}})).pairs == pairs(1)
    with pytest.raises(ResultError, match="/server has changed since"):
        GateFolder(place, PLAN.model_copy(update={"files": {"/server": "2"}}))

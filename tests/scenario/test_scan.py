"""`load.closed.concurrency` as a ramp: its window, its plan, and what it refuses."""

import json

import pytest

from perfkit.errors import ScenarioError
from perfkit.load.load_plan import RampPlan
from perfkit.load.planned_loads import plan_loads
from perfkit.scenario.file import read_scenario, scenario_document

S = 10**9
RAMP = {"from": 2, "to": 64, "over": "30s"}


def _load(tmp_path, ramp=RAMP, **sections):
    document = {"name": "s", "target": {"model": "synthetic"}, "load": {"closed": {"concurrency": ramp}}, **sections}
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(document))
    return read_scenario(file)


def test_the_window_is_the_ramp_and_there_is_one_repetition(tmp_path):
    loaded = _load(tmp_path)
    assert (loaded.scenario.window_ns, loaded.scenario.measure.repetitions, loaded.scenario.load_varies) == (30 * S, 1, True)
    assert not loaded.scenario.finds_warm_up
    assert plan_loads(loaded) == [RampPlan(64, 0, start=2, over_ns=30 * S)]
    assert _load(tmp_path, measure={"repetitions": 2}).scenario.measure.repetitions == 2
    stored = scenario_document(loaded.scenario)["load"]["closed"]["concurrency"]
    assert stored == {"from": 2, "to": 64, "over": "30s"}
    assert _load(tmp_path, {"to": 8, "over": "1s"}).scenario.ramp.start == 1


@pytest.mark.parametrize(
    ("ramp", "sections", "message"),
    [
        ({**RAMP, "to": 2}, {}, "load.closed.concurrency.ramp: to must be above from, found 2 and 2"),
        ({"to": 4}, {}, "load.closed.concurrency.over: this key is required"),
        ({**RAMP, "untill": 4}, {}, "load.closed.concurrency.untill: unknown key"),
        (RAMP, {"measure": {"duration": "10s"}}, "a scan lasts as long as `over` says: remove measure.duration"),
        (RAMP, {"slo": {"p99": "10ms"}}, "remove slo"),
        (RAMP, {"sequences": {}}, "remove slo, sequences and traces"),
        (RAMP, {"workloads": [{"name": "a", "weight": 1}, {"name": "b", "weight": 1}]}, "scans are for one workload"),
    ],
)
def test_what_is_refused_names_the_fix(tmp_path, ramp, sections, message):
    with pytest.raises(ScenarioError, match=message):
        _load(tmp_path, ramp, **sections)

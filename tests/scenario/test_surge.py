"""`load.surge`: its window, its defaults, its plan, and what it refuses."""

import itertools
import json

import numpy as np
import pytest

from perfkit.errors import ScenarioError
from perfkit.load.planned_loads import plan_loads
from perfkit.scenario.file import read_scenario

SURGE = {"base": "100/s", "surge": "300/s", "for": "4s"}


def _load(tmp_path, surge=SURGE, **sections):
    document = {"name": "s", "target": {"model": "synthetic"}, "load": {"surge": surge}, "slo": {"p99": "50ms"}, **sections}
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(document))
    return read_scenario(file)


def test_the_window_and_the_repetitions_follow_from_the_surge(tmp_path):
    scenario = _load(tmp_path).scenario
    assert (scenario.window_ns, scenario.measure.repetitions) == ((5 + 4 + 12) * 10**9, 5)
    assert scenario.load_varies
    assert _load(tmp_path, measure={"repetitions": 2}).scenario.measure.repetitions == 2


def test_arrivals_follow_the_warm_up_and_the_three_phases(tmp_path):
    (plan,) = plan_loads(_load(tmp_path, {**SURGE, "arrivals": "constant"}))
    instants_s = np.concatenate(list(itertools.islice(plan.schedule.chunks(), 2))) / 1e9 - 1
    assert [int(((instants_s >= low) & (instants_s < high)).sum()) for low, high in ((0, 5), (5, 9), (9, 21))] == pytest.approx(
        [500, 1200, 1200], abs=1
    )
    assert (plan.surge.start_ns, plan.surge.end_ns, plan.peak_rate_per_s) == (5 * 10**9, 9 * 10**9, 300)


@pytest.mark.parametrize(
    ("surge", "sections", "message"),
    [
        (SURGE, {"slo": None}, "give slo with a limit on a time"),
        (SURGE, {"slo": {"error_rate": "1%"}}, "give slo with a limit on a time"),
        (SURGE, {"measure": {"duration": "10s"}}, "remove measure.duration"),
        ({**SURGE, "surge": "100/s"}, {}, "surge must be above base"),
        ({**SURGE, "for": "1050ms"}, {}, "multiple of 100000000"),
    ],
)
def test_what_is_refused_names_the_fix(tmp_path, surge, sections, message):
    with pytest.raises(ScenarioError, match=message):
        _load(tmp_path, surge, **sections)

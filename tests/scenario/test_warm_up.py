"""`measure.warmup`: a length, `auto`, or a load of its own."""

import json

import pytest

from perfkit.errors import ScenarioError
from perfkit.load.load_plan import ClosedPlan
from perfkit.load.planned_loads import plan_warm_up
from perfkit.scenario.file import read_scenario, scenario_document

S = 10**9
CLOSED = {"closed": {"concurrency": 8}}


def _load(tmp_path, warmup, **sections):
    document = {
        "name": "s", "target": {"model": "synthetic"}, "load": {"closed": {"concurrency": 2}}, **sections,
        "measure": {"warmup": warmup, **sections.get("measure", {})},
    }  # fmt: skip
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(document))
    return read_scenario(file)


@pytest.mark.parametrize(
    ("warmup", "lengths_ns", "stored"),
    [
        ("auto", (S, 0, S), "auto"),
        ("10s", (10 * S, 0, 10 * S), "10s"),
        ({"for": "10s"}, (10 * S, 0, 10 * S), "10s"),
        ({"for": "10s", "load": CLOSED}, (11 * S, 10 * S, S), None),
    ],
)
def test_a_length_is_the_simple_case(tmp_path, warmup, lengths_ns, stored):
    scenario = _load(tmp_path, warmup).scenario
    assert (scenario.warmup_ns, scenario.warm_load_ns, scenario.own_warmup_ns) == lengths_ns
    assert scenario.finds_warm_up is (warmup == "auto")
    kept = scenario_document(scenario)["measure"]["warmup"]
    assert kept == stored if stored else (kept["for"], kept["load"]["closed"]["concurrency"]) == ("10s", [8])


def test_its_load_becomes_a_plan(tmp_path):
    assert plan_warm_up(_load(tmp_path, "10s").scenario) is None
    assert plan_warm_up(_load(tmp_path, {"for": "10s", "load": CLOSED}).scenario) == ClosedPlan(8, 0)
    plan = plan_warm_up(_load(tmp_path, {"for": "10s", "load": {"open": {"rate": "50/s", "arrivals": "constant"}}}).scenario)
    assert (plan.rate_per_s, plan.law, plan.peak_rate_per_s) == (50, "constant", 50)


@pytest.mark.parametrize(
    ("warmup", "sections", "message"),
    [
        ({"load": CLOSED}, {}, "measure.warmup: a warm-up with a load of its own has a length: give for"),
        ({"for": "auto", "load": CLOSED}, {}, "give for"),
        ({"for": "5s", "load": {"closed": {"concurrency": [1, 2]}}}, {}, r"give one concurrency, found \[1, 2\]"),
        ({"for": "5s", "load": {"closed": {"concurrency": {"to": 8, "over": "5s"}}}}, {}, "a scan is no warm-up: give a number"),
        ({"for": "5s", "load": {"open": {"rate": [5, 6]}}}, {}, "give one rate"),
        ({"for": "5s", "load": {"open": {"arrivals": "trace", "trace": "t.csv"}}}, {}, "remove shape and trace"),
        ({"for": "5s", "load": {**CLOSED, "abandon": {"share": 0.5, "after": "1s"}}}, {}, "remove abandon"),
        ({"for": "5s", "load": {"closd": CLOSED}}, {}, "is closed or open: give one, such as .*; found closd"),
        ({"for": "5s", "load": {"idle": {"gap": "1s"}}}, {}, "is closed or open"),
        ({"for": "5s", "load": {"open": {"rate": 5, "shape": {"ramp": {"to": 2, "over": "2s"}}}}}, {}, "remove shape"),
        ({"for": "5s", "load": {**CLOSED, "retry": {}}}, {}, "remove retry"),
        ({"for": "5s", "laod": CLOSED}, {}, "unknown key; did you mean 'load'"),
        ({"for": "5s", "load": CLOSED}, {"sequences": {}}, "measure.warmup.load sends plain requests"),
        ({"for": "5s", "load": CLOSED}, {"load": {"cold_start": {}}}, "remove measure.warmup"),
    ],
)
def test_what_is_refused_names_the_fix(tmp_path, warmup, sections, message):
    with pytest.raises(ScenarioError, match=message):
        _load(tmp_path, warmup, **sections)

import asyncio
import pathlib

import pytest

from perfkit.gate.folder import FixedSettings
from perfkit.gate.trial import common_warmup_ns, find_saturating_concurrency, given_window_ns, run_specs, single_points
from perfkit.scenario.load import ClosedLoadSpec
from perfkit.scenario.model import Scenario
from perfkit.units import NS_PER_S

S = NS_PER_S


def scenario(**measure):
    load = {"closed": {"concurrency": 3}}
    return Scenario.model_validate({"name": "x", "target": {"model": "m"}, "load": load, "measure": measure})


@pytest.mark.parametrize(("measure", "length_ns"), [({}, None), ({"duration": "3s"}, 3 * S), ({"requests": 100}, None)])
def test_the_window_is_the_scenarios_or_chosen_by_the_trial(measure, length_ns):
    assert given_window_ns(scenario(**measure)) == length_ns


_WITH_LOAD = {"warmup": {"for": "3s", "load": {"closed": {"concurrency": 8}}}}


@pytest.mark.parametrize(
    ("measure", "warmup_ns"), [({"warmup": "3s"}, 3 * S), (_WITH_LOAD, 4 * S), ({"warmup": "auto"}, 2.2 * S), ({}, 2.2 * S)]
)
def test_both_arms_use_the_longer_warm_up(measure, warmup_ns):
    assert common_warmup_ns(scenario(**measure), (1.0, 2.11)) == warmup_ns


# with a capacity of 3, four saturate it, and eight show that
@pytest.mark.parametrize(
    ("capacity", "maximum", "expected"), [(3, 1024, 8), (1, 1024, 2), (1000, 1024, 1024), (1000, 100, 64), (1000, 1, 1)]
)
def test_the_concurrency_doubles_until_the_throughput_no_longer_rises(capacity, maximum, expected):
    measured = []

    async def throughput_per_s(concurrency):
        measured.append(concurrency)
        return 10.0 * min(concurrency, capacity)

    assert asyncio.run(find_saturating_concurrency(throughput_per_s, maximum)) == expected
    assert measured == [2**number for number in range(len(measured))]


def test_the_standard_profile_is_a_saturating_closed_loop_then_an_open_loop_at_the_fixed_rate():
    settings = FixedSettings(warmup_ns=S, window_ns=2 * S, concurrency=8, rate_per_s=70.0)
    closed, opened = run_specs(scenario(), settings, 5)
    assert closed.load.model_dump(mode="json")["closed"]["concurrency"] == [8]
    assert opened.load.model_dump(mode="json")["open"]["rates_per_s"] == ["70/s"]
    assert {(one.seed, one.window_ns) for one in (closed, opened)} == {(5, 2 * S)}


def test_a_given_warm_up_is_that_of_every_load_and_a_detected_one_that_of_the_process():
    load = {"closed": {"concurrency": [1, 2, 4], "think_time": "1ms"}}
    for warmup, warmup_ns, expected in (
        ("auto", 2 * S, [2 * S, S // 4, S // 4]),
        ("auto", S // 10, [S // 10] * 3),
        ("2s", 2 * S, [2 * S] * 3),
        ("0s", 0, [0] * 3),
    ):
        several = Scenario.model_validate({"name": "x", "target": {"model": "m"}, "load": load, "measure": {"warmup": warmup}})
        specs = run_specs(several, FixedSettings(warmup_ns=warmup_ns, window_ns=S), 5)
        assert [spec.warmup_ns for spec in specs] == expected
        assert [spec.load.closed.concurrency for spec in specs] == [(1,), (2,), (4,)]
        assert {spec.load.closed.think_time_ns for spec in specs} == {S // 1000}


def test_a_load_of_several_rates_becomes_loads_of_one_rate_and_others_stay_whole():
    rates = Scenario.model_validate({"name": "x", "target": {"model": "m"}, "load": {"open": {"rate": [10, 20]}}})
    assert [one.open.rates_per_s for one in single_points(rates.load)] == [(10.0,), (20.0,)]
    replay = Scenario.model_validate({"name": "x", "target": {"model": "m"}, "load": {"replay": {"trace": "t.jsonl"}}})
    assert single_points(replay.load) == (replay.load,)


def test_without_a_profile_the_scenarios_load_is_measured():
    (own,) = run_specs(scenario(), FixedSettings(warmup_ns=S, window_ns=None), 5)
    assert isinstance(own.load, ClosedLoadSpec)
    assert own.load.closed.concurrency == (3,)


def test_the_example_scenario_is_a_gate():
    from perfkit.scenario.file import read_scenario

    loaded = read_scenario(pathlib.Path(__file__).parents[2] / "scenarios" / "gate.yaml")
    assert loaded.scenario.gate is not None

import asyncio
import pathlib

import pytest

from perfkit.errors import MeasurementError
from perfkit.gate.folder import FixedSettings
from perfkit.gate.trial import common_warmup_ns, find_saturating_concurrency, run_specs, window_ns
from perfkit.result.model import Result
from perfkit.scenario.load import ClosedLoadSpec
from perfkit.scenario.model import Scenario
from perfkit.units import NS_PER_S
from tests.result.conftest import DOCUMENT, POINT

S = NS_PER_S


def scenario(**measure):
    load = {"closed": {"concurrency": 3}}
    return Scenario.model_validate({"name": "x", "target": {"model": "m"}, "load": load, "measure": measure})


def result(warmup_s):
    return Result.model_validate({**DOCUMENT, "points": [{**POINT, "warmup_s": warmup_s}]})


@pytest.mark.parametrize(("measure", "length_ns"), [({}, 20 * S), ({"duration": "3s"}, 3 * S), ({"requests": 100}, None)])
def test_the_window_is_the_scenarios_or_twenty_seconds(measure, length_ns):
    assert window_ns(scenario(**measure)) == length_ns


@pytest.mark.parametrize(("measure", "warmup_ns"), [({"warmup": "3s"}, 3 * S), ({"warmup": "auto"}, 2.2 * S), ({}, 2.2 * S)])
def test_both_arms_use_the_longer_warm_up(measure, warmup_ns):
    assert common_warmup_ns(scenario(**measure), {"baseline": result(1.0), "candidate": result(2.11)}) == warmup_ns


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
    assert {(one.seed, one.warmup_ns, one.window_ns) for one in (closed, opened)} == {(5, S, 2 * S)}


def test_a_baseline_without_throughput_cannot_be_gated():
    with pytest.raises(MeasurementError, match="completed no request in its trial"):
        run_specs(scenario(), FixedSettings(warmup_ns=S, window_ns=2 * S, concurrency=8, capacity_per_s=0.0), 5)


def test_without_a_profile_the_scenarios_load_is_measured():
    (own,) = run_specs(scenario(), FixedSettings(warmup_ns=S, window_ns=None), 5)
    assert isinstance(own.load, ClosedLoadSpec)
    assert own.load.closed.concurrency == (3,)


def test_the_example_scenario_is_a_gate():
    from perfkit.scenario.file import read_scenario

    loaded = read_scenario(pathlib.Path(__file__).parents[2] / "scenarios" / "gate.yaml")
    assert loaded.scenario.gate is not None

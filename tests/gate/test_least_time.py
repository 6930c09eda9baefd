"""The least time of a gate, computed by hand: trial of 4 processes with 2 windows each, pairs of 2 runs, 5 s for the verdict."""

import dataclasses

import pytest

from perfkit.errors import TimeTooShortError
from perfkit.gate.folder import GateInputs
from perfkit.gate.least_time import LeastTime
from perfkit.gate.metrics import MetricChoice
from perfkit.gate.paired import fewest_pairs
from perfkit.gate.trial import least_time
from perfkit.scenario.model import Scenario
from perfkit.units import NS_PER_S, parse_duration_ns

# trial 4 x (3 + 2 x 2 x 2) = 44 s, pairs 20 x (3 + 2 x 10) = 460 s: 509 s with the verdict
GIVEN = LeastTime(
    limit_s=509.0, pairs=10, control_pairs=0, window_s=10.0, trial_window_s=2.0, warmups_s=(1.0, 2.0), keys=("measure.duration",)
)


def refusal(least, starts_s=()):
    with pytest.raises(TimeTooShortError) as refused:
        least.check(starts_s)
    return refused.value


def with_limit(least, limit_s):
    return dataclasses.replace(least, limit_s=limit_s)


def test_the_least_time_itself_is_kept_and_less_is_refused_with_the_keys_to_change():
    GIVEN.check()
    error = refusal(with_limit(GIVEN, 508.0))
    assert str(error) == (
        "--time 9m: too short, since this gate takes at least 9m: its trial, and 20 runs (10 pairs) of 23 s, with 2 windows of 10 s after 3 s of "
        "warm-up: give at least 10m, or lessen measure.duration"
    )
    with_limit(GIVEN, parse_duration_ns(error.enough) / NS_PER_S).check()


def test_finding_the_warm_up_and_control_pairs_take_time():
    # 2 x 10 s of warm-up measurements; 3 control pairs are 6 runs of 23 s
    refusal(dataclasses.replace(GIVEN, probe_s=10.0, limit_s=528.0))
    dataclasses.replace(GIVEN, probe_s=10.0, limit_s=529.0).check()
    refusal(dataclasses.replace(GIVEN, control_pairs=3, limit_s=646.0))
    dataclasses.replace(GIVEN, control_pairs=3, limit_s=647.0).check()


def test_a_start_of_the_server_counts_half_until_there_was_another():
    # 24 starts: 4 of the trial, 20 of the pairs
    slow = with_limit(dataclasses.replace(GIVEN, starts_servers=True), 609.0)
    slow.check([8.0])
    assert "at least 4.2 s for the start of the server" in str(refusal(slow, [8.4]))
    slow.check([8.4, 4.0])
    refusal(slow, [8.4, 4.4])


def test_before_the_first_start_the_message_says_that_starts_come_on_top():
    least = with_limit(dataclasses.replace(GIVEN, starts_servers=True), 60.0)
    assert "at least 9m, without the starts of the servers:" in str(refusal(least))
    assert "without the starts" not in str(refusal(least, [1.0]))


def of(load, measure, choice=None, **inputs):
    scenario = Scenario.model_validate({"name": "x", "target": {"model": "m"}, "load": load, "measure": measure})
    given = GateInputs(
        scenario={}, baseline="a", candidate="b", perfkit="1", **{"time_limit_ns": 60 * NS_PER_S, "control_pairs": 0, **inputs}
    )
    return least_time(scenario, choice or MetricChoice(), given, starts_servers=False)


CLOSED = {"closed": {"concurrency": [1, 4]}}


def test_windows_and_warm_ups_are_those_of_the_scenario():
    least = of(CLOSED, {"duration": "5s", "warmup": "2s"})
    assert (least.window_s, least.trial_window_s, least.warmups_s, least.probe_s) == (5.0, 2.0, (2.0, 2.0), 0.0)
    assert least.pairs == fewest_pairs(8)
    assert least.keys == ("measure.duration", "measure.warmup")


def test_a_warm_up_that_is_found_is_a_second_and_the_second_load_points_a_quarter():
    least = of(CLOSED, {})
    assert (least.window_s, least.warmups_s, least.probe_s) == (0.1, (1.0, 0.25), 10.0)
    assert least.keys == ("measure.warmup",)


def test_an_open_loop_needs_windows_with_requests_for_its_percentiles():
    # p99 of 2 requests a second: 100 of them and a quarter more
    assert of({"open": {"rate": [2, 50]}}, {}).window_s == pytest.approx(62.5)
    assert of({"open": {"rate": [2, 50]}}, {}, MetricChoice(names=("p50",))).window_s == pytest.approx(1.25)
    # the standard profile finds its rate
    assert of({"open": {"rate": 2}}, {}, MetricChoice(is_standard=True)).window_s == 0.1


def test_pairs_that_were_asked_for_are_those_to_lessen():
    least = of(CLOSED, {"warmup": "0s"}, pairs=40, control_pairs=2)
    assert (least.pairs, least.control_pairs, least.keys) == (40, 2, ("--control", "--pairs"))


def test_without_a_limit_nothing_is_refused():
    assert of(CLOSED, {}, time_limit_ns=None) is None

"""Saturation, drift and invalid measurements as evidence for the capacity: M/M/1 with a service time of 10 ms."""

import math

import numpy as np
import pytest

from perfkit.errors import InconclusiveError, MeasurementWarning
from perfkit.plan.capacity_estimate import suggested_rates
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.inputs import PlanInputs, parse_slo
from perfkit.plan.model import RatePoint
from perfkit.plan.rate_points import rate_points
from tests.queue_results import Writer, mm1_times_s

SLO, SLOW = parse_slo(["p99<300ms"]), parse_slo(["p99<400ms"])
TRUTH = 100 - math.log(100) / 0.3  # 84.6/s


def planned(evidence, slo=SLO):
    return plan_capacity(evidence, PlanInputs(slo, (1000.0,)))


def evidence_of(*folders):
    return gather_evidence(read_sources(list(map(str, folders))))


def not_steady_at(evidence, rate_per_s):
    """The evidence with a drift found at one rate."""
    (one,) = evidence
    for point in one.open_points:
        if point.rate_per_s == rate_per_s:
            drift = MeasurementWarning("not_steady", "The mean time drifted.")
            object.__setattr__(point, "measured", point.measured.model_copy(update={"warnings": (drift,)}))
    return evidence


def test_the_throughput_under_overload_bounds_the_interval(tmp_path):
    """A server that answers 38.8/s at 45/s, and whose p99 is 1.84 s at 36.3/s, has no capacity of 61/s."""

    def times_s(random, rate_per_s, number):
        return mm1_times_s(random, min(rate_per_s, 37.0), number, mean_s=1 / 38.8)

    rates = (8, 15, 20, 25, 28, 30, 45)
    folder = Writer(tmp_path)(rates, seconds=8000, times_s=times_s, slowest_per_s=38.8, overloaded_from=45, seed=4)
    capacity = planned(evidence_of(folder), parse_slo(["p99<1840ms"])).chosen.capacity
    assert capacity.low_per_s < 36.3 < capacity.high_per_s < 38.8 * 1.05


def test_a_rate_that_drifted_and_missed_bounds_the_capacity(write):
    """At 110/s the target answered 100/s and missed the limit, with a drift instead of an overload. The p99 is 400 ms at 88.5/s."""
    folder = write((20, 35, 50, 60, 70, 80, 110), seconds=1600, slowest_per_s=100, overloaded_from=110)
    drifting, overloaded = planned(not_steady_at(evidence_of(folder), 110), SLOW), planned(evidence_of(folder), SLOW)
    capacity = drifting.chosen.capacity
    assert capacity.low_per_s < 88.5 < capacity.high_per_s < 101
    assert capacity.per_s == pytest.approx(overloaded.chosen.capacity.per_s, rel=0.01)
    assert any("where the limit was missed, it bounds the capacity from above" in note for note in drifting.chosen.notes)


def test_a_rate_that_drifted_within_the_limit_neither_meets_nor_misses(write):
    evidence = not_steady_at(evidence_of(write((20, 35, 50, 60, 70, 110), overloaded_from=100)), 50)
    points = {point.rate_per_s: point.meets_slo for point in rate_points(evidence[0], SLO, None)}
    assert points == {20: True, 35: True, 50: None, 60: True, 70: True, 110: False}


def test_invalid_rates_above_do_not_make_an_slo_that_is_never_missed(write):
    with pytest.raises(InconclusiveError) as caught:
        planned(evidence_of(write((20, 35, 50, 60, 70, 110), overloaded_from=100, invalid=(110,))))
    assert str(caught.value).startswith("The SLO is met up to 70.0/s (p99 ")
    assert (
        "and the measurements at the rates above cannot tell whether it is missed there: 110/s (not valid). Measure them again, or higher ones."
    ) in str(caught.value)
    assert " To measure that: perfkit run " in str(caught.value)


def test_windows_that_are_too_short_are_refused_with_what_to_measure(write):
    """20 s at each rate hold few clusters of slow requests of M/M/1 near its capacity, 84.6/s."""
    with pytest.raises(InconclusiveError, match=r"The windows are too short for p99: .* Measure \d+ s in all at rates from") as caught:
        planned(evidence_of(write((20, 35, 50, 60, 70, 110), seconds=20, overloaded_from=100)))
    assert "the 20 s measured near the capacity" in str(caught.value)


@pytest.mark.parametrize(("limit", "text"), [("5s", r"Measure \d+ hours in all"), ("100s", r"Measure [\d,]+ days in all")])
def test_a_limit_that_would_take_very_long_is_refused_in_hours_or_days(write, limit, text):
    with pytest.raises(InconclusiveError, match=text):
        planned(evidence_of(write((20, 35, 50, 60, 70, 110), seconds=20, overloaded_from=100)), parse_slo([f"p99<{limit}"]))


def test_a_lower_limit_far_below_the_estimate_is_refused(write):
    """Three restarts, one of which is half as fast."""
    folders = [
        write((10, 20, 25, 30, 35, 110), restart=restart, seed=seed, overloaded_from=100, seconds=1000)
        for seed, restart in enumerate((0.0, 0.0, 0.9))
    ]
    with pytest.raises(InconclusiveError, match="too uncertain to plan with, "):
        planned(evidence_of(*folders), parse_slo(["p99<200ms"]))


def test_results_without_a_log_have_a_capacity_near_that_with_one(write):
    folder = write((20, 35, 50, 60, 70, 75, 80, 110), overloaded_from=100, seconds=2000)
    with_log = planned(evidence_of(folder)).chosen.capacity
    (folder / "latency.hlog").unlink()
    without = planned(evidence_of(folder)).chosen.capacity
    assert without.per_s == pytest.approx(with_log.per_s, rel=0.03)
    assert np.median(without.draws_per_s) == pytest.approx(TRUTH, rel=0.05)


@pytest.mark.parametrize(
    ("per_s", "sentence"),
    [
        (0.0, "No request succeeded: measure rates that the target answers."),
        (100.0, "such as 40.0/s, 55.0/s, 70.0/s and 85.0/s (load.open.rate), in windows of at least 50 s (measure.duration)."),
        # 3 × 662 samples at 0.4/s in windows of at most ten minutes
        (
            1.0,
            "0.40/s, 0.55/s, 0.70/s and 0.85/s (load.open.rate), in windows of at least 552 s (measure.duration), with 9 repetitions",
        ),
    ],
)
def test_rates_and_windows_that_would_help_are_named(per_s, sentence):
    point = RatePoint(100.0, "overloaded", 1, 9, per_s, None, 0.0, None, {}, ())
    assert sentence in suggested_rates("p99", [point])

"""Replicas over time against what Kubernetes' rule gives by hand, and against expected values."""

import numpy as np
import pytest

from perfkit.plan.steps import Autoscaler, PeriodicSteps, ReplicaCourse, Steps, autoscale, interrupt, scheduled

DAY_S = 86_400.0


def pairs(steps):
    return list(zip(steps.starts_s.tolist(), steps.values.tolist(), strict=True))


def settings(**changes):
    return Autoscaler(**{"target_per_s": 10.0, "cold_start_s": 90.0, "maximum": 50, **changes})


def counts(*parts):
    """Arrivals in periods of 15 s, from pairs of rate and seconds."""
    return np.concatenate([np.full(round(length_s / 15), round(rate * 15)) for rate, length_s in parts])


def test_a_constant_demand_keeps_its_replicas():
    course = autoscale(counts((60, 3600)), settings(), 6)
    assert pairs(course.ready) == pairs(course.running) == [(0.0, 6.0)]


def test_replicas_are_ready_a_cold_start_after_the_autoscaler_asked_for_them():
    """The rate over 60 s is 20, 30, 40, 50, 60 a second at the ends of the periods after the step: 3, 4, 5, 6 replicas."""
    course = autoscale(counts((20, 600), (60, 600)), settings(), 2)
    assert pairs(course.running) == [(0.0, 2.0), (615.0, 3.0), (630.0, 4.0), (645.0, 5.0), (660.0, 6.0)]
    assert pairs(course.ready) == [(0.0, 2.0), (705.0, 3.0), (720.0, 4.0), (735.0, 5.0), (750.0, 6.0)]


@pytest.mark.parametrize(("rate", "wanted"), [(54, 6), (66, 6), (67, 7), (53, 6), (50, 5), (0, 1), (9999, 50)])
def test_the_number_of_replicas_is_that_of_kubernetes_with_a_tolerance_of_a_tenth(rate, wanted):
    assert settings().wanted(rate, 6) == wanted


def test_the_examples_of_kubernetes_documentation_hold():
    """50 replicas at 90 % for a target of 75 % become 60; twice the target doubles the replicas, and half of it halves them."""
    assert settings(target_per_s=75.0, maximum=100).wanted(50 * 90.0, 50) == 60
    assert settings(target_per_s=100.0).wanted(4 * 200.0, 4) == 8
    assert settings(target_per_s=100.0).wanted(4 * 50.0, 4) == 2


def test_replicas_stop_only_when_nothing_asked_for_them_within_the_delay():
    """The last period with 60 a second ends at 600 s; the mean over 60 s falls to 50, 40, 30, 20 a second by 660 s."""
    course = autoscale(counts((60, 600), (20, 900)), settings(scale_down_delay_s=300.0), 6)
    assert pairs(course.ready) == pairs(course.running) == [(0.0, 6.0), (915.0, 5.0), (930.0, 4.0), (945.0, 3.0), (960.0, 2.0)]


def test_a_replica_that_is_starting_is_stopped_first():
    course = autoscale(counts((20, 60), (100, 15), (20, 600)), settings(cold_start_s=900.0, scale_down_delay_s=30.0), 2)
    assert float(np.max(course.running.values)) > 2
    assert all(value == 2 for _, value in pairs(course.ready))


def test_a_step_up_starts_four_replicas_at_once_or_doubles_them():
    course = autoscale(counts((10, 60), (500, 600)), settings(metric_window_s=15.0), 1)
    assert [value for _, value in pairs(course.running)] == [1, 5, 10, 20, 40, 50]


def test_a_schedule_starts_replicas_a_cold_start_ahead():
    by_hour = PeriodicSteps(Steps.of([(0.0, 2), (3600.0, 5), (7200.0, 3)]), DAY_S)
    course = scheduled(by_hour, 90.0, DAY_S)
    assert course.ready.integral(0, DAY_S) == 2 * 3600 + 5 * 3600 + 3 * 22 * 3600
    assert course.running.integral(0, DAY_S) == course.ready.integral(0, DAY_S) + 3 * 90
    assert course.running.at([3509.0, 3511.0]).tolist() == [2, 5]
    assert course.ready.at([3599.0, 3600.0, 7199.0, 7200.0]).tolist() == [2, 5, 5, 3]


def test_a_cold_start_longer_than_an_hour_starts_replicas_two_hours_ahead():
    by_hour = PeriodicSteps(Steps.of([(hour * 3600.0, 4 if hour == 10 else 1) for hour in range(24)]), DAY_S)
    course = scheduled(by_hour, 5400.0, DAY_S)
    assert course.running.at([8.49 * 3600, 8.51 * 3600, 10.99 * 3600, 11.0 * 3600]).tolist() == [1, 4, 4, 1]


def test_interruptions_take_the_expected_share_of_spot_replicas_and_none_of_the_base():
    """Each of 40 spot replicas is down for a cold start at a rate of 0.5/h: 40 · 0.5 · 180/3600 = 1 on average."""
    constant = Steps.of([(0.0, 50)])
    course = interrupt(ReplicaCourse(constant, constant), 10, 0.5, 180.0, 100 * DAY_S, np.random.default_rng(3))
    assert 50 - course.ready.mean(0, 100 * DAY_S) == pytest.approx(1, abs=0.02)
    assert pairs(course.running) == [(0.0, 50.0)]
    few = Steps.of([(0.0, 11)])
    lost = interrupt(ReplicaCourse(few, few), 10, 60.0, 600.0, DAY_S, np.random.default_rng(3))
    assert min(lost.ready.within(0, DAY_S)) == 10


def test_without_spot_replicas_nothing_is_interrupted():
    constant = Steps.of([(0.0, 10)])
    course = ReplicaCourse(constant, constant)
    assert interrupt(course, 10, 0.5, 180.0, DAY_S, np.random.default_rng(3)) is course


STEPS = Steps.of([(30.0, 2), (0.0, 1), (10.0, 4)])


def test_a_value_holds_from_its_start_and_the_first_one_also_before():
    assert STEPS.at([-5.0, 0.0, 9.9, 10.0, 30.0, 1e9]).tolist() == [1, 1, 1, 4, 2, 2]


def test_of_equal_starts_the_last_value_holds_and_without_any_there_are_no_steps():
    assert pairs(Steps.of([(0.0, 1), (5.0, 2), (5.0, 3)])) == [(0.0, 1.0), (5.0, 3.0)]
    with pytest.raises(ValueError, match="at least one start"):
        Steps.of([])


def test_changes_add_up_in_the_order_of_their_instants():
    assert pairs(Steps.of_changes(0.0, 2, [(20.0, -1), (10.0, 3), (20.0, 2)])) == [(0.0, 2.0), (10.0, 5.0), (20.0, 6.0)]


def test_integral_mean_and_values_are_those_between_two_instants():
    assert STEPS.integral(5.0, 40.0) == 5 * 1 + 20 * 4 + 10 * 2
    assert STEPS.mean(5.0, 40.0) == pytest.approx(105 / 35)
    assert [STEPS.within(*ends).tolist() for ends in ((5.0, 40.0), (10.0, 40.0), (10.0, 30.0))] == [[1, 4, 2], [4, 2], [4]]


def test_the_shares_of_time_at_or_above_each_number_add_up_to_the_mean():
    shares = [STEPS.share_at_least(number, 0, 40) for number in (1, 2, 3, 4, 5)]
    assert shares == [1, 0.75, 0.5, 0.5, 0]
    assert sum(shares) == STEPS.mean(0, 40)


def test_the_last_value_of_a_period_holds_until_the_first_start_of_the_next_one():
    day = PeriodicSteps(Steps.of([(6.0, 2), (8.0, 5)]), 24.0)
    assert day.at([0.0, 6.0, 8.0, 24.0, 30.0, -17.0]).tolist() == [5, 2, 5, 5, 2, 2]
    assert pairs(day.over(-20.0, 31.0)) == [(-20.0, 5.0), (-18.0, 2.0), (-16.0, 5.0), (6.0, 2.0), (8.0, 5.0), (30.0, 2.0)]
    assert day.mean == pytest.approx((2 * 2 + 22 * 5) / 24)

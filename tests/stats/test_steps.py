"""Step functions against values and integrals counted by hand."""

import pytest

from perfkit.stats.steps import PeriodicSteps, Steps

STEPS = Steps.of([(30.0, 2), (0.0, 1), (10.0, 4)])


def pairs(steps):
    return list(zip(steps.starts_s.tolist(), steps.values.tolist(), strict=True))


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

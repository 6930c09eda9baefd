"""Costs against sums done by hand, and the best number of reserved replicas against every other one."""

import pytest

from perfkit.stats.fleet_cost import BoughtFleet, mean_power_w, rent, rent_with_spot
from perfkit.stats.steps import Steps


def test_a_fleet_that_always_runs_costs_its_price():
    assert rent([1.0] * 12, 2.5).per_h == 30
    reserved = rent([1.0] * 12, 2.5, 1.6)
    assert reserved.reserved == 12
    assert reserved.per_h == pytest.approx(12 * 1.6)


def test_the_number_of_reserved_replicas_costs_least():
    shares = [1.0, 1.0, 0.9, 0.7, 0.65, 0.6, 0.3, 0.05]

    def cost(reserved):
        return reserved * 1.6 + sum(shares[reserved:]) * 2.5

    best = rent(shares, 2.5, 1.6)
    assert best.per_h == pytest.approx(min(cost(number) for number in range(len(shares) + 1)))
    assert best.reserved == 5


def test_spot_replicas_are_paid_for_while_they_run():
    assert rent_with_spot([1.0, 1.0, 0.5, 0.25], 2, 1.6, 0.9).per_h == pytest.approx(3.2 + 0.75 * 0.9)


def test_buying_pays_once_the_rent_that_it_saves_exceeds_its_price():
    fleet = BoughtFleet(10, 300_000, 3 * 8760, 2.0)
    assert fleet.per_h == pytest.approx(300_000 / 26_280 + 2)
    assert fleet.break_even_h(27.0) == pytest.approx(12_000)
    assert fleet.break_even_h(2.0 + 300_000 / 26_280) == pytest.approx(26_280)
    assert fleet.break_even_h(13.0) is None
    assert fleet.break_even_h(1.0) is None


def test_power_is_interpolated_between_the_measured_rates():
    """Four replicas at 10/s and at 30/s each: 100 W + (300 W - 100 W)/2 = 200 W, and 300 W; half of the time each."""
    demand = Steps.of([(0.0, 40.0), (50.0, 120.0)])
    assert mean_power_w(4, demand, 100.0, (0, 20, 25), (100, 300, 300)) == pytest.approx(4 * (200 + 300) / 2)

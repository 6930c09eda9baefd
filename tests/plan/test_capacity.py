"""Fleets, costs, energy and fronts: literal figures, and properties over many plans."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.plan.capacity import (
    BoughtFleet,
    ClosedPoint,
    closed_loop_bounds,
    cost_per_million,
    count_replicas,
    energy_per_inference,
    mean_power_w,
    measured_knee,
    pareto_front,
    rent,
    rent_with_spot,
    target_concurrency,
)
from perfkit.plan.steps import Steps


def test_the_replicas_of_the_worked_example():
    """λ*_L = 120, Q = 1,000, h = 0.7, h_f = 0.9, k = 1: 12 replicas; $2.50 an hour each: $8.33 a million; 300 W at 120/s: 2.5 J."""
    fleet = count_replicas(1000.0, 120.0, headroom=0.3, failure_headroom=0.1, redundancy=1)
    assert (fleet.replicas, fleet.for_headroom, fleet.for_redundancy, fleet.reason) == (12, 12, 11, "headroom")
    assert round(cost_per_million(fleet.replicas, 2.50, 1000.0), 2) == 8.33
    assert energy_per_inference(300.0, 120.0).gross_j == 2.5
    assert energy_per_inference(300.0, 120.0, idle_power_w=60.0).above_idle_j == 2.0


@given(
    st.floats(0.1, 1e5), st.floats(0.1, 1e4), st.sampled_from([0.0, 0.2, 0.5]), st.sampled_from([0.0, 0.1]), st.integers(0, 3),
    st.sampled_from([0, 2, 3, 5]),
)  # fmt: skip
def test_the_replica_count_is_the_smallest_that_meets_all_rules(demand, capacity, headroom, failure_headroom, redundancy, zones):
    fleet = count_replicas(demand, capacity, headroom=headroom, failure_headroom=failure_headroom, redundancy=redundancy, zones=zones)

    def keeps(n, slack):
        after_loss = n - math.ceil(n / zones) if zones else n
        return (
            demand <= n * (1 - headroom) * capacity * slack
            and demand <= (n - redundancy) * (1 - failure_headroom) * capacity * slack
            and demand <= after_loss * (1 - failure_headroom) * capacity * slack
        )

    assert keeps(fleet.replicas, 1 + 1e-8)
    assert fleet.replicas == 1 or not keeps(fleet.replicas - 1, 1 - 1e-12)
    assert fleet.rate_per_replica_per_s * fleet.replicas == pytest.approx(demand)


@pytest.mark.parametrize("zones", [2, 3, 4, 7])
def test_the_replicas_survive_the_loss_of_the_largest_zone(zones):
    for bare in range(1, 60):
        fleet = count_replicas(float(bare), 1.0, headroom=0.0, failure_headroom=0.0, zones=zones)
        assert fleet.for_zone_loss == next(n for n in range(1, 200) if n - math.ceil(n / zones) >= bare)


def test_a_demand_that_fits_exactly_needs_no_further_replica():
    assert count_replicas(840.0, 120.0, headroom=0.3, failure_headroom=0.1).replicas == 10


@pytest.mark.parametrize(
    ("demand", "capacity", "options", "message"),
    [
        (0.0, 120.0, {}, "above zero"),
        (1000.0, 0.0, {}, "above zero"),
        (math.nan, 120.0, {}, "above zero"),
        (1000.0, 120.0, {"headroom": 1.0}, "headroom must be at least 0 %"),
        (1000.0, 120.0, {"zones": 1}, "at least 2"),
        (1000.0, 120.0, {"redundancy": -1}, "redundancy must be 0 or more"),
    ],
)
def test_invalid_inputs_are_refused(demand, capacity, options, message):
    with pytest.raises(ValueError, match=message):
        count_replicas(demand, capacity, **options)


def test_energy_needs_inferences_and_is_never_below_zero():
    with pytest.raises(ValueError, match="needs a rate above zero"):
        energy_per_inference(300.0, 0.0)
    assert energy_per_inference(50.0, 10.0, idle_power_w=60.0).above_idle_j == 0


def test_the_target_concurrency_follows_littles_law():
    assert target_concurrency(84.0, 0.025) == pytest.approx(2.1)


def test_the_bounds_and_the_knee_of_a_closed_loop():
    points = [ClosedPoint(1, 100.0, 0.010), ClosedPoint(2, 180.0, 0.011), ClosedPoint(4, 240.0, 0.0167), ClosedPoint(8, 250.0, 0.032)]
    bounds = closed_loop_bounds(points)
    assert bounds.saturating_concurrency == pytest.approx(2.5)
    assert [bounds.throughput_per_s(n) for n in (1, 2, 8)] == pytest.approx([100.0, 200.0, 250.0])
    assert measured_knee(points).concurrency == 2  # X/R: 10,000, 16,364, 14,371, 7,813
    assert closed_loop_bounds(points[1:]) is None
    assert measured_knee([]) is None


def test_the_pareto_front_has_the_pairs_that_no_other_beats():
    random = np.random.default_rng(6)
    pairs = [(float(a), float(b)) for a, b in random.integers(0, 30, (200, 2))]
    front = pareto_front(pairs)
    for place, (a, b) in enumerate(pairs):
        is_beaten = any((c <= a and d < b) or (c < a and d <= b) for c, d in pairs)
        assert not (is_beaten and place in front)
        assert is_beaten or any(pairs[one] == (a, b) for one in front)


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

"""The probability that replicas keep the SLO, against closed forms and a simulation of the whole model."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from perfkit.plan.fleet_risk import (
    Balancing,
    Demand,
    ReplicaCapacity,
    Splitting,
    expected_over_failures,
    holding_probability,
    normalised_shares,
    safe_demand_per_s,
)

NORMAL = statistics.NormalDist()
RANDOM, POOLED = Splitting(), Splitting(Balancing.LEAST_IN_FLIGHT)
SKEWED = Splitting(shares=normalised_shares([1.2, 1, 1, 0.8]))


def lognormal(median_per_s, log_sd, number=2000):
    return tuple(median_per_s * math.exp(log_sd * NORMAL.inv_cdf((index + 0.5) / number)) for index in range(number))


def exact(per_s):
    """A replica whose capacity is known, and whose starts do not differ."""
    return ReplicaCapacity((per_s,), 0.0, 1)


@pytest.mark.parametrize("demand_per_s", [800, 950, 1000, 1050, 1200])
def test_a_lognormal_capacity_and_demand_have_a_normal_margin(demand_per_s):
    """P = Φ(ln(m·C/Q) / √(σ_C² + σ_Q²))."""
    capacity, demand = ReplicaCapacity(lognormal(100, 0.06), 0.0, 1), Demand(demand_per_s, 0.08)
    expected = NORMAL.cdf(math.log(10 * 100 / demand_per_s) / 0.1)
    assert holding_probability(capacity, demand, RANDOM, 10) == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize("degrees", [2, 4, 30])
def test_one_replica_of_known_capacity_varies_by_students_t_between_starts(degrees):
    capacity = ReplicaCapacity((100.0,), 0.03, degrees)
    for demand_per_s in (92, 97, 100, 104):
        expected = stats.t.cdf(math.log(100 / demand_per_s) / 0.03, degrees)
        assert holding_probability(capacity, Demand(demand_per_s), RANDOM, 1) == pytest.approx(expected, abs=0.002)


def test_with_many_replicas_the_slowest_start_decides():
    """Φ(z)ᵐ at random; Φ(z·√m) where the sum of the capacities counts."""
    capacity, z = ReplicaCapacity((100.0,), 0.03, 1e7), 1.5
    demand = Demand(20 * 100 * math.exp(-0.03 * z))
    assert holding_probability(capacity, demand, RANDOM, 20) == pytest.approx(NORMAL.cdf(z) ** 20, abs=1e-4)
    assert holding_probability(capacity, demand, POOLED, 20) == pytest.approx(NORMAL.cdf(z * math.sqrt(20)), abs=1e-4)


def test_the_largest_share_decides():
    assert holding_probability(exact(100), Demand(4 * 100 / 1.2 * 0.999), SKEWED, 4) == 1.0
    assert holding_probability(exact(100), Demand(4 * 100 / 1.2 * 1.001), SKEWED, 4) == 0.0
    capacity, shares = ReplicaCapacity((100.0,), 0.03, 1e7), (1.2, 1, 1, 0.8)
    expected = math.prod(NORMAL.cdf(math.log(4 * 100 / (330 * share)) / 0.03) for share in shares)
    assert holding_probability(capacity, Demand(330), SKEWED, 4) == pytest.approx(expected, abs=1e-4)


def test_neighbours_of_many_different_shares_are_taken_together_with_little_loss():
    capacity, splitting = ReplicaCapacity((100.0,), 0.03, 1e7), Splitting(shares=normalised_shares(np.linspace(0.8, 1.2, 100)))
    for demand_per_s in (7700, 7900, 8100):
        expected = math.prod(NORMAL.cdf(math.log(10_000 / (demand_per_s * share)) / 0.03) for share in splitting.shares)
        found = holding_probability(capacity, Demand(demand_per_s), splitting, 100)
        assert found == pytest.approx(expected, abs=0.005)


def test_the_number_of_replicas_that_are_down_is_binomial():
    """Twelve replicas of which ten are needed, each up 95 % of the time; 1,000 of which 990 are."""
    found = expected_over_failures(lambda up: holding_probability(exact(100), Demand(999), RANDOM, up), 12, 0.95)
    assert found == pytest.approx(stats.binom.cdf(2, 12, 0.05), abs=1e-6)
    assert expected_over_failures(lambda up: float(up >= 990), 1000, 0.995) == pytest.approx(stats.binom.cdf(10, 1000, 0.005), abs=1e-5)


def test_no_replica_keeps_no_slo():
    assert holding_probability(exact(100), Demand(1), RANDOM, 0) == 0.0


@pytest.mark.parametrize("splitting", [RANDOM, POOLED, SKEWED], ids=["random", "pooled", "skewed"])
def test_the_probability_is_that_of_a_simulation_of_the_whole_model(splitting):
    """400,000 trials have a standard error of at most 0.08 %."""
    random, trials, replicas, sd, degrees = np.random.default_rng(5), 400_000, 6, 0.04, 4.0
    draws = np.sort(100 * random.gamma(200, 1 / 200, 400))
    mean = random.choice(draws, trials)
    scale = sd * np.sqrt(degrees / random.chisquare(degrees, trials))
    factors = np.exp(-scale[:, None] * random.standard_normal((trials, replicas)))
    demand = 520 * np.exp(0.1 * random.standard_normal(trials))
    if splitting.is_pooled:
        holds = demand <= mean * factors.sum(axis=1)
    else:
        holds = (demand[:, None] / replicas * splitting.shares_of(replicas) <= mean[:, None] * factors).all(axis=1)
    found = holding_probability(ReplicaCapacity(tuple(draws), sd, degrees), Demand(520, 0.1), splitting, replicas)
    assert found == pytest.approx(float(holds.mean()), abs=0.005)
    assert 0.3 < found < 0.95


def test_the_safe_demand_has_the_probability_that_was_asked_for():
    capacity, demand = ReplicaCapacity(lognormal(100, 0.05, 400), 0.03, 3), Demand(1.0, 0.1)
    for splitting, probability in ((RANDOM, 0.9), (POOLED, 0.99), (SKEWED, 0.5)):
        safe = safe_demand_per_s(capacity, demand, splitting, 8, probability)
        assert holding_probability(capacity, Demand(safe, 0.1), splitting, 8) == pytest.approx(probability, abs=1e-4)


def test_a_capacity_that_may_be_zero_has_no_safe_demand_above_its_probability():
    capacity = ReplicaCapacity((0.0,) * 20 + (100.0,) * 80, 0.03, 3)
    assert safe_demand_per_s(capacity, Demand(1.0), RANDOM, 1, 0.9) == pytest.approx(0.0, abs=1e-9)
    assert safe_demand_per_s(capacity, Demand(1.0), RANDOM, 1, 0.5) > 50


def test_the_uncertainty_of_the_demand_is_its_90_percent_interval():
    demand = Demand.within(1000, 0.2)
    assert demand.quantile_per_s(0.95) == pytest.approx(1200)
    assert demand.quantile_per_s(0.05) == pytest.approx(1000 / 1.2)
    assert Demand.within(1000, 0.0).quantile_per_s(0.95) == 1000


def test_a_rule_gives_every_replica_the_same_share():
    for balancing in Balancing:
        assert Splitting(balancing).shares_of(5).tolist() == [1.0] * 5
        assert Splitting(balancing).largest_share(5) == 1.0


def test_measured_shares_are_those_of_as_many_replicas_as_were_measured():
    splitting = Splitting(shares=normalised_shares([12, 8, 10, 10]))
    assert splitting.shares == (1.2, 0.8, 1.0, 1.0)
    assert splitting.shares_of(4).tolist() == pytest.approx([1.2, 1.0, 1.0, 0.8])


def test_shares_of_other_numbers_of_replicas_keep_the_skew_and_a_mean_of_one():
    splitting = Splitting(shares=normalised_shares([1.2, 1, 1, 0.8]))
    for replicas in (2, 3, 7, 40):
        shares = splitting.shares_of(replicas)
        assert (shares[0], shares[-1], shares.mean()) == pytest.approx((1.2, 0.8, 1.0))
        assert (np.diff(shares) <= 1e-12).all()
    assert splitting.shares_of(1).tolist() == [1.0]
    lopsided = Splitting(shares=(2.0, 0.5, 0.5))  # interpolated 2, 0.5 and 2, 1.25, 0.5, 0.5, 0.5, divided by their means
    assert lopsided.shares_of(2).tolist() == pytest.approx([1.6, 0.4])
    assert lopsided.shares_of(5).tolist() == pytest.approx([2 / 0.95, 1.25 / 0.95, *[0.5 / 0.95] * 3])


def test_the_sentence_names_the_share_that_each_figure_uses():
    lopsided, even = Splitting(shares=(2.0, 0.5, 0.5)), Splitting(shares=(1.2, 1.0, 0.8))
    assert "the largest share is 2 times the mean, the smallest 0.5 times." in lopsided.sentence(5)
    assert "use 2; the risk of 5 replicas uses 2.11, the largest share" in lopsided.sentence(5)
    assert "interpolation" not in lopsided.sentence(3) + even.sentence(40)


def test_distinct_shares_have_their_numbers_of_replicas():
    splitting = Splitting(shares=normalised_shares([1.2, 1, 1, 0.8]))
    values, counts = splitting.distinct_shares(4, 32)
    assert (values.tolist(), counts.tolist()) == (pytest.approx([0.8, 1.0, 1.2]), [1, 2, 1])
    values, counts = splitting.distinct_shares(1_000_000_000, 32)
    assert values.size <= 32
    assert values[-1] == pytest.approx(1.2)
    assert (counts.sum(), values @ counts / 1e9) == pytest.approx((1e9, 1.0))
    assert [column.tolist() for column in Splitting().distinct_shares(1_000_000_000, 32)] == [[1.0], [1e9]]


def test_only_the_fewest_in_flight_gives_a_slower_replica_less():
    assert Splitting(Balancing.LEAST_IN_FLIGHT).is_pooled
    assert not Splitting(Balancing.ROUND_ROBIN).is_pooled
    assert not Splitting(Balancing.LEAST_IN_FLIGHT, (1.2, 0.8)).is_pooled


@pytest.mark.parametrize("loads", [[], [1.0, 0.0], [1.0, -1.0], [float("nan")], [float("inf"), 1.0]])
def test_loads_that_are_not_above_zero_are_refused(loads):
    with pytest.raises(ValueError, match="the shares of the replicas must be numbers above zero"):
        normalised_shares(loads)


def test_a_load_is_split_over_at_least_one_replica():
    with pytest.raises(ValueError, match="at least one replica, found 0"):
        Splitting().shares_of(0)

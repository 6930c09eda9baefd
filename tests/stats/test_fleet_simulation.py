"""The simulated fleet against queueing theory and fluid limits."""

import math

import numpy as np
import pytest

from perfkit.stats.autoscaling import Autoscaler, ReplicaCourse, autoscale
from perfkit.stats.distributions import binomial_limits
from perfkit.stats.fleet_simulation import FleetDay, Sampling, choose_sampling, clustered_share_interval, simulate_fleet
from perfkit.stats.replica_queue import Limit, ServiceLaw
from perfkit.stats.steps import PeriodicSteps, Steps

EXPONENTIAL = ServiceLaw(1, -0.01 * np.log1p(-(np.arange(5000) + 0.5) / 5000))
P99 = Limit(0.99, 0.3)


def fixed(replicas):
    steps = Steps.of([(0.0, replicas)])
    return lambda _counts, _random: ReplicaCourse(steps, steps)


def day_of(*pairs, length_s=7200.0, law=EXPONENTIAL, limits=(P99,), **changes):
    return FleetDay(PeriodicSteps(Steps.of(pairs), length_s), law, limits, **{"warm_up_s": 600.0, **changes})


def simulate(day, policy, sampling, seed=1):
    return simulate_fleet(day, policy, sampling, np.random.default_rng(seed))


def test_the_share_of_slow_requests_is_that_of_mm1_at_the_rate_of_a_replica():
    """Three replicas of 100/s share 240/s at random: each is M/M/1 at 80/s, and P[R > 0.1 s] = exp(-20·0.1)."""
    found = simulate(day_of((0, 240.0), limits=(Limit(0.9, 0.1),)), fixed(3), Sampling(1))
    assert found.slow_requests == pytest.approx(math.exp(-2), rel=0.03)
    assert found.replica_hours == pytest.approx(6)
    assert (found.fewest, found.most, found.always_running_share) == (3, 3, (1, 1, 1))


def test_one_stretched_replica_stands_for_the_fleet():
    """Exact for each replica under random splitting; a queue stretched in time has the same shares."""
    found = simulate(day_of((0, 8000.0), limits=(Limit(0.9, 0.1),)), fixed(100), Sampling(1, 1, 2.0))
    assert found.slow_requests == pytest.approx(math.exp(-2), rel=0.05)


def test_a_step_in_demand_misses_the_slo_for_the_cold_start_and_until_the_backlog_is_served():
    """Constant service of 10 ms: two replicas at 150/s each, as the fluid limit has it.

    The step at 3,600 s raises 100/s to 300/s for two replicas of 100/s. Two more are decided on with the next synchronisation (15 s), and ready 120 s
    later: at 3,735 s each of the first two holds 135 s · 0.5 = 67.5 s of work. Then each receives 75/s, and it drains at 0.25 s a second:
    270 s, until 4,005 s. The requests of the new replicas are fast, but half of all requests are slow until then: with a limit on
    p99 the SLO is missed from 3,600 s (after 0.6 s) to 4,005 s, which is 405 s of 7,200 s.
    """
    law = ServiceLaw(1, np.array([0.01]))
    scaler = Autoscaler(target_per_s=75.0, cold_start_s=120.0, maximum=4, minimum=2, metric_window_s=15.0)
    day = day_of((0, 100.0), (3600.0, 300.0), law=law, window_s=15.0)
    found = simulate(day, lambda counts, _random: autoscale(counts, scaler, 2), Sampling(4))
    assert found.missed_time.value * 7200 == pytest.approx(405, abs=20)
    assert found.missed_time.value <= found.worst_period
    assert found.missed_time.low <= 405 / 7200 <= found.missed_time.high


def test_a_sampled_fleet_misses_as_many_windows_as_the_whole_one():
    """A step to 1.15 times the capacity for ten minutes; what is left of the difference is the noise of single windows."""
    day = day_of((0, 300.0), (3600.0, 690.0), (4200.0, 300.0))
    whole, sampled, stretched = (
        simulate(day, fixed(6), sampling).missed_time.value for sampling in (Sampling(2), Sampling(1, 2), Sampling(1, 6, 3.0))
    )
    assert whole > 0.1
    assert sampled == pytest.approx(whole, abs=3 / 120)
    assert stretched == pytest.approx(whole, abs=3 / 120)


def test_replicas_that_were_started_are_empty_and_those_that_stop_complete_their_requests():
    """A second replica runs in the second hour alone; demand is 50/s for each in both hours, so that nothing is slower than M/M/1 at 50/s."""
    steps = Steps.of([(0.0, 1), (600.0 + 3600.0, 2)])
    day = day_of((0, 50.0), (3600.0, 100.0), limits=(Limit(0.9, 0.05),))
    found = simulate(day, lambda _counts, _random: ReplicaCourse(steps, steps), Sampling(4))
    assert found.slow_requests == pytest.approx(math.exp(-2.5), rel=0.04)
    assert found.always_running_share == pytest.approx((1, 0.5))


def test_the_fewest_and_the_most_replicas_are_those_of_the_period_without_the_warm_up():
    steps = Steps.of([(0.0, 5), (600.0, 1), (3600.0, 3)])
    found = simulate(day_of((0, 50.0)), lambda _counts, _random: ReplicaCourse(steps, steps), Sampling(1))
    assert (found.fewest, found.most) == (1, 3)
    assert found.always_running_share == pytest.approx((1, 7 / 12, 7 / 12))


def test_windows_without_requests_do_not_miss_the_slo():
    found = simulate(day_of((0, 0.0), (3600.0, 1.0)), fixed(1), Sampling(4))
    assert found.missed_time.value == 0
    assert 0 < found.missed_time.high < 0.02


def test_a_period_without_any_request_misses_nothing():
    found = simulate(day_of((0, 1e-9)), fixed(1), Sampling(1))
    assert (found.missed_time.value, found.slow_requests, found.replica_hours) == (0, 0, 2)


def test_every_request_is_simulated_as_long_as_four_periods_are_possible():
    day = day_of((0, 100.0), length_s=86_400.0)
    assert choose_sampling(day, 2) == Sampling(1, 1)
    assert choose_sampling(day_of((0, 10.0), length_s=86_400.0), 2) == Sampling(9)
    assert choose_sampling(day_of((0, 0.1), length_s=86_400.0), 2) == Sampling(20)
    assert choose_sampling(day_of((0, 0.1), length_s=604_800.0), 2) == Sampling(4)
    large = choose_sampling(day_of((0, 1e6), length_s=86_400.0, limits=(Limit(0.99, 0.05),)), 1000)
    assert (large.periods, large.replicas) == (1, 1)
    assert large.stretch == pytest.approx(1000 * 87_000 / 4e6)


def test_the_interval_is_exact_for_independent_windows_and_wider_where_periods_differ():
    none = clustered_share_interval([0.0], 1440)
    assert (none.low, none.high) == pytest.approx(binomial_limits(0, 1440, 0.9))
    one = clustered_share_interval([0.02], 1000)
    assert (one.low, one.high) == pytest.approx(binomial_limits(20, 1000, 0.9))
    varied = clustered_share_interval([0.0, 0.08, 0.0, 0.0], 1000)
    assert varied.value == 0.02
    assert varied.low < one.low
    assert varied.high > 0.1


def test_the_interval_covers_the_mean_where_windows_of_a_period_depend_on_each_other():
    """Ten periods with 1 % of missed windows, in episodes of twenty: at least 88 % of 500 intervals contain it (nominal 90 %; 93.6 % of 2,000)."""
    random, covered = np.random.default_rng(11), 0
    for _ in range(500):
        episodes = random.poisson(0.01 * 1440 / 20, 10)
        found = clustered_share_interval((random.poisson(20.0 * episodes) / 1440).tolist(), 1440)
        covered += found.low <= 0.01 <= found.high
    assert covered >= 440

"""The simulated fleet against queueing theory and fluid limits."""

import functools
import math

import numpy as np
import pytest

from perfkit.plan.fleet_simulation import FleetDay, Sampling, choose_sampling, simulate_fleet
from perfkit.plan.replica_queue import Limit, ServiceLaw, WindowTally, clustered_share_interval, judge, pool_windows
from perfkit.plan.steps import Autoscaler, PeriodicSteps, ReplicaCourse, Steps, autoscale
from perfkit.stats.probability import binomial_limits

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


def test_four_stretched_replicas_stand_for_the_fleet():
    """Exact for each replica under random splitting; a queue stretched in time has the same shares."""
    found = simulate(day_of((0, 8000.0), limits=(Limit(0.9, 0.1),)), fixed(100), Sampling(1, 4, 2.0))
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


def test_every_request_is_simulated_as_long_as_one_period_is_possible():
    day = day_of((0, 100.0), length_s=86_400.0)  # 8.7 million requests
    assert choose_sampling(day, 4, 8_000_000) == Sampling(1, 3)
    assert choose_sampling(day, 4, 9_000_000) == Sampling(1)
    assert choose_sampling(day, 4, 33_000_000) == Sampling(1)
    assert choose_sampling(day, 4, 35_000_000) == Sampling(4)
    assert choose_sampling(day, 4) == Sampling(4)
    assert choose_sampling(day_of((0, 10.0), length_s=86_400.0), 2) == Sampling(9)
    assert choose_sampling(day_of((0, 0.1), length_s=86_400.0), 2) == Sampling(20)
    assert choose_sampling(day_of((0, 0.1), length_s=604_800.0), 2) == Sampling(4)
    large = choose_sampling(day_of((0, 1e6), length_s=86_400.0, limits=(Limit(0.99, 0.05),)), 1000, 8_000_000)
    assert (large.periods, large.replicas) == (1, 1)
    assert large.stretch == pytest.approx(1000 * 87_000 / 8e6)


@functools.cache
def missed_windows_of_every_replica(replicas, rate_per_s, service_s, windows):
    """The share of missed windows (p99 < 3 s), with every request of every replica, by Lindley's recursion one request after the other."""
    total, above, random = np.zeros(windows), np.zeros(windows), np.random.default_rng(5)
    for _ in range(replicas):
        at, wait = 0.0, 0.0
        gaps = random.exponential(1 / rate_per_s, round(1.2 * rate_per_s * 60 * (windows + 5))).tolist()
        for gap, service in zip(gaps, random.exponential(service_s, len(gaps)).tolist(), strict=True):
            at, wait = at + gap, max(0.0, wait - gap)
            wait += service  # with the request's own service: its response time
            window = int(at // 60) - 5
            if 0 <= window < windows:
                total[window] += 1
                above[window] += wait > 3.0
    return float(np.mean(above > 0.01 * total))


@pytest.mark.parametrize(("at_most", "seeds"), [(2_000_000, 2), (200_000, 8)])
def test_fifty_replicas_miss_as_many_windows_as_all_of_them_simulated_one_by_one(at_most, seeds):
    """M/M/1 of 10/s at 7.8/s for each of fifty replicas: whole (1.5 million requests, in two parts), and six replicas that represent fifty.

    The fleet misses none of 60 windows; three of its replicas alone miss 4 %.
    """
    law = ServiceLaw(1, 10 * EXPONENTIAL.times_s)
    day = day_of((0, 50 * 7.8), length_s=3600.0, law=law, limits=(Limit(0.99, 3.0),), warm_up_s=300.0)
    sampling = choose_sampling(day, 50, at_most)
    assert sampling.is_whole == (at_most > 1_600_000)
    found = np.mean([simulate(day, fixed(50), sampling, seed).missed_time.value for seed in range(seeds)])
    truth = missed_windows_of_every_replica(50, 7.8, 0.1, 60)
    assert found == pytest.approx(truth, abs=1 / 60)


@pytest.mark.parametrize("servers", [1, 2])
def test_a_backlog_is_not_forgotten_where_the_requests_of_a_replica_are_simulated_in_parts(servers):
    """1.2 million requests, in two parts, at 1.1 times the saturation: a constant service time, a wait that grows by 0.1 s a second, a limit of 120 s."""
    law = ServiceLaw(servers, np.array([0.01 * servers]))
    found = simulate(day_of((0, 110.0), length_s=10_800.0, law=law, limits=(Limit(0.99, 120.0),), warm_up_s=0.0), fixed(1), Sampling(1))
    assert found.missed_time.value * 180 == pytest.approx(180 - 20, abs=1)


def test_a_sample_misses_the_slo_as_often_as_an_autoscaled_fleet_near_its_capacity():
    """Six demands of 20 minutes, 90 % of the capacity, 1/14 of the requests; single simulations vary by 0.026, those of the fleet by 0.006."""
    demands = (120, 300, 700, 1000, 700, 200)
    day = day_of(*((1200.0 * index, demand) for index, demand in enumerate(demands)))
    scaler = Autoscaler(target_per_s=0.9 * 84.6, cold_start_s=90.0, maximum=20)

    def missed(sampling, seed):
        return simulate(day, lambda counts, _random: autoscale(counts, scaler, 3), sampling, seed).missed_time.value

    sampled = np.mean([missed(Sampling(1, 1, 1.7), seed) for seed in range(10)])
    assert sampled == pytest.approx(missed(Sampling(1), 1), abs=0.03)


def test_windows_of_equal_load_are_pooled_until_they_hold_what_the_fleet_has_in_one():
    """A quarter of the fleet is simulated: four steady windows of the same load are one of the fleet; the last one is not steady."""
    load = np.array([5.0] * 8 + [7.0] * 4 + [5.0])
    groups = pool_windows(load, np.array([True] * 12 + [False]), np.full(13, 0.25), np.random.default_rng(1))
    sizes = {int(group): [int(index) for index in np.flatnonzero(groups == group)] for group in set(groups)}
    assert sorted(len(members) for members in sizes.values()) == [1, 4, 4, 4]
    assert sizes[12] == [12]
    assert [8, 9, 10, 11] in sizes.values()


def test_windows_that_are_judged_together_are_one_trial_unless_they_are_far_from_the_limit():
    tally = WindowTally(64, (Limit(0.9, 1.0),))
    random = np.random.default_rng(3)
    slow = [8, 14, 11, 13] * 5 + [50, 55, 45, 52] * 5 + [0, 1, 0, 1] * 5 + [0, 1, 0, 1]  # of 100 requests each, of which 10 may be slow
    for window, number in enumerate(slow):
        tally.add(np.full(100, window), np.where(random.permutation(100) < number, 2.0, 0.5))
    found = judge(tally, np.repeat([0, 20, 40, 60], (20, 20, 20, 4)))
    assert found.missed.tolist() == [True] * 40 + [False] * 24
    assert found.trials == 1 + 20 + 20 + 1
    alone = judge(tally)
    assert alone.trials == 64
    assert alone.missed.tolist() == [number > 10 for number in slow]


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

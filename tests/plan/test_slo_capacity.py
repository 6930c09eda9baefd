"""The capacity under an SLO: M/M/1, whose capacity is known."""

import math
import statistics

import numpy as np
import pytest

from perfkit.plan.exceedances import RateTimes, Window
from perfkit.plan.rate_curve import Spread
from perfkit.plan.slo_capacity import FEWEST_CLUSTERS, Bound, Capacity, capacity_under_limit, lowest_capacity
from perfkit.stats.buckets import BucketCounts

UNIT_NS = 1e7  # the mean service time, 10 ms
LIMIT_NS = 20 * UNIT_NS
TRUTH = 100 * (1 - math.log(100) / 20)  # p99 = ln(100)/(1-ρ) = 20 service times: 77.0/s
RATES = (30, 50, 60, 70, 75, 82)
KNOWN_SPEED = Spread(0.0, 10, 3, 0.02, 10)


@pytest.fixture
def measure(queue):
    """Measures M/M/1 with a service time of 10 ms at each rate, in steady state."""

    def at_rates(random, seconds, rates=RATES, behind=()):
        return [one_rate(random, rate, seconds, rate in behind) for rate in rates]

    def one_rate(random, rate, seconds, is_behind):
        times_ns = np.rint(queue(random, rate / 100, int(rate * seconds), warm_up=5_000) * UNIT_NS)
        batches = [BucketCounts.of(part) for part in np.array_split(times_ns, 40)]
        return RateTimes(rate, batches, [Window(seconds, 60.0)], is_lower_bound=is_behind)

    return at_rates


def capacity(random, times, spread=KNOWN_SPEED, limit_ns=LIMIT_NS, **options):
    return capacity_under_limit(times, 0.99, limit_ns, spread, random, **{"highest_throughput_per_s": 82.0, **options})


def test_the_lower_limit_is_below_the_truth_and_the_interval_holds_it(measure):
    """25 capacities from windows of 200 s, with 95 % lower limits and 90 % intervals. False alarms, for other seeds: more than 5 lower limits
    above the truth have a chance of 0.1 %, and fewer than 17 intervals that hold it one of 0.2 %."""  # fmt: skip
    random = np.random.default_rng(21)
    found = [capacity(random, measure(random, 200.0), saturation_per_s=100.0) for _ in range(25)]
    assert sum(one.low_per_s > TRUTH for one in found) <= 5
    assert sum(one.low_per_s <= TRUTH <= one.high_per_s for one in found) >= 17
    assert np.mean([one.per_s for one in found]) == pytest.approx(TRUTH, rel=0.03)


def test_short_windows_hold_too_few_clusters_and_more_of_them_are_asked_for(measure):
    """At the capacity, a load of 0.77, the p99 of M/M/1 is above the limit in clusters of 4ρ/(1 - ρ)² = 58 requests: 75 s for each."""
    random = np.random.default_rng(4)
    short, long = (capacity(random, measure(random, seconds), saturation_per_s=100.0) for seconds in (20.0, 2000.0))
    assert short.clusters < FEWEST_CLUSTERS < long.clusters
    assert long.measured_s == 6000.0  # at 70, 75 and 82/s
    assert long.needed_s == pytest.approx(FEWEST_CLUSTERS * 75, rel=0.2)
    assert long.per_s == pytest.approx(TRUTH, rel=0.03)


def test_a_throughput_under_overload_bounds_the_capacity_beyond_the_measured_rates(measure):
    """Rates up to 60/s alone hardly tell the capacity, 95.4/s for a limit of 1 s; a server that answers 100/s under overload does."""
    random = np.random.default_rng(3)
    times = measure(random, 300.0, (20, 30, 40, 50, 60))
    options = {"limit_ns": 100 * UNIT_NS, "highest_throughput_per_s": 60.0}
    guessed = capacity(random, times, **options)
    options["highest_throughput_per_s"] = 100.0
    known = capacity(random, times, saturation_per_s=100.0, bounds=[Bound(100.0, 0.01)], **options)
    assert guessed.high_per_s > 108
    assert known.high_per_s < 103
    assert known.low_per_s < 95.4 < known.high_per_s


def test_times_of_a_target_that_fell_behind_count_as_lower_bounds(measure):
    """The same windows at 75/s and 82/s, of which the upper misses the limit: as lower bounds they bound the capacity from above alone."""
    steady, behind = (measure(np.random.default_rng(8), 400.0, behind=rates) for rates in ((), (82,)))
    both, above = (capacity(np.random.default_rng(9), times) for times in (steady, behind))
    assert above.high_per_s < 82
    assert above.low_per_s <= both.low_per_s


def test_a_rate_that_fails_limits_the_capacity_and_the_percentile_no_longer_decides(measure):
    random = np.random.default_rng(5)
    spread = Spread(0.03, 3, 2, 0.02, 10)
    found = capacity(random, measure(random, 200.0), spread, bounds=[Bound(60.0)])
    assert (found.is_cut, found.clusters) == (True, math.inf)
    assert (found.per_s, found.high_per_s) == (60.0, 60.0)
    # t of 3 degrees of freedom, whose 95 % point is 2.353
    assert found.low_per_s == pytest.approx(60.0 * math.exp(-2.353 * 0.03 / math.sqrt(2)), rel=0.01)


def test_a_bound_between_two_rates_ends_the_interval_at_the_higher_one(measure):
    random = np.random.default_rng(5)
    found = capacity(random, measure(random, 200.0), Spread(0.03, 3, 2, 0.02, 10), bounds=[Bound(60.0, highest_per_s=70.0)])
    assert (found.per_s, found.high_per_s, found.is_between_rates) == (60.0, 70.0, True)
    assert found.low_per_s == pytest.approx(60.0 * math.exp(-2.353 * 0.03 / math.sqrt(2)), rel=0.01)
    assert np.median(found.draws_per_s) == pytest.approx(60.0, rel=0.01)
    assert np.median(found.highest_draws_per_s) == pytest.approx(70.0, rel=0.01)


def test_the_speed_of_restarts_widens_the_interval(measure):
    """A server slower by ε has a capacity lower by ε·(1+S)/S; of M/M/1, S = ρ/(1 - ρ), so 1.3 ε at 77 %."""
    random = np.random.default_rng(6)
    times = measure(random, 2000.0)
    known, uncertain = (capacity(random, times, spread) for spread in (KNOWN_SPEED, Spread(0.05, 4, 1, 0.02, 10)))
    wide = math.log(uncertain.high_per_s / uncertain.low_per_s)
    assert wide == pytest.approx(2 * 2.132 * 0.05 * 1.3, rel=0.15)  # t of 4 degrees of freedom
    assert math.log(known.high_per_s / known.low_per_s) < wide / 3


def test_the_draws_hold_the_interval_and_follow_the_seed(measure):
    times = measure(np.random.default_rng(7), 200.0)
    one, same, other = (capacity(np.random.default_rng(seed), times) for seed in (1, 1, 2))
    assert one == same
    assert one.per_s == pytest.approx(other.per_s, rel=0.01)
    assert list(one.draws_per_s) == sorted(one.draws_per_s)
    assert np.quantile(one.draws_per_s, [0.05, 0.95]).tolist() == pytest.approx([one.low_per_s, one.high_per_s])


def capacity_of(normal, per_s, sd_per_s):
    draws = [per_s + sd_per_s * z for z in normal]
    return Capacity(per_s, per_s - 1.645 * sd_per_s, per_s + 1.645 * sd_per_s, draws_per_s=tuple(draws))


def test_of_several_limits_the_lowest_counts_at_each_probability():
    """The capacity under the first limit is 90/s and known well, that under the second 100/s and known badly, so that its lower end is lower.

    In 1,000 estimates no quantile is above the true 90/s more often than it says, but for chance (three standard errors).
    """
    random, normal = np.random.default_rng(8), statistics.NormalDist()
    z = [normal.inv_cdf((index + 0.5) / 200) for index in range(200)]
    above = {0.05: 0, 0.1: 0, 0.5: 0}
    for first, second in zip(random.normal(90, 2, 1000), random.normal(100, 10, 1000), strict=True):
        both = lowest_capacity([capacity_of(z, first, 2.0), capacity_of(z, second, 10.0)])
        for probability in above:
            above[probability] += int(np.quantile(both.draws_per_s, probability) > 90)
        assert (both.per_s, both.low_per_s) == (min(first, second), min(first - 3.29, second - 16.45))
        assert both.high_per_s == min(first + 3.29, second + 16.45)
    assert all(above[one] / 1000 <= one + 3 * math.sqrt(one * (1 - one) / 1000) for one in above)


def test_a_limit_below_all_times_leaves_no_capacity_and_no_times_raise(measure):
    random = np.random.default_rng(9)
    assert capacity(random, measure(random, 100.0), limit_ns=1.0).per_s == 0
    with pytest.raises(ValueError, match="needs measured times"):
        capacity(random, [RateTimes(30, [], [Window(10.0, 1.0)])])

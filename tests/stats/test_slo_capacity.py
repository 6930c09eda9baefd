"""The capacity under an SLO: M/M/1, whose capacity is known."""

import math

import numpy as np
import pytest

from perfkit.stats.buckets import BucketCounts
from perfkit.stats.rate_curve import Repetition, fit_rate_curve
from perfkit.stats.slo_capacity import BatchedTimes, capacity_under_limit

LIMIT_NS, UNIT_NS = 20e7, 1e7
TRUTH = 1 - math.log(100) / 20  # p99 = ln(100)/(1-ρ) = 20 service times
RATES = (0.3, 0.5, 0.6, 0.7, 0.75, 0.82)


def searched(random, noise=0.1, runs=2):
    """Measured p99s with 10 % noise, as a curve and its capacity."""
    seen = [
        Repetition(rate, UNIT_NS * math.log(100) / (1 - rate) * math.exp(random.normal(0, noise)), run)
        for run in range(runs)
        for rate in RATES
    ]
    values = [math.exp(sum(math.log(one.value) for one in seen if one.rate_per_s == rate) / runs) for rate in RATES]
    return fit_rate_curve(RATES, values, seen), values


def test_the_interval_holds_the_truth_and_the_lower_limit_is_below_it():
    """80 plans at 10 % noise, with 90 % intervals and 95 % lower limits. False alarms, for other seeds: fewer than 66 intervals hold the
    truth with a chance of 1 %, and more than 10 lower limits are above it with one of 0.2 %."""  # fmt: skip
    random = np.random.default_rng(21)
    found = []
    for _ in range(80):
        curve, values = searched(random)
        found.append(capacity_under_limit(curve, RATES, values, [None] * len(RATES), 0.99, LIMIT_NS, random, replicates=40))
    assert sum(one.low_per_s <= TRUTH <= one.high_per_s for one in found) >= 0.82 * 80
    assert sum(one.low_per_s > TRUTH for one in found) <= 10
    assert abs(np.mean([one.per_s for one in found]) / TRUTH - 1) < 0.02


def test_batches_are_resampled(queue):
    random, seen, batches, values = np.random.default_rng(3), [], [], []
    for rate in RATES:
        times = np.rint(queue(random, rate, 30_000, warm_up=5_000) * UNIT_NS).astype(np.int64)
        parts = [BucketCounts.of(part) for part in np.array_split(times, 20)]
        batches.append(BatchedTimes(parts))
        values.append(float(np.quantile(times, 0.99)))
        seen.append(Repetition(rate, values[-1], 0))
    curve = fit_rate_curve(RATES, values, seen)
    found = capacity_under_limit(curve, RATES, values, batches, 0.99, LIMIT_NS, random, replicates=100)
    assert found.low_per_s < TRUTH < found.high_per_s
    assert found.low_per_s < found.per_s < found.high_per_s
    drawn = [batches[3].resampled_percentile_ns(0.99, random) or 0.0 for _ in range(200)]
    assert 0.7 * values[3] < min(drawn) < values[3] < max(drawn) < 1.4 * values[3]

    assert BatchedTimes([]).resampled_percentile_ns(0.99, np.random.default_rng(0)) is None


def test_a_rate_that_fails_limits_the_capacity_and_a_limit_below_the_whole_curve_leaves_none():
    random = np.random.default_rng(5)
    curve, values = searched(random, noise=0.001)
    found = capacity_under_limit(curve, RATES, values, [None] * 6, 0.99, LIMIT_NS, random, ceiling_per_s=0.7, replicates=200)
    assert found.is_cut
    assert (found.per_s, found.high_per_s) == (0.7, 0.7)
    # two restarts of the same speed, weighed with 3 % that count as two: t of 3 degrees of freedom, whose 95 % point is 2.353
    assert found.low_per_s == pytest.approx(0.7 * math.exp(-2.353 * 0.03 * math.sqrt(2 / 3) / math.sqrt(2)), rel=0.01)

    assert capacity_under_limit(curve, RATES, values, [None] * 6, 0.99, 1.0, random, replicates=20).per_s == 0

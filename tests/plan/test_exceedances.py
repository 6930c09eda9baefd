"""Clusters of exceedances: M/M/1, simulated, and counts by hand."""

import math

import numpy as np
import pytest

from perfkit.plan.exceedances import RateTimes, Window, cluster_length_s
from perfkit.stats.buckets import BucketCounts

MS = 1_000_000


def mm1_cluster_s(load, tail=0.01, mean_s=0.01):
    percentile_s = math.log(1 / tail) * mean_s / (1 - load)
    return float(cluster_length_s(np.array([percentile_s]), tail, np.array([1 - load]))[0])


@pytest.mark.parametrize("load", [0.6, 0.75])
def test_the_clusters_of_mm1_are_as_long_as_its_dispersion(queue, load):
    """A million requests. The dispersion of the counts above the p99 between 200 batches varies by some 10 %."""
    above = queue(np.random.default_rng(2), load, 1_000_000, warm_up=5_000) > math.log(100) / (1 - load)
    counts = above.reshape(200, -1).sum(axis=1)
    assert mm1_cluster_s(load) * 100 * load == pytest.approx(counts.var(ddof=1) / counts.mean(), rel=0.3)


def test_windows_after_an_idle_queue_miss_the_expected_share(queue):
    """8,000 windows of 150 requests of M/M/1 at a load of 0.75, from an idle start. Expected above its p99: 1 - ln(100)/4 clusters' lengths
    ÷ the window's = 0.63 of 1 %; the simulated share varies by some 6 %."""  # fmt: skip
    load, number = 0.75, 150
    random = np.random.default_rng(3)
    above = np.mean([np.mean(queue(random, load, number, warm_up=0) > math.log(100) / (1 - load)) for _ in range(8000)])
    seconds, cluster_s = number / (100 * load), np.array([mm1_cluster_s(load)])
    cold, warm = (RateTimes(100 * load, [BucketCounts.of([MS])], [Window(seconds, warm_up_s)]) for warm_up_s in (0.0, 60.0))
    assert float(cold.transient_correction(cluster_s, 0.01)[0]) == pytest.approx(0.63, abs=0.01)
    assert above / 0.01 == pytest.approx(0.63, abs=0.15)
    assert warm.transient_correction(cluster_s, 0.01).tolist() == [1.0]


def test_requests_above_a_time_are_counted_with_its_own_bucket():
    one = RateTimes(10.0, [BucketCounts.of(np.arange(1, 101) * MS)], [Window(10.0, 1.0)])
    assert one.count_above(np.log([0.5 * MS, 50.5 * MS, 99.5 * MS, 200 * MS])).tolist() == [100, 50, 1, 0]
    assert one.percentile_s(0.01) == pytest.approx(0.1, rel=0.001)


def test_the_dispersion_between_batches_shortens_clusters_but_never_below_a_request():
    """Ten slow requests in each of 40 batches: their number does not vary at all."""
    batch = BucketCounts.of(np.concatenate([np.full(990, 10 * MS), np.full(10, 100 * MS)]))
    even = RateTimes(10.0, [batch] * 40, [Window(4000.0, 1.0)])
    few = RateTimes(10.0, [batch] * 4, [Window(400.0, 1.0)])
    percentile_s, idle = np.array([0.1]), np.array([0.1])
    assert few.cluster_length_s(percentile_s, 0.01, idle) == pytest.approx(4 * 0.1 / (math.log(100) * 0.1))
    # 400 requests above, so twenty times their chance: 1 + 2/√400, raised for the batches of 100 s
    shown_s = (1 + 2 / 20) * (1 + 2 * 4 * 0.1 / (math.log(100) * 0.1) / 100) / 10.0
    assert even.cluster_length_s(percentile_s, 0.01, idle) == pytest.approx(shown_s)

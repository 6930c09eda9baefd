"""Differences and ratios of medians, against exact values and by simulated coverage."""

import math

import numpy as np
import pytest

from perfkit.points.median_difference import compare_medians, median_interval
from perfkit.stats.buckets import BucketCounts

MS = 1_000_000


def counts(values_ns):
    return BucketCounts.of(np.asarray(values_ns, dtype=np.int64))


def holds(estimate, value):
    return estimate.low <= value <= estimate.high


@pytest.mark.parametrize(
    ("count", "rank"),
    # the ranks of the sign test at 95 %: W. J. Conover, Practical Nonparametric Statistics, table A3
    [(6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (25, 8)],
)
def test_the_interval_of_a_median_has_the_ranks_of_the_sign_test(count, rank):
    found = median_interval(counts([MS * (1 + index) for index in range(count)]))
    assert found.low == pytest.approx(rank * MS, rel=1e-3)
    assert found.high == pytest.approx((count + 1 - rank) * MS, rel=1e-3)
    assert found.low <= found.value <= found.high


def test_too_few_values_have_no_interval():
    assert median_interval(counts([MS] * 5)) is None
    assert compare_medians(counts([MS] * 5), [counts([MS] * 50)] * 20) is None
    assert compare_medians(counts([MS] * 50), [counts([MS] * 50)] * 4) is None


def test_constant_times_differ_by_exactly_that():
    compared = compare_medians(counts([45 * MS] * 20), [counts([5 * MS] * 10)] * 30)
    # to the width of a bucket
    for end in (compared.difference_ns.low, compared.difference_ns.value, compared.difference_ns.high):
        assert end == pytest.approx(40 * MS, rel=2e-3)
    for end in (compared.ratio.low, compared.ratio.value, compared.ratio.high):
        assert end == pytest.approx(9, rel=2e-3)


def test_empty_parts_between_clusters_change_nothing():
    parts = [counts((4 + index % 3) * MS + np.arange(20) * 1000) for index in range(12)]
    spread = [part for full in parts for part in (full, counts([]), counts([]))]
    after = counts(np.arange(10, 30) * MS)
    assert compare_medians(after, spread) == compare_medians(after, parts)


@pytest.mark.parametrize(("gaps", "cluster_ns"), [(10, 0), (20, 0), (20, 2 * MS), (60, MS)])
def test_the_interval_covers_the_true_difference_and_ratio(gaps, cluster_ns):
    """Lognormal times after a gap, and following ones that share an offset in each run after a gap."""
    random, replications, unknown, covered, ratio_covered = np.random.default_rng(5), 200, 0, 0, 0
    for _ in range(replications):
        after = np.exp(random.normal(math.log(30 * MS), 0.4, gaps))
        runs = 10 * MS + random.normal(0, max(cluster_ns, 1), (gaps, 1)) + random.normal(0, MS, (gaps, 20))
        compared = compare_medians(counts(after), [counts(run) for run in runs])
        if compared is None:  # the runs differ so much that the number of them tells too little
            unknown += 1
            continue
        covered += holds(compared.difference_ns, 20 * MS)
        ratio_covered += holds(compared.ratio, 3)
    # nominal 95 %; of 200 replications at 95 %, fewer than 180 are covered with probability 1e-3
    assert unknown <= replications // 20
    assert covered >= 180 - unknown
    assert ratio_covered >= 180 - unknown

"""Percentiles as perf_analyzer takes them. Pure."""

from collections.abc import Sequence

from perfkit.stats.buckets import BucketCounts


def percentiles_ns(times: BucketCounts, percentiles: Sequence[int]) -> list[int]:
    """The value with the index of p/100·(n - 1), rounded, of the n sorted times; 0 without times."""
    count = times.count
    if not count:
        return [0 for _ in percentiles]
    ranks = [int(percentile / 100 * (count - 1) + 0.5) + 1 for percentile in percentiles]
    return [min(value, times.largest_ns) for value in times.values_at([rank / count for rank in ranks])]

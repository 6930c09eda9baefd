"""The figures of a distribution of times, as results hold them."""

from perfkit.result.model import Distribution
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.sample_size import is_withheld

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999, "p99_99": 0.9999}
"""The percentiles of a result, by the names of its keys."""
PERCENTILES = tuple(QUANTILES)[:-1]
"""The percentiles by which results are compared."""


def distribution(times: BucketCounts) -> Distribution:
    """The figures of some times; percentiles with too few samples are None."""
    mean, stddev = times.mean_and_stddev_ns()
    percentiles = {
        name: None if is_withheld(quantile, times.count) else min(value, times.max_ns)
        for (name, quantile), value in zip(QUANTILES.items(), times.values_at(tuple(QUANTILES.values())), strict=True)
    }
    return Distribution(count=times.count, min=times.min_ns, mean=mean, stddev=stddev, max=times.max_ns, **percentiles)

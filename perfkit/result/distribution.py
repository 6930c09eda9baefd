"""The figures of a distribution of times, as results hold them."""

from typing import TYPE_CHECKING

from perfkit.result.part import Part

if TYPE_CHECKING:
    from perfkit.stats.buckets import BucketCounts

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999, "p99_99": 0.9999}
"""The percentiles of a result, by the names of its keys."""
PERCENTILES = tuple(QUANTILES)[:-1]
"""The percentiles by which results are compared."""


class Distribution(Part):
    """The figures of a distribution of times; percentiles with too few samples are None."""

    count: int
    min: int
    mean: float
    stddev: float
    p50: int | None
    p90: int | None
    p95: int | None
    p99: int | None
    p99_9: int | None
    p99_99: int | None
    max: int


def distribution(times: "BucketCounts") -> Distribution:
    """The figures of some times; percentiles with too few samples are None."""
    from perfkit.stats.percentiles import is_withheld  # imports NumPy, which reading a result does not need

    mean, stddev = times.mean_and_stddev_ns()
    percentiles = {
        name: None if is_withheld(quantile, times.count) else min(value, times.max_ns)
        for (name, quantile), value in zip(QUANTILES.items(), times.values_at(tuple(QUANTILES.values())), strict=True)
    }
    return Distribution(count=times.count, min=times.min_ns, mean=mean, stddev=stddev, max=times.max_ns, **percentiles)

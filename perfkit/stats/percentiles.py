"""Percentiles: their confidence intervals, and how many requests each of them needs.

Intervals come from the bucket counts of the short intervals of a window. How many requests are needed is the early-stopping criterion of
MLPerf LoadGen, `early_stopping.cc`. It assumes independent requests; correlated ones count as N divided by the autocorrelation time.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.autocorrelation import lag_1_autocorrelation, variance_of_share
from perfkit.stats.buckets import BucketCounts, bucket_bounds_ns
from perfkit.stats.probability import binomial_cdf, student_t_quantile

_CONFIDENCE, _ALLOWED_ABOVE = 0.99, 1


def minimum_samples(quantile: float, autocorrelation_time: float = 1.0) -> int:
    """The smallest n with P[Bin(n, 1 - quantile) <= 1] <= 1 %: 64 for p90, 662 for p99, 6,636 for p99.9.

    An autocorrelation time above 1, in requests, multiplies it; one below 1 does not lower it.
    """
    return math.ceil(_minimum_independent_samples(quantile) * max(autocorrelation_time, 1.0))


@functools.cache
def _minimum_independent_samples(quantile: float) -> int:
    def is_enough(count: int) -> bool:
        return binomial_cdf(_ALLOWED_ABOVE, count, 1 - quantile) <= 1 - _CONFIDENCE

    low, high = 1, 2
    while not is_enough(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def is_withheld(quantile: float, count: int) -> bool:
    """Whether a percentile has fewer than 1/(1-q) samples, so that none of them is expected to lie above it."""
    return count < round(1 / (1 - quantile), 6)


def is_limit_shown_met(quantile: float, count: int, above: int, autocorrelation_time: float = 1.0) -> bool:
    """Whether `above` of `count` requests beyond a limit show that more than the share `quantile` meets it.

    They do if so few would be seen with a chance of at most 1 % when exactly that share met it: P[Bin(n, 1 - quantile) <= t]
    <= 0.01, where n and t are `count` and `above` divided by the autocorrelation time. At a quantile of 1, one request
    above the limit is one too many.
    """
    if quantile >= 1:
        return above == 0
    time = max(autocorrelation_time, 1.0)
    return binomial_cdf(math.ceil(above / time), math.floor(count / time), 1 - quantile) <= 1 - _CONFIDENCE


_BATCHES = range(20, 31)
_FEWEST_BATCHES = 5


@dataclasses.dataclass(frozen=True, slots=True)
class PercentileInterval:
    """A percentile with its confidence interval, and the evidence for both."""

    quantile: float
    confidence: float
    value_ns: int
    low_ns: int
    high_ns: int | None
    """None if too few samples above the percentile bound it: the interval is open above."""
    count: int
    autocorrelation_time: float
    """The autocorrelation time of the indicator "the value is above the percentile", in requests."""
    batches: int
    is_uncorrelated: bool
    """Whether the batches passed the test for correlation; otherwise the interval is too narrow: the window is too short."""

    @property
    def effective_samples(self) -> float:
        """The number of independent samples that would give the percentile the same precision."""
        return self.count / self.autocorrelation_time if self.autocorrelation_time else float(self.count)

    @property
    def needed_samples(self) -> int:
        """The number of samples that the percentile needs at this autocorrelation."""
        return minimum_samples(self.quantile, self.autocorrelation_time)


def percentile_intervals(
    intervals: Sequence[BucketCounts], quantiles: Sequence[float], confidence: float = 0.95
) -> dict[float, PercentileInterval]:
    """The percentiles, in (0, 1), of all samples of a window, each with its interval, by quantile.

    `intervals` follow each other in time, are equally long, and include empty ones. They are merged into 20 to 30 batches, or as many
    as there are if fewer; the batches are then merged in pairs until their counts above the percentile have |r₁| < 2/√B, but
    not into fewer than 5. The interval is [Q(p-ε), Q(p+ε)] with ε = t_{B-1} √(τ̂ p(1-p)/N), where τ̂ is the autocorrelation time
    of the counts above. It is open above if p+ε reaches 1, or if N is below the minimum sample size times τ̂. Intervals of
    several repetitions may be joined; a difference between repetitions then widens the interval.

    Source: D. R. Wood & B. W. Schmeiser, "Overlapping batch quantiles" (1995), for quantile intervals from indicator variances.
    Assumptions: a stationary window, uncorrelated batches, and a share above the percentile that is about normal, which
    takes N/τ̂ of about 10/(1-p). Simulated coverage at nominal 95 %, M/M/1 at ρ = 0.5 and 0.8, 1,000 to 3,000 replications: p50
    94.4 to 95.6 %, p90 94.1 to 95.1 %, p99 92.9 to 93.9 % at N/τ = 1,000 and 94.3 % at 4,000; most misses have too low an upper
    end. (Sectioning, which uses each batch's own percentile, covered the p99 in only 82 to 86 % at N/τ = 1,000.)

    Percentiles with fewer than 1/(1-p) samples are left out; with fewer than 5 intervals all are. Raises ValueError for a
    quantile outside (0, 1).
    """
    if any(not 0 < quantile < 1 for quantile in quantiles):
        raise ValueError(f"quantiles must lie between 0 and 1, found {list(quantiles)}")
    if len(intervals) < _FEWEST_BATCHES:
        return {}
    parts = _merge(intervals)
    sizes = np.array([part.count for part in parts])
    total = int(sizes.sum())
    pooled = _Buckets(BucketCounts.merged(parts))
    return {
        quantile: _interval(quantile, confidence, parts, sizes, pooled)
        for quantile in quantiles
        if total and not is_withheld(quantile, total)
    }


def dispersion_above(intervals: Sequence[BucketCounts], limit_ns: int) -> float:
    """The index of dispersion of the number of values above a limit: its variance ÷ the number; 1 for independent values, and for none.

    `intervals` are merged into batches as in `percentile_intervals`. The variance is that of the share above the limit between the batches
    (`variance_of_share`), times the squared number of values. With too few batches it is taken as that of independent values.
    """
    total_above = sum(interval.count_above(limit_ns) for interval in intervals)
    if len(intervals) < _FEWEST_BATCHES or not total_above:
        return 1.0
    parts = _merge(intervals)
    sizes = np.array([part.count for part in parts])
    above = np.array([part.count_above(limit_ns) for part in parts])
    starts = _uncorrelated_batches(above, sizes)
    variance = variance_of_share(np.add.reduceat(above, starts), np.add.reduceat(sizes, starts))
    return variance * float(sizes.sum()) ** 2 / total_above


class _Buckets:
    """The buckets that are not empty, ascending: their indices, cumulative counts and bounds."""

    def __init__(self, counts: BucketCounts) -> None:
        self.indices = counts.indices
        self.cumulated = counts.counts.cumsum()
        self.lows_ns, self.highs_ns = bucket_bounds_ns(counts.indices)

    @property
    def count(self) -> int:
        return int(self.cumulated[-1])

    def index_at(self, rank: int) -> int:
        """The position of the bucket that holds the sample with this rank, counted from 1."""
        return int(np.searchsorted(self.cumulated, rank))


def _merge(intervals: Sequence[BucketCounts]) -> list[BucketCounts]:
    """The intervals merged into batches."""
    # the number with the smallest remainder; of equals, the largest
    number = min(len(intervals), max(_BATCHES, key=lambda batches: (-(len(intervals) % batches), batches)))
    parts: list[list[BucketCounts]] = [[] for _ in range(number)]
    for index, interval in enumerate(intervals):
        parts[index * number // len(intervals)].append(interval)
    return [BucketCounts.merged(part) for part in parts]


def _up_to(parts: Sequence[BucketCounts], bucket: int) -> npt.NDArray[np.int64]:
    """The number of samples of each part in buckets up to this index."""
    return np.array([part.counts[: np.searchsorted(part.indices, bucket, side="right")].sum() for part in parts])


def _interval(
    quantile: float, confidence: float, parts: Sequence[BucketCounts], sizes: npt.NDArray[np.int64], pooled: _Buckets
) -> PercentileInterval:
    count = pooled.count
    # the same rank as in BucketCounts.values_at, so that both give the same value
    index = pooled.index_at(max(int(quantile * count + 0.5), 1))
    bucket = int(pooled.indices[index])
    up_to, below = _up_to(parts, bucket), _up_to(parts, bucket - 1)
    starts = _uncorrelated_batches(sizes - up_to, sizes)
    # a bucket may hold a large share of the samples: the less certain of its two edges decides
    edges = [(np.add.reduceat(above, starts), np.add.reduceat(sizes, starts)) for above in (sizes - up_to, sizes - below)]
    variance = max(variance_of_share(*edge) for edge in edges)
    time = variance * count / (quantile * (1 - quantile))
    batches = starts.size
    t = student_t_quantile((1 + confidence) / 2, batches - 1)
    reach = t * math.sqrt(variance)
    low_rank, high_rank = max(math.floor((quantile - reach) * count), 1), math.ceil((quantile + reach) * count)
    is_open = quantile + reach >= 1 or high_rank > count or count < minimum_samples(quantile, time)
    value_ns = int(pooled.highs_ns[index])
    return PercentileInterval(
        quantile=quantile,
        confidence=confidence,
        value_ns=value_ns,
        low_ns=int(pooled.lows_ns[pooled.index_at(low_rank)]),
        high_ns=None if is_open else int(pooled.highs_ns[pooled.index_at(high_rank)]),
        count=count,
        autocorrelation_time=time,
        batches=batches,
        is_uncorrelated=_is_uncorrelated(*edges[0]),
    )


def _uncorrelated_batches(above: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """The starts of batches that are long enough: their length is doubled while they are correlated."""
    starts = np.arange(sizes.size)
    while starts.size // 2 >= _FEWEST_BATCHES and not _is_uncorrelated(np.add.reduceat(above, starts), np.add.reduceat(sizes, starts)):
        starts = starts[: starts.size // 2 * 2 : 2]  # an odd batch joins the last pair
    return starts


def _is_uncorrelated(above: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> bool:
    return abs(lag_1_autocorrelation(above - above.sum() / sizes.sum() * sizes)) < 2 / math.sqrt(sizes.size)

"""Percentiles: their confidence intervals, and how many requests each of them needs.

Intervals come from the bucket counts of the short intervals of a window. How many requests are needed is the early-stopping criterion of
MLPerf LoadGen, `early_stopping.cc`. It assumes independent requests; correlated ones count as N divided by the autocorrelation time.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.autocorrelation import lag_1_autocorrelation, raised_for_chance, variance_of_share
from perfkit.stats.batch_means import Deviations, Numbers, Precision, joined
from perfkit.stats.buckets import BucketCounts, bucket_bounds_ns
from perfkit.stats.probability import binomial_cdf, score_limits

SHOWN_ERROR = 0.01
"""The chance that a limit is shown to be met where exactly the allowed share is above it."""
_ALLOWED_ABOVE = 1


def minimum_samples(quantile: float, autocorrelation_time: float = 1.0) -> int:
    """The smallest n with P[Bin(n, 1 - quantile) <= 1] <= 1 %: 64 for p90, 662 for p99, 6,636 for p99.9.

    An autocorrelation time above 1, in requests, multiplies it; one below 1 does not lower it.
    """
    return math.ceil(_minimum_independent_samples(quantile) * max(autocorrelation_time, 1.0))


@functools.cache
def _minimum_independent_samples(quantile: float) -> int:
    def is_enough(count: int) -> bool:
        return binomial_cdf(_ALLOWED_ABOVE, count, 1 - quantile) <= SHOWN_ERROR

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
    return binomial_cdf(math.ceil(above / time), math.floor(count / time), 1 - quantile) <= SHOWN_ERROR


_BATCHES = range(20, 31)
_FEWEST_BATCHES = 5
GROUPS = 40
"""So many independent groups of requests above a percentile, if requests are correlated, close its interval."""
_BASE, _LADDER = (0.5, 0.9), (0.95, 0.99, 0.999, 0.9999)


@dataclasses.dataclass(frozen=True, slots=True)
class PercentileInterval:
    """A percentile with its 95 % confidence interval, and the evidence for both."""

    quantile: float
    value_ns: int
    low_ns: int | None
    """None if the window shows too little to give any interval."""
    high_ns: int | None
    """None if too few samples above the percentile bound it: the interval is open above."""
    count: int
    precision: Precision

    @property
    def effective_samples(self) -> float:
        """The number of independent samples that would give the percentile the same precision."""
        return self.count / self.precision.time

    @property
    def groups(self) -> float:
        """The number of independent groups of requests above the percentile."""
        return self.effective_samples * (1 - self.quantile)

    @property
    def needed_samples(self) -> int:
        """The number of samples from which on the interval is closed, at this autocorrelation.

        That is the minimum for independent requests. Correlated ones need 40 groups of requests above the percentile, and 200 effective samples:
        from fewer, the autocorrelation time itself is too often underestimated.
        """
        if not self.precision.is_correlated:
            return minimum_samples(self.quantile, self.precision.time)
        return math.ceil(max(self.precision.fewest, round(GROUPS / (1 - self.quantile), 6)) * self.precision.time)


def percentile_intervals(
    intervals: Sequence[BucketCounts], quantiles: Sequence[float], *, are_independent: bool = False
) -> dict[float, PercentileInterval]:
    """The percentiles, in (0, 1), of all samples of a window, each with its 95 % interval, by quantile.

    `intervals` follow each other in time, are equally long, and include empty ones; those of several repetitions may be joined, and a
    difference between repetitions then widens the intervals. The interval of the percentile p is [Q(p₁), Q(p₂)], where 1 - p₂ and 1 - p₁ are the
    limits of a share of 1 - p among N/τ samples (`score_limits`), with Student's t for the degrees of freedom of τ. The
    autocorrelation time τ is that of the indicator "above the percentile" if no test finds the requests correlated; otherwise the largest of
    those of the indicators of p, of lower percentiles, of the p90, and of the ranks: see `batch_means`. The interval is open above if N is below
    `needed_samples`, and has no end at all with fewer than 20 effective samples or 5 independent parts of the window.

    Sources: R. S. Woodruff, JASA 47 (1952), for intervals of quantiles from those of shares; D. R. Wood & B. W. Schmeiser, "Overlapping batch
    quantiles" (1995), for the variance of indicators between batches. Assumption: what is slow at times is slow several times in the window.
    Nothing is known of a stall that comes less often than that. `reports/interval-coverage.md` has the simulated coverage.

    `are_independent` says that the parts are known to be independent of each other, such as what follows different gaps: then no correlation between
    them is looked for.

    Percentiles with fewer than 1/(1-p) samples are left out; with fewer than 5 intervals all are. Raises ValueError for a
    quantile outside (0, 1).
    """
    if any(not 0 < quantile < 1 for quantile in quantiles):
        raise ValueError(f"quantiles must lie between 0 and 1, found {list(quantiles)}")
    pooled = _Buckets(BucketCounts.merged(intervals))
    shown = [quantile for quantile in quantiles if not is_withheld(quantile, pooled.count)]
    if len(intervals) < _FEWEST_BATCHES or not shown:
        return {}
    levels = sorted({*_BASE, *(level for level in _LADDER if level < max(shown)), *shown})
    # a bucket may hold a large share of the samples: the less certain of its two edges decides
    edges = [pooled.index_at(pooled.rank(level)) + edge for level in levels for edge in (1, 0)]
    deviations = _deviations(intervals, pooled, [pooled.ranks(), *map(pooled.from_on, edges)])

    def interval(quantile: float) -> PercentileInterval:
        rows = {level: [2 * index + 1, 2 * index + 2] for index, level in enumerate(levels)}
        telling = [
            row for level in levels if level == quantile or level in _BASE or (level in _LADDER and level < quantile) for row in rows[level]
        ]
        precision = deviations.precision([] if are_independent else [0, *telling], rows[quantile])
        return _interval(quantile, pooled, precision)

    return {quantile: interval(quantile) for quantile in shown}


def _interval(quantile: float, pooled: "_Buckets", precision: Precision) -> PercentileInterval:
    count, value_ns = pooled.count, int(pooled.highs_ns[pooled.index_at(pooled.rank(quantile))])
    found = PercentileInterval(quantile, value_ns, None, None, count, precision)
    if not precision.is_enough(count):
        return found
    least, most = score_limits(1 - quantile, found.effective_samples, precision.t)
    low_rank, high_rank = max(math.floor((1 - most) * count), 1), math.ceil((1 - least) * count)
    is_open = count < found.needed_samples or high_rank > count
    low_ns = int(pooled.lows_ns[pooled.index_at(low_rank)])
    return dataclasses.replace(found, low_ns=low_ns, high_ns=None if is_open else int(pooled.highs_ns[pooled.index_at(high_rank)]))


def precision_above(intervals: Sequence[BucketCounts], limit_ns: int, quantile: float) -> Precision:
    """What all values are worth for the share of them above a limit that is set for a percentile; as independent ones with fewer than 5 intervals.

    The correlation is that at the limit, and where there is any, the largest also of the lower percentiles, as in `percentile_intervals`.
    """
    pooled = _Buckets(BucketCounts.merged(intervals))
    if len(intervals) < _FEWEST_BATCHES or not pooled.count:
        return Precision(1.0, False, float(len(intervals)))
    levels = sorted({*_BASE, *(level for level in _LADDER if level < quantile)})
    edges = [int(np.searchsorted(pooled.lows_ns, limit_ns, side="right")), *(pooled.index_at(pooled.rank(level)) + 1 for level in levels)]
    deviations = _deviations(intervals, pooled, [pooled.ranks(), *map(pooled.from_on, edges)])
    return deviations.precision(range(1 + len(edges)), [1])


def mean_interval(intervals: Sequence[BucketCounts]) -> tuple[float, float] | None:
    """The 95 % interval of the mean of all values, in nanoseconds; None if the window shows too little. `intervals` as in `percentile_intervals`.

    It is that of a ratio, since the number of values differs between the batches (W. G. Cochran, *Sampling Techniques*, section 6.4).
    """
    pooled = _Buckets(BucketCounts.merged(intervals))
    if len(intervals) < _FEWEST_BATCHES or not pooled.count:
        return None
    middles = (pooled.lows_ns + pooled.highs_ns + 1) / 2
    mean = float(middles @ pooled.counts) / pooled.count
    distances = middles - mean
    edges = [pooled.index_at(pooled.rank(level)) + 1 for level in _BASE]
    precision = _deviations(intervals, pooled, [distances, pooled.ranks(), *map(pooled.from_on, edges)]).precision(
        range(2 + len(edges)), [0]
    )
    if not precision.is_enough(pooled.count) or pooled.count < precision.fewest * precision.time:
        return None
    time = raised_for_chance(precision.time, pooled.count) if precision.is_correlated else precision.time
    reach = precision.t * math.sqrt(float(np.square(distances) @ pooled.counts) * time) / pooled.count
    return max(mean - reach, 0.0), mean + reach


def _deviations(intervals: Sequence[BucketCounts], pooled: "_Buckets", scores: Sequence[Numbers]) -> Deviations:
    """The deviations of some scores of mean 0, each with a value for every bucket."""
    starts = [int(start) for start in joined(len(intervals))]
    parts = [BucketCounts.merged(intervals[start:end]) for start, end in itertools.pairwise([*starts, len(intervals)])]
    rows = np.stack(scores)
    counts = np.zeros((pooled.counts.size, len(parts)))
    for number, part in enumerate(parts):
        counts[np.searchsorted(pooled.indices, part.indices), number] = part.counts
    squares = np.square(rows)
    weigh = functools.partial(np.einsum, "sb,b->s")  # threads of a matrix product would wait for each other on a busy machine
    return Deviations(np.einsum("sb,bp->sp", rows, counts), weigh(squares, pooled.counts), weigh(np.square(squares), pooled.counts))


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
    """The buckets that are not empty, ascending: their indices, counts, cumulative counts and bounds."""

    def __init__(self, counts: BucketCounts) -> None:
        self.indices, self.counts = counts.indices, counts.counts
        self.cumulated = counts.counts.cumsum()
        self.count = counts.count
        self.lows_ns, self.highs_ns = bucket_bounds_ns(counts.indices)

    def rank(self, quantile: float) -> int:
        """The rank of a quantile, the same as in `BucketCounts.values_at`, so that both give the same value."""
        return max(int(quantile * self.count + 0.5), 1)

    def index_at(self, rank: int) -> int:
        """The position of the bucket that holds the sample with this rank, counted from 1."""
        return int(np.searchsorted(self.cumulated, rank))

    def ranks(self) -> Numbers:
        """The mean rank of each bucket's samples, as a share of all, less a half."""
        ranks: Numbers = (self.cumulated - self.counts / 2) / self.count - 0.5
        return ranks

    def from_on(self, index: int) -> Numbers:
        """Whether each bucket is at a position or above, less the share of the samples there."""
        is_there = (np.arange(self.counts.size) >= index).astype(np.float64)
        return is_there - float(self.counts[index:].sum()) / self.count


def _merge(intervals: Sequence[BucketCounts]) -> list[BucketCounts]:
    """The intervals merged into batches."""
    # the number with the smallest remainder; of equals, the largest
    number = min(len(intervals), max(_BATCHES, key=lambda batches: (-(len(intervals) % batches), batches)))
    parts: list[list[BucketCounts]] = [[] for _ in range(number)]
    for index, interval in enumerate(intervals):
        parts[index * number // len(intervals)].append(interval)
    return [BucketCounts.merged(part) for part in parts]


def _uncorrelated_batches(above: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """The starts of batches that are long enough: their length is doubled while they are correlated."""
    starts = np.arange(sizes.size)
    while starts.size // 2 >= _FEWEST_BATCHES and not _is_uncorrelated(np.add.reduceat(above, starts), np.add.reduceat(sizes, starts)):
        starts = starts[: starts.size // 2 * 2 : 2]  # an odd batch joins the last pair
    return starts


def _is_uncorrelated(above: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> bool:
    return abs(lag_1_autocorrelation(above - above.sum() / sizes.sum() * sizes)) < 2 / math.sqrt(sizes.size)

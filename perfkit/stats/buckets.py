"""Counts of values in the buckets of an HDR histogram: merging, percentiles and moments, in NumPy alone.

The layout is that of HdrHistogram with LOWEST_NS, HIGHEST_NS and DIGITS (G. Tene, hdrhistogram.org): 2,048 buckets of 512 ns,
then 1,024 for every doubling.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

LOWEST_NS, HIGHEST_NS, DIGITS = 1_000, 3_600_000_000_000, 3
UNIT_MAGNITUDE = math.floor(math.log2(LOWEST_NS))
HALF_COUNT_MAGNITUDE = math.ceil(math.log2(2 * 10**DIGITS)) - 1
_FIRST_BUCKETS_MASK = (2 << (UNIT_MAGNITUDE + HALF_COUNT_MAGNITUDE)) - 1


def bucket_bounds_ns(indices: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The lowest and the highest value, in nanoseconds, of the buckets with these indices."""
    # the first two half-buckets share one width; each later one doubles it
    doubling = np.maximum((indices >> HALF_COUNT_MAGNITUDE) - 1, 0)
    shift = doubling + UNIT_MAGNITUDE
    low = (indices - (doubling << HALF_COUNT_MAGNITUDE)) << shift
    return low, low + (np.int64(1) << shift) - 1


def bucket_indices(values_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The index of each value's bucket; values must lie between 0 and HIGHEST_NS."""
    # frexp's exponent is the bit length: exact, as all values stay below 2**53
    bit_length = np.frexp((values_ns | _FIRST_BUCKETS_MASK).astype(np.float64))[1].astype(np.int64)
    doubling = bit_length - (UNIT_MAGNITUDE + HALF_COUNT_MAGNITUDE + 1)
    indices: npt.NDArray[np.int64] = (doubling << HALF_COUNT_MAGNITUDE) + (values_ns >> (doubling + UNIT_MAGNITUDE))
    return indices


def bucket_width_ns(value_ns: float) -> int:
    """The width of the bucket that a time falls into; no percentile is known more exactly."""
    low, high = bucket_bounds_ns(bucket_indices(np.array([round(value_ns)])))
    return int(high[0] - low[0]) + 1


BUCKETS = int(bucket_indices(np.array([HIGHEST_NS]))[0]) + 1
LONGEST_TIME_NS = int(bucket_bounds_ns(np.array([BUCKETS - 1]))[1][0])
"""The upper bound of the last bucket: no percentile or maximum is above it."""


@dataclasses.dataclass(frozen=True, slots=True)
class BucketCounts:
    """How many values lie in each bucket, without the empty ones: a few kilobytes instead of 200."""

    indices: npt.NDArray[np.int64]
    """The indices of the buckets that are not empty, ascending."""
    counts: npt.NDArray[np.int64]
    smallest_ns: int
    """The smallest value itself; `min_ns` is the lower bound of its bucket."""
    largest_ns: int
    clamped: int = 0
    """Values outside the range, counted in the first or the last bucket."""

    @property
    def count(self) -> int:
        """The number of values."""
        return int(self.counts.sum())

    @property
    def min_ns(self) -> int:
        """The lower bound of the smallest value's bucket; 0 without values."""
        return int(bucket_bounds_ns(self.indices[:1])[0][0]) if self.indices.size else 0

    @property
    def max_ns(self) -> int:
        """The upper bound of the largest value's bucket; 0 where no value is above 0."""
        return int(bucket_bounds_ns(self.indices[-1:])[1][0]) if self.largest_ns else 0

    @classmethod
    def of(cls, values_ns: npt.ArrayLike) -> "BucketCounts":
        """The counts of some values, clamped to 0 and HIGHEST_NS."""
        values = np.asarray(values_ns).astype(np.int64)
        if not values.size:
            return EMPTY
        clipped = np.clip(values, 0, HIGHEST_NS)
        indices = bucket_indices(clipped)
        first = int(indices.min())
        counts = np.bincount(indices - first)
        filled = np.flatnonzero(counts)
        smallest, largest = int(clipped.min()), int(clipped.max())
        return cls(filled + first, counts[filled], smallest, largest, int(np.count_nonzero(clipped != values)))

    @classmethod
    def merged(cls, parts: Iterable["BucketCounts"]) -> "BucketCounts":
        """The counts of all parts, added."""
        filled = [part for part in parts if part.indices.size]
        if len(filled) < 2:
            return filled[0] if filled else EMPTY
        first, last = min(int(part.indices[0]) for part in filled), max(int(part.indices[-1]) for part in filled)
        counts = np.zeros(last - first + 1, dtype=np.int64)
        for part in filled:
            counts[part.indices - first] += part.counts
        occupied = np.flatnonzero(counts)
        smallest, largest = min(part.smallest_ns for part in filled), max(part.largest_ns for part in filled)
        return cls(occupied + first, counts[occupied], smallest, largest, sum(part.clamped for part in filled))

    def without(self, part: "BucketCounts") -> "BucketCounts":
        """The counts of the values that are not in `part`, whose values must all be among these."""
        if not part.indices.size:
            return self
        counts = self.counts.copy()
        counts[np.searchsorted(self.indices, part.indices)] -= part.counts
        left = np.flatnonzero(counts)
        if not left.size:
            return EMPTY
        lows, highs = bucket_bounds_ns(self.indices[left][[0, -1]])
        smallest, largest = max(self.smallest_ns, int(lows[0])), min(self.largest_ns, int(highs[1]))
        return BucketCounts(self.indices[left], counts[left], smallest, largest, max(self.clamped - part.clamped, 0))

    def values_at(self, quantiles: Sequence[float]) -> list[int]:
        """The values at quantiles in [0, 1], in nanoseconds: the upper bounds of the buckets with these ranks.

        They equal those of HdrHistogram's `get_value_at_percentile`; without values they are 0.
        """
        if not self.indices.size:
            return [0] * len(quantiles)
        cumulated = np.cumsum(self.counts)
        ranks = [max(int(quantile * int(cumulated[-1]) + 0.5), 1) for quantile in quantiles]
        return [int(high) for high in bucket_bounds_ns(self.indices[np.searchsorted(cumulated, ranks)])[1]]

    def count_above(self, value_ns: int) -> int:
        """The number of values in buckets that lie wholly above a value."""
        return int(self.counts[bucket_bounds_ns(self.indices)[0] > value_ns].sum())

    def mean_and_stddev_ns(self) -> tuple[float, float]:
        """Mean and standard deviation, each value taken at the middle of its bucket."""
        if not self.indices.size:
            return 0.0, 0.0
        middles = self.middles_ns()
        mean = float(np.average(middles, weights=self.counts))
        return mean, math.sqrt(float(np.average((middles - mean) ** 2, weights=self.counts)))

    def middles_ns(self) -> npt.NDArray[np.float64]:
        """The middle of each bucket, in nanoseconds."""
        lows, highs = bucket_bounds_ns(self.indices)
        return (lows + highs + 1) / 2


EMPTY = BucketCounts(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), HIGHEST_NS, 0)

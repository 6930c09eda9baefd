"""HDR histograms of nanoseconds: bulk recording through NumPy, merging, percentiles, the V2 text form.

The counts are those of the `hdrhistogram` library, so its encoder and every other HdrHistogram tool read them.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram

LOWEST_NS, HIGHEST_NS, DIGITS = 1_000, 3_600_000_000_000, 3
_FORM = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)  # every histogram has the buckets of this one


@dataclasses.dataclass(frozen=True, slots=True)
class Packed:
    """A histogram without its empty buckets: some kilobytes where the whole one takes two hundred."""

    indices: npt.NDArray[np.int64]
    """The buckets that hold anything, ascending."""
    counts: npt.NDArray[np.int64]
    min_ns: int
    max_ns: int
    clamped: int = 0

    @property
    def count(self) -> int:
        """How many values were recorded."""
        return int(self.counts.sum())

    @classmethod
    def merged(cls, parts: Iterable["Packed"]) -> "Packed":
        """One with the counts of all parts."""
        kept = [part for part in parts if part.indices.size]
        if len(kept) < 2:
            return kept[0] if kept else EMPTY
        counts = np.zeros(_FORM.counts_len, dtype=np.int64)
        for part in kept:
            counts[part.indices] += part.counts
        indices = np.flatnonzero(counts)
        lowest, highest = min(part.min_ns for part in kept), max(part.max_ns for part in kept)
        return cls(indices, counts[indices], lowest, highest, sum(part.clamped for part in kept))


EMPTY = Packed(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), HIGHEST_NS, 0)


class Histogram:
    """Values of 1 µs to 1 h, to three significant digits. What lies outside is clamped to the ends and counted."""

    def __init__(self, inner: HdrHistogram | None = None) -> None:
        self._inner = inner if inner is not None else HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
        self._counts = np.frombuffer(self._inner.counts, dtype=np.int64)
        # it and its encoder hold each other: two hundred kilobytes each second that would wait for the collector
        self._inner.encoder.histogram = None
        self.clamped = 0

    @property
    def count(self) -> int:
        """How many values were recorded."""
        return int(self._inner.total_count)

    def record_many(self, values_ns: npt.NDArray[np.int64]) -> None:
        """Records values, as many calls of the library's `record_value` would."""
        if not values_ns.size:
            return
        clipped = np.clip(values_ns, 0, HIGHEST_NS)
        self.clamped += int(np.count_nonzero(clipped != values_ns))
        inner, indices = self._inner, _indices(self._inner, clipped)
        first = int(indices.min())
        found = np.bincount(indices - first)
        self._counts[first : first + found.size] += found
        inner.total_count += values_ns.size
        inner.min_value = min(inner.min_value, int(clipped.min()))
        inner.max_value = max(inner.max_value, int(clipped.max()))

    def add(self, other: "Histogram") -> None:
        """Adds another histogram's counts."""
        if other.count:
            mine, theirs = self._inner, other._inner  # noqa: SLF001 - of the same class
            self._counts += other._counts  # noqa: SLF001 - of the same class
            mine.total_count += theirs.total_count
            mine.min_value = min(mine.min_value, theirs.min_value)
            mine.max_value = max(mine.max_value, theirs.max_value)
        self.clamped += other.clamped

    def values_at(self, quantiles: Sequence[float]) -> list[int]:
        """The values at quantiles in [0, 1], in nanoseconds, as the library's `get_value_at_percentile` gives them."""
        cumulated = np.cumsum(self._counts)
        targets = [max(int(quantile * self.count + 0.5), 1) for quantile in quantiles]
        inner = self._inner
        found = np.searchsorted(cumulated, targets)
        return [int(inner.get_highest_equivalent_value(inner.get_value_from_index(int(index)))) for index in found]

    def count_above(self, value_ns: int) -> int:
        """How many values lie in buckets that are wholly above one."""
        lows, _ = bucket_bounds_ns(np.arange(self._counts.size))
        return int(self._counts[lows > value_ns].sum())

    @property
    def min_ns(self) -> int:
        """The smallest value's bucket, from below; 0 where there are none."""
        return int(self._inner.get_min_value()) if self.count else 0

    @property
    def max_ns(self) -> int:
        """The largest value's bucket, from above."""
        return int(self._inner.get_max_value())

    def mean_and_stddev_ns(self) -> tuple[float, float]:
        """Mean and standard deviation, each value at the middle of its bucket."""
        counts, middles = self.recorded()
        if not counts.size:
            return 0.0, 0.0
        mean = float(np.average(middles, weights=counts))
        return mean, math.sqrt(float(np.average((middles - mean) ** 2, weights=counts)))

    def recorded(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The counts that are not zero, and the middles of their buckets in nanoseconds, ascending."""
        indices = np.flatnonzero(self._counts)
        lows, highs = bucket_bounds_ns(indices)
        return self._counts[indices], (lows + highs + 1) / 2

    def packed(self) -> Packed:
        """The same without the empty buckets."""
        indices = np.flatnonzero(self._counts)
        inner = self._inner
        return Packed(indices, self._counts[indices], int(inner.min_value), int(inner.max_value), self.clamped)

    @classmethod
    def unpacked(cls, *parts: Packed) -> "Histogram":
        """One with the counts of all parts."""
        histogram, packed = cls(), Packed.merged(parts)
        inner = histogram._inner
        histogram._counts[packed.indices] = packed.counts
        inner.total_count = packed.count
        inner.min_value, inner.max_value = min(inner.min_value, packed.min_ns), max(inner.max_value, packed.max_ns)
        histogram.clamped = packed.clamped
        return histogram

    def encode(self) -> str:
        """The V2 payload, compressed, in base64."""
        with self._coded() as inner:
            encoded: bytes = inner.encode()
        return encoded.decode("ascii")

    @contextlib.contextmanager
    def _coded(self) -> Iterator[HdrHistogram]:
        """The library's histogram with what it lacks for coding."""
        self._inner.encoder.histogram = self._inner
        try:
            yield self._inner
        finally:
            self._inner.encoder.histogram = None

    @classmethod
    def decode(cls, text: str) -> "Histogram":
        """Reads what `encode` wrote; raises ValueError where it is damaged."""
        histogram = cls()
        try:
            with histogram._coded() as inner:
                inner.decode_and_add(text.encode("ascii"))
        except Exception as error:  # noqa: BLE001 - the library lets out whatever base64, zlib and its own checks raise
            raise ValueError(f"not an HdrHistogram payload: {error}") from None
        return histogram


def bucket_bounds_ns(indices: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The lowest and the highest value, in nanoseconds, of the buckets with these indices."""
    # the first two half-buckets share one width; each later one doubles it
    bucket = np.maximum((indices >> _FORM.sub_bucket_half_count_magnitude) - 1, 0)
    shift = bucket + _FORM.unit_magnitude
    low = (indices - (bucket << _FORM.sub_bucket_half_count_magnitude)) << shift
    return low, low + (np.int64(1) << shift) - 1


def _indices(inner: HdrHistogram, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The counts' index of each value: the library's own arithmetic, for a whole array."""
    masked = values | inner.sub_bucket_mask
    # frexp's exponent is the bit length: exact, as all values stay below 2**53
    bit_length = np.frexp(masked.astype(np.float64))[1].astype(np.int64)
    bucket = bit_length - inner.unit_magnitude - (inner.sub_bucket_half_count_magnitude + 1)
    sub_bucket = values >> (bucket + inner.unit_magnitude)
    indices: npt.NDArray[np.int64] = ((bucket + 1) << inner.sub_bucket_half_count_magnitude) + sub_bucket - inner.sub_bucket_half_count
    return indices

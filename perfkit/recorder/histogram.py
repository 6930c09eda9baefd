"""HDR histograms of nanoseconds: bulk recording through NumPy, merging, the V2 text form.

The counts are those of the `hdrhistogram` library, so its encoder and every other HdrHistogram tool read them.
"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram

from perfkit.stats.buckets import DIGITS, HIGHEST_NS, LOWEST_NS, BucketCounts, bucket_indices


class Histogram:
    """Values of 0 to 1 h, to three significant digits or 512 ns. Values outside are clamped to the ends and counted."""

    def __init__(self, inner: HdrHistogram | None = None) -> None:
        self._inner = inner if inner is not None else HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
        self._counts = np.frombuffer(self._inner.counts, dtype=np.int64)
        # histogram and encoder refer to each other: without this, 200 KB per second would wait for the garbage collector
        self._inner.encoder.histogram = None
        self.clamped = 0

    @property
    def count(self) -> int:
        """The number of values."""
        return int(self._inner.total_count)

    def record_many(self, values_ns: npt.NDArray[np.int64]) -> None:
        """Records values, with the same effect as the library's `record_value` for each."""
        if not values_ns.size:
            return
        clipped = np.clip(values_ns, 0, HIGHEST_NS)
        self.clamped += int(np.count_nonzero(clipped != values_ns))
        inner, indices = self._inner, bucket_indices(clipped)
        first = int(indices.min())
        counts = np.bincount(indices - first)
        self._counts[first : first + counts.size] += counts
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
        """See `BucketCounts.values_at`."""
        return self.bucket_counts().values_at(quantiles)

    @property
    def min_ns(self) -> int:
        """See `BucketCounts.min_ns`."""
        return self.bucket_counts().min_ns

    @property
    def max_ns(self) -> int:
        """See `BucketCounts.max_ns`."""
        return self.bucket_counts().max_ns

    def mean_and_stddev_ns(self) -> tuple[float, float]:
        """See `BucketCounts.mean_and_stddev_ns`."""
        return self.bucket_counts().mean_and_stddev_ns()

    def bucket_counts(self) -> BucketCounts:
        """The same counts without the empty buckets."""
        indices = np.flatnonzero(self._counts)
        inner = self._inner
        return BucketCounts(indices, self._counts[indices], int(inner.min_value), int(inner.max_value), self.clamped)

    @classmethod
    def from_counts(cls, *parts: BucketCounts) -> "Histogram":
        """One with the counts of all parts."""
        histogram, merged = cls(), BucketCounts.merged(parts)
        inner = histogram._inner
        histogram._counts[merged.indices] = merged.counts
        inner.total_count = merged.count
        inner.min_value, inner.max_value = min(inner.min_value, merged.smallest_ns), max(inner.max_value, merged.largest_ns)
        histogram.clamped = merged.clamped
        return histogram

    def encode(self) -> str:
        """The V2 payload, compressed, in base64."""
        with self._coded() as inner:
            encoded: bytes = inner.encode()
        return encoded.decode("ascii")

    @contextlib.contextmanager
    def _coded(self) -> Iterator[HdrHistogram]:
        """The library's histogram with its encoder, which `__init__` removed."""
        self._inner.encoder.histogram = self._inner
        try:
            yield self._inner
        finally:
            self._inner.encoder.histogram = None

    @classmethod
    def decode(cls, text: str) -> "Histogram":
        """Reads what `encode` wrote; raises ValueError if it is damaged."""
        histogram = cls()
        try:
            with histogram._coded() as inner:
                inner.decode_and_add(text.encode("ascii"))
        except Exception as error:  # noqa: BLE001 - the library raises whatever base64, zlib and its own checks raise
            raise ValueError(f"not an HdrHistogram payload: {error}") from None
        return histogram

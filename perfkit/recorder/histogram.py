"""Bulk recording of nanoseconds into the buckets of an HDR histogram, and the text form (V2) of its counts.

The counts are those of the `hdrhistogram` library, so its encoder and every other HdrHistogram tool read them.
"""

import base64
import contextlib
import io
import re
import struct
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram

from perfkit.stats.buckets import BUCKETS, DIGITS, HIGHEST_NS, LOWEST_NS, BucketCounts, bucket_indices

_HEAD_BYTES = 8
"""The cookie and the length before the compressed bytes."""
_LARGEST_PAYLOAD_BYTES = 40 + 9 * BUCKETS
"""A head, and a number of at most nine bytes for each bucket."""
_MOST_VALUES = 2**53
_LAYOUT = struct.pack(">iqq", DIGITS, LOWEST_NS, HIGHEST_NS)
"""In the head of the inflated payload, after the cookie, the length and the offset."""


class Histogram:
    """Records values of 0 to 1 h, to three significant digits or 512 ns. Values outside are clamped to the ends and counted."""

    def __init__(self) -> None:
        self._counts = np.zeros(BUCKETS, dtype=np.int64)
        self._smallest_ns, self._largest_ns, self._clamped = HIGHEST_NS, 0, 0

    def record_many(self, values_ns: npt.NDArray[np.int64]) -> None:
        """Records values, with the same effect as the library's `record_value` for each."""
        if not values_ns.size:
            return
        clipped = np.clip(values_ns, 0, HIGHEST_NS)
        self._clamped += int(np.count_nonzero(clipped != values_ns))
        indices = bucket_indices(clipped)
        first = int(indices.min())
        counts = np.bincount(indices - first)
        self._counts[first : first + counts.size] += counts
        self._smallest_ns = min(self._smallest_ns, int(clipped.min()))
        self._largest_ns = max(self._largest_ns, int(clipped.max()))

    def bucket_counts(self) -> BucketCounts:
        """What was recorded, without the empty buckets."""
        first, last = bucket_indices(np.array([self._smallest_ns, self._largest_ns])).tolist()
        indices = first + np.flatnonzero(self._counts[first : last + 1])  # far fewer than all
        return BucketCounts(indices, self._counts[indices], self._smallest_ns, self._largest_ns, self._clamped)


def encode(counts: BucketCounts) -> str:
    """The V2 payload of some counts, compressed, in base64."""
    with _filled(counts) as library:
        encoded: bytes = library.encode()
    return encoded.decode("ascii")


def decode(text: str) -> BucketCounts:
    """Reads what `encode` wrote; raises ValueError if it is damaged, or of another layout."""
    _check_head(text)
    try:
        library = HdrHistogram.decode(text.encode("ascii"))
    except Exception as error:  # noqa: BLE001 - the library raises whatever base64, zlib and its own checks raise
        raise ValueError(f"not an HdrHistogram payload: {error}") from None
    all_counts = np.frombuffer(library.counts, dtype=np.int64)
    indices = np.flatnonzero(all_counts)
    counts, smallest_ns, largest_ns = all_counts[indices], int(library.get_min_value()), int(library.get_max_value())
    _part(library)
    if counts.size and (counts.min() < 0 or counts.max() > _MOST_VALUES):
        raise ValueError("not an HdrHistogram payload: its counts are negative or too large")
    return BucketCounts(indices, counts, smallest_ns, largest_ns)


def percentile_distribution(counts: BucketCounts) -> str:
    """The percentile distribution as `.hgrm` text, in the format of HdrHistogram's `outputPercentileDistribution`; milliseconds."""
    written = io.BytesIO()
    with _filled(counts) as library:
        library.min_value = counts.smallest_ns
        library.output_percentile_distribution(written, 1e6, 5)
        deviation_ms = library.get_stddev() / 1e6
    text = written.getvalue().decode("ascii")  # the library writes only the standard deviation in nanoseconds
    return re.sub(r"(StdDeviation   = ) *[\d.]+", lambda match: f"{match[1]}{deviation_ms:12.3f}", text)


def _check_head(text: str) -> None:
    """Raises ValueError before the library inflates a payload of any size, or takes memory for a layout of any size."""
    try:
        compressed = base64.b64decode(text, validate=True)
        inflate = zlib.decompressobj()
        inflated = inflate.decompress(compressed[_HEAD_BYTES:], _LARGEST_PAYLOAD_BYTES)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"not an HdrHistogram payload: {error}") from None
    if inflate.unconsumed_tail:
        raise ValueError(f"not an HdrHistogram payload: it inflates to more than {_LARGEST_PAYLOAD_BYTES:,} bytes")
    if inflated[12:32] != _LAYOUT:
        raise ValueError("not an HdrHistogram payload: its digits, lowest or highest value are not those of perfkit")


@contextlib.contextmanager
def _filled(counts: BucketCounts) -> Iterator[HdrHistogram]:
    library = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
    np.frombuffer(library.counts, dtype=np.int64)[counts.indices] = counts.counts
    library.total_count, library.max_value = counts.count, counts.largest_ns
    try:
        yield library
    finally:
        _part(library)


def _part(library: HdrHistogram) -> None:
    """Histogram and encoder refer to each other: otherwise 200 KB for each would wait for the garbage collector."""
    library.encoder.histogram = None

"""The times of a stored window, second by second. Pure."""

from collections.abc import Sequence

import numpy as np

from perfkit.gate.tune.folder import Window
from perfkit.stats.buckets import BucketCounts, bucket_bounds_ns


def times_of(window: Window) -> Sequence[BucketCounts]:
    """The times of each second of a window in which requests ended."""
    parts = []
    for pairs in window.times:
        indices, counts = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
        lows, highs = bucket_bounds_ns(indices[[0, -1]])
        parts.append(BucketCounts(indices, counts, int(lows[0]), int(highs[1])))
    return parts

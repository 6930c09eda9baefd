"""The delay that the proxy adds: since bytes could be read, however long other connections kept the event loop busy meanwhile."""

import selectors
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from perfkit.override import override
from perfkit.stats.buckets import BucketCounts

# selecting takes less, unless it waits
_WAITS_FROM_NS = 50_000
_BATCH = 4096


class ReadySelector(selectors.DefaultSelector):
    """A selector that knows since when what it has found ready may have been so.

    If it had to wait, that is when it returned. Otherwise something was ready already, at the earliest since it was asked the time before.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        super().__init__()
        self.ready_since_ns = self._returned_ns = now_ns()
        """A lower bound of the instant at which the bytes that are read now could have been read."""
        self._now_ns = now_ns

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        asked_ns = self._now_ns()
        ready = super().select(timeout)
        returned_ns = self._now_ns()
        self.ready_since_ns = returned_ns if returned_ns - asked_ns > _WAITS_FROM_NS else self._returned_ns
        self._returned_ns = returned_ns
        return ready


class AddedDelay:
    """The delays of exchanges, each the sum of two: of the client's last bytes before the server's, and of the server's first bytes after them."""

    def __init__(self) -> None:
        self._delays_ns = array("q")
        self._counts = BucketCounts.of([])

    def add(self, delay_ns: int) -> None:
        """Adds the delay of an exchange."""
        self._delays_ns.append(delay_ns)
        if len(self._delays_ns) >= _BATCH:
            self._merge()

    def _merge(self) -> None:
        self._counts = BucketCounts.merged([self._counts, BucketCounts.of(np.array(self._delays_ns, dtype=np.int64))])
        del self._delays_ns[:]

    def summary(self) -> Mapping[str, Any]:
        """Their count, median, 99th percentile and maximum, in nanoseconds."""
        if self._delays_ns:
            self._merge()
        p50_ns, p99_ns = self._counts.values_at((0.5, 0.99))
        return {"count": self._counts.count, "p50": p50_ns, "p99": p99_ns, "max": self._counts.max_ns}

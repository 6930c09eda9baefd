"""The intervals that are still open: each second's times so far."""

import collections
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from perfkit.recorder.batches import tally
from perfkit.recorder.histogram import Histogram
from perfkit.recorder.recording import Interval
from perfkit.units import NS_PER_S

_MOST = 4


class OpenIntervals:
    """Collects times by the second of their request after `origin_ns`, at most four seconds at once; `on_interval` gets what is emitted.

    A second can be emitted several times, each with what was added since.
    """

    def __init__(self, origin_ns: int, on_interval: Callable[[Interval], None]) -> None:
        self._origin_ns, self._on_interval = origin_ns, on_interval
        self._seconds: dict[int, collections.defaultdict[str, Histogram]] = {}  # the last used one last

    def add(self, begun_ns: npt.NDArray[np.int64], times: Mapping[str, npt.NDArray[np.int64]]) -> Iterator[None]:
        """Adds times of each kind, of the requests that began at these instants, in steps."""
        indices = (begun_ns - self._origin_ns) // NS_PER_S
        for index, _ in tally(indices):
            chosen, histograms = indices == index, self._second(index)
            for name, values_ns in times.items():
                histograms[name].record_many(values_ns[chosen])
                yield

    def emit_before(self, instant_ns: int | None) -> Iterator[None]:
        """Emits the seconds that have ended by an instant, or all; in steps."""
        end = None if instant_ns is None else (instant_ns - self._origin_ns) // NS_PER_S
        for index in sorted(index for index in self._seconds if end is None or index < end):
            if index in self._seconds:  # it may have been emitted meanwhile
                self._emit(index)
            yield

    def _second(self, index: int) -> dict[str, Histogram]:
        self._seconds[index] = histograms = self._seconds.pop(index, None) or collections.defaultdict(Histogram)
        if len(self._seconds) > _MOST:
            self._emit(next(iter(self._seconds)))
        return histograms

    def _emit(self, index: int) -> None:
        self._on_interval(Interval(index, {name: one.bucket_counts() for name, one in self._seconds.pop(index).items()}))

"""How a window went on: counts in some two hundred short intervals, and the times in thirty longer ones, as statistics take them."""

import collections
import dataclasses

import numpy as np
import numpy.typing as npt

from perfkit.recorder.histogram import Histogram

_Instants = npt.NDArray[np.int64]
_INTERVALS, _SHORTEST_NS, _LONGEST_NS = 200, 20_000_000, 1_000_000_000
_BATCHES, _OPEN_BATCHES = 30, 3


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """One element an interval of the window, of which the last one that is not whole is left out."""

    interval_ns: int
    scheduled: _Instants
    """Requests that were meant to start in it, those dropped among them."""
    answered: _Instants
    """Requests of any outcome but timed out and unfinished that ended in it, whenever they were sent."""
    time_sum_ns: _Instants
    """The times (response, or service in a closed loop) of those that were meant to start in it, added."""
    timed: _Instants
    """How many times those are."""
    batches: tuple[str, ...]
    """Histograms of the same times in equal parts of the window, encoded."""


class SeriesRecorder:
    """Counts a window's requests by interval; intervals are 1/200 of it, but 20 ms at least and 1 s at most."""

    def __init__(self, window_start_ns: int, window_end_ns: int) -> None:
        self._start_ns = window_start_ns
        window_ns = max(window_end_ns - window_start_ns, 1)
        self._interval_ns = min(max(window_ns // _INTERVALS, _SHORTEST_NS), _LONGEST_NS)
        self._batch_ns = max(window_ns // _BATCHES, 1)
        self._count = -(-window_ns // self._interval_ns)
        self._scheduled, self._answered, self._sums, self._timed = (np.zeros(self._count, dtype=np.int64) for _ in range(4))
        self._open: collections.OrderedDict[int, Histogram] = collections.OrderedDict()
        self._closed: dict[int, list[str]] = {}

    def add_scheduled(self, intended_ns: _Instants) -> None:
        """Counts requests by their intended instants."""
        np.add.at(self._scheduled, self._inside(intended_ns), 1)

    def add_answered(self, finished_ns: _Instants) -> None:
        """Counts requests by the instants at which they ended."""
        np.add.at(self._answered, self._inside(finished_ns), 1)

    def add_times(self, intended_ns: _Instants, times_ns: _Instants) -> None:
        """Adds times by the intended instants of their requests, which lie in the window."""
        indices = (intended_ns - self._start_ns) // self._interval_ns
        np.add.at(self._sums, indices, times_ns)
        np.add.at(self._timed, indices, 1)
        numbers = (intended_ns - self._start_ns) // self._batch_ns
        for number in np.unique(numbers):
            self._batch(int(number)).record_many(times_ns[numbers == number])

    def finish(self, window_end_ns: int) -> Series:
        """The series of a window that ended then; an early end leaves out what comes after."""
        length_ns = max(min(window_end_ns - self._start_ns, self._count * self._interval_ns), 0)
        whole, parts = length_ns // self._interval_ns, length_ns // self._batch_ns
        batches = tuple(self._whole_batch(number) for number in range(parts))
        return Series(self._interval_ns, self._scheduled[:whole], self._answered[:whole], self._sums[:whole], self._timed[:whole], batches)

    def _batch(self, number: int) -> Histogram:
        if number not in self._open:
            self._open[number] = Histogram()
        self._open.move_to_end(number)
        if len(self._open) > _OPEN_BATCHES:  # late answers may open it again: its parts add up
            oldest, histogram = self._open.popitem(last=False)
            self._closed.setdefault(oldest, []).append(histogram.encode())
        return self._open[number]

    def _whole_batch(self, number: int) -> str:
        whole = Histogram()
        for text in self._closed.get(number, ()):
            whole.add(Histogram.decode(text))
        if number in self._open:
            whole.add(self._open[number])
        return whole.encode()

    def _inside(self, instants_ns: _Instants) -> _Instants:
        indices: _Instants = (instants_ns - self._start_ns) // self._interval_ns
        return indices[(indices >= 0) & (indices < self._count)]

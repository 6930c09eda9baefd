"""How a load point went on: counts in some two hundred short intervals, as statistics take them."""

import dataclasses

import numpy as np
import numpy.typing as npt

Instants = npt.NDArray[np.int64]
_INTERVALS, _SHORTEST_NS, _LONGEST_NS = 200, 20_000_000, 1_000_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """One element an interval from `origin_ns` on; `between` leaves out what is not whole, or behind the end."""

    origin_ns: int
    interval_ns: int
    scheduled: Instants
    """Requests that were meant to start in it, those dropped among them."""
    answered: Instants
    """Requests of any outcome but timed out and unfinished that ended in it, whenever they were sent."""
    time_sum_ns: Instants
    """The times (response, or service in a closed loop) of those that were meant to start in it, added."""
    timed: Instants
    """How many times those are."""

    def between(self, start_ns: int, end_ns: int) -> "Series":
        """The intervals that begin and end between two instants."""
        first = max(-((self.origin_ns - start_ns) // self.interval_ns), 0)
        last = max((end_ns - self.origin_ns) // self.interval_ns, first)
        parts = (one[first:last] for one in (self.scheduled, self.answered, self.time_sum_ns, self.timed))
        return Series(self.origin_ns + first * self.interval_ns, self.interval_ns, *parts)

    def offered(self) -> "Series":
        """The intervals up to the last one in which a request was meant to start."""
        last = np.flatnonzero(self.scheduled)
        return self.between(self.origin_ns, self.origin_ns + (int(last[-1]) + 1 if last.size else 0) * self.interval_ns)

    def coarser(self, factor: int) -> "Series":
        """Intervals that many times as long; those left over at the end are left out."""
        number = self.timed.size // factor
        sums = (_folded(one[: number * factor], factor) for one in (self.scheduled, self.answered, self.time_sum_ns, self.timed))
        return Series(self.origin_ns, self.interval_ns * factor, *sums)


class SeriesRecorder:
    """Counts requests by interval; intervals are 1/200 of the whole, but 20 ms at least and 1 s at most.

    Where the end is not known, `end_ns` None, they begin with 20 ms and double while there are more than 400.
    """

    def __init__(self, origin_ns: int, end_ns: int | None) -> None:
        self._origin_ns = origin_ns
        self._is_growing = end_ns is None
        length_ns = 2 * _INTERVALS * _SHORTEST_NS if end_ns is None else max(end_ns - origin_ns, 1)
        self._interval_ns = _SHORTEST_NS if end_ns is None else min(max(length_ns // _INTERVALS, _SHORTEST_NS), _LONGEST_NS)
        self._counts = np.zeros((4, -(-length_ns // self._interval_ns)), dtype=np.int64)

    def add_scheduled(self, intended_ns: Instants) -> None:
        """Counts requests by their intended instants."""
        self._add(0, intended_ns, 1)

    def add_answered(self, finished_ns: Instants) -> None:
        """Counts requests by the instants at which they ended."""
        self._add(1, finished_ns, 1)

    def add_times(self, intended_ns: Instants, times_ns: Instants) -> None:
        """Adds times by the intended instants of their requests."""
        self._add(2, intended_ns, times_ns)
        self._add(3, intended_ns, 1)

    def finish(self) -> Series:
        """The series; nothing is behind the last request."""
        return Series(self._origin_ns, self._interval_ns, *self._counts)

    def _add(self, row: int, instants_ns: Instants, values: Instants | int) -> None:
        if not instants_ns.size:
            return
        indices = (instants_ns - self._origin_ns) // self._interval_ns
        if self._is_growing and (last := int(indices.max())) >= self._counts.shape[1]:
            self._grow(last)
            indices = (instants_ns - self._origin_ns) // self._interval_ns
        inside = (indices >= 0) & (indices < self._counts.shape[1])
        np.add.at(self._counts[row], indices[inside], values if isinstance(values, int) else values[inside])

    def _grow(self, last: int) -> None:
        size = self._counts.shape[1]
        while last >= size and 2 * self._interval_ns <= _LONGEST_NS:
            self._counts = np.concatenate([_folded(self._counts, 2), np.zeros((4, size // 2), dtype=np.int64)], axis=1)
            self._interval_ns *= 2
            last //= 2
        if last >= size:
            self._counts = np.concatenate([self._counts, np.zeros((4, last), dtype=np.int64)], axis=1)


def _folded(counts: Instants, factor: int) -> Instants:
    """Neighbours added, along the last axis."""
    sums: Instants = counts.reshape(*counts.shape[:-1], -1, factor).sum(axis=-1)
    return sums

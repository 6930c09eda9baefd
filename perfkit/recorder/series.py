"""Time series of a load point: counts in about 200 short intervals, for the statistics of steady state and overload."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Instants = npt.NDArray[np.int64]
_ROWS = 7
_INTERVALS, _SHORTEST_NS, _LONGEST_NS = 200, 20_000_000, 1_000_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """Arrays with one element per interval from `origin_ns` on."""

    origin_ns: int
    interval_ns: int
    scheduled: Instants
    """Requests that were meant to start in the interval, including dropped ones."""
    answered: Instants
    """Requests that ended in the interval, whenever they were sent, with any outcome but TIMED_OUT and UNFINISHED; one that the client gave up has ended."""
    time_sum_ns: Instants
    """The sum of the response times (closed loop: service times) of requests that were meant to start in the interval."""
    timed: Instants
    """The number of times in that sum."""
    good: Instants
    """Ok answers within the SLO's limits to requests that were meant to start in the interval; 0 for loads without a surge, as is the next."""
    in_flight_change: Instants
    """Requests that were meant to start in the interval, without dropped ones, minus those that ended in it. Those before count in the first."""
    attempts_answered: Instants
    """Attempts that ended in the interval with an answer, as of `answered`; 0 for loads without `load.retry`."""

    def rows(self) -> Instants:
        """The arrays as the rows of one."""
        return np.stack(
            [self.scheduled, self.answered, self.time_sum_ns, self.timed, self.good, self.in_flight_change, self.attempts_answered]
        )

    def between(self, start_ns: int, end_ns: int) -> "Series":
        """The intervals that lie wholly between two instants."""
        first = max(-((self.origin_ns - start_ns) // self.interval_ns), 0)
        last = max((end_ns - self.origin_ns) // self.interval_ns, first)
        return Series(self.origin_ns + first * self.interval_ns, self.interval_ns, *self.rows()[:, first:last])

    def offered(self) -> "Series":
        """The intervals up to the last one with a scheduled request."""
        last = np.flatnonzero(self.scheduled)
        return self.between(self.origin_ns, self.origin_ns + (int(last[-1]) + 1 if last.size else 0) * self.interval_ns)

    def coarser(self, factor: int) -> "Series":
        """Intervals `factor` times as long; an incomplete one at the end is left out."""
        whole = self.timed.size // factor * factor
        return Series(self.origin_ns, self.interval_ns * factor, *_sum_neighbours(self.rows()[:, :whole], factor))


def sum_series(parts: Sequence[Series]) -> Series:
    """The sum of series from the same origin, which may differ in length, and in that of their intervals by powers of two."""
    longest_ns = max(part.interval_ns for part in parts)
    size = max(-(-part.timed.size * part.interval_ns // longest_ns) for part in parts)
    total = np.zeros((_ROWS, size), dtype=np.int64)
    for part in parts:
        rows, factor = part.rows(), longest_ns // part.interval_ns
        if factor > 1:
            rows = _sum_neighbours(np.pad(rows, ((0, 0), (0, -rows.shape[1] % factor))), factor)
        total[:, : rows.shape[1]] += rows
    return Series(parts[0].origin_ns, longest_ns, *total)


class SeriesRecorder:
    """Counts requests by interval; an interval is 1/200 of the load, but at least 20 ms and at most 1 s, unless `slot_ns` gives it.

    If the end is unknown, None, the length starts at 20 ms and doubles, up to 1 s, whenever there would be more than 400 intervals.
    """

    def __init__(self, origin_ns: int, end_ns: int | None, slot_ns: int | None = None) -> None:
        self._origin_ns = origin_ns
        self._is_growing = end_ns is None
        length_ns = 2 * _INTERVALS * _SHORTEST_NS if end_ns is None else max(end_ns - origin_ns, 1)
        self._interval_ns = _SHORTEST_NS if end_ns is None else min(max(length_ns // _INTERVALS, _SHORTEST_NS), _LONGEST_NS)
        self._interval_ns = slot_ns or self._interval_ns
        self.has_surge = slot_ns is not None
        self._counts = np.zeros((_ROWS, -(-length_ns // self._interval_ns)), dtype=np.int64)

    def add_scheduled(self, intended_ns: Instants) -> None:
        """Counts requests by their intended instants."""
        self._add(0, intended_ns, 1)

    def add_answered(self, finished_ns: Instants) -> None:
        """Counts requests by the instants of their ends."""
        self._add(1, finished_ns, 1)

    def add_times(self, intended_ns: Instants, times_ns: Instants) -> None:
        """Adds times by the intended instants of their requests."""
        self._add(2, intended_ns, times_ns)
        self._add(3, intended_ns, 1)

    def add_good(self, intended_ns: Instants) -> None:
        """Counts requests with an ok answer within the SLO's limits by their intended instants."""
        self._add(4, intended_ns, 1)

    def add_in_flight(self, intended_ns: Instants, finished_ns: Instants) -> None:
        """Counts the intended starts of requests and the ends of those that ended."""
        self._add(5, np.maximum(intended_ns, self._origin_ns), 1)
        self._add(5, np.maximum(finished_ns, self._origin_ns), -1)

    def add_attempts_answered(self, finished_ns: Instants) -> None:
        """Counts answered attempts by the instants of their ends."""
        self._add(6, finished_ns, 1)

    def take(self) -> Series:
        """The series since the last call, to the last interval that has any."""
        counted = np.flatnonzero(self._counts.any(axis=0))
        end = int(counted[-1]) + 1 if counted.size else 0
        taken = self._counts[:, :end].copy()
        self._counts[:, :end] = 0
        return Series(self._origin_ns, self._interval_ns, *taken)

    def finish(self) -> Series:
        """The series since the last `take`, in all intervals of the load."""
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
            self._counts = np.concatenate([_sum_neighbours(self._counts, 2), np.zeros((_ROWS, size // 2), dtype=np.int64)], axis=1)
            self._interval_ns *= 2
            last //= 2
        if last >= size:
            self._counts = np.concatenate([self._counts, np.zeros((_ROWS, last), dtype=np.int64)], axis=1)


def _sum_neighbours(counts: Instants, factor: int) -> Instants:
    """Sums of `factor` neighbours along the last axis."""
    sums: Instants = counts.reshape(*counts.shape[:-1], -1, factor).sum(axis=-1)
    return sums

"""Stops of a worker: spans in which its process did not run, so that it noted answers late and sent nothing.

A signal, a debugger, a CPU quota, the machine's host or other processes may stop it. Its own work is no stop: that is a busy generator.
"""

import bisect
import collections
import dataclasses
import statistics
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from perfkit.clock import Clock, thread_cpu_ns
from perfkit.recorder.series import Instants
from perfkit.units import NS_PER_S

TICK_NS, SHORTEST_NS = 5_000_000, 4_000_000
"""The interval of the timer, and the shortest stop that is noted; every stop as long as both together is."""
_KNOWN_IN_FLIGHT = 256
_NOT_YET_NS = 2**62
# what piled up in a stop drains within L·ρ/(1-ρ), with its length L and the server's utilisation ρ: here up to 98 %
_SETTLES_WITHIN_NS, _SETTLES_WITHIN_LENGTHS = NS_PER_S, 50


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Stop:
    """One stop, in nanoseconds of the monotonic clock."""

    start_ns: int
    """At most one `TICK_NS` after its beginning, if the process did not work in the meantime."""
    end_ns: int
    settled_ns: int
    """When the load had returned to what it was before: requests that overlap the span up to here were touched by the stop."""

    @property
    def length_ns(self) -> int:
        """How long the worker stood still."""
        return self.end_ns - self.start_ns

    def shifted(self, by_ns: int) -> "Stop":
        """A copy with `by_ns` added to each instant, to convert it to another clock."""
        return Stop(self.start_ns + by_ns, self.end_ns + by_ns, self.settled_ns + by_ns)


@dataclasses.dataclass(frozen=True, slots=True)
class Touched:
    """What stops did to some requests; arrays with one element per request."""

    mask: npt.NDArray[np.bool_]
    """Whether it was in flight or due in a stop, or before the stop had settled."""
    earlier_ns: Instants
    """By how much its time would be shorter without the stops, at most."""
    later_ns: Instants
    """By how much it would be longer, at most: a burst after a stop finds a server that has had time to finish."""


class StopDetector:
    """Finds the stops of the thread that calls it, with a timer that costs about 0.2 % of a core and nothing per request.

    A stop is settled at the first tick after it at which no more requests are in flight than usual: the answers that waited have
    been read then, and the requests that fell due meanwhile have been sent and answered. If another stop has just ended at that
    tick, that one remains unsettled, and the others settle a tick later: some answers are still to be read. If the load grew meanwhile,
    as in a ramp or a step, there is no such tick: at the latest it is settled after a second and 50 times its length.
    """

    def __init__(self, clock: Clock, cpu_ns: Callable[[], int] = thread_cpu_ns) -> None:
        self._clock, self._cpu_ns = clock, cpu_ns
        self._stops: list[Stop] = []
        self._taken = 0
        self._checked_ns: int | None = None
        self._used_ns = 0
        self._known_in_flight = collections.deque[int](maxlen=_KNOWN_IN_FLIGHT)
        self._usual_in_flight = 0
        self._settles_by_ns = 0
        self._open_from: int | None = None  # the index of the first stop that is not settled

    async def watch(self, from_ns: int, in_flight: Callable[[], int]) -> None:
        """Looks for stops from an instant on until it is cancelled; `in_flight` counts the requests in flight."""
        await self._clock.sleep_until_ns(from_ns)
        self._checked_ns, self._used_ns = from_ns, self._cpu_ns()
        while True:
            has_just_ended = self.check()
            if self._open_from is None:
                self._known_in_flight.append(in_flight())
            elif in_flight() <= self._usual_in_flight:
                self._settle(len(self._stops) - has_just_ended, self._checked_ns + TICK_NS * has_just_ended)
            elif self._checked_ns >= self._settles_by_ns:
                self._settle(len(self._stops), self._checked_ns)
                self._known_in_flight.clear()  # the load is another one
            await self._clock.sleep_until_ns(self._checked_ns + TICK_NS)

    def check(self) -> bool:
        """Notes a stop that has just ended, also between two ticks, and returns whether there was one."""
        if self._checked_ns is None:
            return False  # the load has not begun
        now_ns, used_ns = self._clock.now_ns(), self._cpu_ns()
        # it may have waited for the tick, and worked then
        stopped_ns = now_ns - self._checked_ns - TICK_NS - (used_ns - self._used_ns)
        self._checked_ns, self._used_ns = now_ns, used_ns
        if stopped_ns < SHORTEST_NS:
            return False
        if self._open_from is None:
            self._open_from = len(self._stops)
            self._usual_in_flight = int(statistics.median_high(self._known_in_flight)) if self._known_in_flight else 0
        self._stops.append(Stop(now_ns - stopped_ns, now_ns, now_ns))
        self._give_time(self._stops[-1])
        return True

    def take_settled(self) -> tuple[Stop, ...]:
        """The stops that have settled since the last call."""
        taken, self._taken = self._taken, len(self._stops) if self._open_from is None else self._open_from
        return tuple(self._stops[taken : self._taken])

    def finish(self) -> tuple[Stop, ...]:
        """The stops since the last `take_settled`; one that is not settled yet counts as settled now."""
        self.check()
        self._settle(len(self._stops), self._clock.now_ns())
        return self.take_settled()

    def touched(self, intended_ns: Instants, finished_ns: Instants) -> Touched | None:
        """What the stops did to requests; None if they touched none.

        An answer that came while the worker stood still is read at the end of the stop, too late by at most its length. One
        that came after that was read in time. The times of requests that were due in the stop, or until it had settled, are
        uncertain by its length both ways.
        """
        if not self._stops or not intended_ns.size:
            return None
        stops = self._stops_since(int(intended_ns.min()))
        if not stops or stops[0].start_ns >= int(finished_ns.max()):
            return None
        starts_ns, ends_ns = (np.array([getattr(stop, name) for stop in stops], dtype=np.int64) for name in ("start_ns", "end_ns"))
        settled_ns = np.array([stop.settled_ns for stop in stops], dtype=np.int64)
        if self._open_from is not None:
            settled_ns[max(self._open_from - len(self._stops), -len(stops)) :] = _NOT_YET_NS
        stopped_ns = np.concatenate(([0], np.cumsum(ends_ns - starts_ns)))  # in all, before each stop
        # stops are in the order of time, so those that touch a request follow each other: from `first` up to `last`
        first = np.searchsorted(settled_ns, intended_ns, side="right")
        last = np.maximum(np.searchsorted(starts_ns, finished_ns), first)
        due = np.clip(np.searchsorted(starts_ns, intended_ns + TICK_NS, side="right"), first, last)
        read = np.clip(np.searchsorted(settled_ns, finished_ns), due, last)
        later_ns = stopped_ns[due] - stopped_ns[first]
        mask = first < last
        return Touched(mask, later_ns + stopped_ns[last] - stopped_ns[read], later_ns) if mask.any() else None

    def _stops_since(self, instant_ns: int) -> list[Stop]:
        """The stops that had not settled before."""
        settled = len(self._stops) if self._open_from is None else self._open_from
        return self._stops[bisect.bisect_right(self._stops, instant_ns, hi=settled, key=lambda stop: stop.settled_ns) :]

    def _settle(self, count: int, settled_ns: int) -> None:
        """Marks the first stops, as many as `count`, as settled at an instant."""
        if self._open_from is None:
            return
        for index in range(self._open_from, count):
            self._stops[index] = dataclasses.replace(self._stops[index], settled_ns=settled_ns)
        self._open_from = count if count < len(self._stops) else None
        self._settles_by_ns = 0
        for stop in self._stops[count:]:
            self._give_time(stop)

    def _give_time(self, stop: Stop) -> None:
        self._settles_by_ns = max(self._settles_by_ns, stop.end_ns + _SETTLES_WITHIN_NS) + _SETTLES_WITHIN_LENGTHS * stop.length_ns

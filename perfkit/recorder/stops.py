"""Stops of a worker: spans in which its process did not run, so that it noted answers late and sent nothing.

A signal, a debugger, a CPU quota, the machine's host or other processes may stop it. Its own work is no stop: that is a busy generator.
"""

import collections
import dataclasses
import statistics
from collections.abc import Callable

import numpy as np

from perfkit.clock import Clock, thread_cpu_ns
from perfkit.recorder.series import Instants

TICK_NS, SHORTEST_NS = 5_000_000, 4_000_000
"""The interval of the timer, and the shortest stop that is noted; every stop as long as both together is."""
_KNOWN_IN_FLIGHT = 256


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


class StopDetector:
    """Finds the stops of the thread that calls it, with a timer that costs about 0.1 % of a core and nothing per request.

    A stop is settled when twice as many requests have been answered as were in flight at it, and no more are in flight than
    usual: the delayed requests, and those that they delayed in turn, are then done.
    """

    def __init__(self, clock: Clock, cpu_ns: Callable[[], int] = thread_cpu_ns) -> None:
        self._clock, self._cpu_ns = clock, cpu_ns
        self._stops: list[Stop] = []
        self._checked_ns: int | None = None
        self._used_ns = 0
        self._in_flight: Callable[[], int] = lambda: 0
        self._answered: Callable[[], int] = lambda: 0
        self._known_in_flight = collections.deque[int](maxlen=_KNOWN_IN_FLIGHT)
        self._usual_in_flight, self._settled_at = 0, 0
        self._open_from: int | None = None  # the index of the first stop that is not settled

    async def watch(self, from_ns: int, answered: Callable[[], int], in_flight: Callable[[], int]) -> None:
        """Looks for stops from an instant on until it is cancelled; the arguments count requests."""
        self._answered, self._in_flight = answered, in_flight
        await self._clock.sleep_until_ns(from_ns)
        self._checked_ns, self._used_ns = from_ns, self._cpu_ns()
        while True:
            self.check()
            await self._clock.sleep_until_ns(self._checked_ns + TICK_NS)

    def check(self) -> None:
        """Notes a stop that has just ended, also between two ticks."""
        if self._checked_ns is None:
            return  # the load has not begun
        now_ns, used_ns = self._clock.now_ns(), self._cpu_ns()
        gap_ns, worked_ns = now_ns - self._checked_ns, used_ns - self._used_ns
        self._checked_ns, self._used_ns = now_ns, used_ns
        # it may have waited for the tick, and worked then
        if (stopped_ns := gap_ns - TICK_NS - worked_ns) >= SHORTEST_NS:
            self._add(now_ns - stopped_ns, now_ns)
        elif self._open_from is not None:
            self._settle(now_ns)
        else:
            self._known_in_flight.append(self._in_flight())

    def finish(self) -> tuple[Stop, ...]:
        """All stops; one that is not settled yet counts as settled now."""
        self.check()
        self._close(self._clock.now_ns())
        return tuple(self._stops)

    def delays_ns(self, intended_ns: Instants, finished_ns: Instants) -> Instants | None:
        """By how much the stops may have changed the time of each request: their lengths added; None if no request was touched."""
        if not self._stops or not intended_ns.size:
            return None
        first_ns, delays_ns = int(intended_ns.min()), np.zeros_like(intended_ns)
        for index in range(len(self._stops) - 1, -1, -1):
            stop, is_open = self._stops[index], self._open_from is not None and index >= self._open_from
            if not is_open and stop.settled_ns < first_ns:
                break  # they are in the order of time
            touched = finished_ns > stop.start_ns
            if not is_open:
                touched &= intended_ns < stop.settled_ns
            delays_ns[touched] += stop.length_ns
        return delays_ns if delays_ns.any() else None

    def _add(self, start_ns: int, end_ns: int) -> None:
        if self._open_from is None:
            self._open_from = len(self._stops)
            self._usual_in_flight = int(statistics.median_high(self._known_in_flight)) if self._known_in_flight else 0
        self._stops.append(Stop(start_ns, end_ns, end_ns))
        self._settled_at = self._answered() + 2 * self._in_flight()

    def _settle(self, now_ns: int) -> None:
        if self._answered() >= self._settled_at and self._in_flight() <= self._usual_in_flight:
            self._close(now_ns)

    def _close(self, now_ns: int) -> None:
        if self._open_from is not None:
            for index in range(self._open_from, len(self._stops)):
                self._stops[index] = dataclasses.replace(self._stops[index], settled_ns=now_ns)
            self._open_from = None

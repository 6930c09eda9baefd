"""A simulated queue, which computes the departure of each request as it arrives. Integer nanoseconds and no clock.

First come, first served: a request departs at max(arrival, earliest free server) + service time.
"""

import collections
import dataclasses
import heapq

from perfkit.errors import ErrorKind
from server_stub.synthetic.service_model import ServiceModel, Stall


@dataclasses.dataclass(frozen=True, slots=True)
class ServedRequest:
    """The times of one request in the simulated queue. `failure` is the error it ends with, or None."""

    arrived_ns: int
    started_ns: int
    departed_ns: int
    failure: ErrorKind | None = None
    is_refused: bool = False
    """Whether the queue was full, so that the request was not served."""


class SimulatedQueue:
    """A queue for `model.servers` servers."""

    def __init__(self, model: ServiceModel) -> None:
        self._model = model
        self._free_ns: list[int] = []  # when each server becomes free: a heap
        self._first_ns: int | None = None
        self._latest_ns = 0
        self._departed_ns = 0  # the latest departure
        self._count = 0
        self._of_size = collections.Counter[int]()
        self._waiting_until_ns = collections.deque[int]()  # when the service of each request starts, in order

    def arrive(self, arrived_ns: int, batch_size: int = 1) -> ServedRequest:
        """Add the next request. Raises ValueError if it arrives before the previous one."""
        if self._first_ns is None:
            self._first_ns = arrived_ns
            self._free_ns = [arrived_ns] * self._model.servers
            self._departed_ns = arrived_ns
        elif arrived_ns < self._latest_ns:
            raise ValueError(f"a request arrives at {arrived_ns} ns, before the previous one at {self._latest_ns} ns")
        self._latest_ns = arrived_ns
        if self._is_full(arrived_ns):
            return ServedRequest(arrived_ns, arrived_ns, arrived_ns, ErrorKind.UNAVAILABLE, is_refused=True)
        started_ns, departed_ns = self._serve(arrived_ns - self._first_ns, self._free_ns[0] - self._first_ns, batch_size)
        heapq.heapreplace(self._free_ns, self._first_ns + departed_ns)
        self._departed_ns = max(self._departed_ns, self._first_ns + departed_ns)
        failure = self._model.failure(self._count)
        self._count += 1
        if self._model.queue is not None:
            self._waiting_until_ns.append(self._first_ns + started_ns)
        return ServedRequest(arrived_ns, self._first_ns + started_ns, self._first_ns + departed_ns, failure)

    def _is_full(self, arrived_ns: int) -> bool:
        waiting = self._waiting_until_ns
        while waiting and waiting[0] <= arrived_ns:
            waiting.popleft()
        return self._model.queue is not None and self._free_ns[0] > arrived_ns and len(waiting) >= self._model.queue

    def _serve(self, arrived_ns: int, free_ns: int, batch_size: int) -> tuple[int, int]:
        """When service starts and ends. All times are relative to the first arrival, where periods begin."""
        stall = self._model.stall
        started_ns = max(arrived_ns, free_ns)
        if stall is not None:
            started_ns = _end_of_stall(stall, started_ns)
        service_ns = self._model.service_ns(self._count, batch_size, self._of_size[batch_size], started_ns) + self._extra_ns(arrived_ns)
        self._of_size[batch_size] += 1
        if stall is None:
            return started_ns, started_ns + service_ns
        if stall.drains_at_once:
            # the first stall to end after the arrival also ends all waiting and all service that would reach into it
            end_ns = (arrived_ns // stall.period_ns + 1) * stall.period_ns
            if started_ns + service_ns >= end_ns - stall.duration_ns:
                return min(started_ns, end_ns), end_ns
            return started_ns, started_ns + service_ns
        return started_ns, _instant(stall, _active_ns(stall, started_ns) + service_ns)

    def _extra_ns(self, arrived_ns: int) -> int:
        """What the service of a request takes longer because of the gap before it; the arrival is relative to the first."""
        after_gap, idle_ns = self._model.after_gap, arrived_ns + (self._first_ns or 0) - self._departed_ns
        return after_gap.extra_ns if after_gap is not None and idle_ns >= after_gap.gap_ns else 0


def _active_ns(stall: Stall, instant_ns: int) -> int:
    """The time outside stalls until an instant."""
    periods, within_ns = divmod(instant_ns, stall.period_ns)
    active_ns = stall.period_ns - stall.duration_ns
    return periods * active_ns + min(within_ns, active_ns)


def _instant(stall: Stall, active_ns: int) -> int:
    """The instant by which a time outside stalls has passed: the end of a stall rather than its beginning."""
    periods, within_ns = divmod(active_ns, stall.period_ns - stall.duration_ns)
    return periods * stall.period_ns + within_ns


def _end_of_stall(stall: Stall, instant_ns: int) -> int:
    """The end of the stall that an instant lies in, or the instant itself."""
    return _instant(stall, _active_ns(stall, instant_ns))

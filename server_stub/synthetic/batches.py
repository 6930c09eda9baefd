"""The declared queue where a server takes several requests at a time. Whole nanoseconds and no clock, as in `queue`.

Who is in a batch hangs on who comes later, so requests arrive first and are served when the time has moved on that far.
"""

import collections
import dataclasses
import heapq
from collections.abc import Sequence
from typing import Any

from server_stub.synthetic.law import Batch, Law
from server_stub.synthetic.queue import Passage, uniform_share


@dataclasses.dataclass(frozen=True, slots=True)
class Arrival:
    """A request that waits; `key` is whatever the one who brought it wants back."""

    arrived_ns: int
    rows: int
    key: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """A batch and its ways through the queue, which begin and end together."""

    members: Sequence[tuple[Arrival, Passage]]
    started_ns: int
    departed_ns: int


class BatchedQueue:
    """A queue before `law.servers` servers, each of which takes batches as `law.batch` says."""

    def __init__(self, law: Law, batch: Batch) -> None:
        self._law, self._batch = law, batch
        self._line: collections.deque[Arrival] = collections.deque()
        self._free_ns: list[int] = []  # when each server is free: a heap
        self._first_ns: int | None = None
        self._batches = self._requests = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    def arrive(self, arrival: Arrival) -> list[Service]:
        """Lets the next request in; gives the services that have begun by then."""
        if self._first_ns is None:
            self._first_ns = arrival.arrived_ns
            self._free_ns = [arrival.arrived_ns] * self._law.servers
        begun = self.advance(arrival.arrived_ns - 1)
        self._line.append(arrival)
        return begun + self.advance(arrival.arrived_ns)

    def advance(self, now_ns: int) -> list[Service]:
        """The services that begin until that instant, in their order."""
        begun = []
        while (start_ns := self.next_ns) is not None and start_ns <= now_ns:
            begun.append(self._serve(start_ns))
        return begun

    @property
    def next_ns(self) -> int | None:
        """When the next service begins if nobody else comes; None if it never does."""
        complete_ns = self._complete_ns()
        return None if complete_ns is None else max(complete_ns, self._free_ns[0])

    def _complete_ns(self) -> int | None:
        """When the requests that the next batch needs were there."""
        if not self._batch.is_awaited:
            return self._line[0].arrived_ns if self._line else None
        rows = 0
        for arrival in self._line:
            rows += arrival.rows
            if rows >= self._batch.size:
                return arrival.arrived_ns
        return None

    def _serve(self, start_ns: int) -> Service:
        assert self._first_ns is not None
        members = [self._line.popleft()]
        rows = members[0].rows
        while self._line and self._line[0].arrived_ns <= start_ns and rows + self._line[0].rows <= self._batch.size:
            members.append(self._line.popleft())
            rows += members[-1].rows
        drawn_ns = self._law.service.quantile_ns(uniform_share(self._law.seed, self._batches, b"service"), rows)
        departed_ns = start_ns + round(drawn_ns * self._law.pace(start_ns - self._first_ns))
        heapq.heapreplace(self._free_ns, departed_ns)
        self._batches += 1
        return Service([(one, self._passage(one, start_ns, departed_ns)) for one in members], start_ns, departed_ns)

    def _passage(self, arrival: Arrival, start_ns: int, departed_ns: int) -> Passage:
        failures, number = self._law.failures, self._requests
        self._requests += 1
        fails = failures is not None and uniform_share(self._law.seed, number, b"failure") < failures.share
        return Passage(arrival.arrived_ns, start_ns, departed_ns, failures.kind if failures is not None and fails else None)

"""A simulated queue whose servers take batches. Integer nanoseconds and no clock, as in `simulated_queue`.

A batch can depend on later arrivals, so a request's times are only known once simulated time has reached its batch.
"""

import collections
import dataclasses
import heapq
from collections.abc import Sequence
from typing import Any

from server_stub.synthetic.service_model import Batch, ServiceModel
from server_stub.synthetic.simulated_queue import ServedRequest


@dataclasses.dataclass(frozen=True, slots=True)
class ArrivedRequest:
    """A waiting request. `key` identifies it to the caller."""

    arrived_ns: int
    rows: int
    key: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class SimulatedBatch:
    """A batch that has started, with the times of its requests."""

    members: Sequence[tuple[ArrivedRequest, ServedRequest]]

    @property
    def started_ns(self) -> int:
        """When all requests of the batch started."""
        return self.members[0][1].started_ns

    @property
    def departed_ns(self) -> int:
        """When all requests of the batch departed."""
        return self.members[0][1].departed_ns


class SimulatedBatchQueue:
    """A queue for several servers, each of which takes batches."""

    def __init__(self, model: ServiceModel, batch: Batch) -> None:
        self._model, self._batch = model, batch
        self._waiting: collections.deque[ArrivedRequest] = collections.deque()
        self._free_ns: list[int] = []  # when each server becomes free: a heap
        self._first_ns: int | None = None
        self._batch_count = self._request_count = 0
        self._of_size = collections.Counter[int]()

    def __len__(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def arrive(self, arrival: ArrivedRequest) -> list[SimulatedBatch]:
        """Add the next request. Returns the batches that have started by its arrival."""
        if self._first_ns is None:
            self._first_ns = arrival.arrived_ns
            self._free_ns = [arrival.arrived_ns] * self._model.servers
        started = self.advance(arrival.arrived_ns - 1)
        self._waiting.append(arrival)
        return started + self.advance(arrival.arrived_ns)

    def advance(self, now_ns: int) -> list[SimulatedBatch]:
        """The batches that start up to an instant, in order."""
        started = []
        while (start_ns := self.next_ns) is not None and start_ns <= now_ns:
            started.append(self._serve(start_ns))
        return started

    @property
    def next_ns(self) -> int | None:
        """When the next batch starts if no further request arrives, or None if it does not."""
        complete_ns = self._complete_ns()
        return None if complete_ns is None else max(complete_ns, self._free_ns[0])

    def _complete_ns(self) -> int | None:
        """When the last request that the next batch needs arrived."""
        if not self._batch.is_awaited:
            return self._waiting[0].arrived_ns if self._waiting else None
        rows = 0
        for arrival in self._waiting:
            rows += arrival.rows
            if rows >= self._batch.size:
                return arrival.arrived_ns
        return None

    def _serve(self, start_ns: int) -> SimulatedBatch:
        assert self._first_ns is not None
        members = [self._waiting.popleft()]
        rows = members[0].rows
        while self._waiting and self._waiting[0].arrived_ns <= start_ns and rows + self._waiting[0].rows <= self._batch.size:
            members.append(self._waiting.popleft())
            rows += members[-1].rows
        service_ns = self._model.service_ns(self._batch_count, rows, self._of_size[rows], start_ns - self._first_ns)
        self._of_size[rows] += 1
        heapq.heapreplace(self._free_ns, start_ns + service_ns)
        self._batch_count += 1
        return SimulatedBatch([(arrival, self._serve_request(arrival, start_ns, start_ns + service_ns)) for arrival in members])

    def _serve_request(self, arrival: ArrivedRequest, start_ns: int, departed_ns: int) -> ServedRequest:
        failure = self._model.failure(self._request_count)
        self._request_count += 1
        return ServedRequest(arrival.arrived_ns, start_ns, departed_ns, failure)

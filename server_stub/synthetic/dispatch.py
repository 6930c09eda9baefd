"""Requests waiting for their simulated departure, and for the start of their simulated batch."""

import asyncio
import dataclasses
import heapq
import itertools
import time
from collections.abc import Callable, Sequence

from server_stub.scheduling.alarm import Alarm, MakeAlarm, make_alarm
from server_stub.synthetic.service_model import Batch, ServiceModel
from server_stub.synthetic.simulated_batches import ArrivedRequest, SimulatedBatch, SimulatedBatchQueue
from server_stub.synthetic.simulated_queue import ServedRequest

SPIN_NS = 150_000
"""The alarm is set this long before a departure. Waking up takes some tens of microseconds; the rest is busy waiting."""


class DepartureTimer:
    """Wakes waiting requests at their monotonic instants, never early and in order, with one alarm for all."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns, make_alarm: MakeAlarm = make_alarm) -> None:
        self._now_ns = now_ns
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()  # breaks ties in order of arrival
        self._loop = asyncio.get_running_loop()
        self._alarm = make_alarm(self._loop, self._ring)

    async def wait(self, departed_ns: int) -> None:
        """Wait until an instant."""
        future = self._loop.create_future()
        heapq.heappush(self._waiting, (departed_ns, next(self._numbers), future))
        if self._waiting[0][2] is future:
            self._alarm.set(departed_ns - SPIN_NS)
        await future

    def close(self) -> None:
        """Release the alarm and cancel all waiting requests."""
        self._alarm.close()
        for _, _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    def _ring(self) -> None:
        """Wake the requests that are due. Returns to the event loop in between, however close the next departure is."""
        if self._waiting and self._waiting[0][0] - self._now_ns() <= SPIN_NS:
            while (now_ns := self._now_ns()) < self._waiting[0][0]:
                pass
            while self._waiting and self._waiting[0][0] <= now_ns:
                _, _, future = heapq.heappop(self._waiting)
                if not future.done():  # its client may have disconnected
                    future.set_result(None)
        if self._waiting:
            self._alarm.set(self._waiting[0][0] - SPIN_NS)


@dataclasses.dataclass(slots=True)
class Execution:
    """A simulated execution and its open requests, so that statistics count it once, when the last one ends."""

    open_requests: int
    succeeded: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    """The arrival time and rows of each successful request."""

    def end_request(self, succeeded: tuple[int, int] | None) -> None:
        """End one request: its arrival time and rows, or None if it failed or was cancelled."""
        self.open_requests -= 1
        if succeeded is not None:
            self.succeeded.append(succeeded)

    @property
    def is_over(self) -> bool:
        """Whether all requests have ended."""
        return not self.open_requests


_Started = asyncio.Future[tuple[ServedRequest, Execution]]


class BatchDispatcher:
    """Resolves each request's service times as soon as its batch has started."""

    def __init__(
        self, service_model: ServiceModel, batch: Batch, now_ns: Callable[[], int] = time.monotonic_ns, make_alarm: MakeAlarm = make_alarm
    ) -> None:
        self._queue = SimulatedBatchQueue(service_model, batch)
        self._now_ns, self._make_alarm = now_ns, make_alarm
        self._alarm: Alarm | None = None
        self._waiting: set[_Started] = set()

    async def serve(self, arrived_ns: int, rows: int) -> tuple[ServedRequest, Execution]:
        """Wait until the request's batch starts. A cancelled request keeps its place in the simulation."""
        started: _Started = asyncio.get_running_loop().create_future()
        self._waiting.add(started)
        self._resolve(self._queue.arrive(ArrivedRequest(arrived_ns, rows, started)))
        self._set_alarm()
        # shielded, so that the batch of a cancelled request still resolves its future
        try:
            return await asyncio.shield(started)
        except asyncio.CancelledError:
            started.add_done_callback(_end_cancelled)
            raise

    @property
    def pending(self) -> int:
        """The number of requests whose batch has not started."""
        return len(self._queue)

    def close(self) -> None:
        """Release the alarm and cancel all waiting requests."""
        if self._alarm is not None:
            self._alarm.close()
        for started in self._waiting:
            started.cancel()
        self._waiting.clear()

    def _resolve(self, batches: Sequence[SimulatedBatch]) -> None:
        for batch in batches:
            execution = Execution(len(batch.members))
            for arrived, served in batch.members:
                self._waiting.discard(arrived.key)
                if not arrived.key.done():
                    arrived.key.set_result((served, execution))

    def _set_alarm(self) -> None:
        next_ns = self._queue.next_ns
        if next_ns is None:
            return
        if self._alarm is None:
            self._alarm = self._make_alarm(asyncio.get_running_loop(), self._ring)
        self._alarm.set(next_ns)

    def _ring(self) -> None:
        self._resolve(self._queue.advance(self._now_ns()))
        self._set_alarm()


def _end_cancelled(started: _Started) -> None:
    if not started.cancelled():
        started.result()[1].end_request(None)

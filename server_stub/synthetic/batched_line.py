"""Requests that wait for the service of their batch to begin, by the declared queue and an alarm."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence

from server_stub.synthetic.batches import Arrival, BatchedQueue, Service
from server_stub.synthetic.law import Batch, Law
from server_stub.synthetic.queue import Passage
from server_stub.timer import Alarm, MakeAlarm, make_alarm


@dataclasses.dataclass(slots=True)
class Execution:
    """One service and who is still in it, so that it is counted once, when the last of its requests leaves."""

    members: int
    answered: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    """Of those who left with an answer: when they arrived, and how many rows they had."""

    def leave(self, answered: tuple[int, int] | None) -> None:
        """One leaves; None where that was without an answer."""
        self.members -= 1
        if answered is not None:
            self.answered.append(answered)

    @property
    def is_over(self) -> bool:
        """Whether all have left."""
        return not self.members


_Place = asyncio.Future[tuple[Passage, Execution]]


class BatchedLine:
    """Tells every request its passage as soon as its batch is complete and a server has begun with it."""

    def __init__(self, law: Law, batch: Batch, now_ns: Callable[[], int] = time.monotonic_ns, make_alarm: MakeAlarm = make_alarm) -> None:
        self._queue = BatchedQueue(law, batch)
        self._now_ns, self._make_alarm = now_ns, make_alarm
        self._alarm: Alarm | None = None
        self._places: set[_Place] = set()

    async def serve(self, arrived_ns: int, rows: int) -> tuple[Passage, Execution]:
        """A request's way through the queue. Who leaves before takes part all the same: his rows were declared."""
        place: _Place = asyncio.get_running_loop().create_future()
        self._places.add(place)
        self._tell(self._queue.arrive(Arrival(arrived_ns, rows, place)))
        self._set_alarm()
        # shielded, so that who leaves is still told apart from who is served
        try:
            return await asyncio.shield(place)
        except asyncio.CancelledError:
            place.add_done_callback(_leave)
            raise

    @property
    def pending(self) -> int:
        """How many wait for a service to begin."""
        return len(self._queue)

    def close(self) -> None:
        """Ends the alarm, and the waiting."""
        if self._alarm is not None:
            self._alarm.close()
        for place in self._places:
            place.cancel()
        self._places.clear()

    def _tell(self, services: Sequence[Service]) -> None:
        for service in services:
            execution = Execution(len(service.members))
            for arrival, passage in service.members:
                self._places.discard(arrival.key)
                if not arrival.key.done():
                    arrival.key.set_result((passage, execution))

    def _set_alarm(self) -> None:
        next_ns = self._queue.next_ns
        if next_ns is None:
            return
        if self._alarm is None:
            self._alarm = self._make_alarm(asyncio.get_running_loop(), self._ring)
        self._alarm.set(next_ns)

    def _ring(self) -> None:
        self._tell(self._queue.advance(self._now_ns()))
        self._set_alarm()


def _leave(place: _Place) -> None:
    if not place.cancelled():
        place.result()[1].leave(None)

"""Requests that wait for the instant at which they depart: one alarm for all of them."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable

from server_stub.timer import MakeAlarm, make_alarm

SPIN_NS = 150_000
"""How long before a departure the alarm is set: a wake-up takes some tens of microseconds, the rest is spun away."""


class Departures:
    """Wakes every waiter at its instant of the monotonic clock, never before, and in the order of the instants."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns, make_alarm: MakeAlarm = make_alarm) -> None:
        self._now_ns = now_ns
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()  # who came first leaves first at the same instant
        self._loop = asyncio.get_running_loop()
        self._alarm = make_alarm(self._loop, self._ring)

    async def wait(self, departed_ns: int) -> None:
        """Returns when that instant has come."""
        future = self._loop.create_future()
        heapq.heappush(self._waiting, (departed_ns, next(self._numbers), future))
        if self._waiting[0][2] is future:
            self._alarm.set(departed_ns - SPIN_NS)
        await future

    def close(self) -> None:
        """Ends the alarm, and the waiting of those who still do."""
        self._alarm.close()
        for _, _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    def _ring(self) -> None:
        """Lets go who is due; between two rounds the loop sees to everything else, however close the next departure is."""
        if self._waiting and self._waiting[0][0] - self._now_ns() <= SPIN_NS:
            while (now_ns := self._now_ns()) < self._waiting[0][0]:
                pass
            while self._waiting and self._waiting[0][0] <= now_ns:
                _, _, future = heapq.heappop(self._waiting)
                if not future.done():  # its client may have left
                    future.set_result(None)
        if self._waiting:
            self._alarm.set(self._waiting[0][0] - SPIN_NS)

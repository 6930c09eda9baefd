"""A closed loop: a fixed number of slots, each of which sends its next request when the last one is answered."""

import asyncio
import dataclasses
from typing import Any

from perfkit.load.loop import Loop
from perfkit.load.tasks import any_of
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S

_FIRST_RETRY_NS, _LAST_RETRY_NS = 10_000_000, NS_PER_S


@dataclasses.dataclass(eq=False)
class ClosedLoop(Loop):
    """See `Loop`. Requests have no intended start, so that there is no response time.

    Worker k of n has the slots i ≡ k (mod n) of all `concurrency` slots.
    """

    _: dataclasses.KW_ONLY
    concurrency: int
    think_time_ns: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._remaining = self.phases.requests

    @property
    def in_flight(self) -> int:
        """See `Loop.in_flight`; thinking slots count."""
        return len(range(self.worker, self.concurrency, self.workers))

    def _start(self) -> "tuple[list[asyncio.Task[None]], asyncio.Future[Any]]":
        slots = [asyncio.ensure_future(self._slot(index)) for index in range(self.worker, self.concurrency, self.workers)]
        return slots, asyncio.gather(*slots)

    async def _slot(self, index: int) -> None:
        try:
            await self._send_in_turn(index)
        finally:
            self._stop_sending()

    async def _send_in_turn(self, index: int) -> None:
        send, on_reply, requests, count = self.transport.send, self.on_reply, self.requests, len(self.requests)
        is_plain = self._remaining is None and not self.think_time_ns
        failures, ok = 0, Outcome.OK
        while not self._stopping:
            if not is_plain and not await self._may_send():
                return
            reply = await send(requests[index % count])
            reply.variant = index % count
            on_reply(reply)
            index += self.concurrency
            if reply.outcome is ok:
                failures = 0
                self._unreachable = None
            elif self._note_contact(reply):
                failures = 0
            else:
                failures += 1
                await self._back_off(failures, reply.started_ns)

    async def _may_send(self) -> bool:
        """Waits for the think time, and takes one of the requests that remain in a counted window."""
        if self.think_time_ns:
            await any_of(self.clock.sleep_until_ns(self.clock.now_ns() + self.think_time_ns), self._draining.wait())
            if self._stopping:
                return False
        if self._remaining is not None and self.clock.now_ns() >= self.phases.window_start_ns:
            if self._remaining == 0:
                return False
            self._remaining -= 1
        return True

    async def _back_off(self, failures: int, started_ns: int) -> None:
        """Waits longer after each consecutive failure, from its start: a transport may have delayed the attempt itself."""
        if failures == 1 or self._stopping:
            return  # a stale connection is replaced at once
        pause_ns = min(_FIRST_RETRY_NS << min(failures - 2, 10), _LAST_RETRY_NS)
        await any_of(self.clock.sleep_until_ns(started_ns + pause_ns), self._draining.wait())

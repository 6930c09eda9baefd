"""A closed loop: a fixed number of slots, each of which sends its next request when the last one is answered."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from perfkit.clock import Clock
from perfkit.load.loop import Loop, Phases
from perfkit.load.tasks import any_of, cancelled_at_the_end
from perfkit.transport.base import Outcome, Prepared, Reply, Transport
from perfkit.units import NS_PER_S

_FIRST_RETRY_NS, _LAST_RETRY_NS = 10_000_000, NS_PER_S


class ClosedLoop(Loop):
    """See `Loop`. Requests have no intended start, so that there is no response time.

    Worker k of n has the slots i ≡ k (mod n) of all `concurrency` slots.
    """

    def __init__(
        self,
        transport: Transport,
        requests: Sequence[Prepared],
        on_reply: Callable[[Reply], None],
        *,
        concurrency: int,
        phases: Phases,
        clock: Clock,
        think_time_ns: int = 0,
        worker: int = 0,
        workers: int = 1,
    ) -> None:
        super().__init__(transport, phases, clock)
        self._requests = requests
        self._on_reply = on_reply
        self._concurrency = concurrency
        self._slots = range(worker, concurrency, workers)
        self._think_time_ns = think_time_ns
        self._remaining = phases.requests

    def _sending(self) -> contextlib.AbstractAsyncContextManager["asyncio.Future[Any]"]:
        slots = [asyncio.ensure_future(self._slot(index)) for index in self._slots]
        return cancelled_at_the_end(slots, asyncio.gather(*slots))

    async def _slot(self, index: int) -> None:
        try:
            await self._send_in_turn(index)
        finally:
            self._stop_sending()

    async def _send_in_turn(self, index: int) -> None:
        send, on_reply, requests, count = self._transport.send, self._on_reply, self._requests, len(self._requests)
        is_plain = self._remaining is None and not self._think_time_ns
        failures, ok = 0, Outcome.OK
        while not self._stopping:
            if not is_plain and not await self._may_send():
                return
            reply = await send(requests[index % count])
            reply.variant = index % count
            on_reply(reply)
            index += self._concurrency
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
        if self._think_time_ns:
            await any_of(self._clock.sleep_until_ns(self._clock.now_ns() + self._think_time_ns), self._draining.wait())
            if self._stopping:
                return False
        if self._remaining is not None and self._clock.now_ns() >= self._phases.window_start_ns:
            if self._remaining == 0:
                return False
            self._remaining -= 1
        return True

    async def _back_off(self, failures: int, started_ns: int) -> None:
        """Waits longer after each consecutive failure, from its start: a transport may have delayed the attempt itself."""
        if failures == 1 or self._stopping:
            return  # a stale connection is replaced at once
        pause_ns = min(_FIRST_RETRY_NS << min(failures - 2, 10), _LAST_RETRY_NS)
        await any_of(self._clock.sleep_until_ns(started_ns + pause_ns), self._draining.wait())

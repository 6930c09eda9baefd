"""A closed loop: a fixed number of slots, each sending its next request when the last one is answered."""

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from perfkit.clock import Clock
from perfkit.load.phases import Phases
from perfkit.transport.base import Outcome, Prepared, Reply, Transport
from perfkit.units import NS_PER_S

_FIRST_RETRY_NS, _LAST_RETRY_NS = 10_000_000, NS_PER_S
_LOST_AFTER_NS = 3 * NS_PER_S
_NO_CONTACT = (Outcome.CONNECT_FAILED, Outcome.BROKEN)


@dataclasses.dataclass(slots=True)
class Ending:
    """How a loop ended: at `stopped_ns` no more requests were sent; `reason` is empty where that was the plan."""

    stopped_ns: int = 0
    reason: str = ""
    target_lost: bool = False


class ClosedLoop:
    """Runs one load point. `stop` ends it early, `stop(drain=False)` without awaiting the answers."""

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
    ) -> None:
        self.ending = Ending()
        self._transport = transport
        self._requests = requests
        self._on_reply = on_reply
        self._concurrency = concurrency
        self._phases = phases
        self._clock = clock
        self._think_time_ns = think_time_ns
        self._left = phases.requests
        self._stopping = False
        self._draining = asyncio.Event()
        self._drain_at_once = asyncio.Event()
        self._unreached: tuple[int, str] | None = None

    async def run(self) -> Ending:
        """Sends until the window ends, then awaits the answers for as long as the phases allow."""
        slots = [asyncio.ensure_future(self._slot(index)) for index in range(self._concurrency)]
        sent = asyncio.gather(*slots)
        window = asyncio.ensure_future(self._end_window())
        try:
            await self._draining.wait()
            drained = self._clock.sleep_until_ns(self._clock.now_ns() + self._phases.drain_ns)
            await self._any_of(drained, self._drain_at_once.wait(), also=sent)
            if not sent.done():
                self._transport.abandon()
            await sent
        finally:  # also when this is cancelled, or a slot raised: nobody goes on sending
            self._stop_sending()
            for task in (window, *slots):
                task.cancel()
        if self._unreached and not self.ending.reason:  # the window was too short to be sure: its end is taken for it
            self.ending.reason, self.ending.target_lost = self._unreached[1], True
        return self.ending

    def stop(self, reason: str, *, drain: bool = True, target_lost: bool = False) -> None:
        """Ends the point now; `target_lost` says that the server is gone."""
        if not self.ending.reason:  # also while it drains as planned
            self.ending.reason, self.ending.target_lost = reason, target_lost
        self._stop_sending()
        if not drain:
            self._drain_at_once.set()

    async def stopped(self) -> None:
        """Returns when no more requests are sent."""
        await self._draining.wait()

    def _stop_sending(self) -> None:
        if not self._stopping:
            self._stopping = True
            self.ending.stopped_ns = self._clock.now_ns()
        self._draining.set()

    async def _end_window(self) -> None:
        if self._phases.window_end_ns is not None:
            await self._clock.sleep_until_ns(self._phases.window_end_ns)
            self._stop_sending()

    async def _slot(self, index: int) -> None:
        try:
            await self._send_in_turn(index)
        finally:
            self._stop_sending()

    async def _send_in_turn(self, index: int) -> None:
        send, on_reply, requests, count = self._transport.send, self._on_reply, self._requests, len(self._requests)
        plain = self._left is None and not self._think_time_ns
        failures, ok = 0, Outcome.OK
        while not self._stopping:
            if not plain and not await self._may_send():
                return
            reply = await send(requests[index % count])
            on_reply(reply)
            index += self._concurrency
            if reply.outcome is ok or reply.outcome not in _NO_CONTACT:
                failures = 0
                self._unreached = None
            else:
                failures += 1
                await self._back_off(reply, failures)

    async def _may_send(self) -> bool:
        """Thinks, and takes one of the requests that a counted window has left."""
        if self._think_time_ns:
            await self._any_of(self._clock.sleep_until_ns(self._clock.now_ns() + self._think_time_ns), self._draining.wait())
            if self._stopping:
                return False
        if self._left is not None and self._clock.now_ns() >= self._phases.window_start_ns:
            if self._left == 0:
                return False
            self._left -= 1
        return True

    async def _back_off(self, reply: Reply, failures: int) -> None:
        """Waits longer after each failure in a row, and gives the target up when nothing reached it for a while."""
        now_ns = self._clock.now_ns()
        if reply.outcome is Outcome.CONNECT_FAILED:
            self._unreached = self._unreached or (now_ns, reply.error)
            if now_ns - self._unreached[0] >= _LOST_AFTER_NS:
                self.stop(reply.error, target_lost=True)
        if failures == 1 or self._stopping:
            return  # a connection that went stale is opened again at once
        pause_ns = min(_FIRST_RETRY_NS << min(failures - 2, 10), _LAST_RETRY_NS)
        await self._any_of(self._clock.sleep_until_ns(now_ns + pause_ns), self._draining.wait())

    @staticmethod
    async def _any_of(*waits: Coroutine[Any, Any, object], also: "asyncio.Future[Any] | None" = None) -> None:
        """Returns when one is done; the coroutines, not `also`, are cancelled then."""
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait([*tasks, also] if also else tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

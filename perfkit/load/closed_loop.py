"""A closed loop: a fixed number of slots, each of which sends its next request when the last one is answered; and a loop with idle gaps."""

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from perfkit.load.loop import Loop, any_of
from perfkit.override import override
from perfkit.transport.base import DirectSender, Outcome, Reply, Transport
from perfkit.units import NS_PER_S

_UNCOUNTED, _COUNTED = 1, 2
_OK = Outcome.OK  # an enum's attribute lookup costs more than the comparison
_FIRST_RETRY_NS, _LAST_RETRY_NS = 10_000_000, NS_PER_S


@dataclasses.dataclass(eq=False)
class ClosedLoop(Loop):
    """A `Loop` whose requests have no intended start, so that there is no response time.

    Worker k of n has the slots i ≡ k (mod n) of all `concurrency` slots. Slot i sends the requests i, i + concurrency, and so on; with
    `has_shared_queue` the slots of a worker take their requests from one queue, so that quick requests are not sent more often. With
    `ramp_ns` the slots from `start` on begin within the window, one after the other at equal intervals, so that each number of requests in flight lasts equally long.
    """

    _: dataclasses.KW_ONLY
    concurrency: int
    think_time_ns: int = 0
    has_shared_queue: bool = False
    start: int = 0
    ramp_ns: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._remaining = self.phases.requests
        self._unanswered = 0
        self._waiting = 0
        self._shared_indices = itertools.count(self.worker, self.workers)

    @property
    @override
    def in_flight(self) -> int:
        """Slots in their think time count."""
        return len(range(self.worker, self.concurrency, self.workers)) - self._waiting

    @property
    @override
    def unanswered(self) -> int:
        return self._unanswered

    def _start(self) -> "tuple[list[asyncio.Task[None]], asyncio.Future[Any]]":
        slots = [asyncio.ensure_future(self._slot(index)) for index in range(self.worker, self.concurrency, self.workers)]
        return slots, asyncio.gather(*slots)

    async def _slot(self, index: int) -> None:
        try:
            if self.ramp_ns and index >= self.start:
                await self._reach(index)
            await self._send_requests(self._shared_indices if self.has_shared_queue else itertools.count(index, self.concurrency))
        finally:
            self._stop_sending()

    async def _reach(self, index: int) -> None:
        """Waits until the ramp reaches this slot, or the load ends."""
        after_ns = self.ramp_ns * (index + 1 - self.start) // (self.concurrency - self.start + 1)
        self._waiting += 1
        await any_of(self.clock.sleep_until_ns(self.phases.window_start_ns + after_ns), self._draining.wait())
        self._waiting -= 1

    async def _send_requests(self, indices: Iterator[int]) -> None:
        transport, is_plain = self.transport, self._remaining is None and not self.think_time_ns
        failures, permit = 0, _COUNTED
        while not self._stopping:
            if not is_plain and not (permit := await self._may_send()):
                return
            self._unanswered += 1
            if is_plain and isinstance(transport, DirectSender):
                direct = _DirectRequests(self, transport, indices)
                reply = await direct.last
                failures = 0 if direct.were_ok else failures
            else:
                variant = next(indices) % len(self.requests)
                reply = await transport.send(self.requests[variant])
                reply.variant = variant
                self.on_reply(reply)
            self._unanswered -= 1
            if permit == _UNCOUNTED and self._remaining and reply.started_ns >= self.phases.window_start_ns:
                self._remaining -= 1  # permitted in the warm-up, but sent in the window
            if self._note_contact(reply):
                failures = 0
            else:
                failures += 1
                await self._back_off(failures, reply.started_ns)

    async def _may_send(self) -> int:
        """Waits for the think time, and takes one of the requests that remain in a counted window; 0 if nothing more is to be sent."""
        if self.think_time_ns:
            await any_of(self.clock.sleep_until_ns(self.clock.now_ns() + self.think_time_ns), self._draining.wait())
            if self._stopping:
                return 0
        if self._remaining is None or self.clock.now_ns() < self.phases.window_start_ns:
            return _UNCOUNTED
        if self._remaining == 0:
            return 0
        self._remaining -= 1
        return _COUNTED

    async def _back_off(self, failures: int, started_ns: int) -> None:
        """Waits longer after each consecutive failure, from its start: a transport may have delayed the attempt itself."""
        if failures == 1 or self._stopping:
            return  # a stale connection is replaced at once
        pause_ns = min(_FIRST_RETRY_NS << min(failures - 2, 10), _LAST_RETRY_NS)
        await any_of(self.clock.sleep_until_ns(started_ns + pause_ns), self._draining.wait())


class _DirectRequests:
    """The requests of a slot, each sent as soon as the answer to the last one is read: a coroutine would run only in the event loop's next turn.

    That turn would take as long as all other work on a small request. `last` resolves with the first reply that is not OK, or that comes
    when the loop is stopping.
    """

    __slots__ = ("_count", "_indices", "_loop", "_on_reply", "_requests", "_submit", "_variant", "done", "last", "were_ok")

    def __init__(self, loop: ClosedLoop, transport: DirectSender, indices: Iterator[int]) -> None:
        self._loop, self._submit, self._indices = loop, transport.submitter(), indices
        self._requests, self._count, self._on_reply = loop.requests, len(loop.requests), loop.on_reply
        self.last: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.done = self.last.done  # also if the slot is cancelled
        self.were_ok = False
        """Whether requests before the last one were OK."""
        self._variant = next(indices) % self._count
        self._submit(self._requests[self._variant], self)

    def set_exception(self, error: BaseException) -> None:
        """Ends the slot with an error of perfkit's own."""
        self.last.set_exception(error)

    def set_result(self, reply: Reply) -> None:
        """Takes the reply, and sends the next request of the slot if it is OK."""
        loop = self._loop
        try:
            reply.variant = self._variant
            on_reply = self._on_reply  # by way of a local (docs/architecture.md)
            on_reply(reply)
            if reply.outcome is _OK and not loop._stopping:  # noqa: SLF001 - of this module
                loop._unreachable = None  # noqa: SLF001 - of this module
                self.were_ok = True
                submit = self._submit
                self._variant = variant = next(self._indices) % self._count
                submit(self._requests[variant], self)
            else:
                self.last.set_result(reply)
        except Exception as error:  # noqa: BLE001 - raised in a transport's callback it would be lost: the slot raises it
            self.last.set_exception(error)


# as in the distributions: answers, and requests without an answer at their age
_TIMED = (Outcome.OK, Outcome.INVALID_OUTPUT, Outcome.TIMED_OUT, Outcome.UNFINISHED)


@dataclasses.dataclass(eq=False)
class IdleLoop(ClosedLoop):
    """A closed loop with one request in flight, which pauses for `gap_ns` before every `then` + 1 requests.

    It begins with `then` requests, so that the first gap is one of a connection that has been used. `add_time` gets the name, the start
    and the length of each request's time, from the call of the transport, so that connecting anew is part of it: `after_gap_time` for the
    first request after a gap, `following_time` for the others. `on_reconnect` gets the start of the first request after a gap if a
    connection was opened in the gap or for this request.
    """

    transport: Transport
    _: dataclasses.KW_ONLY
    add_time: Callable[[str, int, int], None]
    on_reconnect: Callable[[int], None]
    gap_ns: int
    then: int
    concurrency: int = 1

    async def _send_requests(self, indices: Iterator[int]) -> None:
        counts, failures, until_gap = self.transport.counts, 0, self.then
        while not self._stopping:
            is_after_gap, opened = not until_gap, counts.opened
            if is_after_gap:
                await any_of(self.clock.sleep_until_ns(self.clock.now_ns() + self.gap_ns), self._draining.wait())
            if self._stopping or not await self._may_send():
                return
            begun_ns = self.clock.now_ns()
            variant = next(indices) % len(self.requests)
            self._unanswered += 1
            reply = await self.transport.send(self.requests[variant])
            self._unanswered -= 1
            reply.variant = variant
            self.on_reply(reply)
            self._add_times(reply, begun_ns, is_after_gap=is_after_gap, has_reconnected=counts.opened > opened)
            until_gap = self.then if is_after_gap else until_gap - 1
            failures = 0 if self._note_contact(reply) else failures + 1
            if failures:
                await self._back_off(failures, reply.started_ns)

    def _add_times(self, reply: Reply, begun_ns: int, *, is_after_gap: bool, has_reconnected: bool) -> None:
        if reply.outcome not in _TIMED:
            return
        self.add_time("after_gap_time" if is_after_gap else "following_time", reply.started_ns, reply.finished_ns - begun_ns)
        if is_after_gap and has_reconnected:
            self.on_reconnect(reply.started_ns)

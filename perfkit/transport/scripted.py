"""A transport without a network: answers follow a script, on any clock. For tests and virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perfkit.clock import Clock
from perfkit.errors import ProtocolError
from perfkit.transport.base import ConnectionCounts, OneAddress, Outcome, Prepared, Reply

_WITHOUT_ERROR = (Outcome.OK, Outcome.UNFINISHED)


class ScriptedTransport(OneAddress):
    """`script` returns the service time in nanoseconds and the outcome of request n, counted from 0."""

    def __init__(self, clock: Clock, script: Callable[[int], tuple[int, Outcome]]) -> None:
        self.counts = ConnectionCounts()
        self.sent = 0
        self.in_flight_max = 0
        self._clock = clock
        self._script = script
        self._in_flight: set[asyncio.Future[Outcome]] = set()

    async def open(self, connections: int) -> None:
        self.counts.opened += connections

    def prepare(self, call: Any) -> Prepared:
        """A call has no bytes."""
        return Prepared(())

    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        """The header alone."""
        return prepared.with_header("traceparent", traceparent)

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        index, self.sent = self.sent, self.sent + 1
        return self._answer(*self._script(index))

    def send_leaving(self, prepared: Prepared, after_responses: int) -> "asyncio.Future[Reply]":
        """No answer is a stream."""
        return asyncio.ensure_future(self._answer_or_leave(self.send(prepared)))

    def give_up(self, reply: "asyncio.Future[Reply]") -> None:
        """Cancels the request."""
        reply.cancel()

    async def _answer_or_leave(self, answer: Awaitable[Reply]) -> Reply:
        started_ns = self._clock.now_ns()
        try:
            return await answer
        except asyncio.CancelledError:
            return Reply(Outcome.UNFINISHED, started_ns, self._clock.now_ns())

    def abandon(self) -> None:
        for ended in self._in_flight:
            if not ended.done():
                ended.set_result(Outcome.UNFINISHED)

    def answer(self, reply: Reply) -> Any:
        """No answer has contents."""
        raise ProtocolError(reply.error)

    def retry_after_ns(self, reply: Reply) -> int | None:
        """No answer asks for a pause."""
        return None

    def received(self, reply: Reply) -> bytes:
        """No answer has contents."""
        return b""

    def raw_failure(self, reply: Reply) -> str:
        return reply.error

    async def aclose(self) -> None:
        self.abandon()

    async def _answer(self, service_time_ns: int, outcome: Outcome) -> Reply:
        started_ns = self._clock.now_ns()
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._in_flight.add(ended)
        self.in_flight_max = max(self.in_flight_max, len(self._in_flight))
        served = asyncio.ensure_future(self._clock.sleep_until_ns(started_ns + service_time_ns))
        served.add_done_callback(lambda _: None if ended.done() else ended.set_result(outcome))
        try:
            result = await ended
            return Reply(result, started_ns, self._clock.now_ns(), None, "" if result in _WITHOUT_ERROR else result.value)
        finally:
            self._in_flight.discard(ended)
            served.cancel()

"""What the wire engine's transports share: each hands its requests to a connection pool."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic

from perfkit.override import override
from perfkit.transport.base import ConnectionCounts, DirectSender, Prepared, Reply, ReplyReceiver
from perfkit.transport.future_replies import LeavingReply
from perfkit.transport.pool import C, ConnectionPool


class PooledTransport(DirectSender, Generic[C]):
    """The `Transport` methods that a pool serves; subclasses set `_pool`, and `_streams` for requests that are streams.

    With `_streams`, `_pool` is for all other calls.
    """

    _pool: ConnectionPool[C]
    _streams: ConnectionPool[Any] | None = None

    @property
    def counts(self) -> ConnectionCounts:
        return (self._streams or self._pool).counts

    @property
    def queued(self) -> int:
        return (self._streams or self._pool).queued

    async def open(self, connections: int) -> None:
        await (self._streams or self._pool).open(connections)

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        return (self._streams or self._pool).send(prepared)

    def submit(self, prepared: Prepared, reply: ReplyReceiver) -> None:
        (self._streams or self._pool).submit(prepared, reply)

    @override
    def submitter(self) -> Callable[[Prepared, ReplyReceiver], None]:
        return (self._streams or self._pool).submit

    def send_leaving(self, prepared: Prepared, after_responses: int) -> "asyncio.Future[Reply]":
        reply = LeavingReply()
        reply.after_responses = after_responses
        self.submit(prepared, reply)
        return reply

    def give_up(self, reply: "asyncio.Future[Reply]") -> None:
        (self._streams or self._pool).give_up(reply)

    def abandon(self) -> None:
        for pool in (self._streams, self._pool):
            if pool is not None:
                pool.abandon()

    async def aclose(self) -> None:
        for pool in (self._streams, self._pool):
            if pool is not None:
                pool.close()
        await asyncio.sleep(0)  # lets the connections' last callbacks run

"""What the wire engine's transports share: requests go out on connections of a pool."""

import asyncio
from collections.abc import Awaitable
from typing import Generic

from perfkit.transport.base import ConnectionCounts, Prepared, Reply
from perfkit.transport.pool import C, ConnectionPool


class PooledTransport(Generic[C]):
    """The calls of `Transport` that are the pool's; an engine makes the pool."""

    _pool: ConnectionPool[C]

    @property
    def counts(self) -> ConnectionCounts:
        """See `Transport.counts`."""
        return self._pool.counts

    async def open(self, connections: int) -> None:
        """See `Transport.open`."""
        await self._pool.open(connections)

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        """See `Transport.send`."""
        reply: asyncio.Future[Reply] = self._pool.loop.create_future()
        connection = self._pool.take()
        if connection is None:
            self._pool.line_up(prepared.buffers, reply)
        else:
            connection.send(prepared.buffers, reply)
        return reply

    def abandon(self) -> None:
        """See `Transport.abandon`."""
        self._pool.abandon()

    async def aclose(self) -> None:
        """See `Transport.aclose`."""
        self._pool.close()
        await asyncio.sleep(0)  # the connections' last callbacks run

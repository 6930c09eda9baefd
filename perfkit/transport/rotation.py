"""Connections that are replaced after a number of requests or a time, as many clients and proxies do."""

import dataclasses
import ssl
from collections.abc import Callable
from typing import Any

from perfkit.override import override
from perfkit.target.address import Address
from perfkit.transport.options import Rotation, TransportOptions
from perfkit.transport.pool import C, ConnectionPool, QueuedRequest
from perfkit.transport.resolution import attributed, register_peers


@dataclasses.dataclass(slots=True)
class _Use:
    opened_ns: int
    requests: int = 0


class RotatingPool(ConnectionPool[C]):
    """A pool that closes a connection once its requests, or its time, are used up and the last of its requests is answered.

    The next one is opened when a request needs it. Until it is closed, the old one counts towards `max_connections`.
    """

    def __init__(
        self,
        address: Address,
        options: TransportOptions,
        now_ns: Callable[[], int],
        context: ssl.SSLContext | None,
        make: Callable[[ConnectionPool[C]], C],
        rotation: Rotation,
    ) -> None:
        super().__init__(address, options, now_ns, context, make)
        self._rotation = rotation
        self._uses: dict[C, _Use] = {}
        self._rotating: set[C] = set()

    @override
    async def connect(self) -> C:
        connection = await super().connect()
        self._uses[connection] = _Use(self.now_ns())
        return connection

    @override
    def take(self) -> C | None:
        """Counts a request of the connection."""
        while (connection := super().take()) is not None:
            if self._is_too_old(connection):
                self._begin_rotation(connection)
                connection.close_when_idle()
            else:
                self._count_request(connection)
                return connection
        return None

    @override
    def release(self, connection: C) -> None:
        if connection in self._uses and connection not in self._rotating and self._is_too_old(connection):
            self._begin_rotation(connection)
        if connection in self._rotating:
            connection.close_when_idle()
        else:
            super().release(connection)

    @override
    def remove(self, connection: C) -> None:
        """A rotated connection is not a lost one."""
        self._uses.pop(connection, None)
        if connection in self._rotating:
            self._rotating.discard(connection)
            self._connections.discard(connection)
            self._open_missing()
        else:
            super().remove(connection)

    @override
    def _send_next(self, connection: C, request: QueuedRequest) -> None:
        self._count_request(connection)
        super()._send_next(connection, request)

    def _is_too_old(self, connection: C) -> bool:
        limit_ns = self._rotation.max_age_ns
        return limit_ns is not None and self.now_ns() - self._uses[connection].opened_ns >= limit_ns

    def _count_request(self, connection: C) -> None:
        use = self._uses[connection]
        use.requests += 1
        if use.requests == self._rotation.max_requests:
            self._begin_rotation(connection)

    def _begin_rotation(self, connection: C) -> None:
        self._rotating.add(connection)
        self._idle = [idle for idle in self._idle if idle is not connection]
        self.counts.rotated += 1
        connection.retire()


def make_pool(
    address: Address,
    options: TransportOptions,
    now_ns: Callable[[], int],
    context: ssl.SSLContext | None,
    kind: type[C],
    *arguments: Any,
) -> ConnectionPool[C]:
    """The pool that the options ask for; its connections are made of the class `kind` with the pool and these arguments."""
    made: Callable[..., C] = attributed(kind) if options.peers else kind

    def make(pool: ConnectionPool[C]) -> C:
        return made(pool, *arguments)

    if options.rotation is None:
        pool = ConnectionPool(address, options, now_ns, context, make)
    else:
        pool = RotatingPool(address, options, now_ns, context, make, options.rotation)
    register_peers(pool.counts, address, options.peers)
    return pool

"""The addresses behind a target's name, which of them each connection reached, and connections that are replaced, to reach others.

They are replaced after a number of requests or a time, as by many clients and proxies.
"""

import asyncio
import collections
import dataclasses
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from perfkit.override import override
from perfkit.target.address import Address
from perfkit.transport.base import ConnectionCounts, Reply, ReplyReceiver
from perfkit.transport.options import Rotation, TransportOptions
from perfkit.transport.pool import C, ConnectionPool, PooledConnection, QueuedRequest

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""The IP addresses of a host and port; raises OSError."""


async def resolve_name(host: str, port: int) -> tuple[str, ...]:
    """The addresses in the order of the system's resolver, only those of the IP version that it prefers: a machine may have one of each."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found if entry[0] == found[0][0]))


async def with_peers(address: Address, options: TransportOptions, resolve: Resolve = resolve_name) -> TransportOptions:
    """The options with `peers`, the IP addresses to which connections may lead, if there are several.

    The reference engines do not show where a connection leads.
    """
    if options.engine == "reference" or options.resolve == "all" or address.replicas or not address.has_name:
        return options
    try:
        peers = await resolve(address.host, address.port)
    except OSError:  # which the first connection reports
        return options
    return dataclasses.replace(options, peers=peers) if len(peers) > 1 else options


def register_peers(counts: ConnectionCounts, address: Address, peers: Sequence[str]) -> None:
    """Names the addresses in `counts`, so that unused ones appear, too; the first stands for requests without a connection."""
    if peers:
        counts.by_address.update({str(address): 0}, **{str(dataclasses.replace(address, ip=ip)): 0 for ip in peers})


def count_peer(counts: ConnectionCounts, address: Address, ip: str) -> int:
    """Counts a connection to one of the addresses; its position in `counts.by_address`."""
    label = str(dataclasses.replace(address, ip=ip))
    counts.by_address[label] = counts.by_address.get(label, 0) + 1
    return list(counts.by_address).index(label)


class _Attributed:
    """Passes a reply on with the position of its address: for a request that is sent again, that of the last connection."""

    def __init__(self, receiver: ReplyReceiver, replica: int) -> None:
        self.receiver: ReplyReceiver = receiver.receiver if isinstance(receiver, _Attributed) else receiver
        self._replica = replica
        self.done, self.set_exception = receiver.done, receiver.set_exception

    def set_result(self, reply: Reply) -> None:
        """Passes it on."""
        reply.replica = self._replica
        self.receiver.set_result(reply)


def attributed(kind: type[C]) -> type[C]:
    """A subclass of a connection's class, whose replies name the address that the connection leads to."""
    return cast("type[C]", type(f"Attributed{kind.__name__}", (_AttributedConnection, kind), {}))


if TYPE_CHECKING:
    _Connection = PooledConnection
else:
    _Connection = object


class _AttributedConnection(_Connection):
    _pool: Any
    _wire: asyncio.Transport | None
    _replica = 0

    @override
    async def until_ready(self) -> None:
        await super().until_ready()
        peer = None if self._wire is None else self._wire.get_extra_info("peername")
        if peer is not None:
            self._replica = count_peer(self._pool.counts, self._pool.address, str(peer[0]))

    @override
    def send(self, buffers: Sequence[bytes], reply: ReplyReceiver) -> None:
        super().send(buffers, _Attributed(reply, self._replica))  # type: ignore[safe-super]  # the other base implements it

    @override
    def send_queued(self, buffers: Sequence[bytes], reply: ReplyReceiver, submitted_ns: int, started_ns: int | None) -> None:
        receiver = _Attributed(reply, self._replica)
        super().send_queued(buffers, receiver, submitted_ns, started_ns)  # type: ignore[safe-super]  # as above


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
        self._idle = collections.deque(idle for idle in self._idle if idle is not connection)
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

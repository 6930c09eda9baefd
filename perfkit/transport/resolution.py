"""The addresses behind a target's name, and which of them each connection reached."""

import asyncio
import dataclasses
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from perfkit.override import override
from perfkit.target.address import Address
from perfkit.transport.base import ConnectionCounts, Reply, ReplyReceiver
from perfkit.transport.options import TransportOptions
from perfkit.transport.pool import C, PooledConnection

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
        self.done = receiver.done

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

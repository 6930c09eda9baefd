"""A relay: a client's connection and the one to the server, and the bytes that pass between them as they are."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from perfkit.override import override
from perfkit.target.address import Address

CONNECTS_WITHIN_S = 10
_READ_BYTES = 2**16  # at once: so long do other connections wait for one that has more
_HIGH_WATER_BYTES = 2**15
# the control frames of HTTP/2 that follow an answer are shorter than any request
_SHORTEST_REQUEST_BYTES = 64
_space = memoryview(bytearray(_READ_BYTES))
"""Where all connections read, since what was read is passed on before the next read."""


class Listener(Protocol):
    """What is told of a relay."""

    def passed(self, relay: "Relay", data: bytes, read_ns: int, *, is_first: bool) -> None:
        """Bytes of the client were passed on, which were read at that instant; `is_first` if the server has sent the last ones before."""

    def exchanged(self, delay_ns: int) -> None:
        """The server has answered a client, whose bytes and the answer's first bytes were held for so long together."""

    def moved(self, relay: "Relay") -> None:
        """Something has passed, in either direction."""

    def unreachable(self, target: Address, error: OSError) -> None:
        """The server could not be connected to."""

    def ended(self, relay: "Relay") -> None:
        """Both connections are closed."""


class _Half(asyncio.BufferedProtocol):
    """One of a relay's two connections; what it receives goes to the other one."""

    def __init__(self, relay: "Relay", took: Callable[[bytes, int, int], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Half
        self.has_ended = False
        """Whether its peer sends no more."""
        self.is_lost = False
        self._relay, self._took = relay, took
        self._early: list[tuple[bytes, int, int]] = []
        self._early_bytes = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self.other.is_lost:
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self.other.pass_early()

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return _space

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self.receive(bytes(_space[:nbytes]))

    def receive(self, data: bytes) -> None:
        """Passes bytes on, once the other connection is there."""
        ready_since_ns, read_ns = self._relay.ready_since_ns(), self._relay.now_ns()
        other = self.other.transport
        if other is not None:
            other.write(data)
            self._took(data, read_ns, ready_since_ns)
            return
        self._early.append((data, read_ns, ready_since_ns))
        self._early_bytes += len(data)
        if self._early_bytes >= _READ_BYTES and self.transport is not None:
            self.transport.pause_reading()

    def pass_early(self) -> None:
        """Passes on what came before the other connection was there."""
        early, self._early = self._early, []
        assert self.other.transport is not None
        if self._early_bytes >= _READ_BYTES and self.transport is not None:
            self.transport.resume_reading()  # before the writing, which may pause it again
        for data, read_ns, ready_since_ns in early:
            self.other.transport.write(data)
            self._took(data, read_ns, ready_since_ns)
        if self.has_ended:
            self._end_other()

    @override
    def eof_received(self) -> bool:
        self.has_ended = True
        if self.other.transport is not None:
            self._end_other()
        return self.other.transport is None or not self.other.has_ended  # the other direction may go on

    def _end_other(self) -> None:
        other = self.other.transport
        assert other is not None
        if self.other.has_ended or not other.can_write_eof():
            other.close()
        elif not other.is_closing():
            other.write_eof()

    @override
    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if self.other.transport is not None:
            if error is None:
                self.other.transport.close()
            else:
                self.other.transport.abort()
        self._relay.half_lost()

    @override
    def pause_writing(self) -> None:
        self._hold(is_held=True)

    @override
    def resume_writing(self) -> None:
        self._hold(is_held=False)

    def _hold(self, *, is_held: bool) -> None:
        """Stops reading from one side while the other does not take the bytes."""
        source = self.other.transport
        if source is not None and not source.is_closing():
            (source.pause_reading if is_held else source.resume_reading)()


class Relay:
    """A client's connection, with its number, and the one to the server that is opened for it."""

    def __init__(
        self,
        number: int,
        target: Address,
        context: ssl.SSLContext | None,
        now_ns: Callable[[], int],
        ready_since_ns: Callable[[], int],
        listener: Listener,
    ) -> None:
        """`ready_since_ns` gives a lower bound of the instant since when the bytes that are read now could have been read."""
        self.number, self.now_ns, self.ready_since_ns = number, now_ns, ready_since_ns
        self.moved_ns = now_ns()
        """When anything passed last, or the client connected."""
        self._target, self._context, self._listener = target, context, listener
        self.client, self._server = _Half(self, self._client_sent), _Half(self, self._server_sent)
        self.client.other, self._server.other = self._server, self.client
        self._asked_bytes = self._asked_delay_ns = 0  # of the client, since the server's last bytes
        self._connecting = asyncio.ensure_future(self._connect())

    @property
    def may_await_answer(self) -> bool:
        """Whether the client has sent as much as a request has since the server's last bytes."""
        return self._asked_bytes >= _SHORTEST_REQUEST_BYTES

    async def _connect(self) -> None:
        loop, target, server_name = asyncio.get_running_loop(), self._target, None
        if self._context is not None and target.tls is not None:
            server_name = target.tls.server_name or target.host
        try:
            async with asyncio.timeout(CONNECTS_WITHIN_S):
                if target.socket_path:
                    await loop.create_unix_connection(lambda: self._server, target.socket_path)
                else:
                    await loop.create_connection(
                        lambda: self._server, target.host, target.port, ssl=self._context, server_hostname=server_name
                    )
        except OSError as error:  # a time-out, too
            self._listener.unreachable(self._target, error)
            self._server.is_lost = True
            if self.client.transport is not None:
                self.client.transport.abort()

    def close(self) -> None:
        """Ends both connections."""
        self._connecting.cancel()
        for half in (self.client, self._server):
            if half.transport is not None:
                half.transport.abort()

    def half_lost(self) -> None:
        """One of the connections is gone."""
        if self._server.transport is None:
            self._connecting.cancel()
        if self.client.is_lost and (self._server.is_lost or self._server.transport is None):
            self._listener.ended(self)

    def _client_sent(self, data: bytes, read_ns: int, ready_since_ns: int) -> None:
        self.moved_ns, is_first = self.now_ns(), not self._asked_bytes
        self._asked_bytes, self._asked_delay_ns = self._asked_bytes + len(data), self.moved_ns - ready_since_ns
        self._listener.moved(self)
        self._listener.passed(self, data, read_ns, is_first=is_first)

    def _server_sent(self, _data: bytes, _read_ns: int, ready_since_ns: int) -> None:
        self.moved_ns = self.now_ns()
        if self._asked_bytes:
            self._listener.exchanged(self._asked_delay_ns + self.moved_ns - ready_since_ns)
            self._asked_bytes = 0
        self._listener.moved(self)

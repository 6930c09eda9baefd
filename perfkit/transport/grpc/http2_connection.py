"""The HTTP/2 connection of the wire engine's gRPC: its socket, session, stream slots and end, whatever its streams carry."""

import abc
import asyncio
import os
import ssl
from collections.abc import Sequence
from typing import Any, cast

from perfkit.override import override
from perfkit.protocol import http2
from perfkit.protocol.http2 import HeaderBlockReader, Http2Error, LimitError
from perfkit.protocol.tensor import Buffer
from perfkit.transport.connect import CERTIFICATE_HINT
from perfkit.transport.grpc.messages import OWN_DEADLINE_SHARE, AnswerHeaders, parse_headers
from perfkit.transport.grpc.session import ClientSession, OwnLimitError, S, SessionListener
from perfkit.transport.options import AnswerLimit
from perfkit.transport.pool import ConnectionPool, PooledConnection
from perfkit.units import format_duration_ns

_WRITE_HIGH_WATER_BYTES = 1 << 20
_KIND_OFFSET, _HEADERS = 3, bytes((http2.HEADERS,))
_GOAWAY_TIMEOUT_S = 1.0


class _PipelinedWriter:
    """Writes large requests frame by frame while no other is in flight, so that the server reads one frame as the next is written.

    In a single write, client and server would take turns. The frames go to the socket itself, because uvloop joins what is written within a
    callback; what the socket does not take goes to the transport, as does all with other requests in flight: these use the waiting time,
    and a single write costs less.
    """

    def __init__(self, wire: asyncio.Transport, pool: ConnectionPool[Any]) -> None:
        self._wire, self._pool = wire, pool
        self._socket = wire.get_extra_info("socket").fileno()
        self._is_direct = False
        """Whether the transport has nothing left to write that would have to come first."""
        self.write = wire.write

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:
        if (
            bytes(list_of_data[0][_KIND_OFFSET : _KIND_OFFSET + 1]) == _HEADERS
        ):  # a new request, so that those before are written and answered
            self._is_direct = self._wire.get_write_buffer_size() == 0
        self._is_direct = self._is_direct and not self._pool.has_concurrent_requests
        position = 0
        while self._is_direct and position < len(list_of_data):
            end = (
                position + 2 if position else 2 + len(list_of_data) % 2
            )  # the head and the data of a frame, before them those of a request
            frame, position = list_of_data[position:end], end
            try:
                written = os.writev(self._socket, frame)
            except OSError:  # the socket is full, or gone, which the transport tells
                written = 0
            if written < sum(map(len, frame)):
                self._is_direct = False
                self._wire.write(b"".join(frame)[written:])
        if position < len(list_of_data):
            self._wire.writelines(list_of_data[position:])


class _JoiningWriter:
    """Joins buffers for TLS, which would make a record of each."""

    def __init__(self, wire: asyncio.Transport) -> None:
        self._wire = wire
        self.write = wire.write

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:
        self._wire.write(b"".join(list_of_data))


class Http2Connection(PooledConnection, SessionListener[S, AnswerHeaders]):
    """A connection with up to `max_streams` concurrent streams, which takes its stream slots from and returns them to the pool.

    `header_cache` holds header blocks parsed before, on any connection to this address. Each stream has `in_flight_per_stream`
    slots.
    """

    def __init__(
        self, pool: ConnectionPool[Any], max_streams: int, header_cache: dict[bytes, AnswerHeaders], in_flight_per_stream: int = 1
    ) -> None:
        self._pool = pool
        self._now_ns = pool.now_ns
        self._max_streams = max_streams
        self._in_flight_per_stream = in_flight_per_stream
        self._header_cache = header_cache
        self._ready: asyncio.Future[None] = pool.loop.create_future()
        self._wire: asyncio.Transport | None = None
        self._session: ClientSession[S, AnswerHeaders]
        self.stream_slots = 0  # offered to the pool; more than are allowed while the server reduces its limit
        self._allowed_slots = 0
        self._received_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    @override
    def answer_limit(self) -> AnswerLimit:
        return self._pool.answer_limit

    @override
    def now_ns(self) -> int:
        return self._now_ns()

    async def until_ready(self) -> None:
        """Waits for the server's settings."""
        await self._ready

    def retire(self) -> None:
        self.is_usable = False

    def close_when_idle(self) -> None:
        self.is_usable = False
        if self._is_idle:
            self.close()

    def close(self) -> None:
        self.is_usable = False
        if self._timer is not None:
            self._timer.cancel()
        if self._wire is not None:
            self._wire.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = wire = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it
        self.is_closing = wire.is_closing
        wire.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        writer = _JoiningWriter(wire) if wire.get_extra_info("ssl_object") else _PipelinedWriter(wire, self._pool)
        self._session = ClientSession(writer, self, HeaderBlockReader(parse_headers, self._header_cache))
        self._receive = self._session.receive
        self._session.open()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire = None
        reason = self._session.goaway_reason or str(exc or "")
        if not self._ready.done():
            tls = self._pool.address.tls
            hint = f"; {CERTIFICATE_HINT}" if tls and not tls.cert else ""
            early_close = ConnectionError(f"the server closed the connection at once{hint}")
            self._ready.set_exception(exc if isinstance(exc, ssl.SSLError) else early_close)
        self._end_all(f"the connection was closed before the answer was complete{f': {reason}' if reason else ''}")
        self.close()
        self._pool.remove(self)
        del self._session, self._receive  # the session refers to this connection

    def pause_writing(self) -> None:
        """Asyncio's callback: more waits to be written than `_WRITE_HIGH_WATER_BYTES`."""
        self._session.is_writing_paused = True

    def resume_writing(self) -> None:
        """Asyncio's callback: the server has read most of it."""
        self._session.is_writing_paused = False

    def eof_received(self) -> None:
        """`connection_lost` follows."""
        self.is_usable = False

    def data_received(self, data: bytes) -> None:
        now_ns, receive = self._now_ns, self._receive  # by way of a local (docs/architecture.md)
        self._received_ns = now_ns()  # before parsing, which is the client's time
        try:
            receive(data)
        except Http2Error as error:
            self._fail(error, data)

    def on_settings(self) -> None:
        if self._ready.done() and not self.is_usable:
            return  # the connection is closing
        self._allowed_slots = self._in_flight_per_stream * min(self._max_streams, self._session.max_concurrent_streams)
        if not self._ready.done():
            self.is_usable = True
            self.stream_slots = self._allowed_slots
            self._ready.set_result(None)
        elif self._allowed_slots < self.stream_slots:
            # the slots in use follow as their calls end
            self.stream_slots -= self._pool.withdraw_idle(self, self.stream_slots - self._allowed_slots)
        else:
            added, self.stream_slots = self._allowed_slots - self.stream_slots, self._allowed_slots
            for _ in range(added):
                self._pool.release(self)

    def on_goaway(self) -> None:
        self.is_usable = False
        self._pool.retire(self)
        self.close_when_idle()

    def _release(self) -> None:
        """Returns a request's stream slot to the pool, unless it is no longer allowed."""
        if not self.is_usable:
            self.close_when_idle()
        elif self.stream_slots > self._allowed_slots:
            self.stream_slots -= 1
        else:
            self._pool.release(self)

    def _fail(self, error: Http2Error, data: bytes = b"") -> None:
        """Ends all requests and says GOAWAY after the server violated HTTP/2 or a limit."""
        if not self._ready.done():
            spoken = "HTTP/1.1, not gRPC" if data.startswith(b"HTTP/1") else "a protocol other than HTTP/2"
            self._ready.set_exception(ConnectionError(f"the port speaks {spoken}"))
        text = str(error) if isinstance(error, LimitError) else f"the server violated HTTP/2: {error}"
        self._end_all(text, is_own_limit=isinstance(error, OwnLimitError))
        self._pool.retire(self)
        if self._wire is not None:
            self._wire.write(http2.goaway(error.code))
            self._wire.close()
            # a server that does not read would keep the connection and its buffer
            self._pool.loop.call_later(0 if self._session.is_writing_paused else _GOAWAY_TIMEOUT_S, self._wire.abort)

    def _describe_time_out(self) -> str:
        return f"no complete answer within {format_duration_ns(self._pool.timeout_ns)}"

    def _set_timer(self, delay_ns: int) -> None:
        # one timer per connection, set again only when it fires, so that a request needs none of its own
        self._timer = self._pool.loop.call_later(delay_ns / 1e9, self._check_deadlines)

    def _reset_timer(self) -> None:
        """Sets the timer to the earliest deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if submitted_ns := self._submitted_ns():
            self._set_timer(max(min(submitted_ns) + self._pool.timeout_ns - self._now_ns(), 0))

    def _check_deadlines(self) -> None:
        self._timer = None
        if self._end_timed_out(self._now_ns() - self._pool.timeout_ns) and self._session.is_writing_paused:
            self._fail(
                LimitError("the server does not read what is sent to it")
            )  # cancelled requests would pile up, whose bytes stay queued
        else:
            self._reset_timer()

    def _is_due(self, submitted_ns: int) -> bool:
        """Whether a server that ends a request has probably enforced our time-out, which it measures by its own clock."""
        return self._now_ns() - submitted_ns >= OWN_DEADLINE_SHARE * self._pool.timeout_ns

    @property
    def _is_idle(self) -> bool:
        """Whether no request is in flight."""
        return not self._session.streams

    @abc.abstractmethod
    def _end_all(self, error: str, *, is_own_limit: bool = False) -> None:
        """Ends all requests as broken; no more are taken."""

    @abc.abstractmethod
    def _submitted_ns(self) -> list[int]:
        """When the requests in flight were submitted."""

    @abc.abstractmethod
    def _end_timed_out(self, due_ns: int) -> bool:
        """Ends the requests that were submitted until `due_ns`; whether there were any."""

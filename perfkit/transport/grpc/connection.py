"""The wire engine for gRPC: calls as HTTP/2 streams of one connection, prepared bytes out, one future a request.

In the timed span an answer is read as far as its status; its message is left in the pieces in which it came.
"""

import asyncio
import ssl
from collections.abc import Sequence
from typing import cast

from perfkit.protocol import http2
from perfkit.protocol.http2 import BlockReader, Http2Error
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.grpc.messages import AnswerFields, is_whole, judge, read_fields
from perfkit.transport.grpc.session import ClientConnection
from perfkit.transport.grpc.stream import Listener, Stream
from perfkit.transport.pool import ConnectionPool, PooledConnection
from perfkit.units import format_duration_ns

_WRITE_HIGH_WATER_BYTES = 1 << 20
_LARGE_BYTES = 1 << 13
# a deadline that passes sooner than ours is the server's own
_OUR_DEADLINE_SHARE = 0.9
_OK = Outcome.OK  # reading an enum's member costs more than the rest of a reply


class Call(Stream[AnswerFields]):
    """A request in flight: what was sent, when it was asked for and sent first, and who waits for its reply."""

    __slots__ = ("asked_ns", "buffers", "is_repeated", "reply", "started_ns")

    def __init__(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", started_ns: int) -> None:
        self.buffers = buffers
        self.reply = reply
        self.asked_ns = self.started_ns = started_ns
        self.is_repeated = False
        self.head = None
        self.chunks = []
        self.received_bytes = 0


class _Prompt:
    """A connection's transport: while nothing else of its pool is in flight, a server reads a request's first frames as the next are written.

    Where a window's worth goes out in one write, server and client take turns, and a request of 602,112 B takes 1.5 times as
    long. Beside other requests the time is theirs, and one write costs less.
    """

    def __init__(self, wire: asyncio.Transport, pool: "ConnectionPool[GrpcConnection]") -> None:
        self._wire, self._pool = wire, pool
        self.write = wire.write

    def writelines(self, list_of_data: Sequence[bytes | memoryview]) -> None:
        wire = self._wire
        if not self._pool.is_quiet:
            wire.writelines(list_of_data)
            return
        first = 0
        for last, piece in enumerate(list_of_data, 1):
            if len(piece) > _LARGE_BYTES:
                wire.writelines(list_of_data[first:last])
                first = last
        if first < len(list_of_data):
            wire.writelines(list_of_data[first:])


class _Joined:
    """A TLS connection's transport: of many small buffers each would become a record."""

    def __init__(self, wire: asyncio.Transport) -> None:
        self._wire = wire
        self.write = wire.write

    def writelines(self, list_of_data: Sequence[bytes | memoryview]) -> None:
        self._wire.write(b"".join(list_of_data))


class GrpcConnection(PooledConnection, Listener[Call, AnswerFields]):
    """One connection with at most `most_calls` at a time; `pool` takes it back after each answer.

    `known` are header blocks read before, of all connections to this address.
    """

    is_usable = False  # whether there is room as well is the pool's to know

    def __init__(self, pool: "ConnectionPool[GrpcConnection]", most_calls: int, known: dict[bytes, AnswerFields]) -> None:
        self._pool = pool
        self._now_ns = pool.now_ns
        self._most_calls = most_calls
        self._known = known
        self._ready: asyncio.Future[None] = pool.loop.create_future()
        self._wire: asyncio.Transport | None = None
        self._http2: ClientConnection[Call, AnswerFields]
        self.room = self._allowed = 0  # calls that the pool has been given room for, and may be given
        self._received_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    async def until_ready(self) -> None:
        """See `PooledConnection.until_ready`: until the server's settings are there."""
        await self._ready

    def send(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]") -> None:
        """See `PooledConnection.send`."""
        if self._timer is None:
            self._watch(self._pool.timeout_ns)
        call = Call(buffers, reply, self._now_ns())
        self._http2.send(call, buffers)

    def send_late(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", asked_ns: int, started_ns: int | None) -> None:
        """See `PooledConnection.send_late`."""
        call = Call(buffers, reply, self._now_ns())
        call.asked_ns = asked_ns
        if started_ns is not None:
            call.started_ns, call.is_repeated = started_ns, True
        self._http2.send(call, buffers)
        self._watch_first(self._now_ns())  # the timer may be set to later than this request's end

    def abandon(self) -> None:
        """See `PooledConnection.abandon`."""
        self.is_usable = False
        for call in tuple(self._http2.streams.values()):
            self._http2.cancel(call)
            self._resolve(call, Outcome.UNFINISHED, "")
        self.close()

    def close(self) -> None:
        """See `PooledConnection.close`."""
        self.is_usable = False
        if self._timer is not None:
            self._timer.cancel()
        if self._wire is not None:
            self._wire.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's callback."""
        self._wire = wire = cast("asyncio.Transport", transport)  # uvloop's is none by class
        wire.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        writer = _Joined(wire) if wire.get_extra_info("ssl_object") else _Prompt(wire, self._pool)
        self._http2 = ClientConnection(writer, self, BlockReader(read_fields, self._known))
        self._http2.open()

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's callback."""
        self._wire = None
        why = self._http2.farewell or str(exc or "")
        if not self._ready.done():
            self._ready.set_exception(exc if isinstance(exc, ssl.SSLError) else ConnectionError(self._describe_early_end()))
        self._end_all(f"the connection was closed before the answer was complete{f': {why}' if why else ''}")
        self.close()
        self._pool.forget(self)

    def eof_received(self) -> None:
        """Asyncio's callback: the connection is about to be lost."""
        self.is_usable = False

    def data_received(self, data: bytes) -> None:
        """Asyncio's callback."""
        self._received_ns = self._now_ns()  # reading them is our time, not the server's
        try:
            self._http2.receive(data)
        except Http2Error as error:
            self._fail(error, data)

    def on_answer(self, stream: Call, trailers: AnswerFields | None) -> None:
        """See `http2_stream.Listener`."""
        if trailers is not None and trailers.is_ok and is_whole(stream.chunks):
            if not stream.reply.done():
                started_ns, received_ns = stream.started_ns, self._received_ns
                # a server may answer, in the bytes that are being read, what they made us ask
                finished_ns = received_ns if received_ns > started_ns else self._now_ns()
                stream.reply.set_result(Reply(_OK, started_ns, finished_ns, (stream.head, stream.chunks)))
            if self.is_usable and self.room == self._allowed:
                self._pool.give_back(self)
            else:
                self._release()
        else:
            outcome, error, status = judge(stream.head, trailers, stream.chunks)
            if status == "DEADLINE_EXCEEDED" and self._is_due(stream):
                outcome, status = Outcome.TIMED_OUT, ""
            self._end(stream, outcome, error, status)

    def on_reset(self, stream: Call, code: int) -> None:
        """See `http2_stream.Listener`."""
        if code == http2.CANCEL and self._is_due(stream):
            self._end(stream, Outcome.TIMED_OUT, self._describe_time_out())
        else:
            self._end(stream, Outcome.BROKEN, f"the stream was reset before the answer was complete ({http2.error_name(code)})")

    def on_untaken(self, stream: Call, why: str) -> None:
        """See `http2_stream.Listener`."""
        if stream.is_repeated:
            self._end(stream, Outcome.BROKEN, f"{why}, for the second time")
            return
        if not stream.reply.done():
            self._pool.send_again(stream.buffers, stream.reply, stream.asked_ns, stream.started_ns)
        self._release()

    def on_settings(self) -> None:
        """See `http2_stream.Listener`."""
        if self._ready.done() and not self.is_usable:
            return  # it came too late
        self._allowed = min(self._most_calls, self._http2.most_streams)
        if not self._ready.done():
            self.is_usable = True
            self.room = self._allowed
            self._ready.set_result(None)
        elif self._allowed < self.room:
            self.room -= self._pool.withdraw(self, self.room - self._allowed)  # the rest as calls end
        else:
            added, self.room = self._allowed - self.room, self._allowed
            for _ in range(added):
                self._pool.give_back(self)

    def on_goaway(self) -> None:
        """See `http2_stream.Listener`."""
        self.is_usable = False
        self._pool.retire(self)
        if not self._http2.streams:
            self.close()

    def _release(self) -> None:
        """After each call: its room goes back to the pool, or is no more."""
        if not self.is_usable:
            if not self._http2.streams:
                self.close()
        elif self.room > self._allowed:
            self.room -= 1
        else:
            self._pool.give_back(self)

    def _is_due(self, call: Call) -> bool:
        """Whether a server may end a call on our behalf: it was told our time-out, and counts it in its own way."""
        return self._now_ns() - call.asked_ns >= _OUR_DEADLINE_SHARE * self._pool.timeout_ns

    def _end(self, call: Call, outcome: Outcome, error: str, status: str = "") -> None:
        self._resolve(call, outcome, error, status)
        self._release()

    def _resolve(self, call: Call, outcome: Outcome, error: str, status: str = "") -> None:
        if not call.reply.done():
            call.reply.set_result(Reply(outcome, call.started_ns, self._now_ns(), None, error, status))

    def _end_all(self, error: str) -> None:
        self.is_usable = False
        calls = tuple(self._http2.streams.values())
        self._http2.streams.clear()
        for call in calls:
            self._resolve(call, Outcome.BROKEN, error)

    def _fail(self, error: Http2Error, data: bytes) -> None:
        """The server broke HTTP/2: it is told, and all ends that was in flight."""
        if not self._ready.done():
            what = "HTTP/1.1, not gRPC" if data.startswith(b"HTTP/1") else "no HTTP/2"
            self._ready.set_exception(ConnectionError(f"the port speaks {what}"))
        self._end_all(f"the server broke HTTP/2: {error}")
        self._pool.retire(self)
        if self._wire is not None:
            self._wire.write(http2.goaway(error.code))
            self._wire.close()

    def _describe_early_end(self) -> str:
        tls = self._pool.address.tls
        hint = ", as one does that asks for a client certificate (target.tls.cert)" if tls and not tls.cert else ""
        return f"the server closed the connection at once{hint}"

    def _describe_time_out(self) -> str:
        return f"no complete answer within {format_duration_ns(self._pool.timeout_ns)}"

    def _watch(self, delay_ns: int) -> None:
        # one timer a connection, set again only when it fires: a request costs no timer of its own
        self._timer = self._pool.loop.call_later(delay_ns / 1e9, self._check_deadlines)

    def _watch_first(self, now_ns: int) -> None:
        """Sets the timer to the end of the request that has the least time left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        calls = self._http2.streams.values()
        if calls:
            self._watch(max(min(call.asked_ns for call in calls) + self._pool.timeout_ns - now_ns, 0))

    def _check_deadlines(self) -> None:
        self._timer = None
        now_ns = self._now_ns()
        for call in tuple(self._http2.streams.values()):
            if now_ns - call.asked_ns >= self._pool.timeout_ns:
                self._http2.cancel(call)
                self._end(call, Outcome.TIMED_OUT, self._describe_time_out())
        self._watch_first(now_ns)

"""The wire engine for HTTP/1.1: prepared bytes out, httptools in, one future a request.

Nothing is parsed or decoded in the timed span beyond finding the end of the answer: the received chunks are kept as
they came, and read again by `read_answer` for the few answers that are looked at.
"""

import asyncio
import collections
import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import httptools

from perfkit.address import Address
from perfkit.errors import ProtocolError
from perfkit.transport.base import ConnectionCounts, Outcome, Reply
from perfkit.transport.rest import Answer
from perfkit.units import format_duration_ns

_WRITE_HIGH_WATER_BYTES = 1 << 20
_HANDED_OVER = 3
_OK, _REJECTED = Outcome.OK, Outcome.REJECTED  # reading an enum's member costs more than the rest of a reply


class _AnswerReader:
    """The callbacks with which httptools reads a whole response, without what announces it or stands behind it."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.answer: Answer | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def on_message_begin(self) -> None:
        self._headers, self._body = {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        if self.answer is None and status >= 200:
            self.answer = Answer(status, self._headers, b"".join(self._body))


def read_answer(chunks: list[bytes]) -> Answer:
    """Reads the chunks of one response; raises ProtocolError where they are not a whole one."""
    reader = _AnswerReader()
    try:
        for chunk in chunks:
            reader.parser.feed_data(chunk)
    except httptools.HttpParserError as error:
        if reader.answer is None:  # bytes behind a whole answer are not its own
            raise ProtocolError(f"the answer is not HTTP/1.1: {error}") from None
    if reader.answer is None:
        raise ProtocolError("the answer ends before its body does")
    return reader.answer


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request on it; `pool` takes it back after each answer."""

    def __init__(self, pool: "ConnectionPool") -> None:
        self._pool = pool
        self._now_ns = pool.now_ns
        self._wire: asyncio.Transport | None = None
        self._reply: asyncio.Future[Reply] | None = None
        self._chunks: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._buffers: Sequence[bytes] = ()
        self._started_ns = 0
        self._has_answered = self._is_repeated = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Open, and free of a request."""
        return self._wire is not None and self._reply is None and not self._wire.is_closing()

    def send(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", repeated_from_ns: int = 0) -> None:
        """Writes a request; `reply` is resolved when its answer is complete, it times out, or the connection is lost.

        `repeated_from_ns` is when it was sent first, on a connection that turned out to be stale.
        """
        assert self._wire is not None
        self._reply = reply
        self._buffers = buffers
        self._chunks = []
        if self._timer is None:
            self._watch(self._pool.timeout_ns)
        self._is_repeated = repeated_from_ns != 0
        self._started_ns = repeated_from_ns or self._now_ns()
        if len(buffers) == 1:
            self._wire.write(buffers[0])
        else:
            self._wire.writelines(buffers)

    def fail(self, outcome: Outcome, error: str) -> None:
        """Ends the request in flight, if any, and the connection with it: HTTP/1.1 cannot take a request back."""
        reply, self._reply = self._reply, None
        if reply is not None and not reply.done():
            reply.set_result(Reply(outcome, self._started_ns, self._now_ns(), None, error))
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        if self._timer is not None:
            self._timer.cancel()
        if self._wire is not None:
            self._wire.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's callback."""
        self._wire = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._wire.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's callback."""
        self._wire = None
        if self._reply is not None and not self._chunks and self._has_answered and not self._is_repeated:
            # kept alive, and closed by the server as the request was on its way: nothing says that it was read
            reply, self._reply = self._reply, None
            self._pool.send_again(self._buffers, reply, self._started_ns)
        self.fail(Outcome.BROKEN, f"the connection was closed before the answer was complete{f': {exc}' if exc else ''}")
        self._pool.forget(self)

    def data_received(self, data: bytes) -> None:
        """Asyncio's callback."""
        if self._reply is None:
            self.close()  # bytes nobody asked for: the next answer could not be told from them
            return
        self._chunks.append(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(Outcome.BROKEN, f"the answer is not HTTP/1.1: {error}")

    def on_message_begin(self) -> None:
        """The callback of httptools: a response begins, also right behind the answer in the same bytes."""
        if self._reply is None:
            self.close()  # nobody asked for it

    def on_message_complete(self) -> None:
        """The callback of httptools: the answer is whole."""
        reply, status = self._reply, self._parser.get_status_code()
        if reply is None or status < 200:
            return  # 100 Continue and its like announce the answer
        self._reply = None
        self._has_answered = True
        if not reply.done():
            reply.set_result(Reply(_OK if status == 200 else _REJECTED, self._started_ns, self._now_ns(), self._chunks))
        if self._parser.should_keep_alive():
            self._pool.give_back(self)
        else:
            self.close()

    def _watch(self, delay_ns: int) -> None:
        # one timer a connection, set again only when it fires: a request costs no timer of its own
        self._timer = self._pool.loop.call_later(delay_ns / 1e9, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._reply is None:
            return
        left_ns = self._started_ns + self._pool.timeout_ns - self._now_ns()
        if left_ns > 0:
            self._watch(left_ns)
        else:
            self.fail(Outcome.TIMED_OUT, f"no complete answer within {format_duration_ns(self._pool.timeout_ns)}")


class WaitedTooLongError(TimeoutError):
    """No connection became free within the time-out: the target is there, and busy."""


class ConnectionPool:
    """Connections to one address, the one used last first; at most `limit` of them. `context` where the address is encrypted."""

    def __init__(self, address: Address, limit: int, timeout_ns: int, now_ns: Callable[[], int], context: ssl.SSLContext | None) -> None:
        self.counts = ConnectionCounts()
        self.timeout_ns = timeout_ns
        self.now_ns = now_ns
        self.loop = asyncio.get_running_loop()
        self.is_abandoned = False
        self._address = address
        self._context = context
        self._limit = limit
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._opening = 0
        self._lost = 0
        self._waiting: collections.deque[asyncio.Future[Connection]] = collections.deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self) -> Connection | None:
        """An idle connection, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def take_or_connect(self) -> Connection:
        """The first connection that becomes free or is opened for those that wait, in their turn.

        Raises OSError: what opening one came to, TimeoutError after the time-out, ConnectionAbortedError when abandoned.
        """
        if (connection := self.take()) is not None:
            return connection
        for _ in range(_HANDED_OVER):  # one that is handed over may be lost before it is used
            if self.is_abandoned:
                raise ConnectionAbortedError
            freed: asyncio.Future[Connection] = self.loop.create_future()
            self._waiting.append(freed)
            self._grow()
            try:
                connection = await asyncio.wait_for(freed, self.timeout_ns / 1e9)
            except TimeoutError:
                if freed.cancelled() and self.counts.opened:  # otherwise the target takes no connection at all
                    raise WaitedTooLongError from None
                raise
            if connection.is_usable:
                return connection
        raise ConnectionResetError("the server closes connections at once")

    def send_again(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", started_ns: int) -> None:
        """Sends a request, which a stale connection did not take, on another one."""
        self.counts.retried += 1
        self._start(self._send_again(buffers, reply, started_ns))

    async def connect(self) -> Connection:
        """Opens one more connection, not idle yet; raises OSError."""
        connection = await asyncio.wait_for(self._open(), self.timeout_ns / 1e9)
        if not connection.is_usable:
            raise ConnectionResetError("the server closed the connection at once")
        self._all.add(connection)
        self.counts.opened += 1
        if self._lost:
            self._lost -= 1
            self.counts.reconnects += 1
        return connection

    async def _open(self) -> Connection:
        address = self._address
        server_name = (address.tls.server_name or address.host) if address.tls else None
        if address.socket_path:
            opened = self.loop.create_unix_connection(lambda: Connection(self), address.socket_path)
        else:
            opened = self.loop.create_connection(
                lambda: Connection(self), address.host, address.port, ssl=self._context, server_hostname=server_name
            )
        return (await opened)[1]

    def give_back(self, connection: Connection) -> None:
        """Hands a connection to who has waited longest, or keeps it."""
        while self._waiting:
            freed = self._waiting.popleft()
            if not freed.done():
                freed.set_result(connection)
                return
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """Takes a closed connection out of the pool."""
        if connection in self._all:
            self._all.discard(connection)
            self._lost += 1
        self._grow()

    def abandon(self) -> None:
        """Ends every request in flight as unfinished; those that wait for a connection get none any more."""
        self.is_abandoned = True
        for connection in tuple(self._all):
            if not connection.is_usable:
                connection.fail(Outcome.UNFINISHED, "")
        while self._waiting:
            self._refuse_one(ConnectionAbortedError())

    def close(self) -> None:
        """Closes every connection."""
        for task in tuple(self._tasks):
            task.cancel()
        for connection in tuple(self._all):
            connection.close()

    def _grow(self) -> None:
        """Opens a connection for each request that waits, as far as the limit goes."""
        if not self._waiting or len(self._all) + self._opening >= self._limit:
            return  # before those that wait are counted, who may be many
        waiting = sum(not freed.done() for freed in self._waiting)
        while self._opening < waiting and len(self._all) + self._opening < self._limit:
            self._opening += 1
            self._start(self._add())

    async def _add(self) -> None:
        try:
            connection = await self.connect()
        except OSError as error:
            self._opening -= 1
            self._refuse_one(error)
            self._grow()
        else:
            self._opening -= 1
            self.give_back(connection)

    async def _send_again(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", started_ns: int) -> None:
        try:
            connection = await self.take_or_connect()
        except OSError as error:
            outcome = Outcome.UNFINISHED if self.is_abandoned else Outcome.BROKEN
            if not reply.done():
                reply.set_result(
                    Reply(outcome, started_ns, self.now_ns(), None, f"the connection was closed, and no other opened: {error}")
                )
            return
        connection.send(buffers, reply, started_ns)

    def _refuse_one(self, error: OSError) -> None:
        while self._waiting:
            freed = self._waiting.popleft()
            if not freed.done():
                freed.set_exception(error)
                return

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

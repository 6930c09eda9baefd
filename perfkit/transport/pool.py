"""The wire engine's connections to one address: who gets which, who waits, and when another one is opened.

A request has one time-out, which runs from when it was asked for: through the wait for a connection, the sending, and
the sending again where the first connection turned out to be stale.
"""

import asyncio
import bisect
import collections
import ssl
from collections.abc import Callable, Sequence

from perfkit.address import Address
from perfkit.transport.base import ConnectionCounts, Outcome, Reply
from perfkit.transport.http1 import Connection
from perfkit.transport.reaching import Backoff, unreachable


class _Waiting:
    """A request without a connection. `started_ns` is when a stale one took it in vain, None where it was never sent."""

    __slots__ = ("asked_ns", "buffers", "reply", "started_ns")

    def __init__(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", asked_ns: int, started_ns: int | None) -> None:
        self.buffers = buffers
        self.reply = reply
        self.asked_ns = asked_ns
        self.started_ns = started_ns


class ConnectionPool:
    """Connections to one address, the one used last first; at most `limit` of them. `context` where the address is encrypted.

    While the target cannot be connected one attempt serves all that wait: they fail with it as connect_failed, and the
    next one is made after a pause, for those that came in between.
    """

    def __init__(self, address: Address, limit: int, timeout_ns: int, now_ns: Callable[[], int], context: ssl.SSLContext | None) -> None:
        self.counts = ConnectionCounts()
        self.timeout_ns = timeout_ns
        self.now_ns = now_ns
        self.loop = asyncio.get_running_loop()
        self._address = address
        self._context = context
        self._limit = limit
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._opening = 0
        self._lost = 0
        self._last_lost_ns: int | None = None
        self._waiting: collections.deque[_Waiting] = collections.deque()  # by when they were asked for
        self._overdue: asyncio.TimerHandle | None = None
        self._backoff = Backoff()
        self._pause: asyncio.TimerHandle | None = None
        self._refusal: OSError = TimeoutError()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_abandoned = False

    def take(self) -> Connection | None:
        """An idle connection, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    def line_up(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]") -> None:
        """Sends a request on the first connection that becomes free or is opened for those that wait, in their turn.

        `reply` is resolved in any case: as timed_out where the target had a connection, but none free for it within the
        time-out, and as connect_failed where it had none.
        """
        now_ns = self.now_ns()
        self._line_up(_Waiting(buffers, reply, now_ns, None), now_ns)

    def send_again(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", asked_ns: int, started_ns: int) -> None:
        """Sends a request, which a stale connection did not take, on another one."""
        request = _Waiting(buffers, reply, asked_ns, started_ns)
        if (connection := self.take()) is not None:
            self._send(connection, request)
        else:
            self._line_up(request, self.now_ns())

    async def connect(self) -> Connection:
        """Opens one more connection, not idle yet; raises OSError."""
        connection = await asyncio.wait_for(self._open(), self.timeout_ns / 1e9)
        if not connection.is_usable:
            raise ConnectionResetError("the server closed the connection at once")
        self._all.add(connection)
        self._backoff.succeed()
        self.counts.opened += 1
        if self._lost:
            self._lost -= 1
            self.counts.reconnects += 1
        return connection

    def give_back(self, connection: Connection) -> None:
        """Hands a connection to who has waited longest, or keeps it."""
        while self._waiting and connection.is_usable:
            request = self._waiting.popleft()
            if not request.reply.done():
                self._send(connection, request)
                return
        self._idle.append(connection)  # `take` passes over a closed one

    def forget(self, connection: Connection) -> None:
        """Takes a closed connection out of the pool."""
        if connection in self._all:
            self._all.discard(connection)
            self._lost += 1
            self._last_lost_ns = self.now_ns()
        self._grow()

    def abandon(self) -> None:
        """Ends every request as unfinished, in flight or waiting; none is sent any more."""
        self._is_abandoned = True
        self._idle.clear()
        for connection in tuple(self._all):
            connection.fail(Outcome.UNFINISHED, "")
        while self._waiting:
            self._end(self._waiting.popleft(), Outcome.UNFINISHED, "")

    def close(self) -> None:
        """Closes every connection, and ends every request as unfinished."""
        self.abandon()
        for task in tuple(self._tasks):
            task.cancel()
        for timer in (self._overdue, self._pause):
            if timer is not None:
                timer.cancel()

    def _line_up(self, request: _Waiting, now_ns: int) -> None:
        if self._is_abandoned:
            self._end(request, Outcome.UNFINISHED, "")
            return
        if request.started_ns is None:
            self._waiting.append(request)
        else:  # it was asked for before others that wait
            bisect.insort_left(self._waiting, request, key=lambda one: one.asked_ns)
        if self._waiting[0] is request:
            self._watch(now_ns)
        self._grow()

    def _send(self, connection: Connection, request: _Waiting) -> None:
        if request.started_ns is not None:
            self.counts.retried += 1
        connection.send_late(request.buffers, request.reply, request.asked_ns, request.started_ns)

    def _end(self, request: _Waiting, outcome: Outcome, error: str) -> None:
        if not request.reply.done():
            started_ns = request.asked_ns if request.started_ns is None else request.started_ns
            request.reply.set_result(Reply(outcome, started_ns, self.now_ns(), None, error))

    def _watch(self, now_ns: int) -> None:
        """Sets the timer to the end of who has waited longest."""
        if self._overdue is not None:
            self._overdue.cancel()
        left_ns = self._waiting[0].asked_ns + self.timeout_ns - now_ns
        self._overdue = self.loop.call_later(max(left_ns, 0) / 1e9, self._end_overdue)

    def _end_overdue(self) -> None:
        self._overdue = None
        now_ns = self.now_ns()
        while self._waiting and now_ns - self._waiting[0].asked_ns >= self.timeout_ns:
            request = self._waiting.popleft()
            was_there = self._all or (self._last_lost_ns is not None and self._last_lost_ns >= request.asked_ns)
            if was_there or request.started_ns is not None:
                self._end(request, Outcome.TIMED_OUT, "no connection became free within the time-out")
            else:
                self._end(request, Outcome.CONNECT_FAILED, str(unreachable(self._address, self._refusal)))
        if self._waiting:
            self._watch(now_ns)

    def _grow(self) -> None:
        """Opens a connection for each request that waits, as far as the limit goes; one alone where the last attempt failed."""
        wanted = min(1, len(self._waiting)) if self._backoff.is_failing else len(self._waiting)
        if self._pause is not None:
            return
        while self._opening < wanted and len(self._all) + self._opening < self._limit:
            self._opening += 1
            task = self.loop.create_task(self._add())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _add(self) -> None:
        try:
            connection = await self.connect()
        except OSError as error:
            self._opening -= 1
            self._note_failure(error)
        else:
            self._opening -= 1
            if self._is_abandoned:
                connection.close()
            else:
                self.give_back(connection)
                self._grow()

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

    def _note_failure(self, error: OSError) -> None:
        self._refusal = error
        if self._pause is None:  # several attempts that fail together are one failure
            self._pause = self.loop.call_later(self._backoff.fail(), self._try_again)
        if self._all or self._opening:
            return  # whoever waits may still get one of those
        sentence = str(unreachable(self._address, error))
        while self._waiting:
            request = self._waiting.popleft()
            if request.started_ns is None:
                self._end(request, Outcome.CONNECT_FAILED, sentence)
            else:
                self._end(request, Outcome.BROKEN, f"the connection was closed, and no other opened: {sentence}")

    def _try_again(self) -> None:
        self._pause = None
        self._grow()

"""The wire engine's connections to one address: who gets which, who waits, and when another one is opened.

A request has one time-out, which runs from when it was asked for: through the wait for a connection, the sending, and
the sending again where the first connection turned out to be stale.
"""

import abc
import asyncio
import bisect
import collections
import ssl
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from perfkit.target.address import Address
from perfkit.transport.base import ConnectionCounts, Outcome, Reply
from perfkit.transport.options import TransportOptions
from perfkit.transport.reaching import Backoff, unreachable


class PooledConnection(asyncio.Protocol, abc.ABC):
    """One connection of a pool; it gives itself back after each answer, and says when it is lost."""

    room = 1
    """How many requests it carries at a time."""

    @property
    @abc.abstractmethod
    def is_usable(self) -> bool:
        """Open, and may take a request."""

    async def until_ready(self) -> None:
        """Waits until requests may be sent, where that takes more than being open. Raises OSError."""

    @abc.abstractmethod
    def send(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]") -> None:
        """Writes a request; `reply` is resolved when its answer is complete, it times out, or the connection is lost."""

    @abc.abstractmethod
    def send_late(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", asked_ns: int, started_ns: int | None) -> None:
        """As `send`, for a request whose time has run since `asked_ns`; `started_ns` is when it was sent in vain, if it was."""

    @abc.abstractmethod
    def abandon(self) -> None:
        """Ends what is in flight as unfinished, and closes the connection."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the connection."""


C = TypeVar("C", bound=PooledConnection)


class _Waiting:
    """A request without a connection. `started_ns` is when a stale one took it in vain, None where it was never sent."""

    __slots__ = ("asked_ns", "buffers", "reply", "started_ns")

    def __init__(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", asked_ns: int, started_ns: int | None) -> None:
        self.buffers = buffers
        self.reply = reply
        self.asked_ns = asked_ns
        self.started_ns = started_ns


class ConnectionPool(Generic[C]):
    """Connections to one address, the one used last first; at most `max_connections` of them, each with `streams_per_connection` requests at a time.

    `context` is there where the address is encrypted; `make` makes the protocol of a new connection.

    While the target cannot be connected one attempt serves all that wait: they fail with it as connect_failed, and the
    next one is made after a pause, for those that came in between.
    """

    def __init__(
        self,
        address: Address,
        options: TransportOptions,
        now_ns: Callable[[], int],
        context: ssl.SSLContext | None,
        make: "Callable[[ConnectionPool[C]], C]",
    ) -> None:
        self.counts = ConnectionCounts()
        self.timeout_ns = options.timeout_ns
        self.now_ns = now_ns
        self.loop = asyncio.get_running_loop()
        self.address = address
        self._make = make
        self._requests_each = options.streams_per_connection
        self._retired: set[C] = set()
        self._context = context
        self._limit = options.max_connections
        self._idle: list[C] = []
        self._all: set[C] = set()
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

    async def open(self, connections: int) -> None:
        """Opens that many connections ahead of time; raises TargetError."""
        opened = await asyncio.gather(*(self.connect() for _ in range(connections)), return_exceptions=True)
        for connection in opened:
            if isinstance(connection, OSError):
                raise unreachable(self.address, connection) from None
            if isinstance(connection, BaseException):
                raise connection
            self.hand_out(connection)

    def take(self) -> C | None:
        """An idle connection, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    @property
    def is_quiet(self) -> bool:
        """Whether one request is in flight at most."""
        return len(self._all) * self._requests_each - len(self._idle) <= 1

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

    async def connect(self) -> C:
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

    def give_back(self, connection: C) -> None:
        """Hands a connection to who has waited longest, or keeps it."""
        while self._waiting and connection.is_usable:
            request = self._waiting.popleft()
            if not request.reply.done():
                self._send(connection, request)
                return
        self._idle.append(connection)  # `take` passes over a closed one

    def hand_out(self, connection: C) -> None:
        """Gives a new connection to who waits, as often as it has room."""
        for _ in range(connection.room):
            self.give_back(connection)

    def withdraw(self, connection: C, most: int) -> int:
        """Takes back room that nobody has taken yet; how much of it."""
        taken = 0
        while taken < most and connection in self._idle:
            self._idle.remove(connection)
            taken += 1
        return taken

    def retire(self, connection: C) -> None:
        """A connection takes no more requests, and ends those in flight: another may take its place."""
        was_counted = connection in self._all
        self.forget(connection)
        if was_counted:
            self._retired.add(connection)

    def forget(self, connection: C) -> None:
        """Takes a closed connection out of the pool."""
        self._retired.discard(connection)
        if connection in self._all:
            self._all.discard(connection)
            self._idle = [one for one in self._idle if one is not connection]
            self._lost += 1
            self._last_lost_ns = self.now_ns()
        self._grow()

    def abandon(self) -> None:
        """Ends every request as unfinished, in flight or waiting; none is sent any more."""
        self._is_abandoned = True
        self._idle.clear()
        for connection in (*self._all, *self._retired):
            connection.abandon()
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

    def _send(self, connection: C, request: _Waiting) -> None:
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
                self._end(request, Outcome.CONNECT_FAILED, str(unreachable(self.address, self._refusal)))
        if self._waiting:
            self._watch(now_ns)

    def _grow(self) -> None:
        """Opens connections for the requests that wait, as far as the limit goes; one alone where the last attempt failed."""
        wanted = min(1, len(self._waiting)) if self._backoff.is_failing else -(-len(self._waiting) // self._requests_each)
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
                self.hand_out(connection)
                self._grow()

    async def _open(self) -> C:
        address = self.address
        server_name = (address.tls.server_name or address.host) if address.tls else None
        if address.socket_path:
            opened = self.loop.create_unix_connection(lambda: self._make(self), address.socket_path)
        else:
            opened = self.loop.create_connection(
                lambda: self._make(self), address.host, address.port, ssl=self._context, server_hostname=server_name
            )
        connection = (await opened)[1]
        try:
            await connection.until_ready()
        except BaseException:  # also where the time-out cancels it
            connection.close()
            raise
        return connection

    def _note_failure(self, error: OSError) -> None:
        self._refusal = error
        if self._pause is None:  # several attempts that fail together are one failure
            self._pause = self.loop.call_later(self._backoff.fail(), self._try_again)
        if self._all or self._opening:
            return  # whoever waits may still get one of those
        sentence = str(unreachable(self.address, error))
        while self._waiting:
            request = self._waiting.popleft()
            if request.started_ns is None:
                self._end(request, Outcome.CONNECT_FAILED, sentence)
            else:
                self._end(request, Outcome.BROKEN, f"the connection was closed, and no other opened: {sentence}")

    def _try_again(self) -> None:
        self._pause = None
        self._grow()

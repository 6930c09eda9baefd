"""The wire engine's connections to one address, whatever they speak: kept, opened on demand, handed out in turn."""

import abc
import asyncio
import collections
import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from perfkit.address import Address
from perfkit.errors import TargetError
from perfkit.transport.base import ConnectionCounts, Outcome, Reply
from perfkit.transport.tls import describe_tls_error

_HANDED_OVER = 3


class PooledConnection(asyncio.Protocol, abc.ABC):
    """One connection of a pool; it gives itself back after each answer, and says when it is lost."""

    @property
    @abc.abstractmethod
    def is_usable(self) -> bool:
        """Open, and may take a request."""

    @abc.abstractmethod
    async def until_ready(self) -> int:
        """Waits until requests may be sent; how many it carries at a time. Raises OSError."""

    @abc.abstractmethod
    def send(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", repeated_from_ns: int = 0) -> None:
        """Writes a request; `reply` is resolved when its answer is complete, it times out, or the connection is lost.

        `repeated_from_ns` is when it was sent first, on a connection that did not take it.
        """

    @abc.abstractmethod
    def abandon(self) -> None:
        """Ends what is in flight as unfinished."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the connection."""


_C = TypeVar("_C", bound=PooledConnection)


class WaitedTooLongError(TimeoutError):
    """No connection became free within the time-out: the target is there, and busy."""


class ConnectionPool(Generic[_C]):
    """Connections to one address, the one used last first; at most `limit` of them, with so many `requests_each` at a time.

    `make` makes the protocol of a new one, `context` is there where the address is encrypted.
    """

    def __init__(
        self,
        address: Address,
        limit: int,
        timeout_ns: int,
        now_ns: Callable[[], int],
        context: ssl.SSLContext | None,
        make: "Callable[[ConnectionPool[_C]], _C]",
        requests_each: int = 1,
    ) -> None:
        self.counts = ConnectionCounts()
        self.address = address
        self.timeout_ns = timeout_ns
        self.now_ns = now_ns
        self.loop = asyncio.get_running_loop()
        self.is_abandoned = False
        self._context = context
        self._limit = limit
        self._make = make
        self._requests_each = requests_each
        self._idle: list[_C] = []
        self._all: set[_C] = set()
        self._retired: set[_C] = set()
        self._opening = 0
        self._lost = 0
        self._waiting: collections.deque[asyncio.Future[_C]] = collections.deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, connections: int) -> None:
        """Opens that many connections ahead of time; raises TargetError."""
        try:
            for connection, room in await asyncio.gather(*(self.connect() for _ in range(connections))):
                self._hand_out(connection, room)
        except OSError as error:
            raise unreachable(self.address, error) from None

    def take(self) -> _C | None:
        """A connection with room for a request, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def take_or_connect(self, within_ns: int) -> _C:
        """The first connection that becomes free or is opened for those that wait, in their turn.

        Raises OSError: what opening one came to, TimeoutError after that time, ConnectionAbortedError when abandoned.
        """
        if (connection := self.take()) is not None:
            return connection
        for _ in range(_HANDED_OVER):  # one that is handed over may be lost before it is used
            if self.is_abandoned:
                raise ConnectionAbortedError
            freed: asyncio.Future[_C] = self.loop.create_future()
            self._waiting.append(freed)
            self._grow()
            try:
                connection = await asyncio.wait_for(freed, within_ns / 1e9)
            except TimeoutError:
                if freed.cancelled() and self.counts.opened:  # otherwise the target takes no connection at all
                    raise WaitedTooLongError from None
                raise
            if connection.is_usable:
                return connection
        raise ConnectionResetError("the server closes connections at once")

    async def send_when_free(self, buffers: Sequence[bytes]) -> Reply:
        """Sends a request once there is a connection for it; where there comes none, the reply says why."""
        asked_ns = self.now_ns()
        try:
            connection = await self.take_or_connect(self.timeout_ns)
        except WaitedTooLongError:
            return Reply(Outcome.TIMED_OUT, asked_ns, self.now_ns(), None, "no connection became free within the time-out")
        except OSError as error:
            if self.is_abandoned:
                return Reply(Outcome.UNFINISHED, asked_ns, self.now_ns())
            return Reply(Outcome.CONNECT_FAILED, asked_ns, self.now_ns(), None, str(unreachable(self.address, error)))
        reply: asyncio.Future[Reply] = self.loop.create_future()
        connection.send(buffers, reply)
        if self.is_abandoned:  # while it was being opened
            connection.abandon()
        return await reply

    def send_again(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", started_ns: int) -> None:
        """Sends a request, which a connection did not take, on another one, within the time that it has left."""
        self.counts.retried += 1
        self._start(self._send_again(buffers, reply, started_ns))

    async def connect(self) -> tuple[_C, int]:
        """Opens one more connection, not handed out yet, and how many requests it carries; raises OSError."""
        connection, room = await asyncio.wait_for(self._open(), self.timeout_ns / 1e9)
        if not connection.is_usable:
            raise ConnectionResetError("the server closed the connection at once")
        self._all.add(connection)
        self.counts.opened += 1
        if self._lost:
            self._lost -= 1
            self.counts.reconnects += 1
        return connection, room

    async def _open(self) -> tuple[_C, int]:
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
            return connection, await connection.until_ready()
        except BaseException:  # also where the time-out cancels it
            connection.close()
            raise

    def give_back(self, connection: _C) -> None:
        """Hands a connection with room for one more request to who has waited longest, or keeps it."""
        while self._waiting:
            freed = self._waiting.popleft()
            if not freed.done():
                freed.set_result(connection)
                return
        self._idle.append(connection)

    def withdraw(self, connection: _C, most: int) -> int:
        """Takes back room that nobody has taken yet; how much of it."""
        taken = 0
        while taken < most and connection in self._idle:
            self._idle.remove(connection)
            taken += 1
        return taken

    def retire(self, connection: _C) -> None:
        """A connection takes no more requests, and ends those in flight: another may take its place."""
        if connection in self._all:
            self._all.discard(connection)
            self._retired.add(connection)
            self._lost += 1
        self._grow()

    def forget(self, connection: _C) -> None:
        """Takes a closed connection out of the pool."""
        self._retired.discard(connection)
        if connection in self._all:
            self._all.discard(connection)
            self._lost += 1
        self._grow()

    def abandon(self) -> None:
        """Ends every request in flight as unfinished; those that wait for a connection get none any more."""
        self.is_abandoned = True
        for connection in (*self._all, *self._retired):
            connection.abandon()
        while self._waiting:
            self._refuse_one(ConnectionAbortedError())

    def close(self) -> None:
        """Closes every connection."""
        for task in tuple(self._tasks):
            task.cancel()
        for connection in (*self._all, *self._retired):
            connection.close()

    def _hand_out(self, connection: _C, room: int) -> None:
        for _ in range(room):
            self.give_back(connection)

    def _grow(self) -> None:
        """Opens connections for the requests that wait, as far as the limit goes."""
        if not self._waiting or len(self._all) + self._opening >= self._limit:
            return  # before those that wait are counted, who may be many
        waiting = sum(not freed.done() for freed in self._waiting)
        while self._opening * self._requests_each < waiting and len(self._all) + self._opening < self._limit:
            self._opening += 1
            self._start(self._add())

    async def _add(self) -> None:
        try:
            connection, room = await self.connect()
        except OSError as error:
            self._opening -= 1
            for _ in range(self._requests_each):
                self._refuse_one(error)
            self._grow()
        else:
            self._opening -= 1
            self._hand_out(connection, room)

    async def _send_again(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", started_ns: int) -> None:
        try:
            connection = await self.take_or_connect(max(started_ns + self.timeout_ns - self.now_ns(), 0))
        except OSError as error:
            outcome, text = Outcome.BROKEN, f"the connection was closed, and no other opened: {describe_os_error(error)}"
            if self.is_abandoned:
                outcome, text = Outcome.UNFINISHED, ""
            elif isinstance(error, TimeoutError):
                outcome = Outcome.TIMED_OUT
            if not reply.done():
                reply.set_result(Reply(outcome, started_ns, self.now_ns(), None, text))
            return
        connection.send(buffers, reply, started_ns)
        if self.is_abandoned:  # while it was being opened
            connection.abandon()

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


def unreachable(address: Address, error: OSError) -> TargetError:
    """The sentence for a connection that could not be opened."""
    if isinstance(error, ssl.SSLError):
        return TargetError(f"{address} cannot be reached: {describe_tls_error(error)}.")
    return TargetError(f"{address} cannot be reached: {describe_os_error(error)}. Is the server running, and is this its address?")


def describe_os_error(error: OSError) -> str:
    """What the operating system, or who raised the error, says of it; empty where that is nothing."""
    return "no answer within the time-out" if isinstance(error, TimeoutError) else (error.strerror or str(error))

"""The wire engine's connection pool: assigns requests to connections, queues them, and opens connections.

A request has one time-out. It starts when the request is submitted, and covers the wait for a connection, the sending,
and a second sending if the first connection turns out to be stale.
"""

import abc
import asyncio
import bisect
import collections
import dataclasses
import ssl
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from perfkit.machine.limits import is_file_limit
from perfkit.target.address import Address
from perfkit.transport.base import ConnectionCounts, Outcome, Prepared, Reply, ReplyReceiver
from perfkit.transport.connect import NO_CONNECTION_FREE, unreachable
from perfkit.transport.options import TransportOptions

_OPENED_AT_ONCE = 1024  # attempts to connect take memory, and a server's queue of new connections is bounded
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 1.0


def pause_s(failures: int) -> float:
    """The pause after that many failed attempts to connect in a row: 10 ms after the first, then doubled up to 1 s."""
    return min(_FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10), _LONGEST_PAUSE_S)


class PooledConnection(asyncio.Protocol, abc.ABC):
    """A connection that tells its pool when it can take another request, and when it is lost."""

    __slots__ = ()

    stream_slots = 1
    """The maximum number of concurrent requests."""

    is_usable = False
    """Whether the connection is open and takes requests, as far as it has been told; `is_closing` knows at once that its transport has failed."""
    is_closing: Callable[[], bool]
    """Whether the transport is closing or has failed."""

    async def until_ready(self) -> None:
        """Waits for a handshake above TCP and TLS, if the protocol has one; raises OSError."""

    @abc.abstractmethod
    def send(self, buffers: Sequence[bytes], reply: ReplyReceiver) -> None:
        """Writes a request; `reply` resolves with the complete answer, the time-out, or the loss of the connection."""

    @abc.abstractmethod
    def send_queued(self, buffers: Sequence[bytes], reply: ReplyReceiver, submitted_ns: int, started_ns: int | None) -> None:
        """Like `send`, for a request submitted at `submitted_ns`; `started_ns` is when it was first sent, None if it never was."""

    def retire(self) -> None:
        """Refuses further requests after the one that is sent next, if any; the pool offers it none."""

    @abc.abstractmethod
    def give_up(self, reply: ReplyReceiver) -> bool:
        """Ends the request in flight with this receiver as unfinished, without waiting for its answer; False if it is not on this connection."""

    @abc.abstractmethod
    def close_when_idle(self) -> None:
        """Refuses further requests, and closes the connection unless some are in flight."""

    @abc.abstractmethod
    def abandon(self) -> None:
        """Ends the requests in flight as unfinished and closes the connection."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the connection."""


C = TypeVar("C", bound=PooledConnection)


@dataclasses.dataclass(slots=True, eq=False)
class QueuedRequest:
    """A request that waits for a connection; `started_ns` is when a stale connection sent it, None if none did."""

    buffers: Sequence[bytes]
    reply: ReplyReceiver
    submitted_ns: int
    started_ns: int | None

    def resolve(self, outcome: Outcome, now_ns: int, error: str = "") -> None:
        """Ends the request without an answer."""
        if not self.reply.done():
            started_ns = self.submitted_ns if self.started_ns is None else self.started_ns
            self.reply.set_result(Reply(outcome, started_ns, now_ns, None, error))


class ConnectionPool(Generic[C]):
    """Up to `max_connections` connections to one address, the most recently used one first.

    `context` is None for an unencrypted address; `make` returns the asyncio protocol of a new connection.

    While the target refuses connections, only one attempt is made at a time. If it fails, all queued requests end as
    connect_failed, and the next attempt follows after a pause.
    """

    def __init__(
        self,
        address: Address,
        options: TransportOptions,
        now_ns: Callable[[], int],
        context: ssl.SSLContext | None,
        make: "Callable[[ConnectionPool[C]], C]",
    ) -> None:
        self.address = address
        self.timeout_ns = options.timeout_ns
        self.answer_limit = options.answer_limit
        self.now_ns = now_ns
        self.loop = asyncio.get_running_loop()
        self.counts = ConnectionCounts()
        self._options = options
        self._context = context
        self._make = make
        # once for each free stream slot; a list would be allocated anew whenever the only one is taken and released
        self._idle: collections.deque[C] = collections.deque()
        self._connections: set[C] = set()
        self._retired: set[C] = set()
        self._queue: collections.deque[QueuedRequest] = collections.deque()  # by `submitted_ns`
        self._timeout_timer: asyncio.TimerHandle | None = None
        self._opening = 0
        self._connect_tasks: set[asyncio.Task[None]] = set()
        self._failures = 0  # attempts to connect since the last success
        self._backoff_timer: asyncio.TimerHandle | None = None
        self._last_error: OSError = TimeoutError()
        self._lost = 0
        self._last_lost_ns: int | None = None
        self._is_abandoned = False

    @property
    def queued(self) -> int:
        """The requests that wait for a connection."""
        return len(self._queue)

    async def open(self, connections: int) -> None:
        """Opens that many connections ahead of time; raises TargetError, or MeasurementError at the file limit."""
        while connections > 0:
            at_once = min(connections, _OPENED_AT_ONCE)
            for connection in await asyncio.gather(*(self.connect() for _ in range(at_once)), return_exceptions=True):
                if isinstance(connection, OSError):
                    raise unreachable(self.address, connection) from None
                if isinstance(connection, BaseException):
                    raise connection
                self._add(connection)
            connections -= at_once

    async def connect(self) -> C:
        """Opens one connection, which is not offered to requests yet; raises OSError."""
        began_ns = self.now_ns()
        connection = await asyncio.wait_for(self._open_connection(), self.timeout_ns / 1e9)
        if not connection.is_usable or connection.is_closing():
            raise ConnectionResetError("the server closed the connection at once")
        self._connections.add(connection)
        self._failures = 0
        self.counts.opened += 1
        self.counts.connect_times.add(self.now_ns() - began_ns)
        if self._lost:
            self._lost -= 1
            self.counts.reconnects += 1
        return connection

    def take(self) -> C | None:
        """A connection with a free stream slot, or None."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            is_closing = connection.is_closing
            if connection.is_usable and not is_closing():
                return connection
        return None

    @property
    def has_concurrent_requests(self) -> bool:
        """Whether more than one request is in flight."""
        return len(self._connections) * self._options.streams_per_connection - len(self._idle) > 1

    def send(self, prepared: Prepared) -> "asyncio.Future[Reply]":
        """Sends a request on a connection that can take it, or on the next one that can."""
        reply: asyncio.Future[Reply] = self.loop.create_future()
        self.submit(prepared, reply)
        return reply

    def submit(self, prepared: Prepared, reply: ReplyReceiver) -> None:
        """Like `send`, with a receiver for the reply."""
        connection = self.take()
        if connection is None:
            self.enqueue(prepared.buffers, reply)
        else:
            connection.send(prepared.buffers, reply)

    def enqueue(self, buffers: Sequence[bytes], reply: ReplyReceiver) -> None:
        """Sends a request on the next connection that becomes free or is opened, in order of submission.

        `reply` always resolves: as timed_out if the target has connections but none became free in time, as
        connect_failed if it has none.
        """
        now_ns = self.now_ns()
        self._enqueue(QueuedRequest(buffers, reply, now_ns, None), now_ns)

    def resend(self, buffers: Sequence[bytes], reply: ReplyReceiver, submitted_ns: int, started_ns: int) -> None:
        """Sends a request, which a stale connection did not process, on another connection."""
        request = QueuedRequest(buffers, reply, submitted_ns, started_ns)
        if (connection := self.take()) is not None:
            self._send(connection, request)
        else:
            self._enqueue(request, self.now_ns())

    def release(self, connection: C) -> None:
        """Takes back a stream slot: the first queued request gets it, otherwise it is idle."""
        while self._queue and connection.is_usable and not connection.is_closing():
            request = self._queue.popleft()
            if not request.reply.done():
                self._send_next(connection, request)
                return
        self._idle.append(connection)  # `take` skips a closed one

    def withdraw_idle(self, connection: C, maximum: int) -> int:
        """Removes up to `maximum` idle stream slots of a connection; the number removed."""
        removed = 0
        while removed < maximum and connection in self._idle:
            self._idle.remove(connection)
            removed += 1
        return removed

    def retire(self, connection: C) -> None:
        """Lets a connection finish its requests but take no more; another one may be opened in its place."""
        was_counted = connection in self._connections
        self.remove(connection)
        if was_counted:
            self._retired.add(connection)

    def remove(self, connection: C) -> None:
        """Removes a closed connection."""
        self._retired.discard(connection)
        if connection in self._connections:
            self._connections.discard(connection)
            self._idle = collections.deque(idle for idle in self._idle if idle is not connection)
            self._lost += 1
            self._last_lost_ns = self.now_ns()
        self._open_missing()

    def give_up(self, reply: ReplyReceiver) -> None:
        """Ends one request, in flight or queued, as unfinished."""
        if any(connection.give_up(reply) for connection in (*self._connections, *self._retired)):
            return
        for queued in self._queue:
            if queued.reply is reply:
                queued.resolve(Outcome.UNFINISHED, self.now_ns())
                return

    def discard(self, connection: C) -> None:
        """Forgets a busy connection that the client closes itself: it is not a lost one."""
        self._connections.discard(connection)

    def abandon(self) -> None:
        """Ends all requests, in flight or queued, as unfinished; nothing is sent from then on."""
        self._is_abandoned = True
        self._idle.clear()
        for connection in (*self._connections, *self._retired):
            connection.abandon()
        while self._queue:
            self._queue.popleft().resolve(Outcome.UNFINISHED, self.now_ns())

    def close(self) -> None:
        """Closes all connections and ends all requests as unfinished."""
        self.abandon()
        for task in tuple(self._connect_tasks):
            task.cancel()
        for timer in (self._timeout_timer, self._backoff_timer):
            if timer is not None:
                timer.cancel()

    def _enqueue(self, request: QueuedRequest, now_ns: int) -> None:
        if self._is_abandoned:
            request.resolve(Outcome.UNFINISHED, now_ns)
            return
        if request.started_ns is None:
            self._queue.append(request)
        else:  # submitted before others in the queue
            bisect.insort_left(self._queue, request, key=lambda queued: queued.submitted_ns)
        if self._queue[0] is request:
            self._set_timeout_timer(now_ns)
        self._open_missing()

    def _send_next(self, connection: C, request: QueuedRequest) -> None:
        """Sends a request that waited for a connection."""
        self._send(connection, request)

    def _send(self, connection: C, request: QueuedRequest) -> None:
        if request.started_ns is not None:
            self.counts.retried += 1
        connection.send_queued(request.buffers, request.reply, request.submitted_ns, request.started_ns)

    def _set_timeout_timer(self, now_ns: int) -> None:
        if self._timeout_timer is not None:
            self._timeout_timer.cancel()
        left_ns = self._queue[0].submitted_ns + self.timeout_ns - now_ns
        self._timeout_timer = self.loop.call_later(max(left_ns, 0) / 1e9, self._end_timed_out)

    def _end_timed_out(self) -> None:
        self._timeout_timer = None
        now_ns = self.now_ns()
        while self._queue and now_ns - self._queue[0].submitted_ns >= self.timeout_ns:
            request = self._queue.popleft()
            was_connected = self._connections or (self._last_lost_ns is not None and self._last_lost_ns >= request.submitted_ns)
            if was_connected or request.started_ns is not None:
                is_full = len(self._connections) + self._opening >= self._options.max_connections
                is_own_limit = is_full or (self._failures > 0 and is_file_limit(self._last_error))
                error = NO_CONNECTION_FREE if is_own_limit else "no connection was opened within the time-out"
                request.resolve(Outcome.TIMED_OUT, self.now_ns(), error)
            else:
                request.resolve(Outcome.CONNECT_FAILED, self.now_ns(), str(unreachable(self.address, self._last_error)))
        if self._queue:
            self._set_timeout_timer(now_ns)

    def _open_missing(self) -> None:
        """Opens connections for the queued requests, up to the limits; a single one if the last attempt failed.

        Each attempt that ends leads to the next call, at once or after the pause.
        """
        if self._backoff_timer is not None:
            return
        queued = len(self._queue)
        wanted = min(1, queued) if self._failures else -(-queued // self._options.streams_per_connection)
        wanted = min(wanted, _OPENED_AT_ONCE)
        while self._opening < wanted and len(self._connections) + self._opening < self._options.max_connections:
            self._opening += 1
            task = self.loop.create_task(self._connect_and_add())
            self._connect_tasks.add(task)
            task.add_done_callback(self._connect_tasks.discard)

    async def _connect_and_add(self) -> None:
        try:
            connection = await self.connect()
        except OSError as error:
            self._opening -= 1
            self._handle_connect_error(error)
            return
        self._opening -= 1
        if self._is_abandoned:
            connection.close()
        else:
            self._add(connection)
            self._open_missing()

    def _add(self, connection: C) -> None:
        """Offers the stream slots of a new connection to requests."""
        for _ in range(connection.stream_slots):
            self.release(connection)

    async def _open_connection(self) -> C:
        address = self.address
        if address.socket_path:
            opened = self.loop.create_unix_connection(lambda: self._make(self), address.socket_path)
        else:
            server_name = (address.tls.server_name or address.host) if address.tls else None
            opened = self.loop.create_connection(
                lambda: self._make(self), address.ip or address.host, address.port, ssl=self._context, server_hostname=server_name
            )
        connection = (await opened)[1]
        try:
            await connection.until_ready()
        except BaseException:  # including the cancellation by the time-out
            connection.close()
            raise
        return connection

    def _handle_connect_error(self, error: OSError) -> None:
        self._last_error = error
        self.counts.failed_by_file_limit += is_file_limit(error)
        if self._backoff_timer is None:  # concurrent attempts that fail together count once
            self._failures += 1
            self._backoff_timer = self.loop.call_later(pause_s(self._failures), self._retry)
        if self._connections or self._opening:
            return  # the queued requests may still get one of those
        message = str(unreachable(self.address, error))
        while self._queue:
            request = self._queue.popleft()
            if request.started_ns is None:
                request.resolve(Outcome.CONNECT_FAILED, self.now_ns(), message)
            else:
                request.resolve(Outcome.BROKEN, self.now_ns(), f"the connection was closed and no other could be opened: {message}")

    def _retry(self) -> None:
        self._backoff_timer = None
        self._open_missing()

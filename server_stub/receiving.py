"""Receives large requests in threads: several at once are copied out of their sockets side by side, beside the event loop.

Such a copy takes as long as all else of a request of 600 kB, and needs no GIL. One request alone is received in the event loop,
because handing it to a thread would cost more than it saves.
"""

import asyncio
import contextlib
import os
import queue
import socket
import threading
from typing import NamedTuple, Protocol

_MIN_BYTES = 2**17  # less is received in the event loop
_PATIENCE_S = 0.002  # how long a thread waits for bytes before the event loop does
MAX_THREADS = 4
COPIED_BYTES = 2**14
"""Up to so many received bytes are copied before they are taken apart, since pieces of bytes are cheaper than views."""


class _Job(NamedTuple):
    receiver: "Receiver"
    source: socket.socket
    space: memoryview


class ReceivingConnection(Protocol):
    """What a receiver needs of its connection, in the event loop."""

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` were written to the space that was given to `Receiver.expect`."""

    def continue_reading(self) -> None:
        """The transport may read again, unless something else forbids it."""


def thread_count(cpus: int) -> int:
    """How many threads to receive with: none where they would take a CPU from what else runs."""
    return min(MAX_THREADS, cpus // 4)


class ReceivingThreads:
    """`count` threads, which end with `close`. Its methods are called in the event loop."""

    def __init__(self, count: int) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, daemon=True, name=f"receive-{number}") for number in range(count)]
        self._idle = count
        self._receiving: set[Receiver] = set()
        self.handed_over = 0
        """How often a thread was given a request."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the threads, and with them what they receive."""
        for receiver in tuple(self._receiving):
            receiver.close()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def take(self, receiver: "Receiver") -> bool:
        """Count a connection that receives a large request; True if a thread is free for it and it is not the only one."""
        self._receiving.add(receiver)
        return self._idle > 0 and len(self._receiving) > 1

    def drop(self, receiver: "Receiver") -> None:
        """Count a connection no more."""
        self._receiving.discard(receiver)

    def put(self, job: _Job) -> None:
        """Give a job to a thread; `take` said that one is free."""
        self._idle -= 1
        self.handed_over += 1
        self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            byte_count = _receive(job.source, job.space)
            job.receiver.loop.call_soon_threadsafe(self._finish, job.receiver, byte_count, byte_count == len(job.space))
            del job  # and with it the request's memory

    def _finish(self, receiver: "Receiver", byte_count: int, is_complete: bool) -> None:
        self._idle += 1
        receiver.finish(byte_count, is_complete)


class Receiver:
    """Receives the large requests of one connection, which says where their next bytes belong."""

    def __init__(self, threads: ReceivingThreads, transport: asyncio.Transport, connection: ReceivingConnection) -> None:
        self.loop = asyncio.get_running_loop()
        self._threads, self._transport, self._connection = threads, transport, connection
        self._source: socket.socket | None = None  # with a descriptor of its own, only while a large request is received
        self._is_encrypted = transport.get_extra_info("sslcontext") is not None
        self._is_slow = self._is_closed = False
        self.is_active = False
        """Whether a thread receives; the transport must not read meanwhile."""
        self.is_expecting = False
        """Whether a large request is being received, in a thread or not."""

    def expect(self, space: memoryview | None) -> None:
        """The next bytes belong to `space`, which one large request fills; None if no such request has begun.

        If a thread is to receive them, the transport stops reading until it has.
        """
        self.is_expecting = space is not None
        if space is None or len(space) < _MIN_BYTES or self._is_encrypted or self._is_closed or self._transport.is_closing():
            self._threads.drop(self)
            self._close_source()
        elif not self._is_slow and self._threads.take(self):
            if self._source is None:
                try:
                    self._source = socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno()))
                except OSError:  # no descriptor is left
                    return
                self._source.settimeout(_PATIENCE_S)
            self.is_active = True
            self._transport.pause_reading()
            self._threads.put(_Job(self, self._source, space))

    def finish(self, byte_count: int, is_complete: bool) -> None:
        """A thread has received `byte_count` bytes: fewer than expected if they come slowly, or the connection has ended."""
        self.is_active = False
        if self._is_closed:
            self._close_source()
            return
        if byte_count:
            self._is_slow = not is_complete  # then the event loop waits for the next bytes
            self._connection.buffer_updated(byte_count)
            self._is_slow = False
        if not self.is_active:
            self._connection.continue_reading()

    def close(self) -> None:
        """The connection is closed, or the server stops."""
        self._is_closed = True
        self._threads.drop(self)
        if not self.is_active:
            self._close_source()
        elif self._source is not None:
            with contextlib.suppress(OSError):  # its client has gone
                self._source.shutdown(socket.SHUT_RDWR)  # ends the thread's reading, and what the descriptor keeps open

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None


def _receive(source: socket.socket, space: memoryview) -> int:
    """Fill `space`, and return how much of it was."""
    filled = 0
    while filled < len(space):
        try:
            byte_count = source.recv_into(space[filled:])
        except OSError:  # no bytes in time, or none any more: the event loop meets it again
            break
        if not byte_count:
            break
        filled += byte_count
    return filled

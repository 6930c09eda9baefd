"""The process that observes the proxy's traffic: it reads what clients sent from stdin, and writes the trace.

It ends when its stdin does, and is given less of the CPU than the proxy, which must not wait for it.
"""

import contextlib
import os
import pathlib
import sys
import threading
from typing import BinaryIO

from perfkit.clock import Clock, MonotonicClock
from perfkit.errors import ProtocolError, StorageError, UsageError
from perfkit.process.messages import claim_stdout, framed, load_frame
from perfkit.proxy.grpc_observer import GrpcObserver
from perfkit.proxy.http_observer import HttpObserver
from perfkit.proxy.messages import (
    FROM_OBSERVER,
    TO_OBSERVER,
    Closed,
    Failed,
    Opened,
    Received,
    Recorded,
    Recording,
    Skipped,
    Started,
    Unreadable,
)
from perfkit.proxy.observer import Observer
from perfkit.proxy.open_requests import BodyMemory
from perfkit.proxy.trace_recorder import TraceRecorder
from perfkit.trace.writer import TraceWriter

_NICENESS = 10


def serve(told: BinaryIO, answers: BinaryIO, clock: Clock) -> None:
    """Records until `told` ends, or says that it does."""
    answer = _Answers(answers)
    with contextlib.suppress(EOFError, BrokenPipeError):
        recording: Recording = TO_OBSERVER.decoded(load_frame(told))
        try:
            writer = TraceWriter(pathlib.Path(recording.file))
        except UsageError as error:
            answer.send(Started(str(error)))
            return
        answer.send(Started(""))
        _ObservingProcess(recording, writer, answer, clock).serve(told)


class _Answers:
    """Sends messages, from any thread."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._lock = file, threading.Lock()

    def send(self, message: object) -> None:
        with self._lock:
            self._file.write(framed(FROM_OBSERVER.encoded(message)))
            self._file.flush()


class _ObservingProcess:
    """The observers of all open connections, and what was recorded so far."""

    def __init__(self, recording: Recording, writer: TraceWriter, answers: _Answers, clock: Clock) -> None:
        self._memory = BodyMemory()
        self._writer, self._answers = writer, answers
        self._recorder = TraceRecorder(
            writer, recording.payloads, recording.wall_minus_monotonic_ns, self._memory, clock, lambda reason: answers.send(Failed(reason))
        )
        self._observers: dict[int, Observer] = {}
        self._listens: dict[int, str] = {}
        self._incomplete = self._unread_bytes = 0

    def serve(self, told: BinaryIO) -> None:
        is_told = True
        while is_told:
            try:
                message = TO_OBSERVER.decoded(load_frame(told))
            except EOFError:  # the proxy is gone
                break
            match message:
                case Received() as received:
                    self._receive(received)
                case Opened(connection, is_grpc, listen):
                    self._observers[connection] = (GrpcObserver if is_grpc else HttpObserver)(self._recorder.add, self._memory)
                    self._listens[connection] = listen
                case Skipped(connection, size_bytes):
                    self._skip(connection, size_bytes)
                case Closed(connection):
                    self._close(connection)
                case _:
                    is_told = False
        for connection in tuple(self._observers):
            self._close(connection)
        failure = ""
        try:
            self._recorder.close()
        except StorageError as error:
            failure = str(error)
        recorder, writer = self._recorder, self._writer
        self._answers.send(
            Recorded(
                recorder.calls, recorder.without_payload, recorder.unwritten, self._incomplete, self._unread_bytes,
                writer.distinct_payloads, writer.payload_bytes, recorder.failure or failure,
            )
        )  # fmt: skip

    def _receive(self, received: Received) -> None:
        observer = self._observers.get(received.connection)
        if observer is None:  # told before the proxy knew that it is unreadable
            self._unread_bytes += len(received.data)
            return
        try:
            observer.receive(received.data, received.read_ns, is_first=received.is_first)
        except ProtocolError as error:
            self._unread_bytes += len(received.data)
            self._give_up(received.connection, error)

    def _skip(self, connection: int, size_bytes: int) -> None:
        if (observer := self._observers.get(connection)) is not None:
            try:
                observer.skip(size_bytes)
            except ProtocolError as error:
                self._give_up(connection, error)

    def _give_up(self, connection: int, error: ProtocolError) -> None:
        listen = self._listens[connection]
        self._close(connection)
        self._answers.send(Unreadable(connection, listen, str(error)))

    def _close(self, connection: int) -> None:
        if (observer := self._observers.pop(connection, None)) is not None:
            observer.close()
            self._incomplete += observer.incomplete
            self._unread_bytes += observer.unread_bytes
            del self._listens[connection]


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    with contextlib.suppress(BrokenPipeError), claim_stdout() as out:  # perfkit has ended
        serve(sys.stdin.buffer, out, MonotonicClock())

"""Makes a trace of captured requests, in a thread of its own, so that passing traffic on does not wait for it."""

import collections
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from perfkit.errors import StorageError
from perfkit.proxy.observer import CapturedRequest, describe
from perfkit.trace.payloads import payload_name
from perfkit.trace.writer import TraceRow, TraceWriter

Payloads: TypeAlias = Literal["none", "hash", "full"]

_BATCH_ROWS = 500
# bodies that wait to be written; beyond this requests are recorded without their payloads
_MOST_WAITING_BYTES = 2**28
# Python's default lets the thread keep the event loop waiting for 5 ms
_SWITCH_INTERVAL_S = 50e-6


class TraceRecorder:
    """Writes each captured request as a row, with its payload or the digest of it, and counts them.

    `wall_minus_monotonic_ns` turns instants of arrival into nanoseconds since 1970. `on_failure` is called once, from the thread, if the trace
    cannot be written any more; traffic is passed on all the same.
    """

    def __init__(self, writer: TraceWriter, payloads: Payloads, wall_minus_monotonic_ns: int, on_failure: Callable[[str], None]) -> None:
        self.failure = ""
        self.without_payload = 0
        """Requests recorded without the payload that was asked for: not v2, in shared memory, too large, or too many at once."""
        self._writer, self._payloads, self._offset_ns, self._on_failure = writer, payloads, wall_minus_monotonic_ns, on_failure
        self._waiting: queue.SimpleQueue[CapturedRequest | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._added = self._taken = 0
        self._calls: collections.Counter[tuple[str, str]] = collections.Counter()
        self._switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._thread = threading.Thread(target=self._run, name="trace recorder", daemon=True)
        self._thread.start()

    @property
    def calls(self) -> Mapping[tuple[str, str], int]:
        """The number of requests written, by model and call."""
        return self._calls

    @property
    def writer(self) -> TraceWriter:
        """The trace that is written."""
        return self._writer

    def add(self, request: CapturedRequest) -> None:
        """Takes a request from the event loop; returns at once."""
        # each count is changed by one thread only
        if self._added - self._taken + request.body_bytes > _MOST_WAITING_BYTES:
            request = CapturedRequest(request.arrival_ns, request.call, (), request.is_grpc, request.model, request.version)
        self._added += request.body_bytes
        self._waiting.put(request)

    def close(self) -> None:
        """Writes what is left, and ends the trace; raises StorageError if it could not be written."""
        self._end()
        self._writer.close()
        if self.failure:
            raise StorageError(self.failure)

    def discard(self) -> None:
        """Ends without a trace, before any request."""
        self._end()
        self._writer.discard()

    def _end(self) -> None:
        self._waiting.put(None)
        self._thread.join()
        sys.setswitchinterval(self._switch_interval_s)

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._waiting.get()]
            while len(batch) < _BATCH_ROWS and batch[-1] is not None and not self._waiting.empty():
                batch.append(self._waiting.get())
            is_open = batch[-1] is not None
            if not self.failure:
                self._write([request for request in batch if request is not None])
            self._taken += sum(request.body_bytes for request in batch if request is not None)

    def _write(self, batch: list[CapturedRequest]) -> None:
        try:
            rows = [self._row(request) for request in batch]
            self._writer.write(rows)
        except Exception as error:  # noqa: BLE001 - the thread would end unnoticed
            self.failure = str(error) or type(error).__name__
            self._on_failure(self.failure)
            return
        self._calls.update((row.model, row.call) for row in rows)

    def _row(self, request: CapturedRequest) -> TraceRow:
        described = describe(request, with_payload=self._payloads != "none")
        name = ""
        if described.payload is not None:
            name = self._writer.keep_payload(described.payload) if self._payloads == "full" else payload_name(described.payload)
        elif self._payloads != "none":
            self.without_payload += 1
        return TraceRow(request.arrival_ns + self._offset_ns, described.model, described.version, request.call, described.shapes, name)

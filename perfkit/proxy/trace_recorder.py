"""Makes a trace of complete requests, in a thread of its own, so that reading traffic on does not wait for it."""

import collections
import queue
import sys
import threading
from collections.abc import Callable, Mapping

from perfkit.clock import Clock
from perfkit.proxy.description import describe
from perfkit.proxy.messages import Payloads
from perfkit.proxy.open_requests import BodyMemory, OpenRequest
from perfkit.trace.payloads import payload_name
from perfkit.trace.writer import TraceRow, TraceWriter
from perfkit.units import NS_PER_S

_BATCH_ROWS = 500
# when so many requests wait to be written, reading waits, too
_MOST_WAITING = 2**14
# Python's default lets the thread keep the other one waiting for 5 ms
_SWITCH_INTERVAL_S = 50e-6
_MOST_CALLS, _LONGEST_NAME = 1000, 300
# after the end bodies are read for so long; the rows of the requests behind are without
_READS_FOR_NS = NS_PER_S


class TraceRecorder:
    """Writes each request as a row, with its payload or the digest of it, and counts them.

    `wall_minus_monotonic_ns` turns instants of arrival into nanoseconds since 1970. `on_failure` is called once, from the thread, if the trace
    cannot be written any more.
    """

    def __init__(
        self,
        writer: TraceWriter,
        payloads: Payloads,
        wall_minus_monotonic_ns: int,
        memory: BodyMemory,
        clock: Clock,
        on_failure: Callable[[str], None],
    ) -> None:
        self.failure = ""
        self.without_payload = 0
        """Requests recorded without the payload that was asked for: not v2, in shared memory, too large, or too many at once."""
        self.unwritten = 0
        """Requests that came after the failure."""
        self._writer, self._payloads, self._offset_ns, self._on_failure = writer, payloads, wall_minus_monotonic_ns, on_failure
        self._memory, self._clock = memory, clock
        self._ends_ns: int | None = None
        self._waiting: queue.Queue[OpenRequest | None] = queue.Queue(_MOST_WAITING)
        self._calls: collections.Counter[tuple[str, str]] = collections.Counter()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._thread = threading.Thread(target=self._run, name="trace recorder", daemon=True)
        self._thread.start()

    @property
    def calls(self) -> Mapping[tuple[str, str], int]:
        """The number of requests written, by model and call; all models beyond the first thousand are one, without a name."""
        return self._calls

    def add(self, request: OpenRequest) -> None:
        """Takes a complete request, which is released once it is written."""
        self._waiting.put(request)

    def close(self) -> None:
        """Writes what is left; raises StorageError if the file cannot be closed."""
        self._ends_ns = self._clock.now_ns() + _READS_FOR_NS
        self._waiting.put(None)
        self._thread.join()
        self._writer.close()

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._waiting.get()]
            while len(batch) < _BATCH_ROWS and batch[-1] is not None and not self._waiting.empty():
                batch.append(self._waiting.get())
            is_open = batch[-1] is not None
            self._write([request for request in batch if request is not None])

    def _write(self, batch: list[OpenRequest]) -> None:
        if not self.failure:
            try:
                rows = [self._row(request) for request in batch]
                self._writer.write(rows)
                self._count(rows)
            except Exception as error:  # noqa: BLE001 - the thread would end unnoticed
                self.failure = str(error) or type(error).__name__
                self._on_failure(self.failure)
        if self.failure:
            self.unwritten += len(batch)
        for request in batch:
            self._memory.release(request)

    def _row(self, request: OpenRequest) -> TraceRow:
        if self._ends_ns is not None and self._clock.now_ns() > self._ends_ns:
            self._memory.drop(request)
        described = describe(request, with_payload=self._payloads != "none")
        name = ""
        if described.payload is not None:
            name = self._writer.keep_payload(described.payload) if self._payloads == "full" else payload_name(described.payload)
        elif self._payloads != "none":
            self.without_payload += 1
        return TraceRow(request.arrival_ns + self._offset_ns, described.model, described.version, request.call, described.shapes, name)

    def _count(self, rows: list[TraceRow]) -> None:
        for row in rows:
            call = (row.model[:_LONGEST_NAME], row.call)
            self._calls[call if call in self._calls or len(self._calls) < _MOST_CALLS else ("", row.call)] += 1

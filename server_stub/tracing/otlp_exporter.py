"""Sends traces as spans by OTLP over HTTP, from a thread of its own, so that requests never wait for the collector."""

import collections
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from server_stub.tracing.request_trace import RequestTrace
from server_stub.tracing.spans import SpanMaker, unix_offset_ns
from server_stub.tracing.trace_config import TraceConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_SPANS_PER_TRACE = 3
_SEND_TIMEOUT_S = 5.0
_CLOSE_TIMEOUT_S = 2.0

Warn = Callable[[str, str], None]
"""Takes an event and a message for the log."""


class OtlpExporter:
    """Collects traces for `delay_ms`, then sends them. What does not fit, or cannot be sent, is counted and reported once at the end."""

    def __init__(self, config: TraceConfig, warn: Warn) -> None:
        """Raises UsageError if OpenTelemetry is not installed."""
        self._maker = SpanMaker(config.resource)
        import requests
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)  # it would log each failure; the warning below says it once
        session = requests.Session()
        session.trust_env = False  # the collector is reached directly, and gets no credentials of a .netrc
        self._sender = OTLPSpanExporter(config.url, timeout=_SEND_TIMEOUT_S, session=session)
        self._success = SpanExportResult.SUCCESS
        self._config, self._warn = config, warn
        self._waiting: collections.deque[RequestTrace] = collections.deque()
        self._max_waiting = max(1, config.max_waiting // _SPANS_PER_TRACE)
        self._has_traces, self._closing = threading.Event(), threading.Event()
        self._has_warned = self._is_closed = False
        self.lost = 0
        """Traces that did not fit."""
        self.unsent = 0
        """Spans that could not be sent."""
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def add(self, trace: RequestTrace) -> None:
        """See `Exporter.add`."""
        if len(self._waiting) >= self._max_waiting:
            self.lost += 1
            return
        self._waiting.append(trace)
        if not self._has_traces.is_set():
            self._has_traces.set()

    def close(self) -> None:
        """See `Exporter.close`."""
        self._closing.set()
        self._has_traces.set()
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._is_closed = True
        self._sender.shutdown()  # type: ignore[no-untyped-call]  # it has no annotations. Ends waiting before another attempt
        if self.lost or self.unsent or self._waiting:
            text = f"{len(self._waiting) + self.lost} traced requests and {self.unsent} spans did not reach {self._config.url}"
            self._warn("traces_lost", text)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._has_traces.wait()
            self._closing.wait(self._config.delay_ms / 1000)
            self._has_traces.clear()
            self._send_waiting()
        self._send_waiting()

    def _send_waiting(self) -> None:
        offset_ns = unix_offset_ns()
        while self._waiting and not self._is_closed:
            count = min(len(self._waiting), max(1, self._config.max_batch // _SPANS_PER_TRACE))
            self._send(self._maker.make([self._waiting.popleft() for _ in range(count)], offset_ns))

    def _send(self, spans: "Sequence[ReadableSpan]") -> None:
        if self._sender.export(spans) is self._success:
            return
        self.unsent += len(spans)
        if not self._has_warned:
            self._has_warned = True
            self._warn("traces_not_sent", f"spans cannot be sent to {self._config.url}; the server goes on without, and counts them")

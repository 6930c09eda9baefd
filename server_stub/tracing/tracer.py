"""Chooses the requests to trace, and hands their traces to an exporter."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from server_stub.tracing.request_trace import FrontEnd, RequestTrace, parse_traceparent
from server_stub.tracing.trace_config import TraceConfig
from server_stub.tracing.trace_settings import TraceSettings


class Exporter(Protocol):
    """Where finished traces go."""

    def add(self, trace: RequestTrace) -> None:
        """Take a trace. Returns at once, and never raises."""

    def close(self) -> None:
        """Hand on what is left, within a bounded time."""


class Tracer:
    """The server's tracing. Used from the event loop only."""

    def __init__(
        self, settings: TraceSettings | None = None, exporter: Exporter | None = None, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Without an exporter nothing is traced."""
        self.settings = settings or TraceSettings(TraceConfig())
        self._exporter, self._now_ns = exporter, now_ns
        self._honours_parents = self.settings.config.mode == "opentelemetry"
        self._numbers: Iterator[int] = itertools.count(1)

    @property
    def is_on(self) -> bool:
        """Whether requests are traced at all. Where each request passes, it is asked before `start`, which saves most of them a call."""
        return self.settings.is_on

    def start(self, front_end: FrontEnd, model: str, traceparent: str, wait_started_ns: int, received_ns: int) -> RequestTrace | None:
        """A trace for a request that has been received, or None if it is not to be traced."""
        if not self.is_on:
            return None
        parent = parse_traceparent(traceparent) if traceparent and self._honours_parents else None
        if self._exporter is None or not self.settings.sampler(model).sample(is_forced=parent is not None):
            return None
        return RequestTrace(next(self._numbers), front_end, parent, wait_started_ns, received_ns)

    def finish(self, trace: RequestTrace, send_started_ns: int | None = None) -> None:
        """The request has been answered: just now, by a response whose sending began at `send_started_ns`, if the trace lacks that."""
        trace.ended_ns = self._now_ns()
        if send_started_ns is not None:
            trace.sends.append((send_started_ns, trace.ended_ns))
        if self._exporter is not None:
            self._exporter.add(trace)

    def close(self) -> None:
        """Hand on the traces that are left. The front ends are closed."""
        if self._exporter is not None:
            self._exporter.close()

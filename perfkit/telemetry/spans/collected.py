"""The spans of a run that have come so far, by trace: bounded, and counted."""

import collections
import threading
from collections.abc import Callable, Sequence

from perfkit.clock import Clock
from perfkit.spans.formats import SpansRead
from perfkit.spans.server_times import ServerTimes, server_times
from perfkit.spans.span import Span
from perfkit.telemetry.messages import SpanCounts, SpansReport
from perfkit.units import NS_PER_S

_MOST_SPANS_OF_A_TRACE = 64
_QUIET_NS, _PAUSE_S, _LAST = NS_PER_S, 0.05, 5
_BATCH_NS = 5_500_000_000
"""OpenTelemetry's SDKs send a batch of spans every 5 s by default."""


class CollectedSpans:
    """Holds the spans of at most `most_traces` traces; above that, the trace that came first is dropped. Any thread may call it."""

    def __init__(self, most_traces: int, clock: Clock, pause: Callable[[float], object] | None = None) -> None:
        self._most_traces, self._clock = most_traces, clock
        self._pause = pause or threading.Event().wait
        self._traces: dict[str, dict[str, Span]] = {}
        self._reported: dict[str, None] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self._newest_ns = clock.now_ns()
        self._lock = threading.Lock()

    def add(self, read: SpansRead) -> None:
        """Keeps the spans of a body."""
        with self._lock:
            self._counts.update(received=len(read.spans), strangers=read.strangers, malformed=read.malformed)
            for span in read.spans:
                self._keep(span)
            if read.spans:
                self._newest_ns = self._clock.now_ns()

    def refuse(self) -> None:
        """Counts a body that was refused."""
        with self._lock:
            self._counts["refused_bodies"] += 1

    def report(self, trace_ids: Sequence[str], within_s: float, on_second: Callable[[], None]) -> SpansReport:
        """The times of these traces, as far as their spans have come. Their spans are dropped, and the counts begin anew.

        The ids are in the order in which the requests ended, in which a server sends their spans, too. Waits until none came for a second,
        and all have come; or, after the time of a server's batch, one of the last few: Triton overlooks the header of some gRPC requests.
        Waits at most `within_s`, and calls `on_second` after each second of it.
        """
        self._wait(trace_ids, within_s, on_second)
        with self._lock:
            taken = {trace_id: self._traces.pop(trace_id, {}) for trace_id in trace_ids}
            counts, self._counts = SpanCounts(**self._counts), collections.Counter()
            self._reported.update(dict.fromkeys(trace_ids))
            while len(self._reported) > self._most_traces:
                del self._reported[next(iter(self._reported))]
        times = {trace_id: server_times(list(spans.values())) for trace_id, spans in taken.items()}
        return SpansReport({trace_id: found for trace_id, found in times.items() if found is not None}, counts)

    def _wait(self, trace_ids: Sequence[str], within_s: float, on_second: Callable[[], None]) -> None:
        now_ns = self._clock.now_ns()
        began_ns, until_ns, told_ns, looked_at_ns = now_ns, now_ns + round(within_s * NS_PER_S), now_ns, -1
        missing, last = list(trace_ids), set(trace_ids[-_LAST:])
        while missing and (now_ns := self._clock.now_ns()) < until_ns:
            newest_ns = self._newest_ns
            if now_ns - newest_ns >= _QUIET_NS and newest_ns != looked_at_ns:
                looked_at_ns = newest_ns
                missing = [trace_id for trace_id in missing if self._times(trace_id) is None]
                continue
            if looked_at_ns == newest_ns and now_ns - began_ns >= _BATCH_NS and not last.issubset(missing):
                return
            if now_ns - told_ns >= NS_PER_S:
                told_ns = now_ns
                on_second()
            self._pause(_PAUSE_S)

    def _times(self, trace_id: str) -> ServerTimes | None:
        with self._lock:
            spans = list(self._traces.get(trace_id, {}).values())
        return server_times(spans)

    def _keep(self, span: Span) -> None:
        if span.trace_id in self._reported:
            self._counts["late"] += 1
            return
        if span.trace_id not in self._traces:
            if len(self._traces) >= self._most_traces:
                self._counts["dropped"] += len(self._traces.pop(next(iter(self._traces))))
            self._traces[span.trace_id] = {}
        spans = self._traces[span.trace_id]
        if span.span_id in spans:
            self._counts["duplicates"] += 1
        elif len(spans) >= _MOST_SPANS_OF_A_TRACE:
            self._counts["dropped"] += 1
        else:
            spans[span.span_id] = span

"""OpenTelemetry spans of a traced request, with Triton's names, events and attributes."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from server_stub.tracing.request_trace import COMPUTE_EVENTS, RequestTrace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span

_SCOPE = "triton-server"
_MODEL_EVENTS = ("REQUEST_START", "QUEUE_START", "REQUEST_END")
_INNER_EVENTS = frozenset((*_MODEL_EVENTS, *COMPUTE_EVENTS))
_TIE_READINGS = 5


def unix_offset_ns(unix_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> int:
    """Unix time minus monotonic time, from the reading of Unix time that two of the other clock enclose most closely."""
    narrowest_ns, offset_ns = 0, 0
    for number in range(_TIE_READINGS):
        before_ns = monotonic_ns()
        unix = unix_ns()
        after_ns = monotonic_ns()
        if not number or after_ns - before_ns < narrowest_ns:
            narrowest_ns, offset_ns = after_ns - before_ns, unix - (before_ns + after_ns) // 2
    return offset_ns


class SpanMaker:
    """Makes spans by OpenTelemetry's SDK."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        from opentelemetry import trace as api
        from opentelemetry.context import Context
        from opentelemetry.sdk import trace as sdk
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        finished: list[ReadableSpan] = []

        class Collect(sdk.SpanProcessor):
            def on_end(self, span: "ReadableSpan") -> None:
                finished.append(span)

        provider = sdk.TracerProvider(sampler=ALWAYS_ON, resource=Resource.create(dict(resource)), shutdown_on_exit=False)
        provider.add_span_processor(Collect())
        self._api, self._context, self._finished = api, Context, finished
        self._tracer = provider.get_tracer(_SCOPE)

    def make(self, traces: Iterable[RequestTrace], offset_ns: int) -> "Sequence[ReadableSpan]":
        """The spans of traces; `offset_ns` is Unix time minus monotonic time."""
        for trace in traces:
            self._make(trace, offset_ns)
        made, self._finished[:] = list(self._finished), []
        return made

    def _make(self, trace: RequestTrace, offset_ns: int) -> None:
        events = [(name, instant_ns + offset_ns) for name, instant_ns in trace.events()]
        instants = dict(events)
        started_ns = (trace.wait_started_ns if trace.front_end == "HTTP" else trace.received_ns) + offset_ns
        request = self._start("InferRequest", self._parent(trace), started_ns)
        if "REQUEST_START" in instants:
            model = self._start(trace.model, request, instants["REQUEST_START"])
            model.set_attribute("triton.model_name", trace.model)
            model.set_attribute("triton.model_version", int(trace.version))
            model.set_attribute("triton.trace_id", trace.number)
            model.set_attribute("triton.trace_parent_id", 0)
            if trace.request_id:
                model.set_attribute("triton.request_id", trace.request_id)
            if "COMPUTE_START" in instants:
                compute = self._start("compute", model, instants["COMPUTE_START"])
                _end(compute, [event for event in events if event[0] in COMPUTE_EVENTS], instants["COMPUTE_END"])
            _end(model, [event for event in events if event[0] in _MODEL_EVENTS], instants["REQUEST_END"])
        _end(request, [event for event in events if event[0] not in _INNER_EVENTS], trace.ended_ns + offset_ns)

    def _parent(self, trace: RequestTrace) -> "Span | None":
        if trace.parent is None:
            return None
        flags = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
        return self._api.NonRecordingSpan(self._api.SpanContext(*trace.parent, is_remote=True, trace_flags=flags))

    def _start(self, name: str, parent: "Span | None", started_ns: int) -> "Span":
        context = self._context() if parent is None else self._api.set_span_in_context(parent, self._context())
        return self._tracer.start_span(name, context, kind=self._api.SpanKind.SERVER, start_time=started_ns)


def _end(span: "Span", events: Iterable[tuple[str, int]], ended_ns: int) -> None:
    for name, instant_ns in events:
        span.add_event(name, timestamp=instant_ns)
    span.end(ended_ns)

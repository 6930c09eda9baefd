"""OTLP trace requests as spans: `ExportTraceServiceRequest` in JSON and in protobuf (opentelemetry.io/docs/specs/otlp).

In JSON, ids are hexadecimal texts and 64-bit numbers are texts or numbers; in protobuf, ids are bytes. A span that is no span is
counted; only a body that is no OTLP at all raises ProtocolError.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from perfkit.errors import ProtocolError
from perfkit.spans.span import END_NS, MOST_CHARACTERS, Span, event_times

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtobufSpan

_Found = TypeVar("_Found")
_TRACE_ID, _SPAN_ID = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-fA-F]{16}")
_NO_PARENT = ("", None, "0" * 16)


@dataclasses.dataclass(slots=True)
class SpansRead:
    """The spans of a body, and how many it held besides."""

    spans: list[Span] = dataclasses.field(default_factory=list)
    strangers: int = 0
    """Spans of other traces than those asked for."""
    malformed: int = 0
    """Spans without the ids or the times that a span must have."""


def read_json(body: bytes, run_prefix: str = "") -> SpansRead:
    """The spans of an OTLP/JSON request whose trace ids begin with `run_prefix` (lower case). Raises ProtocolError."""
    if run_prefix.encode() not in body.lower() and (strangers := body.count(b'"startTimeUnixNano"')):
        return SpansRead(strangers=strangers)  # parsing would cost many times as much as this look at the text
    try:
        document = json.loads(body)
        found = [
            span
            for resource in _items(document, "resourceSpans")
            for scope in _items(resource, "scopeSpans")
            for span in _items(scope, "spans")
        ]
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"The body is no OTLP trace request in JSON: {str(error)[:MOST_CHARACTERS]}") from None
    return _read(found, _trace_id_of_json, _span_of_json, run_prefix)


def read_protobuf(body: bytes, run_prefix: str = "") -> SpansRead:
    """The spans of an OTLP/protobuf request whose trace ids begin with `run_prefix` (lower case). Raises ProtocolError."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        raise ProtocolError("The body is no OTLP trace request in protobuf.") from None
    found = (span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans)
    return _read(found, lambda span: span.trace_id.hex(), _span_of_protobuf, run_prefix)


def _read(found: Iterable[_Found], trace_id_of: Callable[[_Found], str], span_of: Callable[[_Found], Span], run_prefix: str) -> SpansRead:
    read = SpansRead()
    for item in found:
        trace_id = trace_id_of(item)
        if not _TRACE_ID.fullmatch(trace_id):
            read.malformed += 1
        elif not trace_id.startswith(run_prefix):
            read.strangers += 1
        else:
            try:
                read.spans.append(span_of(item))
            except ValueError:
                read.malformed += 1
    return read


def _trace_id_of_json(span: Any) -> str:
    trace_id = span.get("traceId") if isinstance(span, dict) else None
    return trace_id.lower() if isinstance(trace_id, str) else ""


def _items(document: Any, key: str) -> list[Any]:
    """The list under a key, empty without it; raises ValueError if either is of another kind."""
    items = document.get(key, []) if isinstance(document, dict) else None
    if items is None and isinstance(document, dict):
        return []  # protobuf's JSON mapping writes null for what is not set
    if not isinstance(items, list):
        raise ValueError(f"expected an object with a list `{key}`")
    return items


def _span_of_json(span: Any) -> Span:
    parent = span.get("parentSpanId")
    name = span.get("name", "")
    if not isinstance(name, str):
        raise ValueError("expected a text")
    start_ns, end_ns = _times(_integer(span.get("startTimeUnixNano")), _integer(span.get("endTimeUnixNano")))
    return Span(
        _trace_id_of_json(span),
        _span_id(span.get("spanId")),
        "" if parent in _NO_PARENT else _span_id(parent),
        name[:MOST_CHARACTERS],
        start_ns,
        end_ns,
        event_times((_text(event, "name"), _integer(event.get("timeUnixNano"))) for event in _items(span, "events")),
    )


def _span_of_protobuf(span: "ProtobufSpan") -> Span:
    start_ns, end_ns = _times(span.start_time_unix_nano, span.end_time_unix_nano)
    return Span(
        span.trace_id.hex(),
        _span_id(span.span_id.hex()),
        _span_id(span.parent_span_id.hex()) if any(span.parent_span_id) else "",
        span.name[:MOST_CHARACTERS],
        start_ns,
        end_ns,
        event_times((event.name, event.time_unix_nano) for event in span.events),
    )


def _span_id(value: object) -> str:
    if not isinstance(value, str) or not _SPAN_ID.fullmatch(value):
        raise ValueError("expected 16 hexadecimal digits")
    return value.lower()


def _times(start_ns: int, end_ns: int) -> tuple[int, int]:
    if not 0 < start_ns <= end_ns < END_NS:
        raise ValueError("expected a start and, not before it, an end")
    return start_ns, end_ns


def _integer(value: object) -> int:
    if isinstance(value, str) and len(value) <= 20 and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("expected an integer")


def _text(document: Any, key: str) -> str:
    text = document.get(key) if isinstance(document, dict) else None
    if not isinstance(text, str):
        raise ValueError(f"expected an object with a text `{key}`")
    return text

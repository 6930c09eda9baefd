"""Spans as others write them: OTLP in JSON and in protobuf (opentelemetry.io/docs/specs/otlp), and trace files.

Files are those of the OpenTelemetry Collector's exporter, which hold OTLP in JSON lines, and Triton's own.

In OTLP's JSON, ids are hexadecimal texts and 64-bit numbers are texts or numbers; in protobuf, ids are bytes. A span that is no span is
counted; only a body that is no OTLP at all raises ProtocolError.

Triton's (`--trace-config mode=triton`) hold timestamps of its steady clock, by request id; it traces only requests that its rate
chooses, whatever their `traceparent` says.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from perfkit.digits import whole_number
from perfkit.errors import ProtocolError, UsageError
from perfkit.input_file import read_bounded
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
    if isinstance(value, str) and (number := whole_number(value, 2**64 - 1)) is not None:
        return number
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("expected an integer")


def _text(document: Any, key: str) -> str:
    text = document.get(key) if isinstance(document, dict) else None
    if not isinstance(text, str):
        raise ValueError(f"expected an object with a text `{key}`")
    return text


_LARGEST_TRITON_FILE_BYTES, _LONGEST_LINE_BYTES = 256 * 2**20, 64 * 2**20


@dataclasses.dataclass(slots=True)
class FileSpans:
    """The spans of a file: by trace id, or by request id with instants of the monotonic clock of the server's machine, not Unix time."""

    spans: dict[str, list[Span]] = dataclasses.field(default_factory=dict)
    strangers: int = 0
    """Spans of other traces, or requests without an id."""
    malformed: int = 0
    """Spans, or lines, that are none."""


def read_spans_file(path: pathlib.Path, run_prefix: str = "") -> FileSpans:
    """The spans of a file of either kind; of OTLP those whose trace ids begin with `run_prefix`. Raises UsageError."""
    try:
        with path.open("rb") as file:
            if file.read(1) == b"[":
                return _triton_spans(path)
            file.seek(0)
            return _otlp_spans(path, iter(lambda: file.readline(_LONGEST_LINE_BYTES + 1), b""), run_prefix)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _otlp_spans(path: pathlib.Path, lines: Iterable[bytes], run_prefix: str) -> FileSpans:
    found, has_read, problem = FileSpans(), False, ""
    by_id: dict[str, dict[str, Span]] = {}
    for line in lines:
        if len(line) > _LONGEST_LINE_BYTES:
            raise UsageError(f"{path}: cannot be read: it has a line of more than {_LONGEST_LINE_BYTES // 2**20} MiB")
        if not line.strip():
            continue
        try:
            read = read_json(line, run_prefix)
        except ProtocolError as error:
            read, problem = SpansRead(malformed=1), problem or str(error)  # such as the last line of a file that is being written
        else:
            has_read = True
        found.strangers += read.strangers
        found.malformed += read.malformed
        for span in read.spans:
            by_id.setdefault(span.trace_id, {}).setdefault(span.span_id, span)
    if problem and not has_read:
        raise UsageError(f"{path}: expected OTLP traces in JSON lines, or a trace file of Triton: {problem}")
    found.spans = {trace_id: list(spans.values()) for trace_id, spans in by_id.items()}
    return found


def _triton_spans(path: pathlib.Path) -> FileSpans:
    if path.stat().st_size > _LARGEST_TRITON_FILE_BYTES:
        raise UsageError(
            f"{path}: cannot be read: it is larger than {_LARGEST_TRITON_FILE_BYTES // 2**20} MiB; set Triton's `log-frequency` for smaller files"
        )
    try:
        entries = json.loads(read_bounded(path, _LARGEST_TRITON_FILE_BYTES))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is no trace file of Triton: {error}") from None
    found = FileSpans()
    traces: dict[int, _TritonTrace] = {}
    for entry in entries:
        number = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(number, int) or not traces.setdefault(number, _TritonTrace(number)).add(entry):
            found.malformed += 1
    for trace in traces.values():
        root = trace.root(traces)
        if root is None or not root.request_id:
            found.strangers += 1
        else:
            found.spans.setdefault(root.request_id, []).extend(trace.spans())
    return found


@dataclasses.dataclass(slots=True)
class _TritonTrace:
    """What a trace file says of one execution: of a model, or of one within another's."""

    number: int
    model_name: str = ""
    request_id: str = ""
    parent: int | None = None
    timestamps: list[tuple[str, int]] = dataclasses.field(default_factory=list)

    def add(self, entry: Mapping[str, Any]) -> bool:
        """Adds an entry of the file; False if it is none."""
        timestamps = entry.get("timestamps", [])
        for item in timestamps if isinstance(timestamps, list) else [None]:
            name, instant_ns = (item.get("name"), item.get("ns")) if isinstance(item, dict) else (None, None)
            if not isinstance(name, str) or not isinstance(instant_ns, int) or not 0 < instant_ns < 2**63:
                return False
            self.timestamps.append((name, instant_ns))
        if isinstance(name := entry.get("model_name"), str):
            self.model_name = name
        if isinstance(request_id := entry.get("request_id"), str):
            self.request_id = request_id
        if isinstance(parent := entry.get("parent_id"), int):
            self.parent = parent
        return True

    def root(self, traces: Mapping[int, "_TritonTrace"]) -> "_TritonTrace | None":
        """The trace of the request itself; None if it is not in the file."""
        trace: _TritonTrace | None = self
        for _ in range(len(traces)):
            if trace is None or trace.parent is None:
                return trace
            trace = traces.get(trace.parent)
        return None

    def spans(self) -> list[Span]:
        """The spans that Triton makes of the same events with `mode=opentelemetry`."""
        parts: dict[str, list[tuple[str, int]]] = {}
        for name, instant_ns in self.timestamps:
            part = "c" if name.startswith("COMPUTE_") else "a" if name.startswith(("REQUEST_", "QUEUE_")) else "f"
            parts.setdefault(part, []).append((name, instant_ns))
        names = {"f": "InferRequest", "a": self.model_name, "c": "compute"}
        above = {"f": "", "a": f"{self.parent:015x}a" if self.parent else f"{self.number:015x}f", "c": f"{self.number:015x}a"}
        spans = []
        for part, events in parts.items():
            instants = [instant_ns for name, instant_ns in events if name != "GRPC_WAITREAD_START"]  # long before the request
            if instants:
                span_id = f"{self.number:015x}{part}"
                spans.append(Span(self.request_id, span_id, above[part], names[part], min(instants), max(instants), event_times(events)))
        return spans

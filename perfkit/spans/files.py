"""Spans from files: OTLP in JSON lines, as the OpenTelemetry Collector's file exporter writes them, and Triton's own trace files.

Triton's (`--trace-config mode=triton`) hold timestamps of its steady clock, by request id; it traces only requests that its rate
chooses, whatever their `traceparent` says.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from perfkit.errors import ProtocolError, UsageError
from perfkit.spans.otlp import SpansRead, read_json
from perfkit.spans.span import Span, event_times

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
        entries = json.loads(path.read_bytes())
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

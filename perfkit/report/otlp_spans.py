"""A stored result as spans, sent to an OpenTelemetry receiver over OTLP/HTTP by OpenTelemetry's own exporter, which is an extra."""

import hashlib
import itertools
import logging
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from perfkit.clock import parse_instant
from perfkit.errors import UsageError
from perfkit.installation import install_command
from perfkit.override import override
from perfkit.report.figures_by_name import figures_of, parameters_of
from perfkit.result.checksums import digest_of
from perfkit.result.file import RESULT_FILE, read_result
from perfkit.result.interval_log import read_window_starts
from perfkit.result.model import Point, Result
from perfkit.result.rotating_log import LOG_FILE, log_started_at_s
from perfkit.result.traces_file import read_traces
from perfkit.spans.span import client_span_id
from perfkit.target.address import redacted_url
from perfkit.units import NS_PER_S

try:
    import requests
    from google.protobuf.message import DecodeError
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError:
    raise UsageError(f"--otlp needs OpenTelemetry's exporter: {install_command('tracing')}") from None

_TIMEOUT_S = 5.0  # of a batch, with the exporter's own repetitions
_BATCH = 1000
_FIX = "is a receiver of OTLP/HTTP running there? Its URL is given without /v1/traces"
_NS_PER_MS = 1_000_000


def send_results(folders: Sequence[pathlib.Path], url: str) -> list[str]:
    """Sends the spans of each result to the receiver at a URL without `/v1/traces`, and returns a line for each.

    Headers and certificates are those of OpenTelemetry's variables, such as OTEL_EXPORTER_OTLP_HEADERS. Raises UsageError if the receiver
    does not take them, and ResultError.
    """
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # its warnings quote secrets of the headers' variable
    results, lines, session = [read_result(folder) for folder in folders], [], _Session()
    exporter = OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces", timeout=_TIMEOUT_S, session=session)
    try:
        for result, folder in results:
            spans, count = spans_of(result, folder), 0
            while batch := list(itertools.islice(spans, _BATCH)):
                session.refusal = "the spans could not be encoded and sent"
                if exporter.export(batch) is not SpanExportResult.SUCCESS or session.refusal:
                    raise UsageError(
                        f"--otlp {redacted_url(url)}: {' '.join(session.refusal.split())}; {count:,} spans of {folder} were sent before"
                    )
                count += len(batch)
            lines.append(f"{count:,} spans sent to {redacted_url(url)}: {folder}")
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call] # the library leaves this method without types
    return lines


class _Session(requests.Session):
    """Sends the exporter's requests, and keeps why the last one was refused; empty if all its spans were taken."""

    refusal = ""

    @override
    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        try:
            response = super().send(request, **options)
        except OSError as error:  # as all of the library
            self.refusal = f"{error}; {_FIX}"
            raise
        self.refusal = _refusal(response)
        return response


def _refusal(response: requests.Response) -> str:
    if not 200 <= response.status_code < 300:
        return f"the answer was {response.status_code} {response.reason}; {_FIX}"
    try:
        partial = ExportTraceServiceResponse.FromString(response.content).partial_success
    except DecodeError:  # such as JSON; receivers that reject spans say so in protobuf
        return ""
    return f"{partial.rejected_spans:,} spans were rejected: {partial.error_message}" if partial.rejected_spans else ""


class _Interval(NamedTuple):
    """The time of a load point of one repetition, in nanoseconds of Unix time."""

    begin_ns: int
    window_ns: int
    """The start of the window, after the warm-up."""
    end_ns: int


def spans_of(result: Result, folder: pathlib.Path) -> Iterator[ReadableSpan]:
    """The spans of a run, its load points and their repetitions, one trace; then those of the traced requests, each in the trace of its server.

    Figures are attributes, named as in other exports, after `perfkit.`. Ids follow from the result: sent again, they are the same spans.
    """
    digest = digest_of(folder / RESULT_FILE)
    intervals = _intervals(result, folder)
    start_ns = _start_ns(result, folder)
    spans = _Spans(digest)
    run = spans.context("run")
    end_ns = max((one.end_ns for one in intervals.values()), default=start_ns)
    source = result.environment.get("source") or {}
    facts = {
        "perfkit.status": result.status,
        "perfkit.status_reason": result.status_reason,
        "vcs.ref.head.revision": source.get("commit"),
        "vcs.ref.head.name": source.get("branch"),
    }
    attributes = {key: str(value) for key, value in facts.items() if value}
    attributes |= {f"perfkit.scenario.{key}": value for key, value in parameters_of(result).items()}
    status = Status(StatusCode.OK) if result.status == "complete" else Status(StatusCode.ERROR, result.status_reason or result.status)
    name = str(result.scenario.get("name") or "perfkit")
    yield spans.span(name, run, None, (start_ns, end_ns), attributes, status)
    for index, point in enumerate(result.summary):
        own = [one for (number, _), one in intervals.items() if number == index]
        if own:
            times = min(one.begin_ns for one in own), max(one.end_ns for one in own)
            yield spans.span(point.title, spans.context(f"p{index}"), run, times, _attributes(point))
    index_of = {point.key: index for index, point in enumerate(result.summary)}
    repetitions = dict[tuple[str, str, str, int], tuple[SpanContext, _Interval]]()
    # the file of traces does not tell a workload alone from the same in the mix, whose requests it lists before
    for point in sorted(result.points, key=lambda one: one.alone):
        if point.key in index_of:
            index, number = index_of[point.key], point.repetition or 0
            context, interval = spans.context(f"p{index}.r{number}"), intervals[index, number]
            repetitions[point.workload or "", point.protocol, point.load.title, number] = context, interval
            times = interval.begin_ns, interval.end_ns
            yield spans.span(f"repetition {number + 1}", context, spans.context(f"p{index}"), times, _attributes(point))
    yield from _request_spans(folder, spans, repetitions)


def _request_spans(
    folder: pathlib.Path, spans: "_Spans", repetitions: Mapping[tuple[str, str, str, int], tuple[SpanContext, _Interval]]
) -> Iterator[ReadableSpan]:
    """The traced requests, each linked to its repetition, and the parent of the spans that the server sent of it."""
    known, workload_of = set[str](), {one.trace_id: one.workload for one in read_traces(folder) if one.workload}
    for one in read_traces(folder):
        place = repetitions.get((one.workload, one.protocol, one.load, one.repetition))
        if place is None or one.trace_id in known:  # a request of a mix is listed twice
            continue
        known.add(one.trace_id)
        repetition, interval = place
        start_ns = interval.window_ns + one.start_ns
        context = _context(one.trace_id, client_span_id(one.trace_id))
        workload = workload_of.get(one.trace_id, "")
        parts = {f"perfkit.{part}_ns": part_ns for part, part_ns in one.parts_ns.items()}
        yield spans.span(
            "request",
            context,
            None,
            (start_ns, start_ns + one.total_ns),
            {**_place(workload, one.protocol, one.load), **parts},
            links=[Link(repetition)],
            kind=SpanKind.CLIENT,
        )


class _Spans:
    """Makes the spans of one result, whose ids follow from its digest."""

    def __init__(self, digest: str) -> None:
        self._trace_id = digest[:32]
        self._resource = Resource.create({"service.name": "perfkit"})
        self._scope = InstrumentationScope("perfkit")

    def context(self, place: str) -> SpanContext:
        """The ids of the span of a place in the result."""
        span_id = hashlib.blake2b(f"{self._trace_id} {place}".encode(), digest_size=8).hexdigest()
        return _context(self._trace_id, span_id)

    def span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        times_ns: tuple[int, int],
        attributes: Mapping[str, str | float | bool | Sequence[str]],
        status: Status | None = None,
        links: Sequence[Link] = (),
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> ReadableSpan:
        """A span that has ended."""
        return ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            attributes,
            links=links,
            kind=kind,
            status=status or Status(StatusCode.UNSET),
            start_time=times_ns[0],
            end_time=times_ns[1],
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    """The context of a span by its ids in hexadecimal digits."""
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _place(workload: str, protocol: str, load: str) -> dict[str, str]:
    return {**({"perfkit.workload": workload} if workload else {}), "perfkit.protocol": protocol, "perfkit.load": load}


def _attributes(point: Point) -> dict[str, str | float | bool | Sequence[str]]:
    """What was measured, the figures of a load point, whether it is valid, and the codes of its warnings."""
    place, figures = _place(point.workload or "", point.protocol, point.load.title), figures_of(point)
    codes = tuple(dict.fromkeys(warning.code for warning in point.warnings))
    named = {f"perfkit.{name}": value for name, value in figures.items()}
    return {**place, **named, "perfkit.valid": point.valid, **({"perfkit.warnings": codes} if codes else {})}


def _start_ns(result: Result, folder: pathlib.Path) -> int:
    """The start of the result, which is stored in milliseconds; of a resumed run that of its log, from which the log then counts."""
    started_at_s = log_started_at_s(folder) if result.resumptions else None
    return round((parse_instant(result.started_at).timestamp() if started_at_s is None else started_at_s) * 1000) * _NS_PER_MS


def _intervals(result: Result, folder: pathlib.Path) -> dict[tuple[int, int], _Interval]:
    """When each load point was measured, by its number in the summary and the repetition.

    In a folder without the log of the intervals, a load point is taken to begin when the previous one ends.
    """
    starts_s = read_window_starts(folder) if (folder / LOG_FILE).exists() else {}
    index_of = {point.key: index for index, point in enumerate(result.summary)}
    intervals = dict[tuple[int, int], _Interval]()
    start_ns = end_ns = _start_ns(result, folder)
    for point in result.points:
        if (index := index_of.get(point.key)) is None:
            continue
        key, warmup_ns = (index, point.repetition or 0), round(point.warmup_s * NS_PER_S)
        window_ns = start_ns + round(starts_s[key] * NS_PER_S) if key in starts_s else end_ns + warmup_ns
        end_ns = window_ns + round(point.duration_s * NS_PER_S)
        intervals[key] = _Interval(window_ns - warmup_ns, window_ns, end_ns)
    return intervals

"""The server's part of one request, read from the spans of its trace.

Triton's spans (docs.nvidia.com/deeplearning/triton-inference-server, "Triton Server Trace"): `InferRequest` is the front end, a span
with the model's name the model, `compute` its execution; an ensemble's span is the parent of its models' spans. Of other servers only
the outermost span is read.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from perfkit.spans.span import Span

Interval = tuple[int, int]
_EARLIEST_NS = 60_000_000_000
"""How long before its span a request may have begun to come in."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerTimes:
    """Instants of one request on the clock of its spans, and durations, in nanoseconds; None where the server does not say.

    `received_ns` comes after the client began to send, and `answered_ns` before the client had the whole answer: a clock that puts
    them elsewhere is off. The durations are parts of the time from `work_began_ns` to `work_ended_ns`, and no instant is in two of them.
    """

    received_ns: int
    answered_ns: int
    """When the server began to send the answer, or its last part."""
    work_began_ns: int | None = None
    """When the request entered the queue of the (first) model."""
    work_ended_ns: int | None = None
    """When the (last) model had answered."""
    queue_ns: int | None = None
    compute_input_ns: int | None = None
    compute_infer_ns: int | None = None
    compute_output_ns: int | None = None


def server_times(spans: Sequence[Span]) -> ServerTimes | None:
    """The times of one trace, or None if its outermost span has not come; the order of the spans does not matter.

    Where the models of an ensemble work at the same time, an instant counts once: as infer if any of them infers, else as input,
    output or queue, in this order. Triton's Python backend answers before it ends `compute`: what comes after the answer counts nowhere.
    """
    by_id = {span.span_id: span for span in spans}
    outer = min((span for span in spans if span.parent_id not in by_id), key=lambda span: (span.start_ns, -span.end_ns), default=None)
    if outer is None or _is_inner(outer):
        return None
    received_ns, answered_ns = _received_ns(outer), _answered_ns(outer)
    models = [span for span in spans if "QUEUE_START" in span.events]
    if not models:
        return ServerTimes(received_ns, answered_ns)
    computes = [span for span in spans if "COMPUTE_START" in span.events]
    work_began_ns = min(span.events["QUEUE_START"].first_ns for span in models)
    ended_ns = _last(outer, "INFER_RESPONSE_COMPLETE", answered_ns)
    work_ended_ns = max(min(max(span.end_ns for span in computes or models), ended_ns), work_began_ns)
    parts = _exclusive(_stages(models, computes, by_id), (work_began_ns, work_ended_ns))
    return ServerTimes(received_ns, answered_ns, work_began_ns, work_ended_ns, parts[3], parts[1], parts[0], parts[2])


def _is_inner(span: Span) -> bool:
    """Whether the span is one of Triton's below `InferRequest`, whose own has not come."""
    return "QUEUE_START" in span.events or "COMPUTE_START" in span.events


def _received_ns(outer: Span) -> int:
    # GRPC_WAITREAD_START is when the server began to wait for any request, long before this one
    events = outer.events
    for name in ("HTTP_RECV_START", "GRPC_WAITREAD_END"):
        if name in events and outer.start_ns - _EARLIEST_NS <= events[name].first_ns:
            return min(events[name].first_ns, outer.start_ns)
    return outer.start_ns


def _answered_ns(outer: Span) -> int:
    # *_SEND_END and the span's end are written down after the answer has left: the client may have it before
    for name in ("HTTP_SEND_START", "GRPC_SEND_START", "INFER_RESPONSE_COMPLETE"):
        # Triton's generate endpoints write instants that are hours before the span
        if name in outer.events and outer.start_ns <= outer.events[name].last_ns <= outer.end_ns:
            return outer.events[name].last_ns
    return outer.end_ns


def _last(span: Span, name: str, otherwise_ns: int) -> int:
    return span.events[name].last_ns if name in span.events else otherwise_ns


def _stages(models: Sequence[Span], computes: Sequence[Span], by_id: Mapping[str, Span]) -> tuple[list[Interval], ...]:
    """The intervals of infer, input, output and queue, of all models."""
    infer, inputs, outputs, queue = list[Interval](), list[Interval](), list[Interval](), list[Interval]()
    started_ns: dict[str, int] = {}
    for span in computes:
        start_ns = span.events["COMPUTE_START"].first_ns
        input_end_ns = _last(span, "COMPUTE_INPUT_END", start_ns)
        end_ns = _last(span, "COMPUTE_END", span.end_ns)
        output_start_ns = _last(span, "COMPUTE_OUTPUT_START", end_ns)
        started_ns[span.parent_id] = min(start_ns, started_ns.get(span.parent_id, start_ns))
        inputs.append((start_ns, input_end_ns))
        infer.append((input_end_ns, output_start_ns))
        outputs.append((output_start_ns, end_ns))
    ensembles = {span.parent_id for span in models if span.parent_id in by_id}
    for span in models:
        # an ensemble has no queue of its own; a request that never left a model's queue was there to the end
        if span.span_id in started_ns or span.span_id not in ensembles:
            queue.append((span.events["QUEUE_START"].first_ns, started_ns.get(span.span_id, span.end_ns)))
    return infer, inputs, outputs, queue


def _exclusive(stages: Iterable[Sequence[Interval]], within: Interval) -> list[int]:
    """How much of `within` each stage covers that no stage before it covers, in nanoseconds."""
    covered, total_ns, durations_ns = list[Interval](), 0, list[int]()
    for intervals in stages:
        clipped = ((max(start, within[0]), min(end, within[1])) for start, end in intervals)
        covered = _union([*covered, *(interval for interval in clipped if interval[0] < interval[1])])
        now_ns = sum(end - start for start, end in covered)
        durations_ns.append(now_ns - total_ns)
        total_ns = now_ns
    return durations_ns


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined

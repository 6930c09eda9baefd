"""The instants of one traced request, collected on its way through the server."""

import dataclasses
import re
from typing import Literal, NamedTuple

KEY = "traceparent"
"""The header and metadata key of W3C Trace Context, by which a client makes its own span the parent of ours."""
_FORMAT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?", re.IGNORECASE | re.ASCII)
COMPUTE_EVENTS = ("COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END")
FrontEnd = Literal["HTTP", "GRPC"]


class ParentSpan(NamedTuple):
    """A span of the client."""

    trace_id: int
    span_id: int


def parse_traceparent(text: str) -> ParentSpan | None:
    """The client's span, or None if the text is not valid.

    As in Triton, the sampled flag is not looked at, and upper-case digits are accepted. Versions after 00 may carry more at the end;
    version ff and ids of zeros are invalid (https://www.w3.org/TR/trace-context/#traceparent-header).
    """
    found = _FORMAT.fullmatch(text)
    if found is None or found[1].lower() == "ff" or (found[1] == "00" and found[4] is not None):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    return ParentSpan(trace_id, span_id) if trace_id and span_id else None


@dataclasses.dataclass(slots=True, eq=False)
class RequestTrace:
    """The monotonic instants of one request, in nanoseconds. None means that it was not reached."""

    number: int
    """Counts the traces of the server, from 1."""
    front_end: FrontEnd
    parent: ParentSpan | None
    """None makes the request a trace of its own."""
    wait_started_ns: int
    """HTTP: when the head had been received. gRPC: since when the server waited for the request, as far as it knows."""
    received_ns: int
    """When the whole request had been received."""
    model: str = ""
    """Its model, once the request has joined the model's queue; like `version` and `request_id`."""
    version: str = ""
    request_id: str = ""
    enqueued_ns: int | None = None
    compute: tuple[int, int, int, int] | None = None
    """When execution started, the input was ready, the output was computed, and it was ready."""
    completed_ns: int | None = None
    """When the front end got the response, or the first of several."""
    sends: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    """When the front end began and ended to send each response."""
    ended_ns: int = 0

    def enqueue(self, model: str, version: str, request_id: str, now_ns: int) -> None:
        """The request joins the queue of its model."""
        self.model, self.version, self.request_id, self.enqueued_ns = model, version, request_id, now_ns

    def events(self) -> list[tuple[str, int]]:
        """The instants reached, with Triton's names. Sending is there once for each response."""
        first, last = ("HTTP_RECV_START", "HTTP_RECV_END") if self.front_end == "HTTP" else ("GRPC_WAITREAD_START", "GRPC_WAITREAD_END")
        compute: tuple[int | None, ...] = self.compute or (None, None, None, None)
        instants = [
            (first, self.wait_started_ns),
            (last, self.received_ns),
            ("REQUEST_START", self.enqueued_ns),
            ("QUEUE_START", self.enqueued_ns),
            *zip(COMPUTE_EVENTS, compute, strict=True),
            ("REQUEST_END", self.request_ended_ns),
            ("INFER_RESPONSE_COMPLETE", self.completed_ns),
        ]
        for started_ns, ended_ns in self.sends:
            instants += [(f"{self.front_end}_SEND_START", started_ns), (f"{self.front_end}_SEND_END", ended_ns)]
        return [(name, instant_ns) for name, instant_ns in instants if instant_ns is not None]

    @property
    def request_ended_ns(self) -> int | None:
        """When the model was done with the request: executed it, or refused it after it had waited."""
        if self.enqueued_ns is None:
            return None
        if self.compute is not None:
            return self.compute[-1]
        return self.ended_ns if self.completed_ns is None else self.completed_ns

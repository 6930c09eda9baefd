"""A span, as OpenTelemetry's data model has it, reduced to what explains a request's time, and what the load generator records of such a request."""

import dataclasses
import hashlib
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

END_NS = 2**63
"""Instants lie between 0 and this: Unix nanoseconds of the year 2262."""
MOST_EVENT_NAMES, MOST_CHARACTERS = 64, 256
"""What is kept of one span: event names, and characters of each text. The rest is dropped."""


class EventTimes(NamedTuple):
    """The first and the last instant of the events of one name in a span, in nanoseconds of the span's clock."""

    first_ns: int
    last_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """An operation on the server; instants are nanoseconds of Unix time by the server's clock, unless its source says otherwise."""

    trace_id: str
    """32 hexadecimal digits in lower case."""
    span_id: str
    """16 hexadecimal digits in lower case."""
    parent_id: str
    """As `span_id`; empty without a parent."""
    name: str
    start_ns: int
    end_ns: int
    events: Mapping[str, EventTimes]


def client_span_id(trace_id: str) -> str:
    """The id of the load generator's span in the trace of a request: the parent of the server's spans, 16 hexadecimal digits."""
    return hashlib.blake2b(trace_id.encode(), digest_size=8).hexdigest()


def event_times(events: Iterable[tuple[str, int]]) -> dict[str, EventTimes]:
    """The events of a span by name, at most `MOST_EVENT_NAMES` names; those at no possible instant are left out."""
    found: dict[str, EventTimes] = {}
    for whole_name, instant_ns in events:
        if not 0 < instant_ns < END_NS:
            continue
        name = sys.intern(whole_name[:MOST_CHARACTERS])  # one text for all spans that are kept
        if name in found:
            first_ns, last_ns = found[name]
            found[name] = EventTimes(min(first_ns, instant_ns), max(last_ns, instant_ns))
        elif len(found) < MOST_EVENT_NAMES:
            found[name] = EventTimes(instant_ns, instant_ns)
    return found


class SampledRequest(NamedTuple):
    """One traced request; its instants are of the load generator's monotonic clock, in nanoseconds.

    In open loops intended ≤ paced ≤ started ≤ finished; closed loops start a request when they intend to, and pace nothing.
    """

    trace_id: str
    """32 hexadecimal digits."""
    intended_ns: int
    """When the schedule wanted it sent; in closed loops, when it was started."""
    paced_ns: int
    """When the load generator came to send it, before the wait for a connection; 0 in closed loops."""
    started_ns: int
    finished_ns: int
    variant: int
    """The number of its inputs among those that the load point sends in turn."""
    is_ok: bool
    """Whether it was answered without an error."""

    @property
    def is_paced(self) -> bool:
        """Whether an open loop sent it, so that its total is the response time; otherwise the total is the service time."""
        return self.paced_ns != 0

    @property
    def total_ns(self) -> int:
        """The response time; in closed loops, the service time."""
        return self.finished_ns - (self.intended_ns if self.is_paced else self.started_ns)

    def shifted(self, by_ns: int) -> "SampledRequest":
        """A copy with `by_ns` added to each instant, to convert it to another clock."""
        return self._replace(
            intended_ns=self.intended_ns + by_ns,
            paced_ns=self.paced_ns + by_ns if self.is_paced else 0,
            started_ns=self.started_ns + by_ns,
            finished_ns=self.finished_ns + by_ns,
        )

"""The load of a load point as the loops execute it: plain data, which goes to worker processes."""

import dataclasses
from typing import Literal, TypeAlias

from perfkit.load.arrivals import Schedule, Trace
from perfkit.load.sequences import SequencePlan

# a request in flight takes about 1 KiB of memory: a target that does not answer must not exhaust it
MAX_IN_FLIGHT = 65_536


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedPlan:
    """A fixed number of requests in flight."""

    concurrency: int
    think_time_ns: int
    sequences: SequencePlan | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RampPlan(ClosedPlan):
    """A scan: from `start` requests in flight, and as many in the warm-up, to `concurrency` over the window."""

    start: int
    over_ns: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IdlePlan(ClosedPlan):
    """One request in flight, with idle gaps; see `IdleLoop`."""

    gap_ns: int
    then: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ColdStartPlan(ClosedPlan):
    """A start of the model or the server, then one request in flight."""

    by: Literal["reload", "restart"]
    requests: int
    timeout_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class SurgePlan:
    """An overload within an open loop; instants count from the window's start."""

    rate_per_s: float
    start_ns: int
    end_ns: int
    window_ns: int
    slot_ns: int
    """The resolution of its figures over time."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpenPlan:
    """Arrivals at a rate, or from a trace; during the warm-up the rate is that with which the shape begins."""

    rate_per_s: float
    law: str
    schedule: Schedule | Trace
    burstiness: float | None
    max_in_flight: int | None
    sequences: SequencePlan | None = None
    speed: float | None = None
    """The speed of a replay as a multiple of its trace's; None for all other arrivals."""
    length_ns: int | None = None
    """The length of a replay that is sent once: the window, unless the scenario gives one."""
    surge: SurgePlan | None = None

    @property
    def peak_rate_per_s(self) -> float:
        """The highest rate of the shape, or the mean rate of a trace; in requests, of which an arrival may start several."""
        each = self.sequences.requests_per_arrival if self.sequences else 1
        if isinstance(self.schedule, Trace):
            return self.rate_per_s * each
        return max(max(segment.from_per_s, segment.to_per_s) for segment in self.schedule.segments) * each


LoadPlan: TypeAlias = ClosedPlan | RampPlan | OpenPlan

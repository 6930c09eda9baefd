"""What a load point of `perfkit.result/1` holds besides its figures: failures, incidents, and the parts of addresses and machines."""

from typing import Annotated, Literal

from pydantic import Field

from perfkit.figures.declaration import Figure
from perfkit.result.distribution import Distribution
from perfkit.result.part import Part


class Failure(Part):
    """Failed requests of the window with one message."""

    outcome: str
    status: str | None
    """The HTTP status, or the name of the gRPC status, of a rejection."""
    message: str | None
    """The server's words, at most 300 characters; None for all other messages together."""
    cause: Literal["queue_full", "queue_timeout"] | None
    """Whether the server's queue was full, or the request's time in it ran out, by the words of Triton's schedulers."""
    count: int


class Incident(Part):
    """A part of the window in which the target stood still, or in which most failures of the window lie close together."""

    kind: Literal["stall", "error_burst"]
    """`stall`: nothing was answered, not even with an error. `error_burst`: failures in whole seconds."""
    repetition: int
    start_s: float
    """Since the window's start."""
    length_s: float
    failed: int = 0
    """The number of failures of an error burst."""

    @property
    def end_s(self) -> float:
        """The end, since the window's start."""
        return self.start_s + self.length_s


class Replica(Part):
    """The requests of one address, of a target with several; the counts of all add up to those of the load point."""

    address: str
    """A URL, followed by the IP address where the URL's name has several."""
    requests: int
    """Requests sent."""
    ok: int
    errors: int
    throughput_per_s: float
    times_ns: Distribution
    """Response times, in a closed loop service times."""
    intervals: dict[str, tuple[float, float | None]] = Field(default_factory=dict)
    """The 95 % intervals of the p50 and the p99 of these times."""
    connections: int
    """Connections opened during the load point, before and after its window, too."""


class Machine(Part):
    """The part of one machine in the load of a fleet; the counts of all add up to those of the load point."""

    name: str
    workers: int
    """Its load-generating processes."""
    lost: tuple[str, ...] = ()
    """A sentence for each worker whose recording is missing, so that its requests count nowhere."""
    requests: int
    """Requests sent."""
    ok: int
    errors: int
    """Requests sent that got no ok answer."""
    throughput_per_s: float
    times_ns: Distribution
    """Response times, in a closed loop service times."""
    intervals: dict[str, tuple[float, float | None]] = Field(default_factory=dict)
    """The 95 % intervals of the p50 and the p99 of these times."""
    start_delay_p99_ns: float | None
    """The p99 of its start delays; None in a closed loop."""
    cpu_share: float
    """The share of one core that its busiest worker used."""
    clock_offset_ns: int
    """How much more its monotonic clock showed than the driver's, when the load began."""
    clock_drift_ppm: float
    """How much faster it ran than the driver's, in millionths."""
    clock_bound_ns: int
    """How far its arrivals can have been from the common schedule at most, because of its clock."""


class Estimated(Part):
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


class IdleGaps(Part):
    """What idle gaps do to the first request after them."""

    gaps: int
    """The requests after a gap."""
    reconnected: Annotated[int, Figure("reconnected", subject="idle gaps", recorded="gaps_reconnected", column="gaps_reconnected")]
    """Requests after a gap for which a connection was opened, in the gap or after it, because the server had closed it."""
    penalty_ns: Annotated[Estimated | None, Figure("penalty", "ns", "idle gaps", column="gap_penalty")] = None
    """The median time after a gap minus the median of the following requests; None for fewer than 6 gaps."""
    penalty_ratio: Estimated | None = None
    """The first median divided by the second."""


class SloJudgement(Part):
    """Whether a load point meets the scenario's SLO, and why."""

    verdict: Literal["satisfied", "violated", "inconclusive"]
    """Whether the SLO is met; inconclusive with too few samples to tell."""
    reason: str
    is_beyond: bool = False
    """Whether a measured figure is beyond its limit, clearly or not."""

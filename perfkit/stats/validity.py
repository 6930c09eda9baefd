"""When a measurement, or one of its percentiles, can be believed."""

import dataclasses

from perfkit.errors import MeasurementWarning
from perfkit.stats.buckets import BucketCounts
from perfkit.units import format_duration_ns

BUSY_CORE_SHARE = 0.85
SENT_SHARE, START_DELAY_NS, START_DELAY_SHARE, LATE_SHARE = 0.99, 1_000_000, 0.05, 0.01
STEAL_SHARE, THROTTLED_SHARE, LITTLE_SHARE = 0.01, 0.01, 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class OpenLoopFigures:
    """How well an open loop kept to its schedule; times in nanoseconds."""

    scheduled: int
    """The arrivals of the window as they were planned: before anything was sent or dropped."""
    sent: int
    dropped: int
    pacing_delay: BucketCounts
    """How late the generator itself came to send each request; waiting for a connection is due to the target."""
    response_p50_ns: float


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedLoopFigures:
    """The figures that Little's law joins; times in nanoseconds."""

    concurrency: int
    finished_per_s: float
    """All that finished, whatever their outcome."""
    mean_service_time_ns: float
    """Of the same requests."""
    mean_think_time_ns: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class GeneratorVerdict:
    """Whether the figures are the server's own. `invalid` names what makes them the generator's; `warnings` only warn."""

    invalid: tuple[MeasurementWarning, ...]
    warnings: tuple[MeasurementWarning, ...]

    @property
    def is_valid(self) -> bool:
        """Whether nothing invalidates the point."""
        return not self.invalid


def judge_generator(
    busiest_core_share: float, steal_share: float, throttled_share: float, loop: OpenLoopFigures | ClosedLoopFigures | None
) -> GeneratorVerdict:
    """What the load generator itself did to a point's figures.

    Invalid: a worker's core more than 85 % busy; a CPU quota that stopped it for more than 1 % of the window; of an open
    loop, less than 99 % of the schedule sent or dropped, or a p99 of the start delay above 1 ms and above 5 % of the median
    response time, which one late request alone does not make. Warnings: more than 1 % of the machine stolen
    by its host; of a closed loop, |1 - X(R+Z)/C| > 5 %, X all finished requests a second, R their mean service time, Z the
    think time, C the concurrency (J. D. C. Little, Operations Research 9, 1961; assumption: what was in flight at the
    window's ends is little beside what passed through it). An overloaded or drifting target is none of this: such a point
    stays valid. The limits are conventions, not tests. A schedule without arrivals is kept.
    """
    invalid, warnings = [], []
    if busiest_core_share > BUSY_CORE_SHARE:
        invalid.append(
            _warning(
                "generator_bound",
                f"The load generator was the bottleneck: it kept its core {busiest_core_share:.0%} busy, above {BUSY_CORE_SHARE:.0%}. "
                "The server may be faster than these figures; lower the concurrency or the request rate.",
            )
        )
    if throttled_share > THROTTLED_SHARE:
        message = (
            f"A CPU quota stopped the load generator for {throttled_share:.0%} of the window: give it more CPU, or take the quota away."
        )
        invalid.append(_warning("throttled", message))
    if isinstance(loop, OpenLoopFigures):
        invalid += _judge_schedule(loop)
    if steal_share > STEAL_SHARE:
        warnings.append(
            _warning("steal", f"The machine's host took {steal_share:.1%} of its time for others: delays may not be the server's.")
        )
    if isinstance(loop, ClosedLoopFigures):
        cycle_ns = loop.mean_service_time_ns + loop.mean_think_time_ns
        in_flight = loop.finished_per_s * cycle_ns / 1e9
        if abs(1 - in_flight / loop.concurrency) > LITTLE_SHARE:
            message = (
                f"Throughput times service time gives {in_flight:.3g} requests in flight where {loop.concurrency} were kept "
                "(Little's law): the window is short for its requests, or the generator spent time between them."
            )
            warnings.append(_warning("littles_law", message))
    return GeneratorVerdict(tuple(invalid), tuple(warnings))


def _judge_schedule(loop: OpenLoopFigures) -> list[MeasurementWarning]:
    found = []
    handled = loop.sent + loop.dropped
    if handled < SENT_SHARE * loop.scheduled:
        share = handled / loop.scheduled
        message = (
            f"The load generator fell behind: it could send {share:.1%} of the {loop.scheduled:,} requests of its schedule. Lower the "
            "rate, use more workers, or bound with max_in_flight what may be under way."
        )
        found.append(_warning("behind_schedule", message))
    limit_ns = max(START_DELAY_NS, START_DELAY_SHARE * loop.response_p50_ns)
    late = loop.pacing_delay.count_above(int(limit_ns))
    if late > max(1, LATE_SHARE * loop.pacing_delay.count):
        message = (
            f"The load generator sent late: {late:,} of the {loop.pacing_delay.count:,} requests went out more than {format_duration_ns(limit_ns)} "
            "after their time. Lower the rate, or use more workers."
        )
        found.append(_warning("late_starts", message))
    return found


def _warning(code: str, message: str) -> MeasurementWarning:
    return MeasurementWarning(code=code, message=message)

"""Whether the load generator, rather than the target, determined the figures of a load point."""

import dataclasses

from perfkit.errors import MeasurementWarning
from perfkit.stats.buckets import BucketCounts
from perfkit.units import format_duration_ns

BUSY_CORE_SHARE = 0.85
SENT_SHARE, START_DELAY_NS, START_DELAY_SHARE, LATE_SHARE = 0.99, 1_000_000, 0.05, 0.01
STEAL_SHARE, THROTTLED_SHARE, LITTLE_SHARE = 0.01, 0.01, 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class OpenLoopFigures:
    """How well an open loop followed its schedule; times in nanoseconds."""

    scheduled: int
    """The planned arrivals of the window."""
    sent: int
    dropped: int
    pacing_delay: BucketCounts
    """How late the generator itself came to send each request; waiting for a connection is due to the target."""
    response_p50_ns: float


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedLoopFigures:
    """The figures in Little's law; times in nanoseconds."""

    concurrency: int
    finished_per_s: float
    """All requests, whatever their outcome."""
    mean_service_time_ns: float
    """The mean over the same requests."""
    mean_think_time_ns: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class GeneratorVerdict:
    """The verdict: `invalid` has the reasons why a point is invalid; `warnings` leave it valid."""

    invalid: tuple[MeasurementWarning, ...]
    warnings: tuple[MeasurementWarning, ...]

    @property
    def is_valid(self) -> bool:
        """Whether there is no reason against the point."""
        return not self.invalid


def judge_generator(
    busiest_core_share: float, steal_share: float, throttled_share: float, loop: OpenLoopFigures | ClosedLoopFigures | None
) -> GeneratorVerdict:
    """Judges the load generator's influence on a point's figures.

    A point is invalid if a worker's core was more than 85 % busy, or a CPU quota stopped the generator for more than 1 % of the
    window; in an open loop also if less than 99 % of the schedule was sent or dropped, or if the p99 of the generator's start delay was
    above 1 ms and above 5 % of the median response time (a single late request does not count). Warnings: the host took more than
    1 % of the machine's CPU time; in a closed loop, |1 - X(R+Z)/C| > 5 %, with the finished requests per second X, their mean service
    time R, the think time Z and the concurrency C (J. D. C. Little, Operations Research 9, 1961; assumption: few requests
    were in flight at the ends of the window compared with all).

    An overloaded or drifting target leaves a point valid. The limits are conventions, not tests. A schedule without arrivals
    counts as followed.
    """
    invalid, warnings = [], []
    if busiest_core_share > BUSY_CORE_SHARE:
        invalid.append(
            _warning(
                "generator_bound",
                f"The load generator was the bottleneck: its busiest core was {busiest_core_share:.0%} busy, above {BUSY_CORE_SHARE:.0%}. "
                "The server may be faster than these figures. Use more workers, or lower the concurrency or the request rate.",
            )
        )
    if throttled_share > THROTTLED_SHARE:
        message = f"A CPU quota stopped the load generator for {throttled_share:.0%} of the window. Raise or remove the quota."
        invalid.append(_warning("throttled", message))
    if isinstance(loop, OpenLoopFigures):
        invalid += _judge_schedule(loop)
    if steal_share > STEAL_SHARE:
        warnings.append(
            _warning(
                "steal",
                f"The host took {steal_share:.1%} of this machine's CPU time for others (steal), so delays may not be the server's.",
            )
        )
    if isinstance(loop, ClosedLoopFigures):
        cycle_ns = loop.mean_service_time_ns + loop.mean_think_time_ns
        in_flight = loop.finished_per_s * cycle_ns / 1e9
        if abs(1 - in_flight / loop.concurrency) > LITTLE_SHARE:
            message = (
                f"Throughput times service time gives {in_flight:.3g} requests in flight instead of {loop.concurrency} (Little's law): "
                "the window is short compared with the service time, or the generator paused between requests."
            )
            warnings.append(_warning("littles_law", message))
    return GeneratorVerdict(tuple(invalid), tuple(warnings))


def _judge_schedule(loop: OpenLoopFigures) -> list[MeasurementWarning]:
    warnings = []
    handled = loop.sent + loop.dropped
    if handled < SENT_SHARE * loop.scheduled:
        share = handled / loop.scheduled
        message = (
            f"The load generator fell behind: it sent {share:.1%} of the {loop.scheduled:,} scheduled requests. Lower the rate, use more "
            "workers, or limit the requests in flight with max_in_flight."
        )
        warnings.append(_warning("behind_schedule", message))
    limit_ns = max(START_DELAY_NS, START_DELAY_SHARE * loop.response_p50_ns)
    late = loop.pacing_delay.count_above(int(limit_ns))
    if late > max(1, LATE_SHARE * loop.pacing_delay.count):
        message = (
            f"The load generator was late: it sent {late:,} of the {loop.pacing_delay.count:,} requests more than {format_duration_ns(limit_ns)} "
            "after their scheduled time. Lower the rate, or use more workers."
        )
        warnings.append(_warning("late_starts", message))
    return warnings


def _warning(code: str, message: str) -> MeasurementWarning:
    return MeasurementWarning(code=code, message=message)

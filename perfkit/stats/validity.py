"""Whether the load generator, rather than the target, determined the figures of a load point.

A disturbance is told only if it moved a reported figure beyond what the figure's own uncertainty allows: it is compared with what it would
be without the disturbance.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.errors import MeasurementWarning
from perfkit.stats.autocorrelation import first_order_time
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import is_withheld, mean_interval, minimum_samples, percentile_intervals
from perfkit.stats.probability import binomial_limits, student_t_quantile
from perfkit.units import format_duration_ns

LEAST_SHARE = 0.01
"""A figure that moves by less than this counts as unmoved, however narrow its interval is."""
_FEWEST_KEPT, _GROSS = 0.5, 0.25
_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True, slots=True)
class Effect:
    """A figure that was moved: its name, its reported value, and the value without the disturbance; None if it cannot be told."""

    figure: str
    """`p50` … `p99.99`, `mean`, `throughput` or `error rate`."""
    reported: float
    without: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Alternative:
    """A way to estimate the times without the disturbance; the truth lies between the figures of `least` and of `most`."""

    least: BucketCounts
    most: BucketCounts
    batches: Sequence[BucketCounts]
    """The undisturbed times in equal parts of the window, for the confidence intervals."""


def moved_time(
    reported: BucketCounts, alternatives: Sequence[Alternative], quantiles: Iterable[float], *, is_long: bool = False
) -> Effect | None:
    """The reported percentile, or the mean, that was moved most, among those moved by more than 1 % and beyond their 95 % interval.

    A figure is unmoved if one of the alternatives shows that: each is a valid estimate, and the one with the smaller uncertainty
    decides. The interval is that of the undisturbed times around their own figure, since a disturbance widens the interval of the
    times that include it. One without an interval with two ends must have moved by more than a quarter, and is left out if it would have too few
    samples even if they were independent. A disturbance that `is_long` beside the window must have moved no figure by more than 1 %.
    """
    if not reported.count:
        return None
    count = reported.count
    shown = [quantile for quantile in quantiles if count >= minimum_samples(quantile) and not is_withheld(quantile, count)]
    known = [alternative for alternative in alternatives if alternative.least.count]
    names = [*(f"p{round(quantile * 100, 6):g}" for quantile in shown), "mean"]
    values = [*reported.values_at(shown), reported.mean_and_stddev_ns()[0]]
    if not known:
        return max((Effect(name, value, None) for name, value in zip(names, values, strict=True)), key=_size)
    ranges = zip(*(_figures(alternative, shown) for alternative in known), strict=True)
    effects = [
        _effect(name, value, [(bounds, (0.0, 0.0) if is_long else reach or (_GROSS * bounds[0],) * 2) for bounds, reach in of_figure])
        for name, value, of_figure in zip(names, values, ranges, strict=True)
    ]
    return max((effect for effect in effects if effect is not None), key=_size, default=None)


_Pair = tuple[float, float]


def _figures(alternative: Alternative, quantiles: Sequence[float]) -> list[tuple[_Pair, _Pair | None]]:
    """The percentiles and the mean by `least` and by `most`, and how far the interval reaches below and above; None if it does not have two ends."""
    least, most = ([*times.values_at(quantiles), times.mean_and_stddev_ns()[0]] for times in (alternative.least, alternative.most))
    intervals, reaches = percentile_intervals(alternative.batches, quantiles), list[_Pair | None]()
    for one in map(intervals.get, quantiles):
        if one is None or one.low_ns is None or one.high_ns is None:
            reaches.append(None)
        else:
            reaches.append((one.value_ns - one.low_ns, one.high_ns - one.value_ns))
    mean = mean_interval(alternative.batches)
    reaches.append(None if mean is None else ((mean[1] - mean[0]) / 2,) * 2)
    return list(zip(zip(least, most, strict=True), reaches, strict=True))


def _effect(figure: str, reported: float, ranges: Sequence[tuple[_Pair, _Pair]]) -> Effect | None:
    """The effect on a figure, by the bounds of each alternative and how far its interval reaches below and above."""
    least = LEAST_SHARE * reported
    for bounds, (below, above) in ranges:
        if all(-max(below, least) <= reported - bound <= max(above, least) for bound in bounds):
            return None
    return Effect(figure, reported, ranges[-1][0][0])


def _size(effect: Effect) -> float:
    """How far a figure was moved, as a ratio; unknown counts as farthest."""
    if not effect.without or not effect.reported:
        return math.inf
    return abs(math.log(effect.reported / effect.without))


def moved_rate(counts: npt.NDArray[np.int64], is_disturbed: npt.NDArray[np.bool_]) -> Effect | None:
    """The mean count of answers per interval, if it differs from that of the undisturbed intervals by more than 1 % and beyond its 95 % interval.

    Assumption: a stationary rate, as in a closed loop. None also if more than half of the intervals were disturbed: the mean time
    tells as much, since it is inversely proportional to the throughput of a closed loop (Little's law).
    """
    if not is_disturbed.any():
        return None
    reported, kept = float(counts.mean()), counts[~is_disturbed].astype(np.float64)
    if kept.size < max(_FEWEST_KEPT * counts.size, 3):
        return None
    mean = float(kept.mean())
    t = student_t_quantile((1 + _CONFIDENCE) / 2, kept.size - 1)
    reach = t * float(kept.std(ddof=1)) * math.sqrt(first_order_time(kept) / kept.size)
    return None if abs(reported - mean) <= max(reach, LEAST_SHARE * mean) else Effect("throughput", reported, mean)


def moved_error_rate(failed: int, total: int, touched_failed: int, touched: int) -> Effect | None:
    """The share of failed requests, if the touched ones among them moved it: out of 0, or beyond the exact binomial interval of the others.

    `touched_failed` are the touched requests whose failure the disturbance may have caused.
    """
    if not touched_failed:
        return None
    others, others_failed = total - touched, failed - touched_failed
    share = failed / total
    if others_failed > 0 and others > 0 and share <= binomial_limits(min(others_failed, others), others, _CONFIDENCE)[1]:
        return None
    return Effect("error rate", share, others_failed / others if others else None)


COLD = "cold"
"""The code of the one whose cause is the target."""
INVALIDATING = frozenset(
    {"generator_bound", "throttled", "suspended", "generator_stopped", "behind_schedule", "late_starts", "worker_lost", "file_limit", COLD}
)
"""The codes of the warnings that make a point invalid: the load generator's, and the one of a target that was still cold."""
DISTURBED_BY_OTHERS = frozenset({"generator_stopped", "generator_paused", "behind_schedule", "late_starts", "littles_law"})
"""The codes of the warnings about the generator that other processes on its machine can cause."""
BUSY_CORE_SHARE, SCAN_CORE_SHARE = 0.85, 0.6
SENT_SHARE, START_DELAY_NS, START_DELAY_SHARE, LATE_SHARE = 0.99, 1_000_000, 0.05, 0.02
PAUSE_NS = 10_000_000
"""Shorter stops that move no figure are counted in the result, without a warning."""
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
    late_effect: Effect | None = None
    """The figure with enough samples that late starts moved beyond its interval."""


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
class StopFigures:
    """The stops of the load generator's processes in a window."""

    count: int
    total_ns: int
    max_ns: int
    touched: int
    """Requests that they touched."""
    effect: Effect | None
    """The figure that they moved; see `moved_time`."""
    cause: str = ""
    """What stopped the generator, where a reading says so."""


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
    busiest_core_share: float,
    steal_share: float,
    throttled_share: float,
    loop: OpenLoopFigures | ClosedLoopFigures | None,
    *,
    suspended_ns: int = 0,
    stops: StopFigures | None = None,
    others: str = "",
    may_include_target: bool = False,
    is_scan: bool = False,
) -> GeneratorVerdict:
    """Judges the load generator's influence on a point's figures.

    A point is invalid if a worker's core was more than 85 % busy (in a scan, whose load rises, 60 % as a mean over it), or a CPU quota stopped the generator for more than 1 % of the
    window, or its machine was suspended; if the generator's stops moved a figure with enough samples beyond its interval; in an open loop also if
    less than 99 % of the schedule was sent or dropped, if late starts did, or if more than 2 % of the
    requests start late, with the confidence of an exact binomial interval of 95 %. Late is above 1 ms and above 5 % of the median
    response time. Warnings: a stop of 10 ms or more that moved no figure; the host took more than 1 % of the machine's
    CPU time; in a closed loop, |1 - X(R+Z)/C| > 5 %, with the finished requests per second X, their mean service
    time R, the think time Z and the concurrency C (J. D. C. Little, Operations Research 9, 1961; assumption: few requests
    were in flight at the ends of the window compared with all).

    `others` names the other processes that may have had the generator's CPU, empty without any; `may_include_target` if the target may be
    one of them.

    An overloaded or drifting target leaves a point valid. The limits are conventions, not tests. A schedule without arrivals
    counts as followed.
    """
    invalid, warnings = [], []
    most_busy = SCAN_CORE_SHARE if is_scan else BUSY_CORE_SHARE
    if busiest_core_share > most_busy:
        invalid.append(
            _warning(
                "generator_bound",
                f"The load generator was the bottleneck: its busiest core was {busiest_core_share:.0%} busy, above {most_busy:.0%}. "
                "The server may be faster than these figures. Use more workers if CPUs are free for them, or lower the concurrency or the request rate.",
            )
        )
    if throttled_share > THROTTLED_SHARE:
        message = f"A CPU quota stopped the load generator for {throttled_share:.0%} of the window. Raise or remove the quota."
        invalid.append(_warning("throttled", message))
    if suspended_ns:
        message = f"The machine of the load generator was suspended for {format_duration_ns(suspended_ns)}: measure again."
        invalid.append(_warning("suspended", message))
    if stops is not None and stops.effect is not None:
        invalid.append(_warning("generator_stopped", _describe_stops(stops, _describe_effect(stops.effect))))
    if isinstance(loop, OpenLoopFigures):
        invalid += _judge_schedule(loop, others, may_include_target=may_include_target)
    if stops is not None and stops.effect is None and stops.max_ns >= PAUSE_NS:
        unmoved = "No figure with enough samples moved beyond its interval, but the longest times may be the generator's."
        warnings.append(_warning("generator_paused", _describe_stops(stops, unmoved)))
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


def _judge_schedule(loop: OpenLoopFigures, others: str, *, may_include_target: bool) -> list[MeasurementWarning]:
    warnings = []
    remedy = "Lower the rate, or use more workers if CPUs are free for them"
    if others:
        end = "end those that are not the target, or measure from another machine" if may_include_target else "end those first"
        remedy = f"Other processes used its machine's CPUs ({others}): {end}. If that is not enough, lower the rate"
    handled = loop.sent + loop.dropped
    if handled < SENT_SHARE * loop.scheduled:
        share = handled / loop.scheduled
        message = (
            f"The load generator fell behind: it sent {share:.1%} of the {loop.scheduled:,} scheduled requests. {remedy}, "
            "or limit the requests in flight with max_in_flight."
        )
        warnings.append(_warning("behind_schedule", message))
    limit_ns = max(START_DELAY_NS, START_DELAY_SHARE * loop.response_p50_ns)
    late, count = loop.pacing_delay.count_above(int(limit_ns)), loop.pacing_delay.count
    reason = _describe_effect(loop.late_effect) if loop.late_effect is not None else ""
    if binomial_limits(late, count)[0] > LATE_SHARE:
        reason = f"That is more than {LATE_SHARE:.0%} beyond chance."
    if reason:
        message = (
            f"The load generator was late: it sent {late:,} of the {count:,} requests more than {format_duration_ns(limit_ns)} "
            f"after their scheduled time. {reason} {remedy}."
        )
        warnings.append(_warning("late_starts", message))
    return warnings


def _describe_stops(stops: StopFigures, consequence: str) -> str:
    longest = format_duration_ns(stops.max_ns)
    length = (
        f"{stops.count:,} times, for {format_duration_ns(stops.total_ns)} in all and up to {longest}"
        if stops.count > 1
        else f"for {longest}"
    )
    cause = stops.cause or "a signal, a debugger, swapping or other processes may have stopped it"
    return f"The load generator stood still {length} ({cause}), and touched {stops.touched:,} requests. {consequence}"


def _describe_effect(effect: Effect) -> str:
    def shown(value: float) -> str:
        if effect.figure == "throughput":
            return f"{value:,.4g}/s"
        return f"{value:.2%}" if effect.figure == "error rate" else format_duration_ns(value)

    if effect.without is None:
        return f"What the {effect.figure} would be without that cannot be told; {shown(effect.reported)} was measured."
    return f"Without that, the {effect.figure} would be about {shown(effect.without)} instead of {shown(effect.reported)}."


def _warning(code: str, message: str) -> MeasurementWarning:
    return MeasurementWarning(code=code, message=message)

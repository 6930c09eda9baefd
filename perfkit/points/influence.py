"""The load generator's influence on a point, judged from its stops, its late starts and its CPU use."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.points.measured import DISTURBING_CPUS, PointMeasurement, describe_processes
from perfkit.recorder.stops import Stop
from perfkit.recorder.window import Window
from perfkit.result.distribution import QUANTILES
from perfkit.result.generator import Generator, Stops
from perfkit.result.load import ClosedLoad, RampLoad
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.validity import (
    LEAST_SHARE,
    Alternative,
    ClosedLoopFigures,
    Effect,
    GeneratorVerdict,
    OpenLoopFigures,
    StopFigures,
    judge_generator,
    moved_error_rate,
    moved_rate,
    moved_time,
)
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S

_QUANTILES = tuple(QUANTILES.values())
_LONG_SHARE = 0.04  # of the window: stops that are longer in all leave no load as it was asked for


@dataclasses.dataclass(frozen=True, slots=True)
class _Span:
    """A time in which at least one worker stood still; `settled_ns` as in `Stop`."""

    start_ns: int
    end_ns: int
    settled_ns: int


def stop_counts(windows: Sequence[Window]) -> Stops:
    """The stops of the windows; those of several workers at the same time count once."""
    lengths_ns = [span.end_ns - span.start_ns for window in windows for span in _spans(window.stops)]
    touched = sum(window.count("touched") for window in windows)
    return Stops(count=len(lengths_ns), total_ns=sum(lengths_ns), max_ns=max(lengths_ns, default=0), touched_requests=touched)


def judge_influence(
    parts: Sequence[PointMeasurement],
    times: Mapping[str, BucketCounts],
    generator: Generator,
    *,
    scheduled: int,
    without_slot: int,
    unsent: int,
) -> GeneratorVerdict:
    """The verdict on the load generator's influence on a point, which may pool several repetitions; `times` are those of all."""
    waited, others = times.get("response_time", times["service_time"]), _disturbing_processes(generator)
    return judge_generator(
        max(part.generator.cpu_share for part in parts),
        generator.steal_share,
        max(part.generator.throttled_share for part in parts),
        _loop_figures(parts, times, waited, scheduled, without_slot, unsent),
        suspended_ns=generator.suspended_ns,
        stops=_stop_figures(parts, times, waited, generator),
        others=others,
        may_include_target=_may_include_target(generator),
        is_scan=isinstance(parts[0].load, RampLoad),
    )


def _loop_figures(
    parts: Sequence[PointMeasurement],
    times: Mapping[str, BucketCounts],
    waited: BucketCounts,
    scheduled: int,
    without_slot: int,
    unsent: int,
) -> OpenLoopFigures | ClosedLoopFigures | None:
    load, failure_time = parts[0].load, times["failure_time"]
    if (pacing_delay := times.get("pacing_delay")) is not None:
        return OpenLoopFigures(
            scheduled=scheduled,
            sent=scheduled - without_slot - unsent,
            dropped=without_slot,
            pacing_delay=pacing_delay,
            response_p50_ns=waited.values_at([0.5])[0],
            late_effect=_late_effect(parts, times, waited),
        )
    # a stream may take time after its last response, in which its slot sends nothing
    sends_at_once = not (parts[0].shares_load or parts[0].is_streamed)
    if isinstance(load, ClosedLoad) and sends_at_once and (count := waited.count + failure_time.count):
        window_s = sum(part.window.length_ns for part in parts) / NS_PER_S
        total_ns = sum(each.mean_and_stddev_ns()[0] * each.count for each in (waited, failure_time))
        return ClosedLoopFigures(
            concurrency=load.concurrency,
            finished_per_s=sum(part.window.count("ended") for part in parts) / window_s if window_s else 0.0,
            mean_service_time_ns=total_ns / count,
            mean_think_time_ns=parts[0].think_time_ns,
        )
    return None


def _late_effect(parts: Sequence[PointMeasurement], times: Mapping[str, BucketCounts], waited: BucketCounts) -> Effect | None:
    """The figure that late starts moved: without its delay, a late request would have been answered earlier by as much."""
    late = times.get("late_time", EMPTY)
    if not late.count:
        return None
    prompt = BucketCounts.merged((waited.without(late), times["late_least"]))
    batches = [batch for part in parts for batch in part.window.prompt]
    return moved_time(waited, [Alternative(prompt, prompt, batches)], _QUANTILES)


def _stop_figures(
    parts: Sequence[PointMeasurement], times: Mapping[str, BucketCounts], waited: BucketCounts, generator: Generator
) -> StopFigures | None:
    stops = generator.stops
    if stops is None or not stops.count:
        return None
    windows = [part.window for part in parts]
    untouched, window_ns = waited.without(times["touched_time"]), sum(window.length_ns for window in windows)
    idle_ns = sum(_idle_ns(window, untouched) for window in windows)
    is_long = idle_ns > LEAST_SHARE * window_ns
    alternatives = _alternatives(windows, times, waited, is_shared=is_long and generator.workers > 1)
    effect = (_moved_throughput(parts) if is_long else None) or moved_time(
        waited, alternatives, _QUANTILES, is_long=idle_ns > _LONG_SHARE * window_ns
    )
    if effect is None:
        outcomes = [sum(window.outcomes[outcome] for window in windows) for outcome in Outcome]
        failed = sum(outcomes) - sum(window.outcomes[Outcome.OK] for window in windows)
        effect = moved_error_rate(failed, sum(outcomes), sum(window.count("touched_failed") for window in windows), stops.touched_requests)
    return StopFigures(stops.count, stops.total_ns, stops.max_ns, stops.touched_requests, effect, _cause(generator, stops, window_ns))


def _alternatives(
    windows: Sequence[Window], times: Mapping[str, BucketCounts], waited: BucketCounts, *, is_shared: bool
) -> list[Alternative]:
    """The times without the stops.

    A stop changes the time of a request that it touches by at most its own length, which bounds every figure; and the requests that
    no stop touched are a sample of what would have been measured, though one with too few long ones if there were many stops. Both
    leave out that a worker that stands still for long relieves the server of its load, to the benefit of the other workers'
    requests: then only undisturbed parts of the window count.
    """
    if is_shared:
        kept = [batch for window in windows for batch in _undisturbed(window)]
        of_all = BucketCounts.merged(kept) if 2 * len(kept) >= sum(len(window.batches) for window in windows) else EMPTY
        return [Alternative(of_all, of_all, kept)]
    untouched = waited.without(times["touched_time"])
    batches = [batch for window in windows for batch in window.untouched]
    least, most = (BucketCounts.merged((untouched, times[name])) for name in ("touched_least", "touched_most"))
    return [Alternative(least, most, batches), Alternative(untouched, untouched, batches)]


def _undisturbed(window: Window) -> list[BucketCounts]:
    """The times of the parts of a window in which no worker stood still, and the load had settled."""
    starts = [window.start_ns + index * window.batch_ns for index in range(len(window.untouched))]
    disturbed = _are_disturbed(window, starts, window.batch_ns)
    return [times for times, is_disturbed in zip(window.untouched, disturbed, strict=True) if not is_disturbed]


def _are_disturbed(window: Window, starts_ns: Sequence[int], length_ns: int) -> list[bool]:
    """Whether a stop, or the time until the load had settled, overlaps each of some intervals of one length."""
    spans = _spans(window.stops)
    return [any(span.start_ns < start_ns + length_ns and span.settled_ns > start_ns for span in spans) for start_ns in starts_ns]


def _moved_throughput(parts: Sequence[PointMeasurement]) -> Effect | None:
    """The throughput, if stops moved it.

    In a closed loop answers are missing where a worker stood still. In an open loop all arrivals are answered in the end, so only
    a stop across an end of the window moves answers out of it or into it.
    """
    if parts[0].is_open:
        across_ns = sum(
            span.end_ns - span.start_ns
            for part in parts
            for span in _spans(part.window.stops)
            if any(span.start_ns < edge_ns <= span.settled_ns for edge_ns in (part.window.start_ns, part.window.end_ns))
        )
        window_ns = sum(part.window.length_ns for part in parts)
        answered = sum(part.window.count("finished") for part in parts) * NS_PER_S / max(window_ns, 1)
        return Effect("throughput", answered, None) if across_ns > LEAST_SHARE * window_ns else None
    interval_ns = max(part.window.series.interval_ns for part in parts)
    counts, disturbed = list[int](), list[bool]()
    for part in parts:
        series = part.window.series.coarser(interval_ns // part.window.series.interval_ns)
        counts += series.answered.tolist()
        disturbed += _are_disturbed(
            part.window, [series.origin_ns + index * interval_ns for index in range(len(series.answered))], interval_ns
        )
    effect = moved_rate(np.array(counts, dtype=np.int64), np.array(disturbed, dtype=np.bool_)) if counts else None
    if effect is None:
        return None
    per_s = NS_PER_S / interval_ns
    return Effect(effect.figure, effect.reported * per_s, None if effect.without is None else effect.without * per_s)


def _spans(stops: Sequence[Stop]) -> list[_Span]:
    """The stops of all workers in the order of time, those that overlap joined."""
    spans: list[_Span] = []
    for stop in sorted(stops):
        if spans and stop.start_ns <= spans[-1].end_ns:
            last = spans.pop()
            spans.append(_Span(last.start_ns, max(last.end_ns, stop.end_ns), max(last.settled_ns, stop.settled_ns)))
        else:
            spans.append(_Span(stop.start_ns, stop.end_ns, stop.settled_ns))
    return spans


def _idle_ns(window: Window, untouched: BucketCounts) -> float:
    """For how long the stops in a window kept the load of a worker from the server.

    The requests in flight at the beginning of a stop go on, so that one shorter than the time of a request hardly matters: of those
    in flight a share of about its length divided by that time ends meanwhile, each at a random instant.
    """
    typical_ns, idle_ns = max(untouched.values_at([0.5])[0], 1), 0.0
    for span in _spans(window.stops):
        length_ns = max(min(span.end_ns, window.end_ns) - max(span.start_ns, window.start_ns), 0)
        idle_ns += length_ns * min(length_ns / (2 * typical_ns), 1.0)
    return idle_ns


def _cause(generator: Generator, stops: Stops, window_ns: int) -> str:
    """What stopped the generator, where a reading explains at least half of it; otherwise empty."""
    if generator.throttled_share * window_ns >= stops.total_ns / 2:
        return "a CPU quota stopped it"
    if generator.steal_share * window_ns * (os.cpu_count() or 1) >= stops.total_ns / 2:
        return "the machine's host gave its CPUs to others (steal)"
    if others := _disturbing_processes(generator):
        perhaps = ", or the target's own, which perfkit cannot tell apart" if _may_include_target(generator) else ""
        return f"most likely other processes on its machine{perhaps}: {others}"
    return ""


def _disturbing_processes(generator: Generator) -> str:
    """The other processes that used a CPU noticeably; empty without any."""
    others = generator.others
    return describe_processes(others) if others is not None and others.busiest and others.busiest[0].cpus >= DISTURBING_CPUS else ""


def _may_include_target(generator: Generator) -> bool:
    return generator.others is not None and generator.others.may_include_target

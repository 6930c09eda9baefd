"""How the target behaved in a window: its warm-up, drift, overload, stalls, error bursts, and GPUs that did nothing. Pure."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from perfkit.errors import MeasurementWarning
from perfkit.figures.resources import IDLE_GPU_SHARE
from perfkit.points.measured import PointMeasurement
from perfkit.points.steady_state import LONGEST_SHARE, SteadyState, judge_steady_state
from perfkit.points.warmth import SEEN_FACTOR, Warmth, judge_warmth, needed_warm_up_s
from perfkit.recorder.series import Series
from perfkit.recorder.window import Window
from perfkit.result.load import ClosedLoad, ColdStartLoad, IdleLoad, Load, MixedLoad, OpenLoad, RampLoad
from perfkit.result.point_parts import Incident
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.overload import judge_overload
from perfkit.units import NS_PER_S, format_duration_ns

_REQUESTS_PER_INTERVAL, _FEWEST_INTERVALS = 10, 60  # with fewer, no verdict on a series is reliable
_SHORTEST_STALL_S, _MISSING_ANSWERS, _MISSING_CYCLES = 0.5, 20, 3
_ARRIVALS_IN_STALL = 10
_FEWEST_FAILURES, _BURST_RATIO = 10, 5
_LISTED = 3
_LONG_EXECUTION_NS = NS_PER_S // 2
_LARGEST_EMPTY_SHARE = 0.05
_WAS_COLD = "The target was cold: "


def warm_up_ns(series: Series, *, is_open: bool) -> int:
    """The length of the warm-up at the start of a series, in nanoseconds; 0 if the series is too short to tell.

    MSER-5 with a test for initial bias on the series of `judge_series`; see `points.steady_state.mser5`. Where that finds nothing, for example because
    there are too few requests, the part in which the target was cold. A warm-up that does not end within a third of the series is not cut off: the rest would not
    be steady either, and is judged so.
    """
    judged = judge_series(series, is_open=is_open)
    if judged is not None and judged[0].warm_up_intervals:
        return judged[0].warm_up_intervals * judged[1]
    cold_ns = judge_warmth([series], series.origin_ns, is_open=is_open).until_ns - series.origin_ns
    return cold_ns if 0 < cold_ns <= LONGEST_SHARE * series.timed.size * series.interval_ns else 0


def judge_series(series: Series, *, is_open: bool) -> tuple[SteadyState, int] | None:
    """The steady-state verdict, and the length of the intervals that it rests on in nanoseconds; None for fewer than 60 intervals.

    Intervals have ten requests or more. The throughput and the mean time of the requests in each interval are judged. The
    number in flight is their product (Little's law) and adds nothing. In an open loop the throughput follows the schedule,
    which may well vary, so the times alone are judged. An interval without requests, because the target answered
    nothing, has the mean time of the one before it.
    """
    timed = int(series.timed.sum())
    factor = max(1, math.ceil(_REQUESTS_PER_INTERVAL * series.timed.size / max(timed, 1)))
    coarse = series.coarser(factor)
    if coarse.timed.size < _FEWEST_INTERVALS or not timed:
        return None
    filled = np.flatnonzero(coarse.timed)
    latest = filled[np.maximum(np.searchsorted(filled, np.arange(coarse.timed.size), side="right") - 1, 0)]
    mean_time = {"mean time": coarse.time_sum_ns[latest] / coarse.timed[latest]}
    verdict = judge_steady_state(mean_time if is_open else {"throughput": coarse.answered.astype(float), **mean_time})
    return verdict, coarse.interval_ns


def warmth_of(windows: Sequence[Window], load: Load, *, of_last: bool = True) -> Warmth:
    """Whether the target was cold in the last of several windows of one load, in order, or else in any of them."""
    return judge_warmth(
        [one.load_series or one.series for one in windows],
        windows[-1 if of_last else 0].start_ns,
        is_open=isinstance(load, OpenLoad | MixedLoad),
    )


def target_warnings(measured: PointMeasurement) -> list[MeasurementWarning]:
    """A warning if the target was overloaded, or else cold, or else not steady, or if too few requests were answered to tell."""
    series, load = measured.window.series, measured.load
    # after the last arrival, a window limited by a number of requests goes on until all are answered: the backlog is gone then
    offered = series.offered() if isinstance(load, OpenLoad) else series
    if _is_unsteady_by_design(load) or not offered.timed.size:
        return []
    if isinstance(load, OpenLoad):
        overload = judge_overload(offered.scheduled, offered.answered, dispersion=1 + load.gap_variation**2)
        if overload.is_overloaded:
            pausing = " Requests that pause before their next attempt are part of the backlog." if measured.has_retries else ""
            return [MeasurementWarning("overloaded", overload.sentence + pausing)]
    warmth, judged = warmth_of([measured.window], load), judge_series(offered, is_open=measured.is_open)
    if warmth.state == "cold" and not measured.load_varies:
        return [cold_warning(measured, warmth)]
    if judged is not None and judged[0].verdict == "not_steady":
        return [MeasurementWarning(code="not_steady", message=judged[0].reason)]
    # the times of an open loop follow its queue, so that theirs is hardly ever told
    is_unknown = judged is None or (judged[0].verdict == "undetermined" and not measured.is_open)
    if is_unknown and warmth.state == "not_judged":
        answered = int(series.answered.sum())
        message = (
            f"Whether the target was warm cannot be told from {answered:,} answer{'s' * (answered != 1)}: a first part of the window that was "
            f"slower by a factor of {SEEN_FACTOR:g} might not be seen."
        )
        return [MeasurementWarning(code="warmth_unknown", message=message)]
    return []


def _has_surge(load: Load) -> bool:
    return isinstance(load, OpenLoad) and load.surge is not None


def _is_unsteady_by_design(load: Load) -> bool:
    return isinstance(load, IdleLoad | ColdStartLoad | RampLoad) or _has_surge(load)


def cold_warning(measured: PointMeasurement, warmth: Warmth) -> MeasurementWarning:
    """The warning that the target was cold in a first part of a window."""
    window = measured.window
    cold_s, advised = (
        (warmth.until_ns - window.start_ns) / NS_PER_S,
        needed_warm_up_s(warmth.until_ns - window.start_ns + measured.warmup_ns),
    )
    message = (
        f"{_WAS_COLD}the first {cold_s:.1f} s of {window.length_ns / NS_PER_S:.3g} were slower by a factor of {warmth.factor:.2g}; "
        f"warm up for {advised} s."
    )
    return MeasurementWarning("cold", message)


def cold_repetition_warning(measurements: Sequence[PointMeasurement]) -> MeasurementWarning | None:
    """The warning that the target was cold in the first of several repetitions, beside the later ones; None if they do not show that."""
    if len(measurements) < 2 or measurements[0].load_varies or not isinstance(measurements[0].load, ClosedLoad | OpenLoad | MixedLoad):
        return None
    warmth = warmth_of([one.window for one in measurements], measurements[0].load, of_last=False)
    if warmth.state != "cold":
        return None
    cold = [one for one in measurements if one.window.start_ns < warmth.until_ns]
    advised = needed_warm_up_s(sum(one.warmup_ns + one.window.length_ns for one in cold))
    named = "repetition 1 was" if len(cold) == 1 else f"repetitions 1 to {len(cold)} were"
    message = f"{_WAS_COLD}{named} slower than what followed by a factor of {warmth.factor:.2g}; warm up for {advised} s."
    return MeasurementWarning("cold", message)


def cold_in_doubt(cold: MeasurementWarning) -> MeasurementWarning:
    """What is said in place of `cold` where other processes kept this machine busy: they come and go, too."""
    seen = cold.message.removeprefix(_WAS_COLD).partition(";")[0]
    return MeasurementWarning(
        "warmth_unknown", f"Whether the target was cold cannot be told: {seen}, but other processes kept this machine busy."
    )


def find_incidents(window: Window, load: Load, repetition: int) -> tuple[Incident, ...]:
    """The stalls and error bursts of one window, in the order of time; none for a surge, which is meant to cause them."""
    if _has_surge(load):
        return ()
    found = [*_stalls(window, load, repetition), *_error_bursts(window, repetition)]
    return tuple(sorted(found, key=lambda incident: incident.start_s))


def incident_warnings(incidents: Sequence[Incident], *, is_pooled: bool) -> Iterator[MeasurementWarning]:
    """A warning for each kind, with the seconds of the window; `is_pooled` adds the repetition."""
    stalls = [one for one in incidents if one.kind == "stall"]
    bursts = [one for one in incidents if one.kind == "error_burst"]
    if stalls:
        spans = _spans(stalls, digits=1, is_pooled=is_pooled)
        yield MeasurementWarning("stall", f"The target answered nothing {spans}, although requests were waiting.")
    if bursts:
        failed = sum(one.failed for one in bursts)
        yield MeasurementWarning(
            "error_burst", f"{failed:,} requests failed close together, {_spans(bursts, digits=0, is_pooled=is_pooled)}."
        )


def _spans(incidents: Sequence[Incident], *, digits: int, is_pooled: bool) -> str:
    """The incidents' seconds in words: `from 5.0 to 7.0 s of the window`."""
    places = [f"of repetition {one.repetition + 1}" if is_pooled else "of the window" for one in incidents]
    spans = [f"from {one.start_s:.{digits}f} to {one.end_s:.{digits}f} s {place}" for one, place in zip(incidents, places, strict=True)]
    others = len(spans) - _LISTED
    return ", ".join(spans[:_LISTED]) + (f" and {others} more time{'s' * (others > 1)}" if others > 0 else "")


def _stalls(window: Window, load: Load, repetition: int) -> Iterator[Incident]:
    """Spans without any answer, also to an attempt that was followed by another, while requests were due.

    A stall lasts at least half a second, and long enough for 20 answers at the window's mean rate; in a closed loop also for three
    answers to each connection, because batches are answered together, with gaps between them. In an open loop, at least 10 requests
    were due in it; idle gaps and starts are no stalls. Spans during most of which the load generator was stopped are left out.
    """
    if isinstance(load, IdleLoad | ColdStartLoad):
        return
    is_closed = isinstance(load, ClosedLoad | RampLoad)
    series = window.series if is_closed else window.series.offered()
    interval_s = series.interval_ns / NS_PER_S
    answered_per_s = int(series.answered.sum()) / (series.answered.size * interval_s) if series.answered.size else 0.0
    if not answered_per_s:
        return
    missing = max(_MISSING_ANSWERS, _MISSING_CYCLES * load.concurrency if isinstance(load, ClosedLoad | RampLoad) else 0)
    least_s = max(_SHORTEST_STALL_S, missing / answered_per_s)
    for first, end in _runs((series.answered + series.attempts_answered == 0).tolist()):
        if (end - first) * interval_s < least_s or (not is_closed and int(series.scheduled[first:end].sum()) < _ARRIVALS_IN_STALL):
            continue
        start_ns, end_ns = (series.origin_ns + number * series.interval_ns for number in (first, end))
        stopped_ns = sum(max(min(stop.end_ns, end_ns) - max(stop.start_ns, start_ns), 0) for stop in window.stops)
        if 2 * stopped_ns <= end_ns - start_ns:
            start_s = (start_ns - window.start_ns) / NS_PER_S
            yield Incident(kind="stall", repetition=repetition, start_s=start_s, length_s=(end_ns - start_ns) / NS_PER_S)


def _error_bursts(window: Window, repetition: int) -> Iterator[Incident]:
    """Runs of seconds with most of the window's failures.

    A burst has ten failures or more, takes at most half of the window, and has five times as many failures a second as the rest of it.
    Bursts are reported if together they have more than half of the failures. A longer run is one if most requests failed in each of its
    seconds, and not in the second before, as of a server that stops serving; a burst that touches it is part of it.
    """
    failed, seconds = window.failed_per_s, len(window.failed_per_s)
    total, burst = sum(failed), set[int]()
    for first, end in _runs([total > 0 and count * seconds > total for count in failed]):
        count, length = sum(failed[first:end]), end - first
        rest_per_s = (total - count) / max(seconds - length, 1)
        if count >= _FEWEST_FAILURES and 2 * length <= seconds and count / length >= _BURST_RATIO * rest_per_s:
            burst.update(range(first, end))
    if 2 * sum(failed[second] for second in burst) <= total:
        burst.clear()
    for first, end in _runs([bad > good for bad, good in zip(failed, window.finished_per_s, strict=True)]):
        if first and 2 * (end - first) > seconds and sum(failed[first:end]) >= _FEWEST_FAILURES:
            burst.update(range(first, end))
    for first, end in _runs([second in burst for second in range(seconds)]):
        length_s = min(float(end), window.length_ns / NS_PER_S) - first
        yield Incident(kind="error_burst", repetition=repetition, start_s=float(first), length_s=length_s, failed=sum(failed[first:end]))


def _runs(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The first index and the end of each run of true flags."""
    edges = np.flatnonzero(np.diff(np.array([False, *flags, False], dtype=np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def idle_gpu_warnings(measured: PointMeasurement) -> list[MeasurementWarning]:
    """A warning if each GPU of the target was idle in the window, requests were in flight nearly all the time, and took half a second or more.

    Nothing is said of a target that is not known to have a GPU, without samples of the utilisation of each GPU that it may use, and of loads
    with gaps or starts. The time is that of an execution by the server's statistics; without them, the median service time.
    """
    resources, window = measured.resources, measured.window
    gpus = [gpu for gpu in resources.gpus if gpu.may_serve]
    busy = [gpu.utilization_mean for gpu in gpus if gpu.utilization_mean is not None]
    if not resources.server_has_gpu or not busy or len(busy) < len(gpus) or max(busy) >= IDLE_GPU_SHARE:
        return []
    in_flight = _mean_in_flight(measured)
    if isinstance(measured.load, IdleLoad | ColdStartLoad) or _empty_share(in_flight, measured) > _LARGEST_EMPTY_SHARE:
        return []
    took = _time_taken(measured)
    if took is None or took[0] < _LONG_EXECUTION_NS:
        return []
    if len(gpus) > 1:
        idle = f"The GPUs were idle: none of the {len(gpus)} was busy for more than {max(busy):.1%} of the window"
    else:
        idle = f"The GPU was idle: {gpus[0].name or gpus[0].uuid} was busy for {busy[0]:.1%} of the window"
    cpus = ""
    if resources.server_cpu is not None and window.length_ns:
        cpus = f", while the server kept {resources.server_cpu.cpu_ns / window.length_ns:.1f} CPUs busy"
    message = (
        f"{idle}, although {in_flight:.3g} requests were in flight on average and {took[1]}{cpus}. Perhaps the server "
        "prepared batch sizes that it had not had before: have each prepared by a longer warm-up or by CUDA graphs, or fix the batch size. "
        "Otherwise check that the model runs on the GPU."
    )
    return [MeasurementWarning("gpu_idle", message)]


def _mean_in_flight(measured: PointMeasurement) -> float:
    """The requests in flight, as a mean over the window.

    A closed loop keeps its concurrency, less the share of think time; otherwise by Little's law.
    """
    window = measured.window
    times = BucketCounts.merged(window.times[name] for name in ("service_time", "failure_time"))
    if not times.count or not window.length_ns:
        return 0.0
    mean_ns = times.mean_and_stddev_ns()[0]
    if isinstance(measured.load, ClosedLoad):
        return measured.load.concurrency * mean_ns / (mean_ns + measured.think_time_ns)
    return window.count("ended") * mean_ns / window.length_ns


def _empty_share(in_flight: float, measured: PointMeasurement) -> float:
    """The share of the time without any request in flight, if requests come independently of each other.

    Each of a closed loop's slots is empty for the same share of the time; without a limit of them, the number in flight is that of a Poisson
    distribution.
    """
    if isinstance(measured.load, ClosedLoad):
        slots = measured.load.concurrency
        return (1 - in_flight / slots) ** slots
    return math.exp(-in_flight)


def _time_taken(measured: PointMeasurement) -> tuple[float, str] | None:
    """How long the server took, in nanoseconds and in words; None without any answer."""
    if measured.resources.server is not None:
        took_ns = measured.resources.server.figures().compute_ns or 0
        return took_ns, f"an execution took the server {format_duration_ns(took_ns)} (the mean of its own statistics)"
    service_time = measured.window.times["service_time"]
    if not service_time.count:
        return None
    median_ns = service_time.values_at([0.5])[0]
    return median_ns, f"a request took {format_duration_ns(median_ns)} (the median)"

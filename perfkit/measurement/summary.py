"""From measured windows to the points of a result, and from repetitions to their summary."""

import dataclasses
from collections.abc import Mapping, Sequence

from perfkit.errors import MeasurementWarning
from perfkit.measurement.resources import (
    NOTHING_SEEN,
    Resources,
    energy_per,
    generator_figures,
    network_warnings,
    pooled_gpus,
    pooled_metrics,
    server_figures,
)
from perfkit.measurement.window_course import Course, course_warnings
from perfkit.recorder.window import Window
from perfkit.result.distribution import QUANTILES, distribution
from perfkit.result.model import ClosedLoad, Connections, Generator, Load, OpenLoad, Point, Protocol, Requests, SloJudgement
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentile_interval import PercentileInterval, percentile_intervals
from perfkit.stats.sample_size import is_withheld, minimum_samples
from perfkit.stats.slo import Slo, judge_slo
from perfkit.stats.validity import ClosedLoopFigures, GeneratorVerdict, OpenLoopFigures, judge_generator
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S, format_duration_ns

_LATE_BURST_NS = 50_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class PointMeasurement:
    """One load point of one repetition as it was measured: what a `Point` is made from."""

    protocol: Protocol
    load: Load
    batch_size: int
    repetition: int
    window: Window
    warmup_ns: int
    """From the load's start to the window's."""
    connections: Connections
    generator: Generator
    warnings: tuple[MeasurementWarning, ...]
    think_time_ns: int = 0
    has_slo: bool = False
    """Whether the window's `good` means anything."""
    resources: Resources = NOTHING_SEEN
    faults: tuple[MeasurementWarning, ...] = ()
    """What makes it invalid beside its figures."""

    @property
    def is_open(self) -> bool:
        """Whether it was an open loop."""
        return isinstance(self.load, OpenLoad)


def point(measured: PointMeasurement) -> Point:
    """The point of one repetition."""
    return _point([measured], measured.repetition, measured.window.finished_per_s)


def pooled(repetitions: Sequence[PointMeasurement], slo: Slo | None = None) -> Point:
    """The point of all repetitions of one load: histograms and counts added, percentiles never averaged; judged by the SLO."""
    found = _point(repetitions, None, None)
    if found.valid and not all(point(one).valid for one in repetitions):
        found = found.model_copy(update={"valid": False})
    if slo is None:
        return found
    times = _pooled(repetitions, "response_time") or _pooled(repetitions, "service_time")
    assert times is not None
    codes = {warning.code for warning in found.warnings}
    judged = judge_slo(
        slo, times, _intervals(repetitions), found.error_rate, overloaded="overloaded" in codes, not_steady="not_steady" in codes
    )
    return found.model_copy(update={"slo": SloJudgement(verdict=judged.verdict, reason=judged.reason)})


def _point(parts: Sequence[PointMeasurement], repetition: int | None, series: tuple[int, ...] | None) -> Point:
    first, windows = parts[0], [part.window for part in parts]
    service_time, failure_time = _pooled(parts, "service_time"), _pooled(parts, "failure_time")
    response_time, start_delay, lag = (_pooled(parts, name) for name in ("response_time", "start_delay", "lag"))
    assert service_time is not None
    assert failure_time is not None
    outcomes = {outcome: sum(window.outcomes[outcome] for window in windows) for outcome in Outcome}
    dropped, unsent = sum(window.dropped for window in windows), sum(window.unsent for window in windows)
    sent, window_s = sum(outcomes.values()), sum(window.length_ns for window in windows) / NS_PER_S
    scheduled, checked = sent + dropped, sum(window.checked for window in windows)
    throughput = _rate(sum(window.finished for window in windows), window_s)
    late = lag if lag is not None and lag.count else BucketCounts.merged(part.resources.lag for part in parts)
    seen = [(part.resources, part.window.length_ns) for part in parts]
    generator = Generator(
        workers=max(part.generator.workers for part in parts),
        cpu_share=_mean(parts, "cpu_share"),
        event_loop_lag_ns=distribution(late) if late.count else None,
        steal_share=_mean(parts, "steal_share"),
        throttled_share=_mean(parts, "throttled_share"),
        **generator_figures(seen),
    )
    inferences, gpus = throughput * window_s * first.batch_size, pooled_gpus(seen)
    judged = _judge_generator(parts, generator, scheduled, dropped - unsent, unsent, lag, response_time or service_time, failure_time)
    errors = {
        outcome.value: tuple(dict.fromkeys(text for window in windows for text in window.errors.get(outcome, ())))
        for outcome in Outcome
        if outcomes[outcome] and any(outcome in window.errors for window in windows)
    }
    intervals, faults = _intervals(parts), tuple(dict.fromkeys(fault for part in parts for fault in part.faults))
    return Point(
        protocol=first.protocol,
        load=first.load,
        repetition=repetition,
        valid=judged.is_valid and sent > 0 and not faults,
        warnings=(
            *dict.fromkeys(warning for part in parts for warning in part.warnings),
            *faults,
            *judged.invalid,
            *judged.warnings,
            *network_warnings(generator),
            *_load_warnings(dropped - unsent, scheduled, lag),
            *(course_warnings([_course(part) for part in parts]) if judged.is_valid else ()),
            *_outcome_warnings(outcomes, errors, checked),
            *_sample_warnings(response_time or service_time, outcomes, intervals),
        ),
        warmup_s=max(part.warmup_ns for part in parts) / NS_PER_S,
        duration_s=window_s,
        requests=Requests(scheduled=scheduled, dropped=dropped, sent=sent, **{outcome.value: count for outcome, count in outcomes.items()}),
        rejected_by_status={
            status: sum(window.statuses.get(status, 0) for window in windows)
            for status in sorted({status for window in windows for status in window.statuses})
        },
        checked=checked,
        error_rate=1 - outcomes[Outcome.OK] / scheduled if scheduled else 0.0,
        throughput_per_s=throughput,
        inferences_per_s=throughput * first.batch_size,
        goodput_per_s=_rate(sum(window.good for window in windows), window_s) if first.has_slo else None,
        service_time_ns=distribution(service_time),
        response_time_ns=None if response_time is None else distribution(response_time),
        start_delay_ns=None if start_delay is None else distribution(start_delay),
        failure_time_ns=distribution(failure_time) if failure_time.count else None,
        intervals={name: (one.low_ns, one.high_ns) for name, quantile in QUANTILES.items() if (one := intervals.get(quantile))},
        effective_samples={
            name: round(one.effective_samples, 1) for name, quantile in QUANTILES.items() if (one := intervals.get(quantile))
        },
        connections=Connections(
            opened=sum(part.connections.opened for part in parts),
            reconnects=sum(part.connections.reconnects for part in parts),
            retried=sum(part.connections.retried for part in parts),
        ),
        generator=generator,
        server=server_figures(seen),
        gpus=gpus,
        energy_per_inference_j=energy_per(inferences, gpus, "energy_j"),
        energy_above_idle_per_inference_j=energy_per(inferences, gpus, "energy_above_idle_j"),
        metrics=pooled_metrics(seen),
        throughput_series_per_s=series,
        errors=errors,
    )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0


def _pooled(parts: Sequence[PointMeasurement], name: str) -> BucketCounts | None:
    """All repetitions' histograms of that name added; None where the load has no such time."""
    if name not in parts[0].window.times:
        return None
    return BucketCounts.merged(part.window.times[name] for part in parts)


def _mean(parts: Sequence[PointMeasurement], share: str) -> float:
    """Weighted by the windows' lengths."""
    total_ns = sum(part.window.length_ns for part in parts)
    return sum(float(getattr(part.generator, share)) * part.window.length_ns for part in parts) / total_ns if total_ns else 0.0


def _judge_generator(
    parts: Sequence[PointMeasurement],
    generator: Generator,
    scheduled: int,
    without_room: int,
    unsent: int,
    lag: BucketCounts | None,
    times: BucketCounts,
    failure_time: BucketCounts,
) -> GeneratorVerdict:
    load = parts[0].load
    loop: OpenLoopFigures | ClosedLoopFigures | None = None
    if lag is not None:
        loop = OpenLoopFigures(
            scheduled=scheduled,
            sent=scheduled - without_room - unsent,
            dropped=without_room,
            lag=lag,  # the generator's own part of the start delay: waiting for a socket is the target's
            response_p50_ns=times.values_at([0.5])[0],
        )
    elif isinstance(load, ClosedLoad) and (count := times.count + failure_time.count):
        window_s = sum(part.window.length_ns for part in parts) / NS_PER_S
        total_ns = sum(each.mean_and_stddev_ns()[0] * each.count for each in (times, failure_time))
        loop = ClosedLoopFigures(
            concurrency=load.concurrency,
            finished_per_s=_rate(sum(part.window.ended for part in parts), window_s),
            mean_service_time_ns=total_ns / count,
            mean_think_time_ns=parts[0].think_time_ns,
        )
    busiest = max(part.generator.cpu_share for part in parts)
    throttled = max(part.generator.throttled_share for part in parts)
    return judge_generator(busiest, generator.steal_share, throttled, loop)


def _load_warnings(without_room: int, scheduled: int, lag: BucketCounts | None) -> list[MeasurementWarning]:
    """What became of the schedule: arrivals without room, and bursts after the generator stood still."""
    warnings = []
    if without_room:
        message = f"{without_room:,} of {scheduled:,} arrivals were dropped: max_in_flight requests were in flight when they came."
        warnings.append(MeasurementWarning(code="dropped", message=message))
    if lag is not None and lag.count and lag.max_ns > _LATE_BURST_NS:
        message = f"The load generator stood still once, for up to {format_duration_ns(lag.max_ns)}, and sent what was due in a burst then."
        warnings.append(MeasurementWarning(code="burst", message=message))
    return warnings


def _intervals(parts: Sequence[PointMeasurement]) -> dict[float, PercentileInterval]:
    """95 % intervals of the percentiles, from the parts' batches one behind another."""
    return percentile_intervals([batch for part in parts for batch in part.window.batches], tuple(QUANTILES.values()))


def _course(part: PointMeasurement) -> Course:
    burstiness = part.load.burstiness if isinstance(part.load, OpenLoad) else None
    return Course(part.window.series, part.is_open, burstiness or 1.0)


def _outcome_warnings(outcomes: Mapping[Outcome, int], errors: Mapping[str, tuple[str, ...]], checked: int) -> list[MeasurementWarning]:
    warnings = []
    failed = {outcome.value: number for outcome, number in outcomes.items() if number and outcome is not Outcome.OK}
    if failed:
        text = next((texts[0] for name in failed if (texts := errors.get(name)) and texts[0]), "")
        listed = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in failed.items())
        warnings.append(
            MeasurementWarning(code="failed_requests", message=f"Some requests failed: {listed}{f'; for one: {text}' if text else ''}.")
        )
    wrong, answered = outcomes[Outcome.INVALID_OUTPUT], outcomes[Outcome.INVALID_OUTPUT] + outcomes[Outcome.OK]
    if wrong and checked < answered:
        message = f"{wrong:,} of the {checked:,} answers that were checked are wrong; the other {answered - checked:,} count as ok unseen."
        warnings.append(MeasurementWarning(code="invalid_output", message=message))
    return warnings


def _sample_warnings(
    times: BucketCounts, outcomes: Mapping[Outcome, int], intervals: Mapping[float, PercentileInterval]
) -> list[MeasurementWarning]:
    count, censored = times.count, outcomes[Outcome.TIMED_OUT] + outcomes[Outcome.UNFINISHED]
    if not count:
        return [MeasurementWarning(code="no_samples", message="No request of this point succeeded.")]
    warnings = []
    needed = {
        name: one.needed_samples if (one := intervals.get(quantile)) else minimum_samples(quantile) for name, quantile in QUANTILES.items()
    }
    few = [name for name, quantile in QUANTILES.items() if not is_withheld(quantile, count) and count < needed[name]]
    if few:
        need = needed[few[-1]]
        message = f"Too few samples for {few[-1].replace('_', '.')}: at least {need:,} are needed; measure longer."
        warnings.append(MeasurementWarning(code="few_samples", message=message))
    above = [
        name for name, quantile in QUANTILES.items() if not is_withheld(quantile, count) and int(quantile * count + 0.5) > count - censored
    ]
    if above:
        message = f"{above[0].replace('_', '.')} and above fall among {censored} requests that never came back: they are lower bounds."
        warnings.append(MeasurementWarning(code="censored", message=message))
    if times.clamped:
        warnings.append(MeasurementWarning(code="clamped", message=f"{times.clamped} times lie above one hour and count as one hour."))
    return warnings

"""From recordings to the points of a result, and from repetitions to their summary."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from perfkit.recorder.histogram import Histogram
from perfkit.recorder.recording import Recording
from perfkit.recorder.series import Series
from perfkit.result.model import Connections, Distribution, Generator, Load, OpenLoad, Point, Protocol, Requests, RunWarning, SloJudgement
from perfkit.stats.overload import judge_overload
from perfkit.stats.percentile_interval import PercentileInterval, percentile_intervals
from perfkit.stats.slo import Slo, judge_slo
from perfkit.stats.steady_state import judge
from perfkit.stats.validity import GeneratorVerdict, OpenLoopFigures, is_withheld, judge_generator, minimum_samples
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S, format_duration_ns

_LATE_BURST_NS = 50_000_000
_REQUESTS_AN_INTERVAL, _FEWEST_INTERVALS = 10, 60  # below that many the verdict on a drift is not reliable
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999, "p99_99": 0.9999}


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """One load point of one repetition as it was measured: what a `Point` is made from."""

    protocol: Protocol
    load: Load
    batch_size: int
    repetition: int
    window_ns: int
    recording: Recording
    connections: Connections
    generator: Generator
    warnings: tuple[RunWarning, ...]


def distribution(histogram: Histogram) -> Distribution:
    """A histogram's figures; percentiles with too few samples are None."""
    mean, stddev = histogram.mean_and_stddev_ns()
    values = dict(zip(QUANTILES, histogram.values_at(tuple(QUANTILES.values())) if histogram.count else [0] * len(QUANTILES), strict=True))
    shown = {
        name: None if is_withheld(QUANTILES[name], histogram.count) else min(value, histogram.max_ns) for name, value in values.items()
    }
    return Distribution(count=histogram.count, min=histogram.min_ns, mean=mean, stddev=stddev, max=histogram.max_ns, **shown)


def point(measured: Measured) -> Point:
    """The point of one repetition."""
    seconds = -(-measured.window_ns // NS_PER_S)
    series = tuple(measured.recording.finished_per_interval.get(index, 0) for index in range(seconds))
    return _point([measured], measured.repetition, series)


def pooled(repetitions: Sequence[Measured], slo: Slo | None = None) -> Point:
    """The point of all repetitions of one load: histograms and counts added, percentiles never averaged; judged by the SLO."""
    found = _point(repetitions, None, None)
    if slo is None:
        return found
    times = _pooled(repetitions, "response_time") or _pooled(repetitions, "service_time")
    assert times is not None
    codes = {warning.code for warning in found.warnings}
    judged = judge_slo(
        slo, times, _intervals(repetitions), found.error_rate, overloaded="overloaded" in codes, not_steady="not_steady" in codes
    )
    return found.model_copy(update={"slo": SloJudgement(verdict=judged.verdict, reason=judged.reason)})


def _point(parts: Sequence[Measured], repetition: int | None, series: tuple[int, ...] | None) -> Point:
    first = parts[0]
    service_time, failure_time = _pooled(parts, "service_time"), _pooled(parts, "failure_time")
    response_time, start_delay, lag = (_pooled(parts, name) for name in ("response_time", "start_delay", "lag"))
    assert service_time is not None
    assert failure_time is not None
    outcomes = {outcome: sum(part.recording.outcomes[outcome] for part in parts) for outcome in Outcome}
    dropped, unsent = sum(part.recording.dropped for part in parts), sum(part.recording.unsent for part in parts)
    sent, window_s = sum(outcomes.values()), sum(part.window_ns for part in parts) / NS_PER_S
    throughput = sum(part.recording.finished_in_window for part in parts) / window_s if window_s else 0.0
    generator = Generator(
        cpu_share=_mean(parts, "cpu_share"),
        event_loop_lag_ns=distribution(lag) if lag is not None and lag.count else None,
        steal_share=_mean(parts, "steal_share"),
    )
    busy_share = max(part.generator.cpu_share for part in parts)
    judged = _judged_generator(busy_share, generator.steal_share, sent + dropped, unsent, dropped, lag, response_time)
    errors = {
        outcome.value: tuple(dict.fromkeys(text for part in parts for text in part.recording.errors.get(outcome, ())))
        for outcome in Outcome
        if any(outcome in part.recording.errors for part in parts)
    }
    warnings = tuple(dict.fromkeys(warning for part in parts for warning in part.warnings))
    intervals = _intervals(parts)
    return Point(
        protocol=first.protocol,
        load=first.load,
        repetition=repetition,
        valid=judged.is_valid and sent > 0,
        warnings=(
            *warnings,
            *judged.invalid,
            *judged.warnings,
            *_load_warnings(dropped - unsent, sent + dropped, lag),
            *(_course_warnings(parts) if judged.is_valid else ()),
            *_warnings(response_time or service_time, outcomes, sum(part.recording.censored for part in parts), errors, intervals),
        ),
        duration_s=window_s,
        requests=Requests(
            scheduled=sent + dropped, dropped=dropped, sent=sent, **{outcome.value: count for outcome, count in outcomes.items()}
        ),
        error_rate=1 - outcomes[Outcome.OK] / (sent + dropped) if sent + dropped else 0.0,
        throughput_per_s=throughput,
        inferences_per_s=throughput * first.batch_size,
        service_time_ns=distribution(service_time),
        response_time_ns=None if response_time is None else distribution(response_time),
        start_delay_ns=None if start_delay is None else distribution(start_delay),
        failure_time_ns=distribution(failure_time) if failure_time.count else None,
        intervals={name: (one.low_ns, one.high_ns) for name, quantile in QUANTILES.items() if (one := intervals.get(quantile))},
        connections=Connections(
            opened=sum(part.connections.opened for part in parts),
            reconnects=sum(part.connections.reconnects for part in parts),
            retried=sum(part.connections.retried for part in parts),
        ),
        generator=generator,
        throughput_series_per_s=series,
        errors=errors,
    )


def _pooled(parts: Sequence[Measured], name: str) -> Histogram | None:
    """All repetitions' histograms of that name added; None where the load has no such time."""
    if getattr(parts[0].recording, name) is None:
        return None
    pooled = Histogram()
    for part in parts:
        pooled.add(getattr(part.recording, name))
    return pooled


def _mean(parts: Sequence[Measured], share: str) -> float:
    """Weighted by the windows' lengths."""
    total_ns = sum(part.window_ns for part in parts)
    return sum(float(getattr(part.generator, share)) * part.window_ns for part in parts) / total_ns if total_ns else 0.0


def _judged_generator(
    busy_share: float, steal_share: float, scheduled: int, unsent: int, dropped: int, lag: Histogram | None, response_time: Histogram | None
) -> GeneratorVerdict:
    if lag is None or response_time is None:
        return judge_generator(busy_share, steal_share, None)
    figures = OpenLoopFigures(
        scheduled=scheduled,
        sent=scheduled - dropped,
        dropped=dropped - unsent,
        start_delay_p99_ns=lag.values_at([0.99])[0] if lag.count else 0,  # its own part of it: waiting for a socket is the target's
        response_p50_ns=response_time.values_at([0.5])[0] if response_time.count else 0,
    )
    return judge_generator(busy_share, steal_share, figures)


def _load_warnings(without_room: int, scheduled: int, lag: Histogram | None) -> list[RunWarning]:
    """What became of the schedule: arrivals without room, and bursts after the generator stood still."""
    warnings = []
    if without_room:
        message = f"{without_room:,} of {scheduled:,} arrivals were dropped: max_in_flight requests were in flight when they came."
        warnings.append(RunWarning(code="dropped", message=message))
    if lag is not None and lag.count and lag.max_ns > _LATE_BURST_NS:
        message = f"The load generator stood still once, for up to {format_duration_ns(lag.max_ns)}, and sent what was due in a burst then."
        warnings.append(RunWarning(code="burst", message=message))
    return warnings


def _intervals(parts: Sequence[Measured]) -> dict[float, PercentileInterval]:
    """95 % intervals of the percentiles; none where a number of requests ended the windows."""
    batches = [Histogram.decode(text) for part in parts if part.recording.series is not None for text in part.recording.series.batches]
    return percentile_intervals(batches, tuple(QUANTILES.values()))


def _course_warnings(parts: Sequence[Measured]) -> list[RunWarning]:
    """What became of the target in the course of the windows: a backlog that grew, a drift."""
    warnings: dict[str, str] = {}
    for part in parts:
        series = part.recording.series
        if series is None or not series.timed.size:
            continue
        if isinstance(part.load, OpenLoad):
            overload = judge_overload(series.scheduled, series.answered, dispersion=1 + (part.load.burstiness or 1.0) ** 2)
            if overload.is_overloaded:
                warnings.setdefault("overloaded", overload.sentence)
                continue
        if (reason := _drift(series, isinstance(part.load, OpenLoad))) is not None:
            warnings.setdefault("not_steady", reason)
    return [RunWarning(code=code, message=message) for code, message in warnings.items()]


def _drift(series: Series, is_open: bool) -> str | None:
    """Why the target was not steady, from intervals of ten requests or more; None where nothing proves it.

    The throughput of an open loop is its schedule's, which may well move: its times alone are judged.
    """
    whole = max(1, math.ceil(_REQUESTS_AN_INTERVAL * series.timed.size / max(int(series.timed.sum()), 1)))
    number = series.timed.size // whole
    if number < _FEWEST_INTERVALS:
        return None
    timed, sums, answered = (
        one[: number * whole].reshape(number, whole).sum(axis=1) for one in (series.timed, series.time_sum_ns, series.answered)
    )
    if not timed.all():
        return None
    times = {"mean time": sums / timed}
    judged = judge(times if is_open else {"throughput": answered.astype(float), **times})
    return judged.reason if judged.verdict == "not_steady" else None


def _warnings(
    service_time: Histogram,
    outcomes: dict[Outcome, int],
    censored: int,
    errors: dict[str, tuple[str, ...]],
    intervals: Mapping[float, PercentileInterval],
) -> list[RunWarning]:
    warnings, count = [], service_time.count
    failed = {outcome.value: number for outcome, number in outcomes.items() if number and outcome is not Outcome.OK}
    if failed:
        text = next((texts[0] for texts in errors.values() if texts and texts[0]), "")
        listed = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in failed.items())
        warnings.append(
            RunWarning(code="failed_requests", message=f"Some requests failed: {listed}{f'; for one: {text}' if text else ''}.")
        )
    if not count:
        warnings.append(RunWarning(code="no_samples", message="No request of this point succeeded."))
        return warnings
    needed = {
        name: one.needed_samples if (one := intervals.get(quantile)) else minimum_samples(quantile) for name, quantile in QUANTILES.items()
    }
    few = [name for name, quantile in QUANTILES.items() if not is_withheld(quantile, count) and count < needed[name]]
    if few:
        need = needed[few[-1]]
        message = f"Too few samples for {few[-1].replace('_', '.')}: at least {need:,} are needed; measure longer."
        warnings.append(RunWarning(code="few_samples", message=message))
    above = [
        name for name, quantile in QUANTILES.items() if not is_withheld(quantile, count) and int(quantile * count + 0.5) > count - censored
    ]
    if above:
        message = f"{above[0].replace('_', '.')} and above fall among {censored} requests that never came back: they are lower bounds."
        warnings.append(RunWarning(code="censored", message=message))
    if service_time.clamped:
        warnings.append(RunWarning(code="clamped", message=f"{service_time.clamped} times lie above one hour and count as one hour."))
    return warnings

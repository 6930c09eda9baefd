"""From recordings to the points of a result, and from repetitions to their summary."""

import dataclasses
from collections.abc import Sequence

from perfkit.recorder.histogram import Histogram
from perfkit.recorder.recording import Recording
from perfkit.result.model import Connections, Distribution, Generator, Load, Point, Protocol, Requests, RunWarning
from perfkit.stats.validity import GeneratorVerdict, OpenLoopFigures, is_withheld, judge_generator, minimum_samples
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S, format_duration_ns

_LATE_BURST_NS = 50_000_000
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


def pooled(repetitions: Sequence[Measured]) -> Point:
    """The point of all repetitions of one load: histograms and counts added, percentiles never averaged."""
    return _point(repetitions, None, None)


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
            *_warnings(response_time or service_time, outcomes, sum(part.recording.censored for part in parts), errors),
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


def _warnings(service_time: Histogram, outcomes: dict[Outcome, int], censored: int, errors: dict[str, tuple[str, ...]]) -> list[RunWarning]:
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
    few = [name for name, quantile in QUANTILES.items() if not is_withheld(quantile, count) and count < minimum_samples(quantile)]
    if few:
        need = minimum_samples(QUANTILES[few[-1]])
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

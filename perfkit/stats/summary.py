"""From recordings to the points of a result, and from repetitions to their summary."""

import dataclasses
from collections.abc import Sequence

from perfkit.recorder.histogram import Histogram
from perfkit.recorder.recording import Recording
from perfkit.result.model import ClosedLoad, Connections, Distribution, Generator, Point, Protocol, Requests, RunWarning
from perfkit.stats.validity import is_generator_bound, is_withheld, judge_generator, minimum_samples
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999, "p99_99": 0.9999}


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """One load point of one repetition as it was measured: what a `Point` is made from."""

    protocol: Protocol
    concurrency: int
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
    first, service_time, failure_time = parts[0], Histogram(), Histogram()
    for part in parts:
        service_time.add(part.recording.service_time)
        failure_time.add(part.recording.failure_time)
    outcomes = {outcome: sum(part.recording.outcomes[outcome] for part in parts) for outcome in Outcome}
    sent, window_s = sum(outcomes.values()), sum(part.window_ns for part in parts) / NS_PER_S
    throughput = sum(part.recording.finished_in_window for part in parts) / window_s if window_s else 0.0
    generator = Generator(cpu_share=_mean(parts, "cpu_share"), steal_share=_mean(parts, "steal_share"))
    errors = {
        outcome.value: tuple(dict.fromkeys(text for part in parts for text in part.recording.errors.get(outcome, ())))
        for outcome in Outcome
        if any(outcome in part.recording.errors for part in parts)
    }
    busy_share = max(part.generator.cpu_share for part in parts)
    warnings = tuple(dict.fromkeys(warning for part in parts for warning in part.warnings))
    return Point(
        protocol=first.protocol,
        load=ClosedLoad(concurrency=first.concurrency),
        repetition=repetition,
        valid=not is_generator_bound(busy_share) and sent > 0,
        warnings=(*warnings, *_warnings(service_time, outcomes, sum(part.recording.censored for part in parts), errors, busy_share)),
        duration_s=window_s,
        requests=Requests(scheduled=sent, dropped=0, sent=sent, **{outcome.value: count for outcome, count in outcomes.items()}),
        error_rate=1 - outcomes[Outcome.OK] / sent if sent else 0.0,
        throughput_per_s=throughput,
        inferences_per_s=throughput * first.batch_size,
        service_time_ns=distribution(service_time),
        failure_time_ns=distribution(failure_time) if failure_time.count else None,
        connections=Connections(
            opened=sum(part.connections.opened for part in parts), reconnects=sum(part.connections.reconnects for part in parts)
        ),
        generator=generator,
        throughput_series_per_s=series,
        errors=errors,
    )


def _mean(parts: Sequence[Measured], share: str) -> float:
    """Weighted by the windows' lengths."""
    total_ns = sum(part.window_ns for part in parts)
    return sum(float(getattr(part.generator, share)) * part.window_ns for part in parts) / total_ns if total_ns else 0.0


def _warnings(
    service_time: Histogram,
    outcomes: dict[Outcome, int],
    censored: int,
    errors: dict[str, tuple[str, ...]],
    busy_share: float,
) -> list[RunWarning]:
    warnings, count = list(judge_generator(busy_share, 0.0, None).invalid), service_time.count
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

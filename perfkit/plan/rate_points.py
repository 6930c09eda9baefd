"""The measurements pooled by rate, and the curves through the rates at which the target kept up."""

import dataclasses
import math
from collections.abc import Sequence

from perfkit.plan.evidence import KEPT_UP, Evidence, OpenPoint, pooled_percentile_ns
from perfkit.plan.model import RatePoint
from perfkit.result.distribution import QUANTILES
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.capacity import energy_per_inference
from perfkit.stats.rate_curve import FEWEST_RATES, RateCurve, Repetition, fit_rate_curve
from perfkit.stats.slo import SloLimits
from perfkit.telemetry.figures import GpuFigures

_BY_SERIOUSNESS = ("overloaded", "not steady", KEPT_UP, "not valid")


@dataclasses.dataclass(frozen=True, slots=True)
class FittedCurve:
    """A curve and the points it was fitted to."""

    curve: RateCurve
    rates_per_s: tuple[float, ...]
    values_ns: tuple[float, ...]
    batches: tuple[tuple[BucketCounts, ...], ...]


def rate_points(evidence: Evidence, slo: SloLimits, idle_power_w: float | None) -> tuple[RatePoint, ...]:
    """Pool the measurements by rate; ascending."""
    rates = sorted({repetition.rate_per_s for repetition in evidence.open_points})
    return tuple(
        _rate_point(
            [repetition for repetition in evidence.open_points if repetition.rate_per_s == rate], slo, evidence.batch_size, idle_power_w
        )
        for rate in rates
    )


def fit_curves(evidence: Evidence, names: Sequence[str]) -> dict[str, FittedCurve]:
    """Fit a curve for each name, a percentile or `mean`, that is known at enough rates."""
    fitted = {name: _fit_curve(evidence, name) for name in names}
    return {name: fit for name, fit in fitted.items() if fit is not None}


def figure_ns(point: OpenPoint, name: str) -> float | None:
    """A percentile, or `mean`, of one repetition's response times; None if it is withheld or there are no samples."""
    times = point.point.times
    value = times.mean if name == "mean" else getattr(times, name)
    return float(value) if value and times.count else None


def _fit_curve(evidence: Evidence, name: str) -> FittedCurve | None:
    """None if it is known at fewer than `FEWEST_RATES` rates."""
    states = {
        rate: _state([repetition for repetition in evidence.open_points if repetition.rate_per_s == rate])
        for rate in {repetition.rate_per_s for repetition in evidence.open_points}
    }
    kept_up = [
        repetition for repetition in evidence.open_points if repetition.state == KEPT_UP and states[repetition.rate_per_s] == KEPT_UP
    ]
    known = [(repetition, value) for repetition in kept_up if (value := figure_ns(repetition, name)) is not None]
    rates = sorted({repetition.rate_per_s for repetition, _ in known})
    if len(rates) < FEWEST_RATES:
        return None
    values, batches = [], []
    for rate in rates:
        at_rate = [(repetition, value) for repetition, value in known if repetition.rate_per_s == rate]
        rate_batches = tuple(batch for repetition, _ in at_rate for batch in repetition.batches)
        has_log = all(repetition.batches for repetition, _ in at_rate)
        pooled = pooled_percentile_ns(rate_batches, QUANTILES[name]) if name in QUANTILES and has_log else None
        values.append(pooled or math.exp(sum(math.log(value) for _, value in at_rate) / len(at_rate)))
        batches.append(rate_batches)
    repetitions = [Repetition(repetition.rate_per_s, value, repetition.run) for repetition, value in known]
    return FittedCurve(fit_rate_curve(rates, values, repetitions), tuple(rates), tuple(values), tuple(batches))


def _state(points: Sequence[OpenPoint]) -> str:
    """The most frequent state of a rate's repetitions, the more serious one of a tie; invalid ones count only if all are invalid."""
    states = [repetition.state for repetition in points]
    counted = [state for state in states if state != "not valid"] or states
    return max(_BY_SERIOUSNESS, key=lambda state: (counted.count(state), -_BY_SERIOUSNESS.index(state)))


def _rate_point(points: Sequence[OpenPoint], slo: SloLimits, batch_size: int, idle_power_w: float | None) -> RatePoint:
    state = _state(points)
    counted = [repetition for repetition in points if repetition.state == state]
    batches = [batch for repetition in counted for batch in repetition.batches]
    percentiles = {name: value for name in QUANTILES if (value := _percentile_ns(counted, batches, name)) is not None}
    samples = sum(repetition.point.times.count for repetition in counted)
    throughput = _weighted(counted, [repetition.point.throughput_per_s for repetition in counted])
    scheduled = sum(repetition.point.requests.scheduled for repetition in counted)
    error_rate = 1 - sum(repetition.point.requests.ok for repetition in counted) / scheduled if scheduled else 0.0
    power_w, idle_w = _gpu_power_w(counted), _gpu_idle_w(counted) if idle_power_w is None else idle_power_w
    return RatePoint(
        rate_per_s=points[0].rate_per_s,
        state=state,
        repetitions=len(counted),
        samples=samples,
        throughput_per_s=throughput,
        goodput_per_s=_goodput_per_s(counted, batches, slo),
        error_rate=error_rate,
        mean_ns=sum(repetition.point.times.mean * repetition.point.times.count for repetition in counted) / samples if samples else None,
        percentiles_ns=percentiles,
        few_samples=tuple(name for name in percentiles if _has_few_samples(counted, name)),
        gpu_utilization=_gpu_utilization(counted),
        power_w=power_w,
        idle_power_w=idle_w if power_w is not None else None,
        energy=None if power_w is None or not throughput else energy_per_inference(power_w, throughput * batch_size, idle_w),
        meets_slo=_meets(state, percentiles, error_rate, slo),
    )


def _goodput_per_s(points: Sequence[OpenPoint], batches: Sequence[BucketCounts], slo: SloLimits) -> float | None:
    """A lower bound of the correct responses per second within the limit of the SLO's highest percentile; None without a log."""
    duration_s = sum(repetition.point.duration_s for repetition in points)
    if not duration_s or not all(repetition.batches for repetition in points):
        return None
    times, wrong = (
        BucketCounts.merged(batches),
        sum(repetition.point.requests.invalid_output for repetition in points),
    )  # these are in the times too
    return max(times.count - times.count_above(slo.percentiles_ns[max(slo.percentiles_ns)]) - wrong, 0) / duration_s


def _meets(state: str, percentiles: dict[str, float], error_rate: float, slo: SloLimits) -> bool | None:
    """Whether the SLO is met; None if the point is not valid, or a limited percentile is unknown and no limit is missed."""
    if state == "not valid":
        return None
    if state != KEPT_UP or (slo.error_rate is not None and error_rate > slo.error_rate):
        return False
    values = [percentiles.get(name) for name, quantile in QUANTILES.items() if quantile in slo.percentiles_ns]
    limits = [slo.percentiles_ns[quantile] for quantile in QUANTILES.values() if quantile in slo.percentiles_ns]
    known = [value <= limit for value, limit in zip(values, limits, strict=True) if value is not None]
    return False if not all(known) else None if None in values else True


def _percentile_ns(points: Sequence[OpenPoint], batches: Sequence[BucketCounts], name: str) -> float | None:
    """From the pooled log, or the geometric mean over repetitions without one; None if there are too few samples."""
    values = [value for repetition in points if (value := figure_ns(repetition, name)) is not None]
    samples = sum(repetition.point.times.count for repetition in points)
    if samples * (1 - QUANTILES[name]) < 1 - 1e-9:
        return None
    pooled = pooled_percentile_ns(batches, QUANTILES[name]) if all(repetition.batches for repetition in points) else None
    return pooled or (math.exp(sum(map(math.log, values)) / len(values)) if values else None)


def _has_few_samples(points: Sequence[OpenPoint], name: str) -> bool:
    """Whether all repetitions together have fewer independent samples than the percentile needs."""
    from perfkit.stats.sample_size import minimum_samples

    return sum(repetition.point.effective_samples.get(name, repetition.point.times.count) for repetition in points) < minimum_samples(
        QUANTILES[name]
    )


def _weighted(points: Sequence[OpenPoint], values: Sequence[float]) -> float:
    """The mean of the points' values, weighted by duration."""
    total_s = sum(repetition.point.duration_s for repetition in points)
    return sum(value * repetition.point.duration_s for value, repetition in zip(values, points, strict=True)) / total_s if total_s else 0.0


def _gpus(point: OpenPoint) -> list[GpuFigures]:
    """The GPUs that the target used or may have used; MIG instances are left out, since they report no power."""
    return [gpu for gpu in point.point.gpus if gpu.used_by_server is not False and not gpu.mig]


def _gpu_utilization(points: Sequence[OpenPoint]) -> float | None:
    """The mean over GPUs and repetitions; None if one is unknown."""
    values = _known([gpu.utilization_mean for repetition in points for gpu in _gpus(repetition)])
    return sum(values) / len(values) if values else None


def _gpu_power_w(points: Sequence[OpenPoint]) -> float | None:
    """The power of all GPUs together: from their energy if all report it, else from their mean power; None without GPUs."""
    totals = []
    for repetition in points:
        energies = _known([gpu.energy_j for gpu in _gpus(repetition)])
        powers = _known([gpu.power_mean_w for gpu in _gpus(repetition)])
        if energies and repetition.point.duration_s:
            totals.append(sum(energies) / repetition.point.duration_s)
        elif powers:
            totals.append(sum(powers))
        else:
            return None
    return _weighted(points, totals) if totals else None


def _gpu_idle_w(points: Sequence[OpenPoint]) -> float | None:
    """The power of all GPUs together before the run, without load; None if it was not measured."""
    totals = [_known([gpu.idle_power_w for gpu in _gpus(repetition)]) for repetition in points]
    return sum(map(sum, totals)) / len(totals) if totals and all(totals) else None


def _known(values: Sequence[float | None]) -> list[float]:
    """All values, or an empty list if one is unknown."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []

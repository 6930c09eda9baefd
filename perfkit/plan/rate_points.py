"""The points of an open loop, pooled by rate, and the curves through those at which the target kept up."""

import dataclasses
import math
from collections.abc import Sequence

from perfkit.plan.evidence import Evidence, OpenPoint, pooled_percentile_ns
from perfkit.plan.model import RatePoint
from perfkit.result.distribution import QUANTILES
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.capacity import energy_per_inference
from perfkit.stats.rate_curve import FEWEST_RATES, RateCurve, Repetition, fit_rate_curve
from perfkit.stats.slo import SloLimits
from perfkit.telemetry.figures import GpuFigures

KEPT_UP = "kept up"
_GRAVEST = ("overloaded", "not steady", KEPT_UP, "not valid")


@dataclasses.dataclass(frozen=True, slots=True)
class FittedCurve:
    """A curve and what it was fitted to."""

    curve: RateCurve
    rates_per_s: tuple[float, ...]
    values_ns: tuple[float, ...]
    batches: tuple[tuple[BucketCounts, ...], ...]


def rate_points(evidence: Evidence, slo: SloLimits, idle_power_w: float | None) -> tuple[RatePoint, ...]:
    """A point for each rate, ascending."""
    rates = sorted({one.rate_per_s for one in evidence.open_points})
    return tuple(
        _rate_point([one for one in evidence.open_points if one.rate_per_s == rate], slo, evidence.batch_size, idle_power_w)
        for rate in rates
    )


def fit_curves(evidence: Evidence, names: Sequence[str]) -> dict[str, FittedCurve]:
    """A curve for each percentile, and `mean`, that enough rates carry."""
    fitted = {name: _fit_curve(evidence, name) for name in names}
    return {name: one for name, one in fitted.items() if one is not None}


def figure_ns(point: OpenPoint, name: str) -> float | None:
    """A percentile, or `mean`, of one repetition's response times; None where it is withheld or there are none."""
    times = point.point.times
    value = times.mean if name == "mean" else getattr(times, name)
    return float(value) if value and times.count else None


def _fit_curve(evidence: Evidence, name: str) -> FittedCurve | None:
    """None where fewer than four rates carry it."""
    states = {
        rate: _state([one for one in evidence.open_points if one.rate_per_s == rate])
        for rate in {p.rate_per_s for p in evidence.open_points}
    }
    kept = [one for one in evidence.open_points if one.state == KEPT_UP and states[one.rate_per_s] == KEPT_UP]
    known = [(one, value) for one in kept if (value := figure_ns(one, name)) is not None]
    rates = sorted({one.rate_per_s for one, _ in known})
    if len(rates) < FEWEST_RATES:
        return None
    values, batches = [], []
    for rate in rates:
        here = [(one, value) for one, value in known if one.rate_per_s == rate]
        parts = tuple(batch for one, _ in here for batch in one.batches)
        pooled = pooled_percentile_ns(parts, QUANTILES[name]) if name in QUANTILES and all(one.batches for one, _ in here) else None
        values.append(pooled or math.exp(sum(math.log(value) for _, value in here) / len(here)))
        batches.append(parts)
    repetitions = [Repetition(one.rate_per_s, value, one.run) for one, value in known]
    return FittedCurve(fit_rate_curve(rates, values, repetitions), tuple(rates), tuple(values), tuple(batches))


def _state(points: Sequence[OpenPoint]) -> str:
    """Of a rate: what most of its repetitions came to, the graver of equals; those that are not valid do not count beside others."""
    states = [one.state for one in points]
    counted = [state for state in states if state != "not valid"] or states
    return max(_GRAVEST, key=lambda state: (counted.count(state), -_GRAVEST.index(state)))


def _rate_point(points: Sequence[OpenPoint], slo: SloLimits, batch_size: int, idle_power_w: float | None) -> RatePoint:
    state = _state(points)
    counted = [one for one in points if one.state == state]
    parts = [batch for one in counted for batch in one.batches]
    percentiles = {name: value for name in QUANTILES if (value := _percentile_ns(counted, parts, name)) is not None}
    samples = sum(one.point.times.count for one in counted)
    throughput = _weighted(counted, [one.point.throughput_per_s for one in counted])
    scheduled = sum(one.point.requests.scheduled for one in counted)
    error_rate = 1 - sum(one.point.requests.ok for one in counted) / scheduled if scheduled else 0.0
    power_w, idle_w = _gpu_power_w(counted), _gpu_idle_w(counted) if idle_power_w is None else idle_power_w
    return RatePoint(
        rate_per_s=points[0].rate_per_s,
        state=state,
        repetitions=len(counted),
        samples=samples,
        throughput_per_s=throughput,
        goodput_per_s=_goodput_per_s(counted, parts, slo),
        error_rate=error_rate,
        mean_ns=sum(one.point.times.mean * one.point.times.count for one in counted) / samples if samples else None,
        percentiles_ns=percentiles,
        few_samples=tuple(name for name in percentiles if _has_few_samples(counted, name)),
        gpu_utilization=_gpu_utilization(counted),
        power_w=power_w,
        idle_power_w=idle_w if power_w is not None else None,
        energy=None if power_w is None or not throughput else energy_per_inference(power_w, throughput * batch_size, idle_w),
        meets_slo=_meets(state, percentiles, error_rate, slo),
    )


def _goodput_per_s(points: Sequence[OpenPoint], parts: Sequence[BucketCounts], slo: SloLimits) -> float | None:
    """Ok answers a second within the limit of the plan's highest percentile, at least so many; None without a log."""
    duration_s = sum(one.point.duration_s for one in points)
    if not duration_s or not all(one.batches for one in points):
        return None
    times, wrong = BucketCounts.merged(parts), sum(one.point.requests.invalid_output for one in points)  # those stand in the times too
    return max(times.count - times.count_above(slo.percentiles_ns[max(slo.percentiles_ns)]) - wrong, 0) / duration_s


def _meets(state: str, percentiles: dict[str, float], error_rate: float, slo: SloLimits) -> bool | None:
    if state == "not valid":
        return None
    if state != KEPT_UP or (slo.error_rate is not None and error_rate > slo.error_rate):
        return False
    found = [percentiles.get(name) for name, quantile in QUANTILES.items() if quantile in slo.percentiles_ns]
    limits = [slo.percentiles_ns[quantile] for quantile in QUANTILES.values() if quantile in slo.percentiles_ns]
    known = [value <= limit for value, limit in zip(found, limits, strict=True) if value is not None]
    return False if not all(known) else None if None in found else True


def _percentile_ns(points: Sequence[OpenPoint], parts: Sequence[BucketCounts], name: str) -> float | None:
    """Pooled where the log has the times; the mean of logarithms where there is none. None where too few samples carry it."""
    values = [value for one in points if (value := figure_ns(one, name)) is not None]
    samples = sum(one.point.times.count for one in points)
    if samples * (1 - QUANTILES[name]) < 1 - 1e-9:
        return None
    pooled = pooled_percentile_ns(parts, QUANTILES[name]) if all(one.batches for one in points) else None
    return pooled or (math.exp(sum(map(math.log, values)) / len(values)) if values else None)


def _has_few_samples(points: Sequence[OpenPoint], name: str) -> bool:
    """Whether the independent samples behind it are fewer than the minimum of all repetitions together."""
    from perfkit.stats.sample_size import minimum_samples

    return sum(one.point.effective_samples.get(name, one.point.times.count) for one in points) < minimum_samples(QUANTILES[name])


def _weighted(points: Sequence[OpenPoint], values: Sequence[float]) -> float:
    total_s = sum(one.point.duration_s for one in points)
    return sum(value * one.point.duration_s for value, one in zip(values, points, strict=True)) / total_s if total_s else 0.0


def _gpus(point: OpenPoint) -> list[GpuFigures]:
    """Those that the target used, as far as that is known; instances of a divided GPU tell no power."""
    return [gpu for gpu in point.point.gpus if gpu.used_by_server is not False and not gpu.mig]


def _gpu_utilization(points: Sequence[OpenPoint]) -> float | None:
    """The mean over GPUs and repetitions; None where one is not known."""
    values = _known([gpu.utilization_mean for one in points for gpu in _gpus(one)])
    return sum(values) / len(values) if values else None


def _gpu_power_w(points: Sequence[OpenPoint]) -> float | None:
    """Of all GPUs together: from their energy where all have it, from mean power otherwise; None without GPUs."""
    totals = []
    for one in points:
        energies = _known([gpu.energy_j for gpu in _gpus(one)])
        powers = _known([gpu.power_mean_w for gpu in _gpus(one)])
        if energies and one.point.duration_s:
            totals.append(sum(energies) / one.point.duration_s)
        elif powers:
            totals.append(sum(powers))
        else:
            return None
    return _weighted(points, totals) if totals else None


def _gpu_idle_w(points: Sequence[OpenPoint]) -> float | None:
    """Of all GPUs together before the run, without load; None where it was not measured."""
    totals = [_known([gpu.idle_power_w for gpu in _gpus(one)]) for one in points]
    return sum(map(sum, totals)) / len(totals) if totals and all(totals) else None


def _known(values: Sequence[float | None]) -> list[float]:
    """All of them, or none where one is not known."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []

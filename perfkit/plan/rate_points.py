"""The measurements pooled by rate, and the curves through the rates at which the target kept up."""

import itertools
import math
import operator
from collections.abc import Sequence

from perfkit.errors import UsageError
from perfkit.figures.resources import GpuFigures
from perfkit.plan.capacity import energy_per_inference
from perfkit.plan.evidence import KEPT_UP, Evidence, OpenPoint, pooled_percentile_ns
from perfkit.plan.model import PartsVerdict, RatePoint
from perfkit.plan.rate_curve import FEWEST_RATES, RateCurve, Repetition, fit_rate_curve
from perfkit.plan.slo_capacity import CONFIDENCE
from perfkit.result.distribution import QUANTILES
from perfkit.result.json_file import as_mapping
from perfkit.scenario.slo import FURTHER_KEYS
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import is_withheld, minimum_samples
from perfkit.stats.ratio_interval import Estimate, share_interval
from perfkit.stats.slo import FailedShare, JudgedTimes, SloLimits, judge_slo
from perfkit.target.apis import APIS, V2

_BY_SERIOUSNESS = ("overloaded", "not steady", KEPT_UP, "not valid")


def rate_points(evidence: Evidence, slo: SloLimits, idle_power_w: float | None) -> tuple[RatePoint, ...]:
    """Pool the measurements by rate; ascending."""
    by_rate = points_by_rate(evidence).values()
    return tuple(_rate_point(state, points, slo, evidence.batch_size, idle_power_w, len(by_rate)) for state, points in by_rate)


def check_parts(evidence: Sequence[Evidence], slo: SloLimits) -> None:
    """Raises UsageError if a configuration has no times at all of a part of answers that has a limit."""
    for one, recorded in itertools.product(evidence, slo.further_ns):
        if one.open_points and not any(point.times_of(recorded) for point in one.open_points):
            raise UsageError(f"--slo: {', '.join(one.sources)}: {_why_without(one, recorded)}")


def _why_without(evidence: Evidence, recorded: str) -> str:
    """Why the results hold no times of a part of answers, and what to do."""
    key, target = FURTHER_KEYS[recorded], as_mapping(evidence.scenario.get("target"))
    api = APIS.get(str(target.get("api")), V2)
    if key not in api.slo_parts:
        owner = next(one for one in APIS.values() if key in one.slo_parts)
        return f"{key} is for api: {owner.name}; use {' or '.join(api.slo_parts)}"
    if not any(point.batches for point in evidence.open_points):
        return f"latency.hlog is missing, and a limit on {key} needs it"
    if evidence.scenario.get("stream") is None:
        return f"only streams have {key}: measure with stream: {{}}, or leave out its limit"
    return f"no answer has {key}: see the warnings of the results, or leave out its limit"


def fit_curves(evidence: Evidence, names: Sequence[str]) -> dict[str, RateCurve]:
    """Fit a curve for each name, a percentile or `mean`, that is known at enough rates."""
    return {name: curve for name in names if (curve := _fit_curve(evidence, name)) is not None}


def figure_ns(point: OpenPoint, name: str) -> float | None:
    """A percentile, or `mean`, of one repetition's response times; None if it is withheld or there are no samples."""
    times = point.measured.times
    value = times.mean if name == "mean" else getattr(times, name)
    return float(value) if value and times.count else None


def points_by_rate(evidence: Evidence) -> dict[float, tuple[str, list[OpenPoint]]]:
    """The repetitions of all results at each rate, and the state that most of them are in; by ascending rate."""
    rates = sorted({point.rate_per_s for point in evidence.open_points})
    by_rate = {rate: [point for point in evidence.open_points if point.rate_per_s == rate] for rate in rates}
    return {rate: (_state(points), points) for rate, points in by_rate.items()}


def known_rates(evidence: Evidence, name: str) -> list[float]:
    """The rates at which the target kept up and a repetition has enough samples for this figure: those that a curve is fitted to."""
    return list(dict.fromkeys(point.rate_per_s for point, _ in _known_figures(evidence, name)))


def _known_figures(evidence: Evidence, name: str) -> list[tuple[OpenPoint, float]]:
    kept_up = [
        point for state, points in points_by_rate(evidence).values() if state == KEPT_UP for point in points if point.state == KEPT_UP
    ]
    return [(point, value) for point in kept_up if (value := figure_ns(point, name)) is not None]


def _fit_curve(evidence: Evidence, name: str) -> RateCurve | None:
    known = _known_figures(evidence, name)
    rates = known_rates(evidence, name)
    if len(rates) < FEWEST_RATES:
        return None
    values = []
    for rate in rates:
        at_rate = [(point, value) for point, value in known if point.rate_per_s == rate]
        has_log = all(point.batches for point, _ in at_rate)
        batches = [batch for point, _ in at_rate for batch in point.batches]
        pooled = pooled_percentile_ns(batches, QUANTILES[name]) if name in QUANTILES and has_log else None
        values.append(pooled or math.exp(sum(math.log(value) for _, value in at_rate) / len(at_rate)))
    repetitions = [Repetition(point.rate_per_s, value, point.run) for point, value in known]
    return fit_rate_curve(rates, values, repetitions)


def _state(points: Sequence[OpenPoint]) -> str:
    """The most frequent state of a rate's repetitions, the more serious one of a tie; invalid ones count only if all are invalid."""
    states = [point.state for point in points]
    counted = [state for state in states if state != "not valid"] or states
    return max(_BY_SERIOUSNESS, key=lambda state: (counted.count(state), -_BY_SERIOUSNESS.index(state)))


def _rate_point(
    state: str, points: Sequence[OpenPoint], slo: SloLimits, batch_size: int, idle_power_w: float | None, load_points: int
) -> RatePoint:
    counted = [point for point in points if point.state == state]
    batches = [batch for point in counted for batch in point.batches]
    percentiles = {name: value for name in QUANTILES if (value := _percentile_ns(counted, batches, name)) is not None}
    samples = sum(point.measured.times.count for point in counted)
    throughput = _weighted(counted, [point.measured.throughput_per_s for point in counted])
    error_rate = FailedShare.over([(point.measured.requests.scheduled, point.measured.failed_share) for point in counted]).estimate
    parts = _judge_parts(counted, slo, load_points, is_not_steady=state == "not steady")
    power_w, idle_w = _gpu_power_w(counted), _gpu_idle_w(counted) if idle_power_w is None else idle_power_w
    return RatePoint(
        rate_per_s=points[0].rate_per_s,
        state=state,
        repetitions=len(counted),
        samples=samples,
        throughput_per_s=throughput,
        goodput_per_s=_goodput_per_s(counted, batches, slo),
        error_rate=error_rate,
        mean_ns=sum(point.measured.times.mean * point.measured.times.count for point in counted) / samples if samples else None,
        percentiles_ns=percentiles,
        few_samples=tuple(name for name in percentiles if _has_few_samples(counted, name)),
        gpu_utilization=_gpu_utilization(counted),
        power_w=power_w,
        idle_power_w=idle_w if power_w is not None else None,
        energy=None if power_w is None or not throughput else energy_per_inference(power_w, throughput * batch_size, idle_w),
        meets_slo=_meets(state, percentiles, error_rate, slo, parts),
        parts=parts,
    )


def _judge_parts(points: Sequence[OpenPoint], slo: SloLimits, load_points: int, *, is_not_steady: bool) -> PartsVerdict | None:
    """The verdict on the limits on parts of answers, as a run gives it; None without such limits."""
    if not slo.further_ns:
        return None
    further = {}
    for recorded in slo.further_ns:
        windows = [point.times_of(recorded) for point in points]
        times = BucketCounts.merged(batch for window in windows for batch in window)
        unknown = sum(point.measured.count_unknown(recorded) for point in points)
        further[recorded] = JudgedTimes(times, windows, unknown=unknown)
    limits = SloLimits({}, further_ns=slo.further_ns)
    judged = judge_slo(limits, JudgedTimes(), 0.0, further=further, load_points=load_points, is_not_steady=is_not_steady)
    return PartsVerdict(judged.verdict, "; ".join(sentence for verdict, sentence in judged.limits if verdict == judged.verdict))


def _goodput_per_s(points: Sequence[OpenPoint], batches: Sequence[BucketCounts], slo: SloLimits) -> float | None:
    """A lower bound of the correct responses per second within the limit of the SLO's highest percentile.

    None without a log, and under limits on parts of answers: which answers meet several limits is not known.
    """
    duration_s = sum(point.measured.duration_s for point in points)
    if not duration_s or slo.further_ns or not all(point.batches for point in points):
        return None
    times, limit_ns = BucketCounts.merged(batches), slo.percentiles_ns[max(slo.percentiles_ns)]
    invalid = sum(point.measured.requests.invalid_output for point in points)  # their times are among the others
    return max(times.count - times.count_above(limit_ns) - invalid, 0) / duration_s


def error_rate_up_to(evidence: Evidence, rate_per_s: float) -> Estimate | None:
    """The share of failed requests at the rates up to this one at which the target kept up, with its 90 % interval; None without requests."""
    measured = [point.measured for point in evidence.open_points if point.state == KEPT_UP and point.rate_per_s <= rate_per_s]
    scheduled = sum(point.requests.scheduled for point in measured)
    failed = FailedShare.over([(point.requests.scheduled, point.failed_share) for point in measured])
    return share_interval(*failed.independent(scheduled), CONFIDENCE) if scheduled else None


def _meets(state: str, percentiles: dict[str, float], error_rate: float, slo: SloLimits, parts: PartsVerdict | None) -> bool | None:
    """Whether the SLO is met; None if that is unknown.

    It is unknown at a point that is not valid, and at one that misses no limit but is not steady, lacks a limited percentile, or does not
    clearly meet the limits on parts of answers.
    """
    if state == "not valid":
        return None
    if state == "overloaded" or (slo.error_rate is not None and error_rate > slo.error_rate):
        return False
    limits = {name: slo.percentiles_ns[quantile] for name, quantile in QUANTILES.items() if quantile in slo.percentiles_ns}
    if any(percentiles[name] > limit_ns for name, limit_ns in limits.items() if name in percentiles):
        return False
    if parts is not None and parts.verdict != "satisfied":
        return False if parts.verdict == "violated" else None
    return True if state == KEPT_UP and limits.keys() <= percentiles.keys() else None


def _percentile_ns(points: Sequence[OpenPoint], batches: Sequence[BucketCounts], name: str) -> float | None:
    """From the pooled log, or the geometric mean over repetitions without one; None if there are too few samples."""
    if is_withheld(QUANTILES[name], sum(point.measured.times.count for point in points)):
        return None
    values = [value for point in points if (value := figure_ns(point, name)) is not None]
    pooled = pooled_percentile_ns(batches, QUANTILES[name]) if all(point.batches for point in points) else None
    return pooled or (math.exp(sum(map(math.log, values)) / len(values)) if values else None)


def _has_few_samples(points: Sequence[OpenPoint], name: str) -> bool:
    samples = sum(point.measured.effective_samples.get(name, point.measured.times.count) for point in points)
    return samples < minimum_samples(QUANTILES[name])


def _weighted(points: Sequence[OpenPoint], values: Sequence[float]) -> float:
    lengths_s = [point.measured.duration_s for point in points]
    return sum(map(operator.mul, values, lengths_s)) / sum(lengths_s) if any(lengths_s) else 0.0


def _gpus(point: OpenPoint) -> list[GpuFigures]:
    """The GPUs that the target used or may have used; MIG instances are left out, since they report no power."""
    return [gpu for gpu in point.measured.server_gpus if not gpu.mig]


def _gpu_utilization(points: Sequence[OpenPoint]) -> float | None:
    values = _known([gpu.utilization_mean for point in points for gpu in _gpus(point)])
    return sum(values) / len(values) if values else None


def _gpu_power_w(points: Sequence[OpenPoint]) -> float | None:
    """The power of all GPUs together: from their energy if all report it, else from their mean power; None without GPUs."""
    totals = []
    for point in points:
        energies = _known([gpu.energy_j for gpu in _gpus(point)])
        powers = _known([gpu.power_mean_w for gpu in _gpus(point)])
        if energies and point.measured.duration_s:
            totals.append(sum(energies) / point.measured.duration_s)
        elif powers:
            totals.append(sum(powers))
        else:
            return None
    return _weighted(points, totals) if totals else None


def has_gpu_power(evidence: Evidence) -> bool:
    """Whether a rate at which the target kept up has the power of its GPUs."""
    kept_up = [
        [point for point in points if point.state == KEPT_UP] for state, points in points_by_rate(evidence).values() if state == KEPT_UP
    ]
    return any(_gpu_power_w(points) is not None for points in kept_up)


def _gpu_idle_w(points: Sequence[OpenPoint]) -> float | None:
    """The power of all GPUs together before the run, without load; None if it was not measured."""
    totals = [_known([gpu.idle_power_w for gpu in _gpus(point)]) for point in points]
    return sum(map(sum, totals)) / len(totals) if totals and all(totals) else None


def _known(values: Sequence[float | None]) -> list[float]:
    """All values, or an empty list if one is unknown."""
    return [] if None in values else [value for value in values if value is not None]

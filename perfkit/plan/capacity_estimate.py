"""The capacity of one configuration under the SLO, or why its measurements do not show one."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.plan.evidence import KEPT_UP, Evidence, OpenPoint
from perfkit.plan.exceedances import RateTimes, Window
from perfkit.plan.missing_measurement import MissingMeasurement
from perfkit.plan.model import RatePoint
from perfkit.plan.rate_curve import FEWEST_RATES, RateCurve
from perfkit.plan.rate_points import figure_ns, known_rates, points_by_rate
from perfkit.plan.slo_capacity import FEWEST_CLUSTERS, NEAR, Bound, Capacity, capacity_under_limit, lowest_capacity
from perfkit.result.distribution import QUANTILES
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import minimum_samples
from perfkit.units import format_duration_ns, format_rate_per_s

_FALLS_BELOW = 0.98  # a throughput below this share of the rate that it is compared with is lower
_BEYOND_CHANCE = 3.0  # standard errors
_LOWEST_SHARE = 0.85  # lower limit ÷ estimate; below it the capacity is too uncertain for a plan
_INTERPOLATED = 1000
_SUGGESTED_SHARES = (0.4, 0.55, 0.7, 0.85)  # of the saturation
_BEYOND_SATURATION, _AROUND_ONE, _BELOW_LOWEST, _ABOVE_HIGHEST = (
    (1.0, 1.2),
    (0.5, 1.0, 1.5, 2.0, 3.0),
    (0.1, 0.25, 0.5, 0.75),
    (1.25, 1.5, 2.0, 3.0),
)
_MOST_TIMES_AS_LONG = 100
_CLEARER = 10  # how many times longer windows are proposed where whether a limit is met is unclear
_SAMPLES_FACTOR = 3  # near saturation requests are correlated, and a percentile needs more of them


@dataclasses.dataclass(frozen=True, slots=True)
class CapacityEstimate:
    """The capacity and the percentile whose limit has the lowest lower end, or why there is none."""

    percentile: str = ""
    capacity: Capacity | None = None
    refusal: str = ""


def estimate_capacity(
    evidence: Evidence,
    points: Sequence[RatePoint],
    limits: Mapping[str, int],
    curves: Mapping[str, RateCurve],
    random: np.random.Generator,
) -> CapacityEstimate:
    """Estimate the capacity under all limits of the SLO; a refusal says what to measure, and which measurements did not count."""
    if refusal := _refusal(evidence, points, limits, curves):
        return _refused("", *refusal, evidence)
    times, saturation_per_s, bounds = _rate_times(evidence), _saturation_per_s(points), _bounds(points, limits)
    throughput_per_s = saturation_per_s or max(point.throughput_per_s for point in points if point.state != "not valid")
    capacities = {
        name: capacity_under_limit(
            times, QUANTILES[name], limit_ns, curves[name].spread, random,
            highest_throughput_per_s=throughput_per_s, saturation_per_s=saturation_per_s, bounds=bounds,
        )
        for name, limit_ns in limits.items()
    }  # fmt: skip
    decisive = min(capacities, key=lambda name: capacities[name].low_per_s)
    capacity = lowest_capacity(list(capacities.values()))
    if refusal := _imprecision(decisive, capacity):
        return _refused(decisive, *refusal, evidence)
    return CapacityEstimate(decisive, capacity)


def _refused(percentile: str, reason: str, missing: MissingMeasurement | None, evidence: Evidence) -> CapacityEstimate:
    command = "" if missing is None or not missing.rates_per_s else missing.command(evidence.scenario, evidence.sources[0])
    told = [f"To measure that: {command}"] if command else []
    return CapacityEstimate(percentile, refusal=" ".join([reason, *evidence.repeated, *told]))


def _refusal(
    evidence: Evidence, points: Sequence[RatePoint], limits: Mapping[str, int], curves: Mapping[str, RateCurve]
) -> tuple[str, MissingMeasurement | None] | None:
    """Why these points give no capacity, as a sentence, and the measurement that is missing; None if they do."""
    if not points:
        reason = "There are only closed loops, which have no arrival rate: measure it with load: {open: {rate: […]}}."
        return reason, closed_loops_lack(evidence)
    seconds = max((point.measured.duration_s for point in evidence.open_points), default=0.0)
    rates = [point.rate_per_s for point in points]
    judged = [point for point in points if point.meets_slo is not None]
    listed = ", ".join(format_rate_per_s(point.rate_per_s) for point in points)
    if len(points) == 1:
        reason = f"Only one rate was measured, {listed}, and one point gives no capacity: measure at least {FEWEST_RATES} rates, some of which miss the SLO."
        return reason, MissingMeasurement.at([share * rates[0] for share in _AROUND_ONE], seconds)
    if not any(point.state != "not valid" for point in points):
        reason = f"No measurement is valid ({listed}): the load generator was the bottleneck, or late, or the target was cold; see the warnings of the results."
        return reason, None
    doubtful = [point for point in points if point.state != "not valid" and point.parts and point.parts.verdict != "satisfied"]
    is_met = any(point.meets_slo for point in points)
    if doubtful and (is_met or doubtful[0].meets_slo is None) and not parts_range_per_s(points)[0]:
        told = f"such as {format_rate_per_s(doubtful[0].rate_per_s)} ({_why_open(doubtful[0])})"
        missed = "are" if doubtful[0].parts and doubtful[0].parts.verdict == "violated" else "may be"
        scatter = ", but at higher ones: the measurements scatter, or the times do not rise with the rate" if is_met else ""
        longer = MissingMeasurement.at([point.rate_per_s for point in doubtful], _CLEARER * seconds)
        return (
            f"The limits on parts of answers are clearly met at no rate below those at which they {missed} missed, {told}{scatter}.",
            longer,
        )
    if judged and not is_met:
        lowest = judged[0]
        never = f"The SLO is never met, not even at the lowest rate that counts, {format_rate_per_s(lowest.rate_per_s)} ({_figures(lowest, limits)})"
        below = [point for point in points if point.rate_per_s < lowest.rate_per_s]
        if below:
            left_out = ", ".join(f"{format_rate_per_s(point.rate_per_s)} ({_why_open(point)})" for point in below)
            reason = (
                f"{never}. Lower rates were measured, and cannot be judged: {left_out}. Measure these again, on a quiet machine or longer."
            )
            return reason, MissingMeasurement.at([point.rate_per_s for point in below], 2 * seconds)
        lower = MissingMeasurement.at([share * lowest.rate_per_s for share in _BELOW_LOWEST], seconds)
        return f"{never}: measure lower rates, or relax the SLO.", lower
    if judged and all(point.meets_slo for point in judged):
        higher = MissingMeasurement.at([share * judged[-1].rate_per_s for share in _ABOVE_HIGHEST], seconds)
        return _never_missed(judged[-1], points, limits), higher
    for name in limits:
        if name not in curves:
            return _too_few_rates(name, points, known_rates(evidence, name)), suggestion(name, points)
    return None


def closed_loops_lack(evidence: Evidence) -> MissingMeasurement:
    """The open loops that a configuration with closed loops alone lacks."""
    saturation_per_s = max((point.throughput_per_s for point in evidence.closed_points), default=0.0)
    seconds = max((point.duration_s for point in evidence.closed_points), default=0.0)
    return MissingMeasurement.at([share * saturation_per_s for share in (*_SUGGESTED_SHARES, *_BEYOND_SATURATION)], seconds)


def _too_few_rates(name: str, points: Sequence[RatePoint], known: Sequence[float]) -> str:
    """That a percentile is known at too few rates: which of them count, and why each of the others does not."""
    shown = name.replace("_", ".")
    counted = ", ".join(format_rate_per_s(rate) for rate in known)
    others = ", ".join(
        f"{format_rate_per_s(point.rate_per_s)} ({f'too few samples for {shown}' if point.state == KEPT_UP else point.state})"
        for point in points
        if point.rate_per_s not in known
    )
    return (
        f"A plan needs {FEWEST_RATES} rates at which the target kept up and {shown} is known, and "
        f"{f'only {len(known)} were measured ({counted})' if known else 'none was measured'}."
        f"{f' Not counted: {others}.' if others else ''} {suggested_rates(name, points)}"
    )


def suggested_rates(name: str, points: Sequence[RatePoint]) -> str:
    """Rates below saturation, and windows that hold the samples that a percentile needs, as a sentence."""
    if (missing := suggestion(name, points)) is None:
        return "No request succeeded: measure rates that the target answers."
    often = f", with {missing.repetitions} repetitions (measure.repetitions)" if missing.repetitions > 1 else ""
    listed = [format_rate_per_s(rate) for rate in missing.rates_per_s]
    return (
        f"Measure more rates below saturation, such as {', '.join(listed[:-1])} and {listed[-1]} (load.open.rate), "
        f"in windows of at least {_duration(missing.window_s)} (measure.duration){often}."
    )


def suggestion(name: str, points: Sequence[RatePoint]) -> MissingMeasurement | None:
    """Rates below saturation with windows that hold the samples that a percentile needs; None if no request succeeded."""
    valid = [point for point in points if point.state != "not valid"]
    saturation_per_s = _saturation_per_s(points) or max(min(point.rate_per_s, point.throughput_per_s) for point in valid)
    if not saturation_per_s:
        return None
    samples = minimum_samples(QUANTILES[name]) if name in QUANTILES else 0
    lowest_per_s = float(f"{_SUGGESTED_SHARES[0] * saturation_per_s:.2g}")
    return MissingMeasurement.at([share * saturation_per_s for share in _SUGGESTED_SHARES], _SAMPLES_FACTOR * samples / lowest_per_s)


def _never_missed(highest: RatePoint, points: Sequence[RatePoint], limits: Mapping[str, int]) -> str:
    met = f"{format_rate_per_s(highest.rate_per_s)} ({_figures(highest, limits)})"
    above = [point for point in points if point.rate_per_s > highest.rate_per_s]
    if not above:
        return f"The SLO is never missed, not even at the highest rate, {met}: the capacity lies above the measured rates; measure higher ones."
    undecided = ", ".join(f"{format_rate_per_s(point.rate_per_s)} ({_why_open(point)})" for point in above)
    return f"The SLO is met up to {met}, and the measurements at the rates above cannot tell whether it is missed there: {undecided}. Measure them again, or higher ones."


def _figures(point: RatePoint, limits: Mapping[str, int]) -> str:
    shown = [
        f"{name.replace('_', '.')} {format_duration_ns(point.percentiles_ns[name])}" for name in limits if name in point.percentiles_ns
    ]
    return ", ".join([*shown, *([why] if (why := _why_open(point)) != KEPT_UP else [])]) or "too few samples"


def _why_open(point: RatePoint) -> str:
    """The state of a point, or where the target kept up, why the limits on parts of answers are not clearly met."""
    is_open = point.state == KEPT_UP and point.parts is not None and point.parts.verdict != "satisfied"
    return point.parts.reason if is_open and point.parts is not None else point.state


def _imprecision(percentile: str, capacity: Capacity) -> tuple[str, MissingMeasurement] | None:
    """Why the capacity is too uncertain to plan with, as a sentence that says what to measure, and that measurement; None if it is not."""
    shares = [NEAR[0], sum(NEAR) / 2, NEAR[1]]
    name, near_per_s = percentile.replace("_", "."), [format_rate_per_s(share * capacity.per_s) for share in NEAR]
    rates = f"rates from {near_per_s[0]} to {near_per_s[1]} at which the target keeps up"
    if capacity.clusters < FEWEST_CLUSTERS:
        reason = (
            f"The windows are too short for {name}: slow requests come in clusters, one whenever the queue fills, and the "
            f"{_duration(capacity.measured_s)} measured near the capacity, about {format_rate_per_s(capacity.per_s)}, hold about "
            f"{math.floor(10 * capacity.clusters) / 10:.1f} clusters above the limit, where a plan needs {FEWEST_CLUSTERS:g}. Measure {_duration(capacity.needed_s)} in all at {rates}."
        )
        return reason, MissingMeasurement.at([share * capacity.per_s for share in shares], capacity.needed_s / len(shares))
    share = capacity.low_per_s / capacity.per_s if capacity.per_s else 0.0
    if share < _LOWEST_SHARE:
        longer = (math.log(share) / math.log(_LOWEST_SHARE)) ** 2 if share > 0 else math.inf
        amount = f"about {math.ceil(longer)} times as long" if longer <= 100 else "far longer"
        interval = f"{format_rate_per_s(capacity.low_per_s)} to {format_rate_per_s(capacity.high_per_s)}"
        reason = f"The capacity is too uncertain to plan with, {interval}: measure {amount} as now ({_duration(capacity.measured_s)}) at {rates}, and more restarts."
        again_s = capacity.measured_s * min(longer, _MOST_TIMES_AS_LONG) / len(shares)
        return reason, MissingMeasurement.at([share * capacity.per_s for share in shares], again_s)
    return None


def _duration(seconds: float) -> str:
    limits = ((600, 1, "s"), (2 * 3600, 60, "min"), (48 * 3600, 3600, "hours"), (math.inf, 24 * 3600, "days"))
    unit_s, unit = next((unit_s, unit) for below_s, unit_s, unit in limits if seconds < below_s)
    return f"{math.ceil(seconds / unit_s):,} {unit}"


def _rate_times(evidence: Evidence) -> list[RateTimes]:
    """The response times at each rate with a valid measurement.

    All valid repetitions count. A rate has the state of most of its repetitions; the others differ from it by chance.
    """
    rates = []
    for rate, (state, points) in points_by_rate(evidence).items():
        valid = [point for point in points if point.state != "not valid"]
        if valid:
            batches = [batch for point in valid for batch in point.batches or _batches_without_log(point)]
            windows = [Window(point.measured.duration_s, point.measured.warmup_s) for point in valid]
            rates.append(RateTimes(rate, batches, windows, is_lower_bound=state != KEPT_UP))
    return rates


def _batches_without_log(point: OpenPoint) -> list[BucketCounts]:
    """One batch of times, interpolated between the percentiles of the result; no batch without times."""
    times = point.measured.times
    if not times.count:
        return []
    known = {0.0: float(times.min), 1.0: float(times.max)}
    known |= {QUANTILES[name]: value for name in QUANTILES if (value := figure_ns(point, name))}
    shares = sorted(known)
    number = min(times.count, _INTERPOLATED)
    values_ns = np.interp((np.arange(number) + 0.5) / number, shares, np.maximum.accumulate([known[share] for share in shares]))
    return [BucketCounts.of(np.repeat(values_ns, math.ceil(times.count / number)))]


def _kept_up_per_s(points: Sequence[RatePoint]) -> float:
    return max((min(point.rate_per_s, point.throughput_per_s) for point in points if point.state == KEPT_UP), default=0.0)


def _saturation_per_s(points: Sequence[RatePoint]) -> float | None:
    """The saturation: the lowest throughput of a target that fell behind.

    None if it never fell behind, or if its throughput then was lower than at rates at which it kept up.
    """
    lowest = min((point.throughput_per_s for point in points if _fell_behind(point)), default=None)
    return lowest if lowest is not None and lowest >= _FALLS_BELOW * _kept_up_per_s(points) else None


def _fell_behind(point: RatePoint) -> bool:
    """Whether the target was overloaded, or was not steady and answered less than was sent by more than chance."""
    most_per_s = point.throughput_per_s * (1 + _BEYOND_CHANCE * _relative_error(point))
    return point.state == "overloaded" or (point.state == "not steady" and most_per_s < _FALLS_BELOW * point.rate_per_s)


def _bounds(points: Sequence[RatePoint], limits: Mapping[str, int]) -> list[Bound]:
    """Upper bounds of the capacity.

    Where the target missed the SLO while overloaded or not steady, the throughput is a bound. Its standard error is that of the number of
    answers, whose variance is at most about twice its mean. If the throughput fell under overload, the highest rate at which the target kept up
    is the bound instead. A rate with too many errors is a bound itself. Under limits on parts of answers, to whose times no curve is fitted,
    a bound lies between two measured rates (`parts_range_per_s`).
    """
    bounds = []
    for point in points:
        if point.state in ("overloaded", "not steady") and point.meets_slo is False:
            answered = min(point.rate_per_s, point.throughput_per_s)
            kept_up_per_s = _kept_up_per_s(points) if point.state == "overloaded" else 0.0
            bounds.append(Bound(kept_up_per_s) if answered < _FALLS_BELOW * kept_up_per_s else Bound(answered, _relative_error(point)))
        elif point.state == KEPT_UP and _fails_by_errors(point, limits):
            bounds.append(Bound(point.rate_per_s))
    if any(point.parts is not None for point in points):
        met_per_s, missed_per_s = parts_range_per_s(points)
        bounds.append(Bound(met_per_s, highest_per_s=missed_per_s))
    return bounds


def parts_range_per_s(points: Sequence[RatePoint]) -> tuple[float, float]:
    """The highest rate that clearly meets the limits on parts of answers, below all that clearly miss them, and the lowest of these.

    0 and infinity where there is none. Only rates at which the target kept up meet them; measurements that are not valid do not count.
    """
    judged = [(point, point.parts.verdict) for point in points if point.parts is not None and point.state != "not valid"]
    missed_per_s = min((point.rate_per_s for point, verdict in judged if verdict == "violated"), default=math.inf)
    met = [point.rate_per_s for point, verdict in judged if verdict == "satisfied" and point.state == KEPT_UP]
    return max((rate for rate in met if rate < missed_per_s), default=0.0), missed_per_s


def _relative_error(point: RatePoint) -> float:
    return math.sqrt(2 / max(point.samples, 1))


def _fails_by_errors(point: RatePoint, limits: Mapping[str, int]) -> bool:
    return point.meets_slo is False and all(point.percentiles_ns.get(name, math.inf) <= limit for name, limit in limits.items())

"""The plan of one configuration: its capacity under the SLO, the fleet that serves the demand, predictions, and what is refused."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.plan.evidence import Evidence
from perfkit.plan.inputs import PlanInputs, Price
from perfkit.plan.model import SHOWN, ConfigurationPlan, NamedPrediction, Operation, RatePoint, TableRow
from perfkit.plan.performance_models import closed_points, fit_law, validate_models, what_if
from perfkit.plan.rate_points import KEPT_UP, FittedCurve, fit_curves, rate_points
from perfkit.result.distribution import QUANTILES
from perfkit.stats.capacity import (
    Energy,
    ReplicaCount,
    closed_loop_bounds,
    cost_per_million,
    count_replicas,
    energy_per_inference,
    measured_knee,
    target_concurrency,
)
from perfkit.stats.rate_curve import FEWEST_RATES, RateCurve
from perfkit.stats.slo_capacity import BatchedTimes, Capacity, capacity_under_limit
from perfkit.units import format_duration_ns, format_rate_per_s

_HEADROOMS, _REDUNDANCIES, _DEMANDS = (0.2, 0.3, 0.4, 0.5), (0, 1, 2), (0.5, 1.0, 1.5, 2.0)
_OPERATIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def plan_configuration(evidence: Evidence, inputs: PlanInputs, random: np.random.Generator) -> ConfigurationPlan:
    """The plan of one configuration; one that cannot be planned with says why in `refusal`."""
    slo = inputs.slo
    points = rate_points(evidence, slo, inputs.idle_power_w)
    limits = {name: slo.percentiles_ns[quantile] for name, quantile in QUANTILES.items() if quantile in slo.percentiles_ns}
    fitted = fit_curves(evidence, list(dict.fromkeys([*SHOWN, *limits, "mean"])))
    curves = {name: one.curve for name, one in fitted.items()}
    refusal = _refusal(points, limits, fitted)
    decisive, capacity = ("", None) if refusal else _capacity(points, limits, fitted, random)
    if capacity is not None and not capacity.low_per_s > 0:
        refusal, capacity = "The capacity's lower limit is zero: its measurements scatter too much to plan with; repeat them.", None
    price = inputs.price_of(evidence.name, evidence.label)
    fleet = None if capacity is None else _fleet(inputs, inputs.demand_per_s, capacity.low_per_s * evidence.batch_size)
    operating_per_s = fleet.rate_per_replica_per_s / evidence.batch_size if fleet else None
    autoscaler_per_s = None if capacity is None else (1 - inputs.headroom) * capacity.low_per_s
    predictions, unpredicted = _predictions(curves, inputs.rates_per_s)
    closed = closed_points(evidence)
    validations, queues = validate_models(evidence, points, capacity)
    has_mean = autoscaler_per_s is not None and "mean" in curves
    return ConfigurationPlan(
        name=evidence.name,
        label=evidence.label,
        model=evidence.model,
        settings=evidence.settings,
        batch_size=evidence.batch_size,
        sources=evidence.sources,
        runs=evidence.runs,
        points=points,
        closed=closed,
        refusal=refusal,
        curves=curves,
        slo_percentile=decisive,
        capacity=capacity,
        fleet=fleet,
        currency=price.currency if price else "",
        price_per_hour=price.per_hour if price else None,
        cost_per_hour=fleet.replicas * price.per_hour if fleet and price else None,
        cost_per_million=cost_per_million(fleet.replicas, price.per_hour, inputs.priced_demand_per_s) if fleet and price else None,
        energy=_energy(points, operating_per_s, evidence.batch_size),
        autoscaler_rate_per_s=autoscaler_per_s,
        target_concurrency=target_concurrency(autoscaler_per_s, curves["mean"].value(autoscaler_per_s) / 1e9)
        if has_mean and autoscaler_per_s
        else None,
        predictions=predictions,
        usl=fit_law(closed),
        bounds=closed_loop_bounds(closed),
        knee=measured_knee(closed),
        validations=validations,
        what_if=tuple(row for queue in queues for row in what_if(queue, limits, operating_per_s)),
        operations=_operations(inputs, capacity, curves.get(decisive), price, evidence.batch_size),
        table=_table(inputs, capacity, price, evidence.batch_size),
        extrapolated=_extrapolated(curves.get(decisive), capacity, operating_per_s, predictions),
        notes=(*evidence.notes, *_notes(evidence, points, decisive, capacity, fitted), *unpredicted),
    )


def _refusal(points: Sequence[RatePoint], limits: Mapping[str, int], fitted: Mapping[str, FittedCurve]) -> str:
    """Why no capacity can be told from these points; empty where it can."""
    if not points:
        return "It was measured in closed loops alone, which have no arrival rate: measure it with load: {open: {rate: […]}}."
    judged = [point for point in points if point.meets_slo is not None]
    listed = ", ".join(format_rate_per_s(point.rate_per_s) for point in points)
    if len(points) == 1:
        return f"One rate was measured, {listed}: no capacity can be told from a single point; measure at least {FEWEST_RATES} rates, up to some that miss the SLO."
    if not any(point.state != "not valid" for point in points):
        return f"No measurement of it is valid ({listed}): the load generator was the bottleneck, or late; see the results' warnings."
    if judged and not any(point.meets_slo for point in judged):
        lowest = judged[0]
        return f"The SLO is never met, not even at the lowest rate, {format_rate_per_s(lowest.rate_per_s)} ({_figures(lowest, limits)}): measure lower rates, or the target cannot meet it."
    if judged and all(point.meets_slo for point in judged):
        highest = judged[-1]
        return f"The SLO is never missed, not even at the highest rate, {format_rate_per_s(highest.rate_per_s)} ({_figures(highest, limits)}): no point lies past the knee, so the capacity lies above; measure higher rates."
    for name in limits:
        if name not in fitted:
            kept = sum(point.state == KEPT_UP and name in point.percentiles_ns for point in points)
            return f"{name.replace('_', '.')} is known at {kept} rates at which the target kept up, and {FEWEST_RATES} are needed ({listed}): measure more rates below saturation, and longer."
    return ""


def _figures(point: RatePoint, limits: Mapping[str, int]) -> str:
    shown = [
        f"{name.replace('_', '.')} {format_duration_ns(point.percentiles_ns[name])}" for name in limits if name in point.percentiles_ns
    ]
    return ", ".join([*shown, point.state] if point.state != KEPT_UP else shown) or "too few samples"


def _capacity(
    points: Sequence[RatePoint], limits: Mapping[str, int], fitted: Mapping[str, FittedCurve], random: np.random.Generator
) -> tuple[str, Capacity]:
    """The capacity under the limit that decides, and that limit's percentile."""
    ceiling_per_s = _ceiling_per_s(points, limits)
    found = {}
    for name, limit_ns in limits.items():
        one = fitted[name]
        times = [BatchedTimes(batches) if batches else None for batches in one.batches]
        found[name] = capacity_under_limit(
            one.curve, one.rates_per_s, one.values_ns, times, QUANTILES[name], limit_ns, random,
            ceiling_per_s=ceiling_per_s,
        )  # fmt: skip
    decisive = min(found, key=lambda name: found[name].low_per_s)
    return decisive, found[decisive]


def _ceiling_per_s(points: Sequence[RatePoint], limits: Mapping[str, int]) -> float:
    """A rate that no capacity exceeds: what an overloaded target still answered, and where it failed by its errors.

    One that answers less under overload than it did before is cut at what it kept up with.
    """
    kept = max((point.rate_per_s for point in points if point.state == KEPT_UP), default=0.0)
    overloaded = [max(min(point.rate_per_s, point.throughput_per_s), kept) for point in points if point.state == "overloaded"]
    failing = [point.rate_per_s for point in points if point.state == KEPT_UP and _fails_by_errors(point, limits)]
    return min([*overloaded, *failing], default=math.inf)


def _fails_by_errors(point: RatePoint, limits: Mapping[str, int]) -> bool:
    """Whether its percentiles keep to their limits, and it fails all the same: by its errors."""
    return point.meets_slo is False and all(point.percentiles_ns.get(name, math.inf) <= limit for name, limit in limits.items())


def _fleet(
    inputs: PlanInputs, demand_per_s: float, capacity_per_s: float, headroom: float | None = None, redundancy: int | None = None
) -> ReplicaCount:
    return count_replicas(
        demand_per_s,
        capacity_per_s,
        headroom=inputs.headroom if headroom is None else headroom,
        failure_headroom=inputs.failure_headroom,
        redundancy=inputs.redundancy if redundancy is None else redundancy,
        zones=inputs.zones,
    )


def _predictions(curves: Mapping[str, RateCurve], rates_per_s: Sequence[float]) -> tuple[tuple[NamedPrediction, ...], tuple[str, ...]]:
    """At each rate every percentile that has a curve; and a sentence where the target would be saturated."""
    found, notes = [], []
    for rate in rates_per_s:
        for name, curve in curves.items():
            if name == "mean":
                continue
            if rate < curve.saturation_per_s:
                found.append(NamedPrediction(name, curve.predict(rate)))
            else:
                notes.append(
                    f"No {name.replace('_', '.')} is predicted at {format_rate_per_s(rate)}: the curve saturates at {format_rate_per_s(curve.saturation_per_s)}."
                )
    return tuple(found), tuple(notes)


def _energy(points: Sequence[RatePoint], rate_per_s: float | None, batch_size: int) -> Energy | None:
    """From the power at a rate, between those measured."""
    known = [(point.rate_per_s, point.power_w) for point in points if point.power_w is not None and point.state == KEPT_UP]
    if not known or rate_per_s is None:
        return None
    power_w = float(np.interp(rate_per_s, [rate for rate, _ in known], [power for _, power in known]))
    idle = [point.idle_power_w for point in points if point.idle_power_w is not None]
    return energy_per_inference(power_w, rate_per_s * batch_size, min(idle) if idle else None)


def _operations(
    inputs: PlanInputs, capacity: Capacity | None, curve: RateCurve | None, price: Price | None, batch_size: int
) -> tuple[Operation, ...]:
    if capacity is None or curve is None:
        return ()
    found = []
    for headroom in sorted({*_OPERATIONS, inputs.headroom}):
        fleet = _fleet(inputs, inputs.demand_per_s, capacity.low_per_s * batch_size, headroom)
        rate = fleet.rate_per_replica_per_s / batch_size
        found.append(Operation(headroom, fleet.replicas, *_costs(fleet, price, inputs.priced_demand_per_s), rate, curve.value(rate)))
    return tuple(found)


def _table(inputs: PlanInputs, capacity: Capacity | None, price: Price | None, batch_size: int) -> tuple[TableRow, ...]:
    """Demand × headroom × redundancy; a single demand is shown beside its multiples."""
    if capacity is None:
        return ()
    demands = inputs.demands_per_s if len(inputs.demands_per_s) > 1 else tuple(factor * inputs.demand_per_s for factor in _DEMANDS)
    rows = []
    for demand in demands:
        for headroom in sorted({*_HEADROOMS, inputs.headroom}):
            for redundancy in sorted({*_REDUNDANCIES, inputs.redundancy}):
                fleet = _fleet(inputs, demand, capacity.low_per_s * batch_size, headroom, redundancy)
                priced = inputs.priced_demand_per_s * demand / inputs.demand_per_s
                rows.append(TableRow(demand, headroom, redundancy, fleet.replicas, *_costs(fleet, price, priced)))
    return tuple(rows)


def _costs(fleet: ReplicaCount, price: Price | None, demand_per_s: float) -> tuple[float | None, float | None]:
    if price is None:
        return None, None
    return fleet.replicas * price.per_hour, cost_per_million(fleet.replicas, price.per_hour, demand_per_s)


def _extrapolated(
    curve: RateCurve | None, capacity: Capacity | None, operating_per_s: float | None, predictions: Sequence[NamedPrediction]
) -> tuple[str, ...]:
    """What rests on no measurement at or beyond it."""
    if curve is None or capacity is None:
        return ()
    told = []
    lowest, highest = curve.lowest_rate_per_s, curve.highest_rate_per_s
    measured = f"measured from {format_rate_per_s(lowest)} to {format_rate_per_s(highest)}"
    if capacity.per_s > highest:
        told.append(f"The capacity, {format_rate_per_s(capacity.per_s)}, lies above the rates at which the target kept up ({measured}).")
    if operating_per_s is not None and operating_per_s < lowest:
        told.append(f"The rate planned for a replica, {format_rate_per_s(operating_per_s)}, lies below them ({measured}).")
    rates = sorted({one.expected.rate_per_s for one in predictions if one.expected.is_extrapolated})
    told += [f"The prediction at {format_rate_per_s(rate)} lies outside them ({measured})." for rate in rates]
    return tuple(told)


def _notes(
    evidence: Evidence, points: Sequence[RatePoint], decisive: str, capacity: Capacity | None, fitted: Mapping[str, FittedCurve]
) -> tuple[str, ...]:
    told = []
    if evidence.runs == 1 and points:
        told.append("The server was started once: how far restarts differ is assumed (3 %), not measured. Give several results of it.")
    few = [point for point in points if decisive in point.few_samples and point.state == KEPT_UP]
    if few:
        rates = ", ".join(format_rate_per_s(point.rate_per_s) for point in few)
        told.append(
            f"{decisive.replace('_', '.')} rests on fewer independent samples than it needs at {rates}: the capacity may be told too high; measure longer."
        )
    for state in ("not valid", "not steady"):
        rates = ", ".join(format_rate_per_s(point.rate_per_s) for point in points if point.state == state)
        if rates:
            told.append(f"At {rates} the measurement was {state}: it is left out of the curves.")
    if capacity is not None and capacity.is_cut:
        told.append(
            f"The capacity is cut at {format_rate_per_s(capacity.per_s)}: overloaded the target answered no more, or it failed by its errors there."
        )
    met = [point.rate_per_s for point in points if point.meets_slo]
    missed = [point.rate_per_s for point in points if point.meets_slo is False]
    if met and missed and min(missed) < max(met):
        told.append(
            f"The SLO is missed at {format_rate_per_s(min(missed))} and met at {format_rate_per_s(max(met))}: its figures scatter, or the curve does not rise everywhere."
        )
    if decisive in fitted and not any(fitted[decisive].batches):
        told.append("There is no latency.hlog beside the result: intervals rest on the repetitions' scatter alone.")
    return tuple(told)

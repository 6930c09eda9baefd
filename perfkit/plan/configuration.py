"""The plan of one configuration, and from the evidence of all configurations and the inputs the whole plan.

Of each: capacity under the SLO, replicas for the demand, predictions, and why it may be refused.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from perfkit.errors import InconclusiveError, UsageError
from perfkit.plan.capacity import (
    Energy,
    ReplicaCount,
    closed_loop_bounds,
    cost_per_million,
    energy_per_inference,
    measured_knee,
    pareto_front,
    target_concurrency,
)
from perfkit.plan.capacity_estimate import closed_loops_lack, estimate_capacity, parts_range_per_s
from perfkit.plan.evidence import KEPT_UP, Evidence
from perfkit.plan.forecast import forecast_exhaustion
from perfkit.plan.input_texts import Price
from perfkit.plan.inputs import PlanInputs
from perfkit.plan.model import SHOWN, CapacityPlan, ConfigurationPlan, NamedPrediction, Operation, RatePoint, TableRow
from perfkit.plan.performance_models import closed_loop_points, fit_scalability, validate_models, what_if
from perfkit.plan.queueing import MgcQueue
from perfkit.plan.ranking import rank_configurations
from perfkit.plan.rate_curve import RateCurve
from perfkit.plan.rate_points import check_parts, error_rate_up_to, fit_curves, rate_points
from perfkit.plan.risk import FleetRisk, arrivals_notes, fleet_risk
from perfkit.plan.schedule import check_day, plan_schedule
from perfkit.plan.slo_capacity import Capacity
from perfkit.plan.token_demand import fewest, in_requests
from perfkit.result.distribution import QUANTILES
from perfkit.stats.slo import FURTHER, SloLimits
from perfkit.units import NS_PER_S, format_percent, format_rate_per_s

_HEADROOMS, _REDUNDANCIES, _DEMANDS = (0.2, 0.3, 0.4, 0.5), (0, 1, 2), (0.5, 1.0, 1.5, 2.0)
_FRONT_HEADROOMS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def plan_configuration(evidence: Evidence, inputs: PlanInputs, random: np.random.Generator) -> ConfigurationPlan:
    """Plan one configuration; if it cannot be planned, `refusal` says why."""
    slo = inputs.slo
    points = rate_points(evidence, slo, inputs.idle_power_w)
    limits = {name: slo.percentiles_ns[quantile] for name, quantile in QUANTILES.items() if quantile in slo.percentiles_ns}
    constrained = [constraint.metric for constraint in inputs.constraints if constraint.metric in QUANTILES]
    curves = fit_curves(evidence, list(dict.fromkeys([*SHOWN, *limits, *constrained, "mean"])))
    estimate = estimate_capacity(evidence, points, limits, curves, random)
    decisive, capacity = estimate.percentile, estimate.capacity
    price = inputs.price_of(evidence.name, evidence.label)
    fleet = None if capacity is None else inputs.count_replicas(inputs.demand_per_s, capacity.low_per_s * evidence.batch_size)
    cost_per_hour, cost_per_million_inferences = _costs(fleet, price, inputs.priced_demand_per_s) if fleet else (None, None)
    operating_per_s = fleet.rate_per_replica_per_s / evidence.batch_size if fleet else None
    busiest_per_s = None if capacity is None else (1 - inputs.headroom) * capacity.low_per_s
    autoscaler_per_s = None if busiest_per_s is None else busiest_per_s / inputs.risk.splitting.largest_measured
    predictions, unpredicted = _predictions(curves, inputs.rates_per_s)
    closed = closed_loop_points(evidence)
    validations, queues = validate_models(evidence, points, capacity, random)
    concurrency = None
    if autoscaler_per_s and "mean" in curves:
        concurrency = target_concurrency(autoscaler_per_s, curves["mean"].value(autoscaler_per_s) / NS_PER_S)
    return ConfigurationPlan(
        **{name: getattr(evidence, name) for name in ("name", "label", "model", "settings", "batch_size", "sources", "runs")},
        points=points,
        closed=closed,
        refusal=estimate.refusal,
        curves=curves,
        slo_percentile=decisive,
        capacity=capacity,
        fleet=fleet,
        currency=price.currency if price else "",
        price_per_hour=price.per_hour if price else None,
        cost_per_hour=cost_per_hour,
        cost_per_million=cost_per_million_inferences,
        energy=_energy(points, operating_per_s, evidence.batch_size),
        autoscaler_rate_per_s=autoscaler_per_s,
        target_concurrency=concurrency,
        predictions=predictions,
        usl=fit_scalability(closed),
        bounds=closed_loop_bounds(closed),
        knee=measured_knee(closed),
        validations=validations,
        model_servers=next((queue.servers for queue in queues if isinstance(queue, MgcQueue)), None),
        what_if=() if slo.further_ns else tuple(row for queue in queues for row in what_if(queue, limits, operating_per_s)),
        operations=_operations(inputs, capacity, curves.get(decisive), price, evidence.batch_size),
        table=_table(inputs, capacity, price, evidence.batch_size),
        extrapolated=_extrapolated(curves.get(decisive), capacity, operating_per_s, predictions),
        notes=(
            *evidence.notes,
            *arrivals_notes(evidence, inputs.risk.splitting),
            *_notes(evidence, points, decisive, capacity),
            *_error_rate_notes(evidence, slo, capacity),
            *unpredicted,
        ),
    )


def _predictions(curves: Mapping[str, RateCurve], rates_per_s: Sequence[float]) -> tuple[tuple[NamedPrediction, ...], tuple[str, ...]]:
    """Every percentile with a curve at each rate; and a sentence for each rate at which the target would be saturated."""
    predictions, notes = [], []
    for rate in rates_per_s:
        for name, curve in curves.items():
            if name == "mean":
                continue
            if rate < curve.saturation_per_s:
                predictions.append(NamedPrediction(name, curve.predict(rate)))
            else:
                saturation = f"the curve saturates at {format_rate_per_s(curve.saturation_per_s)}"
                notes.append(f"No {name.replace('_', '.')} is predicted at {format_rate_per_s(rate)}: {saturation}.")
    return tuple(predictions), tuple(notes)


def _energy(points: Sequence[RatePoint], rate_per_s: float | None, batch_size: int) -> Energy | None:
    """Energy per inference at a rate, its power interpolated between the measured rates; None without power."""
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
    operations = []
    for headroom in sorted({*_FRONT_HEADROOMS, inputs.headroom}):
        fleet = dataclasses.replace(inputs, headroom=headroom).count_replicas(inputs.demand_per_s, capacity.low_per_s * batch_size)
        rate = fleet.rate_per_replica_per_s / batch_size
        operations.append(Operation(headroom, fleet.replicas, *_costs(fleet, price, inputs.priced_demand_per_s), rate, curve.value(rate)))
    return tuple(operations)


def _table(inputs: PlanInputs, capacity: Capacity | None, price: Price | None, batch_size: int) -> tuple[TableRow, ...]:
    """Demand × headroom × redundancy; a single demand is accompanied by its multiples."""
    if capacity is None:
        return ()
    demands = inputs.demands_per_s if len(inputs.demands_per_s) > 1 else tuple(factor * inputs.demand_per_s for factor in _DEMANDS)
    headrooms, redundancies, rows = sorted({*_HEADROOMS, inputs.headroom}), sorted({*_REDUNDANCIES, inputs.redundancy}), []
    for row in itertools.product(demands, headrooms, redundancies):
        demand, headroom, redundancy = row
        changed = dataclasses.replace(inputs, headroom=headroom, redundancy=redundancy)
        fleet = changed.count_replicas(demand, capacity.low_per_s * batch_size)
        rows.append(TableRow(*row, fleet.replicas, *_costs(fleet, price, inputs.priced_demand_per_s * demand / inputs.demand_per_s)))
    return tuple(rows)


def _costs(fleet: ReplicaCount, price: Price | None, demand_per_s: float) -> tuple[float | None, float | None]:
    """The cost per hour, and per million inferences at a demand; None without a price."""
    if price is None:
        return None, None
    return fleet.replicas * price.per_hour, cost_per_million(fleet.replicas, price.per_hour, demand_per_s)


def _extrapolated(
    curve: RateCurve | None, capacity: Capacity | None, operating_per_s: float | None, predictions: Sequence[NamedPrediction]
) -> tuple[str, ...]:
    if curve is None or capacity is None:
        return ()
    sentences = []
    lowest, highest = curve.lowest_rate_per_s, curve.highest_rate_per_s
    measured = f"measured from {format_rate_per_s(lowest)} to {format_rate_per_s(highest)}"
    if capacity.per_s > highest:
        sentences.append(f"The capacity, {format_rate_per_s(capacity.per_s)}, is above the rates at which the target kept up ({measured}).")
    if operating_per_s is not None and operating_per_s < lowest:
        sentences.append(f"The planned rate of a replica, {format_rate_per_s(operating_per_s)}, is below the measured rates ({measured}).")
    rates = sorted({prediction.expected.rate_per_s for prediction in predictions if prediction.expected.is_extrapolated})
    sentences += [f"The prediction at {format_rate_per_s(rate)} is outside the measured rates ({measured})." for rate in rates]
    return tuple(sentences)


def _error_rate_notes(evidence: Evidence, slo: SloLimits, capacity: Capacity | None) -> Iterator[str]:
    """A note if the requests are too few to show that the error rate keeps its limit."""
    errors = error_rate_up_to(evidence, capacity.per_s) if capacity is not None and slo.error_rate is not None else None
    if slo.error_rate is None or errors is None or errors.high is None or errors.high <= slo.error_rate:
        return
    remedy = "measure more requests" if slo.error_rate else "no number of requests can show that none fails, so give a limit above zero"
    yield (
        f"Whether the error rate keeps its limit, {100 * slo.error_rate:.3g} %, cannot be told: at the rates up to the capacity it was {100 * errors.value:.3g} %, and may be "
        f"up to {100 * errors.high:.2g} % (90 % interval); {remedy}."
    )


def _notes(evidence: Evidence, points: Sequence[RatePoint], decisive: str, capacity: Capacity | None) -> Iterator[str]:
    if evidence.runs == 1 and points:
        started = "The measurements of one start of the server count" if evidence.repeated else "The server was started once"
        yield f"{started}: the variation between restarts is assumed (3 %), not measured. Give results of several starts."
    if few := [point for point in points if decisive in point.few_samples and point.state == KEPT_UP]:
        rates = ", ".join(format_rate_per_s(point.rate_per_s) for point in few)
        yield f"{decisive.replace('_', '.')} has fewer independent samples than it needs at {rates}: the curves are uncertain there, and the capacity's interval is wider; measure longer."
    for state in ("not valid", "not steady"):
        rates = ", ".join(format_rate_per_s(point.rate_per_s) for point in points if point.state == state)
        if rates:
            also = "; where the limit was missed, it bounds the capacity from above" if state == "not steady" else ""
            yield f"At {rates} the measurement was {state}: it is left out of the curves{also}."
    if capacity is not None and capacity.is_cut:
        met_per_s, missed_per_s = parts_range_per_s(points)
        reason = "the target's throughput under overload or the rate at which its errors miss the SLO"
        if capacity.per_s == met_per_s:
            lowest = f"and the lowest that clearly misses them is {format_rate_per_s(missed_per_s)}"
            lowest = "and none clearly misses them" if math.isinf(missed_per_s) else lowest
            reason = f"the highest measured rate that clearly meets the limits on parts of answers, {lowest}: measure more rates above it"
        yield f"The capacity is limited to {format_rate_per_s(capacity.per_s)}, {reason}."
    met = [point.rate_per_s for point in points if point.meets_slo]
    missed = [point.rate_per_s for point in points if point.meets_slo is False]
    if met and missed and min(missed) < max(met):
        yield f"The SLO is missed at {format_rate_per_s(min(missed))} and met at {format_rate_per_s(max(met))}: the measurements scatter, or the times do not rise with the rate everywhere."
    if decisive and not any(point.batches for point in evidence.open_points):
        yield "There is no latency.hlog beside the result: the percentiles of each repetition stand for its times, and the intervals are wider."


_IMPLAUSIBLE_PER_S, _IMPLAUSIBLE_REPLICAS = 1e7, 10_000


def plan_capacity(evidence: Sequence[Evidence], inputs: PlanInputs) -> CapacityPlan:
    """Make the plan; raises UsageError for inconsistent inputs, InconclusiveError if no configuration can be planned."""
    names = {configuration.name for configuration in evidence} | {configuration.label for configuration in evidence}
    if unknown := [label for label in inputs.prices if label and label not in names]:
        listed = ", ".join(sorted(configuration.name for configuration in evidence))
        raise UsageError(f"--price: there is no configuration {unknown[0]!r}; the configurations are {listed}")
    if not any(configuration.open_points for configuration in evidence):
        first = evidence[0]
        missing = closed_loops_lack(first)
        command = f". To measure that: {missing.command(first.scenario, first.sources[0])}" if missing.rates_per_s else ""
        raise UsageError(
            f"{', '.join(first.sources)}: these results hold only closed loops, which have no arrival rate and no response time; a "
            f"capacity needs a result of load: {{open: {{rate: […]}}}} or load: {{search: …}}{command}"
        )
    check_parts(evidence, inputs.slo)
    inputs, compares_costs = in_requests(inputs, evidence), _compares_costs(evidence, inputs)
    check_day(evidence, inputs)
    planned = tuple(
        plan_configuration(configuration, inputs, np.random.default_rng([inputs.seed, number]))
        for number, configuration in enumerate(evidence)
    )
    feasible = [configuration for configuration in planned if not configuration.refusal]
    if not feasible:
        refusals = [f"{f'{plan.name}: ' if len(planned) > 1 else ''}{plan.refusal}" for plan in planned]
        has_single_rates = all(len(configuration.points) < 2 for configuration in planned)
        raise (UsageError if has_single_rates else InconclusiveError)(" ".join(refusals))
    ranking = rank_configurations(planned, evidence, inputs, compares_costs=compares_costs)
    cheapest = next(plan for plan in feasible if plan.name == ranking[0].name)
    replicas, inferences_per_s = inputs.replicas_now or _replicas(cheapest), cheapest.inferences_per_s or 0.0
    forecast, exhaustion = forecast_exhaustion(inputs, replicas * inferences_per_s * (1 - inputs.headroom))
    operations = [(plan.name, operation) for plan in feasible for operation in plan.operations]
    costs = [(operation.cost_per_hour if compares_costs else None) or operation.replicas for _, operation in operations]
    times_ns = [operation.slo_percentile_ns for _, operation in operations]
    schedule = plan_schedule(cheapest, next(one for one in evidence if one.name == cheapest.name), inputs)
    return CapacityPlan(
        inputs=inputs,
        configurations=planned,
        cheapest=cheapest.name,
        compares_costs=compares_costs,
        front=tuple(
            (operations[index][0], operations[index][1].headroom) for index in pareto_front(list(zip(costs, times_ns, strict=True)))
        ),
        forecast=forecast,
        last_peak_date=inputs.peaks[-1][0] if inputs.peaks else "",
        exhaustion=exhaustion,
        exhaustion_replicas=replicas,
        risk=_risk(cheapest, inputs),
        schedule=schedule,
        assumptions=(*_assumptions(inputs, cheapest), *(schedule.assumptions if schedule else ())),
        ranking=ranking,
        hardware=tuple(dict.fromkeys(source.hardware for source in evidence if source.hardware)),
        measured_on=max(source.measured_on for source in evidence),
        notes=(*_implausible(inputs, cheapest), *(schedule.notes if schedule else ())),
    )


def _compares_costs(evidence: Sequence[Evidence], inputs: PlanInputs) -> bool:
    """Whether the configurations have prices; raises UsageError if only some have one, or if a constraint on the price needs them."""
    unpriced = [one.name for one in evidence if inputs.price_of(one.name, one.label) is None]
    if unpriced and len(unpriced) < len(evidence):
        raise UsageError(
            f"--price: {', '.join(unpriced)} has no price, but others have one; give each its own, such as {unpriced[0]}=2.50/h"
        )
    if unpriced and any(constraint.metric == "price" for constraint in inputs.constraints):
        raise UsageError("--constraint: a limit on the price needs the price of a replica; add --price, such as --price 2.50/h")
    return not unpriced


def _replicas(configuration: ConfigurationPlan) -> int:
    assert configuration.fleet is not None
    return configuration.fleet.replicas


def _risk(chosen: ConfigurationPlan, inputs: PlanInputs) -> FleetRisk:
    assert chosen.capacity is not None
    assert chosen.fleet is not None
    return fleet_risk(chosen.capacity, chosen.curves[chosen.slo_percentile], chosen.fleet, chosen.price_per_hour, chosen.batch_size, inputs)


def _implausible(inputs: PlanInputs, chosen: ConfigurationPlan) -> Iterator[str]:
    """Notes on implausibly large numbers, most often a wrong unit."""
    each = f"one replica of {chosen.name} serves {format_rate_per_s(chosen.inferences_per_s or 0.0)}"
    if (replicas := _replicas(chosen)) >= _IMPLAUSIBLE_REPLICAS or inputs.demand_per_s >= _IMPLAUSIBLE_PER_S:
        demand = format_rate_per_s(inputs.demand_per_s)
        yield f"A demand of {demand} needs {replicas:,} replicas, and {each}: check the unit of --demand, which is inferences per second."
    if inputs.peaks and (highest := max(peak for _, peak in inputs.peaks)) >= _IMPLAUSIBLE_PER_S:
        yield f"The highest peak is {format_rate_per_s(highest)}, and {each}: check the unit of the peaks, which is inferences per second."


def _assumptions(inputs: PlanInputs, chosen: ConfigurationPlan) -> Iterator[str]:
    yield "Demand has the measured workload's arrivals, requests and error rate."
    yield "Replicas are equal, and independent of each other."
    yield from inputs.risk.assumptions(_replicas(chosen), has_profile=inputs.day is not None)
    headrooms = f"a headroom of {format_percent(inputs.headroom)} with all replicas up, and of {format_percent(inputs.failure_headroom)} while some are down"
    yield f"The plan uses the 95 % lower limit of the capacity, {headrooms}."
    if inputs.slo.further_ns:
        parts = " and ".join(FURTHER[name].removesuffix("'s") for name in inputs.slo.further_ns)
        yield (
            f"The limits on {parts} are judged at the measured rates alone: the plan uses at most the highest that clearly meets them, and the capacity "
            "may be as high as the lowest that clearly misses them. "
            "Curves, predictions and models are of response times; no what-ifs are answered."
        )
    yield "A restart of the server changes all its times by one factor; the measured variation of that factor is weighted with an assumed 3 %."
    if chosen.batch_size > 1:
        yield f"Demand is in inferences per second; a request of batch size {chosen.batch_size} is {chosen.batch_size} inferences."
    if (tokens := inputs.tokens_per_request) is not None:
        given = format_rate_per_s(inputs.demand_per_s * fewest(tokens)).replace("/s", " output tokens/s")
        interval = (
            f"the estimate {tokens.value:.4g}, whose interval is not known"
            if tokens.low is None or tokens.high is None
            else f"the lower end of {tokens.value:.4g} (95 % interval {tokens.low:.4g} to {tokens.high:.4g})"
        )
        yield f"The demand, {given}, is divided by {fewest(tokens):.4g} output tokens a request: {interval}, as measured at the rates at which the target kept up."
    if inputs.prices:
        demand = format_rate_per_s(inputs.priced_demand_per_s)
        peak = f"the peak demand, {demand}, as no average demand is given: the true cost is higher"
        yield f"Costs per million inferences are based on {peak if inputs.average_demand_per_s is None else f'the average demand, {demand}'}."
    if inputs.zones:
        yield f"Replicas are spread evenly over {inputs.zones} zones, of which the largest may fail."
    if inputs.peaks:
        yield "Demand follows one of the back-tested models, or lies between them, with the weekly pattern and the scatter of the past."

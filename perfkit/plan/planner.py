"""The planner: from the evidence of all configurations and the inputs to a plan."""

from collections.abc import Iterator, Sequence

import numpy as np

from perfkit.errors import InconclusiveError, UsageError
from perfkit.plan.capacity import pareto_front
from perfkit.plan.configuration import plan_configuration
from perfkit.plan.evidence import Evidence
from perfkit.plan.forecast import forecast_exhaustion
from perfkit.plan.inputs import PlanInputs
from perfkit.plan.model import CapacityPlan, ConfigurationPlan
from perfkit.plan.ranking import rank_configurations
from perfkit.plan.risk import FleetRisk, fleet_risk
from perfkit.plan.schedule import check_day, plan_schedule
from perfkit.units import format_percent, format_rate_per_s

_IMPLAUSIBLE_PER_S, _IMPLAUSIBLE_REPLICAS = 1e7, 10_000


def plan_capacity(evidence: Sequence[Evidence], inputs: PlanInputs) -> CapacityPlan:
    """Make the plan; raises UsageError for inconsistent inputs, InconclusiveError if no configuration can be planned."""
    names = {configuration.name for configuration in evidence} | {configuration.label for configuration in evidence}
    if unknown := [label for label in inputs.prices if label and label not in names]:
        listed = ", ".join(sorted(configuration.name for configuration in evidence))
        raise UsageError(f"--price: there is no configuration {unknown[0]!r}; the configurations are {listed}")
    if not any(configuration.open_points for configuration in evidence):
        raise UsageError(
            f"{', '.join(evidence[0].sources)}: these results hold only closed loops, which have no arrival rate and no response time; a "
            "capacity needs a result of load: {open: {rate: […]}} or load: {search: …}"
        )
    compares_costs = _compares_costs(evidence, inputs)
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
    yield "A restart of the server changes all its times by one factor; the measured variation of that factor is weighted with an assumed 3 %."
    if chosen.batch_size > 1:
        yield f"Demand is in inferences per second; a request of batch size {chosen.batch_size} is {chosen.batch_size} inferences."
    if inputs.prices:
        demand = format_rate_per_s(inputs.priced_demand_per_s)
        peak = f"the peak demand, {demand}, as no average demand is given: the true cost is higher"
        yield f"Costs per million inferences are based on {peak if inputs.average_demand_per_s is None else f'the average demand, {demand}'}."
    if inputs.zones:
        yield f"Replicas are spread evenly over {inputs.zones} zones, of which the largest may fail."
    if inputs.peaks:
        yield "Demand follows one of the back-tested models, or lies between them, with the weekly pattern and the scatter of the past."

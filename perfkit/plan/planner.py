"""Evidence and a question, turned into a plan."""

from collections.abc import Sequence

import numpy as np

from perfkit.errors import InconclusiveError, UsageError
from perfkit.plan.configuration import plan_configuration
from perfkit.plan.evidence import Evidence
from perfkit.plan.inputs import PlanInputs
from perfkit.plan.model import CapacityPlan, ConfigurationPlan
from perfkit.stats.capacity import pareto_front
from perfkit.stats.forecast import Exhaustion, Forecast, fit_forecast
from perfkit.units import format_rate_per_s


def plan_capacity(evidence: Sequence[Evidence], inputs: PlanInputs) -> CapacityPlan:
    """The plan; raises UsageError for nonsense, InconclusiveError where no configuration can be planned with."""
    names = {one.name for one in evidence} | {one.label for one in evidence}
    unknown = [label for label in inputs.prices if label and label not in names]
    if unknown:
        raise UsageError(f"--price: {unknown[0]!r} is no configuration; they are {', '.join(sorted(one.name for one in evidence))}")
    if not any(one.open_points for one in evidence):
        raise UsageError(
            f"{', '.join(evidence[0].sources)}: these are closed loops, which have no arrival rate and no response time; a capacity needs "
            "a result of load: {open: {rate: […]}} or load: {search: …}"
        )
    planned = tuple(plan_configuration(one, inputs, np.random.default_rng([inputs.seed, place])) for place, one in enumerate(evidence))
    able = [one for one in planned if not one.refusal]
    if not able:
        told = [f"{one.name}: {one.refusal}" if len(planned) > 1 else one.refusal for one in planned]
        is_short = all(len(one.points) < 2 for one in planned)
        raise (UsageError if is_short else InconclusiveError)(" ".join(told))
    compares_costs = all(one.cost_per_hour is not None for one in able)
    if not compares_costs and any(one.cost_per_hour is not None for one in able):
        missing = ", ".join(one.name for one in able if one.cost_per_hour is None)
        raise UsageError(f"--price: {missing} has no price while others have one; give each its own, as {missing.split(', ')[0]}=2.50/h")
    cheapest = min(able, key=lambda one: (one.cost_per_hour if compares_costs else _replicas(one), _replicas(one)))
    forecast, exhaustion, replicas = _forecast(inputs, cheapest)
    operations = [(one.name, operation) for one in able for operation in one.operations]
    costs = [
        (
            operation.cost_per_hour if operation.cost_per_hour is not None and compares_costs else operation.replicas,
            operation.slo_percentile_ns,
        )
        for _, operation in operations
    ]
    return CapacityPlan(
        inputs=inputs,
        configurations=planned,
        cheapest=cheapest.name,
        compares_costs=compares_costs,
        front=tuple((operations[place][0], operations[place][1].headroom) for place in pareto_front(costs)),
        forecast=forecast,
        last_peak_date=inputs.peaks[-1][0] if inputs.peaks else "",
        exhaustion=exhaustion,
        exhaustion_replicas=replicas,
        assumptions=_assumptions(inputs, cheapest),
    )


def _replicas(one: ConfigurationPlan) -> int:
    assert one.fleet is not None
    return one.fleet.replicas


def _forecast(inputs: PlanInputs, chosen: ConfigurationPlan) -> tuple[Forecast | None, Exhaustion | None, int]:
    replicas = inputs.replicas_now or _replicas(chosen)
    if not inputs.peaks:
        return None, None, replicas
    days = [int(np.datetime64(date, "D").astype(np.int64)) for date, _ in inputs.peaks]
    try:
        forecast = fit_forecast(days, [peak for _, peak in inputs.peaks], np.random.default_rng([inputs.seed, 10_007]))
    except ValueError as error:
        raise UsageError(f"--peaks: {error}") from None
    assert chosen.inferences_per_s is not None
    return forecast, forecast.exhaustion(replicas * chosen.inferences_per_s * (1 - inputs.headroom)), replicas


def _assumptions(inputs: PlanInputs, chosen: ConfigurationPlan) -> tuple[str, ...]:
    listed = [
        "Demand comes as it was offered in the measurements: the same arrivals, requests and share of errors.",
        "Replicas are alike and independent, and a balancer spreads requests evenly; n replicas take n times what one takes.",
        (
            f"Planned with the 95 % lower limit of the capacity, a headroom of {inputs.headroom:.0%} with all replicas up and of {inputs.failure_headroom:.0%} "
            "while some are down."
        ),
        "A slower start of the server stretches all its times by one factor; how far restarts differ is weighed with an assumed 3 %.",
    ]
    if chosen.batch_size > 1:
        listed.append(f"Demand is in inferences a second; a request of batch size {chosen.batch_size} is {chosen.batch_size}.")
    if inputs.prices:
        basis = (
            "the average demand"
            if inputs.average_demand_per_s is not None
            else "the peak demand, since no average is given: the true cost is higher"
        )
        listed.append(f"Costs per million are divided by {basis} ({format_rate_per_s(inputs.priced_demand_per_s)}).")
    if inputs.zones:
        listed.append(f"Replicas are spread evenly over {inputs.zones} zones, and the largest may be lost.")
    if inputs.peaks:
        listed.append("Demand goes on growing by the same share a day, with the weeks' pattern and scatter of the past.")
    return tuple(listed)

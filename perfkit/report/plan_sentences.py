"""A plan in sentences: the answer, the predictions, and what a reader must know."""

from collections.abc import Sequence

from perfkit.plan.model import CapacityPlan, ConfigurationPlan
from perfkit.report.plan_tables import exhaustion_date
from perfkit.result.distribution import QUANTILES
from perfkit.stats.slo import Slo
from perfkit.units import format_duration_ns, format_rate_per_s


def headline(plan: CapacityPlan) -> list[str]:
    """The answer in sentences."""
    chosen, inputs = plan.chosen, plan.inputs
    fleet, capacity = chosen.fleet, chosen.capacity
    assert fleet is not None
    assert capacity is not None
    replicas = f"{fleet.replicas} replica{'s' if fleet.replicas > 1 else ''}"
    cost = ""
    if chosen.cost_per_hour is not None and chosen.cost_per_million is not None:
        cost = f", for {_money(chosen.cost_per_hour, chosen)} an hour ({_money(chosen.cost_per_million, chosen)} a million inferences)"
    demand, takes = format_rate_per_s(inputs.demand_per_s), format_rate_per_s(capacity.per_s)
    if chosen.batch_size > 1:
        demand, takes = demand.replace("/s", " inferences/s"), takes.replace("/s", f" requests/s of {chosen.batch_size} inferences each")
    told = [
        f"{replicas} of {chosen.name} serve {demand} within {slo_text(inputs.slo)}, decided by {fleet.reason}{cost}.",
        (
            f"One replica takes {takes} (90 % interval {format_rate_per_s(capacity.low_per_s)} to {format_rate_per_s(capacity.high_per_s)}); "
            f"planned with {format_rate_per_s(capacity.low_per_s)}. Each is sent {format_rate_per_s(fleet.rate_per_replica_per_s / chosen.batch_size)}, and the fleet keeps {fleet.headroom:.0%} of headroom."
        ),
    ]
    others = [one for one in plan.configurations if one.name != chosen.name and one.fleet]
    if others:
        by = "costs" if plan.compares_costs else "replicas"
        listed = ", ".join(f"{one.name} {_amount(one, by)}" for one in others)
        told.append(
            f"Of the configurations it is the {'cheapest' if plan.compares_costs else 'one with the fewest replicas'}: {chosen.name} {_amount(chosen, by)}, {listed}."
        )
    if plan.exhaustion is not None:
        out = plan.exhaustion
        fleet_told = f"{plan.exhaustion_replicas} replicas less headroom ({format_rate_per_s(out.capacity_per_s)})"
        p10, p50, p90 = (exhaustion_date(plan, days) for days in (out.p10_days, out.p50_days, out.p90_days))
        when = (
            f"Demand exceeds {fleet_told} on {p50}" if out.p50_days is not None else f"Demand is not expected to exceed {fleet_told}: {p50}"
        )
        told.append(f"{when} (P50; P10 {p10}, P90 {p90}).")
    return told


def predicted(plan: CapacityPlan) -> list[str]:
    """The predictions in sentences."""
    return [
        f"{one.name} at {format_rate_per_s(it.rate_per_s)}: {named.percentile.replace('_', '.')} {format_duration_ns(it.value)}, "
        f"90 % interval {format_duration_ns(it.low)} to {format_duration_ns(it.high)} (half-width {it.half_width:.0%})."
        for one in plan.configurations
        for named in one.predictions
        for it in [named.expected]
    ]


def _amount(one: ConfigurationPlan, by: str) -> str:
    if by == "costs":
        return f"{_money(one.cost_per_hour or 0.0, one)}/h"
    return f"{one.fleet.replicas if one.fleet else 0}"


def _money(amount: float, one: ConfigurationPlan) -> str:
    """`$2.50`, or `2.50 EUR`."""
    is_sign = len(one.currency) == 1
    return f"{one.currency if is_sign else ''}{amount:,.2f}{f' {one.currency}' if one.currency and not is_sign else ''}"


def slo_text(slo: Slo) -> str:
    """`p99 < 50.0 ms, errors < 0.1%`."""
    names = {quantile: name.replace("_", ".") for name, quantile in QUANTILES.items()}
    limits = [f"{names[quantile]} < {format_duration_ns(limit_ns)}" for quantile, limit_ns in slo.percentiles_ns.items()]
    return ", ".join([*limits, *([f"errors < {f'{100 * slo.error_rate:.3g}%'}"] if slo.error_rate is not None else [])])


def remarks(plan: CapacityPlan) -> list[tuple[str, Sequence[str]]]:
    """What a reader must know: by heading, sentences; those without are left out."""
    several = len(plan.configurations) > 1

    def of_each(field: str) -> list[str]:
        return [f"{one.name}: {text}" if several else text for one in plan.configurations for text in getattr(one, field)]

    data = [
        f"{one.name}: {one.model}{f' ({one.settings})' if one.settings else ''}, {one.runs} result{'s' if one.runs != 1 else ''} with an open loop; from {', '.join(one.sources)}."
        for one in plan.configurations
    ]
    refused = [f"{one.name} is left out: {one.refusal}" for one in plan.configurations if one.refusal]
    rejected = [
        f"{one.name}: {validation.sentence}" for one in plan.configurations for validation in one.validations if not validation.errors
    ]
    sections = (
        ("Left out", refused), ("Extrapolated", of_each("extrapolated")), ("To be known", [*of_each("notes"), *rejected]),
        ("Assumptions", list(plan.assumptions)), ("Data", data),
    )  # fmt: skip
    unique = [(title, list(dict.fromkeys(sentences))) for title, sentences in sections]
    return [(title, sentences) for title, sentences in unique if sentences]

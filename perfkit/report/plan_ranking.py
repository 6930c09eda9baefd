"""The ranking of a capacity plan's configurations under its constraints."""

import functools
import math
from collections.abc import Iterator

from perfkit.plan.model import CapacityPlan, ConfigurationPlan, RankedConfiguration
from perfkit.plan.ranking import times_longer
from perfkit.report.plan_front import front_group
from perfkit.report.plan_subject import PlanPlot, PlanSubject, currency_suffix, money
from perfkit.report.table import Column, Kind, Table, interval_columns
from perfkit.stats.constraints import judgements_text
from perfkit.stats.ranking import pair_confidence
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import format_confidence, format_percent

_MOST_LISTED = 3


def ranking_answer(plan: CapacityPlan) -> Iterator[str]:
    """Whether the constraints hold, and how the configurations compare in cost or in number of replicas, in sentences."""
    first = plan.ranking[0]
    by_name = {one.name: one for one in plan.configurations}
    if first.judgements:
        yield _constraints_sentence(plan, first)
    ranked = [one for one in plan.ranking if one.rank is not None and one is not first]
    tied, behind = ([one for one in ranked if (one.rank == 1) is is_tied] for is_tied in (True, False))
    amount = functools.partial(_amount, plan, by_name)
    is_cheaper, dearer = ("is cheaper", "cost more") if plan.compares_costs else ("needs fewer replicas", "need more")
    needed, among = _needed(plan), f" among {len(ranked) + 1} configurations" if len(ranked) > 1 else ""
    for other in tied[:_MOST_LISTED]:
        chance = other.first_is_cheaper or 0.0
        likely, chance = (first, chance) if chance >= 0.5 else (other, 1 - chance)
        yield (
            f"{first.name} and {other.name} are indistinguishable in {'cost' if plan.compares_costs else 'number of replicas'}: {amount(first)} and "
            f"{amount(other)}. {likely.name} {is_cheaper} with a probability of {_percent(chance)}, and {needed} would be needed{among}. "
            f"{_remedy(plan, by_name[first.name], by_name[other.name], other.times_as_much or math.inf)}"
        )
    if more := tied[_MOST_LISTED:]:
        yield f"Also indistinguishable from {first.name}: {', '.join(one.name for one in more)}."
    if behind:
        leaders = " and ".join(f"{one.name} {amount(one)}" for one in (first, *tied))
        title = ("Cheapest" if plan.compares_costs else "Fewest replicas") + (" or tied with it" if tied else "")
        yield f"{title}: {leaders}; the other configurations {dearer}: {', '.join(f'{one.name} {amount(one)}' for one in behind)}."
    unranked = [f"{one.name} ({_constraints_text(one)})" for one in plan.ranking if one.rank is None and one.figures and one is not first]
    if unranked and first.rank is not None:
        yield f"Not ranked: {'; '.join(unranked)}."


def _needed(plan: CapacityPlan) -> str:
    """The probability from which a ranked configuration counts as cheaper than another, as text."""
    return format_confidence(pair_confidence(sum(one.rank is not None for one in plan.ranking)))


def _percent(probability: float) -> str:
    return format_percent(probability, 0 if probability < 0.95 else 2)


def _constraints_sentence(plan: CapacityPlan, first: RankedConfiguration) -> str:
    listed = {
        verdict: ", ".join(text for text, one in first.judgements if one == verdict) for verdict in ("holds", "cannot be told", "violated")
    }
    if first.verdict == "holds":
        return f"{first.name} satisfies the constraints: {listed['holds']}."
    every = "No configuration" if len(plan.ranking) > 1 else first.name
    if first.verdict == "violated":
        verb = "satisfies the constraints" if len(plan.ranking) > 1 else "does not satisfy the constraints"
        return f"{every} {verb}; the plan is for {first.name}, which violates {listed['violated']}."
    verb = "is known to satisfy" if len(plan.ranking) > 1 else "is not known to satisfy"
    return (
        f"{every} {verb} the constraints; the plan is for {first.name}, for which {listed['cannot be told']} cannot be told: "
        f"{_why_untold(plan, first)}."
    )


def _why_untold(plan: CapacityPlan, first: RankedConfiguration) -> str:
    """Why constraints cannot be told: figures that were not measured, that have no interval, or whose interval includes the limit."""
    judged = zip(plan.inputs.constraints, first.judgements, strict=True)
    untold = [constraint for constraint, (_, judgement) in judged if judgement == "cannot be told"]
    reasons = []
    for constraint in untold:
        figure, name = first.figures.get(constraint.metric), constraint.text.partition(" ")[0]
        if figure is None:
            reasons.append(f"{name} was not measured")
        elif figure.low is None or figure.high is None:
            reasons.append(f"the interval of {name} is not known")
        else:
            reasons.append(f"the interval of {name} includes the limit")
    return ", and ".join(dict.fromkeys(reasons))


def _remedy(plan: CapacityPlan, first: ConfigurationPlan, other: ConfigurationPlan, times: float) -> str:
    """A sentence on the measurements that would tell two tied configurations apart."""
    if times == 1:
        return f"Their capacities differ, but not {'their costs' if plan.compares_costs else 'the numbers of replicas'} at this demand."
    if math.isinf(times):
        what = "costs" if plan.compares_costs else "numbers of replicas"
        return f"Their {what} are too close for any reasonable measurement: choose by other figures."
    restarts = " and ".join(f"{math.ceil(times * one.runs)} of {one.name} (now {one.runs})" for one in (first, other))
    sentence = f"About {times:.2g} times as many restarts, each as long as now, would tell them apart: {restarts}"
    longer = times_longer((first, other), times)
    return f"{sentence}{'' if longer is None else f'; or about {longer:.2g} times as long windows'}."


def _amount(plan: CapacityPlan, by_name: dict[str, ConfigurationPlan], one: RankedConfiguration) -> str:
    """The amount by which a configuration is compared: its cost per hour, or its number of replicas without prices."""
    configuration = by_name[one.name]
    if plan.compares_costs:
        return f"{money(configuration.cost_per_hour or 0.0, configuration)}/h"
    return f"{configuration.fleet.replicas if configuration.fleet else 0}"


def ranking_table(plan: CapacityPlan) -> Table:
    """Every configuration with its rank, its figures and the constraints that it violates."""
    percentile = plan.chosen.slo_percentile
    shown = percentile.replace("_", ".")
    first, is_single = plan.ranking[0].name, len(plan.ranking) == 1
    figures: tuple[tuple[str, str, str, Kind], ...] = (
        ("capacity", "inferences_per_s", "capacity of a replica", "rate_per_s"), ("replicas", "replicas", "replicas", "number"),
        ("price", "cost_per_hour", f"cost per hour{currency_suffix(plan)}", "cost"), (percentile, f"{percentile}_ns", f"{shown} at the planned rate", "duration_ns"),
        ("error_rate", "error_rate", "errors", "error_rate"),
        ("gpu_memory", "gpu_memory_bytes", "memory of a GPU", "bytes"), ("energy", "energy_j", "energy per inference", "energy_j"),
    )  # fmt: skip
    columns = (
        Column("rank", "rank", "count", is_in_files_only=is_single),
        Column("name", "configuration"),
        *(
            column
            for name, key, heading, kind in figures
            for column in interval_columns(key, heading, kind, functools.partial(_figure, name))
        ),
        Column("first_is_cheaper", f"{first} {'cheaper' if plan.compares_costs else 'smaller'} with probability", "share"),
        Column("constraints", "constraints", "prose", _constraints_text),
    )
    ranks = (
        f"Equal ranks: the data cannot tell them apart. Rank 3 means that two others {'are cheaper' if plan.compares_costs else 'need fewer replicas'}, each with a probability of at least "
        f"{_needed(plan)}, so that all differences are right with 95 %. The probability is that of independent draws from the distributions of both capacities, which also give their intervals. "
    )
    note = f"{'' if is_single else ranks}Intervals are 90 %. Replicas{' and cost' if plan.compares_costs else ''} follow from the lower limit of the capacity, so the interval lies below the planned value. Capacity is in inferences per second."
    return Table.of("ranking", RANKING.title_of(plan), columns, plan.ranking, note).without_empty_columns("rank")


def _figure(name: str, one: RankedConfiguration) -> Estimate | None:
    return one.figures.get(name)


def _constraints_text(one: RankedConfiguration) -> str | None:
    return judgements_text(one.judgements) if one.figures else "cannot be planned"


RANKING = PlanSubject(
    "Ranking",
    lambda plan: [ranking_table(plan)],
    {
        "front": PlanPlot(
            "Cost against response time",
            "Each point is a number of replicas that serves the demand at some headroom, and so a rate per replica. The line is the Pareto front: nothing is both "
            "cheaper and faster than its points. Vertical bars are the 90 % interval of a new measurement at that rate, the horizontal bar is that of the cost or "
            "of the replicas needed. Times come from the fitted curve; they are extrapolated if a replica receives less than the lowest measured rate.",
            front_group,
        )
    },
    ranking_answer,
    title_of_one="Figures",
)

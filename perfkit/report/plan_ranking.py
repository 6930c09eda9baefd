"""The ranking of a capacity plan's configurations under its constraints, and cost against response time."""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfkit.plan.model import CapacityPlan, ConfigurationPlan, Operation, RankedConfiguration
from perfkit.report.plan_subject import CONFIGURATION, HEADROOM, REPLICAS, PlanPlot, PlanSubject, cost_columns, money
from perfkit.report.plots import INK, MUTED, NS_PER_MS, NUMBERS, PANEL_IN, WIDTH_IN, add_legend, legend_key, scale_times
from perfkit.report.table import Cell, Column, Kind, Table, interval_columns, range_cell
from perfkit.stats.rate_curve import Prediction
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import format_exact_duration, format_rate_per_s

_MOST_TIMES_LONGER, _MOST_LISTED = 20, 3


def ranking_answer(plan: CapacityPlan) -> Iterator[str]:
    """Whether the constraints hold, and how the configurations compare, in sentences."""
    first = plan.ranking[0]
    by_name = {one.name: one for one in plan.configurations}
    if first.judgements:
        yield _constraints_sentence(plan, first)
    ranked = [one for one in plan.ranking if one.rank is not None and one is not first]
    tied, behind = ([one for one in ranked if (one.rank == 1) is is_tied] for is_tied in (True, False))
    amount = functools.partial(_amount, plan, by_name)
    is_cheaper, dearer = ("is cheaper", "cost more") if plan.compares_costs else ("needs fewer replicas", "need more")
    for other in tied[:_MOST_LISTED]:
        chance = other.first_is_cheaper or 0.0
        likely, chance = (first, chance) if chance >= 0.5 else (other, 1 - chance)
        yield (
            f"{first.name} and {other.name} are indistinguishable in {'cost' if plan.compares_costs else 'number of replicas'}: {amount(first)} and "
            f"{amount(other)}. {likely.name} {is_cheaper} with a probability of {chance:.0%}, and 95 % would be needed. "
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
        f"{every} {verb} the constraints; the plan is for {first.name}, for which {listed['cannot be told']} cannot be told: the figure was "
        "not measured, or its interval includes the limit."
    )


def _remedy(plan: CapacityPlan, first: ConfigurationPlan, other: ConfigurationPlan, times: float) -> str:
    """What would tell two tied configurations apart."""
    if times == 1:
        return (
            "Their capacities differ, but at this demand not what they cost."
            if plan.compares_costs
            else "Their capacities differ, but at this demand not their number."
        )
    if math.isinf(times):
        what = "costs" if plan.compares_costs else "numbers of replicas"
        return f"Their {what} are too close for any reasonable measurement: choose by other figures."
    restarts = " and ".join(f"{math.ceil(times * one.runs)} of {one.name} (now {one.runs})" for one in (first, other))
    sentence = f"About {times:.2g} times as many restarts, each as long as now, would tell them apart: {restarts}"
    longer = _times_longer((first, other), times)
    return f"{sentence}{'' if longer is None else f'; or about {longer:.2g} times as long windows'}."


def _times_longer(pair: tuple[ConfigurationPlan, ConfigurationPlan], times: float) -> float | None:
    """How many times as long windows would do; None where the variation between restarts, which they do not reduce, is too large."""
    total = between = 0.0
    for one in pair:
        curve, capacity = one.curves[one.slo_percentile], one.capacity
        assert capacity is not None
        sensitivity = curve.sensitivity(min(capacity.per_s, 0.999 * curve.saturation_per_s))
        total += (math.log(capacity.high_per_s / capacity.low_per_s) / 3.29) ** 2
        between += (curve.spread.run_sd * sensitivity / max(sensitivity - 1, 0.1)) ** 2 / curve.spread.runs
    share = min(between / total, 1.0) if total else 1.0
    longer = (1 - share) / (1 / times - share) if 1 / times > share else math.inf
    return longer if 1 < longer <= _MOST_TIMES_LONGER else None


def _amount(plan: CapacityPlan, by_name: dict[str, ConfigurationPlan], one: RankedConfiguration) -> str:
    """The figure by which configurations are compared: the cost, or the number of replicas."""
    configuration = by_name[one.name]
    if plan.compares_costs:
        return f"{money(configuration.cost_per_hour or 0.0, configuration)}/h"
    return f"{configuration.fleet.replicas if configuration.fleet else 0}"


def ranking_table(plan: CapacityPlan) -> Table:
    """Every configuration with its rank, its figures and what the constraints say of them."""
    percentile = plan.chosen.slo_percentile
    shown = percentile.replace("_", ".")
    currency = next((f" ({one.currency})" for one in plan.configurations if one.currency), "")
    first = plan.ranking[0].name
    figures: tuple[tuple[str, str, str, Kind], ...] = (
        ("capacity", "inferences_per_s", "capacity of a replica", "rate_per_s"), ("replicas", "replicas", "replicas", "number"),
        ("price", "cost_per_hour", f"cost per hour{currency}", "cost"), (percentile, f"{percentile}_ns", f"{shown} at the planned rate", "duration_ns"),
        ("error_rate", "error_rate", "errors", "error_rate"),
        ("gpu_memory", "gpu_memory_bytes", "memory of a GPU", "bytes"), ("energy", "energy_j", "energy per inference", "energy_j"),
    )  # fmt: skip
    columns = (
        Column("rank", "rank", "count"),
        Column("name", "configuration"),
        *(
            column
            for name, key, heading, kind in figures
            for column in interval_columns(key, heading, kind, functools.partial(_figure, name))
        ),
        Column("first_is_cheaper", f"{first} {'cheaper' if plan.compares_costs else 'smaller'} with probability", "share"),
        Column("constraints", "constraints", "prose", _constraints_text),
    )
    note = (
        f"Rank: one plus the number of configurations that {'cost less' if plan.compares_costs else 'need fewer replicas'} with a probability of at least 95 %; equal ranks "
        "cannot be told apart. The probability is that over independent draws from the distributions of both capacities (those behind their intervals). "
        f"Intervals are 90 %; replicas{' and cost' if plan.compares_costs else ''} are planned with the lower limit of the capacity, so their interval lies below. Capacity is in inferences per second."
    )
    return Table.of("ranking", "Ranking", columns, plan.ranking, note).without_empty_columns("rank")


def _figure(name: str, one: RankedConfiguration) -> Estimate | None:
    return one.figures.get(name)


def _constraints_text(one: RankedConfiguration) -> str | None:
    if not one.figures:
        return "cannot be planned"
    if not one.judgements:
        return None
    if one.verdict == "holds":
        return "all hold"
    texts = [(verdict, ", ".join(text for text, each in one.judgements if each == verdict)) for verdict in ("violated", "cannot be told")]
    return "; ".join(f"{verdict}: {text}" for verdict, text in texts if text)


def front_table(plan: CapacityPlan) -> Table:
    """Replicas, cost and response time of each configuration at several headrooms."""
    columns = (
        CONFIGURATION, HEADROOM, REPLICAS, *cost_columns(plan), Column("rate_per_replica_per_s", "rate per replica", "rate_per_s"),
        Column("percentile", "percentile"), *interval_columns("expected_ns", "expected", "duration_ns", lambda expected: expected),
        Column("is_on_front", "on the front"),
    )  # fmt: skip
    rows = []
    for one, operation, headroom in _distinct_operations(plan):
        expected = _expected(one, operation)
        estimate = Estimate(operation.slo_percentile_ns, *((expected.low, expected.high) if expected else (None, None)))
        texts = [headroom, *(column.value_of(operation) for column in columns[2:6])]
        rows.append(
            (
                one.name,
                *texts,
                one.slo_percentile.replace("_", "."),
                *(column.value_of(estimate) for column in columns[7:10]),
                _on_front(plan, one, operation),
            )
        )
    what = "cost" if plan.compares_costs else "number of replicas (no prices are given)"
    demand = format_rate_per_s(plan.inputs.demand_per_s)
    note = (
        f"For the demand of {demand}. A row is on the front if every row with a lower {what} has a longer time; `within intervals` marks a row that is not, but whose 90 % "
        "interval overlaps that of every row which is cheaper and faster."
    )
    return Table("front", "Cost against response time", columns, tuple(rows), note).without_empty_columns()


def _distinct_operations(plan: CapacityPlan) -> Iterator[tuple[ConfigurationPlan, Operation, Cell]]:
    """The operations with different numbers of replicas, each with the headrooms that need this number."""
    for one in plan.configurations:
        for _, group in itertools.groupby(one.operations, key=lambda operation: operation.replicas):
            operations = list(group)
            yield one, operations[-1], range_cell([operation.headroom for operation in operations])


def _operations(plan: CapacityPlan) -> Iterator[tuple[ConfigurationPlan, Operation]]:
    return ((one, operation) for one in plan.configurations for operation in one.operations)


def _expected(one: ConfigurationPlan, operation: Operation) -> Prediction | None:
    curve = one.curves.get(one.slo_percentile)
    if curve is None or operation.rate_per_replica_per_s >= curve.saturation_per_s:
        return None
    return curve.predict(operation.rate_per_replica_per_s)


def _cost(plan: CapacityPlan, operation: Operation) -> float:
    return operation.cost_per_hour if plan.compares_costs and operation.cost_per_hour is not None else float(operation.replicas)


def _is_on_front(plan: CapacityPlan, one: ConfigurationPlan, operation: Operation) -> bool:
    """Whether the front has this number of replicas, which several headrooms may need."""
    return any((one.name, other.headroom) in plan.front for other in one.operations if other.replicas == operation.replicas)


def _on_front(plan: CapacityPlan, one: ConfigurationPlan, operation: Operation) -> str:
    """`yes`, `no`, or `within intervals` where no cheaper row is certainly faster."""
    if _is_on_front(plan, one, operation):
        return "yes"
    expected = _expected(one, operation)
    for other, candidate in _operations(plan):
        faster = _expected(other, candidate)
        is_cheaper = _cost(plan, candidate) <= _cost(plan, operation) and (other, candidate) != (one, operation)
        if is_cheaper and other is not one and faster and expected and faster.high < expected.low:
            return "no"
    return "within intervals"


def front_figure(plan: CapacityPlan) -> Figure | None:
    """Cost against response time, a point per headroom, with 90 % intervals and the Pareto front."""
    figure = Figure(figsize=(WIDTH_IN, PANEL_IN), layout="constrained")
    panel, handles, times_ms, front = figure.subplots(), [], [], []
    for index, one in enumerate(plan.configurations):
        if not one.operations:
            continue
        colour = f"C{index}"
        for operation in one.operations:
            is_planned = math.isclose(operation.headroom, plan.inputs.headroom)
            point = (_cost(plan, operation), operation.slo_percentile_ns / NS_PER_MS)
            is_on_front = _is_on_front(plan, one, operation)
            panel.plot(*([value] for value in point), color=colour, marker="o", mfc=colour if is_on_front else "white", ms=5, ls="")
            ends_ms = _draw_error_bars(panel, plan, one, operation, colour, is_planned=is_planned)
            times_ms += [point[1], *(ends_ms if is_planned else ())]
            if is_on_front:
                front.append(point)
            if is_planned and one.name == plan.cheapest:
                panel.annotate("planned", point, xytext=(6, 14), textcoords="offset points", color=INK)
        handles.append(legend_key(color=colour, marker="o", ls="", ms=5, label=one.name))
    if not times_ms:
        return None
    panel.plot(*zip(*sorted(front), strict=True), color=MUTED, lw=1, zorder=1, gid="front")
    for limit_ns in plan.inputs.slo.percentiles_ns.values():
        if limit_ns / NS_PER_MS <= 4 * max(times_ms):
            panel.axhline(limit_ns / NS_PER_MS, color=INK, lw=1, ls="--", gid=f"slo-{format_exact_duration(limit_ns)}")
            times_ms.append(limit_ns / NS_PER_MS)
    scale_times(panel, min(times_ms), max(times_ms))
    panel.xaxis.set_major_formatter(NUMBERS)
    currency = next((f" ({one.currency})" for one in plan.configurations if one.currency), "")
    cost = f"cost per hour{currency}" if plan.compares_costs else "replicas"
    panel.set(xlim=(0, None), xlabel=cost, ylabel=f"expected {plan.chosen.slo_percentile.replace('_', '.')} (ms)")
    add_legend(
        figure,
        *handles,
        legend_key(color=MUTED, lw=1, marker="o", mfc=MUTED, ms=5, label="on the front"),
        legend_key(color=MUTED, lw=2, label="90 % interval"),
        legend_key(color=INK, lw=1, ls="--", label="SLO"),
    )
    return figure


def _draw_error_bars(
    panel: Axes, plan: CapacityPlan, one: ConfigurationPlan, operation: Operation, colour: str, *, is_planned: bool
) -> tuple[float, ...]:
    """Draws the interval of the time, and at the planned headroom that of the cost; returns the ends of the former in ms."""
    cost, time_ms = _cost(plan, operation), operation.slo_percentile_ns / NS_PER_MS
    style: dict[str, Any] = {"color": colour, "lw": 2 if is_planned else 0.8, "alpha": 0.9 if is_planned else 0.35, "zorder": 1}
    ranked = next(row for row in plan.ranking if row.name == one.name)
    needed = ranked.figures.get("price" if plan.compares_costs else "replicas")
    if is_planned and needed is not None and needed.low is not None and needed.high is not None:
        panel.plot([needed.low, needed.high], [time_ms, time_ms], gid=f"cost-interval-{one.name}", **style)
    expected = _expected(one, operation)
    if expected is None:
        return ()
    ends_ms = (expected.low / NS_PER_MS, expected.high / NS_PER_MS)
    panel.plot([cost, cost], ends_ms, gid=f"time-interval-{one.name}" if is_planned else None, **style)
    return ends_ms


RANKING = PlanSubject(
    "Ranking",
    lambda plan: [ranking_table(plan)],
    {
        "front": PlanPlot(
            "Cost against response time",
            "Each point is a number of replicas that serves the demand at some headroom, which sets the rate per replica. On the line, none is cheaper without being "
            "slower. Vertical bars are the 90 % interval of a new measurement at that rate, the horizontal one that of the replicas needed. Times come from the fitted "
            "curve; they are extrapolated if a replica receives less than the lowest measured rate.",
            front_figure,
        )
    },
    lambda plan: list(ranking_answer(plan)),
)

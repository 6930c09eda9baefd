"""The ranking of a capacity plan's configurations under its constraints, and cost against response time: the Pareto front as a table and a chart."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence

from perfkit.plan.model import CapacityPlan, ConfigurationPlan, Operation, RankedConfiguration
from perfkit.plan.ranking import times_longer
from perfkit.plan.rate_curve import Prediction
from perfkit.report.chart import MUTED, Axis, Chart, ChartGroup, Colour, Line, Style, times_scale
from perfkit.report.chart_rules import many_colour
from perfkit.report.plan_charts import limit_levels
from perfkit.report.plan_tables import CONFIGURATION, HEADROOM, REPLICAS, PlanPlot, PlanSubject, cost_columns, currency_suffix, money
from perfkit.report.table import Cell, Column, Kind, Table, interval_columns, range_cell
from perfkit.stats.ranking import judgements_text, pair_confidence
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import NS_PER_MS, format_confidence, format_percent, format_rate_per_s


def front_table(plan: CapacityPlan) -> Table:
    """Replicas, cost and response time of each configuration at several headrooms."""
    of_operation = (REPLICAS, *cost_columns(plan), Column("rate_per_replica_per_s", "rate per replica", "rate_per_s"))
    of_estimate = interval_columns("expected_ns", "expected", "duration_ns", lambda estimate: estimate)
    front = Column("is_on_front", "on the front")
    columns = (CONFIGURATION, HEADROOM, *of_operation, Column("percentile", "percentile"), *of_estimate, front)
    rows = []
    for one, operations, headroom in _distinct_operations(plan.configurations):
        operation = operations[-1]
        expected = _expected(one, operation)
        estimate = Estimate(operation.slo_percentile_ns, *((expected.low, expected.high) if expected else (None, None)))
        rows.append(
            (
                one.name,
                headroom,
                *(column.value_of(operation) for column in of_operation),
                one.slo_percentile.replace("_", "."),
                *(column.value_of(estimate) for column in of_estimate),
                _on_front(plan, one, operation),
            )
        )
    what = "cost" if plan.compares_costs else "number of replicas (no prices are given)"
    demand = format_rate_per_s(plan.inputs.demand_per_s)
    note = (
        f"For the demand of {demand}. A row is on the front if every row with a lower {what} has a longer response time. “within intervals”: it is not, but its 90 % "
        "interval overlaps that of every row that is cheaper and faster."
    )
    return Table("front", "Cost against response time", columns, tuple(rows), note).without_empty_columns()


def _distinct_operations(configurations: Sequence[ConfigurationPlan]) -> Iterator[tuple[ConfigurationPlan, list[Operation], Cell]]:
    """The operations with each number of replicas, and the range of headrooms that need this number."""
    for one in configurations:
        for _, group in itertools.groupby(one.operations, key=lambda operation: operation.replicas):
            operations = list(group)
            yield one, operations, range_cell([operation.headroom for operation in operations])


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
    """Whether the front contains this configuration with this number of replicas, at any headroom."""
    return any((one.name, other.headroom) in plan.front for other in one.operations if other.replicas == operation.replicas)


def _on_front(plan: CapacityPlan, one: ConfigurationPlan, operation: Operation) -> str:
    """`yes`, `no`, or `within intervals` if no cheaper row is faster beyond both intervals."""
    if _is_on_front(plan, one, operation):
        return "yes"
    expected = _expected(one, operation)
    for other, candidate in _operations(plan):
        faster = _expected(other, candidate)
        is_cheaper = _cost(plan, candidate) <= _cost(plan, operation) and (other, candidate) != (one, operation)
        if is_cheaper and other is not one and faster and expected and faster.high < expected.low:
            return "no"
    return "within intervals"


def front_group(plan: CapacityPlan) -> ChartGroup | None:
    """Cost against response time, a value for each number of replicas, with 90 % intervals and the Pareto front."""
    lines, front = list[Line](), set[tuple[float, float]]()
    for index, one in enumerate(plan.configurations):
        kinds: dict[str, tuple[Style, list[_Point]]] = {
            f"{one.name}, planned": ("large", []),
            one.name: ("dots", []),
            f"{one.name}, not on the front": ("hollow", []),
        }
        planned, on_front, others = kinds
        for _, operations, headroom in _distinct_operations([one]):
            point = _point(plan, one, operations, headroom.text or "")
            is_on_front = _is_on_front(plan, one, operations[-1])
            is_chosen = one.name == plan.cheapest and point.is_planned
            kinds[planned if is_chosen else on_front if is_on_front else others][1].append(point)
            if is_on_front:
                front.add((point.cost, point.time_ms))
        lines += [_front_line(name, points, many_colour(index), style) for name, (style, points) in kinds.items() if points]
    if not lines:
        return None
    lines.insert(0, Line.of("Pareto front", sorted(front), MUTED))
    times_ms = [y for line in lines for y in line.ys if y is not None]
    x = Axis(f"cost per hour{currency_suffix(plan)}") if plan.compares_costs else Axis("replicas", is_whole=True)
    y = Axis(f"expected {plan.chosen.slo_percentile.replace('_', '.')}", "ms", times_scale(times_ms))
    title = f"Expected {plan.chosen.slo_percentile.replace('_', '.')} against {'cost' if plan.compares_costs else 'replicas'}"
    return ChartGroup((Chart(title, x, y, tuple(lines), levels=limit_levels(plan), height_px=320),))


@dataclasses.dataclass(frozen=True, slots=True)
class _Point:
    cost: float
    time_ms: float
    interval: tuple[float, float, float, float]
    label: str
    is_planned: bool


def _point(plan: CapacityPlan, one: ConfigurationPlan, operations: Sequence[Operation], headrooms: str) -> _Point:
    """A number of replicas, with the interval of its time and, at the planned headroom, that of its cost."""
    operation = operations[-1]
    cost, time_ms = _cost(plan, operation), operation.slo_percentile_ns / NS_PER_MS
    is_planned = any(math.isclose(other.headroom, plan.inputs.headroom) for other in operations)
    left, right, low_ms, high_ms = cost, cost, time_ms, time_ms
    if expected := _expected(one, operation):
        low_ms, high_ms = expected.low / NS_PER_MS, expected.high / NS_PER_MS
    ranked = next(row for row in plan.ranking if row.name == one.name)
    needed = ranked.figures.get("price" if plan.compares_costs else "replicas")
    if is_planned and needed is not None and needed.low is not None and needed.high is not None:
        left, right = needed.low, needed.high
    label = f"{operation.replicas:,} replica{'' if operation.replicas == 1 else 's'}, headroom {headrooms}"
    return _Point(cost, time_ms, (left, right, low_ms, high_ms), label, is_planned)


def _front_line(name: str, points: Sequence[_Point], colour: Colour, style: Style) -> Line:
    xs, ys = tuple(point.cost for point in points), tuple(point.time_ms for point in points)
    return Line(name, xs, ys, colour, style, tuple(point.interval for point in points), labels=tuple(point.label for point in points))


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
        pair, chance = (by_name[first.name], by_name[other.name]), other.first_is_cheaper or 0.0
        likely, chance = (first, chance) if chance >= 0.5 else (other, 1 - chance)
        reason = (
            f"{likely.name} {is_cheaper} with a probability of {_percent(chance)}, and {needed} would be needed{among}. "
            f"{_remedy(plan, *pair, other.times_as_much or math.inf)}"
        )
        if between := [one.name for one in pair if one.capacity is not None and one.capacity.is_between_rates]:
            reason = (
                f"The capacity of {' and of '.join(between)} is known only to lie between two measured rates: measure more rates between the highest "
                "that clearly meets the limits on parts of answers and the lowest that clearly misses them."
            )
        yield (
            f"{first.name} and {other.name} are indistinguishable in {'cost' if plan.compares_costs else 'number of replicas'}: {amount(first)} and "
            f"{amount(other)}. {reason}"
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
        f"{'Where a capacity is known only to lie between two measured rates, it is the lowest. ' if plan.inputs.slo.further_ns else ''}"
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

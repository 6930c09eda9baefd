"""Cost against response time in a capacity plan: the Pareto front as a table, and as a chart with intervals."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from perfkit.plan.model import CapacityPlan, ConfigurationPlan, Operation
from perfkit.plan.rate_curve import Prediction
from perfkit.report.chart import MUTED, Axis, Chart, ChartGroup, Colour, Line, Style, times_scale
from perfkit.report.plan_charts import NS_PER_MS, colour_of, limit_levels
from perfkit.report.plan_subject import CONFIGURATION, HEADROOM, REPLICAS, cost_columns, currency_suffix
from perfkit.report.table import Cell, Column, Table, interval_columns, range_cell
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import format_rate_per_s


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
        lines += [_front_line(name, points, colour_of(index), style) for name, (style, points) in kinds.items() if points]
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

"""Cost against response time in a capacity plan: the Pareto front as a table, and as a plot with error bars."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfkit.plan.model import CapacityPlan, ConfigurationPlan, Operation
from perfkit.report.plan_subject import CONFIGURATION, HEADROOM, REPLICAS, cost_columns, currency_suffix
from perfkit.report.plots import INK, MUTED, NS_PER_MS, NUMBERS, PANEL_IN, WIDTH_IN, add_legend, legend_key, scale_times
from perfkit.report.table import Cell, Column, Table, interval_columns, range_cell
from perfkit.stats.rate_curve import Prediction
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import format_exact_duration, format_rate_per_s


def front_table(plan: CapacityPlan) -> Table:
    """Replicas, cost and response time of each configuration at several headrooms."""
    of_operation = (REPLICAS, *cost_columns(plan), Column("rate_per_replica_per_s", "rate per replica", "rate_per_s"))
    of_estimate = interval_columns("expected_ns", "expected", "duration_ns", lambda estimate: estimate)
    front = Column("is_on_front", "on the front")
    columns = (CONFIGURATION, HEADROOM, *of_operation, Column("percentile", "percentile"), *of_estimate, front)
    rows = []
    for one, operation, headroom in _distinct_operations(plan):
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
        f"For the demand of {demand}. A row is on the front if every row with a lower {what} has a longer response time. `within intervals`: it is not, but its 90 % "
        "interval overlaps that of every row that is cheaper and faster."
    )
    return Table("front", "Cost against response time", columns, tuple(rows), note).without_empty_columns()


def _distinct_operations(plan: CapacityPlan) -> Iterator[tuple[ConfigurationPlan, Operation, Cell]]:
    """One operation for each number of replicas, with the range of headrooms that need this number."""
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
    cost = f"cost per hour{currency_suffix(plan)}" if plan.compares_costs else "replicas"
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
    """Draws the interval of the response time, and at the planned headroom that of the cost; returns the ends of the first in ms."""
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

"""The ranking of a capacity plan's configurations: cost against response time."""

import math

from matplotlib.figure import Figure

from perfkit.plan.model import CapacityPlan
from perfkit.report.plan_subject import CONFIGURATION, HEADROOM, REPLICAS, PlanPlot, PlanSubject, cost_columns
from perfkit.report.plots import INK, MUTED, NS_PER_MS, NUMBERS, PANEL_IN, WIDTH_IN, add_legend, legend_key, scale_times
from perfkit.report.table import Column, Table
from perfkit.units import format_rate_per_s


def front_table(plan: CapacityPlan) -> Table:
    """Replicas, cost and response time of each configuration at several headrooms."""
    columns = (
        HEADROOM, REPLICAS, *cost_columns(plan), Column("rate_per_replica_per_s", "rate per replica", "rate_per_s"),
        Column("percentile", "percentile"), Column("expected_ns", "expected", "duration_ns"), Column("is_on_front", "on the front", "yes_no"),
    )  # fmt: skip
    rows = tuple(
        (
            one.name, *(column.value_of(operation) for column in columns[:-3]), one.slo_percentile.replace("_", "."),
            operation.slo_percentile_ns, (one.name, operation.headroom) in plan.front,
        )
        for one in plan.configurations
        for operation in one.operations
    )  # fmt: skip
    what = "cost" if plan.compares_costs else "number of replicas (no prices are given)"
    demand = format_rate_per_s(plan.inputs.demand_per_s)
    note = f"For the demand of {demand}. A row is on the front if every row with a lower {what} has a longer time."
    return Table("front", "Cost against response time", (CONFIGURATION, *columns), rows, note).without_empty_columns()


def front_figure(plan: CapacityPlan) -> Figure | None:
    """Cost against response time, a point per headroom, with the Pareto front."""
    figure = Figure(figsize=(WIDTH_IN, PANEL_IN), layout="constrained")
    panel, handles, times_ms, front = figure.subplots(), [], [], []
    for index, one in enumerate(plan.configurations):
        if not one.operations:
            continue
        colour = f"C{index}"
        for operation in one.operations:
            amount = operation.cost_per_hour if plan.compares_costs and operation.cost_per_hour is not None else float(operation.replicas)
            time_ms, is_on_front = operation.slo_percentile_ns / NS_PER_MS, (one.name, operation.headroom) in plan.front
            panel.plot([amount], [time_ms], color=colour, marker="o", mfc=colour if is_on_front else "white", ms=5, ls="")
            times_ms.append(time_ms)
            if is_on_front:
                front.append((amount, time_ms))
            if math.isclose(operation.headroom, plan.inputs.headroom) and one.name == plan.cheapest:
                panel.annotate("planned", (amount, time_ms), xytext=(6, 6), textcoords="offset points", color=INK)
        handles.append(legend_key(color=colour, marker="o", ls="", ms=5, label=one.name))
    if not times_ms:
        return None
    panel.plot(*zip(*sorted(front), strict=True), color=MUTED, lw=1, zorder=1, gid="front")
    scale_times(panel, min(times_ms), max(times_ms))
    panel.xaxis.set_major_formatter(NUMBERS)
    currency = next((f" ({one.currency})" for one in plan.configurations if one.currency), "")
    cost = f"cost per hour{currency}" if plan.compares_costs else "replicas"
    panel.set(xlim=(0, None), xlabel=cost, ylabel=f"expected {plan.chosen.slo_percentile.replace('_', '.')} (ms)")
    add_legend(figure, *handles, legend_key(color=MUTED, lw=1, marker="o", mfc=MUTED, ms=5, label="on the front"))
    return figure


RANKING = PlanSubject(
    "Cost against response time",
    lambda plan: [front_table(plan)],
    {
        "front": PlanPlot(
            "Cost against response time",
            "Each point is a number of replicas that serves the demand at some headroom, which sets the rate per replica. On the line, none is cheaper without being "
            "slower. Times come from the fitted curve; they are extrapolated if a replica receives less than the lowest measured rate.",
            front_figure,
        )
    },
)

"""The tables of a plan."""

from collections.abc import Iterator
from typing import Any

from perfkit.plan.model import CapacityPlan
from perfkit.report.table import Column, Table
from perfkit.stats.usl import UslFit
from perfkit.units import format_rate_per_s


def plan_tables(plan: CapacityPlan) -> tuple[Table, ...]:
    """All tables that have rows, in the order to show them."""
    return tuple(table for table in _tables(plan) if table.rows)


def money(plan: CapacityPlan) -> str:
    """The currency, for headings."""
    return next((f" ({one.currency})" for one in plan.configurations if one.currency), "")


def _tables(plan: CapacityPlan) -> Iterator[Table]:
    yield _configurations(plan)
    yield _points(plan)
    yield _predictions(plan)
    yield _fleet_table(plan)
    yield _operations(plan)
    yield _laws(plan)
    yield _held_out(plan)
    yield _what_if(plan)
    yield _forecast(plan)


def _configurations(plan: CapacityPlan) -> Table:
    columns = (
        Column("configuration", "configuration"),
        Column("capacity_per_s", "capacity", "rate_per_s"),
        Column("capacity_low_per_s", "from", "rate_per_s"),
        Column("capacity_high_per_s", "to", "rate_per_s"),
        Column("replicas", "replicas", "count"),
        Column("decided_by", "decided by"),
        Column("rate_per_replica_per_s", "each", "rate_per_s"),
        Column("fleet_headroom", "headroom", "share"),
        Column("cost_per_hour", f"per hour{money(plan)}", "cost"),
        Column("cost_per_million", f"per million{money(plan)}", "cost"),
        Column("energy_j", "energy an inference", "energy_j"),
        Column("energy_above_idle_j", "above idle", "energy_j"),
        Column("target_concurrency", "in flight", "number"),
        Column("refusal", "why not"),
    )
    rows = []
    for one in plan.configurations:
        fleet, capacity, energy = one.fleet, one.capacity, one.energy
        rows.append((
            one.name, *((capacity.per_s, capacity.low_per_s, capacity.high_per_s) if capacity else (None,) * 3),
            *((fleet.replicas, fleet.reason, fleet.rate_per_replica_per_s / one.batch_size, fleet.headroom) if fleet else (None,) * 4),
            one.cost_per_hour, one.cost_per_million, energy.gross_j if energy else None, energy.above_idle_j if energy else None,
            one.target_concurrency, one.refusal or None,
        ))  # fmt: skip
    note = (
        "Capacity is that of one replica in requests a second, with its 90 % interval; fleets are planned with the lower end, the 95 % lower limit. "
        "Each: what a replica is sent. In flight: the concurrency that an autoscaler holds each to, λ·E[R] at that limit less the headroom (Little's law)."
    )
    return Table("configurations", "Configurations", columns, tuple(rows), note).without_empty_columns()


def _points(plan: CapacityPlan) -> Table:
    columns = (
        Column("configuration", "configuration"),
        Column("rate_per_s", "rate", "rate_per_s"),
        Column("state", "target"),
        Column("repetitions", "repetitions", "count"),
        Column("samples", "samples", "count"),
        Column("throughput_per_s", "throughput", "rate_per_s"),
        Column("goodput_per_s", "goodput", "rate_per_s"),
        Column("error_rate", "errors", "share"),
        Column("mean_ns", "mean", "duration_ns"),
        *(Column(f"{name}_ns", name, "duration_ns") for name in ("p50", "p95", "p99")),
        Column("gpu_utilization", "GPU busy", "share"),
        Column("power_w", "power", "power_w"),
        Column("energy_j", "energy an inference", "energy_j"),
        Column("energy_above_idle_j", "above idle", "energy_j"),
        Column("meets_slo", "meets the SLO", "yes_no"),
    )
    rows = tuple(
        (
            one.name, point.rate_per_s, point.state, point.repetitions, point.samples, point.throughput_per_s, point.goodput_per_s,
            point.error_rate, point.mean_ns, *(point.percentiles_ns.get(name) for name in ("p50", "p95", "p99")), point.gpu_utilization,
            point.power_w, point.energy.gross_j if point.energy else None, point.energy.above_idle_j if point.energy else None, point.meets_slo,
        )
        for one in plan.configurations
        for point in one.points
    )  # fmt: skip
    note = "Measured, repetitions pooled. Goodput counts ok answers within the limit of the plan's highest percentile. GPU busy is NVML's share of time, not of capacity."
    return Table("points", "What was measured", columns, rows, note).without_empty_columns()


def _predictions(plan: CapacityPlan) -> Table:
    columns = (
        Column("configuration", "configuration"),
        Column("rate_per_s", "rate", "rate_per_s"),
        Column("percentile", "percentile"),
        Column("expected_ns", "expected", "duration_ns"),
        Column("low_ns", "90 % interval from", "duration_ns"),
        Column("high_ns", "to", "duration_ns"),
        Column("half_width", "half-width", "share"),
        Column("is_extrapolated", "extrapolated", "yes_no"),
    )
    rows = tuple(
        (one.name, p.rate_per_s, named.percentile.replace("_", "."), p.value, p.low, p.high, p.half_width, p.is_extrapolated)
        for one in plan.configurations
        for named in one.predictions
        for p in [named.expected]
    )
    note = "Where a new measurement, after a restart, with repetitions as long as those measured, is expected to lie with a chance of 90 %. The half-width is the wider side's, as a share of what is expected."
    return Table("predictions", "Predictions", columns, rows, note)


def _fleet_table(plan: CapacityPlan) -> Table:
    columns = (
        Column("configuration", "configuration"),
        Column("demand_per_s", "demand", "rate_per_s"),
        Column("headroom", "headroom", "share"),
        Column("redundancy", "redundancy", "count"),
        Column("replicas", "replicas", "count"),
        Column("cost_per_hour", f"per hour{money(plan)}", "cost"),
        Column("cost_per_million", f"per million{money(plan)}", "cost"),
    )
    rows = tuple(
        (one.name, row.demand_per_s, row.headroom, row.redundancy, row.replicas, row.cost_per_hour, row.cost_per_million)
        for one in sorted(plan.configurations, key=lambda one: one.name != plan.cheapest)
        for row in one.table
    )
    note = f"Redundancy is how many replicas may be down while {plan.inputs.failure_headroom:.0%} of headroom are kept."
    others = " The other configurations' are in tables/fleets.csv." if len({row[0] for row in rows}) > 1 else ""
    title = f"Replicas of {plan.cheapest} by demand, headroom and redundancy"
    return Table("fleets", title, columns, rows, note + others, shown_rows=len(plan.chosen.table)).without_empty_columns()


def _operations(plan: CapacityPlan) -> Table:
    columns = (
        Column("configuration", "configuration"),
        Column("headroom", "headroom", "share"),
        Column("replicas", "replicas", "count"),
        Column("cost_per_hour", f"per hour{money(plan)}", "cost"),
        Column("cost_per_million", f"per million{money(plan)}", "cost"),
        Column("rate_per_replica_per_s", "each is sent", "rate_per_s"),
        Column("percentile", "percentile"),
        Column("expected_ns", "expected", "duration_ns"),
        Column("is_on_front", "on the front", "yes_no"),
    )
    rows = tuple(
        (
            one.name, it.headroom, it.replicas, it.cost_per_hour, it.cost_per_million, it.rate_per_replica_per_s,
            one.slo_percentile.replace("_", "."), it.slo_percentile_ns, (one.name, it.headroom) in plan.front,
        )
        for one in plan.configurations
        for it in one.operations
    )  # fmt: skip
    what = "cost" if plan.compares_costs else "number of replicas (no prices are given)"
    note = (
        f"For the demand of {format_rate_per_s(plan.inputs.demand_per_s)}. On the front: no other has a lower {what} without a longer time."
    )
    return Table("front", "Cost against response time", columns, rows, note).without_empty_columns()


def _laws(plan: CapacityPlan) -> Table:
    columns = (
        Column("configuration", "configuration"),
        Column("figure", "figure"),
        Column("value", "value", "number"),
        Column("low", "from", "number"),
        Column("high", "to", "number"),
        Column("comment", "what it says"),
    )
    rows: list[tuple[Any, ...]] = []
    for one in plan.configurations:
        if isinstance(one.usl, UslFit):
            for name, parameter in (("λ (per s)", one.usl.lone_rate_per_s), ("σ", one.usl.contention), ("κ", one.usl.coherency)):
                rows.append((one.name, name, parameter.value, parameter.low, parameter.high, "universal scalability law, 95 % interval"))
            peak = one.usl.peak
            rows.append((one.name, "N*", *((peak.concurrency, peak.low, peak.high) if peak else (None,) * 3), one.usl.peak_sentence))
            beyond = ", beyond what was measured" if one.usl.knee is not None and one.usl.is_extrapolated(one.usl.knee) else ""
            rows.append((one.name, "N_k", one.usl.knee, None, None, f"knee of the law: most throughput for its response time{beyond}"))
        elif one.usl is not None:
            rows.append((one.name, "universal scalability law", None, None, None, one.usl.sentence))
        if one.knee:
            rows.append(
                (one.name, "knee", one.knee.concurrency, None, None, "measured concurrency of the most throughput for its response time")
            )
        if one.bounds:
            rows.append((one.name, "X_max (per s)", one.bounds.highest_throughput_per_s, None, None, "highest throughput measured"))
            rows.append(
                (one.name, "N_sat", one.bounds.saturating_concurrency, None, None, "X_max·R₁: with more requests in flight they wait")
            )
    return Table(
        "laws", "Closed loops: the scalability law, knee and bounds", columns, tuple(rows), "Assumes closed loops without think time."
    )


def _held_out(plan: CapacityPlan) -> Table:
    columns = (
        Column("configuration", "configuration"),
        Column("model", "model"),
        Column("rate_per_s", "rate", "rate_per_s"),
        Column("figure", "figure"),
        Column("measured_ns", "measured", "duration_ns"),
        Column("predicted_ns", "predicted", "duration_ns"),
        Column("error", "error", "signed_share"),
    )
    rows = tuple(
        (one.name, validation.model, held.rate_per_s, held.figure, held.measured, held.predicted, held.error)
        for one in plan.configurations
        for validation in one.validations
        for held in validation.errors
    )
    told = [f"{one.name}: {validation.sentence}" for one in plan.configurations for validation in one.validations]
    return Table("held_out", "Queueing models on points they were not fitted to", columns, rows, " ".join(told))


def _what_if(plan: CapacityPlan) -> Table:
    columns = (
        Column("configuration", "configuration"),
        Column("model", "model"),
        Column("change", "change"),
        Column("saturation_per_s", "saturated at", "rate_per_s"),
        Column("capacity_per_s", "capacity", "rate_per_s"),
        Column("mean_ns", "mean at the planned rate", "duration_ns"),
        Column("p99_ns", "p99 at the planned rate", "duration_ns"),
    )
    rows = tuple(
        (one.name, row.model, row.change, row.saturation_per_s, row.capacity_per_s, row.mean_ns, row.p99_ns)
        for one in plan.configurations
        for row in one.what_if
    )
    note = "By models that held on points they were not fitted to. That of batches knows means alone, and no largest batch: where there is one, less is served."
    return Table("what_if", "What if", columns, rows, note).without_empty_columns()


def _forecast(plan: CapacityPlan) -> Table:
    columns = (Column("figure", "figure"), Column("value", "value"))
    if plan.forecast is None or plan.exhaustion is None:
        return Table("forecast", "Forecast", columns, ())
    found, out = plan.forecast, plan.exhaustion
    rows = (
        ("history (days)", f"{found.days}"),
        ("peak on the last day, by the trend", format_rate_per_s(found.level_per_s)),
        (
            "growth a day (80 % interval)",
            f"{found.growth_per_day:+.3%} ({found.growth_low_per_day:+.3%} to {found.growth_high_per_day:+.3%})",
        ),
        (f"capacity of {plan.exhaustion_replicas} replicas, less headroom", format_rate_per_s(out.capacity_per_s)),
        ("exhausted, P10", exhaustion_date(plan, out.p10_days)),
        ("exhausted, P50", exhaustion_date(plan, out.p50_days)),
        ("exhausted, P90", exhaustion_date(plan, out.p90_days)),
        ("exhausted by growth alone", exhaustion_date(plan, None if out.trend_days is None else round(out.trend_days))),
    )
    return Table(
        "forecast",
        "Forecast",
        columns,
        rows,
        f"A date is that of the first daily peak above the capacity. Beyond {found.days} days it is extrapolated further than the history is long.",
    )


def exhaustion_date(plan: CapacityPlan, days: int | None) -> str:
    """The date so many days after the last peak, and whether that is further than the history is long."""
    import numpy as np

    from perfkit.stats.forecast import HORIZON_DAYS

    assert plan.forecast is not None
    if days is None or days > HORIZON_DAYS:
        return f"not within {HORIZON_DAYS // 365} years"
    beyond = " (extrapolated)" if days > plan.forecast.days else ""
    return f"{np.datetime64(plan.last_peak_date, 'D') + days}{beyond}"

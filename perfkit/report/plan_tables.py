"""The tables of a plan."""

from collections.abc import Iterator
from typing import Any

from perfkit.plan.model import CapacityPlan
from perfkit.report.table import Column, Table
from perfkit.stats.usl import UslFit
from perfkit.units import format_rate_per_s

_CONFIGURATION = Column("configuration", "configuration")
_RATE = Column("rate_per_s", "rate", "rate_per_s")
_ENERGY_COLUMNS = (Column("energy_j", "energy per inference", "energy_j"), Column("energy_above_idle_j", "above idle", "energy_j"))


def plan_tables(plan: CapacityPlan) -> tuple[Table, ...]:
    """The tables that have rows, in the order of the page."""
    return tuple(table for table in _tables(plan) if table.rows)


def _cost_columns(plan: CapacityPlan) -> tuple[Column, Column]:
    currency = next((f" ({one.currency})" for one in plan.configurations if one.currency), "")
    return Column("cost_per_hour", f"per hour{currency}", "cost"), Column("cost_per_million", f"per million{currency}", "cost")


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
        _CONFIGURATION,
        Column("capacity_per_s", "capacity", "rate_per_s"),
        Column("capacity_low_per_s", "from", "rate_per_s"),
        Column("capacity_high_per_s", "to", "rate_per_s"),
        Column("replicas", "replicas", "count"),
        Column("decided_by", "decided by"),
        Column("rate_per_replica_per_s", "per replica", "rate_per_s"),
        Column("fleet_headroom", "headroom", "share"),
        *_cost_columns(plan),
        *_ENERGY_COLUMNS,
        Column("target_concurrency", "target concurrency", "number"),
        Column("refusal", "reason for leaving it out", "prose"),
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
        "Capacity is that of one replica in requests per second, with its 90 % interval; the plan uses the lower end, a 95 % lower limit. Target concurrency: "
        "what an autoscaler holds each replica to, λ·E[R] at that limit less the headroom (Little's law)."
    )
    return Table("configurations", "Configurations", columns, tuple(rows), note).without_empty_columns()


def _points(plan: CapacityPlan) -> Table:
    columns = (
        _CONFIGURATION,
        _RATE,
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
        *_ENERGY_COLUMNS,
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
    note = "Repetitions pooled. Goodput counts ok answers within the limit on the plan's highest percentile. GPU busy is NVML's share of time, not of capacity."
    return Table("points", "Measurements", columns, rows, note).without_empty_columns()


def _predictions(plan: CapacityPlan) -> Table:
    columns = (
        _CONFIGURATION,
        _RATE,
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
    note = (
        "A new measurement after a restart, with repetitions of the same length, lies in the interval with a probability of 90 %. "
        "The half-width is that of the wider side, as a share of the expected value."
    )
    return Table("predictions", "Predictions", columns, rows, note)


def _fleet_table(plan: CapacityPlan) -> Table:
    columns = (
        _CONFIGURATION,
        Column("demand_per_s", "demand", "rate_per_s"),
        Column("headroom", "headroom", "share"),
        Column("redundancy", "redundancy", "count"),
        Column("replicas", "replicas", "count"),
        *_cost_columns(plan),
    )
    rows = tuple(
        (one.name, row.demand_per_s, row.headroom, row.redundancy, row.replicas, row.cost_per_hour, row.cost_per_million)
        for one in sorted(plan.configurations, key=lambda one: one.name != plan.cheapest)
        for row in one.table
    )
    note = f"Redundancy: the number of replicas that may be down while {plan.inputs.failure_headroom:.0%} headroom remain."
    others = " tables/fleets.csv holds the other configurations too." if len({row[0] for row in rows}) > 1 else ""
    title = f"Replicas of {plan.cheapest} by demand, headroom and redundancy"
    return Table("fleets", title, columns, rows, note + others, shown_rows=len(plan.chosen.table)).without_empty_columns()


def _operations(plan: CapacityPlan) -> Table:
    columns = (
        _CONFIGURATION,
        Column("headroom", "headroom", "share"),
        Column("replicas", "replicas", "count"),
        *_cost_columns(plan),
        Column("rate_per_replica_per_s", "rate per replica", "rate_per_s"),
        Column("percentile", "percentile"),
        Column("expected_ns", "expected", "duration_ns"),
        Column("is_on_front", "on the front", "yes_no"),
    )
    rows = tuple(
        (
            one.name, operation.headroom, operation.replicas, operation.cost_per_hour, operation.cost_per_million, operation.rate_per_replica_per_s,
            one.slo_percentile.replace("_", "."), operation.slo_percentile_ns, (one.name, operation.headroom) in plan.front,
        )
        for one in plan.configurations
        for operation in one.operations
    )  # fmt: skip
    what = "cost" if plan.compares_costs else "number of replicas (no prices are given)"
    demand = format_rate_per_s(plan.inputs.demand_per_s)
    note = f"For the demand of {demand}. On the front: no other row has a lower {what} without a longer time."
    return Table("front", "Cost against response time", columns, rows, note).without_empty_columns()


def _laws(plan: CapacityPlan) -> Table:
    columns = (
        _CONFIGURATION,
        Column("figure", "figure"),
        Column("value", "value", "number"),
        Column("low", "from", "number"),
        Column("high", "to", "number"),
        Column("comment", "meaning", "prose"),
    )
    rows: list[tuple[Any, ...]] = []
    for one in plan.configurations:
        if isinstance(one.usl, UslFit):
            for name, parameter in (("λ (per s)", one.usl.lone_rate_per_s), ("σ", one.usl.contention), ("κ", one.usl.coherency)):
                rows.append((one.name, name, parameter.value, parameter.low, parameter.high, "universal scalability law, 95 % interval"))
            peak = one.usl.peak
            rows.append((one.name, "N*", *((peak.concurrency, peak.low, peak.high) if peak else (None,) * 3), one.usl.peak_sentence))
            beyond = ", beyond the measurements" if one.usl.knee is not None and one.usl.is_extrapolated(one.usl.knee) else ""
            rows.append((one.name, "N_k", one.usl.knee, None, None, f"knee of the law: maximum of throughput ÷ response time{beyond}"))
        elif one.usl is not None:
            rows.append((one.name, "universal scalability law", None, None, None, one.usl.sentence))
        if one.knee:
            rows.append(
                (one.name, "knee", one.knee.concurrency, None, None, "measured concurrency with the maximum of throughput ÷ response time")
            )
        if one.bounds:
            rows.append((one.name, "X_max (per s)", one.bounds.highest_throughput_per_s, None, None, "highest throughput measured"))
            rows.append((one.name, "N_sat", one.bounds.saturating_concurrency, None, None, "X_max·R₁: additional requests in flight queue"))
    return Table(
        "laws", "Closed loops: the scalability law, knee and bounds", columns, tuple(rows), "Assumes closed loops without think time."
    )


def _held_out(plan: CapacityPlan) -> Table:
    columns = (
        _CONFIGURATION,
        Column("model", "model"),
        _RATE,
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
    sentences = [f"{one.name}: {validation.sentence}" for one in plan.configurations for validation in one.validations]
    return Table("held_out", "Queueing models on held-out points", columns, rows, " ".join(sentences))


def _what_if(plan: CapacityPlan) -> Table:
    columns = (
        _CONFIGURATION,
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
    note = "From models that were accepted on held-out points. The batching model gives means only and assumes no maximum batch size; with one, the server serves less."
    return Table("what_if", "What if", columns, rows, note).without_empty_columns()


def _forecast(plan: CapacityPlan) -> Table:
    columns = (Column("figure", "figure"), Column("value", "value"))
    if plan.forecast is None or plan.exhaustion is None:
        return Table("forecast", "Forecast", columns, ())
    forecast, exhaustion = plan.forecast, plan.exhaustion
    rows = (
        ("history (days)", f"{forecast.days}"),
        ("peak on the last day, by the trend", format_rate_per_s(forecast.level_per_s)),
        (
            "growth a day (80 % interval)",
            f"{forecast.growth_per_day:+.3%} ({forecast.growth_low_per_day:+.3%} to {forecast.growth_high_per_day:+.3%})",
        ),
        (f"capacity of {plan.exhaustion_replicas} replicas, less headroom", format_rate_per_s(exhaustion.capacity_per_s)),
        ("exhausted, P10", exhaustion_date(plan, exhaustion.p10_days)),
        ("exhausted, P50", exhaustion_date(plan, exhaustion.p50_days)),
        ("exhausted, P90", exhaustion_date(plan, exhaustion.p90_days)),
        ("exhausted by growth alone", exhaustion_date(plan, None if exhaustion.trend_days is None else round(exhaustion.trend_days))),
    )
    note = (
        "Dates are those of the first daily peak above the capacity. "
        f"Beyond {forecast.days} days, the length of the history, they are marked as extrapolated."
    )
    return Table("forecast", "Forecast", columns, rows, note)


def exhaustion_date(plan: CapacityPlan, days: int | None) -> str:
    """The date that many days after the last peak; marked as extrapolated if it lies further ahead than the history is long."""
    import numpy as np

    from perfkit.stats.forecast import HORIZON_DAYS

    assert plan.forecast is not None
    if days is None or days > HORIZON_DAYS:
        return f"not within {HORIZON_DAYS // 365} years"
    beyond = " (extrapolated)" if days > plan.forecast.days else ""
    return f"{np.datetime64(plan.last_peak_date, 'D') + days}{beyond}"

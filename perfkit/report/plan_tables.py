"""What the subjects of a capacity plan's page share, and the tables of its measurements: capacities, rates, predictions, replicas, closed loops, models."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfkit.plan.model import CapacityPlan, ConfigurationPlan, RatePoint, TableRow
from perfkit.plan.usl import UslFit
from perfkit.report.chart import ChartGroup
from perfkit.report.table import Column, Table, attribute, format_cost, range_cell
from perfkit.units import format_percent

CONFIGURATION = Column("configuration", "configuration")
RATE = Column("rate_per_s", "rate", "rate_per_s")
HEADROOM = Column("headroom", "headroom", "share")
REPLICAS = Column("replicas", "replicas", "count")


@dataclasses.dataclass(frozen=True, slots=True)
class PlanPlot:
    """A plot: its title, how to read it, and the function that makes its charts, which returns None if there is nothing to draw."""

    title: str
    caption: str
    group: Callable[[CapacityPlan], ChartGroup | None]


@dataclasses.dataclass(frozen=True, slots=True)
class PlanSubject:
    """A subject. Its plots and the tables of its title form a section; each other table is a section of its own."""

    title: str
    tables: Callable[[CapacityPlan], Iterable[Table]]
    """Tables without rows are left out."""
    plots: Mapping[str, PlanPlot] = dataclasses.field(default_factory=dict)
    """By the name of their file, without suffix."""
    answer: Callable[[CapacityPlan], Iterable[str]] = lambda _: ()
    """Its sentences in the answer, which is shown at the top of the page and on stdout."""
    title_of_one: str = ""
    """The title in a plan of a single configuration; empty: the same."""

    def title_of(self, plan: CapacityPlan) -> str:
        """The title in a plan."""
        return (self.title_of_one if len(plan.configurations) == 1 else "") or self.title


def configuration_table(
    plan: CapacityPlan,
    name: str,
    title: str,
    columns: Sequence[Column],
    items: Callable[[ConfigurationPlan], Iterable[Any]],
    note: str,
) -> Table:
    """A table with a row for each item of each configuration, without the empty columns."""
    rows = ((one.name, *(column.value_of(item) for column in columns)) for one in plan.configurations for item in items(one))
    return Table(name, title, (CONFIGURATION, *columns), tuple(rows), note).without_empty_columns()


def cost_columns(plan: CapacityPlan) -> tuple[Column, Column]:
    """Cost per hour and per million inferences, in the plan's currency."""
    currency = currency_suffix(plan)
    return Column("cost_per_hour", f"per hour{currency}", "cost"), Column("cost_per_million", f"per million{currency}", "cost")


def currency_suffix(plan: CapacityPlan) -> str:
    """The currency of the prices for a heading, such as ` ($)`; empty if there is none."""
    return next((f" ({one.currency})" for one in plan.configurations if one.currency), "")


def money(amount: float, one: ConfigurationPlan) -> str:
    """An amount in the configuration's currency: `$2.50`, `2.50 EUR`, or `$10,747`, without cents from 1,000 on."""
    return with_currency(format_cost(amount), one.currency)


def with_currency(amount: str, currency: str) -> str:
    """A formatted amount with its currency: a sign before it, a word or nothing after it."""
    return f"{currency}{amount}" if len(currency) == 1 else f"{amount} {currency}".rstrip()


_ENERGY_COLUMNS = (
    Column("energy_j", "energy per inference", "energy_j", attribute("energy.gross_j")),
    Column("energy_above_idle_j", "above idle", "energy_j", attribute("energy.above_idle_j")),
)


def configurations_table(plan: CapacityPlan) -> Table:
    """The capacity of one replica of each configuration, and the replicas that serve the demand."""
    columns = (
        Column("capacity_per_s", "capacity", "rate_per_s", attribute("capacity.per_s")),
        Column("capacity_low_per_s", "from", "rate_per_s", attribute("capacity.low_per_s")),
        Column("capacity_high_per_s", "to", "rate_per_s", attribute("capacity.high_per_s")),
        Column("replicas", "replicas", "count", attribute("fleet.replicas")),
        Column("decided_by", "decided by", value=attribute("fleet.reason")),
        Column("rate_per_replica_per_s", "per replica", "rate_per_s", lambda one: one.fleet and one.fleet.rate_per_replica_per_s / one.batch_size),
        Column("fleet_headroom", "headroom", "share", attribute("fleet.headroom")),
        *cost_columns(plan),
        *_ENERGY_COLUMNS,
        Column("target_concurrency", "target concurrency", "number"),
        Column("refusal", "reason for leaving it out", "prose", lambda one: one.refusal or None),
    )  # fmt: skip
    note = (
        "Capacity is that of one replica in requests per second, with its 90 % interval; the plan uses the lower end, a 95 % lower limit. Target concurrency: "
        "what an autoscaler holds each replica to, λ·E[R] at that limit less the headroom (Little's law)."
    )
    return configuration_table(plan, "configurations", "Configurations", columns, lambda one: [one], note)


def points_table(plan: CapacityPlan) -> Table:
    """Every rate that was measured, repetitions pooled."""
    columns = (
        RATE,
        Column("state", "target"),
        Column("repetitions", "repetitions", "count"),
        Column("samples", "samples", "count"),
        Column("throughput_per_s", "throughput", "rate_per_s"),
        Column("goodput_per_s", "goodput", "rate_per_s"),
        Column("error_rate", "errors", "share"),
        Column("mean_ns", "mean", "duration_ns"),
        *(Column(f"{name}_ns", name, "duration_ns", functools.partial(_percentile, name)) for name in ("p50", "p95", "p99")),
        Column("gpu_utilization", "GPU busy", "share"),
        Column("power_w", "power", "power_w"),
        *_ENERGY_COLUMNS,
        Column("parts", "limits on parts", value=lambda point: point.parts and point.parts.verdict),
        Column("meets_slo", "meets the SLO", "yes_no"),
    )
    note = "Repetitions pooled. Goodput counts ok answers within the limit on the plan's highest percentile; it is not known under limits on parts of answers. GPU busy is NVML's share of time, not of capacity."
    return configuration_table(plan, "points", "Measurements", columns, lambda one: one.points, note)


def _percentile(name: str, point: RatePoint) -> float | None:
    return point.percentiles_ns.get(name)


def predictions_table(plan: CapacityPlan) -> Table:
    """The percentiles that are expected at the rates asked for."""
    columns = (
        Column("rate_per_s", "rate", "rate_per_s", attribute("expected.rate_per_s")),
        Column("percentile", "percentile", value=lambda named: named.percentile.replace("_", ".")),
        Column("expected_ns", "expected", "duration_ns", attribute("expected.value")),
        Column("low_ns", "90 % interval from", "duration_ns", attribute("expected.low")),
        Column("high_ns", "to", "duration_ns", attribute("expected.high")),
        Column("half_width", "half-width", "share", attribute("expected.half_width")),
        Column("is_extrapolated", "extrapolated", "yes_no", attribute("expected.is_extrapolated")),
    )
    note = (
        "A new measurement after a restart, with repetitions of the same length, lies in the interval with a probability of 90 %. "
        "The half-width is that of the wider side, as a share of the expected value."
    )
    return configuration_table(plan, "predictions", "Predictions", columns, lambda one: one.predictions, note)


def fleets_table(plan: CapacityPlan) -> Table:
    """Replicas by demand, headroom and redundancy; rows that need the same number are one."""
    columns = (Column("demand_per_s", "demand", "rate_per_s"), HEADROOM, Column("redundancy", "redundancy", "count"), REPLICAS)
    ordered = sorted(plan.configurations, key=lambda one: one.name != plan.cheapest)
    note = (
        f"Redundancy: the number of replicas that may be down while a headroom of {format_percent(plan.inputs.failure_headroom)} remains. A range of headrooms or "
        "redundancies needs the same number of replicas."
    )
    if sum(bool(one.table) for one in ordered) > 1:
        note += " tables/fleets.csv holds the other configurations too."
    title = f"Replicas of {plan.cheapest} by demand, headroom and redundancy"
    costs = cost_columns(plan)
    rows = []
    for one in ordered:
        for group in _merged_rows(one.table):
            spans = (range_cell([row.headroom for row in group]), range_cell([row.redundancy for row in group]))
            rows.append((one.name, group[0].demand_per_s, *spans, group[0].replicas, *(column.value_of(group[0]) for column in costs)))
    shown = sum(1 for row in rows if row[0] == plan.cheapest)
    return Table("fleets", title, (CONFIGURATION, *columns, *costs), tuple(rows), note, shown_rows=(0, shown)).without_empty_columns()


def _merged_rows(rows: Sequence[TableRow]) -> list[list[TableRow]]:
    """Groups of rows of one demand and number of replicas that span a rectangle of headrooms and redundancies."""
    by_headroom: dict[tuple[float, float, int], list[TableRow]] = {}
    for row in rows:
        by_headroom.setdefault((row.demand_per_s, row.headroom, row.replicas), []).append(row)
    merged: dict[tuple[float, int, tuple[int, ...]], list[TableRow]] = {}
    for (demand_per_s, _, replicas), group in by_headroom.items():
        merged.setdefault((demand_per_s, replicas, tuple(row.redundancy for row in group)), []).extend(group)
    return list(merged.values())


def laws_table(plan: CapacityPlan) -> Table:
    """What the closed loops show: the scalability law, the knee and the bounds."""
    columns = (
        CONFIGURATION, Column("figure", "figure"), Column("value", "value", "number"), Column("low", "from", "number"),
        Column("high", "to", "number"), Column("comment", "meaning", "prose"),
    )  # fmt: skip
    rows = tuple((one.name, *row) for one in plan.configurations for row in _law_rows(one))
    title = "Closed loops: the scalability law, knee and bounds"
    return Table("laws", title, columns, rows, "Assumes closed loops without think time.")


def _law_rows(one: ConfigurationPlan) -> Iterator[tuple[str, float | None, float | None, float | None, str]]:
    if isinstance(one.usl, UslFit):
        for name, parameter in (("λ (per s)", one.usl.lone_rate_per_s), ("σ", one.usl.contention), ("κ", one.usl.coherency)):
            yield name, parameter.value, parameter.low, parameter.high, "universal scalability law, 95 % interval"
        peak = one.usl.peak
        yield "N*", *((peak.concurrency, peak.low, peak.high) if peak else (None, None, None)), one.usl.peak_sentence
        beyond = ", beyond the measurements" if one.usl.knee is not None and one.usl.is_extrapolated(one.usl.knee) else ""
        yield "N_k", one.usl.knee, None, None, f"knee of the law: maximum of throughput ÷ response time{beyond}"
    elif one.usl is not None:
        yield "universal scalability law", None, None, None, one.usl.sentence
    if one.knee:
        yield "knee", one.knee.concurrency, None, None, "measured concurrency with the maximum of throughput ÷ response time"
    if one.bounds:
        yield "X_max (per s)", one.bounds.highest_throughput_per_s, None, None, "highest throughput measured"
        yield "N_sat", one.bounds.saturating_concurrency, None, None, "X_max·R₁: additional requests in flight queue"


def held_out_table(plan: CapacityPlan) -> Table:
    """The queueing models' errors on points that they were not fitted to."""
    columns = (
        CONFIGURATION, Column("model", "model"), RATE, Column("figure", "figure"), Column("measured_ns", "measured", "duration_ns"),
        Column("predicted_ns", "predicted", "duration_ns"), Column("error", "error", "signed_share"),
    )  # fmt: skip
    validations = [(one.name, validation) for one in plan.configurations for validation in one.validations]
    rows = tuple(
        (name, validation.model, held.rate_per_s, held.figure, held.measured, held.predicted, held.error)
        for name, validation in validations
        for held in validation.errors
    )
    note = " ".join(f"{name}: {validation.sentence}" for name, validation in validations)
    return Table("held_out", "Queueing models on held-out points", columns, rows, note)


def what_if_table(plan: CapacityPlan) -> Table:
    """What the accepted queueing models answer to changes of the server."""
    columns = (
        Column("model", "model"),
        Column("change", "change"),
        Column("saturation_per_s", "saturated at", "rate_per_s"),
        Column("capacity_per_s", "capacity", "rate_per_s"),
        Column("mean_ns", "mean at the planned rate", "duration_ns"),
        Column("p99_ns", "p99 at the planned rate", "duration_ns"),
    )
    note = "From models that predicted held-out points to within 25 % of a mean and 50 % of a p99. The batching model gives means only and assumes no maximum batch size; with one, the server serves less."
    return configuration_table(plan, "what_if", "What if", columns, lambda one: one.what_if, note)

"""A capacity plan: the answer in sentences, its page, and the files of its folder."""

import json
import pathlib
from collections.abc import Mapping, Sequence

from perfkit.errors import ResultError
from perfkit.plan.model import CapacityPlan, ConfigurationPlan, plan_document
from perfkit.report.page import Bullets, Figure, Page, Section, write_files
from perfkit.report.plan_tables import exhaustion_date, plan_tables
from perfkit.report.table import render_csv
from perfkit.result.distribution import QUANTILES
from perfkit.stats.slo import SloLimits
from perfkit.units import format_duration_ns, format_rate_per_s

PLAN_FILE = "plan.json"
CAVEATS = ("Left out", "Extrapolated", "Notes")
"""The remarks to read before any figure."""
_PLOTS = {
    "rate": (
        "Response time against arrival rate",
        (
            "Points are measured, repetitions pooled; hollow ones are those at which the target did not keep up, which no curve was fitted to. Bands hold a new "
            "measurement, after a restart, with a chance of 90 %. The grey stripe is the 90 % interval of the capacity. Curves end at the highest rate fitted."
        ),
    ),
    "front": (
        "Cost against response time",
        (
            "Each point is a fleet for the demand at some headroom, which decides how much each replica is sent. On the line no fleet is cheaper without being slower. "
            "Times are those of the fitted curve; where a replica is sent less than the lowest rate measured they are extrapolated."
        ),
    ),
    "throughput": (
        "Throughput against concurrency",
        (
            "Closed loops. The law is Gunther's universal scalability law, fitted to logarithms; dotted is what lies beyond the measurements, up to 1.5 times the largest "
            "concurrency. Where its peak is not observed, or the law does not apply, the tables say so."
        ),
    ),
    "latency-throughput": (
        "Response time against throughput",
        "Measured points of open loops. Where the line turns upwards, more load buys waiting and no throughput.",
    ),
    "gpu": (
        "GPUs against arrival rate",
        "Means over the measured windows. Busy is the share of time in which a kernel ran, not the share of the capacity. Energy is power over inferences.",
    ),
    "forecast": (
        "Demand to come",
        (
            "A log-linear trend of daily peaks and courses drawn around it; the band holds the daily peak with a chance of 80 %. Dotted lines mark the days by which one, five "
            "and nine in ten courses first exceed the capacity. Shaded is what lies further ahead than the history is long."
        ),
    ),
    "held-out": (
        "Queueing models on points they were not fitted to",
        "Fitted up to 70 % of the capacity. A model with a point outside its dotted lines is rejected, and nothing is taken from it.",
    ),
}
"""Each plot's title, and how to read it."""
_CSV_DIGITS = 6


def check_plan_folder(folder: pathlib.Path) -> None:
    """Raises ResultError if the folder holds something other than a plan."""
    if folder.exists() and not (folder.is_dir() and ((folder / PLAN_FILE).exists() or not any(folder.iterdir()))):
        raise ResultError(f"--out {folder}: this exists and is not a plan; give another folder")


def write_plan(plan: CapacityPlan, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the plan as HTML, Markdown and JSON, and its tables as CSV and JSON; replaces an earlier plan. Raises ResultError."""
    from perfkit.report.html import render_html
    from perfkit.report.markdown import render_markdown
    from perfkit.report.plan_plots import render_plan_plots

    check_plan_folder(folder)
    plots = render_plan_plots(plan)
    texts = {folder / PLAN_FILE: json.dumps(plan_document(plan), indent=1) + "\n"}
    texts |= {folder / "plots" / f"{name}.svg": svg for name, svg in plots.items()}
    for table in plan_tables(plan):
        texts[folder / "tables" / f"{table.name}.csv"] = render_csv(table, digits=_CSV_DIGITS)
        texts[folder / "tables" / f"{table.name}.json"] = json.dumps(table.records, indent=1) + "\n"
    texts[folder / "plan.md"] = render_markdown(plan_page(plan, {}))
    texts[folder / "plan.html"] = render_html(plan_page(plan, plots))
    earlier = [file for pattern in ("plots/*.svg", "tables/*.csv", "tables/*.json") for file in folder.glob(pattern)]
    write_files(texts, replacing=earlier, place=f"--out {folder}")
    return list(texts)


def plan_page(plan: CapacityPlan, plots: Mapping[str, str]) -> Page:
    """The answer, the caveats, the plots (SVG by name), every table, and what the plan is based on."""
    remarks = {title: Section(title, (Bullets.of(sentences),)) for title, sentences in plan_remarks(plan)}
    figures = tuple(Figure(*_PLOTS[name], svg) for name, svg in plots.items())
    sections = (
        Section("The answer", (Bullets.of(headline(plan)),)),
        *(section for title, section in remarks.items() if title in CAVEATS),
        *([Section("Plots", figures)] if figures else []),
        *(Section(table.title, (table,)) for table in plan_tables(plan)),
        *(section for title, section in remarks.items() if title not in CAVEATS),
    )
    footer = "Made by `perfkit plan`. `plan.json` and `tables/` beside this page hold every figure."
    return Page("Capacity plan", sections, footer=footer)


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
    sentences = [
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
        sentences.append(
            f"Of the configurations it is the {'cheapest' if plan.compares_costs else 'one with the fewest replicas'}: {chosen.name} {_amount(chosen, by)}, {listed}."
        )
    if plan.exhaustion is not None:
        out = plan.exhaustion
        supply = f"{plan.exhaustion_replicas} replicas less headroom ({format_rate_per_s(out.capacity_per_s)})"
        p10, p50, p90 = (exhaustion_date(plan, days) for days in (out.p10_days, out.p50_days, out.p90_days))
        when = f"Demand exceeds {supply} on {p50}" if out.p50_days is not None else f"Demand is not expected to exceed {supply}: {p50}"
        sentences.append(f"{when} (P50; P10 {p10}, P90 {p90}).")
    return sentences


def predictions(plan: CapacityPlan) -> list[str]:
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


def slo_text(slo: SloLimits) -> str:
    """`p99 < 50.0 ms, errors < 0.1%`."""
    names = {quantile: name.replace("_", ".") for name, quantile in QUANTILES.items()}
    limits = [f"{names[quantile]} < {format_duration_ns(limit_ns)}" for quantile, limit_ns in slo.percentiles_ns.items()]
    return ", ".join([*limits, *([f"errors < {f'{100 * slo.error_rate:.3g}%'}"] if slo.error_rate is not None else [])])


def plan_remarks(plan: CapacityPlan) -> list[tuple[str, Sequence[str]]]:
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
        ("Left out", refused), ("Extrapolated", of_each("extrapolated")), ("Notes", [*of_each("notes"), *rejected]),
        ("Assumptions", list(plan.assumptions)), ("Data", data),
    )  # fmt: skip
    unique = [(title, list(dict.fromkeys(sentences))) for title, sentences in sections]
    return [(title, sentences) for title, sentences in unique if sentences]

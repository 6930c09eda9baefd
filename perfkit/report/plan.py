"""A capacity plan: the answer in sentences, its page, and the files of its folder."""

import json
import pathlib
from collections.abc import Mapping, Sequence

from perfkit.errors import ResultError
from perfkit.plan.model import CapacityPlan, ConfigurationPlan, plan_document
from perfkit.report.page import Block, Bullets, Figure, Page, sections_of, write_files
from perfkit.report.plan_tables import exhaustion_date, plan_tables
from perfkit.report.render import render_csv
from perfkit.result.distribution import QUANTILES
from perfkit.stats.slo import SloLimits
from perfkit.units import format_duration_ns, format_rate_per_s

PLAN_FILE = "plan.json"
CAVEATS = ("Left out", "Extrapolated", "Notes")
"""The sections to read before any figure."""
_PLOTS = {
    "rate": (
        "Response time against arrival rate",
        (
            "Points are measurements, repetitions pooled; at hollow points the target did not keep up, and they are not part of the fit. A new measurement "
            "after a restart lies within its band with a probability of 90 %. The grey stripe is the 90 % interval of the capacity. Curves end at the highest fitted rate."
        ),
    ),
    "front": (
        "Cost against response time",
        (
            "Each point is a number of replicas that serves the demand at some headroom, which sets the rate per replica. On the line, none is cheaper without being slower. "
            "Times come from the fitted curve; they are extrapolated if a replica receives less than the lowest measured rate."
        ),
    ),
    "throughput": (
        "Throughput against concurrency",
        (
            "Closed loops. The curve is Gunther's universal scalability law, fitted to logarithms; it is dotted beyond the measurements, up to 1.5 times the largest "
            "concurrency. The tables say whether its peak was observed and whether the law applies."
        ),
    ),
    "latency-throughput": (
        "Response time against throughput",
        "Measurements of open loops. Where the line turns upwards, more load adds waiting but no throughput.",
    ),
    "gpu": (
        "GPUs against arrival rate",
        "Means over the measured windows. Busy is the share of time in which a kernel ran, not the used share of the capacity. Energy is power ÷ inferences per second.",
    ),
    "forecast": (
        "Forecast of the demand",
        (
            "A log-linear trend of daily peaks, with simulated futures around it; the daily peak lies within the band with a probability of 80 %. Dotted lines mark the days by which 10 %, 50 % "
            "and 90 % of the simulations first exceed the capacity. The shaded part lies further ahead than the history is long."
        ),
    ),
    "held-out": (
        "Queueing models on held-out points",
        "Each model was fitted to the points up to 70 % of the capacity and predicts the others. A model with a point outside its dotted lines is rejected and not used.",
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
    from perfkit.report.plan_plots import render_plan_plots
    from perfkit.report.render import render_html, render_markdown

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
    notes = {title: [Bullets.of(sentences)] for title, sentences in plan_notes(plan)}
    blocks: dict[str, Sequence[Block]] = {
        "The answer": [Bullets.of(headline(plan))],
        **{title: notes[title] for title in CAVEATS if title in notes},
        "Plots": [Figure(*_PLOTS[name], svg) for name, svg in plots.items()],
        **{table.title: [table] for table in plan_tables(plan)},
        **notes,
    }
    footer = "Made by `perfkit plan`. `plan.json` and `tables/` beside this page hold every figure."
    return Page("Capacity plan", sections_of(blocks), footer=footer)


def headline(plan: CapacityPlan) -> list[str]:
    """The answer in sentences."""
    chosen, inputs = plan.chosen, plan.inputs
    fleet, capacity = chosen.fleet, chosen.capacity
    assert fleet is not None
    assert capacity is not None
    replicas = f"{fleet.replicas} replica{'s' if fleet.replicas > 1 else ''}"
    cost = ""
    if chosen.cost_per_hour is not None and chosen.cost_per_million is not None:
        cost = f", for {_money(chosen.cost_per_hour, chosen)} per hour ({_money(chosen.cost_per_million, chosen)} per million inferences)"
    low, middle, high = (format_rate_per_s(rate_per_s) for rate_per_s in (capacity.low_per_s, capacity.per_s, capacity.high_per_s))
    demand, each = format_rate_per_s(inputs.demand_per_s), format_rate_per_s(fleet.rate_per_replica_per_s / chosen.batch_size)
    if chosen.batch_size > 1:
        demand, middle = demand.replace("/s", " inferences/s"), middle.replace("/s", f" requests/s of {chosen.batch_size} inferences each")
    sentences = [
        f"{replicas} of {chosen.name} serve {demand} within {slo_text(inputs.slo)}, decided by {fleet.reason}{cost}.",
        (
            f"One replica serves {middle} (90 % interval {low} to {high}); the plan uses {low}. "
            f"Each replica receives {each}, which leaves {fleet.headroom:.0%} headroom."
        ),
    ]
    others = ", ".join(f"{one.name} {_amount(plan, one)}" for one in plan.configurations if one.name != chosen.name and one.fleet)
    if others:
        criterion = "the cheapest" if plan.compares_costs else "the one with the fewest replicas"
        sentences.append(f"{chosen.name} is {criterion} of the configurations: {chosen.name} {_amount(plan, chosen)}, {others}.")
    if plan.exhaustion is not None:
        p10, p50, p90 = (
            exhaustion_date(plan, days) for days in (plan.exhaustion.p10_days, plan.exhaustion.p50_days, plan.exhaustion.p90_days)
        )
        supply = f"{plan.exhaustion_replicas} replicas less headroom ({format_rate_per_s(plan.exhaustion.capacity_per_s)})"
        is_expected = plan.exhaustion.p50_days is not None
        when = f"Demand exceeds {supply} on {p50}" if is_expected else f"Demand is not expected to exceed {supply}: {p50}"
        sentences.append(f"{when} (P50; P10 {p10}, P90 {p90}).")
    return sentences


def predictions(plan: CapacityPlan) -> list[str]:
    """The predictions in sentences."""
    sentences = []
    for one in plan.configurations:
        for prediction in one.predictions:
            percentile, expected = prediction.percentile.replace("_", "."), prediction.expected
            value, low, high = (format_duration_ns(value_ns) for value_ns in (expected.value, expected.low, expected.high))
            interval = f"90 % interval {low} to {high} (half-width {expected.half_width:.0%})"
            sentences.append(f"{one.name} at {format_rate_per_s(expected.rate_per_s)}: {percentile} {value}, {interval}.")
    return sentences


def _amount(plan: CapacityPlan, one: ConfigurationPlan) -> str:
    """The figure by which configurations are compared: the cost, or the number of replicas."""
    if plan.compares_costs:
        return f"{_money(one.cost_per_hour or 0.0, one)}/h"
    return f"{one.fleet.replicas if one.fleet else 0}"


def _money(amount: float, one: ConfigurationPlan) -> str:
    """An amount with its currency: `$2.50`, or `2.50 EUR`."""
    is_sign = len(one.currency) == 1
    return f"{one.currency if is_sign else ''}{amount:,.2f}{f' {one.currency}' if one.currency and not is_sign else ''}"


def slo_text(slo: SloLimits) -> str:
    """The limits in words: `p99 < 50.0 ms, errors < 0.1%`."""
    names = {quantile: name.replace("_", ".") for name, quantile in QUANTILES.items()}
    limits = [f"{names[quantile]} < {format_duration_ns(limit_ns)}" for quantile, limit_ns in slo.percentiles_ns.items()]
    return ", ".join([*limits, *([f"errors < {f'{100 * slo.error_rate:.3g}%'}"] if slo.error_rate is not None else [])])


def plan_notes(plan: CapacityPlan) -> list[tuple[str, Sequence[str]]]:
    """Headings with their sentences, without the empty ones: caveats, assumptions, and the data."""
    several = len(plan.configurations) > 1

    def of_each(field: str) -> list[str]:
        return [f"{one.name}: {text}" if several else text for one in plan.configurations for text in getattr(one, field)]

    data = []
    for one in plan.configurations:
        settings = f" ({one.settings})" if one.settings else ""
        results = f"{one.runs} result{'s' if one.runs != 1 else ''} with an open loop"
        data.append(f"{one.name}: {one.model}{settings}, {results}; from {', '.join(one.sources)}.")
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

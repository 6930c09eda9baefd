"""A capacity plan: the answer in sentences, its page, and the files of its folder."""

import json
import pathlib
from collections.abc import Mapping, Sequence

from perfkit.errors import ResultError
from perfkit.plan.model import CapacityPlan, ConfigurationPlan, plan_document
from perfkit.report.page import Block, Bullets, Figure, Page, sections_of, write_files
from perfkit.report.plan_forecast import FORECAST
from perfkit.report.plan_measurements import MEASURED
from perfkit.report.plan_ranking import RANKING
from perfkit.report.plan_risk import RISK
from perfkit.report.plan_subject import money
from perfkit.report.plots import render_svgs
from perfkit.report.render import render_csv, render_html, render_markdown
from perfkit.report.table import Table
from perfkit.result.distribution import QUANTILES
from perfkit.stats.slo import SloLimits
from perfkit.units import format_duration_ns, format_rate_per_s

PLAN_FILE = "plan.json"
CAVEATS = ("Left out", "Extrapolated", "Notes")
"""The sections to read before any figure."""
_SUBJECTS = (RISK, RANKING, FORECAST, *MEASURED)
"""In the order of the page; the first ones are what is decided, the last ones how it was measured."""
_CSV_DIGITS = 6


def check_plan_folder(folder: pathlib.Path) -> None:
    """Raises ResultError if the folder holds something other than a plan."""
    if folder.exists() and not (folder.is_dir() and ((folder / PLAN_FILE).exists() or not any(folder.iterdir()))):
        raise ResultError(f"--out {folder}: this exists and is not a plan; give another folder")


def write_plan(plan: CapacityPlan, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the plan as HTML, Markdown and JSON, and its tables as CSV and JSON; replaces an earlier plan. Raises ResultError."""
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


def plan_tables(plan: CapacityPlan) -> tuple[Table, ...]:
    """The tables that have rows, in the order of the page."""
    return tuple(table for subject in _SUBJECTS for table in subject.tables(plan) if table.rows)


def render_plan_plots(plan: CapacityPlan) -> dict[str, str]:
    """SVG by name, in the order of the page; plots without values are left out."""
    return render_svgs(lambda: ((name, plot.draw(plan)) for subject in _SUBJECTS for name, plot in subject.plots.items()))


def plan_page(plan: CapacityPlan, plots: Mapping[str, str]) -> Page:
    """The answer, the caveats, each subject with its plots (SVG by name) and tables, and what the plan is based on."""
    notes = {title: [Bullets.of(sentences)] for title, sentences in plan_notes(plan)}
    blocks: dict[str, list[Block]] = {"The answer": [Bullets.of(headline(plan))]}
    blocks |= {title: [*notes[title]] for title in CAVEATS if title in notes}
    for subject in _SUBJECTS:
        for name, plot in subject.plots.items():
            if name in plots:
                blocks.setdefault(subject.title, []).append(Figure(plot.title, plot.caption, plots[name]))
        for table in subject.tables(plan):
            if table.rows:
                blocks.setdefault(table.title, []).append(table)
    blocks |= {title: [*blocks_of_notes] for title, blocks_of_notes in notes.items() if title not in CAVEATS}
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
        cost = f", for {money(chosen.cost_per_hour, chosen)} per hour ({money(chosen.cost_per_million, chosen)} per million inferences)"
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
    return [*sentences, *(sentence for subject in _SUBJECTS for sentence in subject.answer(plan))]


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
        return f"{money(one.cost_per_hour or 0.0, one)}/h"
    return f"{one.fleet.replicas if one.fleet else 0}"


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

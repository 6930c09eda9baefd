"""A capacity plan: the answer in sentences, its page, and the files of its folder."""

import decimal
import itertools
import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from perfkit.errors import ResultError
from perfkit.plan.capacity import HOURS_PER_YEAR, count_replicas
from perfkit.plan.model import CapacityPlan, plan_document
from perfkit.plan.queueing import MEAN_AT_MOST, P99_AT_MOST
from perfkit.plan.token_demand import fewest
from perfkit.report.chart import ChartGroup
from perfkit.report.page import Block, Bullets, Fact, Figure, Headline, Item, Page, Paragraph, next_blocks, sections_of, write_files
from perfkit.report.plan_charts import gpu_group, held_out_group, latency_throughput_group, rate_group, throughput_group
from perfkit.report.plan_forecast import FORECAST, order_day
from perfkit.report.plan_ranking import RANKING, front_table
from perfkit.report.plan_risk import RISK
from perfkit.report.plan_schedule import SCHEDULE, schedule_lines
from perfkit.report.plan_tables import (
    PlanPlot,
    PlanSubject,
    configurations_table,
    fleets_table,
    held_out_table,
    laws_table,
    money,
    points_table,
    predictions_table,
    what_if_table,
)
from perfkit.report.render import render_csv, render_html, render_markdown
from perfkit.report.table import Table
from perfkit.result.distribution import QUANTILES
from perfkit.scenario.slo import FURTHER_KEYS
from perfkit.stats.slo import SloLimits
from perfkit.units import format_duration_ns, format_exact_duration, format_percent, format_rate_per_s

PLAN_FILE = "plan.json"
CAVEATS = ("Left out", "Extrapolated", "Notes")
"""The sections to read before relying on any figure."""
_RATES = PlanSubject(
    "How it was measured",
    lambda plan: [configurations_table(plan), predictions_table(plan), points_table(plan), fleets_table(plan), front_table(plan)],
    {
        "rate": PlanPlot(
            "Response time against arrival rate",
            "Points are measurements, repetitions pooled. At hollow points the target did not keep up; they are not part of the fit. A new measurement "
            "after a restart lies within its band with a probability of 90 %. The grey stripe is the 90 % interval of the capacity. Curves end at the highest fitted rate.",
            rate_group,
        ),
        "latency-throughput": PlanPlot(
            "Response time against throughput",
            "Measurements of open loops. Where the line turns upwards, more load adds waiting but no throughput.",
            latency_throughput_group,
        ),
        "gpu": PlanPlot(
            "GPUs against arrival rate",
            "Means over the measured windows. Busy is the share of time in which a kernel ran, not the used share of the capacity. Energy is power ÷ inferences per second.",
            gpu_group,
        ),
    },
)
_CLOSED_LOOPS = PlanSubject(
    "Closed loops: the scalability law, knee and bounds",
    lambda plan: [laws_table(plan)],
    {
        "throughput": PlanPlot(
            "Throughput against concurrency",
            "Closed loops. The curve is Gunther's universal scalability law, fitted to logarithms; it is dashed beyond the measurements, up to 1.5 times the largest "
            "concurrency. The tables say whether its peak was observed and whether the law applies.",
            throughput_group,
        )
    },
)
_QUEUEING_MODELS = PlanSubject(
    "Queueing models on held-out points",
    lambda plan: [held_out_table(plan), what_if_table(plan)],
    {
        "held-out": PlanPlot(
            "Queueing models on held-out points",
            "Each model was fitted to the points up to 70 % of the capacity and predicts the others. Dashed lines: the error that is allowed, 10 % of a mean and 15 % of a p99. "
            "A model is rejected if its errors exceed them by more than the scatter of the measurements explains, and not validated if the scatter is too large to tell, or an error "
            f"exceeds {100 * MEAN_AT_MOST:.0f} % of a mean or {100 * P99_AT_MOST:.0f} % of a p99. Neither is used; the note below the table gives the figures.",
            held_out_group,
        )
    },
)
_MEASURED = (_RATES, _CLOSED_LOOPS, _QUEUEING_MODELS)
_SUBJECTS = (RISK, RANKING, SCHEDULE, FORECAST, *_MEASURED)
"""In the order of the page: first what is decided, then how it was measured."""
_CSV_DIGITS, _LISTED = 6, 3


def check_plan_folder(folder: pathlib.Path) -> None:
    """Raises ResultError if the folder holds something other than a plan."""
    if folder.exists() and not (folder.is_dir() and ((folder / PLAN_FILE).exists() or not any(folder.iterdir()))):
        raise ResultError(f"--out {folder}: this exists and is not a plan; give another folder")


def write_plan(plan: CapacityPlan, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the plan as HTML, Markdown and JSON, and its tables as CSV and JSON; replaces an earlier plan. Raises ResultError."""
    from perfkit.report.chart_svg import render_plots

    check_plan_folder(folder)
    charts = plan_charts(plan)
    texts = {folder / PLAN_FILE: json.dumps(plan_document(plan), indent=1) + "\n"}
    texts |= {folder / "plots" / f"{name}.svg": svg for name, svg in render_plots(charts).items()}
    for table in plan_tables(plan):
        texts[folder / "tables" / f"{table.name}.csv"] = render_csv(table, digits=_CSV_DIGITS)
        texts[folder / "tables" / f"{table.name}.json"] = json.dumps(table.records, indent=1) + "\n"
    texts[folder / "plan.md"] = render_markdown(plan_page(plan, {}))
    texts[folder / "plan.html"] = render_html(plan_page(plan, charts))
    earlier = [file for pattern in ("plots/*.svg", "tables/*.csv", "tables/*.json") for file in folder.glob(pattern)]
    write_files(texts, replacing=earlier, place=f"--out {folder}")
    return list(texts)


def plan_tables(plan: CapacityPlan) -> tuple[Table, ...]:
    """The tables that have rows, in the order of the page."""
    return tuple(table for subject in _SUBJECTS for table in subject.tables(plan) if table.rows)


def plan_charts(plan: CapacityPlan) -> dict[str, ChartGroup]:
    """Groups of charts by name, in the order of the page; those without values are left out."""
    groups = {name: plot.group(plan) for subject in _SUBJECTS for name, plot in subject.plots.items()}
    return {name: group for name, group in groups.items() if group is not None}


def plan_page(plan: CapacityPlan, charts: Mapping[str, ChartGroup]) -> Page:
    """The answer, the caveats, each subject with its sentences, charts and tables, and what the plan is based on.

    Beside the headline, which a page with charts has, the answer does not tell its figures again.
    """
    notes = {title: [Bullets.of(sentences)] for title, sentences in plan_notes(plan)}
    whole, capacity = _capacity_sentences(plan)
    risk = next(iter(RISK.answer(plan)), "")
    of_replica = (capacity[0], _each_receives(plan)) if charts else capacity  # the headline has the terms of the sum
    items = (*_caveats_item(notes), *map(Item, of_replica), *([Item(risk, RISK.title_of(plan))] if risk else []))
    answer: list[Block] = [
        *([] if charts else [Paragraph(whole, is_strong=True)]),
        Bullets(items),
        *(next_blocks(_next_step(plan)) if charts else []),
    ]
    blocks: dict[str, list[Block]] = {"": [_large_figure(plan, notes), *answer]} if charts else {"The answer": answer}
    for subject in _SUBJECTS:
        if subject is _MEASURED[0]:  # the caveats come between what is decided and how it was measured
            blocks |= {title: [*notes[title]] for title in CAVEATS if title in notes}
        if told := [sentence for sentence in subject.answer(plan) if sentence != risk]:
            blocks.setdefault(subject.title_of(plan), []).append(Bullets.of(told))
        for name, plot in subject.plots.items():
            if name in charts:
                blocks.setdefault(subject.title_of(plan), []).append(Figure(plot.title, plot.caption, charts[name]))
        for table in subject.tables(plan):
            if table.rows:
                blocks.setdefault(table.title, []).append(table)
    blocks |= {title: [*blocks_of_notes] for title, blocks_of_notes in notes.items() if title not in CAVEATS}
    footer = "Made by `perfkit plan`. `plan.json` and `tables/` beside this page hold every figure."
    return Page(plan_title(plan), sections_of(blocks), footer=footer)


def _large_figure(plan: CapacityPlan, notes: Collection[str]) -> Headline:
    """The replicas, what they consist of, and what they cost."""
    chosen, counts = plan.chosen, _counts(plan)
    facts = [
        Fact("by the estimate", f"{counts.by_estimate:,}"),
        Fact("for its uncertainty", f"+{counts.by_limit - counts.by_estimate:,}"),
        Fact(f"for {counts.reason}", f"+{counts.replicas - counts.by_limit:,}"),
    ]
    if chosen.cost_per_hour is not None:
        facts.append(Fact("a month", money(chosen.cost_per_hour * HOURS_PER_YEAR / 12, chosen)))
    if day := order_day(plan):
        facts.append(Fact("order more by", day))
    caveat = next((title.lower() for title in CAVEATS if title in notes), "")
    caption = f"replica{'s' * (counts.replicas != 1)} of {chosen.name} for {format_rate_per_s(plan.inputs.demand_per_s)} within {slo_text(plan.inputs.slo)}"
    return Headline(
        f"{counts.replicas:,}",
        caption,
        "",
        f"planned, with caveats: {caveat}" if caveat else "planned",
        "open" if caveat else "good",
        tuple(facts),
    )


class _Counts(NamedTuple):
    """Replicas by the estimate of the capacity, by its lower limit, and in all, with what the last step is for."""

    by_estimate: int
    by_limit: int
    replicas: int
    reason: str


def _counts(plan: CapacityPlan) -> _Counts:
    chosen = plan.chosen
    fleet, capacity = chosen.fleet, chosen.capacity
    assert fleet is not None
    assert capacity is not None
    by_estimate, by_limit = (
        count_replicas(fleet.demand_per_s, rate_per_s * chosen.batch_size, headroom=0, failure_headroom=0).replicas
        for rate_per_s in (capacity.per_s, capacity.low_per_s)
    )
    return _Counts(by_estimate, by_limit, fleet.replicas, fleet.reason)


def _next_step(plan: CapacityPlan) -> tuple[str, str]:
    """To measure one replica at the rate that the plan relies on."""
    chosen = plan.chosen
    assert chosen.capacity is not None
    rate = rate_rounded_down(chosen.capacity.low_per_s)
    return (
        f"Next: check on one replica that it keeps the SLO at {rate}, the rate that the plan relies on.",
        f"perfkit run SCENARIO --set 'load={{open: {{rate: {rate}}}}}'",
    )


def rate_rounded_down(rate_per_s: float) -> str:
    """A rate with three digits and no exponent, not above what it is: `1230/s`."""
    rounded = decimal.Context(prec=3, rounding=decimal.ROUND_DOWN).create_decimal(repr(float(rate_per_s)))
    return f"{rounded:f}/s"


def _caveats_item(notes: Collection[str]) -> list[Item]:
    present = [f"“{title}”" for title in CAVEATS if title in notes]
    return [Item(f"Before relying on this, read {' and '.join(present)} below.")] if present else []


def plan_title(plan: CapacityPlan) -> str:
    """Model, hardware and date of the measurements: `densenet_onnx on 4 × H100, 2026-11-22: capacity plan`."""
    models = list(dict.fromkeys(one.model for one in plan.configurations))
    subject = " and ".join(models) if len(models) <= _LISTED else f"{len(models)} models"
    hardware = " and ".join(plan.hardware) if len(plan.hardware) <= _LISTED else f"{len(plan.hardware)} kinds of hardware"
    return f"{subject}{f' on {hardware}' if hardware else ''}{f', {plan.measured_on}' if plan.measured_on else ''}: capacity plan"


def headline(plan: CapacityPlan, *, is_listed: bool = False) -> list[str]:
    """The answer in sentences; `is_listed`: with a line for each way to run the fleet over the day."""
    answers = (schedule_lines(plan) if is_listed and subject is SCHEDULE else subject.answer(plan) for subject in _SUBJECTS)
    whole, capacity = _capacity_sentences(plan)
    return [whole, " ".join(capacity), *itertools.chain.from_iterable(answers)]


def _capacity_sentences(plan: CapacityPlan) -> tuple[str, tuple[str, str]]:
    """The number of replicas with its cost; the capacity of one, and what the number consists of."""
    chosen, inputs = plan.chosen, plan.inputs
    fleet, capacity = chosen.fleet, chosen.capacity
    assert fleet is not None
    assert capacity is not None
    replicas = f"{fleet.replicas:,} replica{'s' if fleet.replicas > 1 else ''}"
    cost, tokens, per_tokens = "", inputs.tokens_per_request, ""
    if tokens is not None and chosen.cost_per_million is not None:
        per_tokens = f", {money(chosen.cost_per_million / fewest(tokens), chosen)} per million output tokens"
    if chosen.cost_per_hour is not None and chosen.cost_per_million is not None:
        cost = f", for {money(chosen.cost_per_hour, chosen)} per hour ({money(chosen.cost_per_million, chosen)} per million inferences{per_tokens})"
    low, middle, high = (format_rate_per_s(rate_per_s) for rate_per_s in (capacity.low_per_s, capacity.per_s, capacity.high_per_s))
    demand = format_rate_per_s(inputs.demand_per_s)
    if chosen.batch_size > 1:
        demand, middle = demand.replace("/s", " inferences/s"), middle.replace("/s", f" requests/s of {chosen.batch_size} inferences each")
    if tokens is not None:
        demand = f"{format_rate_per_s(inputs.demand_per_s * fewest(tokens)).replace('/s', ' output tokens/s')}, {demand} at {fewest(tokens):.4g} tokens a request,"
    counts = _counts(plan)
    return (
        f"{replicas} of {chosen.name} serve{'s' if fleet.replicas == 1 else ''} {demand} within {slo_text(inputs.slo)}, decided by {fleet.reason}{cost}.",
        (
            f"One replica serves {middle} (90 % interval {low} to {high}); the plan uses {low}.",
            (
                f"{counts.by_estimate:,} by the estimate + {counts.by_limit - counts.by_estimate:,} for its uncertainty + {fleet.replicas - counts.by_limit:,} for {fleet.reason} "
                f"= {replicas}. {_each_receives(plan)}"
            ),
        ),
    )


def _each_receives(plan: CapacityPlan) -> str:
    fleet = plan.chosen.fleet
    assert fleet is not None
    each = format_rate_per_s(fleet.rate_per_replica_per_s / plan.chosen.batch_size)
    return f"Each receives {each}, which leaves {format_percent(fleet.headroom)} headroom."


def predictions(plan: CapacityPlan) -> list[str]:
    """The predictions at the rates asked for, in sentences."""
    sentences = []
    for one in plan.configurations:
        for prediction in one.predictions:
            percentile, expected = prediction.percentile.replace("_", "."), prediction.expected
            value, low, high = (format_duration_ns(value_ns) for value_ns in (expected.value, expected.low, expected.high))
            interval = f"90 % interval {low} to {high} (half-width {format_percent(expected.half_width)})"
            sentences.append(f"{one.name} at {format_rate_per_s(expected.rate_per_s)}: {percentile} {value}, {interval}.")
    return sentences


def slo_text(slo: SloLimits) -> str:
    """The limits in words: `p99 < 180.6 ms, errors < 0.1 %`."""
    names = {quantile: name.replace("_", ".") for name, quantile in QUANTILES.items()}
    limits = [f"{names[quantile]} < {format_exact_duration(limit_ns)}" for quantile, limit_ns in slo.percentiles_ns.items()]
    limits += [
        f"{FURTHER_KEYS[recorded].replace('_', ' ')} {names[quantile]} < {format_exact_duration(limit_ns)}"
        for recorded, of_part in slo.further_ns.items()
        for quantile, limit_ns in of_part.items()
    ]
    errors = "" if slo.error_rate is None else f"errors < {100 * slo.error_rate:.3g} %" if slo.error_rate else "no errors"
    return ", ".join([*limits, *([errors] if errors else [])])


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
        f"{one.name}: {'' if validation.model in validation.sentence else f'{validation.model}: '}{validation.sentence}"
        for one in plan.configurations
        for validation in one.validations
        if not validation.errors
    ]
    sections = (
        ("Left out", refused), ("Extrapolated", of_each("extrapolated")), ("Notes", [*plan.notes, *of_each("notes"), *rejected]),
        ("Assumptions", list(plan.assumptions)), ("Data", data),
    )  # fmt: skip
    unique = [(title, list(dict.fromkeys(sentences))) for title, sentences in sections]
    return [(title, sentences) for title, sentences in unique if sentences]

"""A tune: what stdout shows, Markdown, and its page."""

import math
import sys
from collections.abc import Iterator

from perfkit.gate.tune.objective import Objective, objective_of
from perfkit.gate.tune.outcome import Row, TuneOutcome, percent_text
from perfkit.report.chart import BLUE, GREEN, MUTED, VERMILLION, Axis, Chart, ChartGroup, Line
from perfkit.report.page import Block, Bullets, Fact, Facts, Figure, Headline, Page, Paragraph, Section, Trust, next_blocks, sections_of
from perfkit.report.render import render_html, render_markdown
from perfkit.report.table import Cell, Column, Mark, Table, interval_columns
from perfkit.report.terminal import fill, fitted_text, print_status_line, terminal_width
from perfkit.stats.ratio_interval import Estimate
from perfkit.text import sentence, to_the_second, write_styled
from perfkit.units import format_minutes, format_rate_per_s

_TRUST: dict[str, Trust] = {"better": "good", "kept": "good", "undecided": "open"}
_WORDS = {"better": "better", "kept": "keep the present one", "undecided": "not decided yet"}
_STYLES = {"better": "green", "kept": "green", "undecided": "yellow"}
_MARKS: dict[str, Mark] = {
    "racing": "",
    "worse": "information",
    "refused": "invalid",
    "failed": "invalid",
    "unmet": "invalid",
    "invalid": "invalid",
}
_GIVES_WAY = ("p50_ns", "windows", "concurrency")
_CAPTION = (
    "Each mark is a configuration at the concurrency where it is worth most, with the 95 % intervals of both figures. Those that were shown worse "
    "were measured in fewer windows, so their marks are less exact."
)


def tune_table(outcome: TuneOutcome) -> Table:
    """One row for each configuration: the best one, the present one, those not shown worse, and the others, the better ones first."""
    columns = (
        Column("number", "no.", "count"),
        Column("values", "configuration", "prose", configuration_text),
        Column("throughput_per_s", "throughput", "rate_per_s"),
        Column("p50_ns", "p50", "duration_ns"),
        Column("p99_ns", "p99", "duration_ns"),
        *([Column("slo", "SLO", "prose", lambda row: Cell(row.slo, row.slo or "–"))] if outcome.slo else []),
        *([Column("server_cpus", "CPUs", "number")] if any(row.server_cpus is not None for row in outcome.rows) else []),
        *([Column("concurrency", "in flight", "count")] if outcome.rate_per_s is None else []),
        Column("windows", "windows", "count"),
        Column("state", "state", "prose", lambda row: Cell(row.state, state_text(row, outcome))),
    )
    rows = sorted(outcome.rows, key=lambda row: (row.number != outcome.best, row.number != 0, row.state != "racing", _rank(row, outcome)))
    chosen = {"better": outcome.best, "kept": 0, "undecided": None}[outcome.kind]
    marks = ["pass" if row.number == chosen else _MARKS.get(row.state, "") for row in rows]
    return Table.of("configurations", "Configurations", columns, rows, _note(outcome), marks)


def _rank(row: Row, outcome: TuneOutcome) -> float:
    """The lower the better, by what the objective compares."""
    if _objective(outcome).is_time:
        return math.inf if row.p99_ns is None else row.p99_ns
    per_cpu = row.server_cpus if outcome.objective == "cost" and row.server_cpus else 1.0
    return -(row.throughput_per_s or 0.0) / per_cpu


def effects_table(outcome: TuneOutcome) -> Table:
    """What each key does by itself."""
    figure = _objective(outcome).figure.removeprefix("the ")
    columns = (
        Column("key", "key", "code"),
        Column("value", "value", "prose"),
        Column("number", "no.", "count"),
        *interval_columns("ratio", f"{figure} ÷ present", "number", lambda one: Estimate(one.ratio, *one.interval)),
        Column("rounds", "rounds", "count"),
    )
    note = "All else is as at present. The intervals are 95 % each, from the rounds that both were measured in: of twenty, one is expected to be wrong."
    return Table.of("effects", "What each key does by itself", columns, outcome.effects, note)


def _objective(outcome: TuneOutcome) -> Objective:
    return objective_of(outcome.objective, outcome.rate_per_s)


def configuration_text(row: Row) -> str:
    """The values of a configuration in words."""
    return ", ".join(f"{key} {value}" for key, value in row.values.items())


def state_text(row: Row, outcome: TuneOutcome) -> str:
    """What became of a configuration, in words."""
    missed = " or ".join(["SLO"] * bool(outcome.slo) + ["limits"] * bool(outcome.constraints))
    texts = {
        "racing": "not told apart from the best"
        if row.number != outcome.best
        else "leads, but not by enough"
        if outcome.kind == "kept" and row.number
        else "best",
        "worse": f"worse than no. {row.better} (round {row.dropped_after})",
        "refused": f"refused: {row.reason}",
        "failed": f"failed while it was measured: {row.reason}",
        "unmet": f"{missed} missed at every load: {row.reason}" if missed else f"not measured: {row.reason}",
        "invalid": f"not measurable: {row.reason}",
        "waiting": "not measured: the time was over",
    }
    keeps = "present, to keep; " if outcome.kind == "kept" and outcome.best != 0 else "present; "
    return f"{keeps * (row.number == 0)}{texts[row.state]}"


def print_tune(outcome: TuneOutcome) -> None:
    """Prints the answer on stdout: the sentence, what limits it, and the configurations."""
    width = terminal_width()
    lines = [fill(sentence(text), width) for text in (outcome.sentence, *outcome.notes, *filter(None, [outcome.next_step]))]
    lines += [outcome.command] if outcome.command else []
    gives_way = (*_GIVES_WAY, "throughput_per_s" if _objective(outcome).is_time else "p99_ns")
    lines += ["", fitted_text(tune_table(outcome), width, gives_way, "tune.json has them")]
    write_styled(sys.stdout, "\n".join(lines) + "\n")
    sys.stdout.flush()


def print_tune_status(outcome: TuneOutcome, exit_code: int) -> None:
    """Prints the kind of the answer and the exit code on stderr as one line."""
    of_all = f" of {outcome.space:,}" if len(outcome.rows) < outcome.space else ""
    details = f"{len(outcome.rows):,}{of_all} configurations, {outcome.rounds:,} rounds, {format_minutes(outcome.duration_s)}"
    print_status_line(outcome.kind, details, exit_code, _STYLES[outcome.kind])


def render_tune_markdown(outcome: TuneOutcome) -> str:
    """GitHub Markdown: the answer, and the configurations."""
    blocks: dict[str, list[Block]] = {
        "": [Paragraph(outcome.sentence, is_strong=True), *_next_step(outcome)],
        "Attention": [Bullets.of(outcome.notes)] if outcome.notes else [],
        "Configurations": [tune_table(outcome)],
        "What each key does by itself": [effects_table(outcome)] if outcome.effects else [],
    }
    return render_markdown(Page(f"perfkit tune: {outcome.scenario}: {_WORDS[outcome.kind]}", sections_of(blocks)))


def render_tune_html(outcome: TuneOutcome) -> str:
    """The outcome as one self-contained HTML document."""
    return render_html(tune_page(outcome))


def tune_page(outcome: TuneOutcome) -> Page:
    """The page of a tune."""
    blocks: dict[str, list[Block]] = {
        "": [_headline(outcome), Paragraph(outcome.sentence), *_next_step(outcome), *_chart(outcome)],
        "Attention": [Bullets.of(outcome.notes)] if outcome.notes else [],
        "Configurations": [tune_table(outcome)],
        "What each key does by itself": [effects_table(outcome)] if outcome.effects else [],
    }
    facts = tuple(_facts(outcome))
    return Page(
        f"Tune: {outcome.scenario}",
        (*sections_of(blocks), Section("How it was measured", (Facts((("", facts),)),), is_folded=True)),
        subtitle=f"{outcome.target}, started {to_the_second(outcome.started_at)}",
        footer="Made by `perfkit tune`.",
    )


def _next_step(outcome: TuneOutcome) -> list[Block]:
    if not outcome.next_step:
        return []
    return next_blocks((f"Next: {outcome.next_step[0].lower()}{outcome.next_step[1:]}", outcome.command))


def _headline(outcome: TuneOutcome) -> Headline:
    figure, caption, interval = "", "", ""
    if outcome.ratio is not None and outcome.interval is not None:
        figure, interval = f"{outcome.ratio:.2f} ×", f"{outcome.interval[0]:.2f} to {outcome.interval[1]:.2f}"
        caption = f"{_objective(outcome).figure} of the present configuration"
    elif outcome.best is not None and (rate := outcome.row(outcome.best).throughput_per_s) is not None:
        figure, caption = format_rate_per_s(rate), "throughput of the best configuration"
    measured = f"{len(outcome.rows):,}{f' of {outcome.space:,}' if len(outcome.rows) < outcome.space else ''}"
    facts = [Fact("configurations", measured), Fact("time", format_minutes(outcome.duration_s))]
    if outcome.others_better_by is not None and outcome.kind != "undecided":
        better = outcome.others_better_by
        facts.insert(0, Fact("how much better another one may be", f"≤ {percent_text(better)}" if better > 0 else "none is"))
    return Headline(figure, caption, interval, _WORDS[outcome.kind], _TRUST[outcome.kind], tuple(facts), outcome.confidence)


def _chart(outcome: TuneOutcome) -> Iterator[Block]:
    """Throughput against p99."""
    groups = {
        "best": (GREEN, [row for row in outcome.rows if row.number == outcome.best]),
        "present": (VERMILLION, [row for row in outcome.rows if row.number == 0 != outcome.best]),
        "not told apart from the best": (
            BLUE, [row for row in outcome.rows if row.state == "racing" and row.number not in (0, outcome.best)],
        ),
        "shown worse": (MUTED, [row for row in outcome.rows if row.state == "worse" and row.number != 0]),
    }  # fmt: skip
    lines = []
    for name, (colour, belonging) in groups.items():
        rows = [row for row in belonging if row.throughput_per_s is not None and row.p99_ns is not None]
        if rows:
            rates, times = [row.throughput_per_s or 0.0 for row in rows], [(row.p99_ns or 0) / 1e6 for row in rows]
            lines.append(
                Line(
                    name,
                    tuple(rates),
                    tuple(times),
                    colour,
                    "large" if name == "best" else "dots",
                    intervals=tuple(map(_intervals, rows)),
                    labels=tuple(map(configuration_text, rows)),
                )
            )
    if lines:
        chart = Chart("throughput and p99", Axis("throughput", "/s"), Axis("p99", "ms"), tuple(lines))
        yield Figure("", _CAPTION, ChartGroup((chart,)))


def _intervals(row: Row) -> tuple[float, float, float, float] | None:
    """The ends of the intervals of throughput and p99 in milliseconds; those of one that is not known are the figure itself."""
    if row.throughput_interval_per_s is None and row.p99_interval_ns is None:
        return None
    low_per_s, high_per_s = row.throughput_interval_per_s or (row.throughput_per_s or 0.0, row.throughput_per_s or 0.0)
    low_ns, high_ns = row.p99_interval_ns or (row.p99_ns or 0, row.p99_ns or 0)
    return low_per_s, high_per_s, low_ns / 1e6, math.inf if high_ns is None else high_ns / 1e6


def _note(outcome: TuneOutcome) -> str:
    return f"worse: shown by Student's t, wrong for the best configuration with a probability of at most {outcome.error_rate:.1%}"


def _facts(outcome: TuneOutcome) -> Iterator[tuple[str, str]]:
    yield "perfkit", outcome.perfkit_version
    yield (
        "objective",
        outcome.objective + ("" if outcome.rate_per_s is None else f", Poisson arrivals at {format_rate_per_s(outcome.rate_per_s)}"),
    )
    if len(outcome.rows) < outcome.space:
        yield (
            "space",
            f"{outcome.space:,} configurations; those measured differ by one key from the present or a leading one, or were forecast to be the best",
        )
    yield "rounds", f"{outcome.rounds}, each in random order"
    yield "confirmation", f"{outcome.pairs} pairs of the best and the present configuration, interval {outcome.confidence:.1%}"
    yield "wrong bounds", f"at most {outcome.error_rate:.1%} of races, 4 % where the windows of the best one vary far more than the others'"
    if outcome.slo:
        yield "SLO", ", ".join(f"{name.replace('_', '.')} {limit}" for name, limit in outcome.slo.items())
    if outcome.constraints:
        yield "limits", ", ".join(f"{what} ≤ {most}" for what, most in outcome.constraints.items())

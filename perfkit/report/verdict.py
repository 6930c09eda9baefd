"""A gate's verdict: its table, what stdout shows, and Markdown for pull requests with a plot of the pairs in characters."""

import functools
import math
import re
import sys
from collections.abc import Iterator, Sequence

from perfkit.gate.sentences import DECIDED, finding, format_change, headline, metric_title
from perfkit.gate.verdict import MAXIMUM_EFFECT, Comparison, Verdict
from perfkit.report.render import render_markdown_table
from perfkit.report.table import MISSING, Cell, Column, Mark, Table
from perfkit.report.terminal import fill, fitted_text, terminal_width
from perfkit.text import markdown as escape
from perfkit.text import one_line, sentence, write_styled
from perfkit.units import format_duration_ns, format_rate_per_s

_SYMBOLS = {"pass": "✅", "regressed": "❌", "inconclusive": "❔", "incomparable": "🚫", "invalid": "⚠️", "error": "💥"}
_MDE = "minimum detectable effect: the smallest worsening that 9 of 10 gates as noisy as this one detect"
EXPLAINED_EFFECT = f"{_MDE[0].upper()}{_MDE[1:]}"
_GIVES_WAY = ("adjusted_p", "minimum_detectable_effect", "margin", "baseline", "candidate")
_ELSEWHERE = "verdict.json and the page of --html have them"
_BRIEF_REASONS = 2
_STRIP_WIDTH = 49  # odd, so that "no change" has the character in the middle
_DENSITY = "·∘○●"
_REACHES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def metrics_table(comparisons: Sequence[Comparison], note: str = "") -> Table:
    """One row per metric and load point; those that do not gate have no margin and no verdict."""
    columns = (
        Column("metric", "metric", value=lambda one: metric_title(one.metric)),
        Column("load_point", "load point"),
        *(Column(side, side, "number", functools.partial(_figure, side)) for side in ("baseline", "candidate")),
        Column("change", "change [interval]", "figure", format_change),
        Column("adjusted_p", "adjusted p", "number", lambda one: None if one.adjusted_p is None else Cell(one.adjusted_p, f"{one.adjusted_p:.2g}")),
        *(Column(key, key.replace("_", " "), "share", functools.partial(_effect, key)) for key in ("margin", "minimum_detectable_effect")),
        Column("verdict", "verdict", value=_verdict_cell),
    )  # fmt: skip
    marks: Iterator[Mark] = (one.outcome if one.gated else "information" for one in comparisons)
    return Table.of("metrics", "Metrics", columns, comparisons, note, marks)


def _verdict_cell(one: Comparison) -> str:
    if one.accepted is not None:
        return f"{one.outcome} (accepted until {one.accepted.expires})"
    return one.outcome if one.gated else "for information"


def _figure(side: str, one: Comparison) -> Cell:
    value = getattr(one, side)
    return Cell(value, format_figure(one, value))


def _effect(key: str, one: Comparison) -> Cell | None:
    value = getattr(one, key) if one.gated or key != "margin" else None
    return Cell(value, format_effect(one, value))


def print_verdict(verdict: Verdict) -> None:
    """Prints the verdict on stdout: the notes, the outcome with its reasons, the metrics, the control, and what to do next.

    A terminal gets the first reasons, the metrics that decide, and the first thing to do; the page and `verdict.json` have all.
    """
    width, is_brief = terminal_width(), sys.stdout.isatty()
    reasons = [sentence(reason) for reason in verdict.reasons]
    first = finding(verdict) if not reasons or (verdict.gated and verdict.kind in DECIDED) else reasons.pop(0)
    lines = [fill(f"note: {sentence(note)}", width) for note in verdict.notes]  # what the verdict does not cover is said first
    shown = reasons[:_BRIEF_REASONS] if is_brief else reasons
    lines += [fill(text, width) for text in (f"{verdict.kind.upper()}: {sentence(first)}", *shown)]
    if verdict.failure is not None and verdict.failure.log_title:
        lines += ["", sentence(verdict.failure.log_title), *(f"    {one_line(line)}" for line in verdict.failure.last_lines)]
    if verdict.comparisons:
        confidence = f"{verdict.comparisons[0].confidence:.1%} intervals"
        caption = f"{describe_amount(verdict)}; {confidence}" if is_brief else f"{describe_sides(verdict)}\n{confidence}; {_MDE}"
        table = metrics_table((is_brief and verdict.gated) or verdict.comparisons, caption)
        lines += ["", fitted_text(table, width, _GIVES_WAY, _ELSEWHERE).rstrip("\n")]
    if verdict.control:
        caption = f"control: baseline {one_line(verdict.baseline)} against itself; {verdict.control_pairs} pairs"
        lines += ["", fitted_text(metrics_table(verdict.control, caption), width, _GIVES_WAY, _ELSEWHERE).rstrip("\n")]
    for step in verdict.next_steps[:1] if is_brief else verdict.next_steps:
        lines += ["", fill(f"next: {sentence(step.text)}", width), *([f"    {sentence(step.command)}"] if step.command else [])]
    if left_out := _left_out(len(reasons) - len(shown), len(verdict.next_steps) - 1 if is_brief else 0):
        lines += ["", fill(left_out, width)]
    write_styled(sys.stdout, "\n".join(lines) + "\n")
    sys.stdout.flush()


def _left_out(reasons: int, steps: int) -> str:
    """What a terminal does not get, and where it is; empty if it gets all."""
    counts = [f"{count} more {name}{'s' * (count > 1)}" for count, name in ((reasons, "reason"), (steps, "next step")) if count > 0]
    return f"{' and '.join(counts)}: {_ELSEWHERE}" if counts else ""


def render_verdict_markdown(verdict: Verdict) -> str:
    """GitHub Markdown: the outcome, what to do next, what was compared, the metrics, and the distribution of the pairs."""
    lines = [f"## {_SYMBOLS[verdict.kind]} perfkit gate: {escape(verdict.scenario)}", "", f"**{escape(headline(verdict))}**", ""]
    sides = describe_sides(verdict)
    lines += [f"{escape(sides[0].upper() + sides[1:])}.", "", *(f"> {escape(note)}\n" for note in verdict.notes)]
    if verdict.kind == "regressed" or not verdict.comparisons:
        lines += [*(f"- {escape(reason)}" for reason in verdict.reasons), ""]
    lines += _failure(verdict)
    lines += _next_steps(verdict)
    if verdict.comparisons:
        lines += [render_markdown_table(metrics_table(verdict.comparisons)), ""]
        footnote = (
            f"Intervals: {verdict.comparisons[0].confidence:.1%}. The adjusted p accounts for all metrics and looks; "
            f"up to {verdict.false_alarm_rate:g} it means a regression. {EXPLAINED_EFFECT}. Rows in italics do not affect the verdict."
        )
        lines.append(footnote)
        if verdict.mode == "paired":
            lines += _pair_strips(verdict.comparisons)
    return "\n".join(lines).rstrip() + "\n"


def format_figure(one: Comparison, value: float | None) -> str:
    """A metric's figure in its unit."""
    if value is None:
        return MISSING
    if one.unit == "share":
        return f"{value:.3%}"
    if one.unit == "count":
        return f"{value:,.0f}"
    return format_duration_ns(value) if one.unit == "ns" else format_rate_per_s(value)


def format_effect(one: Comparison, value: float | None) -> str:
    """A margin or an effect on the metric's scale."""
    if value is None:
        return MISSING
    if one.scale == "difference":
        return f"{100 * value:.2g} points"
    return f">{MAXIMUM_EFFECT:.0%}" if value >= MAXIMUM_EFFECT else f"{value:.1%}"


def describe_change(one: Comparison) -> str:
    """The change in one line: `p99 +12.3 % [+7.9,+16.8], n=15, MDE 6 %`; of a share in percentage points."""
    effect = one.minimum_detectable_effect
    mde = "" if effect is None else f", MDE {f'{100 * effect:.2g} points' if one.scale == 'difference' else _per_cent(effect)}"
    return f"{one.metric} {format_change(one).replace(', ', ',')}, n={one.pairs}{mde}"


def describe_sides(verdict: Verdict) -> str:
    """Baseline and candidate, and the number of pairs or runs measured."""
    return f"baseline {one_line(verdict.baseline)}, candidate {one_line(verdict.candidate)}; {describe_amount(verdict)}"


def describe_amount(verdict: Verdict) -> str:
    """The number of pairs or runs measured."""
    if verdict.mode == "stored":
        stored = [verdict.environment.get(name) for name in ("baseline", "candidate")]
        runs = [one_line(str(side.get("runs", "?"))) if isinstance(side, dict) else "?" for side in stored]
        return f"stored results, {runs[0]} against {runs[1]} runs"
    repeated = f", and {verdict.discarded_pairs} more measured again" if verdict.discarded_pairs else ""
    disturbed = f" ({verdict.disturbed_pairs} beside other busy processes; they count, too)" if verdict.disturbed_pairs else ""
    return f"{verdict.pairs} pairs{disturbed}{repeated}"


def _failure(verdict: Verdict) -> Iterator[str]:
    """What the server wrote last, in a block of code."""
    if verdict.failure is not None and verdict.failure.log_title:
        yield from (escape(verdict.failure.log_title), "")
        if verdict.failure.last_lines:
            yield from ("```text", *(one_line(line).replace("`", "'") for line in verdict.failure.last_lines), "```", "")


def _next_steps(verdict: Verdict) -> Iterator[str]:
    """What to do next, as a list with the commands in blocks of code."""
    for step in verdict.next_steps:
        yield f"- **Next**: {escape(step.text)}"
        if step.command:
            command = sentence(step.command)
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", command)), default=0))
            yield from ("", f"  {fence}shell", f"  {command}", f"  {fence}")
        yield ""


def _per_cent(effect: float) -> str:
    return f"more than {100 * MAXIMUM_EFFECT:.0f} %" if effect >= MAXIMUM_EFFECT else f"{100 * effect:.2g} %"


def _pair_strips(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """A strip per metric with the changes of its pairs, slower to the right; all strips share one scale."""
    strips = [(one, slowdowns) for one in comparisons if one.gated and len(slowdowns := pair_slowdowns(one)) > 1]
    if not strips:
        return
    largest = max(max(abs(value) for value in slowdowns) for _, slowdowns in strips)
    reach = next((step for step in _REACHES if math.log1p(step) >= largest), math.expm1(largest))
    titles = [one_line(one.title).replace("`", "'") for one, _ in strips]
    width = max(map(len, titles))
    yield from ("", "<details><summary>Pairs: candidate against baseline, slower to the right</summary>", "", "```text")
    ends = f"{-100 * (1 - 1 / (1 + reach)):.0f} %", f"{100 * reach:+.0f} %"
    yield " " * (width + 2) + ends[0] + "0".center(_STRIP_WIDTH - len(ends[0]) - len(ends[1])) + ends[1]
    for title, (_, slowdowns) in zip(titles, strips, strict=True):
        yield f"{title.ljust(width)}  {_strip(slowdowns, math.log1p(reach))}"
    yield from ("```", "", f"`{_DENSITY[0]}` is one pair, `{_DENSITY[-1]}` {len(_DENSITY)} or more; `|` is no change.", "", "</details>")


def pair_slowdowns(one: Comparison) -> list[float]:
    """Logarithms of the slowdown in each pair; none for shares, and none without both sides' values."""
    if one.scale != "ratio" or len(one.baseline_values) != len(one.candidate_values):
        return []
    pairs = [(base, other) for base, other in zip(one.baseline_values, one.candidate_values, strict=True) if base and other]
    return [math.log(other / base) * (1 if one.better == "lower" else -1) for base, other in pairs]


def _strip(slowdowns: Sequence[float], reach: float) -> str:
    counts = [0] * _STRIP_WIDTH
    for value in slowdowns:
        counts[round((max(-1.0, min(value / reach, 1.0)) + 1) / 2 * (_STRIP_WIDTH - 1))] += 1
    cells = [_DENSITY[min(count, len(_DENSITY)) - 1] if count else " " for count in counts]
    if not counts[_STRIP_WIDTH // 2]:
        cells[_STRIP_WIDTH // 2] = "|"
    return "".join(cells).rstrip()

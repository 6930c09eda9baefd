"""A verdict as GitHub Markdown, for pull requests and job summaries, with the pairs drawn in characters."""

import math
from collections.abc import Iterator, Sequence

from perfkit.gate.verdict import Comparison, Verdict, format_change
from perfkit.report.gate import figure, share
from perfkit.report.markdown import WITHHELD, escaped
from perfkit.report.verdict import counts, headline_of

_MARKS = {"pass": "✅", "regressed": "❌", "inconclusive": "❔", "incomparable": "🚫", "invalid": "⚠️"}
_COLUMNS = ("metric", "load point", "baseline", "candidate", "format_change [interval]", "p", "margin", "MDE", "verdict")
_WIDTH = 49  # characters of a strip, an odd number: no change lies in the middle
_DENSITY = "·∘○●"


def render_verdict_markdown(verdict: Verdict) -> str:
    """Outcome, what it covers, a table, and how the pairs lie."""
    lines = [f"## {_MARKS[verdict.kind]} perfkit gate: {escaped(verdict.scenario)}", "", f"**{escaped(headline_of(verdict))}**", ""]
    lines += [f"Baseline {escaped(verdict.baseline)}, candidate {escaped(verdict.candidate)}; {counts(verdict)}.", ""]
    lines += [f"> {escaped(note)}\n" for note in verdict.notes]
    if verdict.kind == "regressed" or not verdict.comparisons:
        lines += [*(f"- {escaped(reason)}" for reason in verdict.reasons), ""]
    if verdict.comparisons:
        lines += [f"| {' | '.join(_COLUMNS)} |", "|---|---|---:|---:|---:|---:|---:|---:|---|"]
        lines += [f"| {' | '.join(_row(one))} |" for one in verdict.comparisons]
        lines += ["", f"Intervals: {verdict.comparisons[0].confidence:.1%}. {_footnote(verdict)}"]
        if verdict.mode == "paired":
            lines += _pair_plot(verdict.comparisons)
    return "\n".join(lines).rstrip() + "\n"


def _footnote(verdict: Verdict) -> str:
    return (
        f"p is corrected for all metrics and looks; below {verdict.false_alarm_rate:g} it is a regression. "
        "MDE: what such a gate finds in 9 of 10 cases. Rows in italics have no say."
    )


def _row(one: Comparison) -> list[str]:
    p = one.adjusted_p
    cells = [
        one.metric.replace("_", " "),
        one.load_point,
        figure(one, one.baseline),
        figure(one, one.candidate),
        format_change(one),
        WITHHELD if p is None else f"{p:.2g}",
        share(one, one.margin),
        share(one, one.minimum_detectable_effect),
        one.verdict if one.gated else "for information",
    ]
    return [cell if one.gated else f"*{cell}*" for cell in map(escaped, cells)]


def _pair_plot(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """A strip a metric: where the pairs' ratios lie, slower to the right; all strips of one scale."""
    strips = [(one, slowdowns) for one in comparisons if one.gated and len(slowdowns := pair_slowdowns(one)) > 1]
    if not strips:
        return
    reach = max(max(abs(value) for value in slowdowns) for _, slowdowns in strips)
    reach = next((step for step in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if math.log1p(step) >= reach), math.expm1(reach))
    width = max(len(one.title) for one, _ in strips)
    yield from ("", "<details><summary>Pairs: candidate against baseline, slower to the right</summary>", "", "```text")
    ends = f"{-100 * (1 - 1 / (1 + reach)):.0f} %", f"{100 * reach:+.0f} %"
    yield " " * (width + 2) + ends[0] + "0".center(_WIDTH - len(ends[0]) - len(ends[1])) + ends[1]
    for one, slowdowns in strips:
        yield f"{one.title.ljust(width)}  {_strip(slowdowns, math.log1p(reach))}"
    yield from ("```", "", f"`{_DENSITY[0]}` is one pair, `{_DENSITY[-1]}` {len(_DENSITY)} or more; `|` is no change.", "", "</details>")


def pair_slowdowns(one: Comparison) -> list[float]:
    """Of each pair the logarithm of how many times slower the candidate was; empty for shares and where no pairs were kept."""
    if one.scale != "ratio" or len(one.baseline_values) != len(one.candidate_values):
        return []
    pairs = [(base, other) for base, other in zip(one.baseline_values, one.candidate_values, strict=True) if base and other]
    return [math.log(other / base) * (1 if one.better == "lower" else -1) for base, other in pairs]


def _strip(slowdowns: Sequence[float], reach: float) -> str:
    counts = [0] * _WIDTH
    for value in slowdowns:
        counts[round((max(-1.0, min(value / reach, 1.0)) + 1) / 2 * (_WIDTH - 1))] += 1
    cells = [_DENSITY[min(count, len(_DENSITY)) - 1] if count else " " for count in counts]
    if not counts[_WIDTH // 2]:
        cells[_WIDTH // 2] = "|"
    return "".join(cells).rstrip()

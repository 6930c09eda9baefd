"""A gate's verdict as a page: the outcome, the metrics, and charts of the change in each pair."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

from perfkit.gate.verdict import Comparison, Verdict
from perfkit.report.chart import BLUE, MUTED, VERMILLION, Axis, Chart, ChartGroup, Level, Line
from perfkit.report.page import Block, Bullets, Facts, Page, Paragraph, sections_of
from perfkit.report.verdict import EXPLAINED_EFFECT, describe_sides, headline, metrics_table, pair_slowdowns

_CAPTION = (
    "A dot is one pair: how much worse the candidate was than the baseline measured next to it; below zero it was better. The verdict rests on "
    "the interval over all pairs, not on single dots. A trend over the pairs is a drift of the machine."
)


def render_verdict_html(verdict: Verdict) -> str:
    """A verdict as one self-contained HTML document."""
    from perfkit.report.render import render_html

    return render_html(verdict_page(verdict))


def verdict_page(verdict: Verdict) -> Page:
    """The page of a paired or a stored gate."""
    sides = describe_sides(verdict)
    note = ""
    if verdict.comparisons:
        note = f"Intervals: {verdict.comparisons[0].confidence:.1%}. The adjusted p accounts for all metrics and looks; below {verdict.false_alarm_rate:g} it means a regression. {EXPLAINED_EFFECT}."
    control = f"Baseline {verdict.baseline} against itself, {verdict.control_pairs} pairs."
    blocks: dict[str, Sequence[Block]] = {
        "Verdict": [
            *([] if _is_bad(verdict) else [Paragraph(headline(verdict), is_strong=True)]),
            *(Paragraph(reason) for reason in verdict.reasons),
            Paragraph(f"{sides[0].upper()}{sides[1:]}."),
        ],
        "Read before the figures": [Bullets.of(verdict.notes)] if verdict.notes else [],
        "Metrics": [metrics_table(verdict.comparisons, note)] if verdict.comparisons else [],
        "Pairs": list(_figures(verdict)),
        "Control": [Paragraph(control), dataclasses.replace(metrics_table(verdict.control), title="Metrics of the control")]
        if verdict.control
        else [],
        "Environment": [Facts((("", tuple(_facts(verdict))),))],
    }
    return Page(
        f"Gate: {verdict.scenario}",
        sections_of(blocks),
        subtitle=f"{verdict.mode} gate, started {verdict.started_at}",
        banner=headline(verdict) if _is_bad(verdict) else "",
        footer="Made by `perfkit gate`.",
    )


def _is_bad(verdict: Verdict) -> bool:
    return verdict.kind in ("regressed", "incomparable", "invalid")


def _figures(verdict: Verdict) -> Iterator[Block]:
    """Charts of the change in each pair, one for each gated metric that is a ratio."""
    charts = [chart for one in verdict.gated if (chart := _pairs_chart(one))]
    if charts:
        from perfkit.report.chart_svg import chart_block

        yield chart_block("pairs", "Change in each pair", _CAPTION, ChartGroup(tuple(charts), columns=2))


def _pairs_chart(one: Comparison) -> Chart | None:
    changes = [100 * math.expm1(value) for value in pair_slowdowns(one)]
    if len(changes) < 2:
        return None
    numbers = tuple(float(number) for number in range(1, len(changes) + 1))
    lines = [Line("pair", numbers, tuple(changes), BLUE, "dots")]
    if one.slowdown is not None:
        lines.append(Line("estimate over all pairs", (numbers[0], numbers[-1]), (100 * one.slowdown,) * 2, VERMILLION))
    levels = (Level(0.0, "no change", colour=MUTED), Level(100 * one.margin, "margin"))
    reach = max(*map(abs, changes), 100 * one.margin) * 1.15
    y = Axis("worse by", "%", "linear", low=-reach, high=reach)
    return Chart(
        one.title.replace("_", "."),
        Axis("pair", scale="linear", low=0.5, high=len(changes) + 0.5),
        y,
        tuple(lines),
        levels=levels,
        height_px=220,
    )


def _facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    yield "perfkit", verdict.perfkit_version or "unknown"
    yield "false alarms", f"at most {verdict.false_alarm_rate:.2%} of gates without a change"
    for name, value in verdict.environment.items():
        yield name.replace("_", " "), ", ".join(f"{key} {part}" for key, part in value.items()) if isinstance(value, dict) else str(value)

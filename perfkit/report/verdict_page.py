"""A gate's verdict as a page: the outcome, the metrics, and charts of the change in each pair."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from perfkit.gate.sentences import DECIDED, describe_others, finding, format_size, metric_title, worst_of
from perfkit.gate.verdict import MAXIMUM_EFFECT, Comparison, Verdict
from perfkit.report.chart import BLUE, GREEN, MUTED, RED, VERMILLION, Axis, Chart, ChartGroup, Colour, Level, Line, Span
from perfkit.report.page import (
    NEXT,
    Block,
    Bullets,
    Code,
    Fact,
    Facts,
    Figure,
    Headline,
    Item,
    Page,
    Paragraph,
    Section,
    Trust,
    next_blocks,
    sections_of,
)
from perfkit.report.table import MISSING
from perfkit.report.verdict import EXPLAINED_EFFECT, describe_sides, format_figure, metrics_table, pair_slowdowns
from perfkit.text import to_the_second
from perfkit.units import format_minutes, format_signed_change, format_signed_interval

_COLOURS: Mapping[str, Colour] = {"regressed": RED, "inconclusive": VERMILLION, "improved": GREEN, "pass": BLUE}
_INTERVALS = "How much worse the candidate is, with its interval. A pass needs the whole interval to the left of the margin."
_MOST_OTHERS = 2  # metrics that regressed as well, beside the one of the headline
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
        note = f"Intervals: {verdict.comparisons[0].confidence:.1%}. The adjusted p accounts for all metrics and looks; up to {verdict.false_alarm_rate:g} it means a regression. {EXPLAINED_EFFECT}."
    control = f"Baseline {verdict.baseline} against itself, {verdict.control_pairs} pairs."
    is_decided = verdict.kind in DECIDED and bool(verdict.gated)
    rule = decision_sentence(verdict) if is_decided else ""
    blocks: dict[str, Sequence[Block]] = {
        "": [
            _headline(verdict),
            *(Paragraph(text) for text in ((rule,) if is_decided else verdict.reasons)),
            Paragraph(f"{sides[0].upper()}{sides[1:]}."),
        ],
        "Server log": list(_failure(verdict)),
        NEXT: next_blocks(*((step.text, step.command) for step in verdict.next_steps)),
        **_intervals(verdict),
        "Attention": [Bullets(attention)] if (attention := tuple(_attention(verdict))) else [],
        "Metrics": [metrics_table(verdict.comparisons, note)] if verdict.comparisons else [],
    }
    control_table = dataclasses.replace(metrics_table(verdict.control), title="Metrics of the control")
    folded: dict[str, tuple[str, Sequence[Block]]] = {
        "How it was decided": ("", [Bullets.of([f"{finding(verdict)}.", *verdict.reasons, *_rules(verdict)])] if is_decided else []),
        "Pairs": (f"{verdict.pairs} pairs" if verdict.pairs else "", list(_figures(verdict))),
        "Control": (
            f"{verdict.control_pairs} pairs of the baseline with itself",
            [Paragraph(control), control_table] if verdict.control else [],
        ),
        "Time": ("", [Facts((("", tuple(time_facts(verdict))),))] if verdict.timing is not None else []),
        "Environment": ("", [Facts((("", tuple(_facts(verdict))),))]),
    }
    return Page(
        f"Gate: {verdict.scenario}",
        (*sections_of(blocks), *(Section(title, tuple(held), found, is_folded=True) for title, (found, held) in folded.items() if held)),
        subtitle=f"{verdict.mode} gate, started {to_the_second(verdict.started_at)}",
        footer="Made by `perfkit gate`.",
    )


_TRUSTS: Mapping[str, Trust] = {"pass": "good", "inconclusive": "open"}


def _headline(verdict: Verdict) -> Headline:
    """The verdict as a word, with the regression or the largest slowdown that is not ruled out, if it rests on figures."""
    one, figure, caption, interval = worst_of(verdict), "", "", ""
    if one is not None and verdict.kind in DECIDED and one.estimate is not None:
        where = f"{metric_title(one.metric)}, {one.load_point}"
        if one.outcome == "regressed":
            change = (
                f": from {format_figure(one, one.baseline)} to {format_figure(one, one.candidate)}"
                if one.baseline and one.candidate
                else ""
            )
            figure, caption = format_signed_change(one.scale, one.estimate), f"{where}{change}"
        elif one.ruled_out_slowdown is not None and one.ruled_out_slowdown < MAXIMUM_EFFECT:
            figure, caption = f"≤ {format_size(one, one.ruled_out_slowdown)}", f"the largest slowdown that is not ruled out: {where}"
        if figure:
            interval = format_signed_interval(one.scale, one.interval or (None, None))
    others = [
        other for other in verdict.gated if other.outcome == verdict.kind == "regressed" and other is not one and other.estimate is not None
    ]
    facts = [
        Fact(
            f"{metric_title(other.metric)}, {other.load_point}",
            format_signed_change(other.scale, other.estimate or 0.0),
            format_signed_interval(other.scale, other.interval or (None, None)),
        )
        for other in others[:_MOST_OTHERS]
    ]
    facts += [Fact("pairs", str(verdict.pairs))] if verdict.pairs else []
    if verdict.duration_s is not None:
        facts.append(Fact("from start to verdict", format_minutes(verdict.duration_s)))
    confidence = one.confidence if one is not None else 0.95
    return Headline(figure, caption, interval, verdict.kind, _TRUSTS.get(verdict.kind, "bad"), tuple(facts), confidence)


def decision_sentence(verdict: Verdict) -> str:
    """Why the gate decided so, by the metric of the headline: what its interval shows, beside the noise band and the margin."""
    one = worst_of(verdict)
    assert one is not None
    name, margin = metric_title(one.metric), _limit(one, one.margin)
    band = f"the {_limit(one, one.noise_band)} that {'are accepted' if one.accepted else 'count as no change'}"
    at_least, at_most = one.slowdown_interval
    if verdict.kind == "regressed":
        shown = (
            f"by at least {format_size(one, at_least)}, more than {band}"
            if at_least is not None and at_least > one.noise_band
            else f"by more than {band}"
        )
        place = "beyond" if (one.slowdown or 0.0) > one.margin else "within"
        return f"Regressed, since {name} is shown to be worse {shown}. The estimate is {place} the margin of {margin}, which a pass must stay below."
    if verdict.kind == "pass":
        return f"Passed, since the whole interval of each metric is below its margin{_nearest(verdict)}."
    possible = "any amount" if at_most is None or at_most >= MAXIMUM_EFFECT else format_size(one, at_most)
    return (
        f"Undecided: {name} may be worse by {possible}, more than its margin of {margin}, but is not shown to be worse by more than {band}."
    )


def _nearest(verdict: Verdict) -> str:
    """The metric whose interval reaches the largest part of its margin."""
    bounded = [(one, one.ruled_out_slowdown) for one in verdict.gated if one.ruled_out_slowdown is not None and one.margin > 0]
    if not bounded:
        return ""
    one, bound = max(bounded, key=lambda pair: pair[1] / pair[0].margin)
    worse = f"is worse by at most {format_size(one, bound)}, with a margin of {_limit(one, one.margin)}" if bound > 0 else "is not worse"
    return (
        f": {metric_title(one.metric)}, the nearest to it, {worse}" if len(verdict.gated) > 1 else f": {metric_title(one.metric)} {worse}"
    )


def _limit(one: Comparison, size: float) -> str:
    """A noise band or a margin: `10 %`, or `0.5 points` of a share."""
    return f"{round(100 * size, 4):g} {'points' if one.scale == 'difference' else '%'}"


def _rules(verdict: Verdict) -> Iterator[str]:
    """What the error rates are, and where the intervals' confidence comes from."""
    yield (
        f"A metric has regressed if it is shown to be worse than its noise band; at most {verdict.false_alarm_rate:.2%} of gates without a change say so. "
        "It passes if its interval ends below the margin."
    )
    if verdict.mode == "paired":
        yield (
            f"The intervals are {verdict.gated[0].confidence:.1%} intervals, since a gate looks several times: this is the part that the last "
            "look has in the errors of all looks together."
        )
    if verdict.disturbed_pairs:
        yield f"The {verdict.disturbed_pairs} disturbed pairs count: the intervals reach further towards worse, by as much as the load generator may have caused."


def _intervals(verdict: Verdict) -> Mapping[str, Sequence[Block]]:
    """The change of each gated metric with its interval and margin, beside each other, under a title that says what all have in common."""
    gated = [one for one in verdict.gated if one.scale == "ratio" and one.slowdown is not None]
    if not gated:
        return {}
    metrics, load_points = ({getattr(one, name) for one in gated} for name in ("metric", "load_point"))
    names = {
        one.title: metric_title(one.metric)
        if len(load_points) == 1
        else one.load_point
        if len(metrics) == 1
        else f"{metric_title(one.metric)}, {one.load_point}"
        for one in gated
    }
    title = f"Change of {metric_title(gated[0].metric) if len(metrics) == 1 else 'each metric'}{f' at {gated[0].load_point}' if len(load_points) == 1 else ''}"
    middles = [one.slowdown for one in gated if one.slowdown is not None and math.isfinite(one.slowdown)]
    bounds = [end for one in gated for end in (one.margin, *one.slowdown_interval) if end is not None and end < MAXIMUM_EFFECT]
    ends = [100 * end for end in (*middles, *bounds)]
    low, high = min(0.0, *ends) - 1, max(ends) + 1
    rows = {one.title: float(len(gated) - index) for index, one in enumerate(gated)}
    lines = []
    for outcome, colour in _COLOURS.items():
        own = [one for one in gated if one.outcome == outcome]
        if own:
            reaches = [
                tuple(100 * end if end is not None else beyond for end, beyond in zip(one.slowdown_interval, (low, high), strict=True))
                for one in own
            ]
            row = [rows[one.title] for one in own]
            lines.append(Line(
                outcome, tuple(100 * (one.slowdown or 0.0) for one in own), tuple(row), colour, "dots",
                tuple((max(left, low), min(right, high), at, at) for (left, right), at in zip(reaches, row, strict=True)),
                labels=tuple(names[one.title] for one in own),
            ))  # fmt: skip
    margins = sorted({one.margin for one in gated})
    spans = [Span(0.0, 100 * margins[0], f"within the margin of {_limit(gated[0], margins[0])}")]
    if len(margins) > 1:
        spans = []
        lines.append(Line("margin of the metric", tuple(100 * one.margin for one in gated), tuple(rows.values()), MUTED, "large hollow"))
    ticks = tuple((rows[one.title], names[one.title]) for one in gated)
    x = Axis("← better · candidate worse by (%) · worse →", "%", "linear", low=low, high=high)
    y = Axis("", scale="linear", ticks=ticks[::-1], low=0.4, high=len(gated) + 0.6)
    chart = Chart(
        title,
        x,
        y,
        tuple(lines),
        tuple(spans),
        levels=(Level(0.0, "no change", is_vertical=True, colour=MUTED),),
        height_px=70 + 34 * len(gated),
    )
    others = [metric_title(one.metric) for one in verdict.gated if one.scale != "ratio"]
    note = f" The {', '.join(dict.fromkeys(others))} is in the table of metrics." if others else ""
    return {"What changed": [Figure("", f"{_INTERVALS}{note}", ChartGroup((chart,)))]}


def _failure(verdict: Verdict) -> Iterator[Block]:
    if verdict.failure is not None and verdict.failure.log_title:
        yield Paragraph(verdict.failure.log_title)
        if verdict.failure.last_lines:
            yield Code("\n".join(verdict.failure.last_lines))


def _attention(verdict: Verdict) -> Iterator[Item]:
    """What a reader must know before the figures: the limits of the verdict, then its discarded and disturbed pairs."""
    yield from map(Item, verdict.notes)
    if verdict.discarded_pairs:
        yield Item(
            f"{verdict.discarded_pairs} measured again, because the load generator could not keep up in one of their runs.",
            "Discarded pairs",
        )
    others = "" if verdict.generator is None else describe_others(verdict.generator).rstrip()
    if verdict.disturbed_pairs:
        hidden = max((one.generator_share for one in verdict.gated), default=0.0)
        share = f" Up to {hidden:.0%} of a figure may be the load generator's; the intervals' bad ends account for it." if hidden else ""
        text = f"{verdict.disturbed_pairs} of {verdict.pairs}, in which other processes disturbed the load generator.{share} {others}"
        yield Item(text.rstrip(), "Disturbed pairs")
    elif others:
        yield Item(others, "Other processes")


def time_facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """How a paired gate spent its time, and what limited its precision."""
    timing = verdict.timing
    if timing is None:
        return
    if verdict.duration_s is not None:
        yield "from start to verdict", format_minutes(verdict.duration_s)
    if timing.window_s is not None:
        reasons = {"trial": "chosen by the trial", "time": "chosen by the trial for --time", "scenario": "given by the scenario"}
        yield "windows", f"{timing.window_s:g} s, {reasons[timing.window_chosen_by]}; {timing.load_points} in each run"
        run_s = timing.run_overhead_s + timing.load_points * timing.window_s
        looks = [format_minutes(2 * count * run_s) for count in verdict.looks]
        yield (
            "expected",
            f"{looks[0]} to {looks[-1]} for {verdict.looks[0]} to {verdict.looks[-1]} pairs, after the trial" if looks else MISSING,
        )
    yield "a run beside its windows", f"{timing.run_overhead_s:.1f} s: start, connections, warm-up, stop"
    if timing.time_limit_s is not None:
        yield "--time", format_minutes(timing.time_limit_s)
    for noise in timing.noise:
        within = "" if timing.window_s is None else f", {noise.within_one_second / math.sqrt(timing.window_s):.1%} within a window"
        yield f"noise of {metric_title(noise.metric)}", f"{noise.between:.1%} between restarts{within} (by the trial, from few runs)"


def _figures(verdict: Verdict) -> Iterator[Block]:
    """Charts of the change in each pair, one for each gated metric that is a ratio; the runs of a stored gate are no pairs."""
    charts = [chart for one in verdict.gated if verdict.mode == "paired" and (chart := _pairs_chart(one))]
    if charts:
        yield Figure("Change in each pair", _CAPTION, ChartGroup(tuple(charts), columns=2))


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
        f"{metric_title(one.metric)}, {one.load_point}",
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

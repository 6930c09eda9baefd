"""The history's time series and their steps, as charts and in words."""

import itertools
import shlex
from collections.abc import Iterator, Sequence

from perfkit.history.change_points import SHORTEST
from perfkit.history.check import Gap, HistoryCheck
from perfkit.history.series import HistoryEntry, Series
from perfkit.history.trend import Step, Trend, trend_levels
from perfkit.report.chart import BLUE, GREEN, MUTED, PURPLE, VERMILLION, Axis, Chart, ChartGroup, Level, Line
from perfkit.report.page import Block, Fact, Figure, Headline, Page, Paragraph, Section, Trust, next_blocks, sections_of
from perfkit.report.table import Cell, Column, Mark, Table
from perfkit.result.fingerprint import fingerprint_differences
from perfkit.text import one_line, sentence, to_the_second
from perfkit.units import NS_PER_MS, format_signed_change

TrendSteps = Sequence[tuple[Trend, Sequence[Step]]]
"""Time series, each with its steps."""
_CAPTION = (
    "A level is the mean of the results between two steps; beside a step stand the first commit after it, if it is known, and its size."
)
_STEP, _ACCEPTED, _CHANGED, _BEGINS = (
    "step",
    "accepted step",
    "environment changed",
    "the branch begins; before it, the branch that it was made from",
)
"""What the vertical lines mean, in the legend."""
_NOISE = (
    "Gates of a server against itself: the standard deviation of the differences over the pairs (noise), and the smallest worsening that 9 of 10 "
    "such gates detect (mde). A step upwards is a machine that got noisier."
)
_MINUTE, _MOST_GAPS = len("2026-01-31T12:34"), 100
_DATE, _MOST_BESIDE = len("2026-01-31"), 3
_COMMIT_LENGTH, _TITLE_LENGTH = 10, 100
_MOST_DRAWN = 2_000  # the latest results: as many as a panel can show
_FEWEST_RESULTS = 2 * SHORTEST


def render_trends(trends: TrendSteps) -> str:
    """The time series as SVG, a panel each: a line through the results, the levels between steps, and the steps' commits."""
    from perfkit.report.chart_svg import render_group

    return render_group(trends_group(trends))


def render_trends_html(trends: TrendSteps, gaps: Sequence[Gap] = ()) -> str:
    """The time series as one self-contained HTML document: the steps in words and the missing results come before the charts."""
    from perfkit.report.render import render_html

    changes = environment_table(trends)
    results = [trend.entries[index].started_at for trend, _ in trends for index in (0, -1)]
    blocks: dict[str, Sequence[Block]] = {
        "": [trends_headline(trends, gaps), *next_blocks(*_next_steps(trends, has_environment=bool(changes.rows)))],
        "Steps": [*([table] if (table := steps_table(trends)).rows else []), *(Paragraph(text) for text in _about_steps(trends))],
        "Missing results": [gaps_table(gaps)] if gaps else [],
    }
    by_kind = {kind: [(trend, found) for trend, found in trends if trend.series.kind == kind] for kind in ("result", "canary")}
    if by_kind["result"]:
        blocks["Trends"] = [Figure("Figures over time", _CAPTION, trends_group(by_kind["result"]))]
    if by_kind["canary"]:
        blocks["Noise floor"] = [Figure("Noise over time", f"{_NOISE} {_CAPTION}", trends_group(by_kind["canary"]))]
    places = list(dict.fromkeys(trend.series.place for trend, _ in trends))
    where = f"{'; '.join(places[:3])}{f' and {len(places) - 3} others' if len(places) > 3 else ''}"
    subtitle = f"{len(trends)} time series ({where}), results from {min(results)[:_DATE]} to {max(results)[:_DATE]}"
    names = list(dict.fromkeys(trend.scenario for trend, _ in trends))
    sections = sections_of(blocks)
    if changes.rows:
        sections = (*sections, Section(changes.title, (changes,), _environment_finding(trends), is_folded=True))
    return render_html(Page(f"History of {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}", sections, subtitle))


def trends_headline(trends: TrendSteps, gaps: Sequence[Gap]) -> Headline:
    """The newest step for the worse that nobody accepted; without one, that there is none.

    Steps of several figures of a series at one result are one event, whose other figures stand beside it.
    """
    events = dict[tuple[str, Series], list[tuple[Step, Trend]]]()
    for trend, steps in trends:
        for step in steps:
            if step.is_worse and not step.accepted_until:
                events.setdefault((step.started_at, trend.series), []).append((step, trend))
    facts = [Fact("time series", f"{len(trends):,}")]
    facts += [Fact("gaps in the series", f"{len(gaps):,}")] if gaps else []
    if not events:
        is_known = any(len(trend.values) >= _FEWEST_RESULTS for trend, _ in trends)
        trust: Trust = "good" if is_known else "open"
        return Headline("", "", "", "no step for the worse" if is_known else "too few results to detect a step", trust, tuple(facts))
    (step, trend), *others = max(events.values(), key=lambda event: event[0][0].started_at)
    commit = f"commit {_short(step.commit)}" if step.commit else "commit not recorded"
    caption = f"{_figure(trend)}, {trend.scenario}: {commit}"
    word = "worse" if len(events) == 1 else f"{len(events):,} times worse, last"
    beside = [Fact(_figure(other), format_signed_change("ratio", its_step.ratio)) for its_step, other in others[:_MOST_BESIDE]]
    return Headline(
        format_signed_change("ratio", step.ratio),
        one_line(caption),
        "",
        f"{word} since {step.started_at[:_DATE]}",
        "bad",
        (*beside, *facts),
    )


def _figure(trend: Trend) -> str:
    return one_line(f"{trend.metric.replace('_', '.')}, {trend.load_point}")


def _next_steps(trends: TrendSteps, *, has_environment: bool) -> Iterator[tuple[str, str]]:
    """How to find the cause of the newest step for the worse."""
    open_steps = [step for _, steps in trends for step in steps if step.is_worse and not step.accepted_until]
    step = max(open_steps, key=lambda one: one.started_at, default=None)
    if step is None:
        return
    if step.commit and step.commit == step.previous_commit:
        where = (
            "the changes of the environment are listed below" if has_environment else "no change of the recorded environment explains it"
        )
        yield f"Next: the commit is the same before and after the step, so look for what else changed: {where}.", ""
    else:
        good, bad = step.previous_commit[:_COMMIT_LENGTH] or "REV", step.commit[:_COMMIT_LENGTH] or "REV"
        words = ["perfkit", "bisect", "SCENARIO", "--good", good, "--bad", bad, "--build", "make", "--serve", "./server --port {port}"]
        yield "Next: find the commit that made it slower, with your own build and server.", shlex.join(words)


def steps_table(trends: TrendSteps) -> Table:
    """A row for each step, the newest first."""
    columns = (
        Column("since", "since"), Column("figure", "figure"), Column("series", "series"), Column("change", "change", "figure"), Column("effect", "effect"),
        Column("commit", "first commit after it"), Column("previous_commit", "last before it"), Column("chance", "chance without a change", "figure"),
        Column("notes", "notes", "prose"),
    )  # fmt: skip
    found = sorted(((step, trend) for trend, steps in trends for step in steps), key=lambda pair: pair[0].started_at, reverse=True)
    rows = tuple(
        (
            to_the_second(step.started_at), _figure(trend), one_line(f"{trend.scenario} ({trend.series.place})"),
            Cell(step.ratio, format_signed_change("ratio", step.ratio)), "worse" if step.is_worse else "better",
            _short(step.commit), _short(step.previous_commit), Cell(step.p, _chance(step)), " ".join(_notes_of(step)) or None,
        )
        for step, trend in found
    )  # fmt: skip
    marks: tuple[Mark, ...] = tuple("regressed" if step.is_worse and not step.accepted_until else "" for step, _ in found)
    note = "Chance without a change: how often a series that did not change would show so large a step."
    return Table("steps", "Steps", columns, rows, note, marks).without_empty_columns()


def environment_table(trends: TrendSteps) -> Table:
    """A row for each change of the environment between two results of a series, the newest first, at most a hundred."""
    rows = tuple((to_the_second(when), one_line(place), one_line(what)) for when, place, what in _environment_changes(trends)[:_MOST_GAPS])
    columns = (Column("since", "since"), Column("series", "series"), Column("change", "change", "prose"))
    return Table("environment", "Environment changes", columns, rows)


def _environment_finding(trends: TrendSteps) -> str:
    count = len(_environment_changes(trends))
    newest = f", the newest {_MOST_GAPS} of them" if count > _MOST_GAPS else ""
    return f"{count:,} change{'s' * (count > 1)} between two results{newest}"


def _environment_changes(trends: TrendSteps) -> list[tuple[str, str, str]]:
    """When, where and what, the newest first."""
    found = dict[tuple[str, str, str], None]()
    for trend, _ in trends:
        for before, after in itertools.pairwise(trend.entries):
            if before.fingerprint != after.fingerprint:
                differences = fingerprint_differences(before.fingerprint, after.fingerprint)
                found[after.started_at, trend.series.place, "; ".join(one.sentence for one in differences)] = None
    return sorted(found, reverse=True)


def gaps_table(gaps: Sequence[Gap]) -> Table:
    """A row for each gap, the newest first, at most a hundred."""
    columns = tuple(Column(name, name) for name in ("scenario", "branch", "machine", "after", "until", "missing"))
    rows = tuple(
        (
            f"{gap.series.scenario} (canary)" if gap.series.kind == "canary" else gap.series.scenario,
            gap.series.branch or None,
            gap.series.machine or None,
            gap.after[:_MINUTE],
            "the same" if gap.missing is None else "now" if gap.before is None else gap.before[:_MINUTE],
            "a result without valid figures" if gap.missing is None else f"about {gap.missing}",
        )
        for gap in sorted(gaps, key=lambda gap: gap.after, reverse=True)[:_MOST_GAPS]
    )
    note = f"The newest {_MOST_GAPS} of {len(gaps)}." if len(gaps) > _MOST_GAPS else ""
    return Table("gaps", "Missing results", columns, rows, note)


def trends_group(trends: TrendSteps) -> ChartGroup:
    """A chart for each time series, whose x axis numbers the results by time."""
    return ChartGroup(tuple(_trend_chart(trend, steps) for trend, steps in trends))


def history_table(entries: Sequence[tuple[Series, str, HistoryEntry]]) -> Table:
    """A row for each result: when it started, its series, status and commit, and the file that it was added from.

    Model and payload are shown where they differ between the results.
    """
    differing = [name for name in ("model", "payload") if len({getattr(series, name) for series, _, _ in entries}) > 1]
    columns = tuple(
        Column(name, name) for name in ("started at", "scenario", "branch", "machine", *differing, "status", "commit", "source")
    )
    rows = tuple(
        (
            entry.started_at,
            f"{series.scenario} (canary)" if series.kind == "canary" else series.scenario,
            *(getattr(series, name) or None for name in ("branch", "machine", *differing)),
            status,
            entry.commit[:_COMMIT_LENGTH] or None,
            entry.source,
        )
        for series, status, entry in entries
    )
    return Table("history", "Results", columns, rows)


def render_steps(trends: TrendSteps) -> str:
    """A paragraph for each time series with steps, and the number of those without."""
    lines = []
    for trend, steps in trends:
        if steps:
            start = f", the first {trend.start} of the branch that it starts from" if trend.start else ""
            lines += [
                f"{one_line(trend.title)} ({len(trend.values)} results{start})",
                *(line for step in steps for line in _step_lines(step)),
                "",
            ]
    return "\n".join([*lines, *_about_steps(trends)]) + "\n"


def _about_steps(trends: TrendSteps) -> Iterator[str]:
    """How many series have a step, and what a step is worth."""
    stepped = sum(bool(steps) for _, steps in trends)
    short = sum(len(trend.values) < _FEWEST_RESULTS for trend, _ in trends)
    too_short = f" {short} have fewer than {_FEWEST_RESULTS} results, too few to detect a step." if short else ""
    yield f"{stepped} of {len(trends)} time series {'has' if stepped == 1 else 'have'} a step.{too_short}"
    yield "Of series that did not change, about 1 % show a step. A step is seen only some results after it happened; `perfkit history check` then exits with 1 for one for the worse that nobody accepted. To stop a change before it is merged, use a gate."


def render_check(file: str, check: HistoryCheck) -> str:
    """A line for each finding, alarms first, and the outcome."""
    lines = [f"{'alarm' if one.is_alarm else 'note'}: {sentence(one.sentence)}" for one in check.findings]
    figures = f"{check.figures} figure{'s' * (check.figures != 1)}"
    count = f"{figures} of {check.series} series checked"
    alarms = f"{check.alarms} alarm{'s' if check.alarms > 1 else ''}" if check.alarms else "all is well"
    return "\n".join([*lines, f"{one_line(file)}: {alarms}; {count}"]) + "\n"


def _step_lines(step: Step) -> Iterator[str]:
    is_same = step.commit and step.commit == step.previous_commit
    commits = (
        f"the same commit {_short(step.commit)} as before"
        if is_same
        else f"commit {_short(step.commit)}, after {_short(step.previous_commit)}"
    )
    effect = "worse" if step.is_worse else "better"
    yield f"  {one_line(to_the_second(step.started_at))}: {100 * (step.ratio - 1):+.1f} % ({effect}; by chance {_chance(step)}): {commits}"
    yield from (f"    {note}" for note in _notes_of(step))


def _notes_of(step: Step) -> Iterator[str]:
    if step.accepted_until:
        yield f"accepted until {step.accepted_until}: {sentence(step.accepted)}"
    yield from (f"at the same time: {sentence(change)}" for change in step.environment)


def _chance(step: Step) -> str:
    return f"{100 * step.p:.2g} %"


def _short(commit: str) -> str:
    return one_line(commit[:_COMMIT_LENGTH]) or "not recorded"


def _trend_chart(trend: Trend, steps: Sequence[Step]) -> Chart:
    scale = {"per_s": 1.0, "ns": NS_PER_MS, "share": 0.01}[trend.unit]
    first, last = max(len(trend.values) - _MOST_DRAWN, 0), len(trend.values)
    numbers = tuple(float(number) for number in range(first + 1, last + 1))
    values = tuple(value / scale for value in trend.values[first:])
    lines = [Line("result", numbers, values, BLUE)]
    drawn = [(start, end, level / scale) for start, end, level in trend_levels(trend, steps) if end > first]
    levels: list[tuple[float, float | None]] = []
    for start, end, level in drawn:
        levels += [(max(start, first) + 0.5, level), (end + 0.499, level), (end + 0.4999, None)]
    lines.append(Line.of("level", levels, VERMILLION))
    marks = [
        Level(
            step.index + 0.5,
            f"{f'{_short(step.commit)} ' if step.commit else ''}{100 * (step.ratio - 1):+.0f} %{' accepted' if step.accepted_until else ''}",
            is_vertical=True,
            colour=GREEN if step.accepted_until else VERMILLION,
            key=_ACCEPTED if step.accepted_until else _STEP,
        )
        for step in steps
    ]
    if trend.start > first:
        marks.append(Level(trend.start + 0.5, f"{one_line(trend.series.branch, 40)} begins", is_vertical=True, colour=PURPLE, key=_BEGINS))
    changed = [i for i in range(first + 1, last) if trend.entries[i].fingerprint != trend.entries[i - 1].fingerprint]
    marks += [Level(index + 0.5, "", is_vertical=True, colour=MUTED, key=_CHANGED) for index in changed]
    y = {"per_s": Axis("throughput", "/s"), "ns": Axis("time", "ms"), "share": Axis("noise of a pair", "%")}[trend.unit]
    x = Axis("results in order of time", scale="linear", low=first + 0.5, high=last + 0.5)
    return Chart(one_line(trend.title, _TITLE_LENGTH), x, y, tuple(lines), levels=tuple(marks), height_px=180)

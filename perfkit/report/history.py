"""The history's time series and their steps, as charts and in words."""

from collections.abc import Iterator, Sequence

from perfkit.history.trend import HistoryEntry, Step, Trend, trend_levels
from perfkit.report.chart import BLUE, MUTED, VERMILLION, Axis, Chart, ChartGroup, Level, Line
from perfkit.report.page import Block, Code, Page, sections_of
from perfkit.report.table import Column, Table
from perfkit.text.foreign import one_line, sentence
from perfkit.units import NS_PER_S

TrendSteps = Sequence[tuple[Trend, Sequence[Step]]]
"""Time series, each with its steps."""
_CAPTION = (
    "Orange: the levels, and the steps between them with the first commit after each. Dotted: the environment changed between two results."
)
_DATE = len("2026-01-31")
_COMMIT_LENGTH, _TITLE_LENGTH = 10, 100
_MOST_DRAWN = 2_000  # the latest results: as many as a panel can show
_FEWEST_RESULTS = 10  # below that no step is significant: of C(9, 4) orders the two most extreme already occur by chance in 1.6 %


def render_trends(trends: TrendSteps) -> str:
    """The time series as SVG, a panel each: a line through the results, the levels between steps, and the steps' commits."""
    from perfkit.report.chart_svg import render_plots

    return render_plots({"trends": trends_group(trends)})["trends"]


def render_trends_html(trends: TrendSteps) -> str:
    """The time series as one self-contained HTML document, with the steps in words before the charts."""
    from perfkit.report.chart_svg import chart_block
    from perfkit.report.render import render_html

    steps = render_steps(trends).rstrip("\n").split("\n")
    results = [trend.entries[index].started_at for trend, _ in trends for index in (0, -1)]
    blocks: dict[str, Sequence[Block]] = {
        "Steps": [Code("\n".join(steps))],
        "Trends": [chart_block("trends", "Figures over time", _CAPTION, trends_group(trends))],
    }
    subtitle = f"{len(trends)} time series, results from {min(results)[:_DATE]} to {max(results)[:_DATE]}"
    names = list(dict.fromkeys(trend.scenario for trend, _ in trends))
    return render_html(Page(f"History of {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}", sections_of(blocks), subtitle))


def trends_group(trends: TrendSteps) -> ChartGroup:
    """A chart for each time series, whose x axis numbers the results by time."""
    return ChartGroup(tuple(_trend_chart(trend, steps) for trend, steps in trends))


def history_table(entries: Sequence[tuple[str, str, HistoryEntry]]) -> Table:
    """A row for each result: when it started, scenario, status, commit, host and the file that it was added from."""
    columns = tuple(Column(name, name) for name in ("started at", "scenario", "status", "commit", "host", "source"))
    rows = tuple(
        (entry.started_at, name, status, entry.commit[:_COMMIT_LENGTH] or None, entry.host_id or None, entry.source)
        for name, status, entry in entries
    )
    return Table("history", "Results", columns, rows)


def render_steps(trends: TrendSteps) -> str:
    """A paragraph for each time series with steps, and the number of those without."""
    lines = []
    for trend, steps in trends:
        if steps:
            lines += [f"{one_line(trend.title)} ({len(trend.values)} results)", *(line for step in steps for line in _step_lines(step)), ""]
    without_steps = sum(not steps for _, steps in trends)
    short = sum(len(trend.values) < _FEWEST_RESULTS for trend, _ in trends)
    too_short = f" {short} have fewer than {_FEWEST_RESULTS} results, too few to detect a step." if short else ""
    lines.append(f"{without_steps} of {len(trends)} time series have no step.{too_short}")
    lines.append(
        "A time series without a true step shows one with a probability of about 1 %. "
        "Steps are detected some results after they occur; they gate nothing."
    )
    return "\n".join(lines) + "\n"


def _step_lines(step: Step) -> Iterator[str]:
    commit, before = _short(step.commit), _short(step.previous_commit)
    is_same = step.commit and step.commit == step.previous_commit
    commits = f"the same commit {commit} as before" if is_same else f"commit {commit}, after {before}"
    effect = "worse" if step.is_worse else "better"
    yield f"  {one_line(step.started_at)}: {100 * (step.ratio - 1):+.1f} % ({effect}), p {step.p:.2g}: {commits}"
    yield from (f"    at the same time: {sentence(change)}" for change in step.environment)


def _short(commit: str) -> str:
    return one_line(commit[:_COMMIT_LENGTH]) or "unknown"


def _trend_chart(trend: Trend, steps: Sequence[Step]) -> Chart:
    scale = 1.0 if trend.unit == "per_s" else NS_PER_S / 1000
    first, last = max(len(trend.values) - _MOST_DRAWN, 0), len(trend.values)
    numbers = tuple(float(number) for number in range(first + 1, last + 1))
    values = tuple(value / scale for value in trend.values[first:])
    lines = [Line("result", numbers, values, BLUE)]
    drawn = [(start, end, level / scale) for start, end, level in trend_levels(trend, steps) if end > first]
    levels: list[tuple[float, float | None]] = []
    for start, end, level in drawn:
        levels += [(max(start, first) + 0.5, level), (end + 0.499, level), (end + 0.4999, None)]
    lines.append(Line.of("level", levels, VERMILLION))
    marks = [Level(step.index + 0.5, f"{_short(step.commit)} {100 * (step.ratio - 1):+.0f} %", True, VERMILLION) for step in steps]
    changed = [i for i in range(first + 1, last) if trend.entries[i].fingerprint != trend.entries[i - 1].fingerprint]
    marks += [Level(index + 0.5, "", is_vertical=True, colour=MUTED) for index in changed]
    y = Axis("throughput", "/s") if trend.unit == "per_s" else Axis("time", "ms")
    x = Axis("results in order of time", scale="linear", low=first + 0.5, high=last + 0.5)
    return Chart(one_line(trend.title, _TITLE_LENGTH), x, y, tuple(lines), levels=tuple(marks), height_px=180)

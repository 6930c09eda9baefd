"""A comparison of results: as text for a terminal, Markdown, HTML and JSON."""

import dataclasses
import json
from collections.abc import Iterator, Sequence

from perfkit.comparison.result_comparison import NOT_COVERED, ComparedResult, MetricRow, ResultComparison
from perfkit.report.chart import COLOURS, MUTED, Axis, Chart, ChartGroup, Level, Line
from perfkit.report.page import Block, Bullets, Item, Page, Paragraph, sections_of
from perfkit.report.table import MISSING, Cell, Column, Table
from perfkit.stats.ratio_interval import Estimate
from perfkit.text.foreign import sentence
from perfkit.units import format_duration_ns, format_rate_per_s

SCHEMA = "perfkit.comparison/1"
_NO_DIFFERENCES = "No recorded settings differ."
_LONGEST_VALUE = 60
_APART = 0.12  # between two results at a load point; load points are 1 apart
_CAPTION = (
    "The change of each figure against the first result, with its 95 % interval. Below zero is faster for times and less for throughput. An interval "
    "that includes zero does not show a change."
)


def comparison_table(compared: ResultComparison) -> Table:
    """One row per load point and metric: each result's figure, with its change from the first."""
    numbers = range(1, len(compared.sides) + 1)
    columns = (Column("load_point", "load point"), Column("metric", "metric"), *(Column(str(n), f"[{n}]", "figure") for n in numbers))
    rows = tuple((row.load_point, row.metric, *_cells(row)) for row in compared.rows)
    return Table("comparison", "Figures", columns, rows)


def comparison_text(compared: ResultComparison) -> str:
    """The comparison as terminal text: the differences between the results' setups, then the figures."""
    from perfkit.report.render import render_text

    lines = [f"[{number}] {sentence(_side(side))}" for number, side in enumerate(compared.sides, 1)]
    differences = [f"  {sentence(line)}" for line in _differences(compared)]
    lines += ["", *(["Differences from [1]:", *differences] if differences else [_NO_DIFFERENCES])]
    lines += ["", *(f"note: {sentence(note)}" for note in compared.notes)] if compared.notes else []
    return "\n".join([*lines, "", render_text(comparison_table(compared)), NOT_COVERED, ""])


def comparison_markdown(compared: ResultComparison) -> str:
    """The comparison as GitHub Markdown."""
    from perfkit.report.render import render_markdown

    return render_markdown(_page(compared))


def comparison_html(compared: ResultComparison) -> str:
    """The comparison as one self-contained HTML document."""
    from perfkit.report.render import render_html

    return render_html(_page(compared, _figures(compared)))


def _figures(compared: ResultComparison) -> Sequence[Block]:
    """A chart per metric of the changes from the first result, with intervals; shares have no ratio and no chart."""
    charts = []
    for metric in dict.fromkeys(row.metric for row in compared.rows if row.is_ratio):
        rows = [row for row in compared.rows if row.metric == metric]
        if any(change for row in rows for change in row.changes):
            charts.append(_changes_chart(metric, rows, compared))
    if not charts:
        return ()
    from perfkit.report.chart_svg import chart_block

    return (chart_block("changes", "Changes from [1]", _CAPTION, ChartGroup(tuple(charts), columns=2)),)


def _changes_chart(metric: str, rows: Sequence[MetricRow], compared: ResultComparison) -> Chart:
    lines = []
    for number in range(1, len(compared.sides)):
        found = [(place, change) for place, row in enumerate(rows) if (change := row.changes[number]) is not None]
        apart = (number - len(compared.sides) / 2) * _APART
        ends = [(100 * (one.value - 1), 100 * ((one.low or one.value) - 1), 100 * ((one.high or one.value) - 1)) for _, one in found]
        xs = tuple(place + apart for place, _ in found)
        intervals = tuple((x, x, low, high) for x, (_, low, high) in zip(xs, ends, strict=True))
        label = f"[{number + 1}] {compared.sides[number].label}"
        lines.append(Line(label, xs, tuple(value for value, _, _ in ends), COLOURS[(number - 1) % len(COLOURS)], "dots", intervals))
    values = [end for line in lines for interval in line.intervals for end in interval[2:]]
    x = Axis(
        "load point", scale="linear", low=-0.6, high=len(rows) - 0.4, ticks=tuple((float(n), row.load_point) for n, row in enumerate(rows))
    )
    reach = max(1.0, *map(abs, values)) * 1.1
    y = Axis("change", "%", "linear", low=-min(reach, 100.0), high=reach)
    return Chart(metric.replace("_", "."), x, y, tuple(lines), levels=(Level(0.0, "no change", colour=MUTED),), height_px=220)


def comparison_json(compared: ResultComparison) -> str:
    """The comparison as JSON: times in nanoseconds, rates per second; changes are ratios to the first result, of shares differences."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(compared), "not_covered": NOT_COVERED}, indent=1) + "\n"


def _page(compared: ResultComparison, figures: Sequence[Block] = ()) -> Page:
    differences = list(_differences(compared))
    blocks: dict[str, Sequence[Block]] = {
        "": [Bullets(tuple(Item(_side(side)) for side in compared.sides), is_numbered=True)],
        "Differences from [1]": [Bullets.of(differences) if differences else Paragraph(_NO_DIFFERENCES)],
        "Notes": [Bullets.of(compared.notes)] if compared.notes else [],
        "Figures": [*figures, comparison_table(compared), Paragraph(NOT_COVERED)],
    }
    return Page("Results side by side", sections_of(blocks))


def _side(side: ComparedResult) -> str:
    commit = f", commit {side.commit[:12]}" if side.commit else ""
    return f"{side.label}: started {side.started_at}{commit}{'' if side.status == 'complete' else f', {side.status}'}"


def _differences(compared: ResultComparison) -> Iterator[str]:
    """The differences in setup, those marked incomparable first; with more than two results, each names its result."""
    for number, side in enumerate(compared.sides[1:], 2):
        for difference in sorted(side.differences, key=lambda difference: difference.severity):
            mark = "!" if difference.severity == "incomparable" else " "
            owner = f"[{number}] " if len(compared.sides) > 2 else ""
            yield f"{mark} {owner}{difference.key}: {_shortened(difference.baseline)} → {_shortened(difference.candidate)}"


def _shortened(value: object) -> str:
    text = MISSING if value in (None, "") else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def _cells(row: MetricRow) -> list[Cell]:
    """Each result's figure, and its change from the first: ` +12.3 % [+7.9, +16.8]`."""
    return [
        Cell(None if value is None else value.value, _figure(row, value) + _change(row, change))
        for value, change in zip(row.values, row.changes, strict=True)
    ]


def _figure(row: MetricRow, value: Estimate | None) -> str:
    if value is None:
        return MISSING
    if row.unit == "share":
        return f"{value.value:.3%}" if value.value else "0"
    return format_rate_per_s(value.value) if row.unit == "per_s" else format_duration_ns(value.value)


def _change(row: MetricRow, change: Estimate | None) -> str:
    """A change in per cent, of shares in percentage points."""
    if change is None:
        return ""
    origin, digits, unit = (1.0, 1, "%") if row.is_ratio else (0.0, 3, "pp")
    value, low, high = (None if end is None else (end - origin) * 100 for end in (change.value, change.low, change.high))
    low_text, high_text = (MISSING if end is None else f"{end:+.{digits}f}" for end in (low, high))
    return f" {value:+.{digits}f} {unit} [{low_text}, {high_text}]"

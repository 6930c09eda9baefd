"""Results for other programs: CSV, and `.hgrm` text for HdrHistogram's plotters; for notebooks: an HTML fragment, and charts in matplotlib's axes."""

import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from perfkit.errors import UsageError
from perfkit.recorder.histogram import percentile_distribution
from perfkit.report.answer import answer, grouped_warnings
from perfkit.report.chart import Chart, scale_of
from perfkit.report.run import status_sentence
from perfkit.report.run_charts import percentile_group, trade_group
from perfkit.report.run_tables import terminal_table
from perfkit.report.table import Table
from perfkit.report.time_charts import time_group
from perfkit.report.timeline import read_timeline
from perfkit.result.file import read_result
from perfkit.result.frames import addresses_frame, csv_text, points_frame, read_histograms
from perfkit.result.model import Result
from perfkit.text import one_line, safe_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Plot: TypeAlias = Literal["percentiles", "load", "timeline"]
_LINES = {"dashed": "--", "dashed path": "--", "dots": "", "hollow": "", "large": ""}
_MARKERS = {"dots": ".", "path": ".", "dashed path": ".", "hollow": "o", "large": "s"}
_PANELS = ("-", ":", "-.", "--")  # lines of further panels in the same axes
_NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)


def points_csv(folders: Sequence[pathlib.Path]) -> str:
    """The load points of several results as CSV, a row each, repetitions pooled, followed by a row for each address of targets with several.

    Those alone have an `address`, a column that is left out if there are none. The column `result` is the result folder; docs/how-to/python.md describes the other columns. Raises ResultError.
    """
    import pandas as pd

    parts = []
    for folder in folders:
        result, place = read_result(folder)
        parts.append(points_frame(result.summary).assign(result=str(place)))
        if not (addresses := addresses_frame(result.summary)).empty:
            parts.append(addresses.assign(result=str(place)))
    frame = pd.concat(parts, ignore_index=True)
    return csv_text(frame[["result", *(name for name in frame.columns if name not in ("result", "repetition"))]])


def percentile_distributions(folder: pathlib.Path) -> Mapping[str, str]:
    """The text of an `.hgrm` file for each load point, by file name.

    Repetitions are pooled; values are in milliseconds. Raises ResultError.
    """
    result, folder = read_result(folder)
    files = {}
    for point, counts in zip(result.summary, read_histograms(folder, result), strict=True):
        times = point.times_name.partition(" ")[0]
        name = _NOT_IN_NAMES.sub("-", f"{point.title}-{times}".replace(",", ""))
        files[f"{name}.hgrm"] = percentile_distribution(counts)
    return files


_INVALID_STYLE = ' style="color:#c0392b"'


def result_fragment(result: Result) -> str:
    """A result's status unless complete, the answer, the load points and the warnings."""
    name, status = one_line(str(result.scenario.get("name") or "result")), status_sentence(result)
    parts = [f"<strong>{escape(name)}</strong>"]
    parts += [f"<p{_INVALID_STYLE}><strong>{escape(safe_lines(status))}</strong></p>"] if status else []
    parts += [f"<p><strong>{escape(safe_lines(text))}</strong></p>" for text in answer(result)]
    parts += [table_fragment(terminal_table(result.summary))] if result.summary else []
    warnings = [
        f"<li><code>{escape(one_line(warning.code))}</code> ({escape(safe_lines(warning.load_points))}) {escape(safe_lines(warning.message))}</li>"
        for warning in grouped_warnings(result.summary)
    ]
    parts += ["<ul>", *warnings, "</ul>"] if warnings else []
    return f"<div>{''.join(parts)}</div>"


def table_fragment(table: Table) -> str:
    """A table with its note; invalid rows are red, and their title says so to screen readers."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in table.headings)
    rows = []
    for mark, cells in table.cells:
        style = f'{_INVALID_STYLE} title="not valid"' if mark == "invalid" else ""
        texts = "".join(f"<td>{escape(cell.text or '')}</td>" for cell in cells)
        rows.append(f"<tr{style}>{texts}</tr>")
    note = f"<p><small>{escape(safe_lines(table.note))}</small></p>" if table.note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{note}"


def draw(result: Result, folder: pathlib.Path, kind: Plot, axes: "Axes | None") -> "Axes":
    """Draws a chart of the page and returns its axes, those of a new pyplot figure if none are given; its panels share them.

    Raises ResultError, and UsageError for an unknown plot.
    """
    if kind not in get_args(Plot):
        raise UsageError(f"plot: expected one of {', '.join(get_args(Plot))}, found {kind!r}")
    if axes is None:
        from matplotlib import pyplot as plt

        _, axes = plt.subplots()
    charts = _charts(result, folder, kind)
    for number, chart in enumerate(charts):
        _draw_chart(chart, axes, f"{chart.title}, " if len(charts) > 1 else "", _PANELS[number % len(_PANELS)])
    axes.grid(visible=True, alpha=0.3)
    if charts:
        axes.legend()
    return axes


def _charts(result: Result, folder: pathlib.Path, kind: Plot) -> Sequence[Chart]:
    answered = [point for point in result.summary if point.times.count]
    if not answered:
        return ()
    if kind == "load":
        return trade_group(answered).charts
    if kind == "percentiles":
        return percentile_group(result.summary, read_histograms(folder, result)).charts
    group = time_group(result, read_timeline(folder, result))
    return group.charts[:1] if group else ()


def _draw_chart(chart: Chart, axes: "Axes", prefix: str, style: str) -> None:
    """Draws the lines of a chart, with what each value belongs to, and its scales; shades and bands are left out."""
    from matplotlib.ticker import NullLocator

    for line in chart.lines:
        ys = [math.nan if y is None else y for y in line.ys]
        fill = "none" if line.style == "hollow" else "full"
        axes.plot(
            line.xs, ys, color=line.colour[0], linestyle=_LINES.get(line.style, style), marker=_MARKERS.get(line.style, ""), fillstyle=fill,
            label=f"{prefix}{line.name}",
        )  # fmt: skip
        for place, label in zip(zip(line.xs, ys, strict=True), line.labels, strict=False):
            axes.annotate(label, place, xytext=(3, 4), textcoords="offset points", fontsize="x-small")
    axes.set(xlabel=chart.x.label, ylabel=f"{chart.y.label} ({chart.y.unit})" if chart.y.unit else chart.y.label)
    x, y = (scale_of(axis, ends, 10, is_x=axis is chart.x) for axis, ends in ((chart.x, chart.ends_of_x()), (chart.y, chart.ends_of_y())))
    axes.set(xscale="log" if x.is_log else "linear", yscale="log" if y.is_log else "linear", xlim=(x.low, x.high), ylim=(y.low, y.high))
    for scale, own in ((x, axes.xaxis), (y, axes.yaxis)):
        own.set_ticks([value for value, _ in scale.ticks], [text for _, text in scale.ticks])
        own.set_minor_locator(NullLocator())

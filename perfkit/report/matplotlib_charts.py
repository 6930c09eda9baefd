"""Charts by matplotlib, for notebooks and slides, in the colours and line styles of the pages."""

import math
import pathlib
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from perfkit.errors import ResultError, UsageError
from perfkit.report.answer import answer
from perfkit.report.chart import MUTED, RED, Chart, ChartGroup, Level, Line, Style, scale_of
from perfkit.report.run import main_plot, run_subject, status_sentence
from perfkit.report.run_charts import percentile_group, run_charts, trade_group
from perfkit.report.sweep import sweep_picture
from perfkit.report.time_charts import time_group
from perfkit.report.timeline import read_timeline
from perfkit.result.file import read_result
from perfkit.result.frames import read_histograms
from perfkit.result.model import Result
from perfkit.result.sweep import SWEEP_FILE
from perfkit.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Plot: TypeAlias = Literal["percentiles", "load", "timeline"]
_LINES: dict[Style, Any] = {
    "dashed": "--",
    "dashed path": "--",
    "dotted": ":",
    "dots": "",
    "hollow": "",
    "large": "",
    "large hollow": "",
    "cross": "",
    "large cross": "",
}
_MARKERS: dict[Style, str] = {
    "dots": ".",
    "path": ".",
    "dashed path": ".",
    "hollow": "o",
    "large": "s",
    "large hollow": "s",
    "cross": "P",
    "large cross": "P",
}
_SIZE_INCHES, _DOTS_PER_INCH = (12.8, 7.2), 150  # 1,920 by 1,080 pixels
_TITLE_LINE, _BAND_OPACITY = 84, 0.15
_STYLE = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 13,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "svg.hashsalt": "perfkit",  # the same result gives the same ids
    "text.parse_math": False,  # a dollar sign in a name is no formula
}


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
    for chart in charts:
        _draw_chart(chart, axes, f"{chart.title}, " if len(charts) > 1 else "")
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


def save_pictures(path: pathlib.Path, files: Sequence[pathlib.Path]) -> None:
    """Writes the main chart of a result or a sweep, with its answer as title, into files of the formats that their names end in.

    Raises ResultError if it has no chart, and UsageError for a file that cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    title, subtitle, group = _picture(path)
    with mpl.rc_context(cast("dict[Any, Any]", _STYLE)):
        figure = Figure(figsize=_SIZE_INCHES, dpi=_DOTS_PER_INCH, layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
        figure.suptitle(textwrap.fill(one_line(title), _TITLE_LINE), fontsize=17, fontweight="bold", x=0.012, ha="left")
        figure.supxlabel(one_line(subtitle), fontsize=11, x=0.012, ha="left", color=MUTED[0])
        columns = min(group.columns, len(group.charts))
        panels = figure.subplots(-(-len(group.charts) // columns), columns, squeeze=False).flatten()
        for chart, axes in zip(group.charts, panels, strict=False):
            _draw_chart(chart, axes, "")
            axes.set_title(one_line(chart.title), fontsize=14, loc="left")
            axes.grid(visible=True, alpha=0.3)
            handles, names = axes.get_legend_handles_labels()
            first = dict(zip(reversed(names), reversed(handles), strict=True))
            axes.legend([first[name] for name in dict.fromkeys(names)], dict.fromkeys(names))
        for unused in panels[len(group.charts) :]:
            unused.set_visible(False)
        for file in files:
            try:
                figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else {})
            except OSError as error:
                raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from None


def _picture(path: pathlib.Path) -> tuple[str, str, ChartGroup]:
    """The title, the line below it and the chart."""
    if (path / SWEEP_FILE).is_file():
        title, subtitle, group = sweep_picture(path)
    else:
        result, folder = read_result(path)
        charts = run_charts(result, read_timeline(folder, result))
        name = main_plot(charts)
        title, subtitle = status_sentence(result) or _answer(result), run_subject(result)
        group = None if name is None else charts[name]
    if group is None:
        raise ResultError(f"{path}: there is no chart for a picture: no load point has valid figures, or no two cases can be compared")
    return title, subtitle, group


def _answer(result: Result) -> str:
    """The first sentence of the answer; with several protocols, that of each."""
    sentences = answer(result)
    of_protocols = tuple(f"{point.protocol}: " for point in result.summary)
    return " ".join([text for text in sentences if text.startswith(of_protocols)] or sentences[:1])


def _draw_chart(chart: Chart, axes: "Axes", prefix: str) -> None:
    """Draws the lines of a chart with their bands and intervals, what each value belongs to, its spans, levels and scales; heat maps are left out."""
    from matplotlib.ticker import NullLocator

    unnamed = "_"  # matplotlib leaves such labels out of the legend
    for index, span in enumerate(chart.spans):
        is_named = span.label and not span.is_bad and span.label not in {one.label for one in chart.spans[:index]}
        colour, label = (RED if span.is_bad else MUTED)[0], one_line(span.label) if is_named else unnamed
        axes.axvspan(span.low, span.high, color=colour, alpha=_BAND_OPACITY, linewidth=0, label=label)
    for line in chart.lines:
        _draw_line(line, axes, prefix)
    for level in chart.levels:
        _draw_level(level, axes)
    axes.set(xlabel=chart.x.label, ylabel=f"{chart.y.label} ({chart.y.unit})" if chart.y.unit else chart.y.label)
    x, y = (scale_of(axis, ends, 10, is_x=axis is chart.x) for axis, ends in ((chart.x, chart.ends_of_x()), (chart.y, chart.ends_of_y())))
    axes.set(xscale="log" if x.is_log else "linear", yscale="log" if y.is_log else "linear", xlim=(x.low, x.high), ylim=(y.low, y.high))
    for scale, own in ((x, axes.xaxis), (y, axes.yaxis)):
        own.set_ticks([value for value, _ in scale.ticks], [text for _, text in scale.ticks])
        own.set_minor_locator(NullLocator())


def _draw_line(line: Line, axes: "Axes", prefix: str) -> None:
    colour, ys = line.colour[0], [math.nan if y is None else y for y in line.ys]
    axes.plot(
        line.xs, ys, color=colour, linestyle=_LINES.get(line.style, "-"), marker=_MARKERS.get(line.style, ""), label=one_line(f"{prefix}{line.name}"),
        fillstyle="none" if line.style.endswith("hollow") else "full", drawstyle="steps-post" if line.style == "steps" else "default",
    )  # fmt: skip
    if line.band:
        axes.fill_between(
            line.xs, [low for low, _ in line.band], [high for _, high in line.band], color=colour, alpha=_BAND_OPACITY, linewidth=0
        )
    for x, y, interval in zip(line.xs, ys, line.intervals, strict=False):
        if interval is not None:
            left, right, low, high = interval
            axes.hlines(y, left, right, color=colour, alpha=0.6, linewidth=1)
            axes.vlines(x, low, high, color=colour, alpha=0.6, linewidth=1)
    for place, label in zip(zip(line.xs, ys, strict=True), line.labels, strict=False):
        axes.annotate(one_line(label), place, xytext=(3, 4), textcoords="offset points", fontsize="x-small")


def _draw_level(level: Level, axes: "Axes") -> None:
    """A straight line with its name at its end."""
    straight, place = (axes.axvline, (level.value, 1.0)) if level.is_vertical else (axes.axhline, (1.0, level.value))
    straight(level.value, color=level.colour[0], linestyle=":", linewidth=1)
    if level.label:
        shares = axes.get_xaxis_transform() if level.is_vertical else axes.get_yaxis_transform()
        offset = (3, -3) if level.is_vertical else (-3, 3)
        axes.annotate(
            one_line(level.label), place, xycoords=shares, xytext=offset, textcoords="offset points", fontsize="small", color=level.colour[0],
            ha="left" if level.is_vertical else "right", va="top" if level.is_vertical else "bottom",
        )  # fmt: skip

"""Charts as SVG drawn by matplotlib, for paper, pages without scripts, and separate files."""

import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator

from perfkit.report.chart import MUTED, RED, Axis, Chart, ChartGroup, Heat, HeatColumn, Line
from perfkit.report.page import Figure as Picture
from perfkit.report.plots import NUMBERS, WIDTH_IN, legend_key, render_svgs

_PX_PER_IN = 84
_MARGIN_IN = 0.45  # for the title of a panel, and the labels of its x axis
_LISTED, _TICKS = 14, 10
_CHARACTER_PT, _LABEL_ROWS = 4.1, 3  # of the labels of vertical levels
_HEAT_COLOUR, _HEAT_COLUMNS, _HEAT_SHADES = "#005a96", 120, 6  # few columns and shades, since each cell takes about 60 bytes
_STYLES: dict[str, dict[str, Any]] = {
    "line": {}, "dashed": {"ls": "--"}, "dots": {"ls": "", "marker": "o"}, "hollow": {"ls": "", "marker": "o", "mfc": "white", "ms": 6}, "large": {"ls": "", "marker": "D", "ms": 7},
    "steps": {"drawstyle": "steps-post"}, "path": {"marker": "o"},
}  # fmt: skip


def draw_group(group: ChartGroup) -> Figure:
    """A group's panels as one figure; panels that share their x axis have its label only at the bottom."""
    charts, columns = group.charts, min(group.columns, len(group.charts))
    rows = [charts[start : start + columns] for start in range(0, len(charts), columns)]
    heights_in = [max(chart.height_px for chart in row) / _PX_PER_IN + _MARGIN_IN for row in rows]
    figure = Figure(figsize=(WIDTH_IN, sum(heights_in)), layout="constrained")
    panels = figure.subplots(len(rows), columns, squeeze=False, sharex="all" if group.is_synchronised else "none", height_ratios=heights_in)
    for number, panel in enumerate(panels.flat):
        if number >= len(charts):
            panel.set_visible(False)
            continue
        _draw_chart(panel, charts[number], f"{number}", _TICKS // columns)
        if not group.is_synchronised or number == len(charts) - 1:
            panel.set_xlabel(charts[number].x.label)
    if group.is_synchronised:
        figure.align_ylabels()
    return figure


def _draw_chart(panel: Axes, chart: Chart, prefix: str, ticks: int) -> None:
    """Draws a panel; `ticks` is the largest number of ticks that its width leaves room for."""
    panel.set(title=chart.title, ylabel=f"{chart.y.label} ({chart.y.unit})" if chart.y.unit else chart.y.label)
    for span in chart.spans:
        panel.axvspan(span.low, span.high, color=RED[0] if span.is_bad else MUTED[0], alpha=0.13, lw=0, label=span.label)
    if chart.heat:
        _draw_heat(panel, chart.heat, {level.value for level in chart.levels if level.is_vertical})
    for level in chart.levels:
        if not level.is_vertical:
            panel.axhline(level.value, color=level.colour[0], lw=0.8, ls="--")
        elif level.label:
            panel.axvline(level.value, color=level.colour[0], lw=0.8, ls=":", gid=f"{prefix}-mark-{level.value:g}")
    unnamed = [level for level in chart.levels if level.is_vertical and not level.label]
    if unnamed:  # in one call, since there may be thousands
        places = [level.value for level in unnamed]
        panel.vlines(places, 0, 1, unnamed[0].colour[0], lw=0.6, ls=":", transform=panel.get_xaxis_transform(), gid=f"{prefix}-marks")
    for line in chart.lines:
        _draw_line(panel, line, f"{prefix}-{line.name}")
    _scale(panel, chart.x, chart.ends_of_x(), ticks, is_x=True)
    _scale(panel, chart.y, chart.ends_of_y(), _TICKS // 2, is_x=False)
    _label_levels(panel, chart)
    keys = list({line.name: line for line in chart.lines}.values())
    handles = [legend_key(color=line.colour[0], label=line.name, **{"marker": None, **_STYLES[line.style]}) for line in keys[:_LISTED]]
    shaded = dict.fromkeys(span.label for span in chart.spans if span.label and not span.is_bad)
    handles += [legend_key(color=MUTED[0], lw=6, alpha=0.3, label=label) for label in shaded]
    handles += [
        legend_key(color=level.colour[0], lw=1, ls="--", label=level.label)
        for level in chart.levels
        if level.label and not level.is_vertical
    ]
    if handles:
        panel.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7.5, handlelength=1.4, borderaxespad=0.2)


def _draw_heat(panel: Axes, heat: Heat, starts: Collection[float]) -> None:
    """Draws a heat map in at most `_HEAT_COLUMNS` columns for each part of the axis that begins at one of `starts`."""
    together = -(-len(heat.columns) // _HEAT_COLUMNS)
    columns: list[list[HeatColumn]] = []
    for column in heat.columns:
        if not columns or len(columns[-1]) == together or column.low in starts:
            columns.append([])
        columns[-1].append(column)
    cells: dict[int, list[list[tuple[float, float]]]] = {}
    for parts in columns:
        counts = Counter[int]()
        for part in parts:
            counts.update({part.first_bin + number: count for number, count in enumerate(part.counts) if count})
        total = counts.total()
        shades = [(number, math.ceil(_HEAT_SHADES * math.sqrt(counts[number] / total))) for number in sorted(counts)]
        left, right = parts[0].low, parts[-1].high
        for (_, shade), run in itertools.groupby(enumerate(shades), lambda numbered: (numbered[1][0] - numbered[0], numbered[1][1])):
            bins = [number for _, (number, _) in run]
            bottom, top = (10 ** (edge / heat.bins_per_decade) for edge in (bins[0], bins[-1] + 1))
            cells.setdefault(shade, []).append([(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)])
    for shade, corners in sorted(cells.items()):
        path = Path.make_compound_path(*(Path(one, closed=True) for one in corners))
        panel.add_patch(PathPatch(path, color=_HEAT_COLOUR, alpha=0.1 + 0.65 * shade / _HEAT_SHADES, lw=0))


def _draw_line(panel: Axes, line: Line, gid: str) -> None:
    style = dict(_STYLES[line.style])
    isolated = sum(y is not None for y in line.ys) == 1
    marker = style.pop("marker", "o" if isolated else None)
    ys = [math.nan if y is None else y for y in line.ys]
    panel.plot(line.xs, ys, color=line.colour[0], marker=marker, gid=gid, **style)
    if line.band:
        lows, highs = zip(*line.band, strict=True)
        panel.fill_between(line.xs, lows, highs, color=line.colour[0], alpha=0.15, lw=0)
    for x, y, interval in zip(line.xs, ys, line.intervals, strict=False):
        if interval is None:
            continue
        left, right, low, high = interval
        panel.plot([left, right], [y, y], [x, x], [low, high], color=line.colour[0], lw=0.9, alpha=0.6, zorder=1)


def _label_levels(panel: Axes, chart: Chart) -> None:
    """Names the vertical levels at the top, in rows where names would overlap; those that find no room have none."""
    named = sorted((level for level in chart.levels if level.is_vertical and level.label), key=lambda level: level.value)
    if len(named) > _LISTED or not chart.lines:
        return
    width_pt = panel.bbox.width * 72 / panel.figure.dpi
    ends_pt = [-math.inf] * _LABEL_ROWS
    for level in named:
        share = panel.transAxes.inverted().transform(panel.transData.transform((level.value, panel.get_ylim()[0])))[0]
        length_pt = _CHARACTER_PT * (len(level.label) + 1)
        is_left = share * width_pt + length_pt > width_pt
        start_pt = share * width_pt - (length_pt if is_left else 0.0)
        row = next((row for row, end_pt in enumerate(ends_pt) if start_pt >= end_pt), None)
        if row is None:
            continue
        ends_pt[row] = start_pt + length_pt
        text, side = (f"{level.label} ", "right") if is_left else (f" {level.label}", "left")
        panel.annotate(
            text, (level.value, 1), (0, -9 * row), ("data", "axes fraction"), "offset points", va="top", ha=side, color=level.colour[0], fontsize=7
        )  # fmt: skip


def _scale(panel: Axes, axis: Axis, ends: tuple[float, float] | None, ticks: int, *, is_x: bool) -> None:
    own, limit = (panel.xaxis, panel.set_xlim) if is_x else (panel.yaxis, panel.set_ylim)
    low, high = ends or (0.0, 1.0)
    own.set_major_formatter(NUMBERS)
    if axis.scale == "log" and low > 0:
        (panel.set_xscale if is_x else panel.set_yscale)("log")
        own.set_major_locator(LogLocator(subs=(1, 2, 5)))
        own.set_minor_locator(NullLocator())
        own.set_major_formatter(NUMBERS)
        own.set_minor_formatter(NullFormatter())
        space = 1.08 if is_x else 1.15
        limit(low / space if axis.low is None else axis.low, high * space if axis.high is None else axis.high)
    elif axis.scale == "date":
        limit(low if axis.low is None else axis.low, high if axis.high is None else axis.high)
        dates = AutoDateLocator(maxticks=ticks)  # type: ignore[no-untyped-call] # matplotlib's module of dates has no types
        own.set_major_locator(dates)
        own.set_major_formatter(ConciseDateFormatter(dates))  # type: ignore[no-untyped-call] # the same
    elif axis.scale == "linear":
        space = 0.0 if is_x else 0.08 * (high - low or 1.0)
        limit(low - space if axis.low is None else axis.low, high + space if axis.high is None else axis.high)
        own.set_major_locator(MaxNLocator(ticks, steps=(1, 2, 5, 10), integer=axis.is_whole))
    else:
        top = high if is_x and axis.high is not None else high * (1.04 if is_x else 1.08) or 1.0
        limit(0 if axis.low is None else axis.low, max(top, axis.high or 0.0))
        own.set_major_locator(MaxNLocator(ticks, steps=(1, 2, 5, 10), integer=axis.is_whole))
    if axis.ticks:
        shown = [(place, text) for place, text in axis.ticks if place <= high * 1.2]
        own.set_major_locator(FixedLocator([place for place, _ in shown]))
        own.set_major_formatter(FixedFormatter([text for _, text in shown]))


def render_plots(groups: Mapping[str, ChartGroup]) -> dict[str, str]:
    """Groups as SVG, by name."""
    return render_svgs(lambda: ((name, draw_group(group)) for name, group in groups.items()))


def chart_block(name: str, title: str, caption: str, group: ChartGroup) -> Picture:
    """A group as a page's figure: interactive, or an SVG where scripts are off."""
    return Picture(title, caption, render_plots({name: group})[name], charts=group)

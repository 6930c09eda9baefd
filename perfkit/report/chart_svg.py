"""Groups of charts in SVG: one picture for a file, or a picture for each panel of a page. The same values give the same bytes."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfkit.report.chart import BACK, INK, MUTED, RED, Axis, Chart, ChartGroup, DrawnScale, Line
from perfkit.report.chart_panel import (
    CLIP_SPACE,
    FONT,
    GRID,
    HEAT,
    LABEL_HEIGHT,
    ROW_HEIGHT,
    SMALL,
    TICKS_HEIGHT,
    Box,
    LegendKey,
    Panel,
    legend_keys,
)
from perfkit.report.svg import document, element, group, shortened, text, text_width
from perfkit.text import one_line

_WIDTH = 880.0
_TITLE, _TITLE_HEIGHT, _GAP = 10.5, 20.0, 8.0
_KEY_WIDTH, _LEGEND_SHARE, _LISTED = 18.0, 0.36, 14  # the legend's share of a panel's width, and its lines, at most
_RIGHT = 20.0  # beside a panel of a page, for half of the last tick's text
_DIGITS = 5  # significant digits of a value in a page: more than a screen can show
_STYLE: dict[str, object] = {
    "font_family": "'DejaVu Sans', system-ui, Arial, sans-serif",
    "font_size": FONT,
    "fill": "none",
    "stroke_width": 1.6,
    "stroke_linejoin": "round",
}


def render_plots(groups: Mapping[str, ChartGroup]) -> dict[str, str]:
    """Groups as pictures of their own, by name."""
    return {name: render_group(group) for name, group in groups.items()}


def render_group(charts: ChartGroup) -> str:
    """A group's panels in rows, with their legends; panels that share their x axis have its ticks and label only at the bottom."""
    columns = min(charts.columns, len(charts.charts))
    cell_width = _WIDTH / columns
    panels = [Panel(chart, cell_width, columns) for chart in charts.charts]
    legends = [_listed(chart) for chart in charts.charts]
    rights = [_legend_width(keys, cell_width) for keys in legends]
    parts, top = list[str](), _GAP
    for start in range(0, len(panels), columns):
        row = panels[start : start + columns]
        has_labels = not charts.is_synchronised or start + columns >= len(panels)
        height, rows = float(max(panel.chart.height_px for panel in row)), 1
        for column, panel in enumerate(row):  # the axes of a column begin and end at the same places
            left, right = max(other.left for other in panels[column::columns]), max(rights[column::columns])
            box = Box(column * cell_width + left, top + _TITLE_HEIGHT, cell_width - left - right, height)
            rows = max(rows, panel.rows(box.width))
            parts.append(text(panel.chart.title, box.left, box.top - 7, font_weight="bold", font_size=_TITLE, fill=INK[0]))
            parts += panel.drawn(box, has_ticks=has_labels, has_label=has_labels)
            parts.append(_legend(legends[start + column], box.left + box.width + 8, box.top + 6, right))
        top += _TITLE_HEIGHT + height + (LABEL_HEIGHT + ROW_HEIGHT * (rows - 1) if has_labels else _GAP)
    ground = element("rect", width=_WIDTH, height=top, fill=BACK[0])
    return f'<?xml version="1.0" encoding="utf-8"?>\n{document([ground, *parts], _WIDTH, top, **_STYLE)}\n'


def _listed(chart: Chart) -> list[LegendKey]:
    """The legend beside a panel, which has room for the first lines."""
    keys = legend_keys(chart)
    lines = [key for key in keys if key.line is not None]
    return [*lines[:_LISTED], *keys[len(lines) :]]


def _legend_width(keys: Sequence[LegendKey], cell_width: float) -> float:
    names = max((text_width(key.name, SMALL) for key in keys), default=0.0)
    return 12 + (min(_KEY_WIDTH + 10 + names, _LEGEND_SHARE * cell_width) if keys else 0.0)


def _legend(keys: Sequence[LegendKey], left: float, top: float, width: float) -> str:
    places = [(key, top + row * (SMALL + 4)) for row, key in enumerate(keys)]
    names = [text(shortened(key.name, SMALL, width - _KEY_WIDTH - 14), left + _KEY_WIDTH + 4, y + 3, fill=INK[0]) for key, y in places]
    return group([*(key.sample(left, y, _KEY_WIDTH) for key, y in places), *names], font_size=SMALL)


@dataclasses.dataclass(frozen=True, slots=True)
class PagePanel:
    """A chart of a page: its picture, its legend, and what the page's script reads of it."""

    title: str
    svg: str
    legend: tuple[tuple[str, str], ...]
    """Each name with its sample; those of the lines come first."""
    data: Mapping[str, Any]
    """JSON values, with rounded numbers and sanitized text."""


def page_panels(charts: ChartGroup) -> list[PagePanel]:
    """The panels of a group for a page, which has titles and legends as text; only the last of a shared axis has the axis's label."""
    columns = min(charts.columns, len(charts.charts))
    width = _WIDTH / columns
    panels = [Panel(chart, width, columns) for chart in charts.charts]
    widest = max(panel.left for panel in panels)
    drawn = []
    for panel, is_last in zip(panels, [*itertools.repeat(False, len(panels) - 1), True], strict=True):
        has_label = is_last or not charts.is_synchronised
        box = Box(widest if charts.is_synchronised else panel.left, CLIP_SPACE, 0.0, float(panel.chart.height_px))
        box = box._replace(width=width - box.left - _RIGHT)
        rows = panel.rows(box.width)
        height = box.top + box.height + (LABEL_HEIGHT if has_label else TICKS_HEIGHT) + ROW_HEIGHT * (rows - 1)
        parts = panel.drawn(box, has_ticks=True, has_label=has_label)
        legend = tuple((one_line(key.name), _sample(key)) for key in legend_keys(panel.chart))
        names = {"role": "img", "aria_label": one_line(_description(panel.chart))}
        svg = document(parts, width, height, **_STYLE, **names)
        drawn.append(PagePanel(one_line(panel.chart.title), svg, legend, {**_data(panel, box), "rows": rows}))
    return drawn


def _sample(key: LegendKey) -> str:
    return document([key.sample(1.0, 6.0, _KEY_WIDTH)], _KEY_WIDTH + 2, 12.0, fill="none", stroke_width=1.6, aria_hidden="true")


def _description(chart: Chart) -> str:
    """What a chart shows, for those who do not see it: each line with its range."""
    parts = []
    for line in chart.lines:
        values = [y for y in line.ys if y is not None and math.isfinite(y)]
        parts.append(
            f"{line.name}: {min(values):,.4g} to {max(values):,.4g} {chart.y.unit}".rstrip() if values else f"{line.name}: no values"
        )
    return f"{chart.title}. {chart.y.label} against {chart.x.label}. {'; '.join(parts)}."


def _data(panel: Panel, box: Box) -> dict[str, Any]:
    """Where the values lie in a panel's picture, and the values."""
    chart = panel.chart
    return {
        "title": one_line(chart.title),
        "box": [round(one, 1) for one in box],
        "x": _axis_data(chart.x, panel.x),
        "y": _axis_data(chart.y, panel.y),
        "lines": [_line_data(line) for line in chart.lines],
    }


def _axis_data(axis: Axis, scale: DrawnScale) -> dict[str, Any]:
    return {
        "label": one_line(axis.label),
        "unit": one_line(axis.unit),
        "kind": "date" if axis.scale == "date" else "percentile" if axis.is_percentile else "",
        "low": scale.low,
        "high": scale.high,
        "is_log": scale.is_log,
        "is_whole": axis.is_whole,
        "is_named": bool(axis.ticks),
        "ticks": [[value, one_line(label)] for value, label in scale.ticks],
    }


def _line_data(line: Line) -> dict[str, Any]:
    ends = [None if one is None else one[2:] for one in line.intervals] or line.band
    return {
        "name": one_line(line.name),
        "style": line.style,
        "colour": line.colour[0],
        "xs": _rounded(line.xs),
        "ys": _rounded(line.ys),
        "ends": [None if one is None else _rounded(one) for one in ends],
        "labels": [one_line(label) for label in line.labels],
    }


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    """The values with the digits that a page shows; those that JSON cannot hold become None."""
    rounded = []
    for value in values:
        known = value if value is not None and math.isfinite(value) else None
        short = known if known is None else float(f"{known:.{_DIGITS}g}") if abs(known) < 10**_DIGITS else round(known)
        rounded.append(int(short) if short is not None and short == int(short) else short)
    return rounded


def dark_colours(groups: Iterable[ChartGroup]) -> str:
    """The style rules that give the pictures of a page their colours on a dark background."""
    colours = dict([INK, MUTED, RED, GRID, BACK, HEAT])
    for chart in itertools.chain.from_iterable(one.charts for one in groups):
        colours |= dict([*(line.colour for line in chart.lines), *(level.colour for level in chart.levels)])
    rules = (f'[{name}="{light}"] {{ {name}: {dark}; }}' for light, dark in sorted(colours.items()) for name in ("fill", "stroke"))
    return f"@media screen and (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"

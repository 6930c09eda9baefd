"""Charts as SVG, for paper, pages without scripts, and separate files: the same values give the same bytes."""

import re
from collections.abc import Mapping, Sequence

from perfkit.report.chart import INK, Chart, ChartGroup
from perfkit.report.chart_panel import FONT, SMALL, TITLE, Box, draw_panel, legend_keys
from perfkit.report.chart_scale import DrawnScale, scale_of
from perfkit.report.page import Figure
from perfkit.report.svg import document, group, number, shortened, text, text_width

_WIDTH = 880.0
_TICKS = 10
_TITLE_HEIGHT, _LABEL_HEIGHT, _GAP = 20.0, 30.0, 8.0
_LEGEND_SHARE, _TICKS_SHARE = 0.36, 0.35  # of a panel's width, at most
_KEY_WIDTH = 18.0
_STYLE: dict[str, object] = {
    "font_family": "'DejaVu Sans', system-ui, Arial, sans-serif",
    "font_size": FONT,
    "fill": "none",
    "stroke_width": 1.6,
    "stroke_linejoin": "round",
}


def render_plots(groups: Mapping[str, ChartGroup]) -> dict[str, str]:
    """Groups as SVG, by name; the name keeps the ids of a picture apart from those of others on a page."""
    return {name: render_group(group, name) for name, group in groups.items()}


def chart_block(name: str, title: str, caption: str, group: ChartGroup) -> Figure:
    """A group as a page's figure: interactive, or an SVG where scripts are off."""
    return Figure(title, caption, render_group(group, name), charts=group)


def render_group(charts: ChartGroup, name: str) -> str:
    """A group's panels in rows; panels that share their x axis have its ticks and label only at the bottom."""
    columns = min(charts.columns, len(charts.charts))
    cell_width = _WIDTH / columns
    drawn = [_PanelLayout(chart, _TICKS // columns, cell_width) for chart in charts.charts]
    prefix, parts, top = re.sub(r"\W", "-", name), list[str](), _GAP
    for start in range(0, len(drawn), columns):
        row = drawn[start : start + columns]
        has_labels = not charts.is_synchronised or start + columns >= len(drawn)
        height = max(layout.chart.height_px for layout in row)
        for column, layout in enumerate(row):
            same_column = drawn[column::columns]  # whose axes begin and end at the same places
            left, right = (max(getattr(other, side) for other in same_column) for side in ("left", "right"))
            box = Box(column * cell_width + left, top + _TITLE_HEIGHT, cell_width - left - right, float(height))
            parts += _draw(layout, box, f"{prefix}-{start + column}", has_labels=has_labels)
        top += _TITLE_HEIGHT + height + (_LABEL_HEIGHT if has_labels else _GAP)
    return document(parts, _WIDTH, top, **_STYLE)


class _PanelLayout:
    """A chart with its scales, and the room that it needs beside its axes."""

    def __init__(self, chart: Chart, most_ticks: int, width: float) -> None:
        self.chart = chart
        self.x = scale_of(chart.x, chart.ends_of_x(), most_ticks, is_x=True)
        self.y = scale_of(chart.y, chart.ends_of_y(), _TICKS // 2, is_x=False)
        self.y_texts = [(value, shortened(label, FONT, _TICKS_SHARE * width)) for value, label in self.y.ticks]
        self.keys = legend_keys(chart)
        self.left = FONT + 14 + max((text_width(label, FONT) for _, label in self.y_texts), default=0.0)
        names = max((text_width(key.name, SMALL) for key in self.keys), default=0.0)
        self.right = 12 + (min(_KEY_WIDTH + 10 + names, _LEGEND_SHARE * width) if self.keys else 0.0)


def _draw(layout: _PanelLayout, box: Box, clip_id: str, *, has_labels: bool) -> list[str]:
    """A panel's title, grid, values, labels and legend."""
    chart = layout.chart
    label = f"{chart.y.label} ({chart.y.unit})" if chart.y.unit else chart.y.label
    middle = box.top + box.height / 2
    texts = [
        text(chart.title, box.left, box.top - 7, font_weight="bold", font_size=TITLE),
        text(label, 0.0, 0.0, text_anchor="middle", transform=f"translate({number(box.left - layout.left + FONT)} {number(middle)}) rotate(-90)"),
        *(text(one, box.left - 5, y + 3.5, text_anchor="end") for y, one in _placed(layout.y_texts, layout.y, box.top + box.height, -box.height)),
    ]  # fmt: skip
    if has_labels:
        texts += _x_labels(layout.x, box)
        texts.append(text(chart.x.label, box.left + box.width / 2, box.top + box.height + 25, text_anchor="middle"))
    return [
        draw_panel(chart, layout.x, layout.y, box, clip_id),
        group(texts, fill=INK[0]),
        *_legend(layout, box),
    ]


def _placed(ticks: Sequence[tuple[float, str]], scale: DrawnScale, start: float, length: float) -> list[tuple[float, str]]:
    """The ticks' texts at their coordinates."""
    return [(start + share * length, one) for value, one in ticks if (share := scale.share(value)) is not None]


def _x_labels(scale: DrawnScale, box: Box) -> list[str]:
    """The texts of the x axis, without those that would overlap the one before."""
    labels, free_from = list[str](), -FONT
    for x, label in _placed(scale.ticks, scale, box.left, box.width):
        half = text_width(label, FONT) / 2
        if x - half >= free_from:
            labels.append(text(label, x, box.top + box.height + 12, text_anchor="middle"))
            free_from = x + half + FONT / 2
    return labels


def _legend(layout: _PanelLayout, box: Box) -> list[str]:
    left = box.left + box.width + 8
    room = layout.right - _KEY_WIDTH - 14
    parts = []
    for row, key in enumerate(layout.keys):
        y = box.top + 6 + row * (SMALL + 4)
        name = text(shortened(key.name, SMALL, room), left + _KEY_WIDTH + 4, y + 3, fill=INK[0])
        parts += [key.sample(left, y, _KEY_WIDTH), name]
    return [group(parts, font_size=SMALL)] if parts else []

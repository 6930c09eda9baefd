"""What is drawn within the axes of a chart's picture, and the samples of its legend."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from perfkit.report.chart import MUTED, RED, Chart, Level, Line, Span
from perfkit.report.chart_heat import SHADES, heat_cells
from perfkit.report.chart_scale import DrawnScale
from perfkit.report.svg import element, group, number, path, text, text_width

FONT, SMALL, TITLE = 10.0, 8.8, 10.5
_GRID, _SPAN_OPACITY, _BAND_OPACITY = "#e4e7ea", 0.13, 0.15
_HEAT_COLOUR = "#005a96"
_DASHED, _DOTTED = "5 3", "1.5 2"
_CLIP_SPACE = 4.0  # beyond the axes, so that a marker at their end is whole
_LISTED, _LABEL_ROWS = 14, 3
_DOT, _HOLLOW, _DIAMOND = 4.6, 7.0, 4.2  # widths of a dot and of a hollow one, half the diagonal of a diamond


class Box(NamedTuple):
    """The rectangle within the axes."""

    left: float
    top: float
    width: float
    height: float


@dataclasses.dataclass(frozen=True, slots=True)
class LegendKey:
    """A name in the legend, with what draws its sample."""

    name: str
    line: Line | None = None
    """The line that it names; otherwise it is a span or a level."""
    level: Level | None = None

    def sample(self, x: float, y: float, width: float) -> str:
        """The sample beside the name."""
        if self.line is not None:
            middle = [(x + width / 2, y)]
            ends = [(x, y), (x + width, y)] if _joins(self.line) else []
            return _styled(self.line, ends, middle if _marker(self.line) else [])
        if self.level is not None:
            return element(
                "path", d=path([(x, y), (x + width, y)]), stroke=self.level.colour[0], stroke_width=1.1, stroke_dasharray=_DASHED
            )
        return element("rect", x=x, y=y - 4, width=width, height=8.0, fill=MUTED[0], fill_opacity=0.3)


def legend_keys(chart: Chart) -> list[LegendKey]:
    """The legend of a chart: its first lines, its named spans, and its named horizontal levels."""
    keys = [LegendKey(name, line) for name, line in list({line.name: line for line in chart.lines}.items())[:_LISTED]]
    keys += [LegendKey(label) for label in dict.fromkeys(span.label for span in chart.spans if span.label and not span.is_bad)]
    return keys + [LegendKey(level.label, level=level) for level in chart.levels if level.label and not level.is_vertical]


def draw_panel(chart: Chart, x: DrawnScale, y: DrawnScale, box: Box, clip_id: str) -> str:
    """Draws the grid, the values and the labels of a chart into a rectangle; the id is that of the rectangle that cuts them off."""
    return _Panel(chart, x, y, box).drawn(clip_id)


class _Panel:
    def __init__(self, chart: Chart, x: DrawnScale, y: DrawnScale, box: Box) -> None:
        self._chart, self._x, self._y, self._box = chart, x, y, box
        self._bottom, self._right = box.top + box.height, box.left + box.width

    def drawn(self, clip_id: str) -> str:
        chart, box = self._chart, self._box
        x, y, width, height = box.left - _CLIP_SPACE, box.top - _CLIP_SPACE, box.width + 2 * _CLIP_SPACE, box.height + 2 * _CLIP_SPACE
        clip = element("clipPath", element("rect", x=x, y=y, width=width, height=height), id=clip_id)
        grid = [self._upright(value) for value, _ in self._x.ticks] + [self._level(value) for value, _ in self._y.ticks]
        axes = path([(box.left, box.top), (box.left, self._bottom), (self._right, self._bottom)])
        values = [*map(self._span, chart.spans), *self._heat(), *self._levels(), *map(self._line, chart.lines)]
        return group([
            element("path", d="".join(grid), stroke=_GRID, stroke_width=0.8),
            clip,
            group(values, clip_path=f"url(#{clip_id})"),
            element("path", d=axes, stroke=MUTED[0], stroke_width=0.9),
            *self._level_names(),
        ])  # fmt: skip

    def _at_x(self, value: float) -> float | None:
        share = self._x.share(value)
        return None if share is None else self._box.left + share * self._box.width

    def _at_y(self, value: float) -> float | None:
        share = self._y.share(value)
        return None if share is None else self._bottom - share * self._box.height

    def _at(self, x: float, y: float | None) -> tuple[float, float] | None:
        left, height = self._at_x(x), None if y is None else self._at_y(y)
        return None if left is None or height is None else (left, height)

    def _upright(self, value: float) -> str:
        """A line from the bottom to the top, as the data of a path."""
        left = self._at_x(value)
        return "" if left is None else path([(left, self._box.top), (left, self._bottom)])

    def _level(self, value: float) -> str:
        height = self._at_y(value)
        return "" if height is None else path([(self._box.left, height), (self._right, height)])

    def _span(self, span: Span) -> str:
        left, right = self._at_x(span.low), self._at_x(span.high)
        if left is None or right is None:
            return ""
        left, right = (min(max(place, self._box.left), self._right) for place in (left, right))
        colour = RED[0] if span.is_bad else MUTED[0]
        return element(
            "rect", x=left, y=self._box.top, width=max(right - left, 0.0), height=self._box.height, fill=colour, fill_opacity=_SPAN_OPACITY
        )

    def _heat(self) -> list[str]:
        if self._chart.heat is None:
            return []
        by_shade: dict[int, list[str]] = {}
        for cell in heat_cells(self._chart.heat, {level.value for level in self._chart.levels if level.is_vertical}):
            first, last = self._at(cell.left, cell.bottom), self._at(cell.right, cell.top)
            if first is not None and last is not None:
                left, right = (min(max(place, self._box.left), self._right) for place in (first[0], last[0]))
                bottom, top = (min(max(place, self._box.top), self._bottom) for place in (first[1], last[1]))
                by_shade.setdefault(cell.shade, []).append(
                    f"M{number(left)} {number(bottom)}H{number(right)}V{number(top)}H{number(left)}Z"
                )
        shades = sorted(by_shade.items())
        return [
            element("path", d="".join(cells), fill=_HEAT_COLOUR, fill_opacity=f"{0.1 + 0.65 * shade / SHADES:.2f}")
            for shade, cells in shades
        ]

    def _levels(self) -> list[str]:
        parts = []
        for level in self._chart.levels:
            if not level.is_vertical:
                parts.append(
                    element("path", d=self._level(level.value), stroke=level.colour[0], stroke_width=0.9, stroke_dasharray=_DASHED)
                )
            elif level.label:
                parts.append(
                    element("path", d=self._upright(level.value), stroke=level.colour[0], stroke_width=0.9, stroke_dasharray=_DOTTED)
                )
        if unnamed := [level for level in self._chart.levels if level.is_vertical and not level.label]:  # there may be thousands
            data = "".join(self._upright(level.value) for level in unnamed)
            parts.append(element("path", d=data, stroke=unnamed[0].colour[0], stroke_width=0.7, stroke_dasharray=_DOTTED))
        return parts

    def _line(self, line: Line) -> str:
        points = [self._at(x, y) for x, y in zip(line.xs, line.ys, strict=True)]
        known = [point for point in points if point is not None]
        parts = []
        if line.band:
            edges = [(self._at(x, low), self._at(x, high)) for x, (low, high) in zip(line.xs, line.band, strict=True)]
            whole = [(low, high) for low, high in edges if low is not None and high is not None]
            outline = [*(high for _, high in whole), *(low for low, _ in reversed(whole))]
            parts.append(element("path", d=path(outline, is_closed=True), fill=line.colour[0], fill_opacity=_BAND_OPACITY))
        crosses = ""
        for point, interval in zip(points, line.intervals, strict=False):
            if interval is None or point is None:
                continue
            (left, right), (low, high) = map(self._at_x, interval[:2]), map(self._at_y, interval[2:])
            x, y = point
            crosses += path([None if left is None else (left, y), None if right is None else (right, y)])
            crosses += path([None if low is None else (x, low), None if high is None else (x, high)])
        if crosses:
            parts.append(element("path", d=crosses, stroke=line.colour[0], stroke_width=1.0, stroke_opacity=0.6))
        has_markers = _marker(line) or len(known) == 1
        parts.append(_styled(line, points if _joins(line) else [], known if has_markers else []))
        return "\n".join(filter(None, parts))

    def _level_names(self) -> list[str]:
        """Names the vertical levels at the top, in rows where names would overlap; those that find no room have none."""
        named = sorted((level for level in self._chart.levels if level.is_vertical and level.label), key=lambda level: level.value)
        if len(named) > _LISTED or not self._chart.lines:
            return []
        parts, ends = [], [-math.inf] * _LABEL_ROWS
        for level in named:
            place = self._at_x(level.value)
            if place is None or not self._box.left - 1 <= place <= self._right + 1:
                continue
            length = text_width(level.label, SMALL) + 6
            is_left = place + length > self._right
            start = place - (length if is_left else 0.0)
            row = next((row for row, end in enumerate(ends) if start >= end), None)
            if row is None:
                continue
            ends[row] = start + length
            side = {"text_anchor": "end"} if is_left else {}
            x, y = place + (-3 if is_left else 3), self._box.top + 8 + 10.5 * row
            parts.append(text(level.label, x, y, fill=level.colour[0], font_size=SMALL, **side))
        return parts


def _marker(line: Line) -> bool:
    return line.style in ("dots", "hollow", "large", "path")


def _joins(line: Line) -> bool:
    return line.style not in ("dots", "hollow", "large")


def _styled(line: Line, points: Sequence[tuple[float, float] | None], markers: Sequence[tuple[float, float]]) -> str:
    """A line through points, with markers, in the style and colour of a chart's line."""
    colour, parts = line.colour[0], []
    if points:
        dashes = _DASHED if line.style == "dashed" else None
        data = path(points, is_stepped=line.style == "steps")
        parts.append(element("path", d=data, stroke=colour, stroke_dasharray=dashes))
    if markers and line.style == "large":
        data = "".join(
            path([(x, y - _DIAMOND), (x + _DIAMOND, y), (x, y + _DIAMOND), (x - _DIAMOND, y)], is_closed=True) for x, y in markers
        )
        parts.append(element("path", d=data, fill=colour))
    elif markers:  # lines without length whose round ends are the dots
        data = "".join(f"M{number(x)} {number(y)}h0" for x, y in markers)
        widths = [(_HOLLOW, colour), (_HOLLOW - 2.4, "#ffffff")] if line.style == "hollow" else [(_DOT, colour)]
        parts += [element("path", d=data, stroke=one, stroke_width=width, stroke_linecap="round") for width, one in widths]
    return "\n".join(parts)

"""One chart in SVG: its axes with their texts, its values, and the samples of its legend."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from perfkit.report.chart import BACK, INK, MUTED, RED, Chart, Colour, DrawnScale, Heat, HeatColumn, Level, Line, Span, scale_of
from perfkit.report.svg import element, group, number, path, shortened, text, text_width

FONT, SMALL = 10.0, 8.8
LABEL_HEIGHT = 30.0
"""The height of the ticks' texts and the x axis's label below a panel; without the label, `TICKS_HEIGHT`."""
TICKS_HEIGHT, ROW_HEIGHT = 17.0, 11.0
GRID: Colour = ("#e4e7ea", "#2b323a")
HEAT: Colour = ("#005a96", "#2b6f9e")
CLIP_SPACE = 6.0
"""Beyond the axes, so that a marker at their end is whole."""
_TICKS, _TICKS_SHARE = 10, 0.35  # of the width that the texts of the y axis have, at most
_LABEL_SHARE = 0.9  # of the height, since the widths of texts are estimates
_SPAN_OPACITY, _BAND_OPACITY = 0.13, 0.15
_DASHED, _DOTTED = "5 3", "1.5 2"
_DASHES = {"dashed": _DASHED, "dashed path": _DASHED, "dotted": "2 2.5"}
_MOST_NAMES, _NAME_ROWS = 14, 3
_MARKERS = {
    "dots": 7.0,
    "path": 5.6,
    "dashed path": 5.6,
    "hollow": 9.0,
    "large": 10.0,
    "large hollow": 11.0,
    "cross": 11.0,
    "large cross": 14.0,
}  # their widths; a large one is a square, or a larger cross
_RING, _BAR, _HALO = (
    3.0,
    3.6,
    6.0,
)  # of hollow marks, on both sides together; of crosses, and around them, which parts them from their interval
_MOST_ROWS = 3  # of the texts below the x axis
_HEAT_COLUMNS, _SHADES = 120, 6  # few, since each cell takes about 20 bytes


class Box(NamedTuple):
    """The rectangle within the axes."""

    left: float
    top: float
    width: float
    height: float


class HeatCell(NamedTuple):
    """A rectangle of one shade, from 1 for few requests to `_SHADES`, in the units of the axes."""

    shade: int
    left: float
    right: float
    bottom: float
    top: float


@dataclasses.dataclass(frozen=True, slots=True)
class LegendKey:
    """A name in the legend, with what draws its sample: a line, a level, or a span without either."""

    name: str
    line: Line | None = None
    level: Level | None = None

    def sample(self, x: float, y: float, width: float) -> str:
        """The sample beside the name."""
        if self.line is not None:
            return _styled(self.line, [(x, y), (x + width, y)], [(x + width / 2, y)] if self.line.style in _MARKERS else [])
        if self.level is not None:
            return _dashed(path([(x, y), (x + width, y)]), self.level, _DOTTED if self.level.is_vertical else _DASHED)
        return element("rect", x=x, y=y - 4, width=width, height=8.0, fill=MUTED[0], fill_opacity=0.3)


def legend_keys(chart: Chart) -> list[LegendKey]:
    """The legend of a chart: its lines, its named spans, its named horizontal levels, and what its vertical ones mean."""
    first: dict[str, Line] = {}
    for line in chart.lines:
        first.setdefault(line.name, line)
    keys = [LegendKey(name, line) for name, line in first.items()]
    keys += [LegendKey(label) for label in dict.fromkeys(span.label for span in chart.spans if span.label and not span.is_bad)]
    keys += [LegendKey(level.label, level=level) for level in chart.levels if level.label and not level.is_vertical]
    return keys + [LegendKey(key, level=level) for key, level in {level.key: level for level in chart.levels if level.key}.items()]


class Panel:
    """A chart with its scales, for a picture of about that width."""

    def __init__(self, chart: Chart, width: float, columns: int) -> None:
        self.chart = chart
        self.x = scale_of(chart.x, chart.ends_of_x(), _TICKS // columns, is_x=True)
        self.y = scale_of(chart.y, chart.ends_of_y(), _TICKS // 2, is_x=False)
        self._y_texts = [(value, shortened(label, FONT, _TICKS_SHARE * width)) for value, label in self.y.ticks]
        self.left = FONT + 14 + max((text_width(label, FONT) for _, label in self._y_texts), default=0.0)
        """The room that the label and the texts of the y axis need."""

    def rows(self, width: float) -> int:
        """The rows in which the texts of the x axis stand, if it is so wide."""
        return self._x_texts(Box(self.left, 0.0, width, 0.0))[0]

    def drawn(self, box: Box, *, has_ticks: bool, has_label: bool) -> list[str]:
        """The panel's elements, with the texts of the x axis and its label if they are asked for."""
        chart, bottom, right = self.chart, box.top + box.height, box.left + box.width
        rows, x_texts = self._x_texts(box)
        x_name, y_name = (
            axis.label + ", log scale" * (scale.is_log and not axis.is_percentile) for axis, scale in ((chart.x, self.x), (chart.y, self.y))
        )
        label = f"{y_name} ({chart.y.unit})" if chart.y.unit else y_name
        if chart.y.unit and text_width(label, FONT) > _LABEL_SHARE * box.height:
            label = f"{chart.y.unit}{', log scale' * self.y.is_log}"  # the title says the rest
        at_label = f"translate({number(box.left - self.left + FONT)} {number(box.top + box.height / 2)}) rotate(-90)"
        upright = "".join(path([(x, box.top), (x, bottom)]) for x, _ in _places(self.x.ticks, self.x, box.left, box.width))
        level = "".join(path([(box.left, y), (right, y)]) for y, _ in _places(self.y.ticks, self.y, bottom, -box.height))
        y_texts = [
            text(label, 0.0, 0.0, text_anchor="middle", transform=at_label),
            *(text(one, box.left - 5, y + 3.5, text_anchor="end") for y, one in _places(self._y_texts, self.y, bottom, -box.height)),
        ]
        at_label_y = bottom + 25 + ROW_HEIGHT * (rows - 1)
        x_label = text(x_name, box.left + box.width / 2, at_label_y, text_anchor="middle", class_="label") if has_label else ""
        return [
            element("path", d=level, stroke=GRID[0], stroke_width=0.8, class_="levels"),
            element("path", d=upright, stroke=GRID[0], stroke_width=0.8, class_="uprights"),
            self._values(box),
            element("path", d=path([box[:2], (box.left, bottom), (right, bottom)]), stroke=MUTED[0], stroke_width=0.9, class_="frame"),
            group(self._level_names(box), class_="names", font_size=SMALL),
            group(y_texts, fill=INK[0]),
            group(x_texts if has_ticks else (), fill=INK[0], text_anchor="middle", class_="ticks"),
            group([x_label], fill=INK[0]),
        ]

    def _x_texts(self, box: Box) -> tuple[int, list[str]]:
        """The number of rows, and the texts of the x axis: names in up to three rows, numbers in one; of those that overlap, every second, third and so on.

        A page's script does the same for the width of its window.
        """
        places = _places(self.x.ticks, self.x, box.left, box.width)
        ends = [(x - text_width(label, FONT) / 2, x + text_width(label, FONT) / 2 + FONT / 2) for x, label in places]
        is_named, is_log = bool(self.chart.x.ticks), self.x.is_log
        steps = [1, *range(3 if is_log and not is_named else 2, len(places) + 2)]  # of 1, 2 and 5 every third
        first = (
            0
            if is_named
            else next((n for n, (value, _) in enumerate(self.x.ticks) if value == 0 or (is_log and f"{value:e}".startswith("1.0"))), 0)
        )
        for step, rows in itertools.product(steps, range(1, _MOST_ROWS + 1 if is_named else 2)):
            chosen = range(first % step, len(places), step)
            if all(ends[one][1] <= ends[other][0] for one, other in zip(chosen, chosen[rows:], strict=False)):
                break
        bottom = box.top + box.height + 12
        return rows, [text(places[one][1], places[one][0], bottom + ROW_HEIGHT * (number % rows)) for number, one in enumerate(chosen)]

    def _level_names(self, box: Box) -> Iterator[str]:
        """Names the vertical levels at the top, in rows where names would overlap; those that find no room have none."""
        named = sorted((level for level in self.chart.levels if level.is_vertical and level.label), key=lambda level: level.value)
        if len(named) > _MOST_NAMES or not self.chart.lines:
            return
        right, ends = box.left + box.width, [-math.inf] * _NAME_ROWS
        for level in named:
            share = self.x.share(level.value)
            if share is None or not 0 <= round(share, 6) <= 1:
                continue
            place, length = box.left + share * box.width, text_width(level.label, SMALL) + 6
            is_left = place + length > right
            start = place - (length if is_left else 0.0)
            row = next((row for row, end in enumerate(ends) if start >= end), None)
            if row is None:
                continue
            ends[row] = start + length
            x, y, anchor = place + (-3 if is_left else 3), box.top + 8 + 10.5 * row, "end" if is_left else None
            yield text(level.label, x, y, fill=level.colour[0], text_anchor=anchor, data_value=f"{level.value:.6g}")

    def _values(self, box: Box) -> str:
        """What the axes enclose, in a picture of its own, which cuts it off and which a page's script can stretch."""
        canvas = _Canvas(self.chart, self.x, self.y, box.width, box.height)
        low, width, height = -CLIP_SPACE, box.width + 2 * CLIP_SPACE, box.height + 2 * CLIP_SPACE
        at: dict[str, object] = {"x": box.left + low, "y": box.top + low, "width": width, "height": height}
        at |= {"viewBox": " ".join(map(number, (low, low, width, height))), "preserveAspectRatio": "none", "class": "values"}
        return element("svg", f"\n{canvas.drawn()}\n", **at)


class _Canvas:
    """The values of a chart, drawn in a rectangle whose upper left corner is the origin."""

    def __init__(self, chart: Chart, x: DrawnScale, y: DrawnScale, width: float, height: float) -> None:
        self._chart, self._x, self._y, self._width, self._height = chart, x, y, width, height

    def drawn(self) -> str:
        lines = element("g", "\n".join(element("g", self._line(line)) for line in self._chart.lines), class_="lines")
        return "\n".join(filter(None, [*map(self._span, self._chart.spans), *self._heat(), *self._levels(), lines]))

    def _at_x(self, value: float) -> float | None:
        share = self._x.share(value)
        return None if share is None else share * self._width

    def _at_y(self, value: float) -> float | None:
        share = self._y.share(value)
        return None if share is None else self._height - share * self._height

    def _at(self, x: float, y: float | None) -> tuple[float, float] | None:
        left, top = self._at_x(x), None if y is None else self._at_y(y)
        return None if left is None or top is None else (left, top)

    def _within(self, x: float, y: float) -> tuple[float, float] | None:
        """A place, or the nearest one within the axes."""
        at = self._at(x, y)
        return None if at is None else (min(max(at[0], 0.0), self._width), min(max(at[1], 0.0), self._height))

    def _span(self, span: Span) -> str:
        left, right = self._within(span.low, self._y.low), self._within(span.high, self._y.low)
        if left is None or right is None:
            return ""
        colour = RED[0] if span.is_bad else MUTED[0]
        width = max(right[0] - left[0], 0.0)
        return element("rect", x=left[0], y=0.0, width=width, height=self._height, fill=colour, fill_opacity=_SPAN_OPACITY)

    def _heat(self) -> Iterator[str]:
        by_shade: dict[int, str] = {}
        starts = {level.value for level in self._chart.levels if level.is_vertical}
        for cell in heat_cells(self._chart.heat, starts) if self._chart.heat else ():
            first, last = self._within(cell.left, cell.bottom), self._within(cell.right, cell.top)
            if first is not None and last is not None:
                (left, bottom), (right, top) = (map(number, corner) for corner in (first, last))
                by_shade[cell.shade] = f"{by_shade.get(cell.shade, '')}M{left} {bottom}H{right}V{top}H{left}Z"
        for shade, cells in sorted(by_shade.items()):
            yield element("path", d=cells, fill=HEAT[0], fill_opacity=f"{0.1 + 0.65 * shade / _SHADES:.2f}")

    def _levels(self) -> Iterator[str]:
        unnamed = [level for level in self._chart.levels if level.is_vertical and not level.label]
        for level in self._chart.levels:
            if not level.is_vertical:
                at = self._at_y(level.value)
                yield "" if at is None else _dashed(path([(0.0, at), (self._width, at)]), level, _DASHED)
            elif level.label:
                yield _dashed(self._uprights([level]), level, _DOTTED)
        if unnamed:  # there may be thousands
            yield _dashed(self._uprights(unnamed), unnamed[0], _DOTTED)

    def _uprights(self, levels: Iterable[Level]) -> str:
        places = (self._at_x(level.value) for level in levels)
        return "".join(path([(place, 0.0), (place, self._height)]) for place in places if place is not None)

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
            parts.append(element("path", d=crosses, stroke=line.colour[0], stroke_width=2.2, stroke_opacity=0.8))
        parts.append(_styled(line, points, known if line.style in _MARKERS or len(known) == 1 else []))
        return "\n".join(filter(None, parts))


def heat_cells(heat: Heat, starts: Collection[float]) -> list[HeatCell]:
    """The cells of a heat map, with at most `_HEAT_COLUMNS` columns for each part of the axis that begins at one of `starts`.

    The shade is the square root of the bin's share of its column; neighbouring bins of one shade are one cell.
    """
    together = -(-len(heat.columns) // _HEAT_COLUMNS)
    columns: list[list[HeatColumn]] = []
    for column in heat.columns:
        if not columns or len(columns[-1]) == together or column.low in starts:
            columns.append([])
        columns[-1].append(column)
    cells = []
    for parts in columns:
        counts = Counter[int]()
        for part in parts:
            counts.update({part.first_bin + number: count for number, count in enumerate(part.counts) if count})
        total = counts.total()
        shades = [(number, math.ceil(_SHADES * math.sqrt(counts[number] / total))) for number in sorted(counts)]
        for (_, shade), run in itertools.groupby(enumerate(shades), lambda numbered: (numbered[1][0] - numbered[0], numbered[1][1])):
            bins = [number for _, (number, _) in run]
            bottom, top = (10 ** (edge / heat.bins_per_decade) for edge in (bins[0], bins[-1] + 1))
            cells.append(HeatCell(shade, parts[0].low, parts[-1].high, bottom, top))
    return cells


def _places(ticks: Sequence[tuple[float, str]], scale: DrawnScale, start: float, length: float) -> list[tuple[float, str]]:
    """The ticks' texts at their coordinates."""
    return [(start + share * length, one) for value, one in ticks if (share := scale.share(value)) is not None]


def _dashed(data: str, level: Level, dashes: str) -> str:
    return element("path", d=data, stroke=level.colour[0], stroke_width=0.9, stroke_dasharray=dashes)


def _styled(line: Line, points: Sequence[tuple[float, float] | None], markers: Sequence[tuple[float, float]]) -> str:
    """A line through points, unless its style has markers alone, and the markers, in the style and colour of a chart's line."""
    colour, parts = line.colour[0], []
    if line.style not in _MARKERS or line.style.endswith("path"):
        dashes = _DASHES.get(line.style)
        parts.append(element("path", d=path(points, is_stepped=line.style == "steps"), stroke=colour, stroke_dasharray=dashes))
    if markers and line.style.endswith("cross"):  # short lines, which a page's script cannot stretch, since they are upright
        arm, dots = _MARKERS[line.style], "".join(f"M{number(x, 2)} {number(y)}h0" for x, y in markers)
        parts.append(element("path", d=dots, stroke=BACK[0], stroke_width=arm + _HALO, stroke_linecap="round"))
        for length, width in ((arm, _BAR), (_BAR, arm)):
            data = "".join(f"M{number(x, 2)} {number(y - length / 2)}v{number(length)}" for x, y in markers)
            parts.append(element("path", d=data, stroke=colour, stroke_width=width))
    elif markers:  # lines without length, whose ends are the markers
        data, width = "".join(f"M{number(x, 2)} {number(y)}h0" for x, y in markers), _MARKERS.get(line.style, _MARKERS["dots"])
        rings = [(width, colour), (width - _RING, BACK[0])] if line.style.endswith("hollow") else [(width, colour)]
        end = "square" if line.style.startswith("large") else "round"
        parts += [element("path", d=data, stroke=one, stroke_width=width, stroke_linecap=end) for width, one in rings]
    return "\n".join(parts)

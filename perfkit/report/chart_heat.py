"""The heat map of a chart's picture: few columns and shades, since each cell takes about 20 bytes."""

import itertools
import math
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from perfkit.report.chart import Heat, HeatColumn

_COLUMNS = 120
SHADES = 6


class HeatCell(NamedTuple):
    """A rectangle of one shade, from 1 for few requests to `SHADES`, in the units of the axes."""

    shade: int
    left: float
    right: float
    bottom: float
    top: float


def heat_cells(heat: Heat, starts: Collection[float]) -> list[HeatCell]:
    """The cells of a heat map, with at most `_COLUMNS` columns for each part of the axis that begins at one of `starts`.

    The shade is the square root of the bin's share of its column; neighbouring bins of one shade are one cell.
    """
    together = -(-len(heat.columns) // _COLUMNS)
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
        shades = [(number, math.ceil(SHADES * math.sqrt(counts[number] / total))) for number in sorted(counts)]
        for (_, shade), run in itertools.groupby(enumerate(shades), lambda numbered: (numbered[1][0] - numbered[0], numbered[1][1])):
            bins = [number for _, (number, _) in run]
            bottom, top = (10 ** (edge / heat.bins_per_decade) for edge in (bins[0], bins[-1] + 1))
            cells.append(HeatCell(shade, parts[0].low, parts[-1].high, bottom, top))
    return cells

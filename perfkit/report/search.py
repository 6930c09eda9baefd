"""A capacity search: its probes as a table, and as a picture with the fitted line, the interval and the SLO."""

import math
from typing import TYPE_CHECKING

from perfkit.report.table import Cell, Column, Kind, Table
from perfkit.result.model import FittedLine, Point, Result, Search, SearchProbe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HIGHEST_RATIO = 8.0  # measured ÷ limit; what lies above is drawn there
_LINE_FROM, _LINE_TO = 0.72, 1.14  # of the capacity
_LARGEST_LOGARITHM = 20.0


def probes_table(result: Result) -> Table:
    """The probes in order, with each limited figure and its multiple of the limit."""
    search = result.search
    assert search is not None
    limited: list[tuple[str, Kind]] = [(name, "error_rate" if name == "error_rate" else "duration_ns") for name in search.slo]
    columns = (
        Column("probe", "probe", "count"),
        Column("stage", "stage"),
        Column("rate_per_s", "rate", "rate_per_s"),
        Column("throughput_per_s", "throughput", "rate_per_s"),
        *(Column(name, name.replace("_", " " if name == "error_rate" else "."), kind) for name, kind in limited),
        Column("samples", "samples", "count"),
        Column("outcome", "SLO"),
    )
    pairs = list(zip(search.probes, result.points, strict=False))  # an interrupted point is no probe
    rows = tuple(
        (
            number, probe.stage, probe.rate_per_s, point.throughput_per_s, *(_limited(column, probe, point) for column in columns[4:-2]),
            point.times.count, _outcome(probe),
        )
        for number, (probe, point) in enumerate(pairs, 1)
    )  # fmt: skip
    note = "The probes in order; the number in brackets is the percentile as a multiple of its limit."
    return Table("probes", "Probes", columns, rows, note, tuple("" if probe.valid else "invalid" for probe, _ in pairs))


def _limited(column: Column, probe: SearchProbe, point: Point) -> Cell:
    if column.key == "error_rate":
        return Cell(point.error_rate)
    value_ns = getattr(point.times, column.key) if point.times.count else None
    if value_ns is None or column.key not in probe.margins:
        return Cell(value_ns)
    return Cell(value_ns, f"{column.cell(value_ns).text} ({math.exp(probe.margins[column.key]):.2f}×)")


def _outcome(probe: SearchProbe) -> str:
    if not probe.valid:
        return "not valid"
    return "overloaded" if probe.overloaded else "met" if probe.met else "missed"


def search_figure(search: Search) -> "Figure":
    """Measured ÷ limit against the rate, both logarithmic; what lies above the panel stands at its top."""
    import numpy as np
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    from perfkit.report.plots import BLUE, GREEN, INK, MUTED, NUMBERS, VERMILLION, WIDTH_IN

    markers = {
        "met": ("o", GREEN, "SLO met"), "missed": ("o", VERMILLION, "SLO missed"), "overloaded": ("^", VERMILLION, "overloaded"),
        "not valid": ("x", MUTED, "not valid"),
    }  # fmt: skip
    figure = Figure(figsize=(WIDTH_IN, 3.8), layout="constrained")
    panel = figure.subplots()
    labelled, top = set[str](), 2.0
    for probe in search.probes:
        outcome = _outcome(probe)
        marker, colour, label = markers[outcome]
        face = colour if probe.stage != "confirm" else "white"
        ratio = min(_ratio(search, probe), _HIGHEST_RATIO)
        legend = None if outcome in labelled else label
        panel.plot([probe.rate_per_s], [ratio], marker=marker, mfc=face, mec=colour, ls="", ms=6, label=legend, zorder=3)
        labelled.add(outcome)
        top = max(top, ratio)
    panel.axhline(1.0, color=INK, lw=1.1, ls="--", label="the SLO's limit")
    if search.low_per_s is not None and search.high_per_s is not None:
        name = f"{search.confidence:.0%} interval" if search.line else "between met and missed"
        panel.axvspan(search.low_per_s, search.high_per_s, color=BLUE, alpha=0.15, lw=0, label=name)
    if search.line is not None and search.capacity_per_s is not None:
        rates = np.linspace(_LINE_FROM * search.capacity_per_s, _LINE_TO * search.capacity_per_s, 64)
        ratios = [(rate, ratio) for rate in rates if (ratio := _fitted_ratio(search.line, float(rate))) <= _HIGHEST_RATIO]
        panel.plot(*zip(*ratios, strict=True), color=BLUE, label="fitted line")
    panel.set(xscale="log", yscale="log", xlabel="arrivals per second", ylabel=f"{_limit(search)} ÷ its limit")
    panel.set_ylim(top=top * 1.15)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(NUMBERS)
        axis.set_minor_formatter(NullFormatter())
    figure.legend(loc="outside right upper")
    return figure


def _limit(search: Search) -> str:
    """The name of the limit that the figure shows."""
    name = search.line.limit if search.line is not None else next(iter(search.slo)) if len(search.slo) == 1 else "the worst figure"
    return name.replace("_", " " if name == "error_rate" else ".")


def _ratio(search: Search, probe: SearchProbe) -> float:
    if search.line is not None and search.line.limit in probe.margins:
        return math.exp(min(probe.margins[search.line.limit], _LARGEST_LOGARITHM))
    return math.exp(min(max(probe.margins.values()), _LARGEST_LOGARITHM)) if probe.margins else math.inf


def _fitted_ratio(line: FittedLine, rate_per_s: float) -> float:
    """Measured ÷ limit on the fitted line; see `FittedLine` for its equation."""
    remainder = 1 - line.power * (line.intercept + line.slope * (rate_per_s / line.centre_per_s - 1))
    return float(remainder ** (-1 / line.power)) if remainder > 0 else math.inf

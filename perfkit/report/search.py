"""A capacity search: its probes as a table, and as a plot with the fitted curve, the interval and the share that the SLO allows."""

import math
from typing import TYPE_CHECKING

from perfkit.report.table import Cell, Column, Kind, Table
from perfkit.result.model import FittedCurve, Point, Result, Search, SearchProbe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST_BEYOND = 0.5  # requests; a probe with none beyond the limit is drawn there, since the axis is logarithmic
_CURVE_FROM, _CURVE_TO = 0.72, 1.14  # rate ÷ capacity


def probes_table(result: Result) -> Table:
    """The probes in order, with each figure that the SLO limits and the share of requests beyond the limit."""
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
    note = "The probes in order. In brackets: the share of requests that were slower than the percentile's limit."
    return Table("probes", "Probes", columns, rows, note, tuple("" if probe.valid else "invalid" for probe, _ in pairs))


def _limited(column: Column, probe: SearchProbe, point: Point) -> Cell:
    if column.key == "error_rate":
        return Cell(point.error_rate)
    value_ns = getattr(point.times, column.key) if point.times.count else None
    counted = probe.limits.get(column.key)
    if value_ns is None or counted is None or not counted.count:
        return Cell(value_ns)
    return Cell(value_ns, f"{column.cell(value_ns).text} ({counted.beyond / counted.count:.2%})")


def _outcome(probe: SearchProbe) -> str:
    if not probe.valid:
        return "not valid"
    return "overloaded" if probe.overloaded else "met" if probe.met else "missed"


def search_figure(search: Search) -> "Figure":
    """The share of requests beyond the limit that decides, against the rate, with the share that the SLO allows; both axes are logarithmic."""
    import numpy as np
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

    from perfkit.report.plots import BLUE, GREEN, INK, MUTED, NUMBERS, VERMILLION, WIDTH_IN

    markers = {
        "met": ("o", GREEN, "SLO met"), "missed": ("o", VERMILLION, "SLO missed"), "overloaded": ("^", VERMILLION, "overloaded"),
        "not valid": ("x", MUTED, "not valid"),
    }  # fmt: skip
    figure = Figure(figsize=(WIDTH_IN, 3.8), layout="constrained")
    panel = figure.subplots()
    name, labelled = _limit(search), set[str]()
    for probe in search.probes:
        if name not in probe.limits:
            continue
        outcome = _outcome(probe)
        marker, colour, label = markers[outcome]
        face = colour if probe.stage != "confirm" else "white"
        legend = None if outcome in labelled else label
        panel.plot([probe.rate_per_s], [_share(probe, name)], marker=marker, mfc=face, mec=colour, ls="", ms=6, label=legend, zorder=3)
        labelled.add(outcome)
    if allowed := next((probe.limits[name].allowed_share for probe in search.probes if name in probe.limits), None):
        panel.axhline(allowed, color=INK, lw=1.1, ls="--", label="allowed by the SLO")
    if search.low_per_s is not None and search.high_per_s is not None:
        interval = f"{search.confidence:.0%} interval" if search.curve else "between met and missed"
        panel.axvspan(search.low_per_s, search.high_per_s, color=BLUE, alpha=0.15, lw=0, label=interval)
    if search.curve is not None and search.capacity_per_s is not None:
        rates = np.linspace(_CURVE_FROM * search.capacity_per_s, _CURVE_TO * search.capacity_per_s, 64)
        panel.plot(rates, [_fitted_share(search.curve, float(rate)) for rate in rates], color=BLUE, label="fitted curve")
    what = "failed requests" if name == "error_rate" else f"requests above the limit of {name.replace('_', '.')}"
    panel.set(xscale="log", yscale="log", xlabel="arrivals per second", ylabel=what)
    panel.set_ylim(top=1.3)
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter(NUMBERS)
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_minor_formatter(NullFormatter())
    figure.legend(loc="outside right upper")
    return figure


def _limit(search: Search) -> str:
    """The name of the limit that is drawn: the one that decides, or without a fitted curve the first."""
    return search.curve.limit if search.curve is not None else next(iter(search.slo))


def _share(probe: SearchProbe, name: str) -> float:
    counted = probe.limits[name]
    return max(counted.beyond, _LEAST_BEYOND) / max(counted.count, 1)


def _fitted_share(curve: FittedCurve, rate_per_s: float) -> float:
    """The share on the fitted curve; see `FittedCurve` for its equation."""
    return float(min(curve.floor + math.exp(min(curve.intercept + curve.slope * (rate_per_s / curve.centre_per_s - 1), 0.0)), 1.0))

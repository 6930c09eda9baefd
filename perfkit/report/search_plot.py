"""A capacity search as a picture: probes, the fitted line, the interval and the SLO."""

import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from perfkit.report.plot_style import BLUE, GREEN, INK, MUTED, NUMBERS, VERMILLION
from perfkit.result.model import FittedLine, Search, SearchProbe

_KINDS = {
    "kept": ("o", GREEN, "SLO kept"),
    "missed": ("o", VERMILLION, "SLO missed"),
    "overloaded": ("^", VERMILLION, "overloaded"),
    "not valid": ("x", MUTED, "not valid"),
}
_HIGHEST = 8.0  # times the limit: what lies above is drawn there
_LINE_FROM, _LINE_TO = 0.72, 1.14


def search_figure(search: Search, width_in: float) -> Figure:
    """Measured ÷ limit against the rate, both logarithmic; a triangle at the top is above it."""
    figure = Figure(figsize=(width_in, 3.8), layout="constrained")
    panel = figure.subplots()
    drawn, top = set[str](), 2.0
    for probe in search.probes:
        kind = _kind(probe)
        marker, colour, label = _KINDS[kind]
        face = colour if probe.stage != "confirm" else "white"
        ratio = min(_ratio(search, probe), _HIGHEST)
        panel.plot(
            [probe.rate_per_s], [ratio], marker=marker, mfc=face, mec=colour, ls="", ms=6, label=None if kind in drawn else label, zorder=3
        )
        drawn.add(kind)
        top = max(top, ratio)
    panel.axhline(1.0, color=INK, lw=1.1, ls="--", label="the SLO's limit")
    if search.low_per_s is not None and search.high_per_s is not None:
        name = f"{search.confidence:.0%} interval" if search.line else "between kept and missed"
        panel.axvspan(search.low_per_s, search.high_per_s, color=BLUE, alpha=0.15, lw=0, label=name)
    if search.line is not None and search.capacity_per_s is not None:
        rates = np.linspace(_LINE_FROM * search.capacity_per_s, _LINE_TO * search.capacity_per_s, 64)
        ratios = [(rate, ratio) for rate in rates if (ratio := _on_line(search.line, float(rate))) <= _HIGHEST]
        panel.plot(*zip(*ratios, strict=True), color=BLUE, label="fitted line")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_ylim(top=top * 1.15)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(NUMBERS)
        axis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("arrivals per second")
    panel.set_ylabel(f"{_limit(search)} ÷ its limit")
    figure.legend(loc="outside right upper")
    return figure


def _limit(search: Search) -> str:
    if search.line is not None:
        return search.line.limit.replace("_", " " if search.line.limit == "error_rate" else ".")
    return next(iter(search.slo)).replace("_", ".") if len(search.slo) == 1 else "what is worst off"


def _ratio(search: Search, probe: SearchProbe) -> float:
    if search.line is not None and search.line.limit in probe.margins:
        return math.exp(min(probe.margins[search.line.limit], 20.0))
    return math.exp(min(max(probe.margins.values()), 20.0)) if probe.margins else math.inf


def _on_line(line: FittedLine, rate_per_s: float) -> float:
    left = 1 - line.power * (line.intercept + line.slope * (rate_per_s / line.centre_per_s - 1))
    return float(left ** (-1 / line.power)) if left > 0 else math.inf


def _kind(probe: SearchProbe) -> str:
    if not probe.valid:
        return "not valid"
    return "overloaded" if probe.overloaded else "kept" if probe.met else "missed"

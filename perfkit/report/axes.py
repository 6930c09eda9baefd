"""Plots of a run in matplotlib axes of the caller, as in a notebook."""

import itertools
import pathlib
from typing import Literal, TypeAlias, get_args

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from perfkit.errors import UsageError
from perfkit.report.run_charts import percentile_curve
from perfkit.report.timeline import read_timeline, repetitions_of
from perfkit.result.model import Result
from perfkit.result.time_frames import read_histograms
from perfkit.units import NS_PER_MS

Plot: TypeAlias = Literal["percentiles", "load", "timeline"]


def draw(result: Result, folder: pathlib.Path, kind: Plot, axes: Axes | None) -> Axes:
    """Draws one plot and returns its axes, those of a new pyplot figure if none are given.

    Raises ResultError, and UsageError for an unknown plot.
    """
    if kind not in get_args(Plot):
        raise UsageError(f"plot: expected one of {', '.join(get_args(Plot))}, found {kind!r}")
    if axes is None:
        from matplotlib import pyplot as plt

        _, axes = plt.subplots()
    times_name = result.summary[0].times_name if result.summary else "service time"
    axes.set_ylabel(f"{times_name} (ms)")
    if kind == "percentiles":
        _draw_percentiles(axes, result, folder)
    elif kind == "load":
        _draw_load(axes, result)
    else:
        _draw_timeline(axes, result, folder)
    axes.grid(visible=True, alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    return axes


def _draw_percentiles(axes: Axes, result: Result, folder: pathlib.Path) -> None:
    """Times against 1/(1-q) for quantile q, on a logarithmic axis, where each further nine takes the same width."""
    highest = 10.0
    for point, counts in zip(result.summary, read_histograms(folder, result), strict=True):
        steps, values_ns = percentile_curve(counts)
        if values_ns:
            axes.plot(steps, [value_ns / NS_PER_MS for value_ns in values_ns], label=point.title)
            highest = max(highest, float(steps[-1]))
    axes.set(xscale="log", xlabel="percentile", xlim=(1, highest * 1.08))
    ticks = [2.0, *itertools.takewhile(lambda tick: tick <= highest * 1.08, (10.0**nines for nines in range(1, 10)))]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{100 * (1 - 1 / tick):.7g}%"))
    axes.xaxis.set_minor_locator(NullLocator())


def _draw_load(axes: Axes, result: Result) -> None:
    """Times against throughput: where the line turns upwards, the server is saturated. Crosses mark invalid load points."""
    for protocol in dict.fromkeys(point.protocol for point in result.summary):
        own = sorted((point for point in result.summary if point.protocol == protocol), key=lambda point: point.load.level)
        for name, style in (("p50", "-"), ("p99", "--")):
            pairs = [(point.throughput_per_s, value / NS_PER_MS) for point in own if (value := getattr(point.times, name)) is not None]
            if pairs:
                axes.plot(*zip(*pairs, strict=True), linestyle=style, marker="o", label=f"{name}, {protocol}")
        for point in own:
            if point.times.p50 is not None:
                place = (point.throughput_per_s, point.times.p50 / NS_PER_MS)
                axes.annotate(point.load.amount, place, xytext=(3, 4), textcoords="offset points", fontsize="small")
                if not point.valid:
                    axes.plot(*place, marker="x", color="red", markersize=10)
    axes.set(xlabel="throughput (ok answers per second)", xlim=(0, None), ylim=(0, None))


def _draw_timeline(axes: Axes, result: Result, folder: pathlib.Path) -> None:
    timeline = read_timeline(folder, result)
    for index, point in enumerate(result.summary):
        for name, style in (("p50", "-"), ("p99", "--")):
            values = [
                value
                for one, start_s in repetitions_of(result, point)
                for value in timeline.times_ms((index, one.repetition or 0), name, start_s)
            ]
            if values:
                axes.plot(*zip(*values, strict=True), linestyle=style, label=f"{name}, {point.title}")
    axes.set(xlabel="seconds measured, repetitions one after another", ylim=(0, None))

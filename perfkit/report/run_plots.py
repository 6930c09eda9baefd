"""The plots of a run: load against throughput and times, percentiles, and the timeline."""

import itertools
from collections.abc import Iterator, Sequence

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from perfkit.report.plots import (
    BLUE,
    GREEN,
    MUTED,
    NS_PER_MS,
    NUMBERS,
    VERMILLION,
    WIDTH_IN,
    add_legend,
    legend_key,
    plot_series,
    render_svgs,
    scale_times,
    separate_repetition,
)
from perfkit.report.resource_plots import resource_figures
from perfkit.report.search import search_figure
from perfkit.report.timeline import Timeline, repetitions_of
from perfkit.result.model import Point, Result
from perfkit.stats.buckets import BucketCounts

_UPPER = {
    "p99": "p99 of the {times}",
    "p90": "p90 of the {times} (p99 needs 100 samples per step)",
    "max": "maximum of the {times} (p90 needs 10 samples per step)",
}
_TICKS = {2: "50%", 10: "90%", 100: "99%", 1_000: "99.9%", 10_000: "99.99%", 100_000: "99.999%", 1_000_000: "99.9999%"}


def render_plots(result: Result, timeline: Timeline) -> dict[str, str]:
    """SVG by name, in the order of the page; plots without samples are left out."""
    return render_svgs(lambda: _figures(result, timeline))


def _figures(result: Result, timeline: Timeline) -> Iterator[tuple[str, Figure]]:
    if result.search is not None and result.search.probes:
        yield "search", search_figure(result.search)
    answered = [point for point in result.summary if point.times.count]
    if result.search is None and len({point.load.level for point in answered}) > 1:  # a single point says no more than the table
        yield "load", load_figure(result.summary)
    if any(histogram.count for histogram in timeline.histograms):
        yield "percentiles", percentile_figure(result.summary, timeline.histograms)
    if any(timeline.slices.values()):
        yield "timeline", timeline_figure(result, timeline)
    yield from resource_figures(result, timeline)


def percentile_curve(histogram: BucketCounts) -> tuple[npt.NDArray[np.float64], list[int]]:
    """A distribution as a curve: x = 1/(1-q) for some quantiles q, and the times at these quantiles in nanoseconds.

    x ends at the number of samples, because no sample is expected above that quantile.
    """
    count = histogram.count
    if not count:
        return np.empty(0), []
    steps = np.geomspace(1, count, max(2, int(32 * np.log10(count)))) if count > 1 else np.ones(1)
    steps = np.unique(np.concatenate([np.minimum(steps, count), [tick for tick in _TICKS if tick <= count]]))
    values = histogram.values_at([float(1 - 1 / step) for step in steps])
    return steps, [histogram.min_ns, *(min(value, histogram.max_ns) for value in values[1:])]


def percentile_figure(points: Sequence[Point], histograms: Sequence[BucketCounts]) -> Figure:
    """The load points' times against the percentile: a panel per protocol, a line per load point."""
    protocols, colours = _protocols(points), _colours(points)
    figure = Figure(figsize=(WIDTH_IN, 4.0), layout="constrained")
    panels = figure.subplots(1, len(protocols), sharex=True, sharey=True, squeeze=False)[0]
    lowest, highest, furthest = float("inf"), 0.0, 10.0
    for point, histogram in zip(points, histograms, strict=True):
        steps, values_ns = percentile_curve(histogram)
        if not values_ns:
            continue
        values_ms = np.array(values_ns) / NS_PER_MS
        lowest, highest, furthest = min(lowest, values_ms[0]), max(highest, values_ms[-1]), max(furthest, steps[-1])
        panel, marker = panels[protocols.index(point.protocol)], "." if len(steps) == 1 else None
        panel.plot(steps, values_ms, color=colours[point.load.level], marker=marker, ms=6, gid=f"percentiles-{_id(point)}")
    for panel, protocol in zip(panels, protocols, strict=True):
        panel.set(xscale="log", xlim=(1, furthest * 1.08), title=protocol, xlabel="percentile")
        panel.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= furthest * 1.08]))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: _TICKS.get(round(tick), "")))
        panel.xaxis.set_minor_locator(NullLocator())
    scale_times(panels[0], lowest, highest)
    panels[0].set_ylabel(f"{points[0].times_name} (ms)")
    amounts = {point.load.level: point.load.amount for point, histogram in zip(points, histograms, strict=True) if histogram.count}
    handles = [legend_key(color=colours[level], lw=2, label=amount) for level, amount in sorted(amounts.items(), reverse=True)]
    title = "concurrency" if points[0].load.kind == "closed" else "rate"
    figure.legend(handles=handles, title=title, loc="outside right upper", alignment="left")
    return figure


def load_figure(points: Sequence[Point]) -> Figure:
    """Throughput, and p50 and p99 of the times, against the load."""
    figure = Figure(figsize=(WIDTH_IN, 3.5), layout="constrained")
    throughput, times = figure.subplots(1, 2, squeeze=True)
    styles = {"http": (BLUE, "o"), "grpc": (VERMILLION, "s")}
    for protocol in _protocols(points):
        own = sorted((point for point in points if point.protocol == protocol), key=lambda point: point.load.level)
        levels, (colour, marker) = [point.load.level for point in own], styles[protocol]
        rates = [point.throughput_per_s for point in own]
        throughput.plot(levels, rates, color=colour, marker=marker, ms=4.5, gid=f"throughput-{protocol}")
        for name, style in (("p50", "-"), ("p99", "--")):
            values_ms = [_milliseconds(point, name) for point in own]
            times.plot(levels, values_ms, color=colour, marker=marker, ms=4.5, ls=style, gid=f"{name}-{protocol}")
        invalid = [(point.load.level, point.throughput_per_s) for point in own if not point.valid]
        plot_series(throughput, invalid, color=colour, marker=marker, mfc="white", ms=4.5, ls="")
    for panel in (throughput, times):
        panel.set_xlabel("concurrency (requests in flight)" if points[0].load.kind == "closed" else "offered rate (requests per second)")
        _level_axis(panel, sorted({point.load.level for point in points}))
    highest = max(point.throughput_per_s for point in points) * 1.06 or 1.0
    throughput.set(title="throughput", ylabel="ok answers per second", ylim=(0, highest))
    throughput.yaxis.set_major_formatter(NUMBERS)
    times.set(title=points[0].times_name, ylabel=f"{points[0].times_name} (ms)")
    values_ms = [value_ms for point in points for name in ("p50", "p99") if (value_ms := _milliseconds(point, name)) > 0]
    if values_ms:
        scale_times(times, min(values_ms), max(values_ms))
    handles = [legend_key(color=styles[name][0], marker=styles[name][1], ms=4.5, label=name) for name in _protocols(points)]
    handles += [legend_key(color=MUTED, ls=style, label=name) for name, style in (("p50", "-"), ("p99", "--"))]
    if not all(point.valid for point in points):
        handles.append(legend_key(color=MUTED, marker="o", mfc="white", ms=4.5, ls="", label="not valid"))
    add_legend(figure, *handles)
    return figure


def timeline_figure(result: Result, timeline: Timeline) -> Figure:
    """Times and throughput over time: a pair of panels per load point, its repetitions one after another."""
    points, cells = result.summary, _cells(result.summary)
    rows, columns = (max(places) + 1 for places in zip(*cells, strict=True))
    figure = Figure(figsize=(WIDTH_IN, 0.75 + 1.75 * rows))
    bottom, top = 0.5 / figure.get_figheight(), 1 - 0.55 / figure.get_figheight()
    grid = figure.add_gridspec(
        3 * rows - 1, columns, height_ratios=[1, 0.45, 0.42] * (rows - 1) + [1, 0.45],
        left=0.072, right=0.985, bottom=bottom, top=top, hspace=0.2, wspace=0.13,
    )  # fmt: skip
    upper = _upper_percentile(timeline)
    label = "seconds measured" if timeline.slice_s == 1 else f"seconds measured, in steps of {timeline.slice_s} s"
    label += "; dotted lines separate the repetitions" if len(result.points) > len(points) else ""
    pairs: list[tuple[Axes, Axes]] = []
    for index, (point, (row, column)) in enumerate(zip(points, cells, strict=True)):
        times, rates = figure.add_subplot(grid[3 * row, column]), figure.add_subplot(grid[3 * row + 1, column])
        pairs.append((times, rates))
        _draw_timeline(times, rates, repetitions_of(result, point), index, timeline, upper)
        times.set_title(point.title, pad=4)
        times.tick_params(labelbottom=False)
        if column == 0:
            times.set_ylabel(point.times_name.replace(" ", "\n") + " (ms)")
            rates.set_ylabel("answers\nper s")
        if (row + 1, column) not in cells:
            rates.set_xlabel(label)
    longest_s = max(sum(one.duration_s for one, _ in repetitions_of(result, point)) for point in points)
    for (row, _), (times, rates) in zip(cells, pairs, strict=True):
        same_row = [pair[0] for pair, cell in zip(pairs, cells, strict=True) if cell[0] == row]
        for panel, same_scale, ticks in ((times, same_row, 4), (rates, [pair[1] for pair in pairs], 2)):
            top = max((float(np.max(line.get_ydata())) for other in same_scale for line in other.lines if line.get_gid()), default=0.0)
            panel.set(xlim=(0, longest_s or 1.0), ylim=(0, top * 1.12 or 1.0))
            panel.xaxis.set_major_locator(MaxNLocator(8, integer=True))
            panel.yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 4, 5, 10]))
            panel.yaxis.set_major_formatter(NUMBERS)
    figure.align_ylabels()
    handles = [
        legend_key(color=BLUE, label=f"p50 of the {points[0].times_name}"),
        legend_key(color=VERMILLION, label=_UPPER[upper].format(times=points[0].times_name)),
        legend_key(color=GREEN, label="throughput"),
    ]
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.06, 1), ncols=3, borderaxespad=0.2)
    return figure


def _cells(points: Sequence[Point]) -> list[tuple[int, int]]:
    """Row and column of each load point: a column per protocol, or two columns where there is only one."""
    protocols, levels = _protocols(points), sorted({point.load.level for point in points})
    if len(protocols) == 1:
        return [divmod(index, 2) for index in range(len(points))]
    return [(levels.index(point.load.level), protocols.index(point.protocol)) for point in points]


def _draw_timeline(
    times: Axes, rates: Axes, repetitions: Sequence[tuple[Point, float]], index: int, timeline: Timeline, upper: str
) -> None:
    """One load point's pair of panels."""
    for point, start_s in repetitions:
        number = point.repetition or 0
        for name, colour in (("p50", BLUE), (upper, VERMILLION)):
            plot_series(times, timeline.times_ms((index, number), name, start_s), color=colour, gid=f"{name}-{_id(point)}-r{number}")
        values = [(start_s + middle_s, rate) for middle_s, rate in _rates(point, timeline.slice_s)]
        plot_series(rates, values, color=GREEN, gid=f"throughput-{_id(point)}-r{number}")
        separate_repetition((times, rates), start_s)


def _rates(point: Point, slice_s: int) -> list[tuple[float, float]]:
    """Ok answers per second at the middle of each slice; a last slice too short for a rate is left out."""
    series, rates = point.throughput_series_per_s or (), []
    for start_s in range(0, len(series), slice_s):
        length_s = min(float(slice_s), point.duration_s - start_s)
        if length_s >= slice_s / 2 or (not start_s and length_s > 0):
            rates.append((start_s + length_s / 2, sum(series[start_s : start_s + slice_s]) / length_s))
    return rates


def _upper_percentile(timeline: Timeline) -> str:
    """The higher of p99 and p90 for which nearly all slices have enough samples; otherwise the maximum."""
    slices = list(itertools.chain.from_iterable(timeline.slices.values()))
    return next((name for name in ("p99", "p90") if sum(name in part.times_ns for part in slices) >= 0.9 * len(slices)), "max")


def _protocols(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.protocol for point in points))


def _colours(points: Sequence[Point]) -> dict[float, tuple[float, float, float, float]]:
    """A colour for each load; heavier loads are darker."""
    levels = sorted({point.load.level for point in points}, reverse=True)
    shades = mpl.colormaps["plasma"](np.linspace(0.02, 0.7, max(len(levels), 2)))
    return {level: tuple(shade) for level, shade in zip(levels, shades, strict=False)}


def _id(point: Point) -> str:
    return f"{point.protocol}-{point.load.level:g}"


def _milliseconds(point: Point, name: str) -> float:
    value = getattr(point.times, name)
    return value / NS_PER_MS if value is not None and point.times.count else float("nan")


def _level_axis(panel: Axes, levels: Sequence[float]) -> None:
    """A logarithmic axis with ticks at the measured levels, as far as their labels do not touch."""
    panel.set_xscale("log", base=2)
    panel.set_xlim(levels[0] / 1.2, levels[-1] * 1.2)
    apart, ticks = (levels[-1] / levels[0]) ** (1 / 14), [levels[0]]
    for level in levels[1:]:
        if level >= ticks[-1] * apart:
            ticks.append(level)
    panel.xaxis.set_major_locator(FixedLocator(ticks))
    panel.xaxis.set_major_formatter(NUMBERS)
    panel.xaxis.set_minor_locator(NullLocator())

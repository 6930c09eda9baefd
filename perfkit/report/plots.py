"""The pictures of a result as SVG text: the same values give the same bytes."""

import itertools
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from perfkit.recorder.histogram import Histogram
from perfkit.report.plot_style import BLUE, GREEN, MUTED, NS_PER_MS, NUMBERS, STYLE, VERMILLION, WIDTH_IN, scale_times, svg
from perfkit.report.recorded import Recorded, repetitions_of
from perfkit.report.resource_plots import resource_figures
from perfkit.report.search_plot import search_figure
from perfkit.result.model import Point, Result

_UPPER = {
    "p99": "p99 of the {times}",
    "p90": "p90 of the {times} (p99 needs 100 samples a step)",
    "max": "maximum of the {times} (p90 needs 10 samples a step)",
}
_TICKS = {2: "50%", 10: "90%", 100: "99%", 1_000: "99.9%", 10_000: "99.99%", 100_000: "99.999%", 1_000_000: "99.9999%"}


def draw_plots(result: Result, recorded: Recorded) -> dict[str, str]:
    """SVG by name, in the order to show them; what has no samples is left out."""
    with mpl.rc_context():
        mpl.rcdefaults()  # a matplotlibrc of the user must not change the picture
        mpl.rcParams.update(STYLE)
        figures: dict[str, Figure] = {}
        if result.search is not None and result.search.probes:
            figures["search"] = search_figure(result.search, WIDTH_IN)
        answered = [point for point in result.summary if point.times.count]
        if result.search is None and len({point.load.level for point in answered}) > 1:  # a single one says no more than the table
            figures["load"] = load_figure(result.summary)
        if any(histogram.count for histogram in recorded.pooled):
            figures["percentiles"] = percentile_figure(result.summary, recorded.pooled)
        if any(recorded.slices.values()):
            figures["timeline"] = timeline_figure(result, recorded)
        figures |= resource_figures(result, recorded)
        return {name: svg(figure, name) for name, figure in figures.items()}


def percentile_curve(histogram: Histogram) -> tuple[npt.NDArray[np.float64], list[int]]:
    """Where the curve's points lie, as 1/(1-q), and the times there in nanoseconds.

    It ends at the number of samples: beyond that no sample is expected to lie above.
    """
    count = histogram.count
    if not count:
        return np.empty(0), []
    steps = np.geomspace(1, count, max(2, int(32 * np.log10(count)))) if count > 1 else np.ones(1)
    steps = np.unique(np.concatenate([np.minimum(steps, count), [tick for tick in _TICKS if tick <= count]]))
    values = histogram.values_at([float(1 - 1 / step) for step in steps])
    return steps, [histogram.min_ns, *(min(value, histogram.max_ns) for value in values[1:])]


def percentile_figure(points: Sequence[Point], pooled: Sequence[Histogram]) -> Figure:
    """The points' times against the percentile, a panel a protocol, a line a load point."""
    protocols, colours = _protocols(points), _colours(points)
    figure = Figure(figsize=(WIDTH_IN, 4.0), layout="constrained")
    panels = figure.subplots(1, len(protocols), sharex=True, sharey=True, squeeze=False)[0]
    lowest, highest, furthest = float("inf"), 0.0, 10.0
    for point, histogram in zip(points, pooled, strict=True):
        steps, values_ns = percentile_curve(histogram)
        if not values_ns:
            continue
        lowest, highest, furthest = min(lowest, values_ns[0] / NS_PER_MS), max(highest, values_ns[-1] / NS_PER_MS), max(furthest, steps[-1])
        marker = "." if len(steps) == 1 else None
        panels[protocols.index(point.protocol)].plot(
            steps,
            np.array(values_ns) / NS_PER_MS,
            color=colours[point.load.level],
            marker=marker,
            gid=f"percentiles-{_id(point)}",
        )
    for panel, protocol in zip(panels, protocols, strict=True):
        panel.set_xscale("log")
        panel.set_xlim(1, furthest * 1.08)
        panel.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= furthest * 1.08]))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: _TICKS.get(round(tick), "")))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_title(protocol)
        panel.set_xlabel("percentile")
    scale_times(panels[0], lowest, highest)
    panels[0].set_ylabel(f"{points[0].times_name} (ms)")
    shown = {point.load.level: point.load.amount for point, histogram in zip(points, pooled, strict=True) if histogram.count}
    keys = [Line2D([], [], color=colours[level], lw=2, label=amount) for level, amount in sorted(shown.items(), reverse=True)]
    figure.legend(
        handles=keys, title="concurrency" if points[0].load.kind == "closed" else "rate", loc="outside right upper", alignment="left"
    )
    return figure


def load_figure(points: Sequence[Point]) -> Figure:
    """Throughput, and p50 and p99 of the points' times, against the load."""
    figure = Figure(figsize=(WIDTH_IN, 3.5), layout="constrained")
    throughput, times = figure.subplots(1, 2, squeeze=True)
    shades = {"http": (BLUE, "o"), "grpc": (VERMILLION, "s")}
    for protocol in _protocols(points):
        some = sorted((point for point in points if point.protocol == protocol), key=lambda point: point.load.level)
        x, (colour, marker) = [point.load.level for point in some], shades[protocol]
        rates = [point.throughput_per_s for point in some]
        throughput.plot(x, rates, color=colour, marker=marker, ms=4.5, gid=f"throughput-{protocol}")
        for name, style in (("p50", "-"), ("p99", "--")):
            values = [_milliseconds(point, name) for point in some]
            times.plot(x, values, color=colour, marker=marker, ms=4.5, ls=style, gid=f"{name}-{protocol}")
        _mark_invalid(throughput, some, rates, colour, marker)
    for panel in (throughput, times):
        panel.set_xlabel("concurrency (requests in flight)" if points[0].load.kind == "closed" else "offered rate (requests per second)")
        _level_axis(panel, sorted({point.load.level for point in points}))
    throughput.set_title("throughput")
    throughput.set_ylabel("ok answers per second")
    throughput.set_ylim(0, max(point.throughput_per_s for point in points) * 1.06 or 1.0)
    throughput.yaxis.set_major_formatter(NUMBERS)
    times.set_title(points[0].times_name)
    times.set_ylabel(f"{points[0].times_name} (ms)")
    known = [value for point in points for name in ("p50", "p99") if (value := _milliseconds(point, name)) > 0]
    if known:
        scale_times(times, min(known), max(known))
    keys = [Line2D([], [], color=shades[name][0], marker=shades[name][1], ms=4.5, label=name) for name in _protocols(points)]
    keys += [Line2D([], [], color=MUTED, ls=style, label=name) for name, style in (("p50", "-"), ("p99", "--"))]
    if not all(point.valid for point in points):
        keys.append(Line2D([], [], color=MUTED, marker="o", mfc="white", ms=4.5, ls="", label="not valid"))
    figure.legend(handles=keys, loc="outside right upper")
    return figure


def timeline_figure(result: Result, recorded: Recorded) -> Figure:
    """Times and throughput over time, a pair of panels a load point, its repetitions one after another."""
    points, cells = result.summary, _cells(result.summary)
    rows, columns = (max(places) + 1 for places in zip(*cells, strict=True))
    figure = Figure(figsize=(WIDTH_IN, 0.75 + 1.75 * rows))
    bottom, top = 0.5 / figure.get_figheight(), 1 - 0.55 / figure.get_figheight()
    grid = figure.add_gridspec(
        3 * rows - 1, columns, height_ratios=[1, 0.45, 0.42] * (rows - 1) + [1, 0.45],
        left=0.072, right=0.985, bottom=bottom, top=top, hspace=0.2, wspace=0.13,
    )  # fmt: skip
    upper = _upper(recorded)
    under = "seconds measured" if recorded.slice_s == 1 else f"seconds measured, in steps of {recorded.slice_s} s"
    under += "; dotted lines part the repetitions" if len(result.points) > len(points) else ""
    pairs: list[tuple[Axes, Axes]] = []
    for index, (point, (row, column)) in enumerate(zip(points, cells, strict=True)):
        times, rates = figure.add_subplot(grid[3 * row, column]), figure.add_subplot(grid[3 * row + 1, column])
        pairs.append((times, rates))
        _draw_timeline(times, rates, repetitions_of(result, point), index, recorded, upper)
        times.set_title(f"{point.protocol}, {point.load.title}", pad=4)
        times.tick_params(labelbottom=False)
        if column == 0:
            times.set_ylabel(point.times_name.replace(" ", "\n") + " (ms)")
            rates.set_ylabel("answers\nper s")
        if (row + 1, column) not in cells:
            rates.set_xlabel(under)
    longest_s = max(sum(one.duration_s for one in repetitions_of(result, point)) for point in points)
    for (row, _), (times, rates) in zip(cells, pairs, strict=True):
        beside = [pair[0] for pair, cell in zip(pairs, cells, strict=True) if cell[0] == row]
        for panel, alike, ticks in ((times, beside, 4), (rates, [pair[1] for pair in pairs], 2)):
            top = max((float(np.max(line.get_ydata())) for one in alike for line in one.lines if line.get_gid()), default=0.0)
            panel.set_xlim(0, longest_s or 1.0)
            panel.set_ylim(0, top * 1.12 or 1.0)
            panel.xaxis.set_major_locator(MaxNLocator(8, integer=True))
            panel.yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 4, 5, 10]))
            panel.yaxis.set_major_formatter(NUMBERS)
    figure.align_ylabels()
    keys = [
        Line2D([], [], color=BLUE, label=f"p50 of the {points[0].times_name}"),
        Line2D([], [], color=VERMILLION, label=_UPPER[upper].format(times=points[0].times_name)),
        Line2D([], [], color=GREEN, label="throughput"),
    ]
    figure.legend(handles=keys, loc="upper left", bbox_to_anchor=(0.06, 1), ncols=3, borderaxespad=0.2)
    return figure


def _cells(points: Sequence[Point]) -> list[tuple[int, int]]:
    """Row and column of each load point: a column a protocol, or two columns of the only one."""
    protocols, concurrencies = _protocols(points), sorted({point.load.level for point in points})
    if len(protocols) == 1:
        return [divmod(index, 2) for index in range(len(points))]
    return [(concurrencies.index(point.load.level), protocols.index(point.protocol)) for point in points]


def _draw_timeline(times: Axes, rates: Axes, repetitions: Sequence[Point], index: int, recorded: Recorded, upper: str) -> None:
    """One load point's pair of panels."""
    offset_s, slice_s = 0.0, recorded.slice_s
    for one in repetitions:
        number = one.repetition or 0
        slices = recorded.slices.get((index, number), ())
        for name, colour in (("p50", BLUE), (upper, VERMILLION)):
            known = [
                (offset_s + _middle_s(part.start_s, slice_s, one), part.times[name] / NS_PER_MS) for part in slices if name in part.times
            ]
            _line(times, known, colour, f"{name}-{_id(one)}-r{number}")
        _line(rates, [(offset_s + at_s, rate) for at_s, rate in _rates(one, slice_s)], GREEN, f"throughput-{_id(one)}-r{number}")
        offset_s += one.duration_s
        if one is not repetitions[-1]:
            for panel in (times, rates):
                panel.axvline(offset_s, color=MUTED, lw=0.8, ls=":")


def _line(panel: Axes, known: Sequence[tuple[float, float]], colour: str, gid: str) -> None:
    if known:
        panel.plot(*zip(*known, strict=True), color=colour, marker="o" if len(known) == 1 else None, ms=4, gid=gid)


def _rates(point: Point, slice_s: int) -> list[tuple[float, float]]:
    """Ok answers per second, each at its slice's middle; an end too short to tell a rate is left out."""
    series, rates = point.throughput_series_per_s or (), []
    for start_s in range(0, len(series), slice_s):
        length_s = min(float(slice_s), point.duration_s - start_s)
        if length_s >= slice_s / 2 or (not start_s and length_s > 0):
            rates.append((start_s + length_s / 2, sum(series[start_s : start_s + slice_s]) / length_s))
    return rates


def _middle_s(start_s: float, slice_s: int, point: Point) -> float:
    """A slice's middle; a window's last slice may be shorter."""
    return start_s + max(min(float(slice_s), point.duration_s - start_s), 0.0) / 2


def _upper(recorded: Recorded) -> str:
    """The highest of p99 and p90 that nearly all slices carry; the maximum where they are too small for both."""
    slices = list(itertools.chain.from_iterable(recorded.slices.values()))
    return next((name for name in ("p99", "p90") if sum(name in one.times for one in slices) >= 0.9 * len(slices)), "max")


def _protocols(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.protocol for point in points))


def _colours(points: Sequence[Point]) -> dict[float, tuple[float, float, float, float]]:
    """By load: the more, the darker."""
    concurrencies = sorted({point.load.level for point in points}, reverse=True)
    shades = mpl.colormaps["plasma"](np.linspace(0.02, 0.7, max(len(concurrencies), 2)))
    return {concurrency: tuple(shade) for concurrency, shade in zip(concurrencies, shades, strict=False)}


def _id(point: Point) -> str:
    return f"{point.protocol}-{point.load.level:g}"


def _milliseconds(point: Point, name: str) -> float:
    value = getattr(point.times, name)
    return value / NS_PER_MS if value is not None and point.times.count else float("nan")


def _mark_invalid(panel: Axes, points: Sequence[Point], values: Sequence[float], colour: str, marker: str) -> None:
    bad = [(point.load.level, value) for point, value in zip(points, values, strict=True) if not point.valid]
    if bad:
        panel.plot(*zip(*bad, strict=True), color=colour, marker=marker, mfc="white", ms=4.5, ls="")


def _level_axis(panel: Axes, levels: Sequence[float]) -> None:
    """Logarithmic, ticks at what was measured, as far as their numbers do not touch."""
    panel.set_xscale("log", base=2)
    panel.set_xlim(levels[0] / 1.2, levels[-1] * 1.2)
    apart, ticks = (levels[-1] / levels[0]) ** (1 / 14), [levels[0]]
    for level in levels[1:]:
        if level >= ticks[-1] * apart:
            ticks.append(level)
    panel.xaxis.set_major_locator(FixedLocator(ticks))
    panel.xaxis.set_major_formatter(NUMBERS)
    panel.xaxis.set_minor_locator(NullLocator())

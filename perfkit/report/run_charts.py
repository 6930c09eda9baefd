"""The charts of a run's load points: throughput and times against load, and times against throughput and percentile."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.figures.declaration import value_at
from perfkit.report.answer import answer_loads
from perfkit.report.breakdown import waterfall_group
from perfkit.report.chart import Axis, Chart, ChartGroup, Colour, Level, Line, times_scale
from perfkit.report.chart_rules import PATH_STYLES, PERCENTILE_STYLES, PROTOCOL_COLOURS, load_shades, many_colour
from perfkit.report.first_requests import cold_start_group, idle_group
from perfkit.report.load_points import load_axis
from perfkit.report.scan import scan_group
from perfkit.report.search import search_group
from perfkit.report.surge import surge_group
from perfkit.report.time_charts import gpu_group, time_group
from perfkit.report.timeline import Timeline
from perfkit.result.model import Point, Result
from perfkit.stats.buckets import BucketCounts
from perfkit.units import NS_PER_MS

_TICKS = {2: "50%", 10: "90%", 100: "99%", 1_000: "99.9%", 10_000: "99.99%", 100_000: "99.999%", 1_000_000: "99.9999%"}
_PERCENTILES = ("p50", "p99")
_STREAM_TIMES = {
    "first_response_time": "time to the first response",
    "response_gap": "gap between responses",
    "first_token_time": "time to the first token",
    "event_gap": "gap between events",
    "time_per_output_token": "time per output token",
    "stream_time": "time to the last response",
}


def run_charts(result: Result, timeline: Timeline) -> dict[str, ChartGroup]:
    """A run's groups of charts by name, in the order of the page; groups without samples are left out."""
    return dict(_groups(result, timeline))


def _groups(result: Result, timeline: Timeline) -> Iterator[tuple[str, ChartGroup]]:
    if gpus := gpu_group(result, timeline):
        yield "gpus", gpus
    yield from summary_groups(result).items()
    if any(histogram.count for histogram in timeline.histograms):
        yield "percentiles", percentile_group(result.summary, timeline.histograms)
    if slowest := waterfall_group(result.summary):
        yield "waterfall", slowest
    if group := time_group(result, timeline):
        yield "timeline", group


def summary_groups(result: Result) -> dict[str, ChartGroup]:
    """The groups of charts that show the result's own figures, the main one first; none for a single load point, for which the table is enough."""
    return dict(_summary_groups(result))


def _summary_groups(result: Result) -> Iterator[tuple[str, ChartGroup]]:
    if result.search is not None and result.search.probes:
        yield "search", search_group(result.search)
    answered = [point for point in result.summary if point.times.count]
    levels = {point.load.level for point in answered if point.workload is None}
    if any(point.cold_start for point in answered):
        yield "cold_start", cold_start_group(answered)
    elif any(point.surge for point in answered):
        yield "surge", surge_group(answered)
    elif any(point.scan for point in answered):
        yield "scan", scan_group(answered)
    elif any(point.idle for point in answered):
        yield "idle", idle_group(answered)
    elif result.search is None and len(levels) > 1:
        whole = [point for point in result.summary if point.workload is None]
        yield "load", load_group(whole)
        yield "trade", trade_group(whole)
        if streamed := [point for point in result.summary if point.responses and point.workload is None]:
            yield "streams", _streams_group(streamed)


def percentile_curve(histogram: BucketCounts) -> tuple[npt.NDArray[np.float64], list[int]]:
    """A distribution's percentile curve: x = 1/(1-q) for some quantiles q, and the times at these quantiles in nanoseconds.

    x ends at the number of samples, because no sample is expected above that quantile.
    """
    count = histogram.count
    if not count:
        return np.empty(0), []
    steps = np.geomspace(1, count, max(2, int(32 * np.log10(count)))) if count > 1 else np.ones(1)
    steps = np.unique(np.concatenate([np.minimum(steps, count), [tick for tick in _TICKS if tick <= count]]))
    values = histogram.values_at([float(1 - 1 / step) for step in steps])
    return steps, [histogram.min_ns, *(min(value, histogram.max_ns) for value in values[1:])]


def percentile_axes(curves: Sequence[tuple[npt.NDArray[np.float64], list[int]]], times_name: str) -> tuple[Axis, Axis]:
    """The axes that hold all of these percentile curves."""
    furthest = max(10.0, *(float(steps[-1]) for steps, _ in curves))
    ends_ms = [value_ns / NS_PER_MS for _, values_ns in curves for value_ns in (values_ns[0], values_ns[-1])]
    scale = times_scale(ends_ms)
    y = Axis(times_name, "ms", scale, low=min(ends_ms) / 1.15 if scale == "log" else 0.0, high=max(ends_ms) * 1.1)
    ticks = tuple((float(tick), text) for tick, text in _TICKS.items())
    return Axis("percentile", scale="log", ticks=ticks, low=1.0, high=furthest * 1.08, is_percentile=True), y


def percentile_line(title: str, steps: npt.NDArray[np.float64], values_ns: list[int], colour: Colour) -> Line:
    """A percentile curve as a line."""
    times_ms = tuple(value_ns / NS_PER_MS for value_ns in values_ns)
    return Line(title, tuple(map(float, steps)), times_ms, colour, "line" if len(steps) > 1 else "dots")


def percentile_group(points: Sequence[Point], histograms: Sequence[BucketCounts]) -> ChartGroup:
    """Times against the percentile: a panel per protocol, in a mix per workload, and a line per load point, coloured by its load."""
    curves = [(point, *percentile_curve(histogram)) for point, histogram in zip(points, histograms, strict=True) if histogram.count]
    x, y = percentile_axes([(steps, values_ns) for _, steps, values_ns in curves], points[0].times_name)
    panels = [_panel(point, points) for point, _, _ in curves]
    names = list(dict.fromkeys(panels))
    hues = {name: PROTOCOL_COLOURS.get(name) or many_colour(index) for index, name in enumerate(names)}
    loads = sorted({(not point.alone, point.load.level) for point in points})
    shades = {name: load_shades(loads, hue) for name, hue in hues.items()}
    charts = []
    for panel in names:
        lines = tuple(
            percentile_line(
                f"{'alone, ' * point.alone}{point.load.title}", steps, values_ns, shades[panel][not point.alone, point.load.level]
            )
            for own, (point, steps, values_ns) in zip(panels, curves, strict=True)
            if own == panel
        )
        charts.append(Chart(panel, x, y, lines, height_px=320))
    return ChartGroup(tuple(charts), columns=2)


def load_group(points: Sequence[Point]) -> ChartGroup:
    """Throughput against the load, and times against the load, with a mark at the load that the answer is about."""
    values_ms = [value for point in points for one in _PERCENTILES if (value := _milliseconds(point, one)) is not None]
    throughput, latency = list[Line](), list[Line]()
    for protocol, own, colour in _protocols(points):
        throughput.append(Line.of(protocol, [(point.load.level, point.throughput_per_s) for point in own], colour))
        for one in _PERCENTILES:
            times_ms = [(point.load.level, _milliseconds(point, one)) for point in own]
            latency.append(Line.of(f"{protocol} {one}", times_ms, colour, PERCENTILE_STYLES[one]))
        if invalid := [point for point in own if not point.valid]:
            for lines, values in (
                (throughput, [(point.load.level, point.throughput_per_s) for point in invalid]),
                (latency, [(point.load.level, _milliseconds(point, "p99")) for point in invalid]),
            ):
                lines.append(Line.of(f"{protocol}, not valid", values, colour, "hollow"))
    marked = answer_loads(points)
    levels = tuple(
        Level(point.load.level, f"{text}{f' ({point.protocol})' * (len(marked) > 1)}", is_vertical=True) for point, text in marked
    )
    name, load = points[0].times_name, load_axis(points)
    times = Axis(name, "ms", times_scale(values_ms))
    return ChartGroup((
        Chart("throughput against the load", load, Axis("throughput", "answers/s"), tuple(throughput), levels=levels),
        Chart(f"{name} against the load", load, times, tuple(latency), levels=levels),
    ), columns=2)  # fmt: skip


def trade_group(points: Sequence[Point]) -> ChartGroup:
    """Times against throughput, load point by load point."""
    values_ms = [value for point in points for one in _PERCENTILES if (value := _milliseconds(point, one)) is not None]
    lines = list[Line]()
    for protocol, own, colour in _protocols(points):
        for one in _PERCENTILES:
            known = [(point, value) for point in own if (value := _milliseconds(point, one)) is not None]
            line = Line.of(
                f"{protocol} {one}",
                [(point.throughput_per_s, value) for point, value in known],
                colour,
                PATH_STYLES[PERCENTILE_STYLES[one]],
            )
            lines.append(dataclasses.replace(line, labels=tuple(point.load.title for point, _ in known)))
        if invalid := [point for point in own if not point.valid]:
            values = [(point.throughput_per_s, _milliseconds(point, "p99")) for point in invalid]
            lines.append(Line.of(f"{protocol}, not valid", values, colour, "hollow"))
    name = points[0].times_name
    return ChartGroup((
        Chart(
            f"{name} against throughput", rates_axis(Axis("throughput", "answers/s")), Axis(name, "ms", times_scale(values_ms)), tuple(lines)
        ),
    ))  # fmt: skip


def _protocols(points: Sequence[Point]) -> Iterator[tuple[str, Sequence[Point], Colour]]:
    """Each protocol with its load points, the lowest load first, and its colour."""
    for protocol in dict.fromkeys(point.protocol for point in points):
        own = [point for point in points if point.protocol == protocol]
        yield protocol, sorted(own, key=lambda point: point.load.level), PROTOCOL_COLOURS[protocol]


def rates_axis(axis: Axis) -> Axis:
    """The throughput axis as an x axis, with a full label."""
    return Axis("throughput (ok answers per second)", axis.unit)


def _panel(point: Point, points: Sequence[Point]) -> str:
    """The title of the panel that a load point belongs to."""
    if all(one.workload is None for one in points):
        return point.protocol
    return "all workloads" if point.workload is None else point.workload


def _milliseconds(point: Point, name: str) -> float | None:
    value = getattr(point.times, name)
    return value / NS_PER_MS if value is not None and point.times.count else None


def _streams_group(points: Sequence[Point]) -> ChartGroup:
    """A chart of each time of streams against the load that any of them has, and of the responses and output tokens per second."""
    load = load_axis(points)
    ordered = sorted(points, key=lambda point: point.load.level)
    protocols = {name: [point for point in ordered if point.protocol == name] for name in dict.fromkeys(point.protocol for point in points)}
    charts = []
    for kind, title in _STREAM_TIMES.items():
        lines = [line for protocol, own in protocols.items() for line in _stream_lines(protocol, own, kind)]
        if values_ms := [value for line in lines for value in line.ys if value is not None]:
            charts.append(Chart(f"{title} against the load", load, Axis(title, "ms", times_scale(values_ms)), tuple(lines)))
    for path, unit in (("responses.per_s", "responses"), ("output_tokens_per_s", "output tokens")):
        rates = [
            Line.of(protocol, [(one.load.level, value_at(one, path)) for one in own], PROTOCOL_COLOURS[protocol])
            for protocol, own in protocols.items()
        ]
        if any(value is not None for line in rates for value in line.ys):
            charts.append(Chart(f"{unit} against the load", load, Axis(unit, f"{unit.split()[-1]}/s"), tuple(rates)))
    return ChartGroup(tuple(charts), columns=2)


def _stream_lines(protocol: str, points: Sequence[Point], kind: str) -> Iterator[Line]:
    for name in _PERCENTILES:
        values_ns = [(point.load.level, getattr(getattr(point, f"{kind}_ns"), name, None)) for point in points]
        values_ms = [(level, None if value_ns is None else value_ns / NS_PER_MS) for level, value_ns in values_ns]
        yield Line.of(f"{protocol} {name}", values_ms, PROTOCOL_COLOURS[protocol], PERCENTILE_STYLES[name])

"""The charts of a capacity plan's measurements: times against rates, closed loops, GPUs and queueing models."""

from collections.abc import Callable, Iterator

import numpy as np

from perfkit.plan.evidence import KEPT_UP
from perfkit.plan.model import CapacityPlan, ConfigurationPlan, RatePoint
from perfkit.plan.queueing import MEAN_WITHIN, P99_WITHIN
from perfkit.plan.usl import FURTHEST, UslFit
from perfkit.report.chart import BLUE, MUTED, VERMILLION, Axis, Chart, ChartGroup, Colour, Level, Line, Span, Style, times_scale
from perfkit.report.chart_rules import PATH_STYLES, PERCENTILE_STYLES, many_colour
from perfkit.units import NS_PER_MS, format_rate_per_s

_PERCENTILES = ("p50", "p95", "p99")
_HELD_OUT: tuple[tuple[str, float, Style], ...] = (("mean", MEAN_WITHIN, "path"), ("p99", P99_WITHIN, "dashed path"))
_COLUMNS, _STEPS, _FURTHEST = 2, 80, 4.0
_RATE = Axis("arrival rate (requests per second)", "/s")


def limit_levels(plan: CapacityPlan) -> tuple[Level, ...]:
    """The limits of the SLO in ms."""
    limits = plan.inputs.slo.percentiles_ns
    return tuple(Level(limit_ns / NS_PER_MS, f"SLO p{100 * quantile:g}") for quantile, limit_ns in limits.items())


def rate_group(plan: CapacityPlan) -> ChartGroup | None:
    """p50, p95 and p99 against the rate: measurements, fitted curves with 90 % bands, the SLO and the capacity."""
    charts = [_rate_chart(plan, one, many_colour(index)) for index, one in enumerate(plan.configurations) if one.curves]
    return ChartGroup(tuple(charts), _COLUMNS) if charts else None


def _rate_chart(plan: CapacityPlan, one: ConfigurationPlan, colour: Colour) -> Chart:
    levels, spans = limit_levels(plan), tuple[Span, ...]()
    lines = [line for name in _PERCENTILES for line in _percentile_lines(one, name, colour)]
    kept_ms = [y for line in lines if line.style == "dots" for y in line.ys if y is not None]
    edges_ms = [edge for line in lines for edges in line.band for edge in edges]
    scaling = [*kept_ms, *(level.value for level in levels)]
    if kept_ms:  # a very wide band does not set the scale
        lowest, highest = min(kept_ms) / _FURTHEST, max(kept_ms) * _FURTHEST
        scaling += [min(max(edge, lowest), highest) for edge in edges_ms]
    if times_scale(scaling) == "log":
        y = Axis("response time", "ms", "log", low=min(scaling) / 1.15, high=max(scaling) * 1.15)
    else:
        y = Axis("response time", "ms", "linear", low=0.0, high=max(scaling) * 1.08)
    if one.capacity:
        spans = (Span(one.capacity.low_per_s, one.capacity.high_per_s, f"capacity {format_rate_per_s(one.capacity.per_s)}"),)
        levels += (Level(one.capacity.per_s, "", is_vertical=True, colour=MUTED),)
    return Chart(one.name, _RATE, y, tuple(lines), spans, levels, height_px=320)


def _percentile_lines(one: ConfigurationPlan, name: str, colour: Colour) -> Iterator[Line]:
    """The measurements of a percentile, those at which the target did not keep up apart, and its curve with the 90 % band."""
    kept = [point for point in one.points if name in point.percentiles_ns and point.state == KEPT_UP]
    others = [point for point in one.points if name in point.percentiles_ns and point.state != KEPT_UP]
    if kept:
        yield Line.of(name, [(point.rate_per_s, point.percentiles_ns[name] / NS_PER_MS) for point in kept], colour, "dots")
    if others:
        pairs = [(point.rate_per_s, point.percentiles_ns[name] / NS_PER_MS) for point in others]
        yield Line.of(f"{name}, did not keep up", pairs, colour, "hollow")
    if curve := one.curves.get(name):
        rates = np.linspace(curve.lowest_rate_per_s, min(curve.highest_rate_per_s, 0.995 * curve.saturation_per_s), _STEPS).tolist()
        expected = [curve.predict(rate) for rate in rates]
        band = tuple((one.low / NS_PER_MS, one.high / NS_PER_MS) for one in expected)
        yield Line(
            f"{name}, fitted", tuple(rates), tuple(one.value / NS_PER_MS for one in expected), colour, PERCENTILE_STYLES[name], band=band
        )


def throughput_group(plan: CapacityPlan) -> ChartGroup | None:
    """Throughput against concurrency, with the fitted scalability law and the bounds."""
    planned = [one for one in plan.configurations if len({point.concurrency for point in one.closed}) > 1]
    return ChartGroup(tuple(map(_throughput_chart, planned)), _COLUMNS) if planned else None


def _throughput_chart(one: ConfigurationPlan) -> Chart:
    lines = [Line.of("measured", [(point.concurrency, point.throughput_per_s) for point in one.closed], BLUE, "dots")]
    lowest, largest = (choose(point.concurrency for point in one.closed) for choose in (min, max))
    spans: tuple[Span, ...] = ()
    if isinstance(one.usl, UslFit):
        law = one.usl.throughput_per_s
        lines += [
            _sampled("scalability law", law, lowest, largest, VERMILLION),
            _sampled("extrapolated", law, largest, FURTHEST * largest, VERMILLION, is_dashed=True),
        ]
        if one.usl.peak:
            spans = (Span(one.usl.peak.low, one.usl.peak.high, "peak, 95 % interval"),)
    if one.bounds:
        lines.append(_sampled("bound min(N/R₁, X_max)", one.bounds.throughput_per_s, lowest, largest, MUTED, is_dashed=True))
    x = Axis("concurrency (requests in flight)", is_whole=True)
    return Chart(one.name, x, Axis("throughput", "/s"), tuple(lines), spans, height_px=300)


def _sampled(name: str, function: Callable[[float], float], low: float, high: float, colour: Colour, *, is_dashed: bool = False) -> Line:
    at = np.linspace(low, high, _STEPS).tolist()
    return Line.of(name, [(x, function(x)) for x in at], colour, "dashed" if is_dashed else "line")


def latency_throughput_group(plan: CapacityPlan) -> ChartGroup | None:
    """p50 and p99 against throughput, a colour for each configuration, each value with its arrival rate."""
    lines = []
    for index, one in enumerate(plan.configurations):
        for name in ("p50", "p99"):
            points = [point for point in one.points if name in point.percentiles_ns]
            xs = tuple(point.throughput_per_s for point in points)
            ys = tuple(point.percentiles_ns[name] / NS_PER_MS for point in points)
            labels = tuple(f"at {format_rate_per_s(point.rate_per_s)}" for point in points)
            if points:
                lines.append(Line(f"{one.name} {name}", xs, ys, many_colour(index), PATH_STYLES[PERCENTILE_STYLES[name]], labels=labels))
    if not lines:
        return None
    y = Axis("response time", "ms", times_scale([y for line in lines for y in line.ys if y is not None]))
    return ChartGroup((Chart("Response time against throughput", Axis("throughput (ok answers per second)", "/s"), y, tuple(lines)),))


def gpu_group(plan: CapacityPlan) -> ChartGroup | None:
    """GPU utilisation, power and energy per inference against the rate; None if no result has GPUs."""

    def above_idle_j(point: RatePoint) -> float | None:
        return point.energy.above_idle_j if point.energy else None

    panels: tuple[tuple[str, str, tuple[tuple[str, Callable[[RatePoint], float | None]], ...]], ...] = (
        ("GPU busy", "%", (("", lambda point: None if point.gpu_utilization is None else 100 * point.gpu_utilization),)),
        ("power", "W", (("", lambda point: point.power_w),)),
        ("energy per inference", "J", (("", lambda point: point.energy.gross_j if point.energy else None), (", above idle", above_idle_j))),
    )
    charts = []
    for title, unit, figures in panels:
        lines = []
        for index, one in enumerate(plan.configurations):
            for suffix, value_of in figures:
                values = [(point.rate_per_s, value) for point in one.points if (value := value_of(point)) is not None]
                if values:
                    lines.append(Line.of(f"{one.name}{suffix}", sorted(values), many_colour(index), "dashed" if suffix else "path"))
        if lines:
            charts.append(Chart(title, _RATE, Axis(title, unit), tuple(lines), height_px=240))
    return ChartGroup(tuple(charts), _COLUMNS) if charts else None


def held_out_group(plan: CapacityPlan) -> ChartGroup | None:
    """Signed errors of the queueing models on held-out points, with the allowed range."""
    charts = []
    for index, one in enumerate(plan.configurations):
        for validation in one.validations:
            lines, levels = list[Line](), [Level(0.0, "")]
            for name, allowed, style in _HELD_OUT:
                values = [(held.rate_per_s, 100 * held.error) for held in validation.errors if held.figure == name]
                if values:
                    lines.append(Line.of(name, sorted(values), many_colour(index), style))
                    levels += [Level(100 * allowed, f"allowed for {name}", colour=MUTED), Level(-100 * allowed, "", colour=MUTED)]
            if lines:
                title = f"{one.name}: {validation.model.split(',')[0]}, {validation.verdict}"
                y = Axis("predicted − measured", "%", "linear")
                charts.append(Chart(title, _RATE, y, tuple(lines), levels=tuple(levels), height_px=240))
    return ChartGroup(tuple(charts), _COLUMNS) if charts else None

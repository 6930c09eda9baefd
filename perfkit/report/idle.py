"""Idle gaps: the first request after each as a table, a chart, and a sentence."""

from collections.abc import Sequence

from perfkit.figures.declaration import figures_of
from perfkit.report.chart import BLUE, VERMILLION, Axis, Chart, ChartGroup, Line, faded, times_scale
from perfkit.report.figure_tables import figure_column, percentile_columns
from perfkit.report.load_points import load_columns
from perfkit.report.table import Cell, Column, Table
from perfkit.result.distribution import Distribution
from perfkit.result.model import Point
from perfkit.units import NS_PER_S, format_duration_ns

_NS_PER_MS = NS_PER_S / 1000
_KINDS = ("after_gap", "following")


def idle_table(points: Sequence[Point]) -> Table:
    """The load points with idle gaps; no rows for other loads."""
    columns = (
        *load_columns(points),
        Column("gaps", "gaps", "count", lambda point: Cell(point.idle and point.idle.gaps)),
        *(
            column
            for one in figures_of(Point, "idle gaps")
            if one.kind is Distribution
            for column in percentile_columns(
                one, one.figure.column, ("p50", "p99"), few="too few requests", none="too few requests", joint=", "
            )
        ),
        Column("gap_penalty_ns", "penalty", "figure", _penalty),
        Column("gap_penalty_ratio", "ratio", "figure", _ratio),
        figure_column("idle.reconnected"),
    )
    note = (
        "After each gap one request is sent, then the following ones, one at a time on the same connection. The penalty is the median after "
        "the gap minus that of the following requests, with its 95% interval; the ratio is of the same medians. Reconnected: the server had "
        "closed the connection, and the time to open another is part of the time after the gap."
    )
    return Table.of("idle", "Idle gaps", columns, [point for point in points if point.idle], note)


def idle_group(points: Sequence[Point]) -> ChartGroup:
    """The median after the gap and of the following requests against the gap, a panel per protocol."""
    own = sorted((point for point in points if point.idle), key=lambda point: point.load.level)
    values = [value for point in own for kind in _KINDS if (value := _milliseconds(point, kind)) is not None]
    levels = sorted({point.load.level for point in own})
    ticks = tuple((point.load.level, point.load.amount) for point in {point.load.level: point for point in own}.values())
    x = Axis("idle gap", "s", "log", ticks, low=levels[0] / 1.5, high=levels[-1] * 1.5)
    y = Axis("median service time", "ms", times_scale(values))
    charts = []
    for protocol in dict.fromkeys(point.protocol for point in own):
        of_protocol = [point for point in own if point.protocol == protocol]
        lines = (_line(of_protocol, "after_gap", "after the gap"), _line(of_protocol, "following", "following requests"))
        charts.append(Chart(protocol, x, y, lines, height_px=300))
    return ChartGroup(tuple(charts), columns=2)


def idle_sentence(points: Sequence[Point]) -> str:
    """The penalty of each gap in words: `the first request takes 0.21 ms longer after 100ms idle, 40.2 ms after 1s`."""
    parts = [f"{_difference(point)} after {point.load.amount} idle" for point in points if point.idle and point.idle.penalty_ns]
    if not parts:
        return "too few idle gaps for the penalty of the first request"
    reconnected = [point for point in points if point.idle and point.idle.reconnected]
    closed = f"; the server closes the connection in gaps of {reconnected[0].load.amount}" if reconnected else ""
    return f"at the median, the first request takes {', '.join(parts)} than the following ones{closed}"


def _difference(point: Point) -> str:
    assert point.idle is not None
    assert point.idle.penalty_ns is not None
    value_ns = point.idle.penalty_ns.value
    return f"{format_duration_ns(abs(value_ns))} {'longer' if value_ns >= 0 else 'less'}"


def _line(points: Sequence[Point], kind: str, name: str) -> Line:
    pairs, ends = [], []
    for point in points:
        value = _milliseconds(point, kind)
        low_ns, high_ns = point.further_intervals.get(f"{kind}_time", {}).get("p50", (None, None))
        pairs.append((point.load.level, value))
        known = None if value is None or low_ns is None or high_ns is None else (low_ns / _NS_PER_MS, high_ns / _NS_PER_MS)
        ends.append(None if known is None else (point.load.level, point.load.level, *known))
    colour = VERMILLION if kind == "after_gap" else faded(BLUE)
    return Line(name, tuple(x for x, _ in pairs), tuple(y for _, y in pairs), colour, "path", tuple(ends))


def _milliseconds(point: Point, kind: str) -> float | None:
    times = getattr(point, f"{kind}_time_ns")
    return times.p50 / _NS_PER_MS if times and times.p50 is not None else None


def _penalty(point: Point) -> Cell:
    penalty = point.idle.penalty_ns if point.idle else None
    if penalty is None:
        return Cell(None, note="too few gaps")
    low, value, high = (_signed(one) for one in (penalty.low, penalty.value, penalty.high))
    return Cell(penalty.value, f"{value} ({low} to {high})")


def _ratio(point: Point) -> Cell:
    ratio = point.idle.penalty_ratio if point.idle else None
    return Cell(None) if ratio is None else Cell(ratio.value, f"{ratio.value:.3g} ({ratio.low:.3g} to {ratio.high:.3g})")


def _signed(value_ns: float) -> str:
    return f"{'-' if value_ns < 0 else ''}{format_duration_ns(abs(value_ns))}"

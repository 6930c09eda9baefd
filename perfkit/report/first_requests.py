"""The first requests after a start of the server and after a silence: cold starts and idle gaps as tables, charts and sentences."""

from collections.abc import Sequence

from perfkit.figures.declaration import figures_of
from perfkit.report.chart import INK, Axis, Chart, ChartGroup, Colour, Level, Line, faded, times_scale
from perfkit.report.chart_rules import PROTOCOL_COLOURS, many_colour
from perfkit.report.load_points import figure_column, load_columns, percentile_columns
from perfkit.report.table import Cell, Column, Table
from perfkit.result.cold_start import ColdStart
from perfkit.result.distribution import Distribution
from perfkit.result.model import Point
from perfkit.units import NS_PER_MS, format_duration_ns

_TIMES = {
    "unload_ns": "unload", "load_ns": "load", "ready_ns": "ready", "first_answer_ns": "first answer", "first_answer_after_ns": "answered after",
    "steady_after_ns": "steady after", "warm_p50_ns": "warm p50",
}  # fmt: skip
_MOST_NAMED_TICKS = (1, 10, 100, 1_000, 10_000)


def cold_start_table(points: Sequence[Point]) -> Table:
    """A row for each start, and one with the medians and ranges of each load point; no rows for other loads."""
    columns = (
        Column("protocol", "protocol"),
        Column("start", "start"),
        *(Column(key, heading, "duration_ns") for key, heading in list(_TIMES.items())[:5]),
        Column("steady_after_requests", "steady after requests", "figure"),
        *(Column(key, heading, "duration_ns") for key, heading in list(_TIMES.items())[5:]),
    )
    keys = [column.key for column in columns[2:]]
    rows = []
    for point in points:
        if (found := point.cold_start) is None:
            continue
        rows += [(point.protocol, f"{start.repetition + 1}", *(_start_cell(start, key) for key in keys)) for start in found.starts]
        if len(found.starts) > 1:
            rows.append((point.protocol, "median", *(_median_cell(point, key) for key in keys)))
    note = (
        "Times count from the call of load, or from the start of the server's process; unload ends before. First answer is the service time of the first "
        "request, answered after is until its end. Steady: from there on the times are those of the second half of the requests, whose median is warm p50."
    )
    return Table("cold_start", "Cold starts", columns, tuple(rows), note)


def cold_start_group(points: Sequence[Point]) -> ChartGroup:
    """Service times by the number of the request, a line for each start, with the warm median; a panel per protocol."""
    charts = []
    for point in points:
        if (found := point.cold_start) is None:
            continue
        values = [time_ns / NS_PER_MS for start in found.starts for time_ns in start.times_ns if time_ns is not None]
        count = max(len(start.times_ns) for start in found.starts)
        ticks = tuple((float(tick), f"{tick:,}") for tick in _MOST_NAMED_TICKS if tick <= count)
        x = Axis("request after the start", scale="log", ticks=ticks, low=0.9, high=count * 1.1, is_whole=True)
        y = Axis("service time", "ms", times_scale(values))
        lines = tuple(
            Line(
                f"start {start.repetition + 1}",
                tuple(float(number) for number in range(1, len(start.times_ns) + 1)),
                tuple(None if time_ns is None else time_ns / NS_PER_MS for time_ns in start.times_ns),
                many_colour(index),
            )
            for index, start in enumerate(found.starts)
        )
        warm = found.figures.get("warm_p50_ns")
        levels = () if warm is None else (Level(warm.median / NS_PER_MS, "warm p50", colour=INK),)
        charts.append(Chart(point.protocol, x, y, lines, levels=levels, height_px=300))
    return ChartGroup(tuple(charts), columns=2)


def cold_start_sentence(point: Point) -> str:
    """The medians in words: `loaded after 1.20 s, first answer 340 ms (warm 12.0 ms), steady after 14 requests`."""
    assert point.cold_start is not None
    figures, of = point.cold_start.figures, {name: spread.median for name, spread in point.cold_start.figures.items()}
    parts = [f"{'loaded' if 'load_ns' in of else 'ready'} after {format_duration_ns(of.get('load_ns', of['ready_ns']))}"]
    if "first_answer_ns" in of:
        warm = f" (warm {format_duration_ns(of['warm_p50_ns'])})" if "warm_p50_ns" in of else ""
        parts.append(f"first answer {format_duration_ns(of['first_answer_ns'])}{warm}")
    else:
        parts.append("no request was answered")
    starts = len(point.cold_start.starts)
    known = sum(start.steady_after_requests is not None for start in point.cold_start.starts)
    if "steady_after_requests" in figures and known > starts / 2:
        requests = of["steady_after_requests"]
        parts.append(f"steady after {requests:g} request{'s' * (requests != 1)}" if requests else "steady from the first request on")
    else:
        parts.append(f"not steady after {point.load.level / 2:,.0f} requests")
    return f"{', '.join(parts)}{f'; medians of {starts} starts' if starts > 1 else ''}"


def _start_cell(start: ColdStart, key: str) -> Cell:
    value = getattr(start, key)
    if key == "steady_after_requests":
        return Cell(value, "not yet" if value is None else f"{value:,}")
    return Cell(value)


def _median_cell(point: Point, key: str) -> Cell:
    assert point.cold_start is not None
    spread = point.cold_start.figures.get(key)
    if spread is None:
        return Cell(None)
    form = "{:,g}".format if key == "steady_after_requests" else format_duration_ns
    return Cell(spread.median, form(spread.median), f"{form(spread.min)} to {form(spread.max)}")


_GAP_KINDS = ("after_gap", "following")
_TOO_FEW = "too few requests"


def idle_table(points: Sequence[Point]) -> Table:
    """The load points with idle gaps; no rows for other loads."""
    columns = (
        *load_columns(points),
        Column("gaps", "gaps", "count", lambda point: Cell(point.idle and point.idle.gaps)),
        *(
            column
            for one in figures_of(Point, "idle gaps")
            if one.kind is Distribution
            for column in percentile_columns(one, one.figure.column, ("p50", "p99"), few=_TOO_FEW, none=_TOO_FEW, joint=", ")
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
    values = [value for point in own for kind in _GAP_KINDS if (value := _gap_ms(point, kind)) is not None]
    levels = sorted({point.load.level for point in own})
    ticks = tuple((point.load.level, point.load.amount) for point in {point.load.level: point for point in own}.values())
    x = Axis("idle gap", "s", "log", ticks, low=levels[0] / 1.5, high=levels[-1] * 1.5)
    y = Axis("median service time", "ms", times_scale(values))
    charts = []
    for protocol in dict.fromkeys(point.protocol for point in own):
        of_protocol = [point for point in own if point.protocol == protocol]
        hue = PROTOCOL_COLOURS[protocol]
        lines = (
            _gap_line(of_protocol, "after_gap", "after the gap", hue),
            _gap_line(of_protocol, "following", "following requests", faded(hue)),
        )
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


def _gap_line(points: Sequence[Point], kind: str, name: str, colour: Colour) -> Line:
    pairs, ends = [], []
    for point in points:
        value = _gap_ms(point, kind)
        low_ns, high_ns = point.further_intervals.get(f"{kind}_time", {}).get("p50", (None, None))
        pairs.append((point.load.level, value))
        known = None if value is None or low_ns is None or high_ns is None else (low_ns / NS_PER_MS, high_ns / NS_PER_MS)
        ends.append(None if known is None else (point.load.level, point.load.level, *known))
    return Line(name, tuple(x for x, _ in pairs), tuple(y for _, y in pairs), colour, "path", tuple(ends))


def _gap_ms(point: Point, kind: str) -> float | None:
    times = getattr(point, f"{kind}_time_ns")
    return times.p50 / NS_PER_MS if times and times.p50 is not None else None


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

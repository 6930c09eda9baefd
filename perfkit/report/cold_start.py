"""Cold starts: each start as a table, a chart of its first requests, and a sentence."""

from collections.abc import Sequence

from perfkit.report.chart import INK, MANY_COLOURS, Axis, Chart, ChartGroup, Level, Line, times_scale
from perfkit.report.table import Cell, Column, Table
from perfkit.result.cold_start import ColdStart
from perfkit.result.model import Point
from perfkit.units import NS_PER_S, format_duration_ns

_NS_PER_MS = NS_PER_S / 1000
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
        values = [time_ns / _NS_PER_MS for start in found.starts for time_ns in start.times_ns if time_ns is not None]
        count = max(len(start.times_ns) for start in found.starts)
        ticks = tuple((float(tick), f"{tick:,}") for tick in _MOST_NAMED_TICKS if tick <= count)
        x = Axis("request after the start", scale="log", ticks=ticks, low=0.9, high=count * 1.1, is_whole=True)
        y = Axis("service time", "ms", times_scale(values))
        lines = tuple(
            Line(
                f"start {start.repetition + 1}",
                tuple(float(number) for number in range(1, len(start.times_ns) + 1)),
                tuple(None if time_ns is None else time_ns / _NS_PER_MS for time_ns in start.times_ns),
                MANY_COLOURS[index % len(MANY_COLOURS)],
            )
            for index, start in enumerate(found.starts)
        )
        warm = found.figures.get("warm_p50_ns")
        levels = () if warm is None else (Level(warm.median / _NS_PER_MS, "warm p50", colour=INK),)
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

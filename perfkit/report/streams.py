"""Sequences and streams: their times and numbers as tables, and those of streams against the load as charts."""

import functools
from collections.abc import Iterator, Sequence

from perfkit.report.chart import Axis, Chart, ChartGroup, Line, times_scale
from perfkit.report.load_points import PERCENTILES, PROTOCOL_COLOURS, load_axis, load_columns, times_columns
from perfkit.report.table import Cell, Column, Table
from perfkit.result.model import Point
from perfkit.units import NS_PER_MS

_TIMES = {
    "first_response_time": ("first", "time to the first response"),
    "response_gap": ("gap", "gap between responses"),
    "stream_time": ("last", "time to the last response"),
}
"""Each kind of time as a heading and as the title of a chart."""


def sequences_table(points: Sequence[Point]) -> Table:
    """The load points with their sequences; no rows for loads without."""
    columns = (
        *load_columns(points),
        *(Column(name, name, "count", functools.partial(_count, "sequences", name)) for name in ("started", "ended", "failed")),
        Column("sequences_per_s", "sequences", "rate_per_s", lambda point: Cell(_per_s(point))),
        *times_columns("sequence_time", "", ("p50", "p90", "p99"), "too few sequences ended", "no sequence ended", key="sequence"),
        Column("sequence_max_ns", "max", "duration_ns", lambda point: Cell(point.sequence_time_ns and point.sequence_time_ns.max)),
    )
    note = (
        "Sequences that started in the window, and those that ended in it: with their last answer, or early because a request failed. p50 to "
        "max are the times of the former from the start of the first request (open loop: the intended one) to the end of the last."
    )
    return Table.of("sequences", "Sequences", columns, [point for point in points if point.sequences], note)


def streams_table(points: Sequence[Point]) -> Table:
    """The load points with their streams; no rows for loads without."""
    columns = (
        *load_columns(points),
        Column("responses_per_s", "responses", "rate_per_s", lambda point: Cell(point.responses and point.responses.per_s)),
        *(
            column
            for kind, (heading, _) in _TIMES.items()
            for column in times_columns(kind, heading, ("p50", "p90", "p99"), "too few samples", "no such responses")
        ),
        *(
            Column(name, name.replace("_", " "), "count", functools.partial(_count, "responses", name))
            for name in ("without_response", "cancelled")
        ),
    )
    note = (
        "Responses that came in the window, per second. The time to the first response and to the last one, from the start of the request "
        "(open loop: the intended one), and the gaps between responses. Without response: streams that ended ok with none. Cancelled: "
        "streams that the load generator ended, because they timed out or were unfinished; they count at their age."
    )
    return Table.of("streams", "Streams", columns, [point for point in points if point.responses], note)


def _count(part: str, name: str, point: Point) -> Cell:
    return Cell(getattr(getattr(point, part), name, None))


def _per_s(point: Point) -> float | None:
    return point.sequences.ended / point.duration_s if point.sequences and point.duration_s else None


def streams_group(points: Sequence[Point]) -> ChartGroup:
    """A chart of each time of streams against the load, and one of the responses per second."""
    load = load_axis(points)
    ordered = sorted(points, key=lambda point: point.load.level)
    protocols = {name: [point for point in ordered if point.protocol == name] for name in dict.fromkeys(point.protocol for point in points)}
    charts = []
    for kind, (_, title) in _TIMES.items():
        lines = [line for protocol, own in protocols.items() for line in _lines(protocol, own, kind)]
        values_ms = [value for line in lines for value in line.ys if value is not None]
        charts.append(Chart(f"{title} against the load", load, Axis(title, "ms", times_scale(values_ms)), tuple(lines)))
    rates = [
        Line.of(protocol, [(one.load.level, one.responses.per_s if one.responses else None) for one in own], PROTOCOL_COLOURS[protocol])
        for protocol, own in protocols.items()
    ]
    charts.append(Chart("responses against the load", load, Axis("responses", "responses/s"), tuple(rates)))
    return ChartGroup(tuple(charts), columns=2)


def _lines(protocol: str, points: Sequence[Point], kind: str) -> Iterator[Line]:
    for name, style in PERCENTILES:
        values_ns = [(point.load.level, getattr(getattr(point, f"{kind}_ns"), name, None)) for point in points]
        values_ms = [(level, None if value_ns is None else value_ns / NS_PER_MS) for level, value_ns in values_ns]
        yield Line.of(f"{protocol} {name}", values_ms, PROTOCOL_COLOURS[protocol], style)

"""The charts of streams: the times and the number of their responses against the load."""

from collections.abc import Sequence

from perfkit.report.chart import Axis, Chart, ChartGroup, Line, times_scale
from perfkit.report.load_axis import PERCENTILES, PROTOCOL_COLOURS, load_axis
from perfkit.result.model import Point
from perfkit.units import NS_PER_S

_TIMES = {
    "first_response_time_ns": "time to the first response",
    "response_gap_ns": "gap between responses",
    "stream_time_ns": "time to the last response",
}


def streams_group(points: Sequence[Point]) -> ChartGroup:
    """A chart of each time against the load, and one of the responses per second."""
    load, charts = load_axis(points), list[Chart]()
    protocols = {name: [point for point in points if point.protocol == name] for name in dict.fromkeys(point.protocol for point in points)}
    for own in protocols.values():
        own.sort(key=lambda point: point.load.level)
    for kind, title in _TIMES.items():
        lines = [
            Line.of(
                f"{protocol} {name}", [(one.load.level, _milliseconds(one, kind, name)) for one in own], PROTOCOL_COLOURS[protocol], style
            )
            for protocol, own in protocols.items()
            for name, style in PERCENTILES
        ]
        values_ms = [value for line in lines for value in line.ys if value is not None]
        charts.append(Chart(f"{title} against the load", load, Axis(title, "ms", times_scale(values_ms)), tuple(lines)))
    rates = [
        Line.of(protocol, [(one.load.level, one.responses.per_s if one.responses else None) for one in own], PROTOCOL_COLOURS[protocol])
        for protocol, own in protocols.items()
    ]
    charts.append(Chart("responses against the load", load, Axis("responses", "responses/s"), tuple(rates)))
    return ChartGroup(tuple(charts), columns=2)


def _milliseconds(point: Point, kind: str, name: str) -> float | None:
    value_ns = getattr(getattr(point, kind), name, None)
    return None if value_ns is None else value_ns * 1000 / NS_PER_S

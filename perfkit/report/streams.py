"""The times of streams against the load, as charts."""

from collections.abc import Iterator, Sequence

from perfkit.report.chart import Axis, Chart, ChartGroup, Line, times_scale
from perfkit.report.load_points import PERCENTILES, PROTOCOL_COLOURS, load_axis
from perfkit.result.model import Point
from perfkit.units import NS_PER_MS

_TIMES = {
    "first_response_time": "time to the first response",
    "response_gap": "gap between responses",
    "stream_time": "time to the last response",
}


def streams_group(points: Sequence[Point]) -> ChartGroup:
    """A chart of each time of streams against the load, and one of the responses per second."""
    load = load_axis(points)
    ordered = sorted(points, key=lambda point: point.load.level)
    protocols = {name: [point for point in ordered if point.protocol == name] for name in dict.fromkeys(point.protocol for point in points)}
    charts = []
    for kind, title in _TIMES.items():
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

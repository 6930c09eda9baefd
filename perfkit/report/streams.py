"""The table of streams: the times to the first and the last response, the gaps between responses, and their number."""

import functools
from collections.abc import Sequence

from perfkit.report.load_points import load_columns
from perfkit.report.table import Cell, Column, Table
from perfkit.result.model import Point
from perfkit.units import format_duration_ns

_TIMES = {"first_response_time": "first", "response_gap": "gap", "stream_time": "last"}


def streams_table(points: Sequence[Point]) -> Table:
    """The load points with their streams; no rows for loads without."""
    columns = (
        *load_columns(points),
        Column("responses_per_s", "responses", "rate_per_s", lambda point: Cell(point.responses and point.responses.per_s)),
        *(
            Column(f"{kind}_{name}_ns", f"{title} {name}", "duration_ns", functools.partial(_percentile, kind, name))
            for kind, title in _TIMES.items()
            for name in ("p50", "p90", "p99")
        ),
        *(Column(name, name.replace("_", " "), "count", functools.partial(_count, name)) for name in ("without_response", "cancelled")),
    )
    note = (
        "Responses that came in the window, per second. The time to the first response and to the last one, from the start of the request "
        "(open loop: the intended one), and the gaps between responses. Without response: streams that ended ok with none. Cancelled: "
        "streams that the load generator ended, because they timed out or were unfinished; they count at their age."
    )
    return Table.of("streams", "Streams", columns, [point for point in points if point.responses], note)


def _count(name: str, point: Point) -> Cell:
    return Cell(getattr(point.responses, name, None))


def _percentile(kind: str, name: str, point: Point) -> Cell:
    times = getattr(point, f"{kind}_ns")
    value_ns = getattr(times, name, None)
    if value_ns is None:
        return Cell(None, note="too few samples" if times else "no such responses")
    low_ns, high_ns = point.further_intervals.get(kind, {}).get(name, (None, None))
    high = "above" if high_ns is None else format_duration_ns(high_ns)
    return Cell(value_ns, "0" if value_ns == 0 else None, "" if low_ns is None else f"95% interval: {format_duration_ns(low_ns)} to {high}")

"""What tables and charts of load points share: the columns and the axis that name a load point, the cells of its times, the marks of invalid ones."""

import math
from collections.abc import Iterator, Sequence

from perfkit.report.chart import BLUE, VERMILLION, Axis, Colour, Style
from perfkit.report.table import Cell, Column, Table
from perfkit.result.model import Point
from perfkit.units import format_duration_ns

TIMES = {"service time": "service times, finished − started", "response time": "response times, finished − intended start"}
"""The definition of each kind of time, for captions."""


def load_columns(points: Sequence[Point]) -> tuple[Column, ...]:
    """The columns that name a load point."""
    quantities = {point.load.quantity for point in points} or {"concurrency"}
    level = Column(
        "level", quantities.pop() if len(quantities) == 1 else "load", "figure", lambda point: Cell(point.load.level, point.load.amount)
    )
    workload = (Column("workload", "workload", value=workload_title),) if any(point.workload is not None for point in points) else ()
    return (*workload, Column("protocol", "protocol"), level)


def workload_title(point: Point) -> str:
    """The workload of a mix, and whether it was measured alone; `all` for the whole mix."""
    return "all" if point.workload is None else f"{point.workload}{', alone' * point.alone}"


def load_point_table(name: str, title: str, columns: Sequence[Column], points: Sequence[Point], note: str) -> Table:
    """A table with a row for each load point, in which those that are not valid are marked."""
    return Table.of(name, title, columns, points, note, ("" if point.valid else "invalid" for point in points))


def times_caption(points: Sequence[Point]) -> str:
    """The definition of the load points' times; empty without load points."""
    return TIMES[points[0].times_name] if points else ""


def interval_cell(value_ns: int | None, interval: tuple[float, float | None] | None) -> Cell:
    """A percentile with its interval as a note."""
    low_ns, high_ns = interval or (None, None)
    high = "above" if high_ns is None else format_duration_ns(high_ns)
    note = "" if low_ns is None else f"95% interval: {format_duration_ns(low_ns)} to {high}"
    return Cell(value_ns, "0" if value_ns == 0 else None, note)


PROTOCOL_COLOURS: dict[str, Colour] = {"http": BLUE, "grpc": VERMILLION, "mixed": BLUE}
PERCENTILES: tuple[tuple[str, Style], ...] = (("p50", "line"), ("p99", "dashed"))


def load_axis(points: Sequence[Point]) -> Axis:
    """The x axis of the load points."""
    levels = sorted({point.load.level for point in points})
    return Axis(
        "concurrency (requests in flight)" if points[0].load.kind == "closed" else "offered rate (requests per second)",
        scale="log", ticks=tuple(_ticks(levels)), low=levels[0] / 1.2, high=levels[-1] * 1.2,
    )  # fmt: skip


def _ticks(levels: Sequence[float]) -> Iterator[tuple[float, str]]:
    """Ticks at the measured loads, without those whose labels would overlap."""
    apart, last = (levels[-1] / levels[0]) ** (1 / 10), -math.inf
    for level in levels:
        if level >= last * apart or last == -math.inf:
            yield level, f"{level:,.6g}"
            last = level

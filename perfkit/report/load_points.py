"""What tables and charts of load points share, and tables whose columns are declared figures.

Shared are the columns and the axis that name a load point, the cells of its times, the marks of invalid ones.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence

from perfkit.figures.declaration import Declared, Subject, Unit, declared, figures_of
from perfkit.report.chart import Axis
from perfkit.report.table import Cell, Column, Kind, Table
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


def load_axis(points: Sequence[Point]) -> Axis:
    """The x axis of the load points."""
    levels = sorted({point.load.level for point in points})
    return Axis(
        "concurrency (requests in flight)" if points[0].load.kind in ("closed", "ramp") else "offered rate (requests per second)",
        scale="log", ticks=tuple(_ticks(levels)), low=levels[0] / 1.2, high=levels[-1] * 1.2,
    )  # fmt: skip


def _ticks(levels: Sequence[float]) -> Iterator[tuple[float, str]]:
    """Ticks at the measured loads, without those whose labels would overlap."""
    apart, last = (levels[-1] / levels[0]) ** (1 / 10), -math.inf
    for level in levels:
        if level >= last * apart or last == -math.inf:
            yield level, f"{level:,.6g}"
            last = level


_KINDS: Mapping[Unit, Kind] = {
    "ns": "duration_ns", "per_s": "rate_per_s", "count": "count", "share": "share", "number": "number", "energy_j": "energy_j"
}  # fmt: skip
_PERCENTILES = ("p50", "p90", "p99")


def streams_table(points: Sequence[Point]) -> Table:
    """The load points with their streams; no rows for loads without."""
    columns = (
        *load_columns(points),
        *_figures("streams", "per_s"),
        *(
            column
            for one in _times("streams")
            for column in percentile_columns(one, one.figure.recorded, _PERCENTILES, few="too few samples", none="no such responses")
        ),
        *_figures("streams", "count"),
    )
    note = (
        "Responses that came in the window, per second. The time to the first response and to the last one, from the start of the request "
        "(open loop: the intended one), and the gaps between responses. Without response: streams that ended ok with none. Cancelled: "
        "streams that the load generator ended, because they timed out or were unfinished; they count at their age."
    )
    return Table.of("streams", "Streams", columns, [point for point in points if point.responses and not point.tokens], note)


def tokens_table(points: Sequence[Point]) -> Table:
    """The load points whose answers are made of tokens; no rows for others. Columns of streams are left out where none are."""
    rows = [point for point in points if point.tokens]
    times = [one for one in _times("tokens") if any(map(one.value_of, rows))]
    columns = (
        *load_columns(points),
        *_figures("tokens", "per_s"),
        *(
            column
            for one in times
            for column in percentile_columns(
                one, one.figure.column, _PERCENTILES, few="too few samples", none="not known, see the warnings"
            )
        ),
        *_figures("tokens", "number"),
        *_figures("tokens", "count"),
    )
    note = (
        "Tokens as the server reports them; rates are of the ok answers that ended in the window. First token: the time to the first event with content "
        "or reasoning, from the start of the request (open loop: the intended one). Event gap: between such events, which may hold several tokens. Per "
        "token: from the first event to the last, per token after those of the first event."
    )
    return Table.of("tokens", "Tokens", columns, rows, note)


def sequences_table(points: Sequence[Point]) -> Table:
    """The load points with their sequences; no rows for loads without."""
    columns = (
        *load_columns(points),
        *_figures("sequences", "count"),
        Column("sequences_per_s", "sequences", "rate_per_s", _sequences_per_s),
        *(
            column
            for one in _times("sequences")
            for column in percentile_columns(one, one.figure.column, _PERCENTILES, few="too few sequences ended", none="no sequence ended")
        ),
        Column("sequence_max_ns", "max", "duration_ns", lambda point: point.sequence_time_ns and point.sequence_time_ns.max),
    )
    note = (
        "Sequences that started in the window, and those that ended in it: with their last answer, or early because a request failed. p50 to "
        "max are the times of the former from the start of the first request (open loop: the intended one) to the end of the last."
    )
    return Table.of("sequences", "Sequences", columns, [point for point in points if point.sequences], note)


def figure_column(path: str, key: str = "") -> Column:
    """The column of a figure, chosen by its key in a load point; `key` is the column's own."""
    one = next(one for one in declared(Point) if one.path == path)
    return Column(key or one.figure.column or one.key, one.figure.title, _KINDS[one.figure.unit], one.value_of)


def percentile_columns(one: Declared, stem: str, names: Sequence[str], *, few: str, none: str, joint: str = " ") -> Iterator[Column]:
    """The columns of some percentiles of times, with their intervals; the notes say why one is missing: too few times, or none at all."""
    for name in names:
        heading = joint.join(filter(None, (one.figure.title, name)))
        yield Column(f"{stem}_{name}_ns", heading, "duration_ns", functools.partial(_percentile, one, name, few, none))


def _percentile(one: Declared, name: str, few: str, none: str, point: Point) -> Cell:
    times = one.value_of(point)
    value_ns = getattr(times, name, None)
    if value_ns is None:
        return Cell(None, note=few if times else none)
    cell = interval_cell(value_ns, point.further_intervals.get(one.figure.recorded, {}).get(name))
    return Cell(value_ns, None if value_ns else "0", cell.note)


def _figures(subject: Subject, unit: Unit) -> Iterator[Column]:
    for one in figures_of(Point, subject):
        if one.figure.unit == unit:
            yield figure_column(one.path, one.key if unit == "count" else "")


def _times(subject: Subject) -> list[Declared]:
    return [one for one in figures_of(Point, subject) if one.figure.unit == "ns" and one.figure.recorded]


def _sequences_per_s(point: Point) -> float | None:
    return point.sequences.ended / point.duration_s if point.sequences and point.duration_s else None

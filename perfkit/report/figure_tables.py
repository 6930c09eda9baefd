"""Tables whose columns are declared figures: those of streams and of sequences, and the columns of others."""

import functools
from collections.abc import Iterator, Mapping, Sequence

from perfkit.figures.declaration import Declared, Subject, Unit, declared, figures_of
from perfkit.report.load_points import interval_cell, load_columns
from perfkit.report.table import Cell, Column, Kind, Table
from perfkit.result.model import Point

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
    return Table.of("streams", "Streams", columns, [point for point in points if point.responses], note)


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

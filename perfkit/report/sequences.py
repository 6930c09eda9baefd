"""The table of sequences: how many there were, and how long they took."""

import functools
from collections.abc import Sequence

from perfkit.report.load_points import load_columns
from perfkit.report.table import Cell, Column, Table
from perfkit.result.model import Point
from perfkit.units import format_duration_ns


def sequences_table(points: Sequence[Point]) -> Table:
    """The load points with their sequences; no rows for loads without."""
    columns = (
        *load_columns(points),
        *(Column(name, name, "count", functools.partial(_count, name)) for name in ("started", "ended", "failed")),
        Column("sequences_per_s", "sequences", "rate_per_s", lambda point: Cell(_per_s(point))),
        *(Column(f"sequence_{name}_ns", name, "duration_ns", functools.partial(_percentile, name)) for name in ("p50", "p90", "p99")),
        Column("sequence_max_ns", "max", "duration_ns", lambda point: Cell(point.sequence_time_ns and point.sequence_time_ns.max)),
    )
    note = (
        "Sequences that started in the window, and those that ended in it: with their last answer, or early because a request failed. p50 to "
        "max are the times of the former from the start of the first request (open loop: the intended one) to the end of the last."
    )
    return Table.of("sequences", "Sequences", columns, [point for point in points if point.sequences], note)


def _count(name: str, point: Point) -> Cell:
    return Cell(getattr(point.sequences, name, None))


def _per_s(point: Point) -> float | None:
    return point.sequences.ended / point.duration_s if point.sequences and point.duration_s else None


def _percentile(name: str, point: Point) -> Cell:
    times = point.sequence_time_ns
    value_ns = getattr(times, name, None)
    if value_ns is None:
        return Cell(None, note="too few sequences ended" if times else "no sequence ended")
    low_ns, high_ns = point.further_intervals.get("sequence_time", {}).get(name, (None, None))
    high = "above" if high_ns is None else format_duration_ns(high_ns)
    return Cell(value_ns, note="" if low_ns is None else f"95% interval: {format_duration_ns(low_ns)} to {high}")

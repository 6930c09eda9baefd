"""Where the time of traced requests went: tables, the sentences that name the cause of the tail, and a chart of the slowest requests."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from perfkit.figures.resources import GC_PAUSE
from perfkit.report.chart import BLUE, GREEN, MUTED, PURPLE, RED, VERMILLION, Axis, Chart, ChartGroup, Colour, Line
from perfkit.report.load_points import load_columns
from perfkit.report.table import Cell, Column, Table
from perfkit.result.model import Point
from perfkit.spans.breakdown import BANDS, FEWEST_ABOVE, Breakdown, PartMeans, SlowRequest
from perfkit.spans.change import LEAST_NAMED, PLACES
from perfkit.spans.split import PARTS
from perfkit.telemetry.series import Series
from perfkit.units import NS_PER_MS, NS_PER_S, format_duration_ns

HEADINGS = {
    "start_delay": "start delay", "connection_wait": "connection", "request_way": "to server", "queue": "queue", "compute_input": "input",
    "compute_infer": "inference", "compute_output": "output", "response_way": "from server", "remainder": "other",
}  # fmt: skip
"""The heading of the column of each part."""
_LEAST_SHOWN = 0.01
_LEAST_BOUND_NS = 10_000
"""The smallest error of the server's clock that is reported; on one machine the error is smaller."""
_MOST_PANELS = 6
_COLOURS: dict[str, Colour] = {
    "start_delay": RED, "connection_wait": PURPLE, "request_way": ("#8c564b", "#c99488"), "queue": VERMILLION, "compute_input": GREEN,
    "compute_infer": BLUE, "compute_output": ("#8f8f14", "#d5d54a"), "response_way": ("#0f93a5", "#4ddbe9"), "remainder": MUTED,
}  # fmt: skip


_EVENTS = (GC_PAUSE, "tcp_retransmits_per_s")
"""Series of which the largest value counts, if it is above 0; of the others, the mean."""
_BESIDE: dict[str, Callable[[float], str]] = {
    GC_PAUSE: lambda value_ns: f"garbage collection {format_duration_ns(value_ns)}",
    "tcp_retransmits_per_s": lambda value: f"{value:.3g} TCP retransmissions/s",
    "gpu_sm_clock": lambda value_mhz: f"GPU clock {value_mhz:,.0f} MHz",
    "server_mean_batch": lambda value: f"mean batch {value:.3g}",
}


class _Row(NamedTuple):
    point: Point
    name: str
    requests: int
    times: PartMeans | SlowRequest


def breakdown_table(points: Sequence[Point]) -> Table:
    """The mean parts around p50, p95 and p99 and those of the slowest request; no rows without traced requests.

    Parts that are below 1 % of the time in every row are in CSV and JSON only.
    """
    rows = [row for point in points if point.breakdown for row in _rows(point, point.breakdown)]
    small = _small_parts([row.times for row in rows])
    columns = (
        *(_of_point(column) for column in load_columns([row.point for row in rows])),
        Column("percentile", "around", value=lambda row: row.name),
        Column("requests", "requests", "count"),
        Column("total_ns", "time", "duration_ns", functools.partial(_cell, "total")),
        *(Column(f"{name}_ns", HEADINGS[name], "duration_ns", functools.partial(_cell, name), name in small) for name in PARTS),
    )
    small_names = ", ".join(HEADINGS[name] for name in PARTS if name in small)
    left_out = f" Below 1% everywhere and left out: {small_names}." if small and rows else ""
    limits = "".join(f" {one}." for one in _limits([point.breakdown for point in points if point.breakdown]))
    note = (
        f"Means of the traced requests around each percentile of their {rows[0].point.times_name}s; the parts add up.{left_out}{limits}"
        if rows
        else ""
    )
    return Table.of("breakdown", "Where the time went", columns, rows, note)


def _limits(breakdowns: Sequence[Breakdown]) -> Iterator[str]:
    """What the sample lacks, and how well the server's clock is known."""
    silent, sampled = sum(one.without_spans for one in breakdowns), sum(one.sampled for one in breakdowns)
    if silent:
        yield f"The server's spans of {silent:,} of {silent + sampled:,} traced requests did not come: these are left out"
    bounds = [one.clock_bound_ns for one in breakdowns if one.clock_bound_ns is not None]
    ways = f"{HEADINGS['request_way']} and {HEADINGS['response_way']}"
    if max(bounds, default=0) >= _LEAST_BOUND_NS:
        yield f"The server's clock is known to {format_duration_ns(max(bounds))}: {ways} may each be off by that, not their sum"
    if problem := next((one.clock_problem for one in breakdowns if one.clock_problem), ""):
        yield f"{ways} are not known everywhere: {problem}"


def contrast_table(points: Sequence[Point]) -> Table:
    """The time that each part adds to the median at p95 and p99, with 95 % intervals; no rows without such percentiles."""
    rows = [(point, name, one) for point in points if point.breakdown for name, one in point.breakdown.contrast.items()]
    small = _small_parts([row[2] for row in rows])
    columns = (
        *(_of_point(column) for column in load_columns([row[0] for row in rows])),
        Column("percentile", "percentile", value=lambda row: row[1]),
        *(
            Column(f"{name}_ns", heading, "figure", functools.partial(_difference_cell, name), name in small)
            for name, heading in (("total", "more than p50"), *HEADINGS.items())
        ),
    )
    items = [_Row(point, name, one.requests, one) for point, name, one in rows]
    note = "The mean parts around the percentile minus those around the median, with 95% intervals."
    return Table.of("contrast", "What sets the slow requests apart", columns, items, note)


def breakdown_sentences(points: Sequence[Point]) -> tuple[str, ...]:
    """A sentence for each load point on why its slow requests were slow: `p99: 41.0 ms more than the median; 33.0 ms of it in the server's queue`."""
    known = [(point, point.breakdown) for point in points if point.breakdown is not None]
    return tuple(f"{f'{point.title}: ' * (len(known) > 1)}{_sentence(one)}." for point, one in known)


def waterfall_group(points: Sequence[Point]) -> ChartGroup | None:
    """The slowest traced requests, a row each, from the instant at which they were intended; None without any."""
    own = [point for point in points if point.breakdown and point.breakdown.slowest][:_MOST_PANELS]
    return ChartGroup(tuple(map(_waterfall, own)), columns=1) if own else None


def what_else_happened(point: Point, request: SlowRequest, telemetry: Sequence[Series] = ()) -> str:
    """Other events while a request was under way, in a few words; empty if nothing is known.

    `telemetry` are the series of its repetition, on the clock of its window: pauses of the load generator's garbage collection,
    retransmissions, the GPUs' clock, and the server's mean batch, each as sampled then, or last before.
    """
    end_s = request.at_s + request.total_ns / NS_PER_S
    found = [
        f"{one.kind.replace('_', ' ')} at {one.start_s:.2f} s"
        for one in point.incidents
        if one.repetition == request.repetition and one.start_s <= end_s and one.end_s >= request.at_s
    ]
    for series in telemetry:
        if (show := _BESIDE.get(series.name)) is None or not series.times_ns:
            continue
        values = series.effective_from(round(request.at_s * NS_PER_S)).between(series.times_ns[0], round(end_s * NS_PER_S)).values
        if series.name == GC_PAUSE:  # an event, not a level that holds
            values = series.between(round(request.at_s * NS_PER_S), round(end_s * NS_PER_S)).values
        if values and (series.name not in _EVENTS or max(values) > 0):
            found.append(show(max(values) if series.name in _EVENTS else sum(values) / len(values)))
    return ", ".join(dict.fromkeys(found))


def slowest_table(points: Sequence[Point], telemetry: Mapping[tuple[int, int], Sequence[Series]] | None = None) -> Table:
    """The slowest traced requests of each load point, with what else happened then; no rows without any.

    `telemetry` are the series by load point and repetition, on the clock of each window.
    """
    numbers = {point.key: number for number, point in enumerate(points)}
    rows = [_Row(point, "", 1, one) for point in points if point.breakdown for one in point.breakdown.slowest]
    small = _small_parts([row.times for row in rows])

    def beside(row: _Row) -> str | None:
        assert isinstance(row.times, SlowRequest)
        sampled = (telemetry or {}).get((numbers[row.point.key], row.times.repetition), ())
        return what_else_happened(row.point, row.times, sampled) or None

    columns = (
        *(_of_point(column) for column in load_columns([row.point for row in rows])),
        Column("repetition", "repetition", "count", lambda row: row.times.repetition + 1),
        Column("at_s", "second", "number", lambda row: row.times.at_s),
        Column("total_ns", "time", "duration_ns", functools.partial(_cell, "total")),
        *(Column(f"{name}_ns", HEADINGS[name], "duration_ns", functools.partial(_cell, name), name in small) for name in PARTS),
        Column("variant", "input", "count", lambda row: row.times.variant),
        Column("beside", "at that time", "prose", beside),
        Column("trace_id", "trace id", "code", lambda row: row.times.trace_id),
    )
    note = "Second: when the request was intended, since the start of its window. The server's traces have the same trace ids."
    return Table.of("slowest", "The slowest traced requests", columns, rows, note)


def _small_parts(several: Sequence[PartMeans | SlowRequest]) -> set[str]:
    """The parts that are below 1 % of the time in each."""
    return {name for name in PARTS if all(abs(one.parts_ns[name]) < _LEAST_SHOWN * abs(one.total_ns) for one in several)}


def _rows(point: Point, breakdown: Breakdown) -> Iterator[_Row]:
    for name in BANDS:
        means: PartMeans | None = getattr(breakdown, name)
        if means is not None:
            yield _Row(point, name, means.requests, means)
    if breakdown.slowest:
        yield _Row(point, "slowest", 1, breakdown.slowest[0])


def _of_point(column: Column) -> Column:
    return Column(column.key, column.heading, column.kind, lambda row: column.value_of(row.point))


def _cell(name: str, row: _Row) -> Cell:
    value_ns = row.times.total_ns if name == "total" else row.times.parts_ns[name]
    breakdown = row.point.breakdown
    if breakdown is not None and name in breakdown.unknown:
        return Cell(None, note="the server's spans do not tell it")
    interval = row.times.intervals_ns.get(name) if isinstance(row.times, PartMeans) else None
    return Cell(
        value_ns, note="" if interval is None else f"95% interval: {format_duration_ns(interval[0])} to {format_duration_ns(interval[1])}"
    )


def _difference_cell(name: str, row: _Row) -> Cell:
    cell = _cell(name, row)
    interval = row.times.intervals_ns.get(name) if isinstance(row.times, PartMeans) else None
    if cell.value is None or interval is None:
        return Cell(cell.value, note=cell.note)
    return Cell(cell.value, f"{format_duration_ns(cell.value)} ({format_duration_ns(interval[0])} to {format_duration_ns(interval[1])})")


def _sentence(breakdown: Breakdown) -> str:
    if not breakdown.sampled:
        silent = f"; the server's spans of {breakdown.without_spans:,} requests did not come" if breakdown.without_spans else ""
        return f"No traced request was answered ok with spans{silent}"
    name = next((name for name in ("p99", "p95") if name in breakdown.contrast), None)
    if name is None:
        needed = round(FEWEST_ABOVE / (1 - BANDS["p95"][0]))
        return f"Too few samples to say what sets the slow requests apart: {breakdown.sampled:,} requests were traced, p95 needs {needed}"
    one = breakdown.contrast[name]
    if not one.intervals_ns:
        place = PLACES[max(PARTS, key=lambda part: one.parts_ns[part])]
        return (
            f"{name}: {format_duration_ns(one.total_ns)} more than the median, most of it {place}; the slow requests came in too few "
            "groups to say how certain that is"
        )
    if one.intervals_ns["total"][0] <= 0 and breakdown.contrast.get("p95", one).intervals_ns.get("total", (0, 0))[0] > 0:
        name, one = "p95", breakdown.contrast["p95"]  # which more requests stand for
    if one.intervals_ns["total"][0] <= 0:
        return f"{name}: the time is not longer than at the median by more than its interval"
    clear = [part for part in PARTS if part in one.intervals_ns and one.intervals_ns[part][0] > 0]
    largest = sorted(clear, key=lambda part: one.parts_ns[part], reverse=True)
    named = [part for part in largest[:3] if part == largest[0] or one.parts_ns[part] >= LEAST_NAMED * one.total_ns]
    places = ", ".join(f"{format_duration_ns(one.parts_ns[part])}{' of it' * (part == named[0])} {PLACES[part]}" for part in named)
    return f"{name}: {format_duration_ns(one.total_ns)} more than the median; {places or 'no part is longer for certain'}"


def _waterfall(point: Point) -> Chart:
    assert point.breakdown is not None
    slowest = point.breakdown.slowest[::-1]  # the slowest is the uppermost row
    lines = []
    for place, name in enumerate(PARTS):
        values: list[tuple[float, float | None]] = []
        for row, request in enumerate(slowest, 1):
            start_ms = sum(max(request.parts_ns[one], 0) for one in PARTS[:place]) / NS_PER_MS
            end_ms = start_ms + request.parts_ns[name] / NS_PER_MS
            if end_ms > start_ms:
                values += [(start_ms, row), (end_ms, row), (end_ms, None)]
        if values:
            lines.append(Line.of(HEADINGS[name], values[:-1], _COLOURS[name], "path"))
    ticks = tuple((float(row), f"at {one.at_s:.2f} s") for row, one in enumerate(slowest, 1))
    x = Axis(f"milliseconds since the {'intended ' * (point.response_time_ns is not None)}start", "ms")
    y = Axis("slowest first", "", "linear", ticks, low=0.3, high=len(slowest) + 0.7)
    return Chart(point.title, x, y, tuple(lines), height_px=120 + 20 * len(slowest))

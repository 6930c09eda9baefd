"""Overloads and the recovery from them: as a table, a chart over time and a sentence."""

from collections.abc import Sequence

from perfkit.report.chart import GREEN, INK, Axis, Chart, ChartGroup, Line, Span
from perfkit.report.table import Cell, Column, Table
from perfkit.result.load import OpenLoad
from perfkit.result.model import Point
from perfkit.result.surge import SurgeFigure
from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s

_RATES = {"before_per_s": "before", "during_per_s": "during", "after_per_s": "after"}
_NOT_RECOVERED = "not in the window"


def surge_table(points: Sequence[Point]) -> Table:
    """A row for each surge, and one with the mean of each load point and its interval; no rows for other loads."""
    columns = (
        Column("protocol", "protocol"),
        Column("surge", "surge"),
        *(Column(key, f"goodput {heading}", "figure") for key, heading in _RATES.items()),
        Column("kept_share", "kept", "figure"),
        Column("in_flight_left", "left in flight", "figure"),
        Column("recovery_s", "recovery", "figure"),
        Column("failed_p50_ns", "failed p50", "duration_ns"),
        Column("failed_p99_ns", "failed p99", "duration_ns"),
    )
    keys = [column.key for column in columns[2:-2]]
    rows = list[tuple[str | Cell, ...]]()
    for point in points:
        if (found := point.surge) is None:
            continue
        rows += [
            (point.protocol, f"{one.repetition + 1}", *(_cell(key, getattr(one, key)) for key in keys), Cell(None), Cell(None))
            for one in found.repetitions
        ]
        failed = point.failure_time_ns
        rows.append(
            (
                point.protocol,
                "mean",
                *(_mean_cell(key, found.figures.get(key)) for key in keys),
                Cell(failed and failed.p50),
                Cell(failed and failed.p99),
            )
        )
    note = (
        "Goodput: ok answers within the SLO, by the intended starts of their requests; kept: during ÷ before. Left in flight: at the surge's end. Recovery: from "
        "there until the SLO holds again and keeps holding. Failed: the times of requests that failed at once, anywhere in the window."
    )
    return Table("surge", "Surges", columns, tuple(rows), note)


def surge_group(points: Sequence[Point]) -> ChartGroup:
    """Arrivals and goodput over the window, the surge shaded; a panel per protocol."""
    charts = []
    for point in points:
        if (found := point.surge) is None or not isinstance(point.load, OpenLoad) or point.load.surge is None:
            continue
        xs = tuple(round((slot + 0.5) * found.slot_s, 6) for slot in range(len(found.good_per_s)))
        lines = (Line("arrivals", xs, found.scheduled_per_s, INK), Line("answered within the SLO", xs, found.good_per_s, GREEN))
        spans = (Span(point.load.surge.start_s, point.load.surge.end_s, "surge"),)
        charts.append(Chart(point.protocol, Axis("time in the window", "s"), Axis("requests", "/s"), lines, spans, height_px=300))
    return ChartGroup(tuple(charts), columns=2)


def surge_sentence(point: Point) -> str:
    """The verdict with its figures: `recovers: goodput 99/s before the surge, 70/s during it (60/s to 80/s); the SLO held again 2.1 s after it`."""
    assert point.surge is not None
    found, figures = point.surge, point.surge.figures
    rates = f"goodput {_shown('before_per_s', figures['before_per_s'].value)} before the surge, {_with_ends('during_per_s', figures['during_per_s'])} during it"
    if (recovery := figures.get("recovery_s")) is not None:
        after = f"the SLO held again {_with_ends('recovery_s', recovery)} after it"
    else:
        recovered = sum(one.recovery_s is not None for one in found.repetitions)
        after = f"the SLO held again after {recovered} of {len(found.repetitions)} surges"
    left = f"{_shown('in_flight_left', figures['in_flight_left'].value)} requests were in flight at its end"
    return f"{found.verdict}: {rates}; {after}; {left}"


def _with_ends(key: str, figure: SurgeFigure) -> str:
    value = _shown(key, figure.value)
    return value if figure.low is None or figure.high is None else f"{value} ({_shown(key, figure.low)} to {_shown(key, figure.high)})"


def _shown(key: str, value: float) -> str:
    if key == "recovery_s":
        return format_duration_ns(value * NS_PER_S)
    if key == "kept_share":
        return f"{value:.0%}"
    return f"{value:,.0f}" if key == "in_flight_left" else format_rate_per_s(value)


def _cell(key: str, value: float | None) -> Cell:
    return Cell(None, _NOT_RECOVERED if key == "recovery_s" else None) if value is None else Cell(value, _shown(key, value))


def _mean_cell(key: str, figure: SurgeFigure | None) -> Cell:
    return Cell(None) if figure is None else Cell(figure.value, _with_ends(key, figure))

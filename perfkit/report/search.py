"""A capacity search: its probes as a table, and as a plot with the fitted curve, the interval and the share that the SLO allows."""

import math

from perfkit.report.chart import BLUE, GREEN, MUTED, VERMILLION, Axis, Chart, ChartGroup, Colour, Level, Line, Span, Style
from perfkit.report.headline import slo_in_words
from perfkit.report.table import Cell, Column, Kind, Table
from perfkit.result.model import Point, Result
from perfkit.result.search import FittedCurve, Search, SearchProbe, limit_in_words
from perfkit.scenario.slo import FURTHER_TIMES
from perfkit.units import format_confidence, format_rate_per_s

_CONFIRMING: dict[str, Style] = {"not valid": "large hollow"}
_LEAST_BEYOND = 0.5  # requests; a probe with none beyond the limit is drawn there, since the axis is logarithmic
_CURVE_FROM, _CURVE_TO = 0.72, 1.14  # rate ÷ capacity
_OUTCOMES: dict[str, tuple[str, Colour, Style]] = {
    "met": ("SLO met", GREEN, "dots"), "missed": ("SLO missed", VERMILLION, "cross"),
    "overloaded": ("overloaded", ("#8c2d04", "#ffb37a"), "large cross"), "not valid": ("not valid", MUTED, "hollow"),
}  # fmt: skip


def probes_table(result: Result) -> Table:
    """The probes in order, with each figure that the SLO limits and the share of requests beyond the limit."""
    search = result.search
    assert search is not None
    limited: list[tuple[str, Kind]] = [(name, "error_rate" if name == "error_rate" else "duration_ns") for name in search.slo]
    columns = (
        Column("probe", "probe", "count"),
        Column("stage", "stage"),
        Column("rate_per_s", "rate", "rate_per_s"),
        Column("throughput_per_s", "throughput", "rate_per_s"),
        *(Column(name, "error rate" if name == "error_rate" else limit_in_words(name), kind) for name, kind in limited),
        Column("samples", "samples", "count"),
        Column("outcome", "SLO"),
    )
    pairs = list(zip(search.probes, result.points, strict=False))  # an interrupted point is no probe
    rows = tuple(
        (
            number, probe.stage, probe.rate_per_s, point.throughput_per_s, *(_limited(column, probe, point) for column in columns[4:-2]),
            point.times.count, _outcome(probe),
        )
        for number, (probe, point) in enumerate(pairs, 1)
    )  # fmt: skip
    note = "The probes in order. In brackets: the share of requests that were slower than the percentile's limit."
    return Table("probes", "Probes", columns, rows, note, tuple("" if probe.valid else "invalid" for probe, _ in pairs))


def _limited(column: Column, probe: SearchProbe, point: Point) -> Cell:
    if column.key == "error_rate":
        return Cell(point.error_rate)
    key, dot, percentile = column.key.rpartition(".")
    times = getattr(point, f"{FURTHER_TIMES[key]}_ns") if dot else point.times
    value_ns = getattr(times, percentile) if times is not None and times.count else None
    counted = probe.limits.get(column.key)
    if value_ns is None or counted is None or not counted.count:
        return Cell(value_ns)
    return Cell(value_ns, f"{column.cell(value_ns).text} ({counted.beyond / counted.count:.2%})")


def _outcome(probe: SearchProbe) -> str:
    if not probe.valid:
        return "not valid"
    return "overloaded" if probe.overloaded else "met" if probe.met else "missed"


def search_group(search: Search) -> ChartGroup:
    """A chart of the share of requests beyond the deciding limit against the rate, with the share that the SLO allows."""
    name = _limit(search)
    probes = [probe for probe in search.probes if name in probe.limits]
    lines = []
    for outcome, (label, colour, mark) in _OUTCOMES.items():
        for style, is_confirmation in ((mark, False), (_CONFIRMING.get(outcome, "large"), True)):
            own = [probe for probe in probes if _outcome(probe) == outcome and (probe.stage == "confirm") == is_confirmation]
            pairs: list[tuple[float, float | None]] = [(probe.rate_per_s, _share(probe, name)) for probe in own]
            if pairs:
                lines.append(Line.of(f"{label}{', confirming' if is_confirmation else ''}", pairs, colour, style))
    if search.curve is not None and search.capacity_per_s is not None:
        steps = [_CURVE_FROM + (_CURVE_TO - _CURVE_FROM) * step / 63 for step in range(64)]
        curve = [(step * search.capacity_per_s, _fitted_share(search.curve, step * search.capacity_per_s)) for step in steps]
        lines.append(Line.of("fitted curve", curve, BLUE))
    shares = [probe.limits[name].allowed_share for probe in probes[:1]]
    levels = [Level(share, f"allowed by the SLO: {100 * share:.3g} %") for share in shares]
    if search.capacity_per_s is not None:
        levels.append(Level(search.capacity_per_s, f"capacity {format_rate_per_s(search.capacity_per_s)}", is_vertical=True, colour=BLUE))
    spans = []
    if search.low_per_s is not None and search.high_per_s is not None:
        spans = [
            Span(
                search.low_per_s,
                search.high_per_s,
                f"{format_confidence(search.confidence)} interval of the capacity" if search.curve else "between met and missed",
            )
        ]
    limit = slo_in_words({name: search.slo[name]}).partition(" < ")[2]
    part = name.rpartition(".")[0].replace("_", " ")
    slow = f"with a {part} above {limit}" if part else f"slower than {limit}"
    what = "share of requests that failed" if name == "error_rate" else f"share of requests {slow}"
    y = Axis(what, scale="log", ticks=tuple((10.0**power, f"{100 * 10.0**power:g}%") for power in range(-7, 1)), high=1.3)
    return ChartGroup((Chart(what, Axis("arrivals per second", "/s", "log"), y, tuple(lines), tuple(spans), tuple(levels), height_px=320),))


def _limit(search: Search) -> str:
    """The name of the limit that is drawn: the one that decides, or without a fitted curve the first."""
    return search.curve.limit if search.curve is not None else next(iter(search.slo))


def _share(probe: SearchProbe, name: str) -> float:
    counted = probe.limits[name]
    return max(counted.beyond, _LEAST_BEYOND) / max(counted.count, 1)


def _fitted_share(curve: FittedCurve, rate_per_s: float) -> float:
    """The share on the fitted curve; see `FittedCurve` for its equation."""
    return float(min(curve.floor + math.exp(min(curve.intercept + curve.slope * (rate_per_s / curve.centre_per_s - 1), 0.0)), 1.0))

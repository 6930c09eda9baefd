"""Scans of a closed loop: as a table, charts against the concurrency and a sentence."""

from collections.abc import Sequence

from perfkit.report.chart import BLUE, Axis, Chart, ChartGroup, Level, Line, Span, times_scale
from perfkit.report.chart_rules import PERCENTILE_STYLES
from perfkit.report.table import Cell, Column, Table
from perfkit.result.model import Point
from perfkit.result.scan import Scan
from perfkit.units import NS_PER_MS

_TIMES = ("p50", "p99")


def scan_table(points: Sequence[Point]) -> Table:
    """A row for each step of each scan; no rows for other loads."""
    columns = (
        Column("protocol", "protocol"),
        Column("concurrency", "concurrency", "figure"),
        Column("throughput_per_s", "answers", "rate_per_s"),
        Column("mean_ns", "mean", "duration_ns"),
        Column("p50_ns", "p50", "duration_ns"),
        Column("p99_ns", "p99", "duration_ns"),
        Column("knee", "knee"),
    )
    rows = list[tuple[object, ...]]()
    for point in points:
        if (scan := point.scan) is None:
            continue
        for one in scan.steps:
            is_in_range = scan.knee is not None and scan.knee.low <= one.concurrency <= scan.knee.high
            mark = "" if scan.knee is None or not is_in_range else "knee" if one.concurrency == scan.knee.concurrency else "in its range"
            level = Cell(one.concurrency, f"{one.lowest:,}" if one.lowest == one.highest else f"{one.lowest:,} to {one.highest:,}")
            rows.append((point.protocol, level, one.throughput_per_s, one.mean_ns, one.p50_ns, one.p99_ns, mark))
    note = (
        "A scan: the requests in flight rise steadily, so no step is a steady load point. Answers: the ok ones that came in the step; times: of the "
        "requests that started in it. Knee: the highest throughput ÷ mean time, and the steps that are not shown to have less."
    )
    return Table("scan", "Scan", columns, tuple(rows), note)


def scan_group(points: Sequence[Point]) -> ChartGroup:
    """Throughput, and times, against the requests in flight at that instant; the knee and its range are marked."""
    charts = list[Chart]()
    for point in points:
        if (scan := point.scan) is None:
            continue
        axis = Axis("concurrency at that instant (requests in flight)")
        knee = scan.knee
        spans = () if knee is None else (Span(knee.low, knee.high, "range of the knee"),)
        levels = () if knee is None else (Level(knee.concurrency, "knee", is_vertical=True),)
        rates = Line.of("answers", [(one.concurrency, one.throughput_per_s) for one in scan.steps], BLUE)
        times = tuple(
            Line.of(
                name,
                [(one.concurrency, value / NS_PER_MS if (value := getattr(one, f"{name}_ns")) else None) for one in scan.steps],
                BLUE,
                PERCENTILE_STYLES[name],
            )
            for name in _TIMES
        )
        scale = times_scale([value for line in times for value in line.ys if value is not None])
        charts.append(Chart(f"{point.protocol}: throughput", axis, Axis("throughput", "answers/s"), (rates,), spans, levels=levels))
        charts.append(Chart(f"{point.protocol}: service time", axis, Axis("service time", "ms", scale), times, spans, levels=levels))
    return ChartGroup(tuple(charts), columns=2)


def scan_sentence(point: Point) -> str:
    """The knee, or why there is none, that it is a scan's, and which load points to measure."""
    assert point.scan is not None
    proposed = f"; the load points to measure: {proposed_option([point.scan])}" if point.scan.proposed else ""
    return f"scan, not a steady load: {point.scan.reason[0].lower()}{point.scan.reason[1:].rstrip('.')}{proposed}"


def proposed_option(scans: Sequence[Scan]) -> str:
    """The option that measures the proposed load points in place of the scan, those of all protocols."""
    return f"--set load.closed.concurrency='[{','.join(map(str, sorted({level for scan in scans for level in scan.proposed})))}]'"

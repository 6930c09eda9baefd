"""The report of a file that perf_analyzer wrote: its page and its Markdown."""

import functools
import pathlib
from collections.abc import Sequence

from perfkit.report.chart import BLUE, Chart, ChartGroup
from perfkit.report.chart_rules import load_shades
from perfkit.report.page import Block, Bullets, Fact, Figure, Headline, Page, Paragraph, sections_of, write_files
from perfkit.report.run_charts import percentile_axes, percentile_curve, percentile_line
from perfkit.report.table import Cell, Column, Table, attribute
from perfkit.result.distribution import Distribution
from perfkit.result.perf_analyzer_files import NOT_RECORDED, Kind
from perfkit.result.perf_analyzer_result import PerfAnalyzerPoint, PerfAnalyzerResult, read_perf_analyzer
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s

_STREAM_TIMES = {"first": "first_response_ns", "gap": "response_gap_ns"}


def write_perf_analyzer_report(path: pathlib.Path, kind: Kind) -> list[pathlib.Path]:
    """Writes `FILE.report.html` and `FILE.report.md` beside a file of that kind; raises ResultError."""
    from perfkit.report.render import render_html, render_markdown

    result = read_perf_analyzer(path, kind)
    texts = {
        path.with_name(f"{path.name}.report.html"): render_html(perf_analyzer_page(result, _headline(result), _figures(result))),
        path.with_name(f"{path.name}.report.md"): render_markdown(perf_analyzer_page(result)),
    }
    write_files(texts, replacing=(), place=str(path.parent))
    return list(texts)


def perf_analyzer_page(result: PerfAnalyzerResult, headline: Sequence[Block] = (), figures: Sequence[Block] = ()) -> Page:
    """The whole report; a page has a headline and figures."""
    notes = [note for point in result.points for note in point.notes]
    further = further_table(result.points)
    streams = streams_table(result.points)
    blocks: dict[str, Sequence[Block]] = {
        "": [*headline, *figures],
        "Summary": [summary_table(result.points)],
        "Streams": [streams] if streams.rows else [],
        "Notes": [Bullets.of(notes)] if notes else [],
        "As perf_analyzer reported it": [further] if further.rows else [],
        "How the figures are defined": [Paragraph(text) for text in _definitions(result)],
    }
    started = f", started {result.started_at}" if result.started_at else ""
    return Page(
        title=result.file.name,
        subtitle=f"A {result.kind} of {result.program}{started}",
        banner=f"Measured by {result.program}: {NOT_RECORDED}.",
        sections=sections_of(blocks),
    )


def summary_table(points: Sequence[PerfAnalyzerPoint]) -> Table:
    """The load points; what the file does not tell is a dash, or has no column if it tells it of none."""
    names = sorted({name for point in points for name in point.percentiles_ns}, key=lambda name: float(name[1:].replace("_", ".")))
    columns = (
        Column("load", "load", value=attribute("load.title")),
        Column("requests", "requests", "count"),
        Column("duration_ns", "window", "duration_ns", lambda point: point.duration_s and point.duration_s * NS_PER_S),
        Column("throughput_per_s", "throughput", "rate_per_s"),
        Column("inferences_per_s", "inferences", "rate_per_s"),
        Column("mean_ns", "mean", "duration_ns"),
        *(Column(f"{name}_ns", name.replace("_", "."), "duration_ns", functools.partial(_percentile, name)) for name in names),
        Column("max_ns", "max", "duration_ns"),
        Column("error_rate", "errors", "error_rate", lambda _: Cell(None, note="perf_analyzer does not record failures")),
    )
    note = "mean to max are service times, last response with data − actual send; – marks what is not known."
    return Table.of("summary", "Summary", columns, points, note).without_empty_columns("error_rate")


def _percentile(name: str, point: PerfAnalyzerPoint) -> Cell | None:
    found = point.percentiles_ns.get(name)
    return None if found is None else Cell(found.value, note=_interval(found))


def _interval(found: Estimate) -> str:
    if found.low is None:
        return ""
    return f"95% interval: {format_duration_ns(found.low)} to {'above' if found.high is None else format_duration_ns(found.high)}"


def streams_table(points: Sequence[PerfAnalyzerPoint]) -> Table:
    """The load points whose requests had several responses."""

    def figure(field: str, name: str, point: PerfAnalyzerPoint) -> float | None:
        times: Distribution | None = getattr(point, field)
        return None if times is None or not times.count else getattr(times, name)

    columns = (
        Column("load", "load", value=attribute("load.title")),
        Column("responses_per_s", "responses", "rate_per_s"),
        *(
            Column(f"{field}_{name}", f"{title} {name}", "duration_ns", functools.partial(figure, field, name))
            for title, field in _STREAM_TIMES.items()
            for name in ("p50", "p90", "p99", "max")
        ),
    )
    note = "first: the first response − actual send; gap: between consecutive responses. An empty final response does not count."
    return Table.of(
        "streams", "Streams", columns, [point for point in points if point.responses_per_s is not None], note
    ).without_empty_columns()


def further_table(points: Sequence[PerfAnalyzerPoint]) -> Table:
    """The other columns of a CSV report, as they stand."""
    names = list(dict.fromkeys(name for point in points for name in point.further))
    columns = (
        Column("load", "load", value=attribute("load.title")),
        *(Column(name, name, "figure", functools.partial(_reported, name)) for name in names),
    )
    note = "Means of its last three windows, times in microseconds; figures of GPUs come with the GPUs' ids."
    return Table.of("reported", "As perf_analyzer reported it", columns, points if names else (), note)


def _reported(name: str, point: PerfAnalyzerPoint) -> str | None:
    return point.further.get(name) or None


def _headline(result: PerfAnalyzerResult) -> Sequence[Block]:
    """The load point with the highest throughput."""
    measured = [(rate_per_s, point) for point in result.points if (rate_per_s := point.throughput_per_s) is not None]
    if not measured:
        return ()
    rate_per_s, best = max(measured, key=lambda pair: pair[0])
    known = [(name, best.percentiles_ns[name]) for name in ("p50", "p99") if name in best.percentiles_ns]
    facts = tuple(Fact(name, format_duration_ns(one.value), _interval(one).removeprefix("95% interval: ")) for name, one in known)
    caption = f"highest throughput, at {best.load.title}"
    return (Headline(format_rate_per_s(rate_per_s), caption, "", "as perf_analyzer measured it", "open", facts),)


def _figures(result: PerfAnalyzerResult) -> Sequence[Block]:
    """The percentile curves of an export; a CSV report has none."""
    curves = [(point, *percentile_curve(point.service_times)) for point in result.points if point.service_times is not None]
    if not curves:
        return ()
    x, y = percentile_axes([(steps, values_ns) for _, steps, values_ns in curves], "service time")
    shades = load_shades(sorted({point.load.value for point, _, _ in curves}), BLUE)
    lines = tuple(percentile_line(point.load.title, steps, values_ns, shades[point.load.value]) for point, steps, values_ns in curves)
    caption = "Each line is a load point: that share of its requests took at most the time on the left."
    return (Figure("Service time by percentile", caption, ChartGroup((Chart("all load points", x, y, lines, height_px=320),))),)


def _definitions(result: PerfAnalyzerResult) -> list[str]:
    if result.kind == "CSV report":
        return [
            "Inferences are those of requests × batch size; a CSV report does not tell the batch size, nor how many requests there were.",
            "Percentiles are those of perf_analyzer's last three stable windows, in whole microseconds. Load points that were not stable, or beyond its latency limit, are not in the file.",
        ]
    return [
        "Throughput is the requests whose last response came within the windows ÷ the length of the windows. An export does not tell the batch size.",
        "All windows of a load point count, also those that perf_analyzer left out of its own report because they were not stable.",
    ]

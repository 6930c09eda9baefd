"""The summary on a terminal, and the lines that tell how a run goes on."""

import os
import pathlib
import sys
from collections.abc import Collection, Sequence
from typing import TextIO

import rich.box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfkit.calibration.model import Calibration
from perfkit.report.calibration import size, spread
from perfkit.report.markdown import TIMES, grouped_warnings
from perfkit.report.search import is_marked, search_headings, search_rows
from perfkit.report.sweep import sweep_table
from perfkit.result.model import Point, Result, Search
from perfkit.result.sweep import SweepDocument
from perfkit.units import format_duration_ns, format_rate_per_s

_TABLE_WIDTH = 118
_WIDTH = 140  # where there is no terminal to ask
_COLUMNS = ("p50", "p90", "p95", "p99", "p99_9", "max")


def print_summary(result: Result) -> None:
    """Prints the summary on stdout; styles are off where it is no terminal or NO_COLOR is set."""
    if result.summary:
        sys.stdout.write(_captured(_table(result.summary) if result.search is None else _search_table(result, result.search)))
    if result.search is not None:
        sys.stdout.write(f"{result.search.reason}\n")


def print_calibration(calibration: Calibration) -> None:
    """Prints a calibration on stdout: a row a protocol and tensor size, and how exact the timers are."""
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for column in ("protocol", "tensors", "CPU a request", "ceiling of a worker", "p50", "bare p50", "overhead"):
        table.add_column(column, justify="left" if column == "protocol" else "right", no_wrap=True)
    for cost in calibration.costs:
        times = (cost.service_time_p50_ns, cost.bare_p50_ns, cost.overhead_p50_ns)
        table.add_row(
            cost.protocol,
            size(cost),
            format_duration_ns(cost.cpu_ns_per_request),
            format_rate_per_s(cost.ceiling_per_s),
            *map(format_duration_ns, times),
        )
    table.caption = "ceiling in a closed loop; overhead in p50 against a bare blocking socket, one request in flight"
    table.caption_justify = "left"
    sys.stdout.write(_captured(table))
    rate = format_rate_per_s(calibration.start_delay_rate_per_s)
    lines = [f"start delay at {rate}: {spread(calibration.start_delay_ns)}", f"timer late by: {spread(calibration.timer_late_ns)}"]
    lines += [f"resolution of the clock: {format_duration_ns(calibration.clock_resolution_ns)}"]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def drawn(columns: Sequence[str], rows: Sequence[tuple[Sequence[str], str]], left: Collection[str]) -> str:
    """A table as stdout shows it, from its rows' cells and style; the columns in `left` stand on the left."""
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    for cells, style in rows:
        table.add_row(*cells, style=style)
    return "".join(f"{line.rstrip()}\n" for line in _captured(table).splitlines() if line.strip())


def _captured(table: Table) -> str:
    """Rich itself would end the process where the reader has left."""
    console = _console(sys.stdout)
    with console.capture() as printed:
        console.print(table)
    return printed.get()


def print_warnings(result: Result) -> None:
    """Prints on stderr what a reader of the figures must know, each sentence once, and how the run ended."""
    console = _console(sys.stderr)
    for warning in grouped_warnings(result.summary):
        console.print(Text.assemble(("warning ", "yellow"), f"({warning.where}) {warning.message}"))
    for point in result.summary:
        if point.slo is not None:
            style = {"satisfied": "green", "violated": "bold red", "inconclusive": "yellow"}[point.slo.verdict]
            console.print(Text.assemble((f"SLO {point.slo.verdict} ", style), f"({_where(point)}) {point.slo.reason}"))
    if result.status != "complete":
        console.print(Text(f"status: {result.status}{f': {result.status_reason}' if result.status_reason else ''}", style="bold red"))


def _console(stream: TextIO) -> Console:
    # never narrower than the table: a terminal wraps a line, and a cut figure is worth nothing
    width = max(Console(file=stream).width, _TABLE_WIDTH) if stream.isatty() else _WIDTH
    return Console(file=stream, highlight=False, width=width, no_color=None, color_system=None if "NO_COLOR" in os.environ else "auto")


def describe_point(point: Point) -> str:
    """One line for a finished point: `http, concurrency 4: 25.1/s, p50 159 ms, p99 188 ms`."""
    figures = point.times
    percentiles = "".join(
        f", {name} {format_duration_ns(value)}" for name, value in (("p50", figures.p50), ("p99", figures.p99)) if value is not None
    )
    failed = f", {point.error_rate:.2%} failed" if point.error_rate else ""
    return f"{_where(point)}: {format_rate_per_s(point.throughput_per_s)}{percentiles}{failed}"


def _table(points: Sequence[Point]) -> Table:
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    batched = any(point.inferences_per_s != point.throughput_per_s for point in points)
    judged = any(point.goodput_per_s is not None for point in points)
    for column in (
        "protocol",
        "concurrency" if points[0].load.kind == "closed" else "rate",
        "throughput",
        *(["inferences"] if batched else []),
        *(["goodput"] if judged else []),
        *(name.replace("_", ".") for name in _COLUMNS),
        "errors",
        "samples",
    ):
        table.add_column(column, justify="left" if column == "protocol" else "right", no_wrap=True)
    for point in points:
        figures = [getattr(point.times, name) for name in _COLUMNS]
        shown = ["–" if value is None or not point.times.count else format_duration_ns(value) for value in figures]
        table.add_row(
            point.protocol,
            point.load.amount,
            format_rate_per_s(point.throughput_per_s),
            *([format_rate_per_s(point.inferences_per_s)] if batched else []),
            *([format_rate_per_s(point.goodput_per_s or 0.0)] if judged else []),
            *shown,
            f"{point.error_rate:.2%}" if point.error_rate else "0",
            f"{point.times.count:,}",
            style=None if point.valid else "red",
        )
    table.caption = f"{TIMES[points[0].times_name]}; – marks percentiles with too few samples"
    table.caption_justify = "left"
    return table


def print_sweep(folder: pathlib.Path, sweep: SweepDocument) -> None:
    """Prints the table over all cases of a sweep on stdout."""
    found = sweep_table(folder, sweep)
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(found.headings):
        table.add_column(heading, justify="left" if index < found.keys else "right")
    for row in found.rows:
        table.add_row(*row)
    console = _console(sys.stdout)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write(captured.get())


def _search_table(result: Result, search: Search) -> Table:
    table, headings = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False), search_headings(search)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index in (1, len(headings) - 1) else "right", no_wrap=True)
    for row in search_rows(result):
        table.add_row(*row, style="red" if is_marked(row) else None)
    table.caption = "the probes in their order; in brackets what multiple of its limit a percentile is"
    table.caption_justify = "left"
    return table


def _where(point: Point) -> str:
    return f"{point.protocol}, {point.load.title}"

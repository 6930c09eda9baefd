"""A sweep: one table over all its cases, as text, Markdown and HTML, and its load points as CSV."""

import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from perfkit.errors import ResultError
from perfkit.report.page import Bullets, Item, Page, Section, write_files
from perfkit.report.table import Cell, Column, Mark, Table
from perfkit.report.text import render_text
from perfkit.result.file import read_result
from perfkit.result.model import Point, Result
from perfkit.result.sweep import SweepCase, SweepDocument, read_sweep, shown_value

_POINT_COLUMNS = (
    Column("protocol", "protocol"), Column("load", "load"), Column("throughput_per_s", "throughput", "rate_per_s"),
    Column("inferences_per_s", "inferences", "rate_per_s"), Column("p50_ns", "p50", "duration_ns"), Column("p95_ns", "p95", "duration_ns"),
    Column("p99_ns", "p99", "duration_ns"), Column("error_rate", "errors", "error_rate"), Column("slo", "SLO", "prose"),
)  # fmt: skip
_SEARCH_COLUMNS = (
    Column("protocol", "protocol"), Column("capacity_per_s", "capacity", "rate_per_s"), Column("capacity_low_per_s", "from", "rate_per_s"),
    Column("capacity_high_per_s", "to", "rate_per_s"), Column("probes", "probes", "count"),
    Column("stopped_because", "stopped because", "prose"),
)  # fmt: skip
_NOTE = (
    "One row per load point of each case, repetitions pooled; a search has one row. – marks a percentile with too few samples, or a figure "
    "that was not measured."
)


def sweep_table(folder: pathlib.Path, sweep: SweepDocument) -> Table:
    """A row per load point, or per search, of every case; a case without figures gives its reason."""
    results = [(case, _read_result(folder, case)) for case in sweep.cases]
    is_search = any(result is not None and result.search is not None for _, result in results)
    columns = _SEARCH_COLUMNS if is_search else _POINT_COLUMNS
    rows: list[tuple[Any, ...]] = []
    marks: list[Mark] = []
    for case, result in results:
        values = _swept_values(sweep, case)
        measured = list((_search_rows if is_search else _point_rows)(result)) if result is not None else []
        for mark, cells in measured or [("", (*[None] * (len(columns) - 1), case.reason or case.status))]:
            rows.append((*values, *cells))
            marks.append(mark)
    return Table("sweep", "Cases", (*_swept_columns(sweep), *columns), tuple(rows), _NOTE, tuple(marks))


def write_sweep_report(folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes `report.md`, `report.html` and `sweep.csv` into a sweep's folder; raises ResultError."""
    from perfkit.report.html import render_html
    from perfkit.report.markdown import render_markdown
    from perfkit.result.frames import csv_text, sweep_frame

    sweep = read_sweep(folder)
    cases = Section("Cases", (sweep_table(folder, sweep),))
    links = tuple(Item(case.folder, link=f"{case.folder}/report.html") for case in sweep.cases if case.status != "pending")
    done = sum(case.status == "complete" for case in sweep.cases)
    page = Page(
        sweep.name, (cases, Section("Reports of the cases", (Bullets(links),))), f"{done} of {len(sweep.cases)} cases are complete."
    )
    texts = {
        folder / "report.md": render_markdown(Page(page.title, (cases,), page.subtitle)),
        folder / "report.html": render_html(page),
        folder / "sweep.csv": csv_text(sweep_frame([(case.values, _read_result(folder, case)) for case in sweep.cases])),
    }
    write_files(texts, replacing=(), place=str(folder))
    return list(texts)


def print_sweep(folder: pathlib.Path, sweep: SweepDocument) -> None:
    """Prints the table over all cases on stdout."""
    sys.stdout.write(f"\n{render_text(sweep_table(folder, sweep))}\n")


def _swept_keys(sweep: SweepDocument) -> list[str]:
    return list(dict.fromkeys(key for case in sweep.cases for key in case.values))


def _swept_columns(sweep: SweepDocument) -> list[Column]:
    return [Column(key, key) for key in _swept_keys(sweep)]


def _swept_values(sweep: SweepDocument, case: SweepCase) -> list[str]:
    return [shown_value(case.values[key]) if key in case.values else "" for key in _swept_keys(sweep)]


def _read_result(folder: pathlib.Path, case: SweepCase) -> Result | None:
    if case.status in ("pending", "failed"):  # a result there would be of an earlier scenario
        return None
    try:
        return read_result(folder / case.folder)[0]
    except ResultError:
        return None


def _point_rows(result: Result) -> Iterator[tuple[Mark, Sequence[Any]]]:
    for point in result.summary:
        times = (point.times.p50, point.times.p95, point.times.p99)
        figures = (point.throughput_per_s, point.inferences_per_s, *times, point.error_rate)
        yield ("" if point.valid else "invalid"), (point.protocol, Cell(point.load.level, point.load.title), *figures, _slo(point))


def _slo(point: Point) -> str | None:
    if not point.valid:
        return "not valid"
    return point.slo.verdict if point.slo else None


def _search_rows(result: Result) -> Iterator[tuple[Mark, Sequence[Any]]]:
    search = result.search
    if search is not None and result.points:
        rates = (search.capacity_per_s, search.low_per_s, search.high_per_s)
        yield "", (result.points[0].protocol, *rates, len(search.probes), search.stopped_because.replace("_", " "))

"""A sweep: one table over all its cases, as text, Markdown and HTML, and its load points as CSV."""

import pathlib
import sys
import urllib.parse
from collections.abc import Sequence
from typing import Any

from perfkit.errors import ResultError
from perfkit.report.page import Bullets, Item, Page, Section, write_files
from perfkit.report.render import render_text
from perfkit.report.table import Cell, Column, Mark, Table, attribute
from perfkit.result.file import read_result
from perfkit.result.model import Point, Result
from perfkit.result.sweep import SweepCase, SweepDocument, read_sweep, shown_value
from perfkit.text.terminal import write_styled

_NOTE = (
    "One row per load point of each case, repetitions pooled; a search has one row. – marks a percentile with too few samples, or a figure "
    "that was not measured."
)


def sweep_table(folder: pathlib.Path, sweep: SweepDocument) -> Table:
    """A row per load point, or per search, of every case; a case without figures gives its reason."""
    results = [(case, _read_result(folder, case)) for case in sweep.cases]
    is_search = any(result is not None and result.search is not None for _, (result, _) in results)
    columns = _SEARCH_COLUMNS if is_search else _POINT_COLUMNS
    keys = list(dict.fromkeys(key for case in sweep.cases for key in case.values))
    rows: list[tuple[Any, ...]] = []
    marks: list[Mark] = []
    for case, (result, fault) in results:
        values = [shown_value(case.values[key]) if key in case.values else "" for key in keys]
        items = _items(result, is_search=is_search)
        rows += [(*values, *(column.value_of(item) for column in columns)) for item in items]
        marks += ["invalid" if isinstance(item, Point) and not item.valid else "" for item in items]
        if not items:
            rows.append((*values, *[None] * (len(columns) - 1), fault or case.reason or case.status))
            marks.append("")
    return Table("sweep", "Cases", (*(Column(key, key) for key in keys), *columns), tuple(rows), _NOTE, tuple(marks))


def write_sweep_report(folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes `report.md`, `report.html` and `sweep.csv` into a sweep's folder; raises ResultError."""
    from perfkit.report.render import render_html, render_markdown
    from perfkit.result.frames import csv_text, sweep_frame

    sweep = read_sweep(folder)
    cases = Section("Cases", (sweep_table(folder, sweep),))
    links = tuple(
        Item(case.folder, link=urllib.parse.quote(f"{case.folder}/report.html", safe="/=,"))
        for case in sweep.cases
        if case.status != "pending"
    )
    done = sum(case.status == "complete" for case in sweep.cases)
    page = Page(
        sweep.name, (cases, Section("Reports of the cases", (Bullets(links),))), f"{done} of {len(sweep.cases)} cases are complete."
    )
    texts = {
        folder / "report.md": render_markdown(Page(page.title, (cases,), page.subtitle)),
        folder / "report.html": render_html(page),
        folder / "sweep.csv": csv_text(sweep_frame([(case.values, _read_result(folder, case)[0]) for case in sweep.cases])),
    }
    write_files(texts, replacing=(), place=str(folder))
    return list(texts)


def print_sweep(folder: pathlib.Path, sweep: SweepDocument) -> None:
    """Prints the table over all cases on stdout."""
    write_styled(sys.stdout, f"\n{render_text(sweep_table(folder, sweep))}\n")


def _read_result(folder: pathlib.Path, case: SweepCase) -> tuple[Result | None, str]:
    """The result of a case, or why it cannot be read."""
    if case.status in ("pending", "failed"):  # a result there would be of an earlier scenario
        return None, ""
    try:
        return read_result(folder / case.folder)[0], ""
    except ResultError as error:
        return None, str(error)


def _items(result: Result | None, *, is_search: bool) -> Sequence[Point | Result]:
    """The rows of a case: its load points, or its search."""
    if result is None:
        return ()
    if is_search:
        return [result] if result.search is not None and result.points else []
    return result.summary


def _slo(point: Point) -> str | None:
    if not point.valid:
        return "not valid"
    return point.slo.verdict if point.slo else None


_POINT_COLUMNS = (
    Column("protocol", "protocol"),
    Column("load", "load", value=lambda point: Cell(point.load.level, point.load.title)),
    Column("throughput_per_s", "throughput", "rate_per_s"),
    Column("inferences_per_s", "inferences", "rate_per_s"),
    *(Column(f"{name}_ns", name, "duration_ns", attribute(f"times.{name}")) for name in ("p50", "p95", "p99")),
    Column("error_rate", "errors", "error_rate"),
    Column("slo", "SLO", "prose", _slo),
)
_SEARCH_COLUMNS = (
    Column("protocol", "protocol", value=lambda result: result.points[0].protocol),
    Column("capacity_per_s", "capacity", "rate_per_s", attribute("search.capacity_per_s")),
    Column("capacity_low_per_s", "from", "rate_per_s", attribute("search.low_per_s")),
    Column("capacity_high_per_s", "to", "rate_per_s", attribute("search.high_per_s")),
    Column("probes", "probes", "count", lambda result: len(result.search.probes)),
    Column("stopped_because", "stopped because", "prose", lambda result: result.search.stopped_because.replace("_", " ")),
)

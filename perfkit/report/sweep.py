"""A sweep as one table over all its cases: text, Markdown, CSV and HTML."""

import csv
import io
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from perfkit.errors import ResultError
from perfkit.report.html import page
from perfkit.report.markdown import WITHHELD, markdown_table
from perfkit.result.atomic_write import write_whole
from perfkit.result.file import read_result
from perfkit.result.model import Point, Result
from perfkit.result.sweep import SweepCase, SweepDocument, read_sweep, shown_value
from perfkit.units import format_duration_ns, format_rate_per_s

_POINT = ("protocol", "load", "throughput", "inferences", "p50", "p95", "p99", "errors", "SLO")
_CSV = (
    "protocol", "load", "level", "throughput_per_s", "inferences_per_s", "p50_ns", "p95_ns", "p99_ns", "error_rate", "slo", "valid",
    "capacity_low_per_s", "capacity_high_per_s",
)  # fmt: skip
_SEARCH = ("protocol", "capacity", "from", "to", "probes", "stopped because")


class SweepTable(NamedTuple):
    """Headings, and rows of texts; the first `keys` columns are the swept ones."""

    headings: list[str]
    rows: list[list[str]]
    keys: int


def sweep_table(folder: pathlib.Path, sweep: SweepDocument) -> SweepTable:
    """A row a load point, or a search, of every case; a case without figures says why."""
    keys = list(dict.fromkeys(key for case in sweep.cases for key in case.values))
    results = [(case, _result(folder, case)) for case in sweep.cases]
    searches = any(result is not None and result.search is not None for _, result in results)
    rows = []
    for case, result in results:
        values = [shown_value(case.values[key]) if key in case.values else "" for key in keys]
        found = _rows(result, searches=searches) if result is not None else []
        width = len(_SEARCH if searches else _POINT)
        rows += [[*values, *cells] for cells in found or [[WITHHELD] * (width - 1) + [case.reason or case.status]]]
    return SweepTable([*keys, *(_SEARCH if searches else _POINT)], rows, len(keys))


def write_sweep_report(folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes `report.md`, `report.html` and `sweep.csv` into a sweep's folder; raises ResultError."""
    sweep = read_sweep(folder)
    table = sweep_table(folder, sweep)
    markdown = [f"# {sweep.name}", "", _state(sweep), "", *markdown_table(table.headings, table.rows), ""]
    texts = {"report.md": "\n".join(markdown), "report.html": _html(sweep, table), "sweep.csv": sweep_csv(folder, sweep)}
    try:
        for name, text in texts.items():
            write_whole(folder / name, text)
    except OSError as error:
        raise ResultError(f"{folder}: the report cannot be written there: {error.strerror}") from None
    return [folder / name for name in texts]


def sweep_csv(folder: pathlib.Path, sweep: SweepDocument) -> str:
    """The table for programs: nanoseconds, rates per second; a row a load point, and for a search one with its capacity."""
    keys = list(dict.fromkeys(key for case in sweep.cases for key in case.values))
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow([*keys, *_CSV])
    for case in sweep.cases:
        result, values = _result(folder, case), [shown_value(case.values[key]) if key in case.values else "" for key in keys]
        for point in result.summary if result else ():
            times, slo = point.times, point.slo
            figures = [point.throughput_per_s, point.inferences_per_s, times.p50, times.p95, times.p99, point.error_rate]
            lines.writerow([*values, point.protocol, point.load.kind, point.load.level, *figures, slo and slo.verdict, point.valid])
        if result and result.search:
            found = result.search
            cells = ["", "search", found.capacity_per_s, *[""] * 7, found.stopped_because != "generator", found.low_per_s, found.high_per_s]
            lines.writerow([*values, *cells])
    return written.getvalue()


def _html(sweep: SweepDocument, table: SweepTable) -> str:
    links = [case.folder for case in sweep.cases if case.status != "pending"]
    return page("sweep.html.j2", name=sweep.name, state=_state(sweep), table=table, links=links)


def _state(sweep: SweepDocument) -> str:
    done = sum(case.status == "complete" for case in sweep.cases)
    return f"{done} of {len(sweep.cases)} cases are complete."


def _result(folder: pathlib.Path, case: SweepCase) -> Result | None:
    if case.status in ("pending", "failed"):  # what may lie there is of another scenario
        return None
    try:
        return read_result(folder / case.folder)[0]
    except ResultError:
        return None


def _rows(result: Result, *, searches: bool) -> Sequence[list[str]]:
    if not searches:
        return [_point_row(point) for point in result.summary]
    if result.search is None or not result.points:
        return []
    found = result.search
    rates = [WITHHELD if rate is None else format_rate_per_s(rate) for rate in (found.capacity_per_s, found.low_per_s, found.high_per_s)]
    return [[result.points[0].protocol, *rates, str(len(found.probes)), found.stopped_because.replace("_", " ")]]


def _point_row(point: Point) -> list[str]:
    times = [WITHHELD if value is None else format_duration_ns(value) for value in (point.times.p50, point.times.p95, point.times.p99)]
    verdict = "not valid" if not point.valid else point.slo.verdict if point.slo else WITHHELD
    rates = (format_rate_per_s(point.throughput_per_s), format_rate_per_s(point.inferences_per_s))
    return [point.protocol, point.load.title, *rates, *times, f"{point.error_rate:.2%}" if point.error_rate else "0", verdict]

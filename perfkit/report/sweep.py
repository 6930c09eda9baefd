"""A sweep: its best case, the ranking, the warnings and one table over all cases, as text, Markdown and HTML, and its load points as CSV."""

import pathlib
import sys
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

from perfkit.comparison.point_figures import FIGURES
from perfkit.comparison.sweep_ranking import SweepRanking, rank_sweep
from perfkit.errors import ResultError, UsageError
from perfkit.report.chart import ChartGroup
from perfkit.report.grouped_warnings import GroupedWarning, grouped_by_case, warning_bullets, warnings_table
from perfkit.report.page import Block, Bullets, Figure, Item, Page, Paragraph, Section, next_blocks, sections_of, write_files
from perfkit.report.sweep_ranking import (
    CAPTION,
    TITLE,
    columns_that_give_way,
    ranking_group,
    ranking_headline,
    ranking_next_steps,
    ranking_sentences,
    ranking_table,
)
from perfkit.report.table import Cell, Column, Mark, Table, attribute
from perfkit.report.terminal import cases_in_words, fill, fitted_text, terminal_width
from perfkit.result.file import read_result
from perfkit.result.fingerprint import hardware_of
from perfkit.result.model import Point, Result
from perfkit.result.sweep import SWEEP_FILE, SweepCase, SweepDocument, read_sweep, shown_value
from perfkit.stats.ranking import parse_constraint
from perfkit.text import sentence, write_styled

_Results = list[tuple[SweepCase, tuple[Result | None, str]]]
_CSV_DIGITS = 6
_GIVES_WAY = ("inferences_per_s", "p95_ns", "probes", "p50_ns", "error_rate")
_NOTE = (
    "One row per load point of each case, repetitions pooled; a search has one row. – marks a percentile with too few samples, or a figure "
    "that was not measured."
)


def sweep_table(folder: pathlib.Path, sweep: SweepDocument) -> Table:
    """A row per load point, or per search, of every case; a case without figures gives its reason."""
    return _cases_table(sweep, _read_results(folder, sweep))


def _cases_table(sweep: SweepDocument, results: _Results) -> Table:
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


def write_sweep_report(folder: pathlib.Path, rank_by: str | None = None, where: Sequence[str] | None = None) -> list[pathlib.Path]:
    """Writes `report.md`, `report.html`, `sweep.csv`, `ranking.csv` and the plot of the ranking into a sweep's folder.

    `rank_by` and `where` replace those of the scenario. Raises UsageError if they cannot be parsed, and ResultError for the folder.
    """
    from perfkit.report.chart_svg import render_group
    from perfkit.report.render import render_csv, render_html, render_markdown
    from perfkit.result.frames import csv_text, sweep_frame

    sweep = read_sweep(folder)
    results = _read_results(folder, sweep)
    ranking = _ranking(folder, sweep, results, rank_by, where)
    answer = list(ranking_sentences(ranking)) if ranking else [_not_ranked(rank_by or sweep.rank.by)] if len(sweep.cases) > 1 else []
    group = ranking_group(ranking) if ranking else None
    title, subtitle = _title(sweep, results), f"{', '.join(cases_in_words(sweep))}."
    warnings = grouped_by_case([(case.folder, result.summary) for case, (result, _) in results if result is not None])
    cases = _cases_table(sweep, results)
    in_words: dict[str, Sequence[Block]] = {
        TITLE: [Bullets.of(answer), ranking_table(ranking)] if ranking else [Paragraph(text, is_strong=True) for text in answer],
        "Cases": [cases],
    }
    in_words |= {"Attention": warning_bullets(warnings, are_notes=False), "Notes": warning_bullets(warnings, are_notes=True)}
    texts = {
        folder / "report.md": render_markdown(Page(title, sections_of(in_words), subtitle)),
        folder / "report.html": render_html(Page(title, tuple(_sections(sweep, answer, ranking, group, cases, warnings)), subtitle)),
        folder / "sweep.csv": csv_text(sweep_frame([(case.values, result) for case, (result, _) in results])),
    }
    if ranking:
        texts[folder / "ranking.csv"] = render_csv(ranking_table(ranking), digits=_CSV_DIGITS)
    if group:
        texts[folder / "plots" / "ranking.svg"] = render_group(group)
    write_files(
        texts, replacing=[file for file in (folder / "ranking.csv", folder / "plots/ranking.svg") if file.exists()], place=str(folder)
    )
    return list(texts)


def _sections(
    sweep: SweepDocument,
    answer: Sequence[str],
    ranking: SweepRanking | None,
    group: ChartGroup | None,
    cases: Table,
    warnings: Sequence[GroupedWarning],
) -> Iterator[Section]:
    """The page: the best case with the chart, the ranking, and what needs attention; the rest is folded."""
    incomplete = "" if all(case.status == "complete" for case in sweep.cases) else ", ".join(cases_in_words(sweep))
    first: list[Block] = [ranking_headline(ranking, incomplete)] if ranking else []
    beside = ranking_sentences(ranking, has_figure=False) if ranking else answer
    first += [Paragraph(text, is_strong=not ranking) for text in beside]
    first += next_blocks(*ranking_next_steps(ranking)) if ranking else []
    first += [Figure("Throughput against p99", CAPTION, group)] if group else []
    attention, notes = (warnings_table(warnings, are_notes=are_notes, places="cases") for are_notes in (False, True))
    links = tuple(
        Item(case.folder, link=urllib.parse.quote(f"{case.folder}/report.html", safe="/=,"))
        for case in sweep.cases
        if case.status != "pending"
    )
    yield Section("", tuple(first))
    if ranking:
        yield Section(TITLE, (ranking_table(ranking),))
    if attention.rows:
        yield Section("Attention", (attention,))
    yield Section("Cases", (cases,), f"{len(sweep.cases)} with all their load points", is_folded=ranking is not None)
    if notes.rows:
        yield Section("Notes", (notes,), ", ".join(dict.fromkeys(row[0] for row in notes.texts)), is_folded=True)
    if links:
        yield Section("Reports of the cases", (Bullets(links),), f"{len(links)} pages", is_folded=True)


def sweep_picture(folder: pathlib.Path) -> tuple[str, str, ChartGroup | None]:
    """For a picture: the best case in a sentence, the title of the page, and the chart of the ranking; None if there is none."""
    sweep = read_sweep(folder)
    results = _read_results(folder, sweep)
    ranking = _ranking(folder, sweep, results, None, None)
    sentence_of_best = next(iter(ranking_sentences(ranking))) if ranking else _not_ranked(sweep.rank.by)
    return sentence_of_best, _title(sweep, results), ranking_group(ranking) if ranking else None


def print_sweep(folder: pathlib.Path, sweep: SweepDocument) -> None:
    """Prints the best case, the table over all cases, and their ranking, on stdout."""
    results = _read_results(folder, sweep)
    width, table = terminal_width(), _cases_table(sweep, results)
    protocols = {point.protocol for _, (result, _) in results if result is not None for point in result.summary}
    gives_way = (*(("protocol",) if len(protocols) == 1 else ()), *_GIVES_WAY)
    ranking = _ranking(folder, sweep, results, None, None)
    sentences = list(ranking_sentences(ranking)) if ranking else [_not_ranked(sweep.rank.by)] if len(sweep.cases) > 1 else []
    texts = [fill(sentence(text), width) for text in sentences]
    tables = [fitted_text(table, width, gives_way, "sweep.csv and the report have them")]
    if ranking:
        tables.append(fitted_text(ranking_table(ranking), width, columns_that_give_way(ranking), "ranking.csv and the report have them"))
    write_styled(sys.stdout, "\n".join(["", *texts, *([""] if texts else []), *tables, ""]))


def _not_ranked(by: str | None) -> str:
    named, needed = (f" by {by}", ", with this figure") if by else ("", "")
    return f"The cases are not ranked{named}: fewer than two have a valid load point, or a search{needed}."


def _title(sweep: SweepDocument, results: _Results) -> str:
    """Name, hardware and last date of a sweep: `threads on 4 × H100, 2026-11-22: sweep`."""
    measured = [result for _, (result, _) in results if result is not None]
    hardware = " and ".join(dict.fromkeys(text for text in map(hardware_of, measured) if text))
    date = max((result.started_at[: len("2026-01-31")] for result in measured), default="")
    return f"{sweep.name}{f' on {hardware}' if hardware else ''}{f', {date}' if date else ''}: sweep"


def _ranking(
    folder: pathlib.Path, sweep: SweepDocument, results: _Results, rank_by: str | None, where: Sequence[str] | None
) -> SweepRanking | None:
    """The ranking of the measured cases; None if fewer than two have the figure. Raises UsageError and ResultError."""
    if rank_by is not None and rank_by not in FIGURES:
        raise UsageError(f"--rank-by {rank_by!r} is not a known figure; known are {', '.join(FIGURES)}")
    try:
        given = [parse_constraint(text, FIGURES) for text in where or ()]
    except ValueError as error:
        raise UsageError(f"--where: {error}") from None
    by = rank_by or sweep.rank.by
    try:
        stored = [parse_constraint(text, FIGURES) for text in sweep.rank.where]
        measured = [(case, result) for case, (result, _) in results if result is not None]
        groups = [case.interleaved_group for case, _ in measured]
        ranking = rank_sweep([(case.values, result) for case, result in measured], by, stored if where is None else given, groups)
    except ValueError as error:
        raise ResultError(f"{folder / SWEEP_FILE}: the cases cannot be ranked: {error}") from None
    return ranking if ranking is not None and len(ranking.rows) > 1 else None


def _read_results(folder: pathlib.Path, sweep: SweepDocument) -> _Results:
    return [(case, _read_result(folder, case)) for case in sweep.cases]


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

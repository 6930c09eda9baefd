"""The terminal: tables and text that fit its width, and the last lines of a command on stderr.

Columns give way, figures are never cut or wrapped. The last lines are warnings, the SLO's verdicts, and the status line, which --quiet keeps.
"""

import collections
import contextlib
import dataclasses
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from perfkit.digits import whole_number
from perfkit.report.grouped_warnings import GroupedWarning, grouped_by_case, grouped_warnings
from perfkit.report.render import console, render_text, text_width
from perfkit.report.table import Table
from perfkit.result.model import Point, Result
from perfkit.text import sentence, write_styled

if TYPE_CHECKING:
    from perfkit.gate.verdict import Verdict
    from perfkit.result.sweep import SweepDocument

_STATUS_STYLES = {"complete": "green", "unsuccessful": "bold red", "interrupted": "yellow", "incomplete": "bold red", "invalid": "bold red"}
_VERDICT_STYLES = {
    "pass": "green",
    "regressed": "bold red",
    "inconclusive": "yellow",
    "incomparable": "bold red",
    "invalid": "bold red",
    "error": "bold red",
}
_MOST_WARNINGS = 2
"""Warnings with a sentence on a terminal, of three lines; the others are named."""
_BRIEF_LINES, _LOST_BY_WRAPPING = 3, 30


def print_warnings(result: Result) -> None:
    """Prints the warnings and the SLO's verdicts on stderr; a terminal gets the first of them in brief."""
    for title, style, text in attention(result, is_brief=sys.stderr.isatty()):
        _print(title, style, text)


def attention(result: Result, *, is_brief: bool = False) -> Iterator[tuple[str, str, str]]:
    """What needs attention, the warnings, the codes of notes, and the SLO's verdicts: of each the title, its style and the text.

    In brief, they are the first warnings, each with its first sentence, and of the verdicts the first one that is not met: the table has the states.
    """
    yield from _titled(grouped_warnings(result.summary), is_brief=is_brief)
    judged = [point for point in result.summary if point.slo is not None and not (is_brief and point.slo.verdict == "satisfied")]
    for point in judged[:1] if is_brief else judged:
        if point.slo is not None:
            style = {"satisfied": "green", "violated": "bold red", "inconclusive": "yellow"}[point.slo.verdict]
            yield f"SLO {point.slo.verdict} ", style, f"({point.title}{'' if point.valid else ', NOT VALID'}) {point.slo.reason}"


def print_sweep_warnings(cases: Sequence[tuple[str, Result]]) -> None:
    """Prints the warnings of the named cases of a sweep on stderr, one of each kind with its cases."""
    found = grouped_by_case([(name, result.summary) for name, result in cases])
    for title, style, text in _titled(found, is_brief=sys.stderr.isatty()):
        _print(title, style, text)


def print_status(result: Result, exit_code: int) -> None:
    """Prints the status of a run and its exit code on stderr as one line."""
    style = "bold red" if any(not point.valid for point in result.summary) else _STATUS_STYLES[result.status]
    status = f"{result.status}: {result.status_reason}" if result.status_reason else result.status
    print_status_line(status, _points(result.summary), exit_code, style)


def print_sweep_status(sweep: "SweepDocument", results: Sequence[Result], exit_code: int) -> None:
    """Prints the status of a sweep, the number of its cases by status, and the exit code on stderr as one line."""
    others = {case.status for case in sweep.cases} - {"complete"}
    status = "complete" if not others else "interrupted" if "interrupted" in others else "incomplete"
    points = [point for result in results for point in result.summary]
    is_sound = all(point.valid for point in points)
    print_status_line(
        status, f"{', '.join(cases_in_words(sweep))}; {_points(points)}", exit_code, _STATUS_STYLES[status] if is_sound else "bold red"
    )


def cases_in_words(sweep: "SweepDocument") -> list[str]:
    """The number of cases by status: `1 of 3 cases complete`, `2 invalid`."""
    numbers = collections.Counter(case.status for case in sweep.cases)
    complete = numbers.pop("complete", 0)
    return [f"{complete:,} of {len(sweep.cases):,} cases complete", *(f"{number:,} {status}" for status, number in numbers.items())]


def print_verdict_status(verdict: "Verdict", exit_code: int) -> None:
    """Prints the verdict of a gate and the exit code on stderr as one line."""
    gated = sum(one.gated for one in verdict.comparisons)
    print_status_line(verdict.kind, f"{gated:,} metric{'s' * (gated != 1)} gated", exit_code, _VERDICT_STYLES[verdict.kind])


def print_failure_status(verdict: "Verdict", exit_code: int) -> None:
    """Prints why a gate has no verdict, and the exit code, on stderr as one line."""
    pairs = f"{verdict.pairs:,} pair{'s' * (verdict.pairs != 1)}"
    print_status_line(f"error: {verdict.reasons[0].removesuffix('.')}", pairs, exit_code, _VERDICT_STYLES["error"])


def print_status_line(status: str, details: str, exit_code: int, style: str = "green") -> None:
    """Prints `status: complete (3 results; exit code 0)` on stderr, also with --quiet."""
    title, colon, reason = status.partition(":")
    _print(f"status: {title}", style, f"{colon}{reason} ({details}; exit code {int(exit_code)})")


def _points(points: Sequence[Point]) -> str:
    invalid, number = sum(not point.valid for point in points), len(points)
    verdicts = [point.slo.verdict for point in points if point.slo is not None]
    slo = next((f", SLO {verdict}" for verdict in ("violated", "inconclusive", "satisfied") if verdict in verdicts), "")
    return f"{number:,} load point{'s' * (number != 1)}{f', {invalid:,} of them NOT VALID' if invalid else ''}{slo}"


def _titled(warnings: Sequence[GroupedWarning], *, is_brief: bool) -> Iterator[tuple[str, str, str]]:
    serious = [warning for warning in warnings if not warning.is_note]
    shown = serious[:_MOST_WARNINGS] if is_brief else serious
    for warning in shown:
        title = f"warning {warning.code} "
        longest = _BRIEF_LINES * terminal_width() - len(title) - _LOST_BY_WRAPPING
        yield title, "yellow", warning.brief(longest) if is_brief else f"({warning.load_points}) {warning.sentences}"
    for kind, style, codes in (
        ("more warning", "yellow", sorted({one.code for one in serious[len(shown) :]})),
        ("note", "dim", sorted({one.code for one in warnings if one.is_note})),
    ):
        if codes:
            told = f"the report and perfkit explain have {'them' if len(codes) > 1 else 'it'}"
            yield f"{len(codes)} {kind}{'s' * (len(codes) > 1)} ", style, f"({', '.join(codes)}; {told})"


def _print(title: str, style: str, text: str) -> None:
    """Prints a sentence that a terminal shows wrapped at words; through a pipe it stays on one line."""
    from rich.text import Text  # only here: pages do without it

    output = console(sys.stderr)
    with output.capture() as captured:
        output.print(Text.assemble((title, style), sentence(text)), soft_wrap=not sys.stderr.isatty())
    write_styled(sys.stderr, captured.get())


_WIDTH, _WIDEST = 80, 100_000
_NARROW, _NARROWEST = 24, 8
"""The least width of a column of text whose cells are wrapped: before columns are left out, and after."""


def terminal_width() -> int:
    """The terminal's width: the variable COLUMNS, otherwise that of stdout, of stderr, or 80."""
    columns = whole_number(os.environ.get("COLUMNS", ""), _WIDEST)
    if columns is not None:
        return columns or _WIDTH
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a stream may say that it is a terminal and have no file
            if stream.isatty():
                return os.get_terminal_size(stream.fileno()).columns or _WIDTH
    return _WIDTH


def fill(text: str, width: int, stream: TextIO | None = None) -> str:
    """Wraps text to `width` if `stream`, by default stdout, is a terminal; through a pipe it stays on one line, which `grep` can find."""
    if not (_is_terminal() if stream is None else stream.isatty()):
        return text
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)


def fits(table: Table, width: int) -> bool:
    """Whether the table's text is at most `width` characters wide with all its columns."""
    return text_width(table, _wrapped_to(table, width, _NARROW), is_narrow=True) <= width


def fitted_text(table: Table, width: int, gives_way: Sequence[str], elsewhere: str = "the report has them") -> str:
    """A table as text of at most `width` characters.

    First gaps and headings are made narrow, and on a terminal long texts are wrapped. Then columns are left out, and a note names them
    with `elsewhere`, which says where they are; `gives_way` has the keys of these columns in that order. Figures are never wrapped or
    shortened, so the text may still be wider.
    """
    rest, left_out = dataclasses.replace(table, note=""), list[str]()
    for key in gives_way:
        if fits(rest, width):
            break
        if (column := next((one for one in rest.columns if one.key == key), None)) is not None:
            left_out.insert(0, column.heading)
            rest = rest.without_columns(key)
    notes = table.note.splitlines()
    if left_out:
        notes.append(f"left out at {width} columns: {', '.join(left_out)}; {elsewhere}")
    return "\n".join([_rendered(rest, width).rstrip("\n"), *(fill(sentence(note), width) for note in notes), ""])


def _rendered(table: Table, width: int) -> str:
    """The table's text, with cells of text wrapped to `_NARROWEST` characters, but only as far as `width` needs it."""
    if text_width(table) <= width:
        return render_text(table)
    return render_text(table, _wrapped_to(table, width, _NARROWEST), is_narrow=True)


def _wrapped_to(table: Table, width: int, narrowest: int) -> dict[str, int]:
    """The widths to which columns of text are wrapped on a terminal, by their keys: each at least `narrowest`."""
    wrapped = dict[str, int]()
    if not _is_terminal():
        return wrapped
    texts = zip(*table.texts, strict=True)
    widths = {column.key: max(map(len, cells)) for column, cells in zip(table.shown_columns, texts, strict=False) if not column.is_figure}
    while (excess := text_width(table, wrapped, is_narrow=True) - width) > 0 and (
        wide := {key: size for key, size in widths.items() if size > narrowest}
    ):
        widest = max(wide, key=lambda key: widths[key])
        second = max((size for key, size in widths.items() if key != widest), default=0)
        widths[widest] = wrapped[widest] = max(widths[widest] - excess, min(second, widths[widest] - 1), narrowest)
    return wrapped


def _is_terminal() -> bool:
    return sys.stdout.isatty()

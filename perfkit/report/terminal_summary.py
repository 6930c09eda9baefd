"""A run's summary on the terminal: answer, load points, server times, warnings, SLO verdicts and status."""

import dataclasses
import sys
from typing import TextIO

from rich.text import Text

from perfkit.report.answer import answer
from perfkit.report.render import console
from perfkit.report.run_tables import grouped_warnings, server_table, terminal_table
from perfkit.report.search import probes_table
from perfkit.report.terminal_table import fill, fitted_text, terminal_width
from perfkit.result.model import Result
from perfkit.text.foreign import sentence
from perfkit.text.terminal import write_styled

_POINT_COLUMNS = ("samples", "inferences_per_s", "p95_ns", "p90_ns", "max_ns", "p99_9_ns", "goodput_per_s")
_SERVER_COLUMNS = ("requests", "compute_output_ns", "compute_input_ns", "success_ns", "mean_batch")
_PROBE_COLUMNS = ("samples", "stage", "throughput_per_s", "error_rate")
_STATUS_STYLES = {"complete": "green", "interrupted": "yellow", "incomplete": "bold red", "invalid": "bold red"}


def print_summary(result: Result) -> None:
    """Prints on stdout the answer, then the load points or the probes of a search, and the server's times."""
    width = terminal_width()
    lines = ["", *(fill(sentence(one), width) for one in answer(result)), ""]
    first = ("protocol",) if len({point.protocol for point in result.summary}) == 1 else ()
    if result.search is not None:
        lines.append(fitted_text(probes_table(result), width, _PROBE_COLUMNS))
    elif result.summary:
        lines.append(fitted_text(terminal_table(result.summary), width, (*first, *_POINT_COLUMNS)))
    server = server_table(result.summary)
    if server.rows and result.search is None:
        server = dataclasses.replace(server, note="server: its own means per request; client: the mean service time")
        lines.append(fitted_text(server, width, (*first, *_SERVER_COLUMNS)))
    write_styled(sys.stdout, "\n".join(lines))


def print_warnings(result: Result) -> None:
    """Prints the warnings and the SLO's verdicts on stderr."""
    for warning in grouped_warnings(result.summary):
        _show(sys.stderr, f"warning {warning.code} ", "yellow", f"({warning.load_points}) {warning.sentences}")
    for point in result.summary:
        if point.slo is not None:
            style = {"satisfied": "green", "violated": "bold red", "inconclusive": "yellow"}[point.slo.verdict]
            _show(sys.stderr, f"SLO {point.slo.verdict} ", style, f"({point.title}) {point.slo.reason}")


def print_status(result: Result, exit_code: int) -> None:
    """Prints the run's status and exit code on stderr as one line, also with --quiet."""
    invalid = sum(not point.valid for point in result.summary)
    number = len(result.summary)
    points = f"{number:,} load point{'s' * (number != 1)}" + (f", {invalid:,} of them NOT VALID" if invalid else "")
    verdicts = [point.slo.verdict for point in result.summary if point.slo is not None]
    slo = next((f", SLO {verdict}" for verdict in ("violated", "inconclusive", "satisfied") if verdict in verdicts), "")
    reason = f": {result.status_reason}" if result.status_reason else ""
    style = "bold red" if invalid else _STATUS_STYLES[result.status]
    _show(sys.stderr, f"status: {result.status}", style, f"{reason} ({points}{slo}; exit code {int(exit_code)})")


def _show(stream: TextIO, title: str, style: str, text: str) -> None:
    output = console(stream)
    with output.capture() as captured:
        output.print(Text.assemble((title, style), sentence(text)))
    write_styled(stream, captured.get())

"""A run's summary on the terminal: answer, load points or probes, and server times."""

import dataclasses
import sys

from perfkit.report.answer import answer
from perfkit.report.run_tables import server_table, terminal_table
from perfkit.report.search import probes_table
from perfkit.report.terminal_table import fill, fitted_text, terminal_width
from perfkit.result.model import Result
from perfkit.text.foreign import sentence
from perfkit.text.terminal import write_styled

_POINT_COLUMNS = ("samples", "inferences_per_s", "p95_ns", "p90_ns", "max_ns", "p99_9_ns", "goodput_per_s")
_SERVER_COLUMNS = ("requests", "compute_output_ns", "compute_input_ns", "success_ns", "mean_batch")
_PROBE_COLUMNS = ("samples", "stage", "throughput_per_s", "error_rate")


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

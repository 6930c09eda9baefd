"""A run's summary on the terminal: answer, load points or probes, and server times."""

import dataclasses
import sys
from collections.abc import Sequence

from perfkit.report.answer import answer
from perfkit.report.breakdown import breakdown_sentences, breakdown_table
from perfkit.report.first_requests import cold_start_table, idle_table
from perfkit.report.mix import neighbours_table
from perfkit.report.run_tables import terminal_table
from perfkit.report.search import probes_table
from perfkit.report.server_tables import server_table
from perfkit.report.streams import sequences_table, streams_table
from perfkit.report.terminal_table import fill, fitted_text, terminal_width
from perfkit.result.model import Point, Result
from perfkit.text.foreign import sentence
from perfkit.text.terminal import write_styled

_POINT_COLUMNS = ("samples", "inferences_per_s", "p95_ns", "p90_ns", "max_ns", "p99_9_ns", "goodput_per_s")
_SERVER_COLUMNS = ("requests", "compute_output_ns", "compute_input_ns", "success_ns", "mean_batch")
_SEQUENCE_COLUMNS = ("started", "sequence_p90_ns", "sequence_max_ns")
_NEIGHBOUR_COLUMNS = (
    "protocol", "throughput_alone_per_s", "throughput_together_per_s", "p50_ratio", "throughput_ratio", "p99_alone_ns", "p99_together_ns",
)  # fmt: skip
_IDLE_COLUMNS = ("gap_penalty_ratio", "following_p99_ns", "after_gap_p99_ns")
_STREAM_COLUMNS = (
    "first_response_time_p90_ns", "response_gap_p90_ns", "stream_time_p90_ns", "without_response", "cancelled", "stream_time_p50_ns",
)  # fmt: skip
_START_COLUMNS = ("unload_ns", "steady_after_ns", "first_answer_after_ns", "load_ns")
_PART_COLUMNS = (
    "requests",
    "compute_output_ns",
    "compute_input_ns",
    "connection_wait_ns",
    "start_delay_ns",
    "response_way_ns",
    "request_way_ns",
)
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
    beside = neighbours_table(result)
    if beside.rows:
        beside = dataclasses.replace(beside, note="ratios: together ÷ alone, with their 95% intervals")
        lines.append(fitted_text(beside, width, (*first, *_NEIGHBOUR_COLUMNS)))
    starts = cold_start_table(result.summary)
    if starts.rows:
        starts = dataclasses.replace(
            starts, note="from the call of load, or the start of the server; warm: the second half of the requests"
        )
        lines.append(fitted_text(starts, width, (*first, *_START_COLUMNS)))
    idle = idle_table(result.summary)
    if idle.rows:
        idle = dataclasses.replace(
            idle, note="penalty: the median after the gap minus that of the following requests, with its 95% interval"
        )
        lines.append(fitted_text(idle, width, (*first, *_IDLE_COLUMNS)))
    sequences = sequences_table(result.summary)
    if sequences.rows and result.search is None:
        sequences = dataclasses.replace(
            sequences, note="sequences that ended in the window: p50 to max from the first request to the last answer"
        )
        lines.append(fitted_text(sequences, width, (*first, *_SEQUENCE_COLUMNS)))
    streams = streams_table(result.summary)
    if streams.rows and result.search is None:
        note = "times to the first response, gaps, and times to the last; responses: those of the window per second"
        streams = dataclasses.replace(streams, note=note)
        lines.append(fitted_text(streams, width, (*first, *_STREAM_COLUMNS)))
    server = server_table(result.summary)
    if server.rows and result.search is None:
        server = dataclasses.replace(server, note="server: its own means per request; client: the mean service time")
        lines.append(fitted_text(server, width, (*first, *_SERVER_COLUMNS)))
    lines += breakdown_lines(result.summary, width, first)
    write_styled(sys.stdout, "\n".join(lines))


def breakdown_lines(points: Sequence[Point], width: int, gives_way: Sequence[str] = ()) -> list[str]:
    """What sets the slow ones of the traced requests apart, and their parts as a table; empty without traced requests."""
    sentences = breakdown_sentences(points)
    table = breakdown_table(points)
    text = [fitted_text(table, width, (*gives_way, *_PART_COLUMNS))] if table.rows else []
    return [*(fill(sentence(one), width) for one in sentences), *([""] if text else []), *text]

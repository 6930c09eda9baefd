"""A run on the terminal: its summary with answer and load points or probes, and what `perfkit explain` prints."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence

from perfkit.report.answer import answer
from perfkit.report.breakdown import breakdown_sentences, breakdown_table
from perfkit.report.explanation import explain
from perfkit.report.first_requests import cold_start_table, idle_table
from perfkit.report.grouped_warnings import grouped_warnings
from perfkit.report.load_points import sequences_table, streams_table, tokens_table
from perfkit.report.mix import neighbours_table
from perfkit.report.run_tables import terminal_table
from perfkit.report.scan import scan_table
from perfkit.report.search import probes_table
from perfkit.report.surge import surge_table
from perfkit.report.table import Table
from perfkit.report.terminal import fill, fits, fitted_text, terminal_width
from perfkit.result.model import Point, Result
from perfkit.text import sentence, write_styled

_PART_COLUMNS = (
    "requests", "compute_output_ns", "compute_input_ns", "connection_wait_ns", "start_delay_ns", "response_way_ns", "request_way_ns",
)  # fmt: skip


def print_summary(result: Result) -> None:
    """Prints the summary on stdout."""
    write_styled(sys.stdout, summary_text(result))


def summary_text(result: Result) -> str:
    """The answer, then the load points or the probes of a search, as wide as the terminal."""
    width = terminal_width()
    lines = ["", *(fill(sentence(one), width) for one in answer(result)), ""]
    has_one_protocol = len({point.protocol for point in result.summary}) == 1
    for table, gives_way, note in _tables(result):
        if table.rows:
            shown = dataclasses.replace(table, note=note or table.note)
            if has_one_protocol and not fits(shown, width):
                shown = shown.without_columns("protocol")  # which the progress, or the command, has named
            lines.append(fitted_text(shown, width, gives_way))
    lines += breakdown_lines(result.summary, width, ("protocol",) if has_one_protocol else ())
    return "\n".join(lines)


def _tables(result: Result) -> Iterator[tuple[Table, Sequence[str], str]]:
    """The tables, each with the keys of the columns that give way and a shorter note; an empty one keeps the table's own."""
    points = result.summary
    if result.search is not None:
        yield probes_table(result), ("samples", "stage", "throughput_per_s", "error_rate"), ""
    elif points:
        least = (
            "samples", "inferences_per_s", "p95_ns", "p90_ns", "max_ns", "p99_9_ns", "goodput_per_s", "server_compute_infer_ns", "server_queue_ns",
            "p50_ns",
        )  # fmt: skip
        yield terminal_table(points), least, ""
    gives_way = (
        "protocol", "throughput_alone_per_s", "throughput_together_per_s", "p50_ratio", "throughput_ratio", "p99_alone_ns", "p99_together_ns",
    )  # fmt: skip
    yield neighbours_table(result), gives_way, "ratios: together ÷ alone, with their 95% intervals"
    note = "from the call of load, or the start of the server; warm: the second half of the requests"
    yield cold_start_table(points), ("unload_ns", "steady_after_ns", "first_answer_after_ns", "load_ns"), note
    note = "goodput: answered within the SLO, by intended start; recovery: until the SLO holds again and keeps holding"
    yield surge_table(points), ("failed_p99_ns", "failed_p50_ns", "after_per_s", "kept_share", "in_flight_left"), note
    note = "answers: those that came in the step; knee: the highest answers ÷ mean time, and steps not shown to have less"
    yield scan_table(points), ("p50_ns", "protocol"), note
    note = "penalty: the median after the gap minus that of the following requests, with its 95% interval"
    yield idle_table(points), ("gap_penalty_ratio", "following_p99_ns", "after_gap_p99_ns"), note
    if result.search is not None:
        return
    note = "sequences that ended in the window: p50 to max from the first request to the last answer"
    yield sequences_table(points), ("started", "sequence_p90_ns", "sequence_max_ns"), note
    streamed = (
        "first_response_time_p90_ns",
        "response_gap_p90_ns",
        "stream_time_p90_ns",
        "without_response",
        "cancelled",
        "stream_time_p50_ns",
    )
    note = "times to the first response, gaps, and times to the last; responses: those of the window per second"
    yield streams_table(points), streamed, note
    note = "as the server reports them; first token and gaps: events with content or reasoning; per token: after those of the first event"
    of_tokens = (
        "event_gap_p90_ns", "per_token_p90_ns", "first_token_p90_ns", "reported", "output_per_answer", "event_gap_p50_ns", "input_tokens", "output_tokens",
        "input_tokens_per_s",
    )  # fmt: skip
    yield tokens_table(points), of_tokens, note


def breakdown_lines(points: Sequence[Point], width: int, gives_way: Sequence[str] = ()) -> list[str]:
    """What sets the slow ones of the traced requests apart, and their parts as a table; empty without traced requests."""
    sentences = breakdown_sentences(points)
    table = breakdown_table(points)
    text = [fitted_text(table, width, (*gives_way, *_PART_COLUMNS))] if table.rows else []
    return [*(fill(sentence(one), width) for one in sentences), *([""] if text else []), *text]


def explanation_text(result: Result) -> str:
    """The explanation of a result, a block for each load point, then its warnings and notes."""
    width = terminal_width()
    lines = breakdown_lines(result.summary, width)
    for point in result.summary:
        repetitions = sum(one.key == point.key for one in result.points)
        pooled = f", {repetitions} repetitions pooled" if repetitions > 1 else ""
        lines += [sentence(f"{point.title}{pooled}{'' if point.valid else ', NOT VALID'}")]
        lines += [fill(f"  {sentence(one.text)}", width) for one in explain(point, result)]
        lines += [""]
    lines += [fill(sentence(f"{one.code} ({one.load_points}) {one.sentences}"), width) for one in grouped_warnings(result.summary)]
    return "\n".join(lines)

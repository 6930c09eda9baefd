"""Where the time went, in words and tables: the sentence names the part that was made longer, and how certain it is."""

import numpy as np
import pytest
from pydantic import TypeAdapter

from perfkit.cli.main import main
from perfkit.report.breakdown import (
    breakdown_sentences,
    breakdown_table,
    contrast_table,
    slowest_table,
    waterfall_group,
    what_else_happened,
)
from perfkit.report.chart_svg import render_plots
from perfkit.result.model import Result
from perfkit.spans.breakdown import Breakdown, break_down
from perfkit.spans.split import PARTS, SplitRequests
from perfkit.telemetry.series import Series
from tests.stored_results import document, write, write_log

DUMPED = TypeAdapter(Breakdown)


def split_requests(count=2_000, stalled_every=40, stall_ns=33_000_000, known=True):
    rng = np.random.default_rng(5)
    parts = np.zeros((count, len(PARTS)), np.int64)
    parts[:, PARTS.index("queue")] = np.where(np.arange(count) % stalled_every == 0, stall_ns, 0) + rng.integers(0, 90_000, count)
    parts[:, PARTS.index("compute_infer")] = 5_000_000 + rng.integers(0, 90_000, count)
    numbers, is_known = np.arange(count), np.full(len(PARTS), known)
    trace_ids = tuple(f"{one:032x}" for one in numbers)
    return SplitRequests(trace_ids, numbers, numbers * 5_000_000, np.zeros(count, np.int64), parts, is_known, 3, 1, 40_000)


def result_with(split, **changed):
    made = document()
    for one in (*made["points"], *made["summary"]):
        if one["load"] == made["summary"][0]["load"]:
            one["breakdown"] = DUMPED.dump_python(break_down(split), mode="json") | changed
    return made


def point_with(split, **changed):
    return Result.model_validate(result_with(split, **changed)).summary[0]


def test_the_sentence_names_the_part_that_makes_the_tail():
    (said,) = breakdown_sentences([point_with(split_requests())])
    assert said == "p99: 33.0 ms more than the median; 33.0 ms of it in the server's queue."


def test_a_tail_that_no_part_makes_for_certain_is_said_to_be_that():
    (said,) = breakdown_sentences(
        [
            point_with(
                split_requests(stall_ns=0),
                contrast={"p99": {"requests": 10, "total_ns": 5, "parts_ns": dict.fromkeys(PARTS, 0), "intervals_ns": {"total": [-3, 9]}}},
            )
        ]
    )
    assert said == "p99: the time is not longer than at the median by more than its interval."


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "No traced request was answered ok with spans; the server's spans of 3 requests did not come."),
        (99, "Too few samples to say what sets the slow requests apart: 99 requests were traced, p95 needs 100."),
        (499, "p95: "),
    ],
)
def test_too_few_samples_are_said_to_be_that(count, expected):
    (said,) = breakdown_sentences([point_with(split_requests(count, stalled_every=10))])
    assert said.startswith(expected)


def test_a_tail_of_few_groups_is_named_without_a_claim_of_certainty():
    split = split_requests(stalled_every=10**6)
    split.parts_ns[100:140, PARTS.index("queue")] += 33_000_000
    (said,) = breakdown_sentences([point_with(split)])
    assert said == (
        "p99: 33.0 ms more than the median, most of it in the server's queue; the slow requests came in too few groups to say how certain that is."
    )


def test_where_p99_is_not_clear_p95_is_told():
    split = split_requests(stalled_every=25)
    made = point_with(split)
    assert made.breakdown is not None
    unclear = {**DUMPED.dump_python(break_down(split), mode="json")["contrast"]["p99"], "intervals_ns": {"total": [-5, 9]}}
    contrast = DUMPED.dump_python(break_down(split), mode="json")["contrast"] | {"p99": unclear}
    (said,) = breakdown_sentences([point_with(split, contrast=contrast)])
    assert said.startswith("p95: ")
    assert "in the server's queue" in said


def test_the_table_has_a_row_for_each_percentile_and_the_slowest_and_leaves_out_parts_of_no_length():
    table = breakdown_table([point_with(split_requests())])
    assert table.headings[2:] == ["around", "requests", "time", "queue", "inference"]
    assert [row[2] for row in table.texts] == ["p50", "p95", "p99", "slowest"]
    assert [row[-2:] for row in table.texts][-1] == ["33.1 ms", "5.09 ms"]
    for record in table.records:
        assert record["total_ns"] == sum(record[f"{name}_ns"] for name in PARTS)


def test_the_table_says_what_the_sample_lacks():
    note = breakdown_table([point_with(split_requests(), without_spans=0, clock_bound_ns=800)]).note
    assert "did not come" not in note
    assert "clock" not in note
    lacking = {"without_spans": 250, "clock_bound_ns": 40_000}
    note = breakdown_table([point_with(split_requests(750, stalled_every=10), **lacking)]).note
    assert "The server's spans of 250 of 1,000 traced requests did not come: these are left out." in note
    assert "The server's clock is known to 40.0 µs: to server and from server may each be off by that, not their sum." in note
    unknown = {"clock_bound_ns": None, "clock_problem": "its clock was set", "unknown": ["request_way", "response_way"]}
    note = breakdown_table([point_with(split_requests(), **unknown)]).note
    assert "to server and from server are not known everywhere: its clock was set." in note


def test_a_part_that_no_span_tells_is_a_dash():
    table = contrast_table([point_with(split_requests(), unknown=["queue"])])
    assert table.headings[3:] == ["more than p50", "queue", "inference"]
    assert all(row[table.headings.index("queue")] == "–" for row in table.texts)
    assert "ms (" in table.texts[-1][table.headings.index("more than p50")]


def test_a_result_without_traces_says_nothing():
    points = Result.model_validate(document()).summary
    assert breakdown_sentences(points) == ()
    assert waterfall_group(points) is None
    assert not any(table(points).rows for table in (breakdown_table, contrast_table, slowest_table))


def test_the_slowest_are_beside_the_incidents_of_their_time():
    point = point_with(split_requests())
    slow = point.breakdown.slowest[0]
    incidents = [
        {"kind": "stall", "repetition": repetition, "start_s": slow.at_s + start_s, "length_s": 0.01}
        for repetition, start_s in ((0, 0.03), (0, 1.0), (1, 0.0))
    ]
    made = result_with(split_requests())
    made["summary"][0]["incidents"] = incidents
    assert what_else_happened(Result.model_validate(made).summary[0], slow) == f"stall at {slow.at_s + 0.03:.2f} s"
    assert len(slowest_table([point]).rows) == 10


def test_the_slowest_are_beside_the_telemetry_of_their_time():
    point = point_with(split_requests())
    slow = point.breakdown.slowest[0]
    at_ns = round(slow.at_s * 1e9)

    def series(name, *samples):
        times, values = zip(*samples, strict=True)
        return Series(name, "", {}, tuple(at_ns + time for time in times), values)

    second = 10**9
    telemetry = [
        series("gc_pause", (-second, 9e6), (10**7, 4e6), (second, 8e6)),
        series("tcp_retransmits_per_s", (-second // 2, 0.0), (second, 7.0)),
        series("gpu_sm_clock", (-second, 1980.0), (-second // 10, 1410.0), (second, 1980.0)),
        series("machine_cpu_share", (0, 0.5)),
    ]
    assert what_else_happened(point, slow, telemetry) == "garbage collection 4.00 ms, GPU clock 1,410 MHz"
    table = slowest_table([point], {(0, slow.repetition): telemetry})
    assert table.texts[0][table.headings.index("at that time")] == "garbage collection 4.00 ms, GPU clock 1,410 MHz"


def test_each_slow_request_is_a_row_whose_colours_lie_end_to_end():
    point = point_with(split_requests())
    group = waterfall_group([point])
    assert group is not None
    lines = {line.name: line for line in group.charts[0].lines}
    assert set(lines) == {"queue", "inference"}
    (start, level), (end, same) = zip(lines["queue"].xs[-2:], lines["queue"].ys[-2:], strict=True)
    slowest = point.breakdown.slowest[0]
    assert (start, level, same) == (0, 10, 10)
    assert end == pytest.approx(slowest.parts_ns["queue"] / 1e6) == pytest.approx(lines["inference"].xs[-2])
    assert lines["inference"].xs[-1] == pytest.approx(slowest.total_ns / 1e6)
    drawn = render_plots({"waterfall": group})["waterfall"]
    assert all(f"at {one.at_s:.2f} s" in drawn for one in point.breakdown.slowest)


def test_the_reports_have_the_answer_and_the_tables(tmp_path):
    made = result_with(split_requests())
    folder = write(tmp_path / "r", made)
    write_log(folder, made)
    assert main(["report", str(folder), "--quiet"]) == 0
    for name in ("report.md", "report.html"):
        text = (folder / name).read_text()
        assert "33.0 ms of it in the server" in text
        assert "What sets the slow requests apart" in text or "Where the time went" in text
    assert "The slowest traced requests" in (folder / "report.html").read_text()
    assert (folder / "plots" / "waterfall.svg").exists()

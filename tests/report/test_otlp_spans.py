"""`perfkit report --otlp`: what a receiver gets, decoded by OpenTelemetry's own messages, equals the result."""

import calendar
import csv
import socket
import sys
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTracePartialSuccess, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from perfkit.cli.main import main
from tests import stored_results
from tests.otlp_receiver import attributes_of, receiving

START_NS = calendar.timegm((2026, 1, 2, 3, 4, 5)) * 10**9 + 678_000_000
S, MS = 10**9, 10**6
TRACE = "aa55aa55aa55aa55"


def write(folder, points, *, traces=(), **changes):
    """A result whose load points were measured three times each, one every 20 s after a warm-up of 2 s."""
    document = {**stored_results.document(points=points, started_at="2026-01-02T03:04:05.678+00:00"), **changes}
    stored_results.write(folder, document)
    windows = [(index, repetition) for repetition in range(3) for index in range(len(points))]
    lines = [f"#[Window p{index}.r{repetition} starts at {start_s(order):.3f} s]\n" for order, (index, repetition) in enumerate(windows)]
    (folder / "latency.hlog").write_text("#[made by hand]\n" + "".join(lines))
    if traces:
        with (folder / "traces.csv").open("w", newline="") as stream:
            rows = csv.writer(stream, lineterminator="\n")
            rows.writerow(["workload", "protocol", "load", "repetition", "trace_id", "window_s", "total_ns", "queue_ns", "remainder_ns"])
            rows.writerows(traces)
    return document


def start_s(order):
    return 2.25 + 20.0 * order


def sent(folder, *options):
    with receiving() as receiver:
        assert main(["report", str(folder), "--otlp", receiver.url, *options]) == 0
    return receiver


@pytest.fixture
def points():
    """A valid load point, whose p99 has no upper end, and one that is not valid."""
    intervals: dict[str, Any] = {
        "throughput_interval_per_s": [490.0, 510.0],
        "intervals": {"p50": [1_900_000, 2_100_000], "p99": [5_500_000, None]},
    }
    warning = {"code": "generator_bound", "message": "The load generator was too slow."}
    limited: dict[str, Any] = {"load": {"kind": "closed", "concurrency": 8}, "valid": False, "warnings": [warning]}
    return [stored_results.point(warmup_s=2.0, **intervals), stored_results.point(warmup_s=2.0, **limited)]


def test_a_result_is_a_trace_of_the_run_its_load_points_and_their_repetitions(tmp_path, points, capsys):
    write(tmp_path, points)
    receiver = sent(tmp_path)
    spans = receiver.spans()
    assert f"9 spans sent to {receiver.url}" in capsys.readouterr().out
    (trace_id,) = {span.trace_id for span in spans}
    assert len(trace_id) == 16
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == 9
    (run,) = [span for span in spans if not span.parent_span_id]
    children = {parent: [span for span in spans if span.parent_span_id == parent] for parent in by_id}
    loads = children[run.span_id]
    assert (run.name, [span.name for span in loads]) == ("smoke", ["http, concurrency 4", "http, concurrency 8"])
    for number, load in enumerate(loads):
        repetitions = children[load.span_id]
        assert [span.name for span in repetitions] == ["repetition 1", "repetition 2", "repetition 3"]
        expected = [START_NS + round(start_s(order) * S) for order in (number, number + 2, number + 4)]
        assert [span.start_time_unix_nano for span in repetitions] == [window_ns - 2 * S for window_ns in expected]
        assert [span.end_time_unix_nano for span in repetitions] == [window_ns + 10 * S for window_ns in expected]
        assert (load.start_time_unix_nano, load.end_time_unix_nano) == (expected[0] - 2 * S, expected[-1] + 10 * S)
    assert (run.start_time_unix_nano, run.end_time_unix_nano) == (START_NS, loads[1].end_time_unix_nano)
    resources = [attributes_of(one.resource) for message in receiver.received for one in message.resource_spans]
    assert {one["service.name"] for one in resources} == {"perfkit"}


def test_the_figures_of_load_points_and_repetitions_are_attributes(tmp_path, points):
    write(tmp_path, points)
    by_name = dict[str, list[dict[str, Any]]]()
    for span in sent(tmp_path).spans():
        by_name.setdefault(span.name, []).append(attributes_of(span))
    figures = {
        "perfkit.throughput_per_s": 500.0, "perfkit.throughput_per_s_low": 490.0, "perfkit.throughput_per_s_high": 510.0,
        "perfkit.p50_ns": 2_000_000, "perfkit.p50_ns_low": 1_900_000, "perfkit.p50_ns_high": 2_100_000, "perfkit.p90_ns": 4_000_000,
        "perfkit.p95_ns": 4_000_000, "perfkit.p99_ns": 6_000_000, "perfkit.p99_ns_low": 5_500_000, "perfkit.mean_ns": 2_000_000,
        "perfkit.error_rate": 0.0, "perfkit.valid": True, "perfkit.protocol": "http", "perfkit.load": "concurrency 4",
    }  # fmt: skip
    assert by_name["http, concurrency 4"] == [figures]
    assert by_name["repetition 2"][0] == figures
    (limited,) = by_name["http, concurrency 8"]
    assert limited["perfkit.valid"] is False
    assert limited["perfkit.warnings"] == ["generator_bound"]


@pytest.mark.parametrize(
    ("status", "reason", "code", "message"),
    [
        ("complete", "", Status.STATUS_CODE_OK, ""),
        ("incomplete", "The target was lost.", Status.STATUS_CODE_ERROR, "The target was lost."),
    ],
)
def test_the_run_has_its_status_its_commit_and_the_scenario(tmp_path, points, status, reason, code, message):
    write(tmp_path, points, status=status, status_reason=reason)
    run = sent(tmp_path).spans()[0]
    assert (run.status.code, run.status.message) == (code, message)
    attributes = attributes_of(run)
    assert (attributes["perfkit.status"], attributes["vcs.ref.head.revision"]) == (status, "c0ffee" * 6)
    assert attributes["perfkit.scenario.target.model"] == "m"
    assert attributes["perfkit.scenario.load.closed.concurrency"] == "[4]"


def test_spans_sent_again_have_the_same_ids(tmp_path, points):
    write(tmp_path, points)
    first, again = ([(span.trace_id, span.span_id) for span in sent(tmp_path).spans()] for _ in range(2))
    assert first == again


def test_a_traced_request_is_in_the_trace_that_its_server_knows(tmp_path, points):
    rows = [
        ("", "http", "concurrency 4", 0, f"{TRACE}{1:016x}", 0.5, 7 * MS, 4 * MS, 3 * MS),
        ("", "http", "concurrency 8", 2, f"{TRACE}{2:016x}", 1e-9, 9 * MS, 8 * MS, 1 * MS),
        ("", "http", "concurrency 9", 0, f"{TRACE}{3:016x}", 0.0, 9 * MS, 8 * MS, 1 * MS),  # of no load point of the result
    ]
    write(tmp_path, points, traces=rows)
    spans = sent(tmp_path).spans()
    requests = [span for span in spans if span.kind == Span.SPAN_KIND_CLIENT]
    assert [(span.name, span.trace_id.hex()) for span in requests] == [("request", row[4]) for row in rows[:2]]
    windows_ns = [START_NS + round(start_s(order) * S) for order in (0, 5)]
    assert [span.start_time_unix_nano for span in requests] == [windows_ns[0] + S // 2, windows_ns[1] + 1]
    assert [span.end_time_unix_nano - span.start_time_unix_nano for span in requests] == [7 * MS, 9 * MS]
    assert attributes_of(requests[0]) == {
        "perfkit.protocol": "http", "perfkit.load": "concurrency 4", "perfkit.queue_ns": 4 * MS, "perfkit.remainder_ns": 3 * MS,
    }  # fmt: skip
    by_id = {span.span_id: span for span in spans}
    linked = [by_id[link.span_id] for span in requests for link in span.links]
    assert [span.name for span in linked] == ["repetition 1", "repetition 3"]
    assert [by_id[span.parent_span_id].name for span in linked] == ["http, concurrency 4", "http, concurrency 8"]


def test_a_traced_request_of_a_mix_is_sent_once(tmp_path, points):
    whole, _ = points
    of_workload = {**whole, "workload": "small"}
    alone = {**of_workload, "alone": True}
    in_mix, by_itself = f"{TRACE}{1:016x}", f"{TRACE}{2:016x}"
    rows = [
        (workload, "http", "concurrency 4", 0, trace_id, 0.5, 2, 1, 1)
        for workload, trace_id in (("", in_mix), ("small", in_mix), ("small", by_itself))
    ]
    write(tmp_path, [whole, of_workload, alone], traces=rows)
    spans = sent(tmp_path).spans()
    by_id = {span.span_id: span for span in spans}
    requests = {span.trace_id.hex(): span for span in spans if span.kind == Span.SPAN_KIND_CLIENT}
    assert requests.keys() == {in_mix, by_itself}
    assert {attributes_of(span)["perfkit.workload"] for span in requests.values()} == {"small"}
    measured = [attributes_of(span).get("perfkit.workload") for span in spans if span.name.startswith("repetition")]
    assert sorted(map(str, measured)) == ["None"] * 3 + ["small"] * 6
    load_of = {trace_id: by_id[by_id[span.links[0].span_id].parent_span_id].name for trace_id, span in requests.items()}
    assert load_of == {in_mix: "http, concurrency 4", by_itself: "small alone, http, concurrency 4"}


def test_the_times_of_a_resumed_run_count_from_the_start_of_its_log(tmp_path, points):
    resumption = {"at": "2026-01-02T04:04:05.678+00:00", "after_points": 1, "paused_s": 60.0}
    write(tmp_path, points[:1], resumptions=[resumption])
    log = tmp_path / "latency.hlog"
    log.write_text(f"#[StartTime: {START_NS / S - 100:.3f} (seconds since epoch)]\n" + log.read_text())
    spans = {span.name: span for span in sent(tmp_path).spans()}
    begin_ns = START_NS - 100 * S
    assert spans["repetition 1"].start_time_unix_nano == begin_ns + round((start_s(0) - 2) * S)
    assert spans["smoke"].start_time_unix_nano == begin_ns


def test_without_a_log_load_points_follow_one_another(tmp_path, points):
    write(tmp_path, points[:1])
    (tmp_path / "latency.hlog").unlink()
    repetitions = sorted(
        (span.start_time_unix_nano - START_NS, span.end_time_unix_nano - START_NS)
        for span in sent(tmp_path).spans()
        if span.name.startswith("repetition")
    )
    assert repetitions == [(0, 12 * S), (12 * S, 24 * S), (24 * S, 36 * S)]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (["", "http", "concurrency 4", 0, "not-an-id", 0.5, 2, 1, 1], "a trace id, a start or a time that no run has"),
        (["", "http", "concurrency 4", 0, TRACE * 2, "nan", 2, 1, 1], "a trace id, a start or a time that no run has"),
        (["", "http", "concurrency 4", 0, TRACE * 2, 0.5, 2, 1], "expected 9 cells, found 8"),
    ],
)
def test_damaged_traces_are_named_with_their_line(tmp_path, points, row, what, capsys):
    write(tmp_path, points, traces=[row])
    with receiving() as receiver:
        assert main(["report", str(tmp_path), "--otlp", receiver.url, "--quiet"]) == 2
    assert f"traces.csv:2: cannot be read: {what}" in capsys.readouterr().err


FIX = "is a receiver of OTLP/HTTP running there? Its URL is given without /v1/traces"


def refused(folder, url, capsys):
    """What is said of a receiver that does not take the spans of a result."""
    assert main(["report", str(folder), "--otlp", url]) == 2
    streams = capsys.readouterr()
    assert "spans sent to" not in streams.out
    return streams.err


@pytest.mark.parametrize(("status", "reason"), [(302, "302 Found"), (404, "404 Not Found")])
def test_a_receiver_that_refuses_is_told_with_its_answer(tmp_path, points, capsys, monkeypatch, status, reason):
    write(tmp_path, points)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Bearer sesame")  # without a name, which the exporter warns of
    with receiving(status=status) as receiver:
        told = refused(tmp_path, receiver.url, capsys)
        assert f"--otlp {receiver.url}: the answer was {reason}; {FIX}; 0 spans of {tmp_path} were sent before" in told
    assert "sesame" not in told


def test_a_receiver_that_is_away_is_told_with_the_reason(tmp_path, points, capsys):
    write(tmp_path, points)
    with socket.socket() as bound:  # and not listening, so that it refuses connections
        bound.bind(("127.0.0.1", 0))
        told = refused(tmp_path, f"http://user:sesame@127.0.0.1:{bound.getsockname()[1]}", capsys)
    assert "Connection refused" in told
    assert FIX in told
    assert "sesame" not in told


def test_spans_that_a_receiver_rejects_are_counted(tmp_path, points, capsys):
    write(tmp_path, points)
    partial = ExportTracePartialSuccess(rejected_spans=5, error_message="the queue is full")
    answer = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
    with receiving(answer=answer) as receiver:
        assert f"--otlp {receiver.url}: 5 spans were rejected: the queue is full;" in refused(tmp_path, receiver.url, capsys)


def test_without_the_exporter_the_extra_is_named(tmp_path, points, monkeypatch, capsys):
    write(tmp_path, points)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    monkeypatch.delitem(sys.modules, "perfkit.report.otlp_spans", raising=False)
    assert main(["report", str(tmp_path), "--otlp", "http://127.0.0.1:4318"]) == 2
    assert "--otlp needs OpenTelemetry's exporter: pip install '.[tracing]'" in capsys.readouterr().err

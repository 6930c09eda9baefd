"""Runs with streams: counts are exact whatever the protocol, and what cannot be streamed is said in one sentence."""

import json
import math

import pytest

from tests.bundled_server import bundled_server

REPEAT = {"inputs": {"IN": {"value": [1, 2, 3, 4]}, "DELAY": {"value": [1, 1, 1, 1]}, "WAIT": {"value": [0]}}}
KINDS = ("first_response_time_ns", "response_gap_ns", "stream_time_ns")


@pytest.fixture(scope="module")
def repeating():
    """The `target` of a decoupled model."""
    with bundled_server("--model", "repeat_int32") as urls:
        yield lambda *protocols: {"model": "repeat_int32", "urls": {protocol: getattr(urls, protocol) for protocol in protocols}}


def counts(point):
    return [point[kind] and point[kind]["count"] for kind in KINDS]


def test_every_response_of_a_decoupled_model_is_counted_over_both_protocols(perfkit, write_scenario, repeating):
    scenario = write_scenario(
        target=repeating("http", "grpc"),
        workload=REPEAT,
        stream={},
        telemetry=False,
        load={"closed": {"concurrency": [3]}},
        measure={"warmup": "0s", "requests": 60, "repetitions": 2},
    )
    result = perfkit.measure(scenario).result
    for point in result["points"]:
        assert point["responses"]["count"] == 240
        assert counts(point) == [60, 180, 60]
    for pooled in result["summary"]:
        assert (pooled["responses"]["count"], pooled["responses"]["without_response"]) == (480, 0)
        assert counts(pooled) == [120, 360, 120]
        # a busy machine makes gaps so alike in groups that there may be no interval
        for name, (low, high) in pooled["further_intervals"]["response_gap"].items():
            assert (low or 0) <= pooled["response_gap_ns"][name] <= (high or math.inf)
        assert pooled["first_response_time_ns"]["p50"] >= 1_000_000
        assert pooled["stream_time_ns"]["p50"] >= 4_000_000


@pytest.mark.parametrize("stream", [{"requests_per_stream": 7}, {"requests_per_stream": 100, "in_flight": 4}])
def test_requests_that_share_streams_are_all_answered_by_several_workers(perfkit, write_scenario, repeating, stream):
    scenario = write_scenario(
        target=repeating("grpc"),
        workload=REPEAT,
        stream=stream,
        telemetry=False,
        load={"closed": {"concurrency": [8]}},
        measure={"warmup": "0s", "requests": 80, "repetitions": 1, "workers": 2},
    )
    (point,) = perfkit.measure(scenario).result["points"]
    assert (point["requests"]["ok"], point["responses"]["count"]) == (80, 320)


def test_an_open_loop_times_streams_from_the_intended_start(perfkit, write_scenario):
    scenario = write_scenario(
        target={"model": "synthetic", "protocols": ["grpc"]},
        server={"synthetic": "service=constant:20ms,responses=3,gap=10ms,lead=0s"},
        workload={"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
        stream={},
        telemetry=False,
        load={"open": {"rate": [200]}},
        measure={"warmup": "0s", "requests": 40, "repetitions": 1},
    )
    (point,) = perfkit.measure(scenario).result["points"]
    assert counts(point) == [40, 80, 40]
    assert point["response_time_ns"] == point["stream_time_ns"]
    # one server: the n-th request waits for n others, 5 ms apart, which take 20 ms each
    assert point["first_response_time_ns"]["max"] > 300_000_000


def test_streams_that_say_that_they_have_no_response_have_no_times(perfkit, write_scenario):
    scenario = write_scenario(
        target={"model": "synthetic", "protocols": ["grpc", "http"]},
        server={"synthetic": "service=constant:1ms,responses=0"},
        workload={"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
        stream={},
        telemetry=False,
        load={"closed": {"concurrency": [2]}},
        measure={"warmup": "0s", "requests": 20, "repetitions": 1},
    )
    for point in perfkit.measure(scenario).result["points"]:
        assert (point["requests"]["ok"], point["responses"]["count"], point["responses"]["without_response"]) == (20, 0, 20)
        assert counts(point) == [None] * 3


def test_what_times_out_is_cancelled_and_counts_at_its_age(perfkit, write_scenario, repeating, tmp_path):
    delays_ms = ([0, 0], [5_000, 0])  # of every other request; the first one is the probe as well
    values = [{"IN": [1, 2], "DELAY": each} for each in delays_ms]
    entries = [{"WAIT": [0], **{name: {"content": each, "shape": [2]} for name, each in one.items()}} for one in values]
    (tmp_path / "data.json").write_text(json.dumps({"data": entries}))
    scenario = write_scenario(
        target={**repeating("grpc", "http"), "timeout": "500ms"},
        workload={"data": "data.json"},
        stream={},
        telemetry=False,
        load={"closed": {"concurrency": [1]}},
        measure={"warmup": "0s", "duration": "1s", "repetitions": 1, "abort_error_rate": "100%"},
    )
    for point in perfkit.measure(scenario).result["points"]:
        requests, cut_off = point["requests"], point["requests"]["timed_out"] + point["requests"]["unfinished"]
        assert point["responses"]["cancelled"] == cut_off > 0
        assert point["stream_time_ns"]["count"] == requests["ok"] + cut_off
        assert {one["message"] for one in point["failures"] if one["outcome"] == "timed_out"} == {"no complete answer within 500 ms"}


def test_a_decoupled_model_needs_streams(perfkit, write_scenario, repeating):
    for protocol in ("http", "grpc"):
        finished = perfkit.run("run", write_scenario(target=repeating(protocol), workload=REPEAT))
        assert finished.code == 2
        assert "model 'repeat_int32' is decoupled" in finished.stderr
        assert "Add `stream: {}` to the scenario" in finished.stderr


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"stream": {"in_flight": 2}}, "raise requests_per_stream"),
        ({"stream": {"requests_per_stream": 2}}, "over HTTP each request has a stream of its own"),
        ({"stream": {}, "workload": {"batch_size": 2}}, "generate_stream takes no batches"),
        ({"stream": {}, "workload": {"outputs": [{"name": "OUTPUT0"}]}}, "generate_stream returns all outputs"),
        (
            {"stream": {"requests_per_stream": 2}, "target": {"model": "simple", "protocols": ["grpc"], "compression": "gzip"}},
            "requests that share a stream cannot be compressed",
        ),
    ],
)
def test_what_streams_cannot_do_is_refused_with_a_remedy(perfkit, write_scenario, sections, message):
    finished = perfkit.run("validate", write_scenario(**sections))
    assert finished.code == 2
    assert message in finished.stderr


def test_the_report_has_a_table_and_charts_of_streams(perfkit, write_scenario, repeating):
    scenario = write_scenario(
        target=repeating("grpc"),
        workload=REPEAT,
        stream={},
        load={"closed": {"concurrency": [1, 2]}},
        telemetry=False,
    )
    finished = perfkit.measure(scenario)
    assert perfkit.run("report", finished.folder).code == 0
    assert "## Streams" in (finished.folder / "report.md").read_text()
    assert "time to the first response against the load" in (finished.folder / "plots/streams.svg").read_text()
    assert "responses" in finished.stdout

"""Streams and replays as workloads of a mix, against the bundled server: exact counts, and parts that add up to the whole."""

import asyncio
import json

import pytest

from benchmarks.processes import running_server
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.result.file import read_result
from perfkit.scenario.file import read_scenario

REPEATED = {"IN": {"value": [1, 2, 3, 4]}, "DELAY": {"value": [2, 0, 1, 0]}, "WAIT": {"value": [1]}}
ROWS = 60


SHARED = {"requests_per_stream": 9, "in_flight": 2}
ways = pytest.mark.parametrize(("protocol", "workers"), [("http", 2), ("grpc", 1), ("grpc", 2)])


@pytest.fixture(scope="module")
def server():
    with running_server("--model", "repeat_int32", "simple") as running:
        yield running


@pytest.fixture
def points(server, tmp_path):
    """Measures workloads on the bundled server; the points by workload."""

    def measure(workloads, workers, **sections):
        document = {"workloads": workloads, "measure": {"warmup": "0s", "repetitions": 1, "workers": workers}, "telemetry": False}
        document["target"] = {"urls": {protocol: server.url(protocol) for protocol in ("http", "grpc")}}
        document["measure"] |= sections.pop("measure", {})
        (tmp_path / "s.yaml").write_text(json.dumps(document | sections))
        loaded = read_scenario(tmp_path / "s.yaml", environ={})
        asyncio.run(measure_scenario(loaded, tmp_path / "out", RunObserver(), Interruption()))
        result, _ = read_result(tmp_path / "out")  # which checks the sums
        return {point.workload: point for point in result.points}

    return measure


def assert_the_parts_add_up(points):
    whole, parts = points[None], [point for name, point in points.items() if name is not None]
    for name in type(whole.requests).model_fields:
        assert getattr(whole.requests, name) == sum(getattr(part.requests, name) for part in parts), name
    streamed = [part.responses for part in parts if part.responses is not None]
    for name in ("count", "without_response", "cancelled"):
        assert getattr(whole.responses, name) == sum(getattr(one, name) for one in streamed), name
    assert whole.service_time_ns.count == sum(part.service_time_ns.count for part in parts)
    if len({part.response_time_ns is None for part in parts}) > 1:
        assert whole.first_response_time_ns is None, "of closed and open loops, which begin to count at different instants"
    else:
        assert whole.first_response_time_ns.count == sum(part.first_response_time_ns.count for part in parts if part.responses)


@pytest.mark.parametrize(
    ("load", "protocol", "stream", "workers"),
    [
        ({"closed": {"concurrency": 4}}, "http", {}, 1), ({"closed": {"concurrency": 4}}, "grpc", SHARED, 2),
        ({"open": {"rate": 400}}, "http", {}, 2), ({"open": {"rate": 400}}, "grpc", {}, 1),
    ],
)  # fmt: skip
def test_streams_share_a_load_with_plain_requests(points, load, protocol, stream, workers):
    found = points(
        [
            {"name": "streams", "weight": 3, "model": "repeat_int32", "inputs": REPEATED, "stream": stream, "protocol": protocol},
            {"name": "plain", "weight": 1, "model": "simple", "protocol": protocol},
        ],
        workers,
        load=load,
        measure={"requests": 400},
    )
    assert_the_parts_add_up(found)
    streams, plain = found["streams"], found["plain"]
    assert found[None].requests.ok == 400
    assert (streams.requests.ok, plain.requests.ok) == (300, 100)
    assert (streams.responses.count, streams.first_response_time_ns.count, streams.response_gap_ns.count) == (1200, 300, 900)
    assert plain.responses is plain.first_response_time_ns is None


@ways
def test_a_replay_beside_streams_sends_each_of_its_requests_once(points, tmp_path, protocol, workers):
    """The rows of other models are not the workload's."""
    rows = [f"{number * 0.005:.3f},{('simple', 'other')[number % 2]}\n" for number in range(2 * ROWS)]
    (tmp_path / "trace.csv").write_text("timestamp_s,model\n" + "".join(rows))
    found = points(
        [
            {
                "name": "streams", "model": "repeat_int32", "inputs": REPEATED, "stream": {}, "protocol": protocol,
                "load": {"closed": {"concurrency": 2}},
            },
            {"name": "replayed", "model": "simple", "protocol": protocol, "load": {"replay": {"trace": "trace.csv", "model": "simple"}}},
        ],
        workers,
    )  # fmt: skip
    assert_the_parts_add_up(found)
    replayed, streams = found["replayed"], found["streams"]
    assert (replayed.requests.scheduled, replayed.requests.ok) == (ROWS, ROWS)
    assert replayed.response_time_ns.count == ROWS
    assert streams.requests.ok > 0
    assert streams.responses.count >= 4 * streams.requests.ok


@ways
def test_streams_are_replayed_in_a_mix(points, tmp_path, protocol, workers):
    (tmp_path / "trace.csv").write_text("timestamp_s\n" + "".join(f"{number * 0.005:.3f}\n" for number in range(ROWS)))
    replay = {"replay": {"trace": "trace.csv"}}
    found = points(
        [
            {"name": "streams", "model": "repeat_int32", "inputs": REPEATED, "stream": {}, "protocol": protocol, "load": replay},
            {"name": "plain", "model": "simple", "protocol": protocol, "load": replay},
        ],
        workers,
    )
    assert_the_parts_add_up(found)
    assert [(found[name].requests.scheduled, found[name].requests.ok) for name in ("streams", "plain")] == [(ROWS, ROWS)] * 2
    assert found[None].requests.ok == 2 * ROWS
    assert found["streams"].responses.count == 4 * ROWS

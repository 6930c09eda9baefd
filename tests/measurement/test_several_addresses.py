"""A run against several addresses, one of which is down, from the scenario to the result."""

import asyncio
import socket

import pytest

from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.result.file import read_result
from perfkit.scenario.file import read_scenario
from tests.json_server import serving, v2_handler


@pytest.fixture
def closed_port():
    with socket.socket() as bound:  # and not listening, so that it refuses connections
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_each_address_has_its_figures_and_one_that_is_down_fails_alone(tmp_path, closed_port, workers):
    answered = [0, 0]

    def count(position):
        def on_inference(_number):
            answered[position] += 1

        return on_inference

    with serving(v2_handler(count(0))) as first, serving(v2_handler(count(1))) as second:
        urls = [f"http://127.0.0.1:{port}" for port in (closed_port, first, second)]  # the probe finds one that answers
        (tmp_path / "s.yaml").write_text(
            f"target: {{url: {urls}, model: m, connections: {{max_requests: 4}}}}\n"
            "load: {closed: {concurrency: 2}}\n"
            f"measure: {{warmup: 0s, requests: 90, repetitions: 2, workers: {workers}}}\n"
            "telemetry: false\n"
        )
        loaded = read_scenario(tmp_path / "s.yaml", environ={})
        asyncio.run(measure_scenario(loaded, tmp_path / "out", RunObserver(), Interruption()))
    result, _ = read_result(tmp_path / "out")  # which checks the sums
    for point in (*result.points, *result.summary):
        replicas = point.replicas or ()
        down, *others = replicas
        assert [one.address for one in replicas] == urls
        assert (down.ok, down.errors, down.connections) == (0, point.requests.connect_failed, 0)
        assert sum([one.requests for one in replicas]) == point.requests.sent
        assert point.requests.ok == sum([one.ok for one in others]) > 0
        # in turn: each worker gives every address its share, to one request
        assert max(one.requests for one in replicas) - min(one.requests for one in replicas) <= workers * (
            2 if point.repetition is None else 1
        )
        assert point.connections.opened == sum([one.connections for one in others])
        assert point.connections.rotated >= sum(one.ok for one in others) // 4 - 4 * workers
        assert point.connections.connect_time_ns is not None
        assert point.connections.connect_time_ns.count == point.connections.opened
    assert sum(answered) == result.summary[0].requests.ok + 1  # and the probe

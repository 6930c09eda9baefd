"""Streams of a real Triton, if it is installed: both engines and both protocols count the same responses as each other."""

import pytest

from benchmarks.peers.install import peers_folder
from benchmarks.peers.traffic import counted_requests
from benchmarks.peers.triton import TRAFFIC_MODELS, running_triton
from benchmarks.processes import run_perfkit

pytestmark = pytest.mark.skipif(
    not (peers_folder() / "bin" / "tritonserver").exists(), reason="Triton is not installed; benchmarks/peers/install.py installs it"
)
REQUESTS = 40
TEXTS = {"TEXT": {"value": ["a", "bc", ""]}}
REPEATED = {"IN": {"value": [1, 2, 3, 4]}, "DELAY": {"value": [2, 0, 1, 0]}, "WAIT": {"value": [1]}}
WAYS = [
    ("grpc", "wire", {}), ("grpc", "wire", {"requests_per_stream": 9}), ("grpc", "wire", {"requests_per_stream": 100, "in_flight": 4}),
    ("grpc", "reference", {}), ("grpc", "reference", {"requests_per_stream": 9}),
    ("grpc", "reference", {"requests_per_stream": 100, "in_flight": 4}), ("http", "wire", {}), ("http", "reference", {}),
]  # fmt: skip


@pytest.fixture(scope="module")
def triton():
    with running_triton(peers_folder(), models=TRAFFIC_MODELS) as running:
        yield running


def measured(triton, model, inputs, protocol, engine, stream):
    run = run_perfkit(
        {
            "name": "streams",
            "target": {"url": triton.url(protocol), "model": model, "engine": engine},
            "workload": {"inputs": inputs},
            "stream": stream,
            "load": {"closed": {"concurrency": [4]}},
            "measure": {"warmup": "0s", "requests": REQUESTS, "repetitions": 1},
        }
    )
    return run.point


@pytest.mark.parametrize(("model", "inputs", "responses"), [("repeat_int32", REPEATED, 4), ("repeat_strings", TEXTS, 3)])
def test_every_engine_and_protocol_counts_the_same(triton, model, inputs, responses):
    for protocol, engine, stream in WAYS:
        before = counted_requests(triton, model)
        point = measured(triton, model, inputs, protocol, engine, stream)
        found = (point["requests"]["ok"], point["responses"]["count"], point["first_response_time_ns"]["count"])
        assert found == (REQUESTS, responses * REQUESTS, REQUESTS), (protocol, engine, stream)
        assert point["response_gap_ns"]["count"] == (responses - 1) * REQUESTS
        assert counted_requests(triton, model) - before == REQUESTS + 1, "with the first request, before the load"


@pytest.mark.parametrize("model", ["identity_fp16", "identity_bf16"])
@pytest.mark.parametrize("engine", ["wire", "reference"])
def test_models_that_answer_once_are_streamed_in_every_datatype(triton, model, engine):
    inputs = {"INPUT0": {"generate": "random", "shape": [8]}}
    for stream in ({}, {"requests_per_stream": 9}):
        point = measured(triton, model, inputs, "grpc", engine, stream)
        assert (point["requests"]["ok"], point["responses"]["count"], point["response_gap_ns"]) == (REQUESTS, REQUESTS, None)


@pytest.mark.parametrize(("protocol", "engine", "stream"), WAYS)
def test_an_error_of_the_model_fails_its_request_and_its_responses_count(triton, protocol, engine, stream):
    run = run_perfkit(
        {
            "name": "streams",
            "target": {"url": triton.url(protocol), "model": "repeat_strings", "engine": engine},
            "workload": {"inputs": {"TEXT": {"strings": ["a", "b", "c", "error"], "shape": [2]}}},
            "stream": stream,
            "load": {"closed": {"concurrency": [1]}},
            "measure": {"warmup": "0s", "requests": REQUESTS, "repetitions": 1},
        }
    )
    requests = run.point["requests"]
    assert (requests["ok"], requests["rejected"]) == (REQUESTS // 2, REQUESTS // 2)
    assert run.point["responses"]["count"] == REQUESTS // 2 * 3
    assert {one["message"] for one in run.point["failures"]} == {"the model was asked to fail"}

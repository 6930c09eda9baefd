"""Streams of a real Triton, if it is installed: both protocols count the same responses as each other."""

import pytest

from benchmarks.peers.traffic import counted_requests

REQUESTS = 40
TEXTS = {"TEXT": {"value": ["a", "bc", ""]}}
REPEATED = {"IN": {"value": [1, 2, 3, 4]}, "DELAY": {"value": [2, 0, 1, 0]}, "WAIT": {"value": [1]}}
WAYS = [
    ("grpc", {}), ("grpc", {"requests_per_stream": 9}), ("grpc", {"requests_per_stream": 100, "in_flight": 4}), ("http", {}),
]  # fmt: skip


@pytest.fixture
def stream_point(triton, measure):
    """The only load point of a run that streams."""

    def run(model, inputs, protocol, stream, concurrency=4):
        triton.load(model)
        (point,) = measure(
            {
                "target": {"url": triton.url(protocol), "model": model},
                "workload": {"inputs": inputs},
                "stream": stream,
                "load": {"closed": {"concurrency": [concurrency]}},
                "measure": {"warmup": "0s", "requests": REQUESTS, "repetitions": 1},
            }
        )
        return point

    return run


@pytest.mark.parametrize(("model", "inputs", "responses"), [("repeat_int32", REPEATED, 4), ("repeat_strings", TEXTS, 3)])
def test_every_protocol_counts_the_same(triton, stream_point, model, inputs, responses):
    triton.load(model)
    for protocol, stream in WAYS:
        before = counted_requests(triton, model)
        point = stream_point(model, inputs, protocol, stream)
        found = (point["requests"]["ok"], point["responses"]["count"], point["first_response_time_ns"]["count"])
        assert found == (REQUESTS, responses * REQUESTS, REQUESTS), (protocol, stream)
        assert point["response_gap_ns"]["count"] == (responses - 1) * REQUESTS
        assert counted_requests(triton, model) - before == REQUESTS + 1, "with the first request, before the load"


@pytest.mark.parametrize("model", ["identity_fp16", "identity_bf16"])
def test_models_that_answer_once_are_streamed_in_every_datatype(stream_point, model):
    inputs = {"INPUT0": {"generate": "random", "shape": [8]}}
    for stream in ({}, {"requests_per_stream": 9}):
        point = stream_point(model, inputs, "grpc", stream)
        assert (point["requests"]["ok"], point["responses"]["count"], point["response_gap_ns"]) == (REQUESTS, REQUESTS, None)


@pytest.mark.parametrize(("protocol", "stream"), WAYS)
def test_an_error_of_the_model_fails_its_request_and_its_responses_count(stream_point, protocol, stream):
    texts = {"TEXT": {"strings": ["a", "b", "c", "error"], "shape": [2]}}
    point = stream_point("repeat_strings", texts, protocol, stream, concurrency=1)
    requests = point["requests"]
    assert (requests["ok"], requests["rejected"]) == (REQUESTS // 2, REQUESTS // 2)
    assert point["responses"]["count"] == REQUESTS // 2 * 3
    assert {one["message"] for one in point["failures"]} == {"the model was asked to fail"}

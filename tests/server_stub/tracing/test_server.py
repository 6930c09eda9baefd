"""The bundled server traces as Triton does: the same spans of the same requests, compared with what a real one sent."""

import http.client
import json
import pathlib
import socket
import time

import pytest

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import running_triton
from tests.server_stub.tracing.collector import (
    PARENT_ID,
    SIMPLE,
    infer_on_stream,
    infer_over_grpc,
    instants,
    post,
    shape,
    simple_tensors,
    tensor,
    traceparent,
    values,
)

# what Triton 2.51 sent of the requests below, as it sent it
TRITON = json.loads(pathlib.Path(__file__).with_name("triton-2.51.json").read_text(encoding="utf-8"))
REPEATED = [tensor("IN", [1, 2, 3], "INT32"), tensor("DELAY", [1, 1, 1], "UINT32"), tensor("WAIT", [1], "UINT32")]
SYNTHETIC = {"id": "y", "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
INFER = "v2/models/simple/infer"


def test_a_request_over_http_has_the_spans_that_triton_sends(traced_server, collector):
    assert post(traced_server.http_port, INFER, SIMPLE, traceparent=traceparent(0x101))[0] == 200
    spans = collector.trace(0x101)
    assert shape(spans) == shape(TRITON["http"])
    outer = next(span for span in spans if span["name"] == "InferRequest")
    assert int(outer["parentSpanId"], 16) == PARENT_ID
    assert outer["scope"] == "triton-server"
    assert collector.resources[0]["service.name"] == "triton-inference-server"
    attributes = values(next(span for span in spans if span["name"] == "simple"))
    assert (attributes["triton.model_name"], attributes["triton.model_version"], attributes["triton.request_id"]) == (
        "simple",
        "1",
        "req-1",
    )


def test_the_events_of_a_request_follow_each_other(traced_server, collector):
    sent_ns = time.time_ns()
    post(traced_server.http_port, INFER, SIMPLE, traceparent=traceparent(0x102))
    answered_ns = time.time_ns()
    times: dict[str, int] = {}
    for span in collector.trace(0x102):
        times |= {name: instant for name, instant in instants(span).items() if name not in ("start", "end")}
        if span["name"] == "InferRequest":
            first, last = instants(span)["start"], instants(span)["end"]
    order = [
        "HTTP_RECV_START",
        "HTTP_RECV_END",
        "REQUEST_START",
        "QUEUE_START",
        "COMPUTE_START",
        "COMPUTE_INPUT_END",
        "COMPUTE_OUTPUT_START",
        "COMPUTE_END",
        "INFER_RESPONSE_COMPLETE",
        "HTTP_SEND_START",
        "HTTP_SEND_END",
    ]
    assert sorted(order, key=lambda name: (times[name], order.index(name))) == order
    assert times["COMPUTE_END"] == times["REQUEST_END"]
    assert (first, last) == (times["HTTP_RECV_START"], times["HTTP_SEND_END"])
    assert sent_ns <= first < times["HTTP_SEND_START"] <= answered_ns  # one host, one Unix time


@pytest.mark.parametrize("headers", [{"Accept_Encoding": "gzip"}, {"Traceparent": traceparent(0x103).upper()}], ids=["compressed", "upper"])
def test_requests_off_the_fast_path_are_traced_too(traced_server, collector, headers):
    trace_id = 0x103 if "Traceparent" in headers else 0x104
    assert post(traced_server.http_port, INFER, SIMPLE, **{"traceparent": traceparent(trace_id), **headers})[0] == 200
    assert shape(collector.trace(trace_id)) == shape(TRITON["http"])


def test_a_request_over_grpc_has_the_spans_that_triton_sends(traced_server, collector):
    infer_over_grpc(traced_server.grpc_port, 0x105)
    assert shape(collector.trace(0x105)) == shape(TRITON["grpc"])


def test_the_requests_of_a_sequence_are_traced(start_server, collector):
    with start_server("--device=cpu", "--model", "simple_sequence", "--trace-url", collector.url) as server:
        for number, position in enumerate(("sequence_start", "sequence_end"), start=0x120):
            request = {
                "inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [5]}],
                "parameters": {"sequence_id": 9, position: True},
            }
            path = "v2/models/simple_sequence/infer"
            assert post(server.http_port, path, request, traceparent=traceparent(number))[0] == 200
            assert {span["name"] for span in collector.trace(number)} == {"InferRequest", "simple_sequence", "compute"}


def test_each_request_of_a_stream_is_traced(traced_server, collector):
    infer_on_stream(traced_server.grpc_port, 0x106, "simple", [simple_tensors(), simple_tensors()], responses=1)
    assert shape(collector.trace(0x106, roots=2)) == shape(TRITON["grpc_stream"])


def test_a_decoupled_request_has_the_instants_of_each_response(traced_server, collector):
    infer_on_stream(traced_server.grpc_port, 0x107, "repeat_int32", [REPEATED], responses=3)
    assert shape(collector.trace(0x107)) == shape(TRITON["grpc_decoupled"])


def test_a_body_that_is_no_request_leaves_the_outer_span_alone(traced_server, collector):
    assert post(traced_server.http_port, INFER, [], traceparent=traceparent(0x108))[0] == 500
    (span,) = collector.trace(0x108)
    # Triton leaves the sending of errors out
    names = [event["name"] for event in span["events"]]
    assert names == [event["name"] for event in TRITON["http_no_request"][0]["events"]] + ["HTTP_SEND_START", "HTTP_SEND_END"]


def test_synthetic_reports_its_declared_times(traced_server, collector):
    for trace_id in (0x109, 0x10A):
        assert post(traced_server.http_port, "v2/models/synthetic/infer", SYNTHETIC, traceparent=traceparent(trace_id))[0] == 200
        spans = {span["name"]: instants(span) for span in collector.trace(trace_id)}
        compute, model, outer = spans["compute"], spans["synthetic"], spans["InferRequest"]
        assert compute["COMPUTE_OUTPUT_START"] - compute["COMPUTE_INPUT_END"] == 3_000_000
        # alone in the queue: it is served when it arrives
        assert model["QUEUE_START"] == compute["COMPUTE_START"] == compute["COMPUTE_INPUT_END"] == outer["HTTP_RECV_END"]
        assert model["REQUEST_END"] == compute["COMPUTE_END"] == compute["COMPUTE_OUTPUT_START"] == outer["INFER_RESPONSE_COMPLETE"]


def test_large_bodies_begin_with_their_first_bytes(traced_server, collector):
    document = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 50_000], "data": [1] * 50_000}]}
    assert post(traced_server.http_port, "v2/models/synthetic/infer", document, traceparent=traceparent(0x10B))[0] == 200
    outer = next(instants(span) for span in collector.trace(0x10B) if span["name"] == "InferRequest")
    assert outer["start"] == outer["HTTP_RECV_START"] <= outer["HTTP_RECV_END"]


def test_generate_streams_are_traced(start_server, collector):
    model = "service=constant:1ms,responses=3,gap=1ms"
    with start_server("--device=cpu", "--trace-url", collector.url, "--synthetic", model, "--model", "synthetic") as server:
        path = "v2/models/synthetic/generate_stream"
        assert post(server.http_port, path, {"INPUT0": [1.0, 2.0]}, traceparent=traceparent(0x10C))[0] == 200
        spans = collector.trace(0x10C)
    outer = next(span for span in spans if span["name"] == "InferRequest")
    assert [event["name"] for event in outer["events"]].count("HTTP_SEND_START") == 3


def test_only_requests_with_a_traceparent_are_traced_by_default(traced_server, collector):
    for text in ("", "00-xyz", f"ff{traceparent(0x10D)[2:]}"):
        assert post(traced_server.http_port, INFER, {**SIMPLE, "id": "untraced"}, traceparent=text)[0] == 200
    assert post(traced_server.http_port, INFER, {**SIMPLE, "id": "untraced"})[0] == 200
    assert post(traced_server.http_port, INFER, SIMPLE, traceparent=traceparent(0x10E, flags=0))[0] == 200  # Triton ignores the flag
    collector.trace(0x10E)  # sent with or after the others, if they had been traced
    assert "untraced" not in [values(span).get("triton.request_id") for span in collector.spans]


def test_the_level_turns_tracing_on_and_off(start_server, collector):
    with start_server("--device=cpu", "--model", "simple", "--trace-url", collector.url, "--stop-timeout=100") as server:
        setting, port = "v2/trace/setting", server.http_port
        assert json.loads(post(port, setting, {"trace_level": ["OFF"]})[1])["trace_level"] == ["OFF"]
        post(port, INFER, SIMPLE, traceparent=traceparent(0x110))
        post(port, "v2/models/simple/trace/setting", {"trace_level": ["TIMESTAMPS"]})
        post(port, INFER, SIMPLE, traceparent=traceparent(0x111))
        post(port, "v2/models/simple/trace/setting", {"trace_level": None})
        post(port, INFER, SIMPLE, traceparent=traceparent(0x112))
        post(port, setting, {"trace_level": ["TIMESTAMPS"], "trace_rate": "3", "trace_count": "1"})
        for number in range(7):  # the third and the sixth by rate, of which the count allows one
            post(port, INFER, {**SIMPLE, "id": f"rate-{number}"})
        shown = json.loads(post(port, setting, {})[1])
        assert (shown["trace_rate"], shown["trace_count"], shown["url"]) == ("3", "0", collector.url)
    found = {int(span["traceId"], 16) for span in collector.spans}  # the server has sent all that it had
    assert found & {0x110, 0x111, 0x112} == {0x111}
    (rated,) = [span for span in collector.spans if values(span).get("triton.request_id", "").startswith("rate-")]
    assert values(rated)["triton.request_id"] == "rate-2"


@pytest.mark.parametrize("listens", [False, True], ids=["refused", "unanswered"])
def test_a_collector_that_does_not_answer_harms_nothing(start_server, listens):
    with socket.create_server(("127.0.0.1", 0)) as listener:  # never accepts
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"
        if not listens:
            listener.close()
        server = start_server("--device=cpu", "--model", "simple", "--trace-url", url, "--stop-timeout=0.5")
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        for number in range(1, 1001):  # more than may wait
            connection.request("POST", f"/{INFER}", json.dumps(SIMPLE), {"traceparent": traceparent(number)})
            assert json.loads(connection.getresponse().read())["id"] == "req-1"
        connection.close()
        code, _, stderr = server.end()
    assert code == 0
    lines = [line for line in stderr.splitlines() if not line.startswith("serving ")]
    assert lines[-1] == f"1000 traced requests did not reach {url}"
    assert lines[:-1] in ([], [f"{url} does not take traces; the server goes on without, and counts them"])


@pytest.mark.skipif(
    not (peers_folder() / "bin" / "tritonserver").exists(), reason="Triton is not installed; benchmarks/peers/install.py installs it"
)
def test_a_real_triton_sends_what_is_stored_of_it(collector):
    config = ("mode=opentelemetry", f"opentelemetry,url={collector.url}", "opentelemetry,bsp_schedule_delay=200", "level=TIMESTAMPS")
    options = [part for pair in (*config, "rate=1000000") for part in ("--trace-config", pair)]
    options += ["--model-control-mode=explicit", "--load-model=simple"]
    with running_triton(peers_folder(), options=options) as triton:
        post(triton.http_port, INFER, SIMPLE, traceparent=traceparent(0x201))
        infer_over_grpc(triton.grpc_port, 0x202)
        infer_on_stream(triton.grpc_port, 0x203, "simple", [simple_tensors(), simple_tensors()], responses=1)
        assert shape(collector.trace(0x201)) == shape(TRITON["http"])
        assert shape(collector.trace(0x202)) == shape(TRITON["grpc"])
        assert shape(collector.trace(0x203, roots=2)) == shape(TRITON["grpc_stream"])

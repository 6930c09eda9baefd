"""The receiver over real sockets: literal requests, and what it refuses."""

import gzip
import http.client
import json
import os
import socket
import threading
import zlib
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from perfkit.clock import MonotonicClock
from perfkit.spans.formats import read_json
from perfkit.spans.server_times import server_times
from perfkit.telemetry import bounded_server
from perfkit.telemetry.bounded_server import MOST_CONNECTIONS
from perfkit.telemetry.messages import SpanCounts, SpansConfig, SpansReport
from perfkit.telemetry.spans.receiver import LARGEST_BODY_BYTES, NICENESS, SpanReceiver
from tests.spans.bodies import HTTP_SPANS, TRACE, body
from tests.spans.test_otlp import SPAN, protobuf_body, protobuf_span

PREFIX, JSON, PROTOBUF = "aa" * 8, "application/json", "application/x-protobuf"
TIMES: Any = {TRACE: server_times(read_json(body(HTTP_SPANS)).spans)}


@pytest.fixture
def receiver():
    running = SpanReceiver(SpansConfig("127.0.0.1", 0, PREFIX, 1000), MonotonicClock())
    yield running
    running.close()


def report(receiver, *trace_ids, within_s=0.0):
    return receiver.collected.report(trace_ids, within_s, lambda: None)


@pytest.fixture
def post(receiver):
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=60)

    def send(data, content_type=JSON, path="/v1/traces", **headers):
        fields = {"Content-Type": content_type, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection.request("POST", path, data, fields, encode_chunked="Transfer_Encoding" in headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read()

    yield send
    connection.close()


def test_spans_in_json_are_kept_and_the_answer_is_empty(receiver, post):
    assert post(body(HTTP_SPANS)) == (200, JSON, b"{}")
    assert report(receiver, TRACE) == SpansReport(TIMES, SpanCounts(received=3))


def test_spans_in_protobuf_are_kept_and_the_answer_is_empty(receiver, post):
    assert post(protobuf_body([protobuf_span()]), PROTOBUF) == (200, PROTOBUF, b"")
    times = report(receiver, TRACE).times[TRACE]
    assert (times.received_ns, times.answered_ns) == (SPAN.start_ns, SPAN.end_ns)


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_a_content_type_may_have_parameters(receiver, post, content_type):
    assert post(body(HTTP_SPANS), content_type)[0] == 200
    assert report(receiver, TRACE).times == TIMES


def test_gzip_of_one_or_several_members(receiver, post):
    data = body(HTTP_SPANS)
    assert post(gzip.compress(data, mtime=0), Content_Encoding="gzip") == (200, JSON, b"{}")
    assert post(gzip.compress(data[:100], mtime=0) + gzip.compress(data[100:], mtime=0), Content_Encoding="GZIP") == (200, JSON, b"{}")
    assert report(receiver, TRACE).counts == SpanCounts(received=6, duplicates=3)


def test_a_body_of_many_empty_members_is_refused(post):
    empty = gzip.compress(b"", mtime=0)
    status, _, answer = post(empty * 100_000, Content_Encoding="gzip")
    assert (status, b"more than 16 gzip members" in answer) == (400, True)


def test_a_body_in_chunks(receiver, post):
    data = body(HTTP_SPANS)
    assert post(iter([data[:7], data[7:]]), Transfer_Encoding="chunked") == (200, JSON, b"{}")
    assert report(receiver, TRACE).times == TIMES


def test_malformed_spans_are_rejected_in_the_answer_and_the_others_kept(receiver, post):
    spans = [*HTTP_SPANS, {**HTTP_SPANS[0], "spanId": ""}]
    status, _, answer = post(body(spans))
    assert (status, json.loads(answer)) == (200, {"partialSuccess": {"rejectedSpans": "1", "errorMessage": "malformed"}})
    status, _, answer = post(protobuf_body([protobuf_span(span_id=b"")]), PROTOBUF)
    assert (status, ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans) == (200, 1)
    assert report(receiver, TRACE).counts == SpanCounts(received=3, malformed=2)


BOMB = gzip.compress(b"[" * (64 * 2**20), compresslevel=1, mtime=0)


@pytest.mark.parametrize(
    ("data", "content_type", "headers", "status"),
    [
        (b"{", JSON, {}, 400),
        (b"\x0a\x05", PROTOBUF, {}, 400),
        (b"{}", "text/plain", {}, 415),
        (b"{}", JSON, {"Content_Encoding": "br"}, 415),
        (b"{}", JSON, {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(b"{}", mtime=0)[:-4], JSON, {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(b"{}", mtime=0) + b"x", JSON, {"Content_Encoding": "gzip"}, 400),
        (zlib.compress(b"{}"), JSON, {"Content_Encoding": "gzip"}, 400),
        (BOMB, JSON, {"Content_Encoding": "gzip"}, 413),
        (BOMB * 50, PROTOBUF, {"Content_Encoding": "gzip"}, 413),
        (b" " * (LARGEST_BODY_BYTES + 1), JSON, {}, 413),
        (b" " * (20 * 2**20), JSON, {}, 413),
        (iter([b" " * LARGEST_BODY_BYTES, b" "]), JSON, {"Transfer_Encoding": "chunked"}, 413),
        (b"{}", JSON, {"path": "/v1/metrics"}, 404),
        (b"", JSON, {"Content_Length": "1e3"}, 411),
        (b"", JSON, {"Content_Length": "-1"}, 411),
    ],
)
def test_what_is_refused_is_counted_and_the_next_request_is_answered(receiver, post, data, content_type, headers, status):
    found, answered_type, answer = post(data, content_type, **headers)
    assert found == status
    if content_type == PROTOBUF:
        assert (answered_type, answer[:3]) == (PROTOBUF, b"\x08\x03\x12")  # google.rpc.Status: code INVALID_ARGUMENT, a message
    else:
        assert (answered_type, json.loads(answer)["code"]) == (JSON, 3)
    assert post(body(HTTP_SPANS))[0] == 200
    assert report(receiver, TRACE).counts == SpanCounts(received=3, refused_bodies=1)


def test_a_body_that_breaks_off_is_refused(receiver):
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=60) as client:
        client.sendall(b"POST /v1/traces HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(2**16).startswith(b"HTTP/1.1 400 ")
    assert report(receiver).counts == SpanCounts(refused_bodies=1)


def test_a_request_that_is_not_whole_in_time_is_ended(receiver, monkeypatch, post):
    monkeypatch.setattr(bounded_server, "REQUEST_WITHIN_S", 0)
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=60) as client:
        client.sendall(b"POST /v1/traces HTTP/1.1\r\nContent-Type: application/json\r\nContent-Le")
        assert client.recv(2**16) == b""
    monkeypatch.undo()
    assert post(body(HTTP_SPANS))[0] == 200


def test_idle_connections_make_room_for_new_ones(receiver, post):
    idle = [socket.create_connection(("127.0.0.1", receiver.port), timeout=60) for _ in range(3 * MOST_CONNECTIONS)]
    assert post(body(HTTP_SPANS)) == (200, JSON, b"{}")
    assert [client.recv(1) for client in idle[:MOST_CONNECTIONS]] == [b""] * MOST_CONNECTIONS
    for client in idle:
        client.close()


def test_several_senders_at_once(receiver):
    traces = [f"{PREFIX}{number:016x}" for number in range(80)]

    def send(part):
        connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=60)
        for trace in part:
            for written in HTTP_SPANS:
                connection.request("POST", "/v1/traces", body([{**written, "traceId": trace}]), {"Content-Type": JSON})
                assert connection.getresponse().read() == b"{}"
        connection.close()

    senders = [threading.Thread(target=send, args=(traces[number::8],)) for number in range(8)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert report(receiver, *traces).times == dict.fromkeys(traces, TIMES[TRACE])


def test_a_port_in_use_cannot_be_listened_at(receiver):
    with pytest.raises(OSError, match="in use"):
        SpanReceiver(SpansConfig("127.0.0.1", receiver.port, PREFIX, 1000), MonotonicClock())


def test_it_listens_over_ipv6():
    running = SpanReceiver(SpansConfig("::1", 0, PREFIX, 1000), MonotonicClock())
    try:
        connection = http.client.HTTPConnection("::1", running.port, timeout=60)
        connection.request("POST", "/v1/traces", body(HTTP_SPANS), {"Content-Type": JSON})
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        running.close()


def test_spans_are_read_at_a_lower_priority_than_the_samplers_have(receiver, post, monkeypatch):
    priorities = []
    monkeypatch.setattr(receiver.collected, "add", lambda _: priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
    assert post(body(HTTP_SPANS))[0] == 200
    assert priorities == [max(NICENESS, os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))]

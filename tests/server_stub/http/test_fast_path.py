"""The fast path: which requests take it, and that clients see no difference from aiohttp."""

import asyncio
import http.client
import itertools
import json
import socket

import numpy as np
import pytest

from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest, RequestedOutput
from perfkit.protocol.tensor import Datatype, tensor_from_array
from server_stub.http.fast_path import HeadCache, parse_head
from server_stub.http.inference import RequestHead
from tests.conditions import passes, until
from tests.server_stub.http.fast_path_harness import START, Harness, asked, written

VALUES = np.arange(16, dtype=np.int32).reshape(1, 16)


def request_bytes(model="simple", headers=b"", binary=True):
    """A complete request."""
    inputs = tuple(tensor_from_array(name, Datatype.INT32, VALUES) for name in ("INPUT0", "INPUT1"))
    plain = frozenset() if binary else frozenset({"INPUT0", "INPUT1"})
    given, buffers = rest.encode_infer_request(
        InferRequest(model, inputs, (RequestedOutput("OUTPUT0"),), id="7", binary_output=binary, plain_inputs=plain)
    )
    body = b"".join(buffers)
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items()).encode()
    head = b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\n" % model.encode()
    return head + lines + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    ("encoded", "head"),
    [
        (START + b"Content-Length: 5\r\n\r\n", RequestHead("simple", "", 5, None)),
        (START.replace(b"simple", b"a.b-c_1/versions/12") + b"content-length: 0\r\n\r\n", RequestHead("a.b-c_1", "12", 0, None)),
        (START + b"Inference-Header-Content-Length: x\r\nContent-Length: 65536\r\n\r\n", RequestHead("simple", "", 65536, "x")),
        (START + b"Content-Length: 1000000\r\n\r\n", RequestHead("simple", "", 1_000_000, None)),
        (START + b"Accept-Encoding: identity\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", RequestHead("simple", "", 1, None)),
    ],
)
def test_heads_of_plain_infer_requests_are_parsed(encoded, head):
    assert parse_head(encoded) == head
    assert HeadCache(1_000_000).find(encoded + b"body") == (head, len(encoded))


@pytest.mark.parametrize(
    "encoded",
    [
        START + b"\r\n",
        START + b"Content-Length: -1\r\n\r\n",
        START + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
        START + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        START + b"Content-Length: 1\r\nContent-Encoding: gzip\r\n\r\n",
        START + b"Content-Length: 1\r\nAccept-Encoding: gzip\r\n\r\n",
        START + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n",
        START + b"Content-Length: 1\r\nInference-Header-Content-Length: 1 \r\n\r\n",
        START + "Content-Length: 1\r\nInference-Header-Content-Length: ü\r\n\r\n".encode(),
        START + b"Content-Length: 1\r\nConnection: close\r\n\r\n",
        START + b"Content-Length: 1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        START + b"Content-Length: 1\r\n broken\r\n\r\n",
        START.replace(b"1.1", b"1.0") + b"Content-Length: 1\r\n\r\n",
        START.replace(b"POST", b"GET") + b"Content-Length: 1\r\n\r\n",
        START.replace(b"/infer", b"/infer?x=1") + b"Content-Length: 1\r\n\r\n",
        START.replace(b"simple", b"a%20b") + b"Content-Length: 1\r\n\r\n",
        START.replace(b"simple", b"simple/versions/x") + b"Content-Length: 1\r\n\r\n",
        START.replace(b"infer", b"generate") + b"Content-Length: 1\r\n\r\n",
        START + b"X: " + b"a" * 5000 + b"\r\nContent-Length: 1\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
        b"\r\n\r\n",
    ],
)
def test_heads_of_other_requests_are_left_to_aiohttp(encoded):
    assert HeadCache(1_000_000).find(encoded) is None


def test_bodies_above_the_limit_are_left_to_aiohttp():
    encoded = START + b"Content-Length: 100\r\n\r\n"
    assert HeadCache(99).find(encoded) is None
    parsed = HeadCache(100).find(encoded)
    assert parsed is not None
    assert parsed[0].body_bytes == 100


def test_the_head_cache_is_bounded():
    heads = HeadCache(1_000_000)
    for number in range(5000):
        heads.find(START + b"X: %d\r\nContent-Length: 1\r\n\r\n" % number)
    assert len(heads._known) <= 1024


TRACEPARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"  # the example of W3C Trace Context


@pytest.mark.parametrize("name", [b"traceparent", b"Traceparent"])
def test_a_traceparent_is_taken_out_of_the_head_before_it_is_looked_up(name):
    heads = HeadCache(1_000_000, now_ns=itertools.count(70).__next__)
    length = b"Content-Length: 5\r\n\r\n"
    for number in range(2000):
        own = TRACEPARENT.replace(b"4bf92f35", b"%08x" % number)
        encoded = START + name + b": " + own + b"\r\n" + length
        assert heads.find(encoded + b"body") == (RequestHead("simple", "", 5, None, own.decode(), 70 + number), len(encoded))
    assert heads.find(START + length) == (RequestHead("simple", "", 5, None), len(START + length))
    assert len(heads._known) == 1


@pytest.mark.parametrize(
    "lines",
    [
        b"TRACEPARENT: %s\r\n" % TRACEPARENT,
        b"traceparent: %s\r\n" % TRACEPARENT.upper(),
        b"traceparent:%s\r\n" % TRACEPARENT,
        b"traceparent: %s\r\ntraceparent: %s\r\n" % (TRACEPARENT, TRACEPARENT),
        b"traceparent: %s\r\n folded: x\r\n" % TRACEPARENT,
        b"traceparent: %s-more\r\n" % TRACEPARENT.replace(b"00-4", b"01-4"),
    ],
)
def test_an_unusual_traceparent_is_left_to_aiohttp(lines):
    assert HeadCache(1_000_000).find(START + lines + b"Content-Length: 1\r\n\r\n") is None


@pytest.fixture
def connection(server):
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield one


def read_responses(connection, count=1):
    """The next responses: status, headers except Date and Server, and body."""
    responses = []
    with connection.makefile("rb") as stream:
        for _ in range(count):
            status = int(stream.readline().split()[1])
            headers = http.client.parse_headers(stream)
            compared = {name.lower(): value for name, value in headers.items() if name.lower() not in ("date", "server", "connection")}
            responses.append((status, compared, stream.read(int(headers["Content-Length"]))))
    return responses


REQUESTS = {
    "binary": request_bytes(),
    "JSON": request_bytes(binary=False),
    "an unknown model": request_bytes("unknown"),
    "a decoupled model": request_bytes("repeat_int32"),
    "another model's inputs": request_bytes("identity_fp32"),
    "a raw tensor": START.replace(b"simple", b"identity_fp32")
    + b"Inference-Header-Content-Length: 0\r\nContent-Length: 8\r\n\r\n"
    + bytes(8),
    "a header length beyond the body": START + b"Inference-Header-Content-Length: 99\r\nContent-Length: 2\r\n\r\n{}",
    "a header length that is none": START + b"Inference-Header-Content-Length: x\r\nContent-Length: 2\r\n\r\n{}",
    "broken JSON": START + b"Content-Length: 2\r\n\r\n{{",
    "a header length with a space behind it": START + b"Inference-Header-Content-Length: 2 \r\nContent-Length: 2\r\n\r\n{}",
    "a header length in another alphabet": START + "Inference-Header-Content-Length: ü\r\nContent-Length: 2\r\n\r\n{}".encode(),
    "no body": START + b"Content-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("sent", REQUESTS.values(), ids=REQUESTS)
def test_responses_equal_those_of_aiohttp(connection, server, sent):
    connection.sendall(sent)
    brief = read_responses(connection)
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as other:
        other.sendall(sent.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n"))
        assert read_responses(other) == brief


@pytest.mark.parametrize("cuts", [[], [40], [-1], [-100], [200, -10], list(range(1, 300))])
def test_a_request_split_anywhere_is_answered(connection, cuts):
    sent = REQUESTS["binary"]
    places = sorted({0, len(sent), *(cut % len(sent) for cut in cuts)})
    for _ in range(2):
        for first, last in itertools.pairwise(places):
            connection.sendall(sent[first:last])
        assert read_responses(connection)[0][0] == 200


def test_pipelined_requests_of_all_kinds_are_answered_in_order(connection):
    stats = b"GET /v2/models/simple HTTP/1.1\r\nHost: x\r\n\r\n"
    for one in (REQUESTS["binary"], REQUESTS["an unknown model"], REQUESTS["JSON"], stats, REQUESTS["binary"], stats):
        connection.sendall(one)
    assert [status for status, _, _ in read_responses(connection, 6)] == [200, 404, 200, 200, 200, 200]


async def test_a_pipelining_client_is_not_read_from_until_its_request_is_answered():
    harness = Harness()
    harness.connection.receive(asked(b"a"))
    await until(lambda: harness.asked == [b"a"])
    assert harness.transport.reads
    harness.connection.receive(asked(b"b"))
    assert not harness.transport.reads
    harness.released.release()
    await until(lambda: harness.asked == [b"a", b"b"])
    assert harness.transport.reads
    harness.released.release()
    await until(lambda: harness.transport.written == written(b"a", b"b"))
    harness.connection.close()


async def test_a_client_that_does_not_read_is_not_read_from():
    harness = Harness()
    harness.connection.pause()
    harness.connection.receive(asked(b"a"))
    assert not harness.transport.reads
    harness.connection.resume()
    await until(lambda: harness.asked == [b"a"])
    assert harness.transport.reads
    harness.connection.close()


async def test_any_other_request_is_handed_over_whole_after_earlier_ones_are_answered():
    harness = Harness()
    harness.connection.receive(asked(b"a"))
    harness.connection.receive(b"GET / ")
    await until(lambda: harness.asked == [b"a"])
    assert harness.handed_over == []
    harness.released.release()
    await until(lambda: harness.handed_over == [b"GET / "])
    assert harness.transport.written == written(b"a")


async def test_the_body_timeout_starts_with_the_head():
    harness = Harness(body_timeout_s=0.01)
    harness.connection.receive(asked(b"abc")[:-1])
    await until(lambda: not harness.transport.is_open)
    assert harness.transport.written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert (
        json.loads(harness.transport.written.partition(b"\r\n\r\n")[2])["error"] == "the body of the request did not arrive within 0.01 s"
    )
    harness.connection.close()


async def test_an_answer_that_is_there_at_once_is_written_within_the_read_also_between_others():
    harness = Harness()
    harness.connection.receive(asked(b"prompt")[:-1])
    assert harness.transport.written == b""
    harness.connection.receive(b"t")
    assert harness.transport.written == written(b"prompt")
    harness.connection.receive(asked(b"a"))
    harness.connection.receive(asked(b"prompt"))
    harness.released.release()
    await until(lambda: harness.transport.written == written(b"prompt", b"a", b"prompt"))
    assert harness.transport.reads
    harness.connection.receive(asked(b"prompt")[:-1])
    stopping = asyncio.ensure_future(harness.connection.stop())
    await asyncio.sleep(0)
    assert harness.transport.is_open
    harness.connection.receive(b"t")
    await asyncio.wait_for(stopping, 60)
    assert harness.transport.written == written(b"prompt", b"a", b"prompt", b"prompt")
    assert not harness.transport.is_open
    harness.connection.close()


@pytest.mark.parametrize("limit", ["head_timeout_s", "idle_timeout_s"])
async def test_an_idle_connection_is_closed(limit):
    harness = Harness(**{limit: 0.01})
    await until(lambda: not harness.transport.is_open)
    harness.connection.close()


async def test_a_connection_with_a_request_in_flight_is_not_idle(monkeypatch):
    loop, passed_s = asyncio.get_running_loop(), 0
    time_s = loop.time
    monkeypatch.setattr(loop, "time", lambda: time_s() + passed_s)
    harness = Harness(idle_timeout_s=60)
    harness.connection.receive(asked(b"a"))
    passed_s += 3600
    await passes(9)
    assert harness.transport.is_open
    harness.released.release()
    await until(lambda: harness.transport.written == written(b"a"))
    assert harness.transport.is_open
    passed_s += 3600
    await until(lambda: not harness.transport.is_open)
    harness.connection.close()


@pytest.mark.parametrize("part", [asked(b"a"), asked(b"a")[:-1]])
async def test_stopping_waits_for_the_request_that_has_begun(part):
    harness = Harness()
    harness.connection.receive(part)
    ending = asyncio.ensure_future(harness.connection.stop())
    await passes(1)
    harness.connection.receive(asked(b"a")[len(part) :])
    await until(lambda: harness.asked == [b"a"])
    assert harness.transport.is_open
    harness.released.release()
    await ending
    assert (harness.transport.written, harness.transport.is_open) == (written(b"a"), False)
    idle = Harness()
    await idle.connection.stop()
    assert not idle.transport.is_open
    idle.connection.close()


async def test_a_client_that_reads_again_is_not_read_from_beside_a_thread_that_receives():
    harness = Harness()
    harness.connection.pause()
    harness.connection.resume(can_read=False)
    assert not harness.transport.reads
    harness.connection.continue_reading()  # the thread has ended
    assert harness.transport.reads
    harness.connection.close()

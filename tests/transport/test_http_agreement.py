"""The wire engine compared with aiohttp on the same answers and faults; all four engines compared with the server's counts."""

import asyncio
import gzip
import json
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

from perfkit.clock import MonotonicClock
from perfkit.errors import ProtocolError
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, Tensor, tensor_from_array
from perfkit.target.address import Address
from perfkit.transport.base import Outcome
from perfkit.transport.http.reference import ReferenceHttpTransport
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from tests import forked
from tests.transport.clients import client_of, make_open_client
from tests.transport.servers import answering, hanging, read_request, reset, scripted_server

SECOND_NS = 1_000_000_000
REQUEST = InferRequest("m", (Tensor("x", Datatype.INT8, (3,), b"abc"),), id="7")
_OUTPUT = {"name": "y", "datatype": "INT8", "shape": [3]}
JSON = json.dumps({"model_name": "m", "id": "7", "outputs": [{**_OUTPUT, "data": [120, 121, 122]}]}).encode()
HEAD = json.dumps({"model_name": "m", "id": "7", "outputs": [{**_OUTPUT, "parameters": {"binary_data_size": 3}}]}).encode()
BINARY = f"Inference-Header-Content-Length: {len(HEAD)}\r\n".encode()


def response(body, *, status=b"200 OK", more=b"", version=b"1.1", length=None):
    return b"HTTP/%s %s\r\nContent-Length: %d\r\n%s\r\n%s" % (version, status, len(body) if length is None else length, more, body)


def chunked(body, size):
    pieces = [body[first : first + size] for first in range(0, len(body), size)]
    return (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        + b"0\r\n\r\n"
    )


def byte_by_byte(answer):
    return [answer[index : index + 1] for index in range(len(answer))]


async def resetting(reader, writer):
    await read_request(reader)
    reset(writer)


ANSWERED = {
    "JSON": answering(response(JSON)),
    "binary data": answering(response(HEAD + b"xyz", more=BINARY)),
    "in pieces": answering(byte_by_byte(response(HEAD + b"xyz", more=BINARY))),
    "in chunks": answering(chunked(JSON, 7)),
    "ended by closing the connection": answering(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + JSON),
    "HTTP/1.0": answering(response(JSON, version=b"1.0")),
    "compressed": answering(response(gzip.compress(JSON), more=b"Content-Encoding: gzip\r\n")),
    "after an interim response": answering(b"HTTP/1.1 100 Continue\r\n\r\n" + response(JSON)),
    "unknown headers": answering(response(JSON, more=b"X-A: " + b"b" * 1000 + b"\r\nSet-Cookie: a=b\r\n")),
    **{
        f"status {status}": answering(response(b'{"error":"said so"}', status=b"%d No" % status))
        for status in (201, 206, 400, 401, 403, 404, 408, 413, 422, 429, 500, 501, 502, 503, 504)
    },
    "a rejection that is not JSON": answering(response(b"<html>busy</html>", status=b"503 Busy")),
    "a rejection without a body": answering(response(b"", status=b"500 No")),
}
FAULTY = {
    "closed": (answering(), Outcome.BROKEN),
    "reset": (resetting, Outcome.BROKEN),
    "a truncated head": (answering(b"HTTP/1.1 200 OK\r\nContent-Le"), Outcome.BROKEN),
    "a truncated body": (answering(response(JSON[:-5], length=len(JSON))), Outcome.BROKEN),
    "truncated chunks": (answering(chunked(JSON, 7)[:-9]), Outcome.BROKEN),
    "not HTTP": (answering(b"hello\r\n\r\n"), Outcome.BROKEN),
    "an invalid length": (answering(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), Outcome.BROKEN),
    "no answer": (hanging(), Outcome.TIMED_OUT),
}
UNREADABLE = {
    "not JSON": answering(response(b"{")),
    "too little binary data": answering(response(HEAD + b"xy", more=BINARY)),
    "an empty body": answering(response(b"")),
    "a header length beyond the body": answering(response(JSON, more=b"Inference-Header-Content-Length: 100000\r\n")),
    "not gzip": answering(response(JSON, more=b"Content-Encoding: gzip\r\n")),
}


async def outcome_of(engine, handler):
    async with scripted_server(handler) as address:
        transport = client_of(
            engine,
            address,
            TransportOptions(timeout_ns=SECOND_NS // 2 if handler is FAULTY["no answer"][0] else 30 * SECOND_NS),
            time.monotonic_ns,
        )
        reply = await transport.send(transport.prepare(REQUEST))
        try:
            return reply.outcome, transport.decode(reply)
        except ProtocolError as error:
            return reply.outcome, (error.kind, str(error))
        finally:
            await transport.aclose()


def both(handler):
    return asyncio.run(outcome_of(WireHttpTransport, handler)), asyncio.run(outcome_of(ReferenceHttpTransport, handler))


@pytest.mark.parametrize("case", ANSWERED)
def test_the_engines_agree_on_answers(case):
    wire, reference = both(ANSWERED[case])
    assert wire == reference
    assert wire[0] in (Outcome.OK, Outcome.REJECTED)


@pytest.mark.parametrize("case", FAULTY)
def test_the_engines_agree_on_failures(case):
    handler, outcome = FAULTY[case]
    wire, reference = both(handler)
    assert wire[0] is reference[0] is outcome


@pytest.mark.parametrize("case", UNREADABLE)
def test_the_engines_agree_on_an_answer_that_cannot_be_decoded(case):
    wire, reference = both(UNREADABLE[case])
    assert wire[0] is reference[0] is Outcome.OK, "the answer is complete, and decoding it fails"
    assert isinstance(wire[1], tuple)
    assert wire[1][0] is reference[1][0]


@pytest.fixture(scope="module")
def server():
    command = [sys.executable, "-m", "server_stub", "--http-port", "0", "--grpc-port", "0", "--model", "simple", "--exit-with-stdin"]
    with forked.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        yield json.loads(process.stdout.readline())


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("engine", ["wire", "reference"])
def test_the_server_counts_the_requests_of_every_engine(server, protocol, engine):
    good, bad = 37, 11

    def counts():
        with urllib.request.urlopen(f"http://127.0.0.1:{server['http_port']}/v2/models/simple/stats") as answer:
            (stats,) = json.load(answer)["model_stats"]
        return np.array([stats["inference_count"], stats["inference_stats"]["success"]["count"], stats["inference_stats"]["fail"]["count"]])

    async def send():
        address = Address(protocol, "127.0.0.1", server[f"{protocol}_port"])
        transport = make_open_client(
            address, TransportOptions(engine=engine, max_connections=4, timeout_ns=60 * SECOND_NS), MonotonicClock()
        )
        await transport.open(4)
        tensors = [tensor_from_array(name, Datatype.INT32, np.ones((1, 16))) for name in ("INPUT0", "INPUT1")]
        requests = [InferRequest("simple", tuple(tensors))] * good + [InferRequest("simple", tuple(tensors[:1]))] * bad
        replies = await asyncio.gather(*(transport.send(transport.prepare(request)) for request in requests))
        await transport.aclose()
        return [reply.outcome for reply in replies]

    before = counts()
    outcomes = asyncio.run(send())
    assert outcomes == [Outcome.OK] * good + [Outcome.REJECTED] * bad
    assert (counts() - before).tolist() == [good, good, 0], (
        "a request that is rejected before it reaches the model is not a failure of the model"
    )

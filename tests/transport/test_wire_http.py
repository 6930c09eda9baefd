"""Requests of both HTTP engines, parsed by h11, and the outcomes of both for the same faults."""

import asyncio
import dataclasses
import time

import h11
import numpy as np
import pytest

from perfkit.errors import ProtocolError, TargetError
from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.transport.base import Outcome
from perfkit.transport.http.reference import ReferenceHttpTransport
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from tests.transport import servers
from tests.transport.clients import client_of

ENGINES = {"wire": WireHttpTransport, "reference": ReferenceHttpTransport}
BODY = b'{"model_name":"m","model_version":"1","outputs":[{"name":"y","datatype":"INT32","shape":[2],"parameters":{"binary_data_size":8}}]}'
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s"
    % (len(BODY), len(BODY) + 8, BODY + np.array([3, 4], "<i4").tobytes())
)


@pytest.fixture(params=ENGINES)
def engine(request):
    return ENGINES[request.param]


def make(engine, address, timeout_ns=30_000_000_000):
    return client_of(engine, address, TransportOptions(max_connections=4, timeout_ns=timeout_ns), time.monotonic_ns)


def parsed_by_h11(raw):
    """The head and body of a request, parsed by h11."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw)
    head, body = connection.next_event(), b""
    while isinstance(event := connection.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert connection.trailing_data[0] == b""
    return head, body


async def exchange(engine, request, answer, base_path="", headers=None):
    seen: list[bytes] = []
    async with servers.scripted_server(servers.answering(answer, seen=seen)) as address:
        transport = make(engine, dataclasses.replace(address, base_path=base_path, headers=headers or {}))
        reply = await transport.send(transport.prepare(request))
        await transport.aclose()
        return seen[0], reply, transport


def test_a_request_is_http_with_the_v2_headers(run, engine, infer_request):
    raw, reply, _ = run(exchange(engine, infer_request, ANSWER, "/prefix", {"authorization": "Bearer x"}))
    head, body = parsed_by_h11(raw)
    headers = dict(head.headers)
    own_headers, buffers = rest.encode_infer_request(infer_request)
    assert (head.method, head.target) == (b"POST", b"/prefix/v2/models/my%20model/versions/3/infer")
    assert body == b"".join(buffers)
    assert headers[b"inference-header-content-length"] == own_headers["Inference-Header-Content-Length"].encode()
    assert headers[b"content-type"] == b"application/octet-stream"
    assert headers[b"authorization"] == b"Bearer x"
    assert headers[b"host"].startswith(b"127.0.0.1:")
    assert reply.outcome is Outcome.OK


def test_a_host_header_of_the_scenario_replaces_the_default(run, infer_request):
    raw, _, _ = run(exchange(WireHttpTransport, infer_request, ANSWER, headers={"Host": "models.example"}))
    assert [value for name, value in parsed_by_h11(raw)[0].headers if name == b"host"] == [b"models.example"]


def test_a_header_of_the_scenario_never_duplicates_a_protocol_header(run, engine, infer_request):
    raw, _, _ = run(exchange(engine, infer_request, ANSWER, headers={"content-type": "text/plain", "X-Tenant": "a"}))
    head, body = parsed_by_h11(raw)
    names = [name for name, _ in head.headers]
    assert len(names) == len(set(names))
    assert dict(head.headers)[b"content-type"] == b"application/octet-stream"
    assert dict(head.headers)[b"x-tenant"] == b"a"
    assert dict(head.headers)[b"content-length"] == b"%d" % len(body)


@pytest.mark.parametrize("header_length", ["", "-1", "ten", "100000"])
def test_an_answer_whose_header_length_is_wrong_breaks_the_protocol(run, engine, infer_request, header_length):
    answer = b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: %s\r\nContent-Length: 2\r\n\r\n{}" % header_length.encode()
    _, reply, transport = run(exchange(engine, infer_request, answer))
    assert reply.outcome is Outcome.OK, "an answer is only parsed when it is decoded"
    with pytest.raises(ProtocolError):
        transport.decode(reply)


def test_abandoned_requests_are_unfinished_without_a_text(run, engine, infer_request):
    async def main():
        received = asyncio.Event()
        async with servers.scripted_server(servers.hanging(received)) as address:
            transport = make(engine, address)
            sending = asyncio.ensure_future(_reply(transport, infer_request))
            await received.wait()
            transport.abandon()
            reply = await sending
            await transport.aclose()
            return reply

    reply = run(main())
    assert (reply.outcome, reply.error) == (Outcome.UNFINISHED, "")
    assert reply.started_ns <= reply.finished_ns


def test_a_connection_closed_while_idle_fails_at_most_one_request(run, engine, infer_request):
    async def main():
        async with servers.scripted_server(servers.answering(ANSWER), servers.answering(ANSWER, ANSWER)) as address:
            transport = make(engine, address)
            replies = [await transport.send(transport.prepare(infer_request)) for _ in range(3)]
            await transport.aclose()
            return [reply.outcome for reply in replies], transport.counts

    outcomes, counts = run(main())
    assert outcomes[0] is outcomes[2] is Outcome.OK
    assert outcomes[1] in (Outcome.OK, Outcome.BROKEN)
    assert counts.opened == 2


def test_a_large_tensor_arrives_whole(run, engine):
    values = np.random.default_rng(1).random(300_000, dtype=np.float32)
    request = InferRequest("m", (tensor_from_array("x", Datatype.FP32, values), tensor_from_array("y", Datatype.FP32, values[::-1])))
    raw, _, _ = run(exchange(engine, request, ANSWER))
    assert parsed_by_h11(raw)[1].endswith(values.tobytes() + values[::-1].tobytes())


def test_nothing_listening_is_a_failed_connection_and_an_unreachable_target(run, engine, infer_request):
    async def main():
        async with servers.scripted_server(servers.answering(ANSWER)) as address:
            pass
        transport = make(engine, address)
        reply = await transport.send(transport.prepare(infer_request))
        with pytest.raises(TargetError, match="cannot be reached"):
            await transport.open(1)
        await transport.aclose()
        return reply

    assert run(main()).outcome is Outcome.CONNECT_FAILED


async def _reply(transport, request):
    return await transport.send(transport.prepare(request))

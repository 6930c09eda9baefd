"""The header by which a server traces a request: what a server of another make receives, with every engine."""

import dataclasses
from typing import Any

import h11
import numpy as np
import pytest

from perfkit.clock import MonotonicClock
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.transport.base import Outcome
from perfkit.transport.options import TransportOptions
from perfkit.workers.mix import MixedSender, RoutedRequest
from tests.transport import servers
from tests.transport.clients import make_open_client
from tests.transport.grpc_servers import grpcio_server

TRACEPARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(params=["wire", "reference"])
def engine(request):
    return request.param


@pytest.fixture(params=[4, 100_000], ids=["small", "large"])
def request_of_size(request):
    return InferRequest("my model", (tensor_from_array("x", Datatype.INT32, np.arange(request.param, dtype=np.int32)),))


def make(engine, address):
    return make_open_client(address, TransportOptions(engine=engine, max_connections=1, timeout_ns=20_000_000_000), MonotonicClock())


async def send_plain_and_traced(transport, request, sender=None, wrap=lambda prepared: prepared):
    prepared = wrap(transport.prepare(request))
    sender = sender or transport
    traced = sender.with_traceparent(prepared, TRACEPARENT)
    try:
        return [(await sender.send(one)).outcome for one in (prepared, traced, prepared)]
    finally:
        await transport.aclose()


def parsed(raw):
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw)
    head, body = connection.next_event(), b""
    while isinstance(event := connection.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    return head.target, sorted(head.headers), body


def test_over_http_a_traced_request_differs_by_its_traceparent_alone(run, engine, request_of_size):
    async def scenario():
        seen: list[Any] = []
        async with servers.scripted_server(servers.answering(OK, OK, OK, seen=seen)) as address:
            outcomes = await send_plain_and_traced(make(engine, address), request_of_size)
        return outcomes, [parsed(raw) for raw in seen]

    outcomes, (plain, traced, again) = run(scenario())
    assert outcomes == [Outcome.OK] * 3
    assert again == plain
    assert traced == (plain[0], sorted([*plain[1], (b"traceparent", TRACEPARENT.encode())]), plain[2])


def test_over_grpc_a_traced_call_differs_by_its_traceparent_alone(run, engine, request_of_size):
    async def scenario():
        seen: list[Any] = []

        async def infer(message, context):
            seen.append((message, sorted(dict(context.invocation_metadata()).items())))
            return b""

        async with grpcio_server(infer) as address:
            return await send_plain_and_traced(make(engine, address), request_of_size), seen

    outcomes, (plain, traced, again) = run(scenario())
    assert outcomes == [Outcome.OK] * 3
    assert again[0] == plain[0]
    assert "traceparent" not in dict(plain[1]) | dict(again[1])
    assert traced[0] == plain[0]
    assert dict(traced[1])["traceparent"] == TRACEPARENT
    assert len(traced[1]) == len(plain[1]) + 1


def test_a_mix_and_a_target_with_several_addresses_pass_the_header_on(run, request_of_size):
    async def scenario():
        seen: list[Any] = []

        async def infer(_message, context):
            seen.append(dict(context.invocation_metadata()).get("traceparent"))
            return b""

        async with grpcio_server(infer) as first, grpcio_server(infer) as second:
            transport = make("wire", dataclasses.replace(first, replicas=(second,)))
            await transport.open(2)
            mixed = MixedSender([transport])
            outcomes = await send_plain_and_traced(transport, request_of_size, mixed, lambda one: RoutedRequest.of(transport, one))
        return outcomes, seen

    outcomes, seen = run(scenario())
    assert outcomes == [Outcome.OK] * 3
    assert seen == [None, TRACEPARENT, None]

"""Connections and streams that have ended are freed at once: until a garbage collection they would keep their last answers."""

import asyncio
import dataclasses
import gc

import pytest
from tritonclient.grpc import service_pb2

from perfkit.clock import MonotonicClock
from perfkit.errors import ProtocolError
from perfkit.transport.base import Outcome
from perfkit.transport.grpc.streaming_connection import RequestStream, StreamingConnection
from perfkit.transport.grpc.transport import GrpcConnection
from perfkit.transport.http.connection import HttpConnection, _ResponseParser, parse_response
from perfkit.transport.http.event_stream import EventStreamConnection
from perfkit.transport.options import StreamOptions, TransportOptions
from tests.conditions import passes, until
from tests.transport import grpc_servers, servers
from tests.transport.clients import make_open_client

HTTP_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 10\r\n\r\ndata: {}\n\n"
TIMEOUT_NS = 30_000_000_000
RESPONSE = service_pb2.ModelStreamInferResponse(infer_response=service_pb2.ModelInferResponse(model_name="m")).SerializeToString()


@pytest.fixture(autouse=True)
def _no_garbage_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(kind):
    return sum(type(one) is kind for one in gc.get_objects())


def client_to(address, *, stream=None):
    return make_open_client(address, TransportOptions(timeout_ns=TIMEOUT_NS, stream=stream), MonotonicClock())


async def outcomes_until_lost(address, infer_request, kind, *, stream=None):
    """The outcomes of two requests of which the second one ends the connection, and how many connections are left."""
    before = alive(kind)
    client = client_to(address, stream=stream)
    outcomes = [(await client.send(client.prepare(infer_request))).outcome for _ in range(2)]
    await until(lambda: not (client.transport._streams or client.transport._pool)._connections)
    await passes(5)
    left = alive(kind) - before
    await client.aclose()
    return outcomes, left


@pytest.mark.parametrize("last", [HTTP_OK[:-1], b"SMTP ready\r\n\r\n"], ids=["cut", "garbage"])
@pytest.mark.parametrize(
    ("kind", "first", "stream"),
    [(HttpConnection, HTTP_OK, None), (EventStreamConnection, EVENTS, StreamOptions())],
    ids=["whole", "events"],
)
def test_a_lost_http_connection_is_freed(run, infer_request, kind, first, stream, last):
    async def main():
        async with servers.scripted_server(servers.answering(first, last)) as address:
            return await outcomes_until_lost(address, infer_request, kind, stream=stream)

    assert run(main()) == ([Outcome.OK, Outcome.BROKEN], 0)


@pytest.mark.parametrize(("kind", "stream"), [(GrpcConnection, None), (StreamingConnection, StreamOptions())], ids=["unary", "streams"])
def test_a_lost_grpc_connection_is_freed(run, infer_request, kind, stream):
    async def main():
        answers = iter([True, False])
        async with grpc_servers.scripted_grpc_server(lambda call: call.answer(RESPONSE) if next(answers) else call.close()) as address:
            return await outcomes_until_lost(dataclasses.replace(address, protocol="grpc"), infer_request, kind, stream=stream)

    assert run(main()) == ([Outcome.OK, Outcome.BROKEN], 0)


def broken(call):
    call.send_head()
    call.send_bytes(b"\0\0\0\0\2\x12\xff")


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (lambda call: call.answer(RESPONSE), Outcome.OK),
        (lambda call: call.end(5, "no such model"), Outcome.REJECTED),
        (lambda call: call.reset(2), Outcome.BROKEN),
        (broken, Outcome.BROKEN),
    ],
    ids=["answered", "rejected", "reset", "broken message"],
)
def test_a_stream_that_has_ended_is_freed_while_its_connection_is_open(run, infer_request, script, outcome):
    async def main():
        before = alive(RequestStream)
        async with grpc_servers.scripted_grpc_server(script) as address:
            client = client_to(dataclasses.replace(address, protocol="grpc"), stream=StreamOptions())
            outcomes = {(await client.send(client.prepare(infer_request))).outcome for _ in range(3)}
            await passes(5)
            left, opened = alive(RequestStream) - before, client.transport.counts.opened
            await client.aclose()
            return outcomes, left, opened

    assert run(main()) == ({outcome}, 0, 1)


@pytest.mark.parametrize("way", ["abandon", "give up"])
def test_a_stream_that_the_client_ends_is_freed(run, infer_request, way):
    async def main():
        before, received = alive(RequestStream), asyncio.Event()
        async with grpc_servers.scripted_grpc_server(lambda _: received.set()) as address:
            client = client_to(dataclasses.replace(address, protocol="grpc"), stream=StreamOptions())
            reply = client.send_leaving(client.prepare(infer_request), 0)
            await received.wait()
            client.abandon() if way == "abandon" else client.give_up(reply)
            outcome = (await reply).outcome
            await passes(5)
            left = alive(RequestStream) - before
            await client.aclose()
            return outcome, left

    assert run(main()) == (Outcome.UNFINISHED, 0)


def test_the_parser_of_a_whole_answer_is_freed():
    before = alive(_ResponseParser)
    parse_response([HTTP_OK])
    with pytest.raises(ProtocolError):
        parse_response([b"SMTP ready\r\n\r\n"])
    assert alive(_ResponseParser) == before

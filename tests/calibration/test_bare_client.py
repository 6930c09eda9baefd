"""The bare client says to someone else's server what the wire engine says, and hears the whole answer."""

import asyncio
import itertools
import socket

import pytest

from perfkit.api_v2.client import make_client
from perfkit.calibration.bare_client import BareGrpc, BareHttp
from perfkit.calibration.canned_server import METADATA
from perfkit.clock import MonotonicClock
from perfkit.errors import MeasurementError
from perfkit.protocol.protobuf import encode_infer_request
from perfkit.protocol.rest import encode_infer_request as encode_rest
from perfkit.scenario.workload import Workload
from perfkit.target.address import Address
from perfkit.transport.options import TransportOptions
from perfkit.workload.requests import make_requests
from tests.json_server import JsonHandler, serving
from tests.transport.grpc_servers import grpcio_server

ANSWER_BYTES = 300_000


def request(count, folder):
    workload = Workload.model_validate({"inputs": {"INPUT0": {"generate": "random", "shape": [count]}}})
    return make_requests(workload, METADATA, 0, "", folder)[0]


def prepared(address, sent):
    """The request's bytes as the wire engine sends them."""

    async def main():
        return make_client(address, TransportOptions(timeout_ns=60 * 10**9), MonotonicClock()).prepare(sent).buffers

    return asyncio.run(main())


@pytest.fixture
def http_server():
    """Answers with many bytes; gives its address and the bodies that it got."""
    bodies = []

    class Handler(JsonHandler):
        def do_POST(self):
            bodies.append(self.body())
            self.answer_bytes(200, bytes(ANSWER_BYTES))

    with serving(Handler) as port:
        yield Address("http", "127.0.0.1", port), bodies


@pytest.mark.parametrize("count", [32, 150_528])
def test_over_http_the_server_gets_the_request_each_time(http_server, tmp_path, count):
    address, bodies = http_server
    sent = request(count, tmp_path)
    client = BareHttp(address, prepared(address, sent))
    ticks = itertools.count()
    times_ns = client.times_ns(lambda: next(ticks), 7)  # two readings an exchange, and one behind it to see whether that was long enough
    client.close()
    assert times_ns == [1, 1, 1]
    assert bodies == [b"".join(encode_rest(sent)[1])] * 3


@pytest.mark.parametrize("count", [32, 10_000])  # within the window that grpcio gives
def test_over_grpc_the_server_gets_the_request_each_time(tmp_path, count):
    sent, got = request(count, tmp_path), []

    async def infer(message, _context):
        got.append(message)
        return bytes(100_000)

    def talk(address):
        client = BareGrpc(address, prepared(address, sent))
        for _ in range(3):
            client.exchange()
        client.close()

    async def main():
        async with grpcio_server(infer) as address:
            await asyncio.to_thread(talk, address)

    asyncio.run(main())
    assert got == [encode_infer_request(sent)] * 3


def test_a_server_that_goes_away_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = BareHttp(Address("http", *listening.getsockname()), [b"POST / HTTP/1.1\r\n\r\n"])
        accepted, _ = listening.accept()
        accepted.shutdown(socket.SHUT_WR)
        with pytest.raises(MeasurementError, match="closed the connection"):
            client.exchange()
        accepted.close()
        client.close()


def test_a_server_that_is_not_there_is_an_error():
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(MeasurementError, match="cannot be reached"):
            BareHttp(Address("http", *unheard.getsockname()), [b""])

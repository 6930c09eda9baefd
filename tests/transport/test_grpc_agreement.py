"""The wire engine beside grpcio over one corpus of servers and faults: the same outcomes, texts and outputs, but where it says why not."""

import asyncio
import gzip
import time
import zlib

import pytest
from h2.errors import ErrorCodes

from perfkit.errors import ProtocolError
from perfkit.protocol import v2_pb2
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, Tensor
from perfkit.transport.base import Outcome
from perfkit.transport.grpc.reference import ReferenceGrpcTransport
from perfkit.transport.grpc.transport import WireGrpcTransport
from perfkit.transport.options import TransportOptions
from tests.transport.http2_peer import OK_HEADERS, OK_TRAILERS, framed, h2_server

REQUEST = InferRequest("m", (Tensor("x", Datatype.INT8, (3,), b"abc"),), id="7")
_OUTPUT = v2_pb2.ModelInferResponse.InferOutputTensor(name="y", datatype="INT8", shape=[3])
MESSAGE = v2_pb2.ModelInferResponse(model_name="m", id="7", outputs=[_OUTPUT], raw_output_contents=[b"xyz"]).SerializeToString()
ONE = (framed(MESSAGE),)
LARGE = v2_pb2.ModelInferResponse(model_name="m" * 100_000).SerializeToString()
SECOND_NS = 1_000_000_000


def answering(headers=None, messages=ONE, trailers=None):
    """Headers, data and trailers, those that are empty left out."""
    headers = OK_HEADERS if headers is None else headers
    trailers = OK_TRAILERS if trailers is None else trailers

    async def script(peer):
        while True:
            stream_id, _, _ = await peer.requests.get()
            peer.h2.send_headers(stream_id, headers, end_stream=not messages and not trailers)
            for index, message in enumerate(messages):
                size = peer.h2.max_outbound_frame_size
                for first in range(0, len(message), size):
                    peer.h2.send_data(stream_id, message[first : first + size])
                if index == len(messages) - 1 and not trailers:
                    peer.h2.end_stream(stream_id)
            if trailers:
                peer.h2.send_headers(stream_id, trailers, end_stream=True)
            peer.flush()

    return script


def resetting(code):
    async def script(peer):
        while True:
            stream_id, _, _ = await peer.requests.get()
            peer.h2.reset_stream(stream_id, code)
            peer.flush()

    return script


async def leaving(peer):
    await peer.requests.get()


async def saying_goodbye(peer):
    stream_id, _, _ = await peer.requests.get()
    peer.h2.close_connection(ErrorCodes.NO_ERROR, last_stream_id=stream_id)
    peer.flush()


async def silent(_peer):
    await asyncio.get_running_loop().create_future()


def status(code, text):
    return answering(messages=(), trailers=[("grpc-status", str(code)), ("grpc-message", text)])


AGREED = {
    "an answer": answering(),
    "a large answer": answering(messages=(framed(LARGE),)),
    "an answer in pieces": answering(messages=tuple(framed(MESSAGE)[index : index + 1] for index in range(len(MESSAGE) + 5))),
    "a packed answer": answering([*OK_HEADERS, ("grpc-encoding", "gzip")], (framed(gzip.compress(MESSAGE), 1),)),
    "a deflated answer": answering([*OK_HEADERS, ("grpc-encoding", "deflate")], (framed(zlib.compress(MESSAGE), 1),)),
    "an answer that is not packed, though it may be": answering([*OK_HEADERS, ("grpc-encoding", "gzip")]),
    "headers that nobody knows": answering([*OK_HEADERS, ("x-a", "b" * 1000), ("x-b-bin", "AAA=")], trailers=[*OK_TRAILERS, ("x-c", "d")]),
    **{f"status {code}": status(code, "said so") for code in range(1, 17)},
    "a text in percents": status(3, "50%25 of %C3%BC is %F0%9F%98%80"),
    "no text": answering(messages=(), trailers=[("grpc-status", "3")]),
    "trailers alone": answering([*OK_HEADERS, ("grpc-status", "5"), ("grpc-message", "who?")], (), ()),
    "a status behind a message": answering(trailers=[("grpc-status", "13"), ("grpc-message", "afterwards")]),
    "no answer": silent,
    "a lost connection": leaving,
    "a goodbye, and a lost connection": saying_goodbye,
    "a stream reset": resetting(ErrorCodes.INTERNAL_ERROR),
    "a stream cancelled": resetting(ErrorCodes.CANCEL),
    "OK without a message": answering(messages=()),
}
# the same outcome, in other words: what grpcio says tells neither the HTTP status's meaning nor the server's words
ALIKE = {
    **{f"HTTP {code}": answering([(":status", str(code))], (), ()) for code in (400, 401, 403, 404, 429, 500, 502, 503, 504)},
    "a status nobody knows": status(77, "odd"),
}


async def outcome_of(engine, script):
    async with h2_server(script) as address:
        transport = engine(address, TransportOptions(timeout_ns=SECOND_NS // 2 if script is silent else 30 * SECOND_NS), time.monotonic_ns)
        await transport.open(1)
        reply = await transport.send(transport.prepare(REQUEST))
        await transport.aclose()
    try:
        return reply.outcome, transport.decode(reply)
    except ProtocolError as error:
        return reply.outcome, (str(error), error.kind, reply.status)


def both(script):
    return asyncio.run(outcome_of(WireGrpcTransport, script)), asyncio.run(outcome_of(ReferenceGrpcTransport, script))


@pytest.mark.parametrize("case", AGREED)
def test_the_engines_agree(case):
    wire, reference = both(AGREED[case])
    assert wire[0] is reference[0]
    if wire[0] in (Outcome.OK, Outcome.REJECTED):
        assert wire[1] == reference[1]


@pytest.mark.parametrize("case", ALIKE)
def test_the_engines_agree_in_other_words(case):
    wire, reference = both(ALIKE[case])
    assert wire[0] is reference[0] is Outcome.REJECTED
    assert wire[1][0].split(":")[0] == reference[1][0].split(":")[0]

"""The wire engine compared with grpcio on the same answers and faults: equal outcomes, messages and outputs, except for `ALIKE`."""

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
from tests.transport.clients import client_of
from tests.transport.http2_peer import OK_HEADERS, OK_TRAILERS, framed, h2_server

REQUEST = InferRequest("m", (Tensor("x", Datatype.INT8, (3,), b"abc"),), id="7")
_OUTPUT = v2_pb2.ModelInferResponse.InferOutputTensor(name="y", datatype="INT8", shape=[3])
MESSAGE = v2_pb2.ModelInferResponse(model_name="m", id="7", outputs=[_OUTPUT], raw_output_contents=[b"xyz"]).SerializeToString()
ONE = (framed(MESSAGE),)
LARGE = v2_pb2.ModelInferResponse(model_name="m" * 100_000).SerializeToString()
SECOND_NS = 1_000_000_000


def answering(headers=None, messages=ONE, trailers=None):
    """Answers each request with the given headers, data and trailers; sends no data or trailers if they are empty."""
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


async def closing(peer):
    await peer.requests.get()


async def sending_goaway(peer):
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
    "an answer compressed with gzip": answering([*OK_HEADERS, ("grpc-encoding", "gzip")], (framed(gzip.compress(MESSAGE), 1),)),
    "an answer compressed with deflate": answering([*OK_HEADERS, ("grpc-encoding", "deflate")], (framed(zlib.compress(MESSAGE), 1),)),
    "an uncompressed answer with an encoding header": answering([*OK_HEADERS, ("grpc-encoding", "gzip")]),
    "unknown headers": answering([*OK_HEADERS, ("x-a", "b" * 1000), ("x-b-bin", "AAA=")], trailers=[*OK_TRAILERS, ("x-c", "d")]),
    **{f"status {code}": status(code, "said so") for code in range(1, 17)},
    "a percent-encoded message": status(3, "50%25 of %C3%BC is %F0%9F%98%80"),
    "no message": answering(messages=(), trailers=[("grpc-status", "3")]),
    "only trailers": answering([*OK_HEADERS, ("grpc-status", "5"), ("grpc-message", "who?")], (), ()),
    "an error status after a message": answering(trailers=[("grpc-status", "13"), ("grpc-message", "afterwards")]),
    "no answer": silent,
    "a lost connection": closing,
    "GOAWAY, then a lost connection": sending_goaway,
    "a stream reset": resetting(ErrorCodes.INTERNAL_ERROR),
    "a stream cancelled": resetting(ErrorCodes.CANCEL),
    "OK without a message": answering(messages=()),
}
# equal outcomes and status names; grpcio's message leaves out the meaning of the HTTP status and the server's text
ALIKE = {
    **{f"HTTP {code}": answering([(":status", str(code))], (), ()) for code in (400, 401, 403, 404, 429, 500, 502, 503, 504)},
    "an unknown status": status(77, "odd"),
}


async def outcome_of(engine, script):
    async with h2_server(script) as address:
        transport = client_of(
            engine, address, TransportOptions(timeout_ns=SECOND_NS // 2 if script is silent else 30 * SECOND_NS), time.monotonic_ns
        )
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
def test_the_engines_agree_on_the_status_but_not_the_message(case):
    wire, reference = both(ALIKE[case])
    assert wire[0] is reference[0] is Outcome.REJECTED
    assert wire[1][0].split(":")[0] == reference[1][0].split(":")[0]

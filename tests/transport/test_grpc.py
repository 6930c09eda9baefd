"""Both gRPC engines against grpcio's server; tritonclient's message classes parse the requests."""

import asyncio
import time

import grpc
import grpc.aio
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from perfkit.errors import ProtocolError, TargetError
from perfkit.protocol import protobuf
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.target.address import Address
from perfkit.transport.base import Outcome
from perfkit.transport.grpc.reference import ReferenceGrpcTransport
from perfkit.transport.grpc.transport import WireGrpcTransport
from perfkit.transport.options import TransportOptions
from tests.transport import grpc_servers, servers
from tests.transport.clients import client_of

ANSWER = service_pb2.ModelInferResponse(
    model_name="m",
    outputs=[service_pb2.ModelInferResponse.InferOutputTensor(name="y", datatype="INT32", shape=[1])],
    raw_output_contents=[b"\x05\x00\x00\x00"],
)


@pytest.fixture(params=["wire", "reference"])
def make(request):
    engine = {"wire": WireGrpcTransport, "reference": ReferenceGrpcTransport}[request.param]
    return lambda address, timeout_ns=30_000_000_000: client_of(
        engine, address, TransportOptions(max_connections=4, timeout_ns=timeout_ns), time.monotonic_ns
    )


async def exchange(make, infer, request, timeout_ns=30_000_000_000):
    async with grpc_servers.grpcio_server(infer) as address:
        transport = make(address, timeout_ns)
        await transport.open(1)
        reply = await transport.send(transport.prepare(request))
        await transport.aclose()
        return transport, reply


def test_the_server_parses_the_request_and_the_answer_is_decoded(make, infer_request):
    seen = []

    async def infer(message, context):
        seen.append((message, dict(context.invocation_metadata())))
        return ANSWER.SerializeToString()

    transport, reply = asyncio.run(exchange(make, infer, infer_request))
    ((data, metadata),) = seen
    assert data == protobuf.encode_infer_request(infer_request)
    message = service_pb2.ModelInferRequest.FromString(data)
    assert (message.model_name, message.model_version, message.id) == ("my model", "3", "7")
    assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in message.inputs] == [("x", "FP32", [1, 4])]
    assert list(message.raw_input_contents) == [bytes(infer_request.inputs[0].raw)]
    assert metadata["x-tenant"] == "a"
    assert reply.outcome is Outcome.OK
    assert bytes(transport.decode(reply).outputs[0].raw) == b"\x05\x00\x00\x00"
    assert transport.counts.opened == 1


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
def test_an_error_status_is_a_rejection_with_its_message(make, infer_request, code):
    async def infer(_message, context):
        await context.abort(code, "Exceeds maximum queue size")

    transport, reply = asyncio.run(exchange(make, infer, infer_request))
    assert reply.outcome is Outcome.REJECTED
    with pytest.raises(ProtocolError, match=f"{code.name}: Exceeds maximum queue size"):
        transport.decode(reply)


def test_a_call_without_an_answer_times_out(make, infer_request):
    async def infer(_message, _context):
        await asyncio.get_running_loop().create_future()

    _, reply = asyncio.run(exchange(make, infer, infer_request, timeout_ns=100_000_000))
    assert reply.outcome is Outcome.TIMED_OUT


def test_abandoned_calls_are_unfinished(make, infer_request):
    async def main():
        received = asyncio.Event()

        async def infer(_message, _context):
            received.set()
            await asyncio.get_running_loop().create_future()

        async with grpc_servers.grpcio_server(infer) as address:
            transport = make(address)
            await transport.open(1)
            sending = asyncio.ensure_future(transport.send(transport.prepare(infer_request)))
            await received.wait()
            transport.abandon()
            reply = await sending
            await transport.aclose()
            return reply

    assert asyncio.run(main()).outcome is Outcome.UNFINISHED


def test_a_call_to_a_stopped_server_is_not_a_rejection(make, infer_request):
    async def main():
        async def infer(_message, _context):
            return ANSWER.SerializeToString()

        async with grpc_servers.grpcio_server(infer) as address:
            transport = make(address)
            await transport.open(1)
        reply = await transport.send(transport.prepare(infer_request))
        await transport.aclose()
        return reply

    assert asyncio.run(main()).outcome in (Outcome.CONNECT_FAILED, Outcome.BROKEN)


def test_large_messages_arrive_whole_in_both_directions(make):
    values = np.random.default_rng(1).random(2_000_000, dtype=np.float32)  # 8 MB, above grpcio's default limit of 4 MB
    seen = []

    async def infer(message, _context):
        seen.append(service_pb2.ModelInferRequest.FromString(message).raw_input_contents[0])
        output = service_pb2.ModelInferResponse.InferOutputTensor(name="y", datatype="FP32", shape=[2_000_000])
        return service_pb2.ModelInferResponse(model_name="m", outputs=[output], raw_output_contents=seen).SerializeToString()

    request = InferRequest("m", (tensor_from_array("x", Datatype.FP32, values),))
    transport, reply = asyncio.run(exchange(make, infer, request))
    assert seen == [values.tobytes()]
    assert bytes(transport.decode(reply).outputs[0].raw) == values.tobytes()


def test_each_request_in_flight_has_its_own_connection(make, infer_request):
    async def main():
        peers = []
        all_received = asyncio.Event()

        async def infer(_message, context):
            peers.append(context.peer())
            if len(peers) == 3:
                all_received.set()
            await all_received.wait()
            return ANSWER.SerializeToString()

        async with grpc_servers.grpcio_server(infer) as address:
            transport = make(address)
            await transport.open(3)
            prepared = transport.prepare(infer_request)
            await asyncio.gather(*(transport.send(prepared) for _ in range(3)))
            await transport.aclose()
            return peers, transport.counts

    peers, counts = asyncio.run(main())
    assert len(set(peers)) == counts.opened == 3


def test_a_connection_lost_during_a_call_breaks_it_and_is_opened_again_for_the_next(make, infer_request):
    async def main():
        received = asyncio.Event()
        writers: list[asyncio.StreamWriter] = []

        async def infer(_message, _context):
            if not received.is_set():
                received.set()
                await asyncio.get_running_loop().create_future()
            return ANSWER.SerializeToString()

        async def forward(reader, writer):
            while data := await reader.read(1 << 16):
                writer.write(data)

        async with grpc_servers.grpcio_server(infer) as upstream:

            async def relay(reader, writer):
                there, back = await asyncio.open_connection(upstream.host, upstream.port)
                writers.extend((writer, back))
                try:
                    await asyncio.gather(forward(reader, back), forward(there, writer))
                finally:
                    back.transport.abort()

            async with servers.scripted_server(relay) as address:
                transport = make(Address("grpc", address.host, address.port))
                await transport.open(1)
                sending = asyncio.ensure_future(transport.send(transport.prepare(infer_request)))
                await received.wait()
                for writer in writers:
                    writer.transport.abort()
                cut = await sending
                while (after := await transport.send(transport.prepare(infer_request))).outcome is not Outcome.OK:
                    assert after.outcome in (Outcome.BROKEN, Outcome.CONNECT_FAILED)
                await transport.aclose()
                return cut

    reply = asyncio.run(main())
    assert reply.outcome is Outcome.BROKEN
    assert reply.error


def test_a_server_that_does_not_speak_grpc_is_an_unreachable_target(make):
    async def main():
        async with servers.scripted_server(servers.sending(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as address:
            transport = make(Address("grpc", address.host, address.port))
            with pytest.raises(TargetError, match="cannot be reached"):
                await transport.open(1)
            await transport.aclose()

    asyncio.run(main())


def test_nothing_listening_is_an_unreachable_target(make):
    async def main():
        async with grpc_servers.grpcio_server(None) as address:
            pass
        transport = make(address)
        try:
            with pytest.raises(TargetError, match="cannot be reached"):
                await transport.open(2)
        finally:
            await transport.aclose()

    asyncio.run(main())

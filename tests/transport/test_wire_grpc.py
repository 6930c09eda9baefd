"""gRPC calls of the wire engine to servers of the h2 package and of literal frames."""

import asyncio
import dataclasses
import gzip
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest
from h2.errors import ErrorCodes
from h2.events import StreamReset

from perfkit.errors import ErrorKind, MissingEndpointError, ProtocolError, TargetError
from perfkit.protocol import http2, protobuf, v2_pb2
from perfkit.protocol.http2 import frame
from perfkit.protocol.message import IndexedModel, InferRequest, InferResponse
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.target.address import Address
from perfkit.transport.base import Outcome
from perfkit.transport.grpc.transport import WireGrpcTransport
from perfkit.transport.options import TransportOptions
from tests.transport import servers
from tests.transport.clients import client_of
from tests.transport.http2_peer import OK_HEADERS, OK_TRAILERS, answering, framed, h2_server

SECOND_NS = 1_000_000_000
TENSOR = tensor_from_array("y", Datatype.INT32, np.arange(3))
MESSAGE = v2_pb2.ModelInferResponse(
    model_name="m", outputs=[v2_pb2.ModelInferResponse.InferOutputTensor(name="y", datatype="INT32", shape=[3])], raw_output_contents=[bytes(TENSOR.raw)]
).SerializeToString()  # fmt: skip
OK_DATA = framed(MESSAGE)
REQUEST = InferRequest("m", (TENSOR,))
GREETING = frame(http2.SETTINGS, 0, 0)


def make(address, *, connections=4, timeout_ns=30 * SECOND_NS, **options):
    return client_of(
        WireGrpcTransport, address, TransportOptions(max_connections=connections, timeout_ns=timeout_ns, **options), time.monotonic_ns
    )


async def replies_of(*scripts, count=1, at_once=False, server=None, **options):
    """The replies to `count` requests, sent one after the other or all at once, and the transport."""
    async with h2_server(*scripts, **(server or {})) as address:
        transport = make(address, **options)
        prepared = transport.prepare(REQUEST)
        if at_once:
            replies = await asyncio.gather(*(transport.send(prepared) for _ in range(count)))
        else:
            replies = [await transport.send(prepared) for _ in range(count)]
        await transport.aclose()
        return replies, transport


def ending(headers=None, data=OK_DATA, trailers=None):
    """Answers each request with the given headers, data and trailers; sends no trailers if they are empty."""

    async def script(peer):
        while True:
            stream_id, _, _ = await peer.requests.get()
            last = OK_TRAILERS if trailers is None else trailers
            peer.h2.send_headers(stream_id, OK_HEADERS if headers is None else headers, end_stream=not data and not last)
            if data:
                peer.h2.send_data(stream_id, data, end_stream=not last)
            if last:
                peer.h2.send_headers(stream_id, last, end_stream=True)
            peer.flush()

    return script


def silent(received=None):
    """Receives a request, sets `received`, and never answers."""

    async def script(peer):
        await peer.requests.get()
        if received is not None:
            received.set()
        await asyncio.get_running_loop().create_future()

    return script


def test_a_call_has_the_headers_of_grpc_and_of_the_target(run):
    seen = []

    async def recording(peer):
        stream_id, headers, body = await peer.requests.get()
        seen.append((headers, body))
        peer.answer(stream_id, MESSAGE)
        await asyncio.get_running_loop().create_future()

    async def main():
        async with h2_server(recording) as address:
            target_headers = {
                "Host": "models.example",
                "X-Tenant": "a",
                "Trace-Bin": "a\x00b",
                "Content-Type": "text/plain",
                "grpc-timeout": "1n",
            }
            transport = make(dataclasses.replace(address, base_path="/team", headers=target_headers), timeout_ns=2_500_000_000)
            reply = await transport.send(transport.prepare(REQUEST))
            await transport.aclose()
            return reply, transport

    reply, transport = run(main())
    assert reply.outcome is Outcome.OK
    assert transport.decode(reply) == InferResponse("m", "", (TENSOR,))
    assert seen == [
        (
            {
                ":method": "POST",
                ":scheme": "http",
                ":path": "/team/inference.GRPCInferenceService/ModelInfer",
                ":authority": "models.example",
                "te": "trailers",
                "content-type": "application/grpc",
                "grpc-timeout": "2500000u",
                "x-tenant": "a",
                "trace-bin": "YQBi",
            },
            framed(protobuf.encode_infer_request(REQUEST)),
        )
    ]


REJECTIONS = {
    "INVALID_ARGUMENT: 50% off": ending(trailers=[("grpc-status", "3"), ("grpc-message", "50%25 off")], data=b""),
    "UNAVAILABLE: ü": ending(headers=[*OK_HEADERS, ("grpc-status", "14"), ("grpc-message", "%C3%BC")], data=b"", trailers=()),
    "INTERNAL: ": ending(trailers=[("grpc-status", "13")]),
    "UNKNOWN: odd": ending(trailers=[("grpc-status", "99"), ("grpc-message", "odd")]),
    "UNKNOWN: \ufffd%": ending(trailers=[("grpc-status", "x"), ("grpc-message", "%FF%")]),
    "UNAVAILABLE: HTTP 503 without a gRPC status: busy": ending(headers=[(":status", "503")], data=b"busy", trailers=()),
    "UNAUTHENTICATED: HTTP 401 without a gRPC status": ending(headers=[(":status", "401")], data=b"", trailers=()),
    "UNKNOWN: HTTP 418 without a gRPC status: x": ending(headers=[(":status", "418")], data=b"x", trailers=[("a", "b")]),
}


@pytest.mark.parametrize("text", REJECTIONS)
def test_an_error_status_is_a_rejection_with_its_message(run, text):
    (reply, again), transport = run(replies_of(REJECTIONS[text], count=2))
    assert (reply.outcome, reply.error) == (again.outcome, again.error) == (Outcome.REJECTED, text)
    with pytest.raises(ProtocolError) as caught:
        transport.decode(reply)
    assert caught.value.kind is (ErrorKind.INVALID_ARGUMENT if text.startswith("INVALID") else ErrorKind.INTERNAL)
    assert transport.counts.opened == 1


def resetting(code):
    async def script(peer):
        while True:
            stream_id, _, _ = await peer.requests.get()
            peer.h2.reset_stream(stream_id, code)
            peer.flush()

    return script


BREAKS = {
    "the stream was reset before the answer was complete (INTERNAL_ERROR)": resetting(ErrorCodes.INTERNAL_ERROR),
    "the stream was reset before the answer was complete (CANCEL)": resetting(ErrorCodes.CANCEL),
    "the answer ends without a grpc-status": ending(trailers=()),
    "the answer's status is OK, but it holds no message": ending(data=b""),
    "the answer is not gRPC, its content-type is text/html": ending(
        headers=[(":status", "200"), ("content-type", "text/html")], trailers=()
    ),
    "the stream was reset before the answer was complete (PROTOCOL_ERROR)": ending(headers=[(":status", "103")]),
}


@pytest.mark.parametrize("text", BREAKS)
def test_an_invalid_answer_breaks_only_its_call(run, text):
    replies, transport = run(replies_of(BREAKS[text], count=2))
    assert [(reply.outcome, reply.error) for reply in replies] == [(Outcome.BROKEN, text)] * 2
    assert transport.counts.opened == 1


@pytest.mark.parametrize("data", [b"\x00", b"\x00\x00\x00", framed(b"abc")[:-1], framed(MESSAGE) + b"x", framed(MESSAGE) * 2])
def test_data_that_is_not_one_message_breaks_the_call(run, data):
    (reply,), _ = run(replies_of(ending(data=data)))
    assert (reply.outcome, reply.error) == (Outcome.BROKEN, "the answer's status is OK, but it holds no complete message")


@pytest.mark.parametrize("data", [framed(b"\xff"), framed(b"x", 2), framed(b"x", 1)])
def test_an_invalid_message_is_detected_when_it_is_decoded(run, data):
    (reply,), transport = run(replies_of(ending(data=data)))
    assert reply.outcome is Outcome.OK, "an answer is only parsed when it is decoded"
    with pytest.raises(ProtocolError):
        transport.decode(reply)


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
def test_compressed_answers_are_decoded_even_if_unrequested(run, encoding, pack, compression):
    script = ending(headers=[*OK_HEADERS, ("grpc-encoding", encoding)], data=framed(pack(MESSAGE), 1))
    (reply,), transport = run(replies_of(script, compression=compression))
    assert transport.decode(reply).outputs == (TENSOR,)


def test_a_lost_connection_breaks_the_call_and_is_opened_again_for_the_next(run):
    async def leaving(peer):
        await peer.requests.get()

    (cut, fine), transport = run(replies_of(leaving, ending(), count=2))
    assert (cut.outcome, cut.error) == (Outcome.BROKEN, "the connection was closed before the answer was complete")
    assert fine.outcome is Outcome.OK
    assert (transport.counts.opened, transport.counts.reconnects, transport.counts.retried) == (2, 1, 0)


def test_a_server_that_violates_http2_gets_goaway(run):
    async def breaking(reader, writer):
        writer.write(GREETING)
        await reader.readexactly(80)  # the preface and part of the request
        writer.write(frame(http2.PING, 0, 1, bytes(8)))
        answers.put_nowait(await reader.read())

    answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def main():
        async with servers.scripted_server(breaking) as address:
            transport = make(Address("grpc", address.host, address.port))
            reply = await transport.send(transport.prepare(REQUEST))
            last = await answers.get()
            await transport.aclose()
            return reply, last

    reply, last = run(main())
    assert (reply.outcome, reply.error) == (
        Outcome.BROKEN,
        "the server violated HTTP/2: a frame that concerns the connection names a stream",
    )
    assert last.endswith(http2.goaway(http2.PROTOCOL_ERROR))


def test_a_refused_call_is_sent_again_once(run):
    async def refusing(peer):
        first, _, _ = await peer.requests.get()
        peer.h2.reset_stream(first, ErrorCodes.REFUSED_STREAM)
        peer.flush()
        await answering(peer)

    (reply,), transport = run(replies_of(refusing))
    assert reply.outcome is Outcome.OK
    assert (transport.counts.opened, transport.counts.retried) == (1, 1)
    (reply,), transport = run(replies_of(resetting(ErrorCodes.REFUSED_STREAM)))
    assert (reply.outcome, reply.error) == (Outcome.BROKEN, "the server refused the stream, for the second time")
    assert transport.counts.retried == 1


def test_after_goaway_refused_calls_are_sent_again_and_the_others_complete(run):
    async def leaving_late(reader, writer):
        """Uses literal frames, because h2 answers no request after its GOAWAY."""
        writer.write(GREETING)
        seen = b""
        while len(seen) < 1_000:  # both requests
            seen += await reader.read(1 << 16)
        writer.write(frame(http2.GOAWAY, 0, 0, b"\x00\x00\x00\x01\x00\x00\x00\x00"))
        writer.write(frame(http2.HEADERS, 4, 1, http2.encode_headers(OK_HEADERS)) + frame(http2.DATA, 0, 1, framed(MESSAGE)))
        writer.write(frame(http2.HEADERS, 5, 1, http2.encode_headers(OK_TRAILERS)))
        await reader.read()

    async def main():
        async with h2_server(ending()) as other, servers.scripted_server(leaving_late, relay_to(other)) as address:
            transport = make(Address("grpc", address.host, address.port), connections=1, streams_per_connection=2)
            await transport.open(1)
            prepared = transport.prepare(dataclasses.replace(REQUEST, inputs=(tensor_from_array("y", Datatype.INT32, np.arange(100)),)))
            replies = await asyncio.gather(*(transport.send(prepared) for _ in range(2)))
            await transport.aclose()
            return replies, transport.counts

    replies, counts = run(main())
    assert [reply.outcome for reply in replies] == [Outcome.OK] * 2, [reply.error for reply in replies]
    assert (counts.opened, counts.reconnects, counts.retried) == (2, 1, 1)


def relay_to(address):
    async def forward(reader, writer):
        while data := await reader.read(1 << 16):
            writer.write(data)

    async def handle(reader, writer):
        there, back = await asyncio.open_connection(address.host, address.port)
        try:
            await asyncio.gather(forward(reader, back), forward(there, writer))
        finally:
            back.close()

    return handle


def test_goaway_is_the_reason_of_a_broken_call(run):
    async def leaving(peer):
        stream_id, _, _ = await peer.requests.get()
        peer.h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM, b"too many pings", last_stream_id=stream_id)
        peer.flush()

    (reply,), _ = run(replies_of(leaving))
    assert reply.outcome is Outcome.BROKEN
    assert reply.error == (
        "the connection was closed before the answer was complete: the server sent GOAWAY (ENHANCE_YOUR_CALM: too many pings)"
    )


def test_goaway_on_an_idle_connection_fails_no_request(run):
    async def once(peer):
        stream_id, _, _ = await peer.requests.get()
        peer.answer(stream_id, MESSAGE)
        peer.h2.close_connection(ErrorCodes.NO_ERROR)
        peer.flush()

    replies, transport = run(replies_of(once, count=5))
    assert [reply.outcome for reply in replies] == [Outcome.OK] * 5
    assert (transport.counts.opened, transport.counts.reconnects) == (5, 4)


def test_a_call_without_an_answer_times_out_and_costs_no_connection(run):
    resets: list[int] = []

    async def slow_first(peer):
        await peer.requests.get()
        stream_id, _, _ = await peer.requests.get()
        resets.extend(event.error_code for event in peer.events if isinstance(event, StreamReset))
        peer.answer(stream_id, MESSAGE)
        await asyncio.get_running_loop().create_future()

    (late, fine), transport = run(replies_of(slow_first, count=2, timeout_ns=300_000_000))
    assert late.outcome is Outcome.TIMED_OUT
    assert late.error == "no complete answer within 300 ms"
    assert fine.outcome is Outcome.OK
    assert resets == [ErrorCodes.CANCEL]
    assert transport.counts.opened == 1


def test_an_early_deadline_of_the_server_is_a_rejection_and_ours_a_time_out():
    now = [SECOND_NS]

    async def late(peer):
        for after_ns in (5 * SECOND_NS, 29_999_000_000):
            stream_id, _, _ = await peer.requests.get()
            now[0] += after_ns
            peer.answer(stream_id, trailers=[("grpc-status", "4"), ("grpc-message", "late")])
        await asyncio.get_running_loop().create_future()

    async def main():
        async with h2_server(late) as address:
            transport = client_of(WireGrpcTransport, address, TransportOptions(timeout_ns=30 * SECOND_NS), lambda: now[0])
            replies = [await send(transport) for _ in range(2)]
            await transport.aclose()
            return replies

    theirs, ours = asyncio.run(main())
    assert (theirs.outcome, theirs.status, theirs.error) == (Outcome.REJECTED, "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED: late")
    assert (ours.outcome, ours.status, ours.error) == (Outcome.TIMED_OUT, "", "DEADLINE_EXCEEDED: late")


async def send(transport):
    return await transport.send(transport.prepare(REQUEST))


@pytest.mark.parametrize("streams", [1, 2, 5])
def test_streams_share_a_connection_and_further_requests_are_queued_in_order(run, streams):
    concurrent: list[int] = []
    order: list[int] = []

    async def recording(peer):
        while True:
            pending = [await peer.requests.get()]
            while len(pending) < streams and len(order) + len(pending) < 10:
                pending.append(await peer.requests.get())
            concurrent.append(len(pending) + peer.requests.qsize())
            for stream_id, _, _ in pending:
                order.append(stream_id)
                peer.answer(stream_id, MESSAGE)

    replies, transport = run(replies_of(recording, count=10, at_once=True, connections=1, streams_per_connection=streams))
    assert {reply.outcome for reply in replies} == {Outcome.OK}
    assert max(concurrent) == streams
    assert order == [2 * index + 1 for index in range(10)]
    assert transport.counts.opened == 1


def test_connections_are_opened_for_the_queued_requests(run):
    replies, transport = run(replies_of(answering, count=12, at_once=True, connections=100, streams_per_connection=4))
    assert {reply.outcome for reply in replies} == {Outcome.OK}
    assert transport.counts.opened == 3


@pytest.mark.parametrize("allowed", [1, 2, 3])
def test_the_servers_stream_limit_is_respected(run, allowed):
    replies, transport = run(
        replies_of(answering, count=30, at_once=True, connections=1, streams_per_connection=8, server={"max_concurrent_streams": allowed})
    )
    assert {reply.outcome for reply in replies} == {Outcome.OK}, "h2 refuses streams above its limit"
    assert transport.counts.opened == 1


def test_the_stream_limit_may_fall_and_rise_while_calls_are_in_flight(run):
    async def moving(peer):
        for limit in (1, 3, 0, 4):
            pending = [await peer.requests.get()]
            while not peer.requests.empty():
                pending.append(peer.requests.get_nowait())
            peer.writer.write(frame(http2.SETTINGS, 0, 0, b"\x00\x03" + limit.to_bytes(4)))
            for stream_id, _, _ in pending:
                peer.answer(stream_id, MESSAGE)
            if not limit:
                peer.writer.write(frame(http2.SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x02"))
        await answering(peer)

    replies, transport = run(replies_of(moving, count=40, at_once=True, connections=1, streams_per_connection=6))
    assert {reply.outcome for reply in replies} == {Outcome.OK}
    assert transport.counts.opened == 1


def test_large_messages_wait_for_the_servers_windows(run):
    values = np.random.default_rng(1).integers(0, 2**31, 500_000, np.int32)

    async def main():
        async with h2_server(answering) as address:
            transport = make(address)
            request = InferRequest("m", (tensor_from_array("x", Datatype.INT32, values),))
            replies = await asyncio.gather(*(transport.send(transport.prepare(request)) for _ in range(3)))
            await transport.aclose()
            return [v2_pb2.ModelInferRequest.FromString(b"".join(reply.payload[1])[5:]).raw_input_contents[0] for reply in replies]

    # the server sends each request back: 2 MB each way through windows of 64 KB
    assert run(main()) == [values.tobytes()] * 3


def test_abandoned_calls_are_unfinished_whether_sent_or_queued(run):
    async def main():
        received = asyncio.Event()
        async with h2_server(silent(received)) as address:
            transport = make(address, connections=1)
            sending = [asyncio.ensure_future(send(transport)) for _ in range(3)]
            await received.wait()
            transport.abandon()
            replies = await asyncio.gather(*sending)
            after = await send(transport)
            await transport.aclose()
            return [*replies, after]

    assert [(reply.outcome, reply.error) for reply in run(main())] == [(Outcome.UNFINISHED, "")] * 4


OPENINGS = {
    "the port speaks HTTP/1.1, not gRPC": servers.sending(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
    "the port speaks a protocol other than HTTP/2": servers.sending(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "the server closed the connection at once": servers.sending(b""),
}


@pytest.mark.parametrize("text", OPENINGS)
def test_the_error_names_a_port_that_does_not_speak_grpc(run, text):
    async def main():
        async with servers.scripted_server(OPENINGS[text]) as address:
            transport = make(Address("grpc", address.host, address.port))
            with pytest.raises(TargetError, match=f"^grpc://127.0.0.1:{address.port} cannot be reached: {text}"):
                await transport.open(2)
            reply = await send(transport)
            await transport.aclose()
            return reply

    reply = run(main())
    assert reply.outcome is Outcome.CONNECT_FAILED
    assert text in reply.error


def test_a_silent_port_fails_after_the_time_out(run):
    async def mute(_reader, _writer):
        await asyncio.get_running_loop().create_future()

    async def main():
        async with servers.scripted_server(mute) as address:
            transport = make(Address("grpc", address.host, address.port), timeout_ns=100_000_000)
            reply = await send(transport)
            await transport.aclose()
            return reply

    reply = run(main())
    assert reply.outcome is Outcome.CONNECT_FAILED
    assert "no answer within the time-out" in reply.error


def test_the_other_calls_work_and_report_refusals(run):
    answers = {
        "ServerMetadata": v2_pb2.ServerMetadataResponse(name="s", version="1", extensions=["e"]),
        "ServerReady": v2_pb2.ServerReadyResponse(ready=True),
        "ModelReady": v2_pb2.ModelReadyResponse(ready=True),
        "ModelMetadata": v2_pb2.ModelMetadataResponse(name="m", versions=["1"]),
        "RepositoryIndex": v2_pb2.RepositoryIndexResponse(
            models=[v2_pb2.RepositoryIndexResponse.ModelIndex(name="a", version="1", state="READY", reason="r")]
        ),
        "ModelConfig": v2_pb2.ModelConfigResponse(config=v2_pb2.ModelConfig(max_batch_size=8)),
    }

    async def model_server(peer):
        while True:
            stream_id, headers, body = await peer.requests.get()
            rpc = headers[":path"].rpartition("/")[2]
            if b"unknown" in body:
                peer.answer(stream_id, trailers=[("grpc-status", "5"), ("grpc-message", "no such model")])
            else:
                peer.answer(stream_id, answers[rpc].SerializeToString() if rpc in answers else b"\xff")

    async def main():
        async with h2_server(model_server) as address:
            transport = make(address)
            results = (
                await transport.server_metadata(),
                await transport.is_ready("m", ""),
                (await transport.model_metadata("m", "")).versions,
                (await transport.model_config("m", "")).max_batch_size,
                await transport.is_ready("unknown", ""),
                await transport.model_index(),
            )
            with pytest.raises(MissingEndpointError, match="ModelConfig is refused: NOT_FOUND: no such model"):
                await transport.model_config("unknown", "")
            with pytest.raises(TargetError, match="does not offer model 'unknown': NOT_FOUND: no such model"):
                await transport.model_metadata("unknown", "")
            del answers["ServerReady"]
            with pytest.raises(TargetError, match="the answer to ServerReady is no"):
                await transport.server_refusal()
            await transport.aclose()
            return results

    server, *others = run(main())
    assert (server.name, server.version, server.extensions) == ("s", "1", ("e",))
    assert others == [True, ("1",), 8, False, (IndexedModel("a", "1", "READY", "r"),)]


def test_grpcio_is_not_imported():
    program = (
        "import sys\nfrom perfkit.target.address import Address\nfrom perfkit.clock import MonotonicClock\n"
        "from perfkit.api_v2.client import make_client\nfrom perfkit.transport.options import TransportOptions\nimport asyncio\n"
        "async def main():\n    make_client(Address('grpc', 'h', 1), TransportOptions(timeout_ns=1), MonotonicClock())\n"
        "asyncio.run(main())\nassert not [name for name in sys.modules if name.split('.')[0] == 'grpc']\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

"""Calls on perfkit's own HTTP/2: deadlines, cancellations, wrong calls, large messages, clients that do not read, and the server's end."""

import asyncio
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
import tritonclient.grpc
from tritonclient.grpc import service_pb2 as triton

from perfkit.protocol import http2
from perfkit.protocol.http2 import frame, number_frame
from server_stub.grpc.calls import StreamingCall, UnaryCall
from server_stub.grpc.message_reader import Message
from tests.conditions import wait_until
from tests.server_stub.grpc.h2_caller import SERVICE, Caller, framed
from tests.server_stub.grpc.raw_client import RawClient
from tests.server_stub.grpc.session_recorder import Unread, call, data_frame, headers_frame, opened, trailers_of

OK, INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 0, 3, 4, 8, 12, 13, 14
OK_TRAILERS = http2.encode_headers([("grpc-status", "0")])
EXPIRED = (DEADLINE_EXCEEDED, "Deadline Exceeded", b"")


@pytest.fixture(scope="module")
def slow(start_server):
    """A server whose models answer in an hour, and have a place for one request each."""
    synthetic = ("--synthetic", "service=constant:3600s,servers=1")
    with start_server("--model", "synthetic", "repeat_int32", *synthetic, "--max-queue=1", "--stop-timeout=0.1") as started:
        yield started


def infer_request(model, **inputs):
    message = triton.ModelInferRequest(model_name=model)
    for name, array in inputs.items():
        datatype = {"float32": "FP32", "int32": "INT32", "uint32": "UINT32"}[str(array.dtype)]
        message.inputs.add(name=name, datatype=datatype, shape=array.shape)
        message.raw_input_contents.append(array.tobytes())
    return message.SerializeToString()


SLOW = infer_request("synthetic", INPUT0=np.ones((1, 1), np.float32))
REPEATED = infer_request(
    "repeat_int32", IN=np.arange(2, dtype=np.int32), DELAY=np.array([0, 2**31], np.uint32), WAIT=np.zeros(1, np.uint32)
)
SIMPLE = infer_request("simple", INPUT0=np.ones((1, 16), np.int32), INPUT1=np.ones((1, 16), np.int32))
BOTH = pytest.mark.parametrize(("method", "request_bytes"), [("ModelInfer", SLOW), ("ModelStreamInfer", REPEATED)], ids=["unary", "stream"])


def outcome(caller, method, data, *headers):
    """Status, text and data of one call."""
    stream = caller.open(method, *headers)
    caller.send(stream, data, end=True)
    return caller.finish(stream)


def is_place_taken(server):
    """Whether the model `synthetic` has no place for a request; if it has one, the probe takes it for a millisecond."""
    with Caller(server.grpc_port) as caller:
        status, text, _ = outcome(caller, "ModelInfer", framed(SLOW), (b"grpc-timeout", b"1m"))
    assert (status, text) in {(UNAVAILABLE, "Exceeds maximum queue size"), (DEADLINE_EXCEEDED, "Deadline Exceeded")}
    return status == UNAVAILABLE


def await_free_place(server):
    """Wait until the model `synthetic` has a place for a request."""
    wait_until(lambda: not is_place_taken(server))


@pytest.mark.parametrize("timeout", [b"0n", b"50m"])
@BOTH
def test_a_call_ends_at_its_deadline(slow, method, request_bytes, timeout):
    with Caller(slow.grpc_port) as caller:
        status, text, _ = outcome(caller, method, framed(request_bytes), (b"grpc-timeout", timeout))
        assert (status, text) == EXPIRED[:2]
        assert outcome(caller, "ServerLive", framed(b""), (b"grpc-timeout", b"1H"))[0] == OK


@pytest.mark.parametrize("sent", [b"", framed(SLOW)[:-1]], ids=["nothing", "a part"])
def test_a_call_whose_message_does_not_come_ends_at_its_deadline(slow, sent):
    with Caller(slow.grpc_port) as caller:
        stream = caller.open("ModelInfer", (b"grpc-timeout", b"50m"))
        caller.send(stream, sent)
        assert caller.finish(stream) == EXPIRED


def test_grpcios_deadline_is_the_servers_too(slow):
    with grpc.insecure_channel(f"127.0.0.1:{slow.grpc_port}") as opened_channel:
        channel: Any = opened_channel
        with pytest.raises(grpc.RpcError) as error:
            channel.unary_unary(f"{SERVICE}/ModelInfer")(SLOW, timeout=0.05)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await_free_place(slow)


def test_a_deadline_frees_the_place_of_its_request(slow):
    await_free_place(slow)
    with Caller(slow.grpc_port) as caller:
        for _ in range(3):
            assert outcome(caller, "ModelInfer", framed(SLOW), (b"grpc-timeout", b"20m")) == EXPIRED


def test_a_cancelled_call_frees_the_place_of_its_request(slow):
    await_free_place(slow)
    with grpc.insecure_channel(f"127.0.0.1:{slow.grpc_port}") as opened_channel:
        channel: Any = opened_channel
        infer = channel.unary_unary(f"{SERVICE}/ModelInfer")
        waiting = infer.future(SLOW)
        while not is_place_taken(slow):
            if waiting.done():  # it arrived while a probe had the place
                waiting = infer.future(SLOW)
        waiting.cancel()
        await_free_place(slow)


def test_a_lost_connection_frees_the_places_of_its_requests(slow):
    await_free_place(slow)
    with Caller(slow.grpc_port) as caller:
        is_held = False
        while not is_held:  # a call that arrives while a probe has the place is refused
            caller.send(caller.open("ModelInfer"), framed(SLOW), end=True)
            is_held = is_place_taken(slow)
    await_free_place(slow)


LIVE = framed(b"")
WRONG = {
    "two messages": (LIVE + LIVE, (), UNIMPLEMENTED, "the method requires exactly one request message"),
    "three messages": (LIVE * 3, (), UNIMPLEMENTED, "the method requires exactly one request message"),
    "no message": (b"", (), UNIMPLEMENTED, "the method requires exactly one request message"),
    "half a prefix": (b"\0\0", (), INTERNAL, "the request ends before its message does"),
    "half a message": (b"\0\0\0\0\x02a", (), INTERNAL, "the request ends before its message does"),
    "a message and a half": (LIVE + b"\0\0", (), INTERNAL, "the request ends before its message does"),
    "compressed without an encoding": (
        framed(b"", packed=True), (), INTERNAL, "a message is compressed, but the header grpc-encoding is missing",
    ),
    "compressed by an unknown encoding": (
        framed(b"", packed=True), ((b"grpc-encoding", b"zstd"),), UNIMPLEMENTED, "Unsupported compression type",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "headers", "status", "text"), WRONG.values(), ids=WRONG)
def test_wrong_calls_fail_alone(server, data, headers, status, text):
    with Caller(server.grpc_port) as caller:
        assert outcome(caller, "ServerLive", data, *headers) == (status, text, b"")
        assert outcome(caller, "ServerLive", LIVE)[0] == OK


def test_a_message_that_is_not_compressed_may_have_an_encoding(server):
    with Caller(server.grpc_port) as caller:
        for encoding in (b"gzip", b"zstd", b"identity"):
            assert outcome(caller, "ServerLive", LIVE, (b"grpc-encoding", encoding))[0] == OK


@pytest.mark.parametrize(
    ("changed", "status"), [({":method": "GET"}, "405"), ({"content-type": "application/json"}, "415"), ({"content-type": None}, "415")]
)
def test_requests_that_are_no_calls_get_a_status_of_http(server, changed, status):
    headers = {":method": "POST", ":path": f"{SERVICE}/ServerLive", "content-type": "application/grpc"} | changed
    block = http2.encode_headers([(name, value) for name, value in headers.items() if value])
    with RawClient(server.grpc_port) as client:
        client.send(headers_frame(block=block, end=True))
        (answer,) = client.until(http2.HEADERS, 1, http2.END_STREAM)
        assert answer[3] == b"\x20" + http2.encode_headers([(":status", status)])
        client.send(headers_frame(3, block))
        client.until(http2.RST_STREAM, 3)


VALUES = np.random.default_rng(1).random(5_000_000, np.float32).reshape(1, -1)


def test_large_messages_by_grpcio(server):
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        given = tritonclient.grpc.InferInput("INPUT0", VALUES.shape, "FP32").set_data_from_numpy(VALUES)
        for _ in range(2):
            assert np.array_equal(client.infer("identity_fp32", [given]).as_numpy("OUTPUT0"), VALUES)


def test_large_messages_in_small_frames(server):
    sent = framed(infer_request("identity_fp32", INPUT0=VALUES))
    with Caller(server.grpc_port) as caller:
        stream = caller.open("ModelInfer")
        for first in range(0, len(sent), 1 << 14):
            caller.send(stream, sent[first : first + (1 << 14)], end=first + (1 << 14) >= len(sent))
        status, _, data = caller.finish(stream)
    assert status == OK
    (raw,) = triton.ModelInferResponse.FromString(data[5:]).raw_output_contents
    assert raw == VALUES.tobytes()


def test_many_calls_on_one_connection(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as opened_channel:
        channel: Any = opened_channel
        asked = [infer_request("identity_fp32", INPUT0=np.full((1, 1 + number % 7), number, np.float32)) for number in range(200)]
        futures = [channel.unary_unary(f"{SERVICE}/ModelInfer").future(one) for one in asked]
        answers = [triton.ModelInferResponse.FromString(future.result(timeout=60)) for future in futures]
    for number, answer in enumerate(answers):
        assert list(answer.raw_output_contents) == [np.full(1 + number % 7, number, np.float32).tobytes()]


STREAM_BLOCK = http2.encode_headers([(":method", "POST"), (":path", f"{SERVICE}/ModelStreamInfer"), ("content-type", "application/grpc")])
PING = frame(http2.PING, 0, 0, b"12345678")


def test_a_client_that_does_not_read_its_stream_is_not_read_and_others_are_served(server):
    """Its responses wait for a window that it does not open; once it does, every one of them comes."""
    request_bytes = framed(infer_request("identity_fp32", INPUT0=np.ones((1, 5_000), np.float32)))
    before_bytes = psutil.Process(server.process.pid).memory_info().rss
    with RawClient(server.grpc_port) as stuck, Caller(server.grpc_port) as other:
        stuck.send(headers_frame(block=STREAM_BLOCK))
        window_bytes, sent, data = 1 << 22, 0, b""
        while count := window_bytes // len(request_bytes):
            stuck.send(data_frame(request_bytes) * count + PING)
            sent, window_bytes = sent + count, window_bytes - count * len(request_bytes)
            for _ in range(20):
                assert outcome(other, "ModelInfer", framed(SIMPLE))[0] == OK
            while (came := stuck.read())[0] != http2.PING:
                if came[0] == http2.WINDOW_UPDATE and came[2] == 1:
                    window_bytes += int.from_bytes(came[3])
                elif came[0] == http2.DATA:
                    data += came[3]
        assert sent * len(request_bytes) < 16 << 20
        assert psutil.Process(server.process.pid).memory_info().rss - before_bytes < 64 << 20
        assert len(data) < 1 << 16
        stuck.send(b"".join(number_frame(http2.WINDOW_UPDATE, stream, 1 << 30) for stream in (0, 1)) + data_frame(b"", end=True))
        *answers, trailers = stuck.until(http2.HEADERS, 1, http2.END_STREAM)
    data += b"".join(payload for kind, _, _, payload in answers if kind == http2.DATA)
    lengths = []
    while data:
        lengths.append(int.from_bytes(data[1:5]))
        data = data[5 + lengths[-1] :]
    assert (len(lengths), min(lengths) > 20_000, trailers[3]) == (sent, True, OK_TRAILERS)


async def test_a_stream_with_too_many_waiting_requests_is_ended():
    async def take_none(_requests, _call):
        await asyncio.Event().wait()

    recorder = opened()
    recorder.on_headers = lambda _: None
    recorder.receive(headers_frame(1))
    stream = recorder.session.streams[1]
    streaming = StreamingCall(Unread(recorder.session, asyncio.get_running_loop()), stream, take_none)
    recorder.on_closed = lambda _: streaming.close()
    for _ in range(2**16):
        streaming.receive(Message(b"", is_compressed=False))
    assert recorder.take_written() == b""
    streaming.receive(Message(b"", is_compressed=False))
    written = recorder.take_written()
    trailers = trailers_of(written[9 : 9 + written[2]])
    assert (trailers["grpc-status"], trailers["grpc-message"]) == ("8", "more than 65,536 requests of the stream wait")
    assert recorder.session.streams == {}


async def test_messages_that_nobody_takes_use_up_the_window_with_their_prefixes():
    recorder, taken = opened(), []

    async def take_three(requests, _):
        taken.extend([await anext(requests) for _ in range(3)])
        await asyncio.Event().wait()

    def on_headers(stream):
        stream.call = StreamingCall(Unread(recorder.session, asyncio.get_running_loop()), stream, take_three)

    recorder.on_headers = on_headers
    recorder.on_closed = lambda stream: stream.call.close()
    recorder.receive(headers_frame() + data_frame((LIVE + framed(b"abc")) * 1000))
    (stream,) = recorder.session.streams.values()
    assert (stream.queued_bytes, stream.receive_window_bytes) == (13_000, (4 << 20) - 13_000)
    await asyncio.sleep(0)
    assert (taken, stream.queued_bytes) == ([b"", b"abc", b""], 13_000 - 18)
    recorder.session.close()


async def test_a_call_that_is_over_tells_so_also_to_who_asks_later():
    """A cancelled method asks in its `finally`, after its stream has ended; its trace is finished then."""
    told = []

    async def method(_, call):
        try:
            await asyncio.Event().wait()
        finally:
            call.on_sent(lambda: told.append(call))

    recorder = opened()
    recorder.receive(call(b""))
    stream = recorder.session.streams[1]
    unary = UnaryCall(Unread(recorder.session, asyncio.get_running_loop()), stream, method)
    recorder.on_closed = lambda _: unary.close()
    unary.receive(Message(b"", is_compressed=False))
    unary.receive_end()
    await asyncio.sleep(0)
    recorder.receive(number_frame(http2.RST_STREAM, 1, http2.CANCEL))
    assert told == []
    await asyncio.sleep(0)
    assert told == [unary]


def test_stopping_answers_calls_in_flight_and_refuses_others(start_server):
    started = start_server("--model", "simple", "--stop-timeout=600")
    with RawClient(started.grpc_port) as client, RawClient(started.grpc_port) as idle:
        client.send(headers_frame(1, STREAM_BLOCK) + data_frame(framed(SIMPLE), 1))
        client.until(http2.DATA, 1)
        idle.until(http2.SETTINGS, 0, http2.ACK)
        started.process.stdin.close()
        started.process.stdin = None
        assert idle.until(http2.GOAWAY)[-1][3] == bytes(8)
        assert idle.read() is None, "nothing is in flight"
        assert client.until(http2.GOAWAY)[-1][3] == b"\0\0\0\x01" + bytes(4)
        client.send(headers_frame(3, STREAM_BLOCK) + data_frame(framed(SIMPLE), 1, end=True))
        assert client.read() == (http2.RST_STREAM, 0, 3, b"\0\0\0\x07")
        *answers, trailers = client.until(http2.HEADERS, 1, http2.END_STREAM)
        data = b"".join(one[3] for one in answers)
        assert len(triton.ModelStreamInferResponse.FromString(data[5:]).infer_response.outputs) == 2
        assert trailers[3] == OK_TRAILERS
        assert client.read() is None
    code, _, stderr = started.end()
    assert (code, "Traceback" in stderr) == (0, False)


def test_stopping_ends_calls_that_take_longer_than_the_timeout(start_server):
    synthetic = ("--synthetic", "service=constant:3600s,servers=1")
    with start_server("--model", "synthetic", *synthetic, "--stop-timeout=0.1") as started, Caller(started.grpc_port) as caller:
        stream = caller.open("ModelInfer")
        caller.send(stream, framed(SLOW), end=True)
        started.process.stdin.close()
        started.process.stdin = None
        with pytest.raises(ConnectionResetError):
            caller.finish(stream)

"""Calls whose time-out has passed are not executed, also by a model that answers within the read of its request."""

import types

import pytest

from perfkit.protocol import http2
from server_stub.grpc.calls import UnaryCall
from tests.server_stub.grpc.h2_caller import framed
from tests.server_stub.grpc.raw_client import RawClient, block, infer_request, whole_call
from tests.server_stub.grpc.session_recorder import BLOCK, Unread, data_frame, frames_of, headers_frame, opened, trailers_of

DEADLINE_EXCEEDED = "4"


def executed(triton_grpc):
    return triton_grpc.get_inference_statistics("simple").model_stats[0].execution_count


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_a_call_that_has_no_time_is_not_executed(server, triton_grpc, method):
    """Not even by a model on the event loop whose whole request comes with the call's headers."""
    before = executed(triton_grpc)
    with RawClient(server.grpc_port) as client:
        client.send(headers_frame(block=block(method, **{"grpc-timeout": "0n"})) + data_frame(infer_request(), end=True))
        frames = client.until(http2.HEADERS, 1, http2.END_STREAM)
    assert http2.DATA not in [one[0] for one in frames]
    assert trailers_of(frames[-1][3])["grpc-status"] == DEADLINE_EXCEEDED
    assert executed(triton_grpc) == before


def test_a_call_without_time_among_others_is_not_executed(server, triton_grpc):
    blocks = {text: block("ModelInfer", **{"grpc-timeout": text}) for text in ("0n", "1H")}
    before = executed(triton_grpc)
    statuses = []
    with RawClient(server.grpc_port) as client:
        client.send(headers_frame(block=http2.NO_TABLE + blocks["1H"]) + data_frame(infer_request(), end=True))
        client.until(http2.HEADERS, 1, http2.END_STREAM)
        for first in (3, 13):  # the first time, the blocks are not known yet
            calls = [(first + 2 * index, text) for index, text in enumerate(("1H", "0n", "1H", "0n", "0n"))]
            client.send(b"".join(whole_call(one, blocks[text], infer_request()) for one, text in calls))
            statuses += client.statuses(*[one for one, _ in calls])
    assert statuses == ["0", DEADLINE_EXCEEDED, "0", DEADLINE_EXCEEDED, DEADLINE_EXCEEDED] * 2
    assert executed(triton_grpc) == before + 5


class Clock:
    """An event loop's clock, which the test advances, and whose timers are not called."""

    def __init__(self):
        self.now_s = 100.0

    def time(self):
        return self.now_s

    def call_later(self, delay_s, _callback):
        due_s = self.now_s + delay_s
        return types.SimpleNamespace(when=lambda: due_s, cancel=lambda: None)


@pytest.mark.parametrize(("late_s", "is_executed"), [(-0.25, True), (0.0, False), (0.25, False)])
def test_a_request_that_ends_after_its_deadline_is_not_executed(late_s, is_executed):
    """Although the event loop reads its last bytes before it comes to the call's timer."""
    recorder, clock, executed = opened(), Clock(), []
    connection = Unread(recorder.session, clock)

    async def method(_request, _call):
        executed.append(True)
        return [b""]

    def on_headers(stream):
        stream.call = UnaryCall(connection, stream, method)

    recorder.on_headers, recorder.on_closed = on_headers, lambda stream: stream.call.close()
    recorder.receive(headers_frame(block=BLOCK + http2.encode_headers([("grpc-timeout", "1S")])))
    for begun in connection.begun_calls:
        begun.start_deadline()
    recorder.take_written()
    clock.now_s += 1 + late_s
    recorder.receive(data_frame(framed(b""), end=True))
    last = frames_of(recorder.take_written())[-1]
    assert (trailers_of(last[3])["grpc-status"], bool(executed)) == ("0" if is_executed else DEADLINE_EXCEEDED, is_executed)

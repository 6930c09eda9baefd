"""Answers and control frames over HTTP/2 that never end: the request is broken, says why, and takes little memory."""

import asyncio
import itertools
import time
from typing import Any

import pytest

from perfkit.protocol import http2
from perfkit.protocol.http2 import LimitError, frame
from perfkit.transport.base import Outcome
from perfkit.transport.grpc.messages import classify, parse_headers
from perfkit.transport.grpc.reference import ReferenceGrpcTransport
from perfkit.transport.grpc.request_writer import request_buffers
from perfkit.transport.grpc.transport import GrpcConnection, WireGrpcTransport
from perfkit.transport.options import AnswerLimit, TransportOptions
from perfkit.transport.pool import ConnectionPool
from tests.transport import servers
from tests.transport.clients import client_of
from tests.transport.http2_peer import OK_HEADERS, RecordingListener, h2_server

S = 1_000_000_000
LIMIT = AnswerLimit(1 << 20)
GREETING = frame(http2.SETTINGS, 0, 0)
HEAD = frame(http2.HEADERS, 0x4, 1, http2.encode_headers(OK_HEADERS))
REQUEST = request_buffers([(":method", "POST"), (":path", "/x")], b"\x00\x00\x00\x00\x00")
DATA = frame(http2.DATA, 0, 1, bytes(16_384))
ANNOUNCED = frame(http2.DATA, 0, 1, b"\x00" + (2_000_000_000).to_bytes(4))
TOO_LONG = "the answer is longer than 1,048,576 B"
ANNOUNCES = "the answer announces 2,000,000,000 B, more than 1,048,576 B"
CONTROL_FRAMES = {
    "PING": frame(http2.PING, 0, 0, bytes(8)),
    "PING acknowledgements": frame(http2.PING, http2.ACK, 0, bytes(8)),
    "SETTINGS": frame(http2.SETTINGS, 0, 0),
    "WINDOW_UPDATE of the connection": http2.number_frame(http2.WINDOW_UPDATE, 0, 1),
    "WINDOW_UPDATE of a stream": http2.number_frame(http2.WINDOW_UPDATE, 1, 1),
    "PRIORITY": frame(http2.PRIORITY, 0, 1, bytes(5)),
    "RST_STREAM": http2.number_frame(http2.RST_STREAM, 1, 2),
    "unknown frames": frame(0xFA, 0, 0, b"x"),
    "interim headers": frame(http2.HEADERS, 0x4, 1, http2.encode_headers([(":status", "103")])),
    "tiny DATA": frame(http2.DATA, 0, 1, bytes(16)),
    "DATA without data": frame(http2.DATA, 0, 1),
}


def opened():
    listener = RecordingListener(LIMIT.max_bytes)
    listener.session.open()
    listener.session.receive(GREETING)
    return listener, listener.send(REQUEST)


def receive_again(listener, block, times):
    for _ in range(times):
        listener.session.receive(block)


@pytest.mark.parametrize("kind", CONTROL_FRAMES)
def test_more_than_ten_thousand_control_frames_within_a_second_end_the_session(kind):
    listener, _ = opened()
    flood = (HEAD if "DATA" in kind else b"") + CONTROL_FRAMES[kind] * 1000
    with pytest.raises(LimitError, match="control frames"):
        receive_again(listener, flood, 11)
    assert len(listener.written) < 400_000


def test_as_many_in_each_second_do_not():
    listener, stream = opened()
    for _ in range(5):
        listener.time_ns += S
        listener.session.receive(CONTROL_FRAMES["PING"] * 9_999)
    assert stream.id in listener.session.streams


def test_data_for_a_cancelled_request_is_limited_too():
    listener, stream = opened()
    listener.session.receive(HEAD)
    listener.session.cancel(stream)
    with pytest.raises(LimitError, match="control frames"):
        receive_again(listener, frame(http2.DATA, 0, 1, b"x") * 1000, 11)


def test_requests_account_for_control_frames_in_proportion():
    listener, _ = opened()
    for _ in range(5_000):  # as a server that renews both windows, resets the stream and pings for each request
        stream = listener.send(REQUEST)
        listener.session.receive(
            frame(http2.HEADERS, 0x5, stream.id, http2.encode_headers([*OK_HEADERS, ("grpc-status", "0")]))
            + http2.number_frame(http2.WINDOW_UPDATE, 0, 5)
            + http2.number_frame(http2.RST_STREAM, stream.id, 0)
            + CONTROL_FRAMES["PING"]
        )
    assert len(listener.stream_events()) == 5_000


def test_a_large_request_accounts_for_the_window_updates_of_its_frames():
    listener, _ = opened()
    listener.send(request_buffers([(":method", "POST"), (":path", "/x")], bytes(100 << 20)))
    for _ in range(7_000):
        listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 16_384) + http2.number_frame(http2.WINDOW_UPDATE, 3, 16_384))
    assert not listener.session.goaway_reason


def test_a_window_that_grows_by_single_bytes_does_not_account_for_its_updates():
    listener, _ = opened()
    listener.send(request_buffers([(":method", "POST"), (":path", "/x")], bytes(1 << 20)))
    with pytest.raises(LimitError, match="control frames"):
        receive_again(listener, http2.number_frame(http2.WINDOW_UPDATE, 0, 1) + http2.number_frame(http2.WINDOW_UPDATE, 3, 1), 6_000)


@pytest.mark.parametrize(
    "data", [frame(http2.DATA, 0, 1, bytes(17)), frame(http2.DATA, 0x8, 1, bytes(18)), DATA], ids=["short", "padded", "full"]
)
def test_an_answer_without_an_end_is_refused_before_it_takes_much_memory(data):
    listener, stream = opened()
    listener.session.receive(HEAD)
    block = data * (1 << 14)
    with pytest.raises(LimitError) as caught:
        receive_again(listener, block, 100)
    assert str(caught.value) == TOO_LONG
    assert sum(map(len, stream.chunks)) + 64 * len(stream.chunks) < 6 * LIMIT.max_bytes


def test_a_server_that_does_not_read_cannot_demand_replies_without_end():
    listener, _ = opened()
    listener.session.is_writing_paused = True
    with pytest.raises(LimitError, match="does not read"):
        listener.session.receive(CONTROL_FRAMES["PING"] * 1001)


def test_large_header_blocks_are_not_kept_for_later_answers():
    cache = dict[bytes, Any]()
    reader = http2.HeaderBlockReader(dict, cache)
    for block in (http2.NO_TABLE, http2.encode_headers([("x", "a" * 2000)]), http2.encode_headers([("x", "a")])):
        reader.read(block)
    assert list(cache.values()) == [{"x": "a"}]


class Flooding:
    """Greets, waits for a request, and writes the parts, the last of them again and again, until the client closes."""

    def __init__(self, *parts):
        self._parts = itertools.chain(parts, itertools.repeat(parts[-1]))
        self.sent_bytes, self.was_closed = 0, asyncio.Event()

    async def __call__(self, reader, writer):
        writer.write(GREETING)
        await reader.readuntil(b"my model")  # in the request's message
        try:
            for part in self._parts:
                writer.write(part)
                await writer.drain()
                self.sent_bytes += len(part)
        except ConnectionError:
            self.was_closed.set()


LIVE = {
    "data": ((HEAD, DATA), TOO_LONG),
    "a message of an announced length": ((HEAD, ANNOUNCED, DATA), ANNOUNCES),
    "PING": ((CONTROL_FRAMES["PING"] * 1000,), "the server sent more than 10,000 control frames (PING, SETTINGS, WINDOW_UPDATE and the like) within a second"),
    "continued headers": ((frame(http2.HEADERS, 0, 1, b"\x00"), frame(http2.CONTINUATION, 0, 1, bytes(9))), "the server's headers are longer than 131,072 B"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LIVE)
def test_a_flood_is_broken_and_its_connection_closed(run, infer_request, kind):
    parts, reason = LIVE[kind]
    server = Flooding(*parts)

    async def main():
        async with servers.scripted_server(server) as address:
            options = TransportOptions(timeout_ns=10 * S, answer_limit=LIMIT)
            transport = client_of(WireGrpcTransport, address, options, time.monotonic_ns)
            reply = await transport.send(transport.prepare(infer_request))
            await server.was_closed.wait()
            await transport.aclose()
            return reply

    reply = run(asyncio.wait_for(main(), 60))
    assert (reply.outcome, reply.error) == (Outcome.BROKEN, reason)
    assert server.sent_bytes < 16 << 20


def test_the_reference_engine_refuses_a_message_above_the_limit(infer_request):
    async def answer(peer):
        stream_id, _, _ = await peer.requests.get()
        peer.answer(stream_id, bytes(2 << 20))
        await asyncio.get_running_loop().create_future()

    async def main():
        async with h2_server(answer, initial_window_size=1 << 24) as address:
            transport = client_of(
                ReferenceGrpcTransport, address, TransportOptions(timeout_ns=10 * S, answer_limit=LIMIT), time.monotonic_ns
            )
            await transport.open(1)
            reply = await transport.send(transport.prepare(infer_request))
            await transport.aclose()
            return reply

    reply = asyncio.run(main())
    assert (reply.outcome, reply.error) == (Outcome.BROKEN, TOO_LONG)


def test_requests_do_not_pile_up_for_a_server_that_does_not_read(run):
    """It grants all windows and reads nothing, so each time-out leaves a request's bytes in the connection's buffer."""
    largest = []

    async def grant_and_stall(_reader, writer):
        granted = http2.settings({http2.INITIAL_WINDOW_SIZE: (1 << 31) - 1}) + http2.number_frame(
            http2.WINDOW_UPDATE, 0, (1 << 31) - 65_536
        )
        writer.transport.pause_reading()
        writer.write(granted)
        await asyncio.get_running_loop().create_future()

    class MeasuredConnection(GrpcConnection):
        def send(self, buffers, reply):
            super().send(buffers, reply)
            largest.append(self._wire.get_write_buffer_size())

    def make(pool: Any) -> Any:
        return MeasuredConnection(pool, 1, {})

    async def main():
        async with servers.scripted_server(grant_and_stall) as address:
            options = TransportOptions(timeout_ns=S // 5)
            pool = ConnectionPool(address, options, time.monotonic_ns, None, make)
            await pool.open(1)
            outcomes = []
            for _ in range(4):
                reply = pool.loop.create_future()
                connection = pool.take()
                buffers = request_buffers([(":method", "POST"), (":path", "/x")], bytes(16 << 20))
                if connection is None:
                    pool.enqueue(buffers, reply)
                else:
                    connection.send(buffers, reply)
                outcomes.append((await reply).outcome)
            pool.close()
            return outcomes, pool.counts.opened

    outcomes, connections = run(main())
    assert outcomes == [Outcome.TIMED_OUT] * 4
    assert connections == 4
    assert max(largest) < 20 << 20


def test_of_a_long_page_in_place_of_an_answer_only_the_start_is_read():
    read = list[int]()

    class Chunks(list[bytes]):
        def __iter__(self):
            for number, chunk in enumerate(super().__iter__()):
                read.append(number)
                yield chunk

    page = b"<p>backend down" + b"<!--" * 4096
    outcome, error, status = classify(
        parse_headers([(":status", "503")]), None, Chunks([page[:8000], page[8000:], *[bytes(1 << 14)] * 1000])
    )
    assert (outcome, error, status) == (Outcome.REJECTED, "UNAVAILABLE: HTTP 503 without a gRPC status: backend down", "UNAVAILABLE")
    assert read == [0, 1, 2]

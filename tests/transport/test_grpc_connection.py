"""A gRPC connection: how it writes large requests, and the time-out of a call that is sent again."""

import asyncio
import contextlib
import socket
import time
from typing import Any

from h2.errors import ErrorCodes

from perfkit.protocol import http2
from perfkit.transport.base import Outcome
from perfkit.transport.grpc.request_writer import request_buffers
from perfkit.transport.grpc.transport import GrpcConnection
from perfkit.transport.options import FIRST_ANSWER_LIMIT, TransportOptions
from perfkit.transport.pool import ConnectionPool
from tests.transport.http2_peer import h2_server
from tests.transport.manual_time import ManualTime

SECOND_NS = 1_000_000_000
HEADERS = [(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a")]
FRAME_BYTES = http2.HEAD_BYTES + http2.DEFAULT_FRAME_BYTES


class RecordingWire:
    """An asyncio transport that records each write, on a socket that keeps writes apart and holds `room_bytes`."""

    def __init__(self, room_bytes=1 << 20):
        self.writes = []
        self._socket, self._reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room_bytes)
        for one in (self._socket, self._reader):
            one.setblocking(False)

    def sent(self):
        """What was written to the socket itself."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self._reader.recv(1 << 20))
        return found

    def close(self):
        self._socket.close()
        self._reader.close()

    def is_closing(self):
        return False

    def write(self, data):
        self.writes.append(data)

    def writelines(self, list_of_data):
        self.writes.append(b"".join(list_of_data))

    def get_write_buffer_size(self):
        return 0

    def set_write_buffer_limits(self, high):
        pass

    def get_extra_info(self, name):
        return self._socket if name == "socket" else None


class FakePool:
    """The part of a pool that a connection needs to send a request."""

    timeout_ns = 10**12
    answer_limit = FIRST_ANSWER_LIMIT
    now_ns = staticmethod(time.monotonic_ns)

    def __init__(self, *, has_concurrent_requests):
        self.loop, self.has_concurrent_requests = ManualTime(), has_concurrent_requests


async def writes_of_large_request(*, has_concurrent_requests=False, room_bytes=1 << 20):
    """What is written to the socket itself, and what to the transport."""
    wire: Any = RecordingWire(room_bytes)
    pool: Any = FakePool(has_concurrent_requests=has_concurrent_requests)
    connection = GrpcConnection(pool, 1, {})
    connection.connection_made(wire)
    windows = http2.settings({http2.INITIAL_WINDOW_SIZE: 1 << 20}) + http2.number_frame(http2.WINDOW_UPDATE, 0, 1 << 20)
    connection.data_received(windows)
    before = len(wire.writes)
    connection.send(request_buffers(HEADERS, bytes(200_000)), asyncio.get_running_loop().create_future())
    with contextlib.closing(wire):
        return wire.sent(), wire.writes[before:]


def test_a_single_request_is_written_frame_by_frame_and_its_headers_with_the_first():
    sent, writes = asyncio.run(writes_of_large_request())
    assert [len(data) for data in sent[1:-1]] == [FRAME_BYTES] * 11
    assert sent[0][3] == http2.HEADERS
    assert not writes


def test_what_a_full_socket_does_not_take_goes_to_the_transport():
    whole = b"".join(asyncio.run(writes_of_large_request())[0])
    sent, writes = asyncio.run(writes_of_large_request(room_bytes=70_000))
    assert 0 < len(sent) < 12
    assert len(writes) == 2, "the frame that did not fit, then all others"
    assert b"".join((*sent, *writes)) == whole


def test_with_concurrent_requests_the_same_bytes_are_a_single_write():
    sent, (write,) = asyncio.run(writes_of_large_request(has_concurrent_requests=True))
    assert not sent
    assert write == b"".join(asyncio.run(writes_of_large_request())[0])


def test_one_time_out_covers_both_sendings_of_a_refused_call(run):
    async def main():
        received = asyncio.Event()
        manual: Any = ManualTime()

        async def refuse_then_hang(peer):
            first, _, _ = await peer.requests.get()
            manual.advance(20 * SECOND_NS)
            peer.h2.reset_stream(first, ErrorCodes.REFUSED_STREAM)
            peer.flush()
            await peer.requests.get()
            received.set()
            await asyncio.get_running_loop().create_future()

        async with h2_server(refuse_then_hang) as address:
            options = TransportOptions(timeout_ns=30 * SECOND_NS)
            pool = ConnectionPool(address, options, manual.read_ns, None, lambda pool: GrpcConnection(pool, 1, {}))
            pool.loop = manual
            await pool.open(1)
            manual.advance(SECOND_NS)
            reply = pool.loop.create_future()
            connection = pool.take()
            assert connection is not None
            connection.send(request_buffers(HEADERS, bytes(5)), reply)
            await received.wait()
            manual.advance(10 * SECOND_NS - 1)
            assert not reply.done()
            manual.advance(1)
            pool.close()
            return await reply

    reply = run(main())
    assert (reply.outcome, reply.started_ns, reply.finished_ns) == (Outcome.TIMED_OUT, SECOND_NS, 31 * SECOND_NS)

"""A gRPC connection: how it writes large requests, and the time-out of a call that is sent again."""

import asyncio
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
    """An asyncio transport that records each write."""

    def __init__(self):
        self.writes = []

    def write(self, data):
        self.writes.append(data)

    def writelines(self, list_of_data):
        self.writes.append(b"".join(list_of_data))

    def set_write_buffer_limits(self, high):
        pass

    def get_extra_info(self, name):
        return None


class FakePool:
    """The part of a pool that a connection needs to send a request."""

    timeout_ns = 10**12
    answer_limit = FIRST_ANSWER_LIMIT
    now_ns = staticmethod(time.monotonic_ns)

    def __init__(self, *, has_concurrent_requests):
        self.loop, self.has_concurrent_requests = ManualTime(), has_concurrent_requests


async def writes_of_large_request(*, has_concurrent_requests):
    wire: Any = RecordingWire()
    pool: Any = FakePool(has_concurrent_requests=has_concurrent_requests)
    connection = GrpcConnection(pool, 1, {})
    connection.connection_made(wire)
    windows = http2.settings({http2.INITIAL_WINDOW_SIZE: 1 << 20}) + http2.number_frame(http2.WINDOW_UPDATE, 0, 1 << 20)
    connection.data_received(windows)
    before = len(wire.writes)
    connection.send(request_buffers(HEADERS, bytes(200_000)), asyncio.get_running_loop().create_future())
    return wire.writes[before:]


def test_a_single_request_is_written_64_kib_at_a_time_and_its_headers_with_the_first():
    writes = asyncio.run(writes_of_large_request(has_concurrent_requests=False))
    assert len(writes) == 4
    assert writes[0][3] == http2.HEADERS
    assert all(3 * FRAME_BYTES < len(data) <= 4 * FRAME_BYTES for data in writes[:-1])


def test_with_concurrent_requests_the_same_bytes_are_a_single_write():
    (write,) = asyncio.run(writes_of_large_request(has_concurrent_requests=True))
    assert write == b"".join(asyncio.run(writes_of_large_request(has_concurrent_requests=False)))


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

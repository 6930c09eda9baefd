"""How a large gRPC request goes out: frame by frame while nothing else is in flight, otherwise in one write."""

import asyncio
import time
from typing import Any

import pytest

from perfkit.protocol import http2
from perfkit.protocol.http2 import frame
from perfkit.transport.grpc.connection import GrpcConnection
from perfkit.transport.grpc.stream import prepare
from perfkit.transport.http.connection import Connection
from perfkit.transport.options import TransportOptions
from perfkit.transport.pool import ConnectionPool
from tests.transport import servers

BUFFERS = prepare([(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a")], bytes(40_000))
FRAME_BYTES = http2.HEAD_BYTES + http2.DEFAULT_FRAME_BYTES


class Wire:
    """A connection's transport that keeps each write by itself."""

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


class Pool:
    """As far as a connection asks for it to send a request."""

    timeout_ns = 10**12
    now_ns = staticmethod(time.monotonic_ns)

    def __init__(self, *, is_quiet):
        self.loop, self.is_quiet = asyncio.get_running_loop(), is_quiet


async def writes_of(*, is_quiet):
    wire: Any = Wire()
    pool: Any = Pool(is_quiet=is_quiet)
    connection = GrpcConnection(pool, 1, {})
    connection.connection_made(wire)
    connection.data_received(frame(http2.SETTINGS, 0, 0))
    before = len(wire.writes)
    connection.send(BUFFERS, asyncio.get_running_loop().create_future())
    connection._timer.cancel()
    return wire.writes[before:]


def test_alone_each_frame_is_written_by_itself_and_the_head_with_the_first():
    writes = asyncio.run(writes_of(is_quiet=True))
    assert [len(one) for one in writes[1:]] == [FRAME_BYTES, 40_000 - 2 * http2.DEFAULT_FRAME_BYTES + http2.HEAD_BYTES]
    assert writes[0].endswith(frame(http2.DATA, 0, 1, bytes(http2.DEFAULT_FRAME_BYTES)))
    assert len(writes[0]) > FRAME_BYTES


def test_beside_others_it_is_one_write_of_the_same_bytes():
    (whole,) = asyncio.run(writes_of(is_quiet=False))
    assert whole == b"".join(asyncio.run(writes_of(is_quiet=True)))


@pytest.mark.parametrize("requests_each", [1, 3])
def test_a_pool_is_quiet_with_one_request_in_flight_and_not_with_two(requests_each):
    async def main():
        async with servers.scripted_server(servers.answering(b"")) as address:
            pool = ConnectionPool(
                address,
                TransportOptions(max_connections=2, timeout_ns=10**10, streams_per_connection=requests_each),
                time.monotonic_ns,
                None,
                Connection,
            )
            for _ in range(2):
                connection = await pool.connect()
                for _ in range(requests_each):
                    pool.give_back(connection)
            seen = [pool.is_quiet]
            taken: list[Any] = []
            for _ in range(2):
                taken.append(pool.take())
                seen.append(pool.is_quiet)
            pool.give_back(taken.pop())
            seen.append(pool.is_quiet)
            pool.take()
            pool.forget(taken.pop())  # with requests in flight, which another connection takes over
            seen.append(pool.is_quiet)
            pool.close()
            return seen

    assert asyncio.run(main()) == [True, True, False, True, True]


def test_a_connection_that_was_lost_while_idle_does_not_count_as_one(run):
    async def main():
        async with servers.scripted_server(servers.answering(b"")) as address:
            pool = ConnectionPool(address, TransportOptions(max_connections=3, timeout_ns=10**10), time.monotonic_ns, None, Connection)
            lost, first, second = [await pool.connect() for _ in range(3)]
            for connection in (lost, first, second):
                pool.give_back(connection)
            pool.forget(lost)
            assert (pool.take(), pool.take()) == (second, first)
            assert not pool.is_quiet
            pool.close()

    run(main())

"""Rotation of connections as the server sees it: how many it accepts, and how many requests come on each."""

import asyncio
import contextlib
import dataclasses
import time

import pytest

from perfkit.clock import MonotonicClock
from perfkit.transport.base import Outcome
from perfkit.transport.options import Rotation, TransportOptions
from tests.conditions import until
from tests.transport.clients import make_open_client
from tests.transport.counting_server import REQUEST, counting_server
from tests.transport.grpc_servers import scripted_grpc_server
from tests.transport.servers import answering, scripted_server

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(params=["http", "grpc"])
def protocol(request):
    return request.param


class SetClock(MonotonicClock):
    """A clock that a test sets; timers are the event loop's own."""

    def __init__(self):
        self.at_ns = time.monotonic_ns()

    def now_ns(self):
        return self.at_ns


@contextlib.asynccontextmanager
async def connected(address, clock=None, max_connections=1, streams=1, **limits):
    options = TransportOptions(
        timeout_ns=20_000_000_000,
        max_connections=max_connections,
        streams_per_connection=streams,
        rotation=Rotation(**limits) if limits else None,
    )
    async with contextlib.aclosing(make_open_client(address, options, clock or MonotonicClock())) as transport:
        yield transport


async def send(transport, count=1):
    prepared = transport.prepare(REQUEST)
    return [(await transport.send(prepared)).outcome for _ in range(count)]


@pytest.mark.parametrize(("requests", "limit", "expected"), [(10, 3, [3, 3, 3, 1]), (9, 3, [3, 3, 3]), (5, 1, [1] * 5), (2, 7, [2])])
def test_one_slot_uses_a_connection_for_exactly_so_many_requests(protocol, requests, limit, expected):
    async def main():
        async with counting_server(protocol) as server, connected(server.address, max_requests=limit) as transport:
            assert await send(transport, requests) == [Outcome.OK] * requests
            await until(lambda: sum(server.requests) == requests)
            counts = transport.counts
            assert (server.requests, counts.opened, counts.rotated) == (expected, len(expected), requests // limit)
            assert (counts.reconnects, counts.retried) == (0, 0)
            assert counts.connect_times.counts().count == len(expected)
            await until(lambda: server.open_now <= 1)  # what was rotated is closed

    asyncio.run(main())


def test_slots_share_the_connections_and_none_gets_more_than_its_requests(protocol):
    async def main():
        async with counting_server(protocol) as server, connected(server.address, max_connections=3, max_requests=4) as transport:
            outcomes = await asyncio.gather(*(send(transport, 25) for _ in range(3)))
            assert outcomes == [[Outcome.OK] * 25] * 3
            assert sum(server.requests) == 75
            assert max(server.requests) == 4
            assert sum(count < 4 for count in server.requests) <= 3  # those that were open at the end
            assert transport.counts.rotated == server.requests.count(4)

    asyncio.run(main())


def test_without_rotation_a_slot_keeps_its_connection(protocol):
    async def main():
        async with counting_server(protocol) as server, connected(server.address) as transport:
            await send(transport, 12)
            assert (server.requests, transport.counts.rotated) == ([12], 0)

    asyncio.run(main())


def test_a_connection_that_is_too_old_is_replaced_before_the_next_request(protocol):
    async def main():
        clock = SetClock()
        async with counting_server(protocol) as server, connected(server.address, clock, max_age_ns=10**9) as transport:
            await send(transport, 2)
            clock.at_ns += 10**9 - 1
            await send(transport, 2)
            assert server.requests == [4]
            clock.at_ns += 1
            await send(transport, 3)
            assert (server.requests, transport.counts.rotated, transport.counts.reconnects) == ([4, 3], 1, 0)

    asyncio.run(main())


@pytest.mark.parametrize("protocol", ["grpc"])
def test_streams_in_flight_are_answered_before_their_connection_closes(protocol):
    async def main():
        gate, arrived = asyncio.Event(), 0

        async def wait():
            nonlocal arrived
            arrived += 1
            await gate.wait()

        async with (
            counting_server(protocol, before_answer=wait) as server,
            connected(server.address, max_connections=2, streams=4, max_requests=3) as transport,
        ):
            replies = [asyncio.ensure_future(send(transport)) for _ in range(5)]
            await until(lambda: arrived == 5)
            assert server.requests == [3, 2]  # the first may not take a fourth, and is not closed either
            gate.set()
            assert await asyncio.gather(*replies) == [[Outcome.OK]] * 5
            await until(lambda: server.open_now == 1)
            assert (transport.counts.rotated, transport.counts.retried) == (1, 0)

    asyncio.run(main())


def test_a_connection_that_rotates_still_counts_towards_the_limit():
    """The requests that wait get the next connection only when the old one is closed."""

    async def main():
        async with counting_server("http") as server, connected(server.address, max_connections=2, max_requests=1) as transport:
            await asyncio.gather(*(send(transport, 10) for _ in range(6)))
            assert (server.requests, server.most_open) == ([1] * 60, 2)

    asyncio.run(main())


def test_a_connection_that_the_server_closes_counts_as_lost_and_not_as_rotated():
    async def main():
        async with scripted_server(answering(OK), answering(OK, OK, OK)) as address, connected(address, max_requests=3) as transport:
            assert await send(transport, 4) == [Outcome.OK] * 4
            counts = transport.counts
            # the first was lost after one request; the second took three
            assert (counts.opened, counts.rotated, counts.reconnects) == (2, 1, 1)

    asyncio.run(main())


def test_goaway_moves_requests_to_another_connection_while_rotation_is_on():
    served = []

    def script(call):
        served.append(call.stream)
        call.answer(b"")
        if len(served) == 2:
            call.go_away()

    async def main():
        async with (
            scripted_grpc_server(script) as address,
            connected(dataclasses.replace(address, protocol="grpc"), max_requests=4) as transport,
        ):
            assert await send(transport, 7) == [Outcome.OK] * 7
            counts = transport.counts
            assert (counts.rotated, counts.reconnects) == (1, 1)
            assert served == [1, 3, 1, 3, 5, 7, 1]  # streams of three connections

    asyncio.run(main())


def test_requests_fail_where_no_connection_can_be_opened_in_place_of_a_rotated_one(protocol):
    async def main():
        async with counting_server(protocol) as server, connected(server.address, max_requests=2) as transport:
            assert await send(transport, 2) == [Outcome.OK] * 2
            await until(lambda: server.open_now == 0)
        # the server is gone, and the transport closed: another one that rotated its connection meets nobody
        async with connected(server.address, max_requests=2) as transport:
            assert await send(transport, 1) == [Outcome.CONNECT_FAILED]

    asyncio.run(main())

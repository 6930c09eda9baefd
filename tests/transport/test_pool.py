"""Which connection a request gets, and how long it may take, by a clock in the test's hands."""

import asyncio
import itertools
import socket
import time

from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.http.connection import Connection
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from perfkit.transport.pool import ConnectionPool
from tests.transport import servers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
PING = Prepared((b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",))
SECOND_NS = 1_000_000_000


class Hands:
    """A clock that moves when it is told to."""

    def __init__(self):
        self.now_ns = 0

    def read(self):
        return self.now_ns


def test_each_request_has_its_whole_time_though_connections_keep_one_timer(run):
    hands = Hands()

    async def main():
        async with servers.scripted_server(servers.answering(OK)) as address:
            pool = ConnectionPool(address, TransportOptions(timeout_ns=30 * SECOND_NS), hands.read, None, Connection)
            connection = await pool.connect()
            first, second = pool.loop.create_future(), pool.loop.create_future()
            connection.send(PING.buffers, first)
            await first
            timer = connection._timer
            hands.now_ns = 20 * SECOND_NS
            connection.send(PING.buffers, second)
            assert connection._timer is timer
            hands.now_ns = 30 * SECOND_NS
            connection._check_deadline()  # as the timer does
            assert not second.done()
            assert connection._timer.when() - pool.loop.time() <= 20.5, "what is left of it, not all of it again"
            hands.now_ns = 50 * SECOND_NS
            connection._check_deadline()
            pool.close()
            return await second

    reply = run(main())
    assert (reply.outcome, reply.started_ns, reply.finished_ns) == (Outcome.TIMED_OUT, 20 * SECOND_NS, 50 * SECOND_NS)
    assert reply.error == "no complete answer within 30.0 s"


def test_an_idle_connection_has_no_deadline(run):
    hands = Hands()

    async def main():
        async with servers.scripted_server(servers.answering(OK, OK)) as address:
            pool = ConnectionPool(address, TransportOptions(timeout_ns=SECOND_NS), hands.read, None, Connection)
            connection = await pool.connect()
            for _ in range(2):
                reply = pool.loop.create_future()
                connection.send(PING.buffers, reply)
                assert (await reply).outcome is Outcome.OK
                hands.now_ns += 100 * SECOND_NS
                connection._check_deadline()
                assert connection.is_usable
                assert connection._timer is None
            pool.close()

    run(main())


def test_time_starts_once_the_connection_stands(run):
    async def main():
        async with servers.scripted_server(servers.answering(OK, OK)) as address:
            opened_when_read: list[int] = []
            ticks = itertools.count()

            def read():
                opened_when_read.append(wire.counts.opened)
                return next(ticks)

            wire = WireHttpTransport(address, TransportOptions(timeout_ns=30 * SECOND_NS), read)
            replies = [await wire.send(PING) for _ in range(2)]
            await wire.aclose()
            return replies, opened_when_read

    replies, opened_when_read = run(main())
    assert [(reply.started_ns, reply.finished_ns) for reply in replies] == [(1, 2), (3, 4)]
    assert opened_when_read[:5] == [0, 1, 1, 1, 1]  # the first is when the connection was asked for: a failure's start


def test_the_connection_used_last_is_used_first(run):
    used: list[int] = []
    numbers = itertools.count()

    async def main():
        all_asked = asyncio.Event()

        async def numbered(reader, writer):
            number = next(numbers)
            while True:
                await servers.read_request(reader)
                used.append(number)
                if len(used) == 3:
                    all_asked.set()
                await all_asked.wait()
                writer.write(OK)

        async with servers.scripted_server(numbered) as address:
            wire = WireHttpTransport(address, TransportOptions(max_connections=8, timeout_ns=30 * SECOND_NS), int)
            await asyncio.gather(*(_reply(wire) for _ in range(3)))
            for _ in range(5):
                await wire.send(PING)
            await wire.aclose()
            return wire.counts

    counts = run(main())
    assert counts.opened == 3
    assert sorted(used[:3]) == [0, 1, 2]
    assert len(set(used[3:])) == 1


def test_requests_beyond_the_limit_wait_in_turn_and_start_when_they_are_sent(run):
    ticks = itertools.count()
    order: list[bytes] = []

    async def main():
        async def noting(reader, writer):
            while True:
                head, _ = await servers.read_request(reader)
                order.append(head.split()[1])
                writer.write(OK)

        async with servers.scripted_server(noting) as address:
            wire = WireHttpTransport(address, TransportOptions(timeout_ns=30 * SECOND_NS), lambda: next(ticks))
            replies = await asyncio.gather(*(_reply(wire, b"/%d" % number) for number in range(20)))
            await wire.aclose()
            return replies, wire.counts

    replies, counts = run(main())
    assert order == [b"/%d" % number for number in range(20)]
    # after the twenty instants at which they were asked for; one at a time: each starts after the one before it has finished
    assert [(reply.started_ns, reply.finished_ns) for reply in replies] == [(20 + 2 * number, 21 + 2 * number) for number in range(20)]
    assert counts.opened == 1


def test_a_request_that_waits_takes_over_when_a_connection_is_lost(run):
    async def main():
        async with servers.scripted_server(servers.answering(b"garbage\r\n\r\n"), servers.answering(OK, OK, OK)) as address:
            wire = WireHttpTransport(address, TransportOptions(timeout_ns=30 * SECOND_NS), int)
            replies = await asyncio.gather(*(_reply(wire) for _ in range(4)))
            await wire.aclose()
            return replies, wire.counts

    replies, counts = run(main())
    assert [reply.outcome for reply in replies] == [Outcome.BROKEN, *[Outcome.OK] * 3]
    assert (counts.opened, counts.reconnects) == (2, 1)


def test_every_request_that_waits_for_a_server_that_is_gone_fails(run):
    async def main():
        async with servers.scripted_server() as address:
            pass
        wire = WireHttpTransport(address, TransportOptions(timeout_ns=30 * SECOND_NS), int)
        replies = await asyncio.gather(*(_reply(wire) for _ in range(5)))
        await wire.aclose()
        return replies

    assert [reply.outcome for reply in run(main())] == [Outcome.CONNECT_FAILED] * 5


def test_a_request_that_is_sent_after_all_was_abandoned_is_unfinished(run):
    async def main():
        async with servers.scripted_server(servers.hanging()) as address:
            wire = WireHttpTransport(address, TransportOptions(timeout_ns=30 * SECOND_NS), int)
            sending = wire.send(PING)
            wire.abandon()
            reply = await sending
            await wire.aclose()
            return reply

    assert run(main()).outcome is Outcome.UNFINISHED


def test_connections_are_opened_ahead_and_used(run):
    async def main():
        async with servers.scripted_server(servers.answering(OK)) as address:
            wire = WireHttpTransport(address, TransportOptions(max_connections=3, timeout_ns=30 * SECOND_NS), int)
            await wire.open(3)
            opened = wire.counts.opened
            replies = await asyncio.gather(*(_reply(wire) for _ in range(3)))
            await wire.aclose()
            return opened, replies, wire.counts

    opened, replies, counts = run(main())
    assert opened == counts.opened == 3
    assert [reply.outcome for reply in replies] == [Outcome.OK] * 3


def test_a_server_that_never_takes_the_connection_fails_it_by_the_time_out(run):
    async def main():
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            host, port = full.getsockname()
            fillers = [socket.socket() for _ in range(8)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex((host, port))
            wire = WireHttpTransport(Address("http", host, port), TransportOptions(timeout_ns=50_000_000), int)
            reply = await wire.send(PING)
            await wire.aclose()
            for filler in fillers:
                filler.close()
            return reply

    reply = run(main())
    assert reply.outcome is Outcome.CONNECT_FAILED
    assert "no answer within the time-out" in reply.error


def get(path):
    return Prepared((b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path,))


async def _reply(wire, path=b"/"):
    return await wire.send(get(path))


def test_a_request_that_waits_its_time_out_away_for_a_connection_is_timed_out(run):
    """The target is there: it is no failure to connect."""

    async def main():
        async with servers.scripted_server(servers.hanging()) as address:
            wire = WireHttpTransport(address, TransportOptions(timeout_ns=50_000_000), time.monotonic_ns)
            replies = await asyncio.gather(*(wire.send(PING) for _ in range(3)))
            await wire.aclose()
            return replies

    assert {reply.outcome for reply in run(main())} == {Outcome.TIMED_OUT}

"""The connection pool and HTTP connections: which connection a request gets, its time-out, and targets that refuse."""

import asyncio
import itertools
import socket
import time
from typing import Any

import pytest

from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.http.connection import HttpConnection
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from perfkit.transport.pool import ConnectionPool, pause_s
from tests.conditions import passes, until
from tests.transport import servers
from tests.transport.clients import client_of
from tests.transport.manual_time import ManualTime

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
SECOND_NS = 1_000_000_000
TIMEOUT_NS = 30 * SECOND_NS


def get(path=b"/"):
    return Prepared((b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path,))


async def send(transport, path=b"/"):
    return await transport.send(get(path))


class Pool(ConnectionPool[HttpConnection]):
    """A pool in manual time that counts its attempts to connect."""

    def __init__(self, address, max_connections=1):
        self.time = ManualTime()
        options = TransportOptions(max_connections=max_connections, timeout_ns=TIMEOUT_NS)
        super().__init__(address, options, self.time.read_ns, None, self._make_connection)
        self.loop: Any = self.time
        self.attempts = 0

    def _make_connection(self, pool):
        return HttpConnection(pool)

    async def connect(self):
        self.attempts += 1
        return await super().connect()

    def request(self):
        """Sends a request as a transport does."""
        reply = self.loop.create_future()
        connection = self.take()
        if connection is None:
            self.enqueue(get().buffers, reply)
        else:
            connection.send(get().buffers, reply)
        return reply


def stale_after(event):
    """Answers one request; receives another one and closes the connection on `event`."""

    async def handle(reader, writer):
        await servers.read_request(reader)
        writer.write(OK)
        await servers.read_request(reader)
        await event.wait()

    return handle


async def unused_address():
    async with servers.scripted_server() as address:
        return address


async def outcomes(replies):
    return [reply.outcome for reply in await asyncio.gather(*replies)]


def transport_to(address, now_ns=int, **options):
    return client_of(WireHttpTransport, address, TransportOptions(**{"timeout_ns": TIMEOUT_NS, **options}), now_ns)


# connections


def test_the_most_recently_used_connection_is_used_first(run):
    used: list[int] = []
    numbers = itertools.count()

    async def main():
        all_received = asyncio.Event()

        async def numbered(reader, writer):
            number = next(numbers)
            while True:
                await servers.read_request(reader)
                used.append(number)
                if len(used) == 3:
                    all_received.set()
                await all_received.wait()
                writer.write(OK)

        async with servers.scripted_server(numbered) as address:
            transport = transport_to(address, max_connections=8)
            await asyncio.gather(*(send(transport) for _ in range(3)))
            for _ in range(5):
                await send(transport)
            await transport.aclose()
            return transport.counts

    counts = run(main())
    assert counts.opened == 3
    assert sorted(used[:3]) == [0, 1, 2]
    assert len(set(used[3:])) == 1


def test_requests_above_the_connection_limit_are_sent_in_order_and_start_when_they_are_sent(run):
    ticks = itertools.count()
    order: list[bytes] = []

    async def main():
        async def record(reader, writer):
            while True:
                head, _ = await servers.read_request(reader)
                order.append(head.split()[1])
                writer.write(OK)

        async with servers.scripted_server(record) as address:
            transport = transport_to(address, lambda: next(ticks))
            replies = await asyncio.gather(*(send(transport, b"/%d" % number) for number in range(20)))
            await transport.aclose()
            return replies, transport.counts

    replies, counts = run(main())
    assert order == [b"/%d" % number for number in range(20)]
    # the first twenty readings of the clock are the submissions, the next two are for the connect time
    assert [(reply.started_ns, reply.finished_ns) for reply in replies] == [(22 + 2 * number, 23 + 2 * number) for number in range(20)]
    assert counts.opened == 1


def test_the_start_of_a_request_excludes_the_opening_of_its_connection(run):
    async def main():
        async with servers.scripted_server(servers.answering(OK, OK)) as address:
            opened_at_reading: list[int] = []
            ticks = itertools.count()

            def read_ns():
                opened_at_reading.append(transport.counts.opened)
                return next(ticks)

            transport = transport_to(address, read_ns)
            replies = [await send(transport) for _ in range(2)]
            await transport.aclose()
            return replies, opened_at_reading

    replies, opened_at_reading = run(main())
    assert [(reply.started_ns, reply.finished_ns) for reply in replies] == [(3, 4), (5, 6)]
    assert opened_at_reading[:7] == [0, 0, 1, 1, 1, 1, 1]  # the first reading is the submission, the next two are for the connect time


def test_connections_opened_ahead_are_used(run):
    async def main():
        async with servers.scripted_server(servers.answering(OK)) as address:
            transport = transport_to(address, max_connections=3)
            await transport.open(3)
            opened = transport.counts.opened
            replies = await asyncio.gather(*(send(transport) for _ in range(3)))
            await transport.aclose()
            return opened, replies, transport.counts

    opened, replies, counts = run(main())
    assert opened == counts.opened == 3
    assert [reply.outcome for reply in replies] == [Outcome.OK] * 3


class CountingPool(Pool):
    """A pool whose connections need no server; the first `refused` attempts fail."""

    def __init__(self, max_connections, refused=0):
        super().__init__(servers.NOWHERE, max_connections)
        self.written: list[bytes] = []
        self.refused = refused
        self.opening = self.most = 0

    async def connect(self):
        self.attempts += 1
        is_refused = self.attempts <= self.refused
        self.opening += 1
        self.most = max(self.most, self.opening)
        await asyncio.sleep(0)
        self.opening -= 1
        if is_refused:
            raise ConnectionRefusedError
        self._failures = 0
        connection: Any = HttpConnection(self)
        connection._write, connection.is_closing, connection.is_usable = self.written.append, lambda: False, True
        self._connections.add(connection)
        return connection


def test_many_connections_are_opened_a_thousand_at_a_time(run):
    async def main():
        pool = CountingPool(2500)
        await pool.open(2500)
        return pool.most, len(pool._connections)

    assert run(main()) == (1024, 2500)


@pytest.mark.parametrize("refused", [0, 1000])
def test_many_connections_for_queued_requests_are_opened_a_thousand_at_a_time(run, refused):
    async def main():
        pool = CountingPool(2500, refused)
        for _ in range(2500):
            pool.request()
        if refused:
            await until(lambda: pool.attempts == 1024 and not pool.opening)
            assert len(pool.written) == 24
            pool.time.advance(10_000_000)
        await until(lambda: len(pool.written) == 2500)
        results = pool.most, pool.attempts - refused
        pool.close()
        return results

    assert run(main()) == (1024, 2500)


def test_a_lost_connection_is_replaced_for_queued_requests(run):
    async def main():
        async with servers.scripted_server(servers.answering(b"garbage\r\n\r\n"), servers.answering(OK, OK, OK)) as address:
            transport = transport_to(address)
            replies = await asyncio.gather(*(send(transport) for _ in range(4)))
            await transport.aclose()
            return replies, transport.counts

    replies, counts = run(main())
    assert [reply.outcome for reply in replies] == [Outcome.BROKEN, *[Outcome.OK] * 3]
    assert (counts.opened, counts.reconnects) == (2, 1)


def test_bytes_after_an_answer_do_not_answer_a_queued_request(run):
    """Both arrive in one chunk, and the queued request waits for this very connection."""

    async def main():
        async with servers.scripted_server(servers.hanging(), servers.answering(OK)) as address:
            pool = Pool(address)
            connection = await pool.connect()
            pool.release(connection)
            first, second = pool.request(), pool.request()
            connection.data_received(OK + b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
            results = await outcomes([first, second])
            pool.close()
            return results, pool.counts

    results, counts = run(main())
    assert results == [Outcome.OK, Outcome.OK]
    assert (counts.opened, counts.reconnects) == (2, 1)


def test_a_cancelled_request_in_the_queue_is_skipped(run):
    async def main():
        async with servers.scripted_server(servers.answering(OK, OK)) as address:
            pool = Pool(address)
            replies = [pool.request() for _ in range(3)]
            replies[1].cancel()
            results = [(await replies[0]).outcome, (await replies[2]).outcome]
            pool.close()
            return results

    assert run(main()) == [Outcome.OK] * 2


@pytest.mark.parametrize("streams", [1, 3])
def test_requests_are_concurrent_from_the_second_one_in_flight(streams):
    async def main():
        async with servers.scripted_server(servers.answering(b"")) as address:
            options = TransportOptions(max_connections=2, timeout_ns=TIMEOUT_NS, streams_per_connection=streams)
            pool = ConnectionPool(address, options, time.monotonic_ns, None, HttpConnection)
            for _ in range(2):
                connection = await pool.connect()
                for _ in range(streams):
                    pool.release(connection)
            results = [pool.has_concurrent_requests]
            taken: list[Any] = []
            for _ in range(2):
                taken.append(pool.take())
                results.append(pool.has_concurrent_requests)
            pool.release(taken.pop())
            results.append(pool.has_concurrent_requests)
            pool.take()
            pool.remove(taken.pop())  # with its requests, which are sent again
            results.append(pool.has_concurrent_requests)
            pool.close()
            return results

    assert asyncio.run(main()) == [False, False, True, False, False]


def test_an_idle_connection_that_was_lost_counts_as_no_request(run):
    async def main():
        async with servers.scripted_server(servers.answering(b"")) as address:
            pool = Pool(address, max_connections=3)
            lost, first, second = [await pool.connect() for _ in range(3)]
            for connection in (lost, first, second):
                pool.release(connection)
            pool.remove(lost)
            assert (pool.take(), pool.take()) == (second, first)
            assert pool.has_concurrent_requests
            pool.close()

    run(main())


# time-outs


def test_each_request_has_the_full_time_out_although_a_connection_has_one_timer(run):
    async def main():
        async with servers.scripted_server(servers.answering(OK)) as address:
            pool = Pool(address)
            pool.release(await pool.connect())
            await pool.request()
            timers = pool.time.pending
            pool.time.advance(20 * SECOND_NS)
            second = pool.request()
            assert pool.time.pending == timers
            pool.time.advance(29 * SECOND_NS)
            assert not second.done()
            pool.time.advance(SECOND_NS)
            pool.close()
            return await second

    reply = run(main())
    assert (reply.outcome, reply.started_ns, reply.finished_ns) == (Outcome.TIMED_OUT, 20 * SECOND_NS, 50 * SECOND_NS)
    assert reply.error == "no complete answer within 30.0 s"


def test_an_idle_connection_has_no_deadline(run):
    async def main():
        async with servers.scripted_server(servers.answering(OK, OK)) as address:
            pool = Pool(address)
            pool.release(await pool.connect())
            for _ in range(2):
                assert (await pool.request()).outcome is Outcome.OK
                pool.time.advance(100 * SECOND_NS)
                assert pool.time.pending == 0
            assert pool.counts.opened == 1
            pool.close()

    run(main())


def test_a_connection_whose_answer_did_not_come_in_time_is_not_used_again(run):
    async def main():
        received = asyncio.Event()

        async def hang(reader, _writer):
            await servers.read_request(reader)
            received.set()
            await asyncio.get_running_loop().create_future()

        async with servers.scripted_server(hang, servers.answering(OK)) as address:
            pool = Pool(address)
            await pool.open(1)
            first = pool.request()
            await received.wait()
            pool.time.advance(TIMEOUT_NS)
            late, fine = await first, await pool.request()
            pool.close()
            return late, fine, pool.counts

    late, fine, counts = run(main())
    assert (late.outcome, late.finished_ns - late.started_ns) == (Outcome.TIMED_OUT, TIMEOUT_NS)
    assert fine.outcome is Outcome.OK
    assert (counts.opened, counts.reconnects) == (2, 1)


def test_one_time_out_covers_the_wait_for_a_connection_and_the_answer(run):
    async def main():
        async with servers.scripted_server(servers.hanging()) as address:
            pool = Pool(address)
            connection = await pool.connect()
            pool.release(connection)
            pool.request()
            queued = pool.request()
            pool.time.advance(20 * SECOND_NS)
            connection.data_received(OK)
            pool.time.advance(10 * SECOND_NS - 1)
            assert not queued.done()
            pool.time.advance(1)
            pool.close()
            return await queued

    reply = run(main())
    assert (reply.outcome, reply.started_ns, reply.finished_ns) == (Outcome.TIMED_OUT, 20 * SECOND_NS, TIMEOUT_NS)


def test_a_connection_that_becomes_free_as_the_queued_request_times_out_is_not_lost(run):
    async def main():
        async with servers.scripted_server(servers.hanging()) as address:
            pool = Pool(address)
            connection = await pool.connect()
            pool.release(connection)
            first = pool.request()
            pool.time.advance(10 * SECOND_NS)
            second = pool.request()
            pool.time.advance(20 * SECOND_NS - 1)
            connection.data_received(OK)
            assert first.result().outcome is Outcome.OK
            third = pool.request()
            pool.time.advance(10 * SECOND_NS + 1)
            assert second.result().outcome is Outcome.TIMED_OUT
            assert not third.done()
            pool.close()

    run(main())


def test_a_queued_request_that_times_out_leaves_the_connection_for_the_next_one(run):
    async def main():
        async with servers.scripted_server(servers.hanging()) as address:
            pool = Pool(address)
            connection = await pool.connect()
            pool.release(connection)
            assert pool.take() is connection
            queued = pool.request()
            pool.time.advance(10 * SECOND_NS)
            in_flight = pool.loop.create_future()
            connection.send(get().buffers, in_flight)
            pool.time.advance(20 * SECOND_NS)
            assert queued.result().outcome is Outcome.TIMED_OUT
            connection.data_received(OK)
            assert in_flight.result().outcome is Outcome.OK
            assert pool.take() is connection
            pool.close()

    run(main())


def test_a_connection_whose_transport_has_failed_is_passed_over_before_the_loss_is_reported(run):
    async def main():
        async with servers.scripted_server(servers.hanging()) as address:
            pool = Pool(address, max_connections=2)
            sound, failed = await pool.connect(), await pool.connect()
            pool.release(sound)
            pool.release(failed)
            failed._wire.abort()
            assert failed.is_usable  # asyncio has not called `connection_lost` yet
            assert pool.take() is sound
            assert pool.take() is None
            pool.close()

    run(main())


def test_a_request_that_no_connection_becomes_free_for_times_out(run):
    """The target is there, so it is not a failure to connect."""

    async def main():
        async with servers.scripted_server(servers.hanging()) as address:
            pool = Pool(address)
            pool.release(await pool.connect())
            replies = [pool.request() for _ in range(3)]
            pool.time.advance(TIMEOUT_NS)
            pool.close()
            return await outcomes(replies)

    assert set(run(main())) == {Outcome.TIMED_OUT}


def test_a_server_that_never_accepts_the_connection_fails_the_request_after_the_time_out(run):
    async def main():
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            host, port = full.getsockname()
            fillers = [socket.socket() for _ in range(8)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex((host, port))
            transport = transport_to(Address("http", host, port), timeout_ns=50_000_000)
            reply = await send(transport)
            await transport.aclose()
            for filler in fillers:
                filler.close()
            return reply

    reply = run(main())
    assert reply.outcome is Outcome.CONNECT_FAILED
    assert "no answer within the time-out" in reply.error


# targets that refuse connections


def test_the_pause_doubles_up_to_a_second():
    assert [pause_s(failures) for failures in (*range(1, 10), 2000)] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]


def test_one_failed_attempt_ends_all_queued_requests_and_the_next_one_follows_after_the_pause(run):
    async def main():
        pool = Pool(await unused_address(), max_connections=4)
        first = [pool.request() for _ in range(100)]
        assert await outcomes(first) == [Outcome.CONNECT_FAILED] * 100
        assert pool.attempts == 4, "one for each connection, as long as the target is not known to refuse"
        for attempt, seconds in ((5, 0.01), (6, 0.02), (7, 0.04)):
            queued = [pool.request() for _ in range(50)]
            pool.time.advance(round(seconds * 1e9) - 1)
            await passes(5)
            assert not any(reply.done() for reply in queued)
            pool.time.advance(1)
            assert await outcomes(queued) == [Outcome.CONNECT_FAILED] * 50
            assert "cannot be reached" in queued[-1].result().error
            assert pool.attempts == attempt
        pool.time.advance(80_000_000)
        await passes(5)
        assert pool.attempts == 7, "no attempt without a queued request"
        assert await outcomes([pool.request()]) == [Outcome.CONNECT_FAILED]
        assert pool.attempts == 8, "no pause once it is over"
        pool.close()

    run(main())


def test_the_pause_starts_over_after_a_success(run):
    async def main():
        address = await unused_address()
        pool = Pool(address)
        assert await outcomes([pool.request()]) == [Outcome.CONNECT_FAILED]
        async with servers.scripted_server(servers.hanging(), port=address.port):
            connection = await pool.connect()
        await until(lambda: not connection.is_usable)
        pool.time.advance(10_000_000)
        assert await outcomes([pool.request()]) == [Outcome.CONNECT_FAILED]
        queued = pool.request()
        pool.time.advance(10_000_000)
        async with asyncio.timeout(30):  # without the restart the pause would be longer, and end only when the clock is advanced
            assert await outcomes([queued]) == [Outcome.CONNECT_FAILED]
        pool.close()

    run(main())


def test_a_target_that_comes_back_serves_all_requests_that_were_queued_in_the_pause(run):
    async def main():
        address = await unused_address()
        pool = Pool(address, max_connections=3)
        assert await outcomes([pool.request()]) == [Outcome.CONNECT_FAILED]
        queued = [pool.request() for _ in range(10)]
        async with servers.scripted_server(servers.answering(*[OK] * 10), port=address.port):
            pool.time.advance(10_000_000)
            assert await outcomes(queued) == [Outcome.OK] * 10
            pool.close()
        return pool

    pool = run(main())
    assert pool.counts.reconnects == 0, "no connection was lost"
    assert pool.attempts - 1 == pool.counts.opened <= 3


def test_queued_requests_do_not_fail_as_long_as_one_connection_is_open(run):
    async def main():
        may_answer = asyncio.Event()

        async def answer_late(reader, writer):
            for _ in range(3):
                await servers.read_request(reader)
                await may_answer.wait()
                writer.write(OK)

        async with servers.scripted_server(answer_late) as address:
            pool = Pool(address, max_connections=4)
            pool.release(await pool.connect())
            pool.address = await unused_address()
            timers = pool.time.pending
            replies = [pool.request() for _ in range(3)]
            # the timer of the connection, that of the queue, and the pause after the failed attempts
            await until(lambda: pool.time.pending == timers + 3)
            assert not any(reply.done() for reply in replies)
            may_answer.set()
            results = await outcomes(replies)
            pool.close()
            return results, pool.counts.opened

    assert run(main()) == ([Outcome.OK] * 3, 1)


def test_a_request_whose_time_out_passes_before_the_next_attempt_ends_as_connect_failed():
    async def main():
        pool = Pool(await unused_address())
        for seconds in (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64):
            await pool.request()
            pool.time.advance(round(seconds * 1e9))
        await pool.request()
        started_ns = pool.time.now_ns
        queued = pool.request()
        pool.address = Address("http", "198.51.100.1", 1)  # reserved for documentation (RFC 5737): never answers
        pool.time.advance(TIMEOUT_NS)
        pool.close()
        return started_ns, await queued

    started_ns, reply = asyncio.run(main())
    assert (reply.outcome, reply.started_ns, reply.finished_ns) == (Outcome.CONNECT_FAILED, started_ns, started_ns + TIMEOUT_NS)
    assert "cannot be reached" in reply.error


def test_every_request_to_a_server_that_is_gone_fails(run):
    async def main():
        transport = transport_to(await unused_address())
        replies = await asyncio.gather(*(send(transport) for _ in range(5)))
        await transport.aclose()
        return replies

    assert [reply.outcome for reply in run(main())] == [Outcome.CONNECT_FAILED] * 5


# stale connections


def test_a_request_that_is_sent_again_keeps_its_start_its_time_out_and_its_place_in_the_queue(run):
    async def main():
        close = asyncio.Event()
        async with servers.scripted_server(stale_after(close), servers.hanging()) as address:
            pool = Pool(address)
            await pool.request()
            pool.time.advance(10 * SECOND_NS)
            resent, queued = pool.request(), pool.request()
            pool.time.advance(15 * SECOND_NS)
            close.set()
            await until(lambda: pool.counts.retried)
            pool.time.advance(15 * SECOND_NS - 1)
            assert not resent.done()
            assert not queued.done()
            pool.time.advance(1)
            reply = await resent
            pool.close()
            return reply

    reply = run(main())
    assert (reply.outcome, reply.started_ns, reply.finished_ns) == (Outcome.TIMED_OUT, 10 * SECOND_NS, 40 * SECOND_NS)


def test_a_request_that_was_sent_once_is_broken_if_the_target_is_gone(run):
    async def main():
        close = asyncio.Event()
        async with servers.scripted_server(stale_after(close)) as address:
            pool = Pool(address)
            await pool.request()
            pool.address = await unused_address()
            sent = pool.request()
            close.set()
            reply = await sent
            pool.close()
            return reply, pool.counts.retried

    reply, retried = run(main())
    assert reply.outcome is Outcome.BROKEN
    assert "the connection was closed and no other could be opened" in reply.error
    assert retried == 0


# abandoned pools


def test_nothing_is_sent_after_abandon(run):
    seen: list[bytes] = []

    async def main():
        async with servers.scripted_server(servers.answering(OK, OK, OK, seen=seen)) as address:
            transport = transport_to(address, max_connections=2)
            await transport.open(1)
            assert (await send(transport)).outcome is Outcome.OK
            transport.abandon()
            late = [await send(transport) for _ in range(2)]
            await transport.aclose()
            return [reply.outcome for reply in late]

    assert run(main()) == [Outcome.UNFINISHED] * 2
    assert len(seen) == 1


def test_a_request_without_a_connection_is_unfinished_after_abandon(run):
    async def main():
        async with servers.scripted_server(servers.hanging()) as address:
            transport = transport_to(address)
            sending = transport.send(get())
            transport.abandon()
            reply = await sending
            await transport.aclose()
            return reply

    assert run(main()).outcome is Outcome.UNFINISHED


def test_a_stale_connection_does_not_lead_to_sending_after_abandon(run):
    seen: list[bytes] = []

    async def main():
        close = asyncio.Event()
        async with servers.scripted_server(stale_after(close), servers.answering(OK, seen=seen)) as address:
            pool = Pool(address, max_connections=2)
            await pool.request()
            sent = pool.request()
            close.set()
            await until(lambda: pool.attempts == 2)
            pool.abandon()
            assert (await sent).outcome is Outcome.UNFINISHED
            await until(lambda: pool.counts.opened == 2)
            await passes(5)
            pool.close()
            return pool.counts.retried

    assert run(main()) == 0
    assert seen == []

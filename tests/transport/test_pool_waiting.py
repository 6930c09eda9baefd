"""What becomes of requests that have no connection: their one time-out, the target that refuses, the end."""

import asyncio
import itertools
import time

import pytest

from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.http.connection import Connection
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from perfkit.transport.pool import ConnectionPool
from perfkit.transport.reaching import Backoff
from tests.conditions import until
from tests.transport import servers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
PING = Prepared((b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",))
SECOND_NS = 1_000_000_000
TIMEOUT_NS = 30 * SECOND_NS


class Hands:
    """A clock that moves when it is told to."""

    def __init__(self):
        self.now_ns = 0

    def read(self):
        return self.now_ns


class Endless(Backoff):
    """Pauses that only a test ends."""

    def fail(self):
        super().fail()
        return 3600.0


class Pool(ConnectionPool[Connection]):
    """A pool that counts its attempts to connect, and goes on after a failure when it is told to."""

    def __init__(self, address, limit=1, read=int):
        super().__init__(address, TransportOptions(max_connections=limit, timeout_ns=TIMEOUT_NS), read, None, Connection)
        self.attempts = 0
        self._backoff = Endless()

    async def _open(self):
        self.attempts += 1
        return await super()._open()

    def ask(self):
        """As a transport sends."""
        reply = self.loop.create_future()
        connection = self.take()
        if connection is None:
            self.line_up(PING.buffers, reply)
        else:
            connection.send(PING.buffers, reply)
        return reply

    def end_pause(self):
        self._pause.cancel()
        self._try_again()


async def keeping(reader, writer):
    """Answers once, and keeps the connection."""
    await servers.read_request(reader)
    writer.write(OK)
    await asyncio.get_running_loop().create_future()


async def nowhere():
    async with servers.scripted_server() as address:
        return address


async def outcomes(replies):
    return [reply.outcome for reply in await asyncio.gather(*replies)]


def test_pauses_double_up_to_a_second_and_begin_again_after_a_success():
    backoff = Backoff()
    assert not backoff.is_failing
    assert [backoff.fail() for _ in range(9)] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    assert [backoff.fail() for _ in range(2000)][-1] == 1.0
    assert backoff.is_failing
    backoff.succeed()
    assert not backoff.is_failing
    assert backoff.fail() == 0.01


def test_one_attempt_fails_all_that_wait_and_the_next_is_made_after_the_pause(run):
    async def main():
        pool = Pool(await nowhere(), limit=4)
        first = [pool.ask() for _ in range(100)]
        assert await outcomes(first) == [Outcome.CONNECT_FAILED] * 100
        assert pool.attempts == 4, "as many as there may be connections, before it is known"
        for attempt in (5, 6, 7):
            waiting = [pool.ask() for _ in range(50)]
            assert not any(reply.done() for reply in waiting)
            pool.end_pause()
            assert await outcomes(waiting) == [Outcome.CONNECT_FAILED] * 50
            assert "cannot be reached" in waiting[-1].result().error
            assert pool.attempts == attempt
        pool.end_pause()
        assert pool.attempts == 7, "nobody waits: there is nothing to try for"
        late = pool.ask()
        assert await outcomes([late]) == [Outcome.CONNECT_FAILED]
        assert pool.attempts == 8, "the pause is over: it is tried at once"
        pool.close()

    run(main())


def test_a_target_that_comes_back_serves_all_that_waited_for_the_attempt(run):
    async def main():
        address = await nowhere()
        pool = Pool(address, limit=3)
        assert await outcomes([pool.ask()]) == [Outcome.CONNECT_FAILED]
        waiting = [pool.ask() for _ in range(10)]
        async with servers.scripted_server(servers.answering(*[OK] * 10), port=address.port):
            pool.end_pause()
            assert await outcomes(waiting) == [Outcome.OK] * 10
            assert not pool._backoff.is_failing
            pool.close()
        return pool

    pool = run(main())
    assert pool.counts.reconnects == 0, "there was none to be lost"
    assert pool.attempts - 1 == pool.counts.opened <= 3


def test_where_a_connection_stands_nobody_is_refused_because_no_other_opens(run):
    async def main():
        answer = asyncio.Event()

        async def once(reader, writer):
            for _ in range(3):
                await servers.read_request(reader)
                await answer.wait()
                writer.write(OK)

        async with servers.scripted_server(once) as address:
            pool = Pool(address, limit=4)
            pool.give_back(await pool.connect())
            pool.address = await nowhere()
            replies = [pool.ask() for _ in range(3)]
            await until(lambda: pool._pause is not None)
            assert not any(reply.done() for reply in replies)
            answer.set()
            became = await outcomes(replies)
            pool.close()
            return became, pool.counts.opened

    assert run(main()) == ([Outcome.OK] * 3, 1)


def test_a_request_whose_time_passes_before_the_next_attempt_could_not_be_connected(run):
    hands = Hands()

    async def main():
        pool = Pool(await nowhere(), read=hands.read)
        await pool.ask()
        hands.now_ns = SECOND_NS
        waiting = pool.ask()
        hands.now_ns += TIMEOUT_NS
        pool._end_overdue()  # as the timer does
        pool.close()
        return await waiting

    reply = run(main())
    assert (reply.outcome, reply.started_ns, reply.finished_ns) == (Outcome.CONNECT_FAILED, SECOND_NS, SECOND_NS + TIMEOUT_NS)
    assert "cannot be reached" in reply.error


@pytest.mark.parametrize("is_first", ["the answer", "the time-out"])
def test_a_connection_that_becomes_free_as_the_time_of_who_waits_is_over_is_not_lost(run, is_first):
    hands = Hands()

    async def main():
        async with servers.scripted_server(servers.hanging()) as address:
            pool = Pool(address, read=hands.read)
            connection = await pool.connect()
            pool.give_back(connection)
            holds, waits = pool.ask(), pool.ask()
            hands.now_ns = TIMEOUT_NS
            steps = [lambda: connection.data_received(OK), pool._end_overdue]
            for step in steps if is_first == "the answer" else reversed(steps):
                step()  # in one pass of the event loop
            assert holds.result().outcome is Outcome.OK
            if is_first == "the answer":
                connection._check_deadline()
            assert waits.result().outcome is Outcome.TIMED_OUT
            if is_first == "the time-out":
                assert pool.take() is connection
            pool.close()

    run(main())


def test_a_request_has_one_time_out_for_the_wait_and_the_answer(run):
    hands = Hands()

    async def main():
        async with servers.scripted_server(servers.hanging()) as address:
            pool = Pool(address, read=hands.read)
            connection = await pool.connect()
            pool.give_back(connection)
            pool.ask()
            waits = pool.ask()
            hands.now_ns = 20 * SECOND_NS
            connection.data_received(OK)
            assert connection._timer.when() - pool.loop.time() <= 10.5, "what is left of it, not all of it again"
            hands.now_ns = TIMEOUT_NS - 1
            connection._check_deadline()
            assert not waits.done()
            hands.now_ns = TIMEOUT_NS
            connection._check_deadline()
            pool.close()
            return await waits

    reply = run(main())
    assert (reply.outcome, reply.started_ns, reply.finished_ns) == (Outcome.TIMED_OUT, 20 * SECOND_NS, TIMEOUT_NS)


def test_a_request_that_is_sent_again_keeps_its_start_its_time_out_and_its_turn(run):
    hands = Hands()

    async def main():
        async with servers.scripted_server(keeping, servers.hanging()) as address:
            pool = Pool(address, read=hands.read)
            await pool.ask()
            (stale,) = pool._all
            hands.now_ns = 10 * SECOND_NS
            again, waits = pool.ask(), pool.ask()
            hands.now_ns = 25 * SECOND_NS
            stale._wire.abort()
            await until(lambda: pool.counts.retried)  # before who came later, on the connection that takes the stale one's place
            (connection,) = pool._all
            assert connection._timer.when() - pool.loop.time() <= 15.5
            hands.now_ns = 40 * SECOND_NS
            connection._check_deadline()
            assert not waits.done()
            pool.close()
            return await again

    reply = run(main())
    assert (reply.outcome, reply.started_ns, reply.finished_ns) == (Outcome.TIMED_OUT, 10 * SECOND_NS, 40 * SECOND_NS)


def test_a_request_that_was_sent_and_finds_the_target_gone_is_broken(run):
    async def main():
        async with servers.scripted_server(keeping) as address:
            pool = Pool(address)
            await pool.ask()
            pool.address = await nowhere()
            (stale,) = pool._all
            sent = pool.ask()
            stale._wire.abort()
            await sent
            pool.close()
            return sent.result(), pool.counts.retried

    reply, retried = run(main())
    assert reply.outcome is Outcome.BROKEN
    assert "the connection was closed, and no other opened" in reply.error
    assert retried == 0


def test_nothing_is_sent_once_all_was_abandoned(run):
    seen: list[bytes] = []

    async def main():
        async with servers.scripted_server(servers.answering(OK, OK, OK, seen=seen)) as address:
            wire = WireHttpTransport(address, TransportOptions(max_connections=2, timeout_ns=TIMEOUT_NS), time.monotonic_ns)
            await wire.open(1)
            assert (await wire.send(PING)).outcome is Outcome.OK
            wire.abandon()
            late = [await wire.send(PING) for _ in range(2)]
            await wire.aclose()
            return [reply.outcome for reply in late]

    assert run(main()) == [Outcome.UNFINISHED] * 2
    assert len(seen) == 1


def test_a_stale_connection_is_no_reason_to_send_after_all_was_abandoned(run):
    seen: list[bytes] = []

    async def main():
        async with servers.scripted_server(keeping, servers.answering(OK, seen=seen)) as address:
            pool = Pool(address, limit=2)
            await pool.ask()
            (stale,) = pool._all
            sent = pool.ask()
            stale._wire.abort()
            await until(lambda: pool._opening)
            pool.abandon()
            assert (await sent).outcome is Outcome.UNFINISHED
            await until(lambda: not pool._tasks)
            pool.close()
            return pool.counts.retried

    assert run(main()) == 0
    assert seen == []


def test_what_stands_behind_an_answer_is_no_answer_for_who_waits(run):
    """Both arrive in the same bytes, and the second request is waiting for this very connection."""

    async def main():
        async with servers.scripted_server(servers.hanging(), servers.answering(OK)) as address:
            pool = Pool(address)
            connection = await pool.connect()
            pool.give_back(connection)
            first, second = pool.ask(), pool.ask()
            connection.data_received(OK + b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
            became = await outcomes([first, second])
            pool.close()
            return became, pool.counts

    became, counts = run(main())
    assert became == [Outcome.OK, Outcome.OK]
    assert (counts.opened, counts.reconnects) == (2, 1)


def test_who_gave_up_waiting_is_passed_over(run):
    ticks = itertools.count()

    async def main():
        async with servers.scripted_server(servers.answering(OK, OK)) as address:
            pool = Pool(Address("http", address.host, address.port), read=lambda: next(ticks))
            replies = [pool.ask() for _ in range(3)]
            replies[1].cancel()
            became = [(await replies[0]).outcome, (await replies[2]).outcome]
            pool.close()
            return became

    assert run(main()) == [Outcome.OK] * 2

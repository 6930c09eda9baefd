"""The proxy as a whole, in this process: what is relayed is recorded or named as not recorded; limits of connections; the delay."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from perfkit.clock import MonotonicClock
from perfkit.proxy.delay import AddedDelay, ReadySelector
from perfkit.proxy.messages import Recording
from perfkit.proxy.observation import Observation, observing
from perfkit.proxy.proxy import Proxy, Route
from perfkit.proxy.relay import Relay
from perfkit.target.address import Address
from perfkit.units import NS_PER_S
from tests.conditions import until

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OFFER = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


def request(model, headers="", body=b'{"inputs":[]}'):
    return f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: h\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def answer(reader, writer):
    """Answers each request with a body of known length, and anything else with the end."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            await reader.readexactly(length)
            writer.write(ANSWER)
    writer.close()


class Passed:
    """An observation that notes what it is told."""

    def __init__(self):
        self.received, self.opened, self.closed = dict[int, bytes](), list[int](), list[int]()

    def open(self, connection, listen):
        self.opened.append(connection)

    def receive(self, connection, data, read_ns, *, is_first):
        self.received[connection] = self.received.get(connection, b"") + data

    def close(self, connection):
        self.closed.append(connection)


@contextlib.asynccontextmanager
async def proxied(observation, clock=None, **options):
    """A proxy in front of a server that answers, and its port."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    target = Address("http", "127.0.0.1", server.sockets[0].getsockname()[1])
    lines = list[str]()
    proxy = Proxy(clock or MonotonicClock(), MonotonicClock().now_ns, lines.append, **options)
    stop, is_ready = asyncio.Event(), asyncio.Event()
    async with proxy.listening([Route(Address("http", "127.0.0.1", 0), target)]) as (route,):
        serving = asyncio.ensure_future(proxy.serve(observation, is_ready.set, stop))
        await is_ready.wait()
        clients = Clients(route.listen.port)
        try:
            yield proxy, clients, lines
        finally:
            await clients.close()
            stop.set()
            await serving
            server.close()


class Clients:
    """Connections to the proxy, which are closed at the end."""

    def __init__(self, port):
        self._port, self._writers = port, list[asyncio.StreamWriter]()

    async def exchange(self, *requests):
        """A connection on which requests are answered, each before the next."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        for one in requests:
            writer.write(one)
            assert await reader.readexactly(len(ANSWER)) == ANSWER
        return reader, writer

    async def close(self):
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def ended(reader):
    with contextlib.suppress(ConnectionError):
        return await reader.read() == b""
    return True


def test_what_is_relayed_is_recorded_or_named_as_not_recorded(tmp_path):
    lines, failures = list[str](), list[str]()

    async def main():
        recording = Recording(str(tmp_path / "t.jsonl"), "hash", 0)
        async with observing(recording, lambda *line: lines.append(": ".join(line)), failures.append) as observation:
            async with proxied(observation) as (proxy, clients, _):
                _, writer = await clients.exchange(request("a", OFFER), request("b"), request("c"))
                writer.close()
                _, writer = await clients.exchange(request("d"))
                writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                await until(lambda: lines)
                writer.write(b"\x00" * 1000)
                await until(lambda: observation.skipped_bytes)
                writer.close()
                _, writer = await clients.exchange(request("e"))
                writer.write(request("f")[:-1])
                await until(lambda: proxy.passed_bytes == sum(map(len, [request("a", OFFER), *map(request, "bcdef")])) + 24 + 999)
                writer.close()
                await until(lambda: proxy.accepted == 3)
            return await observation.end(), observation, proxy

    recorded, observation, proxy = asyncio.run(main())
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [row["model"] for row in rows] == ["a", "b", "c", "d", "e"]
    assert recorded.calls == {(model, "infer"): 1 for model in "abcde"}
    assert recorded.incomplete == 1
    assert observation.skipped_bytes + recorded.unread_bytes == 1024
    assert "the client does not send HTTP/1.1" in lines[0]
    assert (len(lines), proxy.accepted, failures) == (1, 3, [])


def test_a_connection_on_which_nothing_passes_is_closed():
    async def main():
        observation = Passed()
        async with proxied(observation, idle_ns=NS_PER_S // 20) as (proxy, clients, _):
            reader, _ = await clients.exchange(request("a"))
            assert await ended(reader)
            assert (proxy.idle, observation.closed) == (1, observation.opened)

    asyncio.run(main())


def test_the_connection_that_is_silent_for_longest_makes_room(monkeypatch):
    monkeypatch.setattr("perfkit.proxy.proxy.MOST_CONNECTIONS", 2)
    monkeypatch.setattr("perfkit.proxy.proxy._MAKES_ROOM_AFTER_NS", 0)

    async def main():
        async with proxied(Passed()) as (proxy, clients, lines):
            first, first_writer = await clients.exchange(request("a"))
            second, _ = await clients.exchange(request("b"))
            first_writer.write(request("a"))
            await first.readexactly(len(ANSWER))
            await clients.exchange(request("c"))
            assert await ended(second)
            assert (proxy.idle, proxy.refused, len(lines)) == (1, 0, 1)
            monkeypatch.setattr("perfkit.proxy.proxy._MAKES_ROOM_AFTER_NS", 10**18)
            refused, _ = await clients.exchange()
            assert await ended(refused)
            assert proxy.refused == 1

    asyncio.run(main())


def test_a_client_that_may_await_an_answer_does_not_make_room_for_a_minute(monkeypatch):
    monkeypatch.setattr("perfkit.proxy.proxy.MOST_CONNECTIONS", 2)
    monkeypatch.setattr("perfkit.proxy.proxy._MAKES_ROOM_AFTER_NS", 0)

    async def main():
        async with proxied(Passed()) as (proxy, clients, _):
            first, first_writer = await clients.exchange()
            first_writer.write(request("a")[:-1])
            await until(lambda: proxy.passed_bytes)
            second, _ = await clients.exchange(request("b"))
            _, third_writer = await clients.exchange(request("c"))
            assert await ended(second)
            passed_bytes = proxy.passed_bytes
            third_writer.write(request("c")[:-1])
            await until(lambda: proxy.passed_bytes > passed_bytes)
            refused, _ = await clients.exchange()
            assert await ended(refused)
            assert (proxy.idle, proxy.refused) == (1, 1)
            first_writer.write(request("a")[-1:])  # it still gets its answer
            assert await first.readexactly(len(ANSWER)) == ANSWER
            first_writer.write(request("a")[:-1])
            monkeypatch.setattr("perfkit.proxy.proxy._GIVEN_UP_AFTER_NS", 0)
            await clients.exchange(request("d"))
            assert (proxy.idle, proxy.refused) == (2, 1)

    asyncio.run(main())


def test_a_limit_of_files_that_leaves_no_room_still_allows_a_connection(monkeypatch):
    monkeypatch.setattr("perfkit.proxy.proxy.raise_open_file_limit", lambda: 100)
    monkeypatch.setattr("perfkit.proxy.proxy._MAKES_ROOM_AFTER_NS", 0)

    async def main():
        async with proxied(Passed()) as (proxy, clients, _):
            first, _ = await clients.exchange(request("a"))
            await clients.exchange(request("b"))
            assert await ended(first)
            assert (proxy.accepted, proxy.idle, proxy.refused) == (2, 1, 0)

    asyncio.run(main())


def test_an_error_of_accepting_is_counted_and_said_once(capsys):
    async def main():
        async with proxied(Passed()) as (proxy, clients, lines):
            for _ in range(3):
                context = {
                    "message": "socket.accept() out of system resource",
                    "exception": OSError(24, "Too many open files"),
                    "socket": None,
                }
                asyncio.get_running_loop().call_exception_handler(context)
            await clients.exchange(request("a"))
            assert (proxy.accept_errors, lines) == (3, ["a client cannot be accepted: Too many open files"])

    asyncio.run(main())
    assert capsys.readouterr().err == ""


class _Child:
    """A child that takes nothing until it is told to."""

    def __init__(self):
        self.sent, self.is_full = list[bytes](), True

    def send_frame(self, body):
        self.sent.append(body)

    def call_when_not_full(self, on_room):
        self.on_room = on_room

    async def receive_frame(self):
        await asyncio.Event().wait()


def test_what_waits_for_an_observer_that_is_behind_is_bounded_and_counted():
    async def main():
        child: Any = _Child()
        observation = Observation(child, lambda *_: None, lambda _: None)
        listen = Address("http", "127.0.0.1", 1)
        for connection in (1, 2):
            observation.open(connection, listen)
        for _ in range(40):
            observation.receive(1, bytes(2**20), 0, is_first=True)
        observation.receive(2, b"small", 0, is_first=True)  # for which there is room
        assert (observation.behind, observation.skipped_bytes % 2**20) == (1, 0)
        told = 40 * 2**20 - observation.skipped_bytes
        assert 30 * 2**20 < told <= 32 * 2**20
        observation.close(1)
        child.is_full = False
        child.on_room()
        assert sum(map(len, child.sent)) > told
        assert observation.skipped_bytes == 40 * 2**20 - told

    asyncio.run(main())


@pytest.mark.parametrize(("waited_ns", "expected_ns"), [(10, 100), (60_000, 60_110)])
def test_bytes_may_have_waited_since_the_last_time_that_was_asked(waited_ns, expected_ns):
    """Instants: made at 0, asked at 0, returned at 100, asked at 110, returned so much later."""
    instants_ns = iter([0, 0, 100, 110, 110 + waited_ns])
    with ReadySelector(lambda: next(instants_ns)) as selector:
        selector.select(0)
        selector.select(0)
        assert selector.ready_since_ns == expected_ns


def test_the_delay_of_an_exchange_is_that_of_its_last_request_bytes_and_its_first_answer_bytes():
    now_ns = 0

    class Listener:
        def __init__(self):
            self.delays = AddedDelay()

        def exchanged(self, delay_ns):
            self.delays.add(delay_ns)

        def passed(self, *_, **__):
            pass

        moved = unreachable = ended = passed

    async def main():
        nonlocal now_ns
        listener = Listener()
        relay = Relay(0, Address("http", "127.0.0.1", 9), None, lambda: now_ns, lambda: 0, listener)
        for delay_ns, passes in (
            (900_000, relay._client_sent),
            (1000, relay._client_sent),
            (2000, relay._server_sent),
            (10**6, relay._server_sent),
        ):
            now_ns = delay_ns
            passes(b"x" * 100, 0, 0)
        relay.close()
        return listener.delays.summary()

    summary = asyncio.run(main())
    assert (summary["count"], summary["p50"]) == (1, pytest.approx(3000, rel=1 / 32))  # as exact as a histogram

"""Several addresses of one target: which of them gets the requests, what each is counted for, and names that resolve anew."""

import asyncio
import collections
import contextlib
import dataclasses
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.clock import MonotonicClock
from perfkit.errors import TargetError
from perfkit.target.address import Address
from perfkit.transport.base import ConnectionCounts, OneAddress, Outcome, Prepared, Reply
from perfkit.transport.options import Rotation, TransportOptions
from perfkit.transport.pool import pause_s
from perfkit.transport.replicas import Balancer, ReplicaTransport
from perfkit.transport.resolution import with_peers
from tests.conditions import passes, until
from tests.transport.clients import make_open_client
from tests.transport.counting_server import REQUEST, counting_server

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


@pytest.fixture(params=["http", "grpc"])
def protocol(request):
    return request.param


@pytest.fixture(params=["wire", "reference"])
def engine(request):
    return request.param


def options(engine="wire", max_connections=6, **changes):
    return TransportOptions(engine=engine, timeout_ns=20_000_000_000, max_connections=max_connections, **changes)


def free_port():
    """A port that is free on every address of the loopback."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


@contextlib.asynccontextmanager
async def servers_on(protocol, hosts=HOSTS, port=None):
    """A server on each address, all at one port."""
    port = port or free_port()
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(counting_server(protocol, host, port)) for host in hosts]


def resolving(*answers):
    """A resolver that gives one answer after the other, and then the last again."""
    left = list(answers)

    async def resolve(host, _port):
        assert host == "pods.test"
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, OSError):
            raise answer
        return answer

    return resolve


def named(protocol, port):
    return Address(protocol, "pods.test", port)


@contextlib.asynccontextmanager
async def connected(address, chosen, resolve=None, connections=0):
    """A transport, which opens so many connections ahead."""
    async with contextlib.aclosing(make_open_client(address, chosen, MonotonicClock(), resolve)) as transport:
        if connections:
            await transport.open(connections)
        yield transport


async def send(transport, count=1):
    prepared = transport.prepare(REQUEST)
    return [await transport.send(prepared) for _ in range(count)]


def by_address(transport, replies):
    """The outcomes of replies by the address that they name."""
    labels = list(transport.counts.by_address)
    found: dict[str, collections.Counter[Outcome]] = {label: collections.Counter() for label in labels}
    for reply in replies:
        found[labels[reply.replica]][reply.outcome] += 1
    return found


def test_urls_of_replicas_take_requests_in_turn(protocol, engine):
    async def main():
        async with servers_on(protocol) as servers:
            first, *others = [server.address for server in servers]
            async with connected(dataclasses.replace(first, replicas=tuple(others)), options(engine), connections=3) as transport:
                replies = await send(transport, 12)
                assert [sum(server.requests) for server in servers] == [4, 4, 4]
                assert by_address(transport, replies) == {str(server.address): {Outcome.OK: 4} for server in servers}
                counts = transport.counts
                assert (counts.opened, list(counts.by_address.values())) == (3, [1, 1, 1])
                assert counts.connect_times.counts().count == 3

    asyncio.run(main())


def test_a_name_of_several_addresses_uses_all_of_them(protocol, engine):
    async def main():
        async with servers_on(protocol) as servers:
            address = named(protocol, servers[0].address.port)
            async with connected(address, options(engine, resolve="all"), resolving(HOSTS), 3) as transport:
                replies = await send(transport, 9)
                assert [sum(server.requests) for server in servers] == [3, 3, 3]
                assert by_address(transport, replies) == {f"{address} ({host})": {Outcome.OK: 3} for host in HOSTS}

    asyncio.run(main())


def test_an_address_that_is_down_fails_its_own_requests_and_the_others_go_on(protocol, engine):
    async def main():
        async with servers_on(protocol, HOSTS[:2]) as servers:
            address = named(protocol, servers[0].address.port)
            async with connected(address, options(engine, resolve="all"), resolving(HOSTS), 3) as transport:
                replies = await send(transport, 300)
                found = by_address(transport, replies)
                assert [found[f"{address} ({host})"] for host in HOSTS] == [
                    {Outcome.OK: 100},
                    {Outcome.OK: 100},
                    {Outcome.CONNECT_FAILED: 100},
                ]
                assert all("127.0.0.3" in reply.error for reply in replies if reply.outcome is not Outcome.OK)

    asyncio.run(main())


def test_an_address_that_comes_up_takes_requests_again(protocol):
    async def main():
        async with servers_on(protocol, HOSTS[:1]) as servers:
            port = servers[0].address.port
            async with connected(named(protocol, port), options(resolve="all"), resolving(HOSTS[:2]), 2) as transport:
                assert {reply.outcome for reply in await send(transport, 2)} == {Outcome.OK, Outcome.CONNECT_FAILED}
                async with servers_on(protocol, HOSTS[1:2], port) as later:
                    while not later[0].connections:
                        await send(transport, 2)
                        await asyncio.sleep(0)
                    assert [reply.outcome for reply in await send(transport, 4)] == [Outcome.OK] * 4

    asyncio.run(main())


def test_a_target_without_any_address_that_answers_cannot_be_opened(protocol, engine):
    async def main():
        async with connected(named(protocol, free_port()), options(engine, resolve="all"), resolving(HOSTS)) as transport:
            with pytest.raises(TargetError, match=r"127\.0\.0\.1.*cannot be reached"):
                await transport.open(3)
            with pytest.raises(TargetError, match="cannot be reached"):
                await transport.server_metadata()

    asyncio.run(main())


def test_a_name_that_cannot_be_resolved_is_an_error_of_the_target(protocol):
    async def main():
        resolve = resolving(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
        async with connected(named(protocol, 8000), options(resolve="all"), resolve) as transport:
            with pytest.raises(TargetError, match=r"pods\.test:8000 cannot be reached: Name or service not known"):
                await transport.open(1)

    asyncio.run(main())


def test_a_rotated_connection_resolves_the_name_anew(protocol):
    """A new pod appears, an old one leaves: requests follow, and every address keeps its own count."""

    async def main():
        async with servers_on(protocol) as servers:
            address = named(protocol, servers[0].address.port)
            chosen = options(resolve="all", rotation=Rotation(max_requests=5))
            async with connected(address, chosen, resolving(HOSTS[:2], HOSTS[1:]), 2) as transport:
                replies = await send(transport, 8)  # four each: nothing was rotated
                assert [sum(server.requests) for server in servers] == [4, 4, 0]
                while not servers[2].connections:
                    replies += await send(transport, 1)
                before = [sum(server.requests) for server in servers]
                replies += await send(transport, 10)
                assert [sum(server.requests) - count for server, count in zip(servers, before, strict=True)] == [0, 5, 5]
                assert {reply.outcome for reply in replies} == {Outcome.OK}
                found = by_address(transport, replies)
                assert [found[f"{address} ({host})"].total() for host in HOSTS] == [sum(server.requests) for server in servers]
                assert sum(transport.counts.by_address.values()) == transport.counts.opened == sum(server.connections for server in servers)

    asyncio.run(main())


def test_the_first_address_that_accepts_is_told_apart_where_a_name_has_several():
    """What `resolve: first` does is left to the event loop; only the attribution is perfkit's."""

    async def main(protocol):
        async with servers_on(protocol, HOSTS[:1]) as servers:
            address = servers[0].address
            chosen = dataclasses.replace(options(), peers=HOSTS[:2])
            async with connected(address, chosen) as transport:
                replies = await send(transport, 5)
                labels = [str(address), *(f"{address} ({host})" for host in HOSTS[:2])]
                assert by_address(transport, replies) == dict(zip(labels, ({}, {Outcome.OK: 5}, {}), strict=True))
                assert list(transport.counts.by_address.values()) == [0, 1, 0]

    asyncio.run(main("http"))
    asyncio.run(main("grpc"))


def test_only_names_with_several_addresses_are_told_apart():
    async def peers(address, *ips, engine="wire", **changes):
        async def resolve(_host, _port):
            return ips

        return (await with_peers(address, options(engine, **changes), resolve)).peers

    async def main():
        name = named("http", 8000)
        assert await peers(name, "10.0.0.1", "10.0.0.2") == ("10.0.0.1", "10.0.0.2")
        assert await peers(name, "10.0.0.1") == ()
        assert await peers(name, "10.0.0.1", "10.0.0.2", resolve="all") == ()
        assert await peers(name, "10.0.0.1", "10.0.0.2", engine="reference") == ()
        for host in ("localhost", "127.0.0.1", "::1", "10.1.2.3"):
            assert await peers(Address("http", host, 80), "10.0.0.1", "10.0.0.2") == ()

    asyncio.run(main())


@contextlib.asynccontextmanager
async def statistics_servers(*first):
    """HTTP servers on the loopback's addresses with the statistics of so many requests, which tests change; and their port."""
    from aiohttp import web

    counts = list(first)

    def page(count, ns):
        times = {name: {"count": count, "ns": ns} for name in ("success", "queue", "compute_input", "compute_infer", "compute_output")}
        return {
            "model_stats": [{"name": "m", "version": "1", "inference_count": count, "execution_count": count, "inference_stats": times}]
        }

    async with contextlib.AsyncExitStack() as stack:
        port = free_port()
        for number in range(len(counts)):

            async def answer(_request, number=number):
                return web.json_response(page(*counts[number]))

            runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, f"127.0.0.{number + 1}", port).start()
        yield port, counts


def test_statistics_are_those_of_all_replicas_together():
    async def main():
        async with (
            statistics_servers((10, 10_000), (20, 20_000), (30, 30_000)) as (port, _),
            connected(named("http", port), options(resolve="all"), resolving((*HOSTS, "127.0.0.4"))) as transport,
        ):
            (statistics,) = await transport.model_statistics("m", "")
            assert (statistics.version, statistics.success.count, statistics.success.ns) == ("1", 60, 60_000)

    asyncio.run(main())


def test_a_server_that_several_addresses_lead_to_counts_once():
    """Known while nothing is sent, and remembered where readings differ because requests are under way."""

    async def main():
        async with (
            statistics_servers((10, 12_345), (10, 12_345), (10, 12_346)) as (port, counts),
            connected(named("http", port), options(resolve="all"), resolving(HOSTS)) as transport,
        ):
            (statistics,) = await transport.model_statistics("m", "")
            assert (statistics.success.count, statistics.success.ns) == (20, 24_691)
            counts[:] = [(14, 20_000), (15, 21_000), (16, 22_000)]
            (statistics,) = await transport.model_statistics("m", "")
            assert (statistics.success.count, statistics.success.ns) == (30, 42_000)

    asyncio.run(main())


def test_servers_without_times_are_not_taken_for_one():
    async def main():
        async with (
            statistics_servers((10, 0), (10, 0)) as (port, _),
            connected(named("http", port), options(resolve="all"), resolving(HOSTS[:2])) as transport,
        ):
            (statistics,) = await transport.model_statistics("m", "")
            assert statistics.success.count == 20

    asyncio.run(main())


class _Address(OneAddress):
    """The transport to an address whose replies a test resolves; opening fails where it is down."""

    def __init__(self, address, given, down):
        self.address, self.given, self.counts = address, given, ConnectionCounts()
        self.opened, self.replies, self.down = [], [], down

    async def open(self, connections):
        self.opened.append(connections)
        if self.address.host in self.down:
            raise TargetError(f"{self.address} cannot be reached")

    def prepare(self, _request):
        return Prepared(())

    def send(self, _prepared):
        self.replies.append(asyncio.get_running_loop().create_future())
        return self.replies[-1]

    async def reply_with(self, outcome, error=""):
        self.replies.pop(0).set_result(Reply(outcome, 0, 0, None, error))
        await passes(2)  # callbacks of the reply


def test_an_address_of_a_name_stays_the_same_with_new_headers():
    async def main():
        made: list[_Address] = []

        def make(address, given):
            made.append(_Address(address, given, ()))
            return made[-1]

        address = named("http", 80)
        transport = ReplicaTransport(address, options(resolve="all"), make, lambda: 1, resolving(HOSTS))
        await transport.open(3)
        transport.renew(dataclasses.replace(address, headers={"a": "new"}))
        assert [(one.address.ip, one.address.headers) for one in made[1:]] == [(host, {"a": "new"}) for host in HOSTS]

    asyncio.run(main())


class _Replicas:
    """A transport to so many URLs, with a clock that the test moves."""

    def __init__(self, urls, max_connections=8, down=()):
        first, *others = [Address("http", f"10.0.0.{number + 1}", 80) for number in range(urls)]
        made: list[_Address] = []

        def make(address, given):
            made.append(_Address(address, given, down))
            return made[-1]

        self.now_ns = 1
        address = dataclasses.replace(first, replicas=tuple(others))
        self.transport = ReplicaTransport(address, options(max_connections=max_connections), make, lambda: self.now_ns, resolving(()))
        self._made, self._urls = made, urls

    @property
    def addresses(self):
        return self._made[self._urls :]  # the first ones only prepare requests

    def send(self):
        return asyncio.ensure_future(self.transport.send(self.transport.prepare(REQUEST)))


@given(st.integers(1, 7), st.integers(0, 30), st.integers(1, 40))
def test_addresses_share_exactly_the_connections_of_the_target(urls, connections, max_connections):
    async def main():
        replicas = _Replicas(urls, max_connections)
        await replicas.transport.open(connections)
        assert sum(sum(one.opened) for one in replicas.addresses) == connections
        most = [one.given.max_connections for one in replicas.addresses]
        assert (sum(most), min(most)) == (max(max_connections, urls), max(1, max_connections // urls))

    asyncio.run(main())


def test_addresses_without_a_part_of_few_connections_are_tried_if_the_others_are_down():
    async def main():
        replicas = _Replicas(5, down=("10.0.0.1", "10.0.0.2", "10.0.0.3"))
        await replicas.transport.open(2)
        assert [one.opened for one in replicas.addresses] == [[1], [1], [1], [1], []]

    asyncio.run(main())


def test_an_answer_ends_the_pause_after_a_refused_further_connection():
    """The address is up: it answers on the connection that it has, and takes the next request at once."""

    async def main():
        replicas = _Replicas(1)
        await replicas.transport.open(1)
        (address,) = replicas.addresses
        on_connection, refused = replicas.send(), replicas.send()
        await passes(3)
        address.replies.reverse()
        await address.reply_with(Outcome.CONNECT_FAILED, "refused")
        assert (await refused).outcome is Outcome.CONNECT_FAILED
        assert (await replicas.send()).outcome is Outcome.CONNECT_FAILED  # in the pause, not sent
        await address.reply_with(Outcome.OK)
        assert (await on_connection).outcome is Outcome.OK
        following = replicas.send()  # at the same instant
        await passes(3)
        await address.reply_with(Outcome.OK)
        assert (await following).outcome is Outcome.OK

    asyncio.run(main())


def test_requests_that_waited_for_the_same_attempt_count_as_one_failure():
    async def main():
        replicas = _Replicas(1)
        await replicas.transport.open(1)
        (address,) = replicas.addresses
        waiting = [replicas.send() for _ in range(20)]
        await passes(3)
        for _ in waiting:
            await address.reply_with(Outcome.CONNECT_FAILED, "refused")
        await asyncio.gather(*waiting)
        replicas.now_ns += int(pause_s(1) * 1e9) - 1
        assert (await replicas.send()).error == "refused"
        assert address.replies == []  # not sent
        replicas.now_ns += 1
        again = replicas.send()
        await passes(3)
        assert len(address.replies) == 1  # after the first pause
        await address.reply_with(Outcome.OK)
        assert (await again).outcome is Outcome.OK

    asyncio.run(main())


def test_the_laws_of_balancing():
    turn = Balancer("round_robin")
    assert [turn.choose([9, 0, 0], [True, False, False]) for _ in range(5)] == [0, 1, 2, 0, 1]
    fewest = Balancer("least_in_flight")
    assert fewest.choose([2, 1, 1], [False] * 3) == 1
    assert fewest.choose([2, 1, 1], [False] * 3) == 2
    assert fewest.choose([0, 3, 2], [True, False, False]) == 2  # what just refused a connection has nothing in flight
    assert fewest.choose([0, 3, 2], [True, True, True]) == 0
    chances = Balancer("random", seed=3)
    found = collections.Counter(chances.choose([0, 0], [False] * 2) for _ in range(10_000))
    assert abs(found[0] - 5000) < 300  # six standard deviations
    draws = [[Balancer("random", seed).choose([0] * 1000, [False] * 1000) for _ in range(2)] for seed in (3, 4)]
    assert draws[0][0] == draws[0][1] != draws[1][0]


def test_a_slow_replica_gets_less_with_the_fewest_in_flight():
    async def main():
        release = asyncio.Event()
        async with counting_server("http", HOSTS[0], before_answer=release.wait) as slow, counting_server("http", HOSTS[1]) as fast:
            address = dataclasses.replace(slow.address, replicas=(fast.address,))
            async with connected(address, options(balance="least_in_flight"), connections=2) as transport:
                waiting = [asyncio.ensure_future(send(transport)) for _ in range(2)]  # one at each
                await until(lambda: sum(slow.requests) == 1 and any(one.done() for one in waiting))
                await send(transport, 10)
                assert (sum(slow.requests), sum(fast.requests)) == (1, 11)
                release.set()
                await asyncio.gather(*waiting)

    asyncio.run(main())

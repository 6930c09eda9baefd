"""Several addresses of one target as one transport: requests are spread over them, and replies name theirs."""

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from perfkit.errors import TargetError
from perfkit.target.address import Address
from perfkit.transport.base import ConnectionCounts, Outcome, Prepared, Reply, Transport
from perfkit.transport.connect import unreachable
from perfkit.transport.options import Balance, TransportOptions
from perfkit.transport.pool import pause_s
from perfkit.transport.resolution import Resolve
from perfkit.units import NS_PER_S, part

_T = TypeVar("_T")


class Balancer:
    """Chooses among addresses; `seed` is that of `random`.

    `least_in_flight` passes over addresses that just refused a connection, which would otherwise always have the fewest in flight;
    the other laws do not, so that every address gets its share. Ties go to each in turn.
    """

    def __init__(self, law: Balance, seed: int = 0) -> None:
        self._law = law
        self._random = random.Random(seed)
        self._last = -1

    def choose(self, in_flight: Sequence[int], is_down: Sequence[bool]) -> int:
        """The position of the address; the requests in flight and the state of each are given, of at least one."""
        count = len(in_flight)
        if self._law == "random":
            return self._random.randrange(count)
        in_turn = [(self._last + 1 + step) % count for step in range(count)]
        if self._law == "round_robin":
            self._last = in_turn[0]
        else:
            self._last = min(in_turn, key=lambda position: (is_down[position], in_flight[position]))
        return self._last


@dataclasses.dataclass(slots=True)
class PreparedForEach(Prepared):
    """A request as prepared for each URL, whose heads differ."""

    by_url: Sequence[Prepared] = ()


@dataclasses.dataclass(slots=True, eq=False)
class _Replica:
    """An address with its transport."""

    label: str
    number: int
    url: int
    """The position of the URL that it belongs to."""
    ip: str
    """The address's own, where the URL's name is resolved; else empty."""
    transport: Transport
    in_flight: int = 0
    failures: int = 0
    """Attempts to connect since the last success."""
    down_until_ns: int = 0
    error: str = ""
    rotated: int = 0
    is_gone: bool = False


class ReplicaTransport:
    """A transport of its own for each address of a target's URLs, and for each that their names resolve to with `resolve: all`.

    A name is resolved again when a connection was rotated or could not be opened. While an address refuses connections, requests
    to it fail at once; a new attempt is made after the same pauses as in a pool. Before `open`, requests go to the address that answered
    the last call. The connections are divided among the addresses known at the start; each may have at least one.
    """

    def __init__(
        self,
        address: Address,
        options: TransportOptions,
        make: Callable[[Address, TransportOptions], Transport],
        now_ns: Callable[[], int],
        resolve: Resolve,
    ) -> None:
        self._urls = [dataclasses.replace(one, replicas=()) for one in (address, *address.replicas)]
        self._options, self._make, self._now_ns, self._resolve = options, make, now_ns, resolve
        self._by_url = [make(url, options) for url in self._urls]  # they prepare and decode, and do not connect
        self._balancer = Balancer(options.balance, options.seed)
        self._replicas: list[_Replica] = []
        self._labels: dict[str, int] = {}
        self._past: list[_Replica] = []  # whose addresses their names no longer resolve to
        self._answering = 0
        self._is_open = False
        self._resolving: asyncio.Task[None] | None = None
        self._closing: list[asyncio.Future[None]] = []
        self._is_abandoned = False

    @property
    def counts(self) -> ConnectionCounts:
        whole = ConnectionCounts.added([one.transport.counts for one in (*self._replicas, *self._past)])
        whole.by_address = dict.fromkeys(self._labels, 0)
        for one in (*self._replicas, *self._past):
            whole.by_address[one.label] += one.transport.counts.opened
        return whole

    @property
    def queued(self) -> int:
        return sum(one.transport.queued for one in (*self._replicas, *self._past))

    async def open(self, connections: int) -> None:
        """Opens a part of them at each address; raises TargetError if none can be reached, MeasurementError at the file limit.

        With fewer connections than addresses, the remaining addresses are tried if the first cannot be reached.
        """
        await self._find()
        self._is_open = True
        first: BaseException | None = None
        for start in range(0, len(self._replicas) if connections else 0, connections or 1):
            asked = self._replicas[start : start + connections]
            shares = [part(connections, number, len(asked)) for number in range(len(asked))]
            opened = await asyncio.gather(
                *(one.transport.open(share) for one, share in zip(asked, shares, strict=True)), return_exceptions=True
            )
            for one, error in zip(asked, opened, strict=True):
                if isinstance(error, TargetError):
                    self._note_failure(one, str(error))
                elif error is not None:
                    raise error
            if None in opened:
                return
            first = first or opened[0]
        if first is not None:
            raise first

    def renew(self, address: Address) -> None:
        self._urls = [dataclasses.replace(one, replicas=()) for one in (address, *address.replicas)]
        for transport, url in zip(self._by_url, self._urls, strict=True):
            transport.renew(url)
        for replica in self._replicas:
            replica.transport.renew(dataclasses.replace(self._urls[replica.url], ip=replica.ip))

    def prepare(self, call: Any) -> Prepared:
        return PreparedForEach((), by_url=[transport.prepare(call) for transport in self._by_url])

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        return self._send(prepared, lambda transport, own: transport.send(own))

    def send_leaving(self, prepared: Prepared, after_responses: int) -> "asyncio.Future[Reply]":
        return self._send(prepared, lambda transport, own: transport.send_leaving(own, after_responses))

    def give_up(self, reply: "asyncio.Future[Reply]") -> None:
        for one in (*self._replicas, *self._past):
            one.transport.give_up(reply)

    def _send(self, prepared: Prepared, send: Callable[[Transport, Prepared], Awaitable[Reply]]) -> "asyncio.Future[Reply]":
        assert isinstance(prepared, PreparedForEach)
        now_ns, replicas = self._now_ns(), self._replicas
        is_down = [one.down_until_ns > now_ns for one in replicas]
        in_flight = [one.in_flight for one in replicas]
        position = self._balancer.choose(in_flight, is_down) if self._is_open else self._answering % len(replicas)
        replica = replicas[position]
        if is_down[position] and not self._is_abandoned:
            failed: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            failed.set_result(Reply(Outcome.CONNECT_FAILED, now_ns, now_ns, None, replica.error, replica=replica.number))
            return failed
        replica.in_flight += 1
        reply = asyncio.ensure_future(send(replica.transport, prepared.by_url[replica.url]))
        reply.add_done_callback(lambda done: self._take_back(replica, done))  # before the loop's own
        return reply

    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        assert isinstance(prepared, PreparedForEach)
        pairs = zip(self._by_url, prepared.by_url, strict=True)
        return PreparedForEach((), by_url=[transport.with_traceparent(own, traceparent) for transport, own in pairs])

    def answer(self, reply: Reply) -> Any:
        return self._by_url[0].answer(reply)

    def raw_failure(self, reply: Reply) -> Hashable:
        return self._by_url[0].raw_failure(reply)

    def retry_after_ns(self, reply: Reply) -> int | None:
        return self._by_url[0].retry_after_ns(reply)

    def received(self, reply: Reply) -> bytes:
        return self._by_url[0].received(reply)

    def abandon(self) -> None:
        self._is_abandoned = True
        for one in (*self._replicas, *self._past):
            one.transport.abandon()

    async def aclose(self) -> None:
        if self._resolving is not None:
            self._resolving.cancel()
        used = dict.fromkeys((*(one.transport for one in self._replicas), *self._by_url))
        await asyncio.gather(*(one.aclose() for one in used), *self._closing)

    async def ask(self, question: Callable[[Any], Awaitable[_T]]) -> _T:
        """Asks the addresses in turn, beginning with the one that answered last. Raises TargetError if none answers."""
        await self._find()
        first: TargetError | None = None
        for _ in self._replicas:
            try:
                return await question(self._replicas[self._answering % len(self._replicas)].transport)
            except TargetError as error:
                first = first or error
            self._answering += 1
        assert first is not None
        raise first

    async def ask_all(self, question: Callable[[Any], Awaitable[_T]]) -> Mapping[str, _T]:
        """The answers by the labels of the addresses."""
        await self._find()
        labels = [one.label for one in self._replicas]
        answers = await asyncio.gather(*(question(one.transport) for one in self._replicas), return_exceptions=True)
        read = {label: answer for label, answer in zip(labels, answers, strict=True) if not isinstance(answer, BaseException)}
        for error in answers:
            if isinstance(error, BaseException) and not (isinstance(error, TargetError) and error.may_pass and read):
                raise error
        return read

    def _take_back(self, replica: _Replica, done: "asyncio.Future[Reply]") -> None:
        replica.in_flight -= 1
        self._close_if_gone(replica)
        if done.cancelled() or done.exception() is not None:
            return
        reply = done.result()
        reply.replica = replica.number
        if reply.outcome is Outcome.CONNECT_FAILED:
            self._note_failure(replica, reply.error)
        elif replica.failures:
            replica.failures = replica.down_until_ns = 0
        if (rotated := replica.transport.counts.rotated) != replica.rotated:
            replica.rotated = rotated
            self._resolve_again()

    def _note_failure(self, replica: _Replica, error: str) -> None:
        if replica.down_until_ns > self._now_ns():
            return  # several requests waited for the same attempt
        replica.failures += 1
        replica.error = error
        replica.down_until_ns = self._now_ns() + int(pause_s(replica.failures) * NS_PER_S)
        self._resolve_again()

    def _resolve_again(self) -> None:
        is_resolving = self._resolving is not None and not self._resolving.done()
        if not (is_resolving or self._is_abandoned) and any(map(self._is_resolved, self._urls)):
            self._resolving = asyncio.ensure_future(self._update())

    def _is_resolved(self, url: Address) -> bool:
        return self._options.resolve == "all" and url.has_name

    async def _find(self) -> None:
        """Resolves the names before the first use; raises TargetError."""
        if self._replicas:
            return
        await self._update(is_first=True)

    async def _update(self, *, is_first: bool = False) -> None:
        """Resolves the names, adds what is new, and retires what is gone; keeps the addresses of a name that cannot be resolved."""
        found: list[tuple[Address, int]] = []
        for number, url in enumerate(self._urls):
            if not self._is_resolved(url):
                found.append((url, number))
                continue
            try:
                found += [(dataclasses.replace(url, ip=ip), number) for ip in await self._resolve(url.host, url.port)]
            except OSError as error:
                if is_first:
                    raise unreachable(url, error) from None
                return  # the next attempt may succeed
        wanted = {str(address): (address, number) for address, number in found}
        current = {one.label: one for one in self._replicas}
        for place, (label, (address, number)) in enumerate(wanted.items()):
            if label in current:
                continue
            most = max(1, part(self._options.max_connections, place, len(wanted)))
            transport = self._make(address, dataclasses.replace(self._options, max_connections=most))
            current[label] = _Replica(label, self._labels.setdefault(label, len(self._labels)), number, address.ip, transport)
        self._replicas = [current[label] for label in wanted]
        for label, replica in current.items():
            if label not in wanted:
                self._past.append(replica)
                replica.is_gone = True
                self._close_if_gone(replica)

    def _close_if_gone(self, replica: _Replica) -> None:
        """Closes the transport of an address that its name no longer resolves to, once its requests are answered."""
        if replica.is_gone and not replica.in_flight:
            self._closing.append(asyncio.ensure_future(replica.transport.aclose()))

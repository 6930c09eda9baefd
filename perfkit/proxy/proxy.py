"""Listens for clients, and relays each connection to its server until it is stopped: the bytes of both sides, as they are."""

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from perfkit.clock import Clock
from perfkit.errors import UsageError
from perfkit.machine.limits import raise_open_file_limit
from perfkit.override import override
from perfkit.proxy.delay import AddedDelay
from perfkit.proxy.observation import Observation
from perfkit.proxy.relay import Relay
from perfkit.target.address import Address
from perfkit.transport.connect import client_context
from perfkit.units import NS_PER_S

DEFAULT_IDLE_NS = 600 * NS_PER_S
MOST_CONNECTIONS = 2048
"""Open at a time; each is two sockets, and at most 200 KiB that one side has not taken."""
_OTHER_FILES, _BACKLOG = 64, 100
# a client that may await an answer is given up later: of a large model it may take long to begin
_MAKES_ROOM_AFTER_NS, _GIVEN_UP_AFTER_NS = NS_PER_S, 60 * NS_PER_S
_MOST_LINES = 100
# after the end: answers are waited for, and what has come is passed on
_DRAINED_WITHIN_NS, _QUIET_NS, _POLL_NS = NS_PER_S, NS_PER_S // 10, NS_PER_S // 50


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """Where clients connect to, and where their connections lead; port 0 stands for a free one."""

    listen: Address
    target: Address


class Proxy:
    """Relays connections; `say` gets a line for each kind of problem, once. It is the `Listener` of its relays.

    A connection on which nothing passes for `idle_ns` is closed. Where a client would be one too many, so is the one on which nothing has passed for
    longest, of those that await no answer. `ready_since_ns` is that of the event loop's `ReadySelector`.
    """

    def __init__(
        self, clock: Clock, ready_since_ns: Callable[[], int], say: Callable[[str], None], *, idle_ns: int = DEFAULT_IDLE_NS
    ) -> None:
        self.added_delay = AddedDelay()
        self.passed_bytes = 0
        """Bytes of clients that were passed on."""
        self.accepted = self.unreadable = self.idle = self.refused = self.accept_errors = 0
        """Connections of clients: all, those that could not be read, were closed as idle or to make room, and closed at once as too many; errors of accepting."""
        self._clock, self._ready_since_ns, self._say, self._idle_ns = clock, ready_since_ns, say, idle_ns
        self._relays: collections.OrderedDict[Relay, None] = collections.OrderedDict()
        """The one on which nothing has passed for longest comes first."""
        self._numbers = itertools.count()
        self._most_connections = MOST_CONNECTIONS
        self._said: set[str] = set()
        self._servers: Sequence[asyncio.Server] = ()
        self._observation: Observation

    @contextlib.asynccontextmanager
    async def listening(self, routes: Sequence[Route]) -> AsyncIterator[Sequence[Route]]:
        """The routes with the ports that are theirs for the length of the block; `serve` accepts clients there.

        Raises UsageError if a port or socket cannot be used, or TLS files of the target are unusable.
        """
        files = raise_open_file_limit() - _OTHER_FILES - _BACKLOG * len(routes)
        self._most_connections = max(1, min(MOST_CONNECTIONS, files // 2))
        async with contextlib.AsyncExitStack() as stack:
            opened, servers = [], []
            for route in routes:
                server = await self._listen(route)
                stack.callback(server.close)
                servers.append(server)
                port = 0 if route.listen.socket_path else server.sockets[0].getsockname()[1]
                opened.append(dataclasses.replace(route, listen=dataclasses.replace(route.listen, port=port)))
            self._servers = servers
            yield opened

    async def serve(self, observation: Observation, on_ready: Callable[[], None], stop: asyncio.Event) -> None:
        """Relays connections until `stop` is set, then until requests in flight are answered, for at most a second.

        `on_ready` is called once clients are accepted.
        """
        self._observation = observation
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._note_error)
        closing = asyncio.ensure_future(self._close_idle())
        try:
            for server in self._servers:
                await server.start_serving()
            on_ready()
            await stop.wait()
            for server in self._servers:
                server.close()
            await self._drain()
        finally:
            closing.cancel()
            for relay in tuple(self._relays):
                relay.close()
                self.ended(relay)

    async def _listen(self, route: Route) -> asyncio.Server:
        context = client_context(route.target.tls) if route.target.tls else None
        if context is not None and route.target.protocol == "grpc":
            context.set_alpn_protocols(["h2"])
        loop, listen = asyncio.get_running_loop(), route.listen

        def make() -> asyncio.BaseProtocol:
            return self._accept(route, context)

        try:
            if listen.socket_path:
                return await loop.create_unix_server(make, listen.socket_path, start_serving=False)
            return await loop.create_server(make, listen.host, listen.port, backlog=_BACKLOG, start_serving=False)
        except OSError as error:
            raise UsageError(f"--listen {listen}: cannot listen there: {error.strerror or error}") from None

    def _accept(self, route: Route, context: ssl.SSLContext | None) -> asyncio.BaseProtocol:
        self.accepted += 1
        if len(self._relays) >= self._most_connections and not self._make_room():
            self.refused += 1
            self._say_once(f"more than {self._most_connections:,} connections: new ones are closed")
            return _Refusal()
        relay = Relay(next(self._numbers), route.target, context, self._clock.now_ns, self._ready_since_ns, self)
        self._relays[relay] = None
        self._observation.open(relay.number, route.listen)
        return relay.client

    def _make_room(self) -> bool:
        now_ns = self._clock.now_ns()
        for relay in self._relays:
            silent_ns = now_ns - relay.moved_ns
            if silent_ns < _MAKES_ROOM_AFTER_NS:
                break
            if silent_ns >= _GIVEN_UP_AFTER_NS or not relay.may_await_answer:
                self._close_as_idle(relay)
                self._say_once(
                    f"{self._most_connections:,} connections: for each new one, one on which nothing has passed for long is closed"
                )
                return True
        return False

    def _close_as_idle(self, relay: Relay) -> None:
        self.idle += 1
        relay.close()
        self.ended(relay)

    async def _close_idle(self) -> None:
        while True:
            now_ns = self._clock.now_ns()
            while self._relays and now_ns - (longest := next(iter(self._relays))).moved_ns >= self._idle_ns:
                self._close_as_idle(longest)
            oldest_ns = next(iter(self._relays)).moved_ns if self._relays else now_ns
            await self._clock.sleep_until_ns(oldest_ns + self._idle_ns)

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Counts a client that could not be accepted, which the event loop tries again; anything else is a bug."""
        error = context.get("exception")
        if "socket" in context and isinstance(error, OSError):
            self.accept_errors += 1
            self._say_once(f"a client cannot be accepted: {error.strerror or error}")
        else:
            loop.default_exception_handler(dict(context))

    def _say_once(self, line: str) -> None:
        if line not in self._said and len(self._said) < _MOST_LINES:
            self._said.add(line)
            self._say(line)

    async def _drain(self) -> None:
        end_ns = self._clock.now_ns() + _DRAINED_WITHIN_NS
        while (now_ns := self._clock.now_ns()) < end_ns and any(
            relay.may_await_answer or now_ns - relay.moved_ns < _QUIET_NS for relay in self._relays
        ):
            await self._clock.sleep_until_ns(now_ns + _POLL_NS)

    def note_unreadable(self, listen: str, reason: str) -> None:
        """The observer cannot read a connection."""
        self.unreadable += 1
        self._say_once(f"{listen}: a connection is passed on, but not recorded: {reason}")

    # what relays tell

    def passed(self, relay: Relay, data: bytes, read_ns: int, *, is_first: bool) -> None:
        """See `Listener`."""
        self.passed_bytes += len(data)
        self._observation.receive(relay.number, data, read_ns, is_first=is_first)

    def exchanged(self, delay_ns: int) -> None:
        """See `Listener`."""
        self.added_delay.add(delay_ns)

    def moved(self, relay: Relay) -> None:
        """See `Listener`."""
        if relay in self._relays:
            self._relays.move_to_end(relay)

    def unreachable(self, target: Address, error: OSError) -> None:
        """See `Listener`."""
        self._say_once(f"{target} cannot be reached: {error.strerror or str(error) or 'time-out'}")

    def ended(self, relay: Relay) -> None:
        """See `Listener`."""
        if relay in self._relays:
            del self._relays[relay]
            self._observation.close(relay.number)


class _Refusal(asyncio.Protocol):
    """A connection that is one too many."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()

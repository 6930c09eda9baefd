"""Listens for clients, and relays each connection to its server until it is stopped: the bytes of both sides, as they are."""

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import Callable, Sequence

from perfkit.clock import Clock
from perfkit.errors import ProtocolError, UsageError
from perfkit.proxy.grpc_observer import GrpcObserver
from perfkit.proxy.http_observer import HttpObserver
from perfkit.proxy.observer import AddedDelay, CapturedRequest, Observer
from perfkit.target.address import Address
from perfkit.transport.connect import client_context
from perfkit.units import NS_PER_S

# what a client may send before the server is connected
_MOST_EARLY_BYTES = 2**20
_CONNECTS_WITHIN_S = 10


class _Half(asyncio.Protocol):
    """One of a relay's two connections; what it receives goes to the other one."""

    def __init__(self, relay: "Relay", observe: Callable[[bytes, int, int], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Half
        self.has_ended = False
        """Whether its peer sends no more."""
        self.is_lost = False
        self._relay, self._observe = relay, observe
        self._early: list[tuple[bytes, int]] = []
        self._early_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.other.is_lost:
            transport.abort()
            return
        self.other.pass_early()

    def data_received(self, data: bytes) -> None:
        read_ns = self._relay.now_ns()
        other = self.other.transport
        if other is None:
            self._early.append((data, read_ns))
            self._early_bytes += len(data)
            if self._early_bytes > _MOST_EARLY_BYTES and self.transport is not None:
                self.transport.pause_reading()
            return
        other.write(data)
        self._observe(data, read_ns, self._relay.now_ns())

    def pass_early(self) -> None:
        """Passes on what came before the other connection was there."""
        early, self._early = self._early, []
        assert self.other.transport is not None
        if self._early_bytes > _MOST_EARLY_BYTES and self.transport is not None:
            self.transport.resume_reading()  # before the writing, which may pause it again
        for data, read_ns in early:
            self.other.transport.write(data)
            self._observe(data, read_ns, self._relay.now_ns())
        if self.has_ended:
            self._end_other()

    def eof_received(self) -> bool:
        self.has_ended = True
        if self.other.transport is not None:
            self._end_other()
        return self.other.transport is None or not self.other.has_ended  # the other direction may go on

    def _end_other(self) -> None:
        other = self.other.transport
        assert other is not None
        if self.other.has_ended or not other.can_write_eof():
            other.close()
        elif not other.is_closing():
            other.write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if self.other.transport is not None:
            if error is None:
                self.other.transport.close()
            else:
                self.other.transport.abort()
        self._relay.half_lost()

    def pause_writing(self) -> None:
        self._hold(is_held=True)

    def resume_writing(self) -> None:
        self._hold(is_held=False)

    def _hold(self, *, is_held: bool) -> None:
        """Stops reading from one side while the other does not take the bytes."""
        source = self.other.transport
        if source is not None and not source.is_closing():
            (source.pause_reading if is_held else source.resume_reading)()


class Relay:
    """A client's connection and the one to the server that is opened for it.

    `observer` gets what was passed on. `on_unreadable` gets the reason if it cannot read that, `on_unreachable` the error if the server cannot be connected to, and
    `on_closed` the relay at its end.
    """

    def __init__(
        self,
        target: Address,
        context: ssl.SSLContext | None,
        observer: Observer,
        now_ns: Callable[[], int],
        *,
        on_unreadable: Callable[[str], None],
        on_unreachable: Callable[[OSError], None],
        on_closed: Callable[["Relay"], None],
    ) -> None:
        self.now_ns, self.observer = now_ns, observer
        self.answered_ns = 0
        """When the server last sent anything."""
        self._target, self._context = target, context
        self._on_unreadable, self._on_unreachable, self._on_closed = on_unreadable, on_unreachable, on_closed
        self.client, self._server = _Half(self, self._observe_client), _Half(self, self._observe_server)
        self.client.other, self._server.other = self._server, self.client
        self._is_observed = True
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop, target, server_name = asyncio.get_running_loop(), self._target, None
        if self._context is not None and target.tls is not None:
            server_name = target.tls.server_name or target.host
        try:
            async with asyncio.timeout(_CONNECTS_WITHIN_S):
                if target.socket_path:
                    await loop.create_unix_connection(lambda: self._server, target.socket_path)
                else:
                    await loop.create_connection(
                        lambda: self._server, target.host, target.port, ssl=self._context, server_hostname=server_name
                    )
        except OSError as error:  # a time-out, too
            self._on_unreachable(error)
            self._server.is_lost = True
            if self.client.transport is not None:
                self.client.transport.abort()

    def close(self) -> None:
        """Ends both connections."""
        self._connecting.cancel()
        for half in (self.client, self._server):
            if half.transport is not None:
                half.transport.abort()

    def half_lost(self) -> None:
        """One of the connections is gone."""
        if self._server.transport is None:
            self._connecting.cancel()
        if self.client.is_lost and (self._server.is_lost or self._server.transport is None):
            self._on_closed(self)

    def _observe_client(self, data: bytes, read_ns: int, passed_ns: int) -> None:
        self._pass_to_observer(self.observer.client_sent, data, read_ns, passed_ns)

    def _observe_server(self, data: bytes, read_ns: int, passed_ns: int) -> None:
        self.answered_ns = read_ns
        self._pass_to_observer(self.observer.server_sent, data, read_ns, passed_ns)

    def _pass_to_observer(self, observe: Callable[[bytes, int, int], None], data: bytes, read_ns: int, passed_ns: int) -> None:
        if not self._is_observed:
            return
        try:
            observe(data, read_ns, passed_ns)
        except ProtocolError as error:  # the bytes are passed on all the same
            self._is_observed = False
            self._on_unreadable(str(error))


# after the end: answers are waited for, and what has come is passed on
_DRAINED_WITHIN_NS, _QUIET_NS, _POLL_NS = 5 * NS_PER_S, NS_PER_S // 10, NS_PER_S // 50


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """Where clients connect to, and where their connections lead; port 0 stands for a free one."""

    listen: Address
    target: Address


class Proxy:
    """Relays connections; `on_request` gets each inference request, `say` a line for each kind of problem, once."""

    def __init__(self, clock: Clock, on_request: Callable[[CapturedRequest], None], say: Callable[[str], None]) -> None:
        self.added_delay = AddedDelay()
        self.connections = self.unreadable = 0
        """Connections of clients, and those among them whose traffic was passed on but could not be read."""
        self._clock, self._on_request, self._say = clock, on_request, say
        self._relays: set[Relay] = set()
        self._said: set[str] = set()

    async def serve(self, routes: Sequence[Route], on_ready: Callable[[Sequence[Route]], None], stop: asyncio.Event) -> None:
        """Serves the routes until `stop` is set, then until requests in flight are answered, for at most 5 s.

        `on_ready` gets the routes with the ports that are listened on. Raises UsageError if a port or socket cannot be used, or TLS files of
        the target are unusable.
        """
        async with contextlib.AsyncExitStack() as stack:
            opened = []
            for route in routes:
                server = await self._listen(route)
                stack.callback(server.close)
                port = 0 if route.listen.socket_path else server.sockets[0].getsockname()[1]
                opened.append(dataclasses.replace(route, listen=dataclasses.replace(route.listen, port=port)))
            on_ready(opened)
            await stop.wait()
        try:
            await self._drain()
        finally:
            for relay in tuple(self._relays):
                relay.close()

    async def _listen(self, route: Route) -> asyncio.Server:
        context = client_context(route.target.tls) if route.target.tls else None
        if context is not None and route.target.protocol == "grpc":
            context.set_alpn_protocols(["h2"])
        loop, listen = asyncio.get_running_loop(), route.listen

        def make() -> asyncio.Protocol:
            return self._accept(route, context)

        try:
            if listen.socket_path:
                return await loop.create_unix_server(make, listen.socket_path)
            return await loop.create_server(make, listen.host, listen.port)
        except OSError as error:
            raise UsageError(f"--listen {listen}: cannot listen there: {error.strerror or error}") from None

    def _accept(self, route: Route, context: ssl.SSLContext | None) -> asyncio.Protocol:
        observe = HttpObserver if route.listen.protocol == "http" else GrpcObserver
        observer = observe(self._on_request, self.added_delay.add)
        relay = Relay(
            route.target,
            context,
            observer,
            self._clock.now_ns,
            on_unreadable=lambda reason: self._note_unreadable(route, reason),
            on_unreachable=lambda error: self._say_once(f"{route.target} cannot be reached: {error.strerror or str(error) or 'time-out'}"),
            on_closed=self._relays.discard,
        )
        self._relays.add(relay)
        self.connections += 1
        return relay.client

    def _note_unreadable(self, route: Route, reason: str) -> None:
        self.unreadable += 1
        self._say_once(f"{route.listen}: a connection is passed on, but not recorded: {reason}")

    def _say_once(self, line: str) -> None:
        if line not in self._said and len(self._said) < 100:
            self._said.add(line)
            self._say(line)

    async def _drain(self) -> None:
        end_ns = self._clock.now_ns() + _DRAINED_WITHIN_NS
        while (now_ns := self._clock.now_ns()) < end_ns:
            is_quiet = all(now_ns - relay.answered_ns > _QUIET_NS for relay in self._relays)
            if is_quiet and not any(relay.observer.unanswered for relay in self._relays):
                return
            await self._clock.sleep_until_ns(now_ns + _POLL_NS)

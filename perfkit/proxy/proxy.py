"""Listens for clients, and relays each connection to its server until it is stopped."""

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import Callable, Sequence

from perfkit.clock import Clock
from perfkit.errors import UsageError
from perfkit.proxy.captured import CapturedRequest
from perfkit.proxy.grpc_observer import GrpcObserver
from perfkit.proxy.http_observer import HttpObserver
from perfkit.proxy.observer import AddedDelay
from perfkit.proxy.relay import Relay
from perfkit.target.address import Address
from perfkit.transport.connect import client_context
from perfkit.units import NS_PER_S

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

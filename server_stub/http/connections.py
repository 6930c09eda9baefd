"""An HTTP port: its connections, and limits on their number and on the time that clients take.

Each connection starts on the fast path, and moves to aiohttp with the first request that is not suited for it. The limits
here are those that aiohttp does not have.
"""

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import HttpVersion11, StreamReader, web

from perfkit.protocol import rest
from server_stub.devices.host_memory import HostMemory
from server_stub.http.fast_path import FastPathConnection, FastPathHandler, HeadCache
from server_stub.http.inference import body_timeout_message
from server_stub.options import Limits
from server_stub.receiving import Receiver, ReceivingThreads
from server_stub.write_timeout import WriteTimeout

# the front ends report errors; aiohttp would also log a traceback for each client that does not speak HTTP
_QUIET_LOGGER = logging.Logger("server_stub.http.connections", logging.CRITICAL)  # noqa: LOG001 - getLogger would return a shared one
_LINGER_S = 10.0  # for reading the rest of a rejected body, so that its client gets to read the error

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MODEL_PATHS = tuple(rf"/v2/models/{{model:[^{{}}/]+}}{version}" for version in ("", r"/versions/{version:[0-9]+}"))
"""The route patterns of a model, without and with a version."""


class BodyTimeoutError(Exception):
    """A request body that did not arrive in time."""


def json_response(document: object) -> web.Response:
    """A response with a JSON body, or with an empty one for None."""
    body = b"" if document is None else json.dumps(document, separators=(",", ":")).encode()
    return web.Response(body=body, content_type=rest.JSON_TYPE)


def _encode_refusal(message: str) -> bytes:
    body = rest.encode_error(message)
    head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _AiohttpHandler(web.RequestHandler):
    """aiohttp's protocol, with v2 errors also for input that is not HTTP."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The response to bytes that aiohttp cannot parse. It closes the connection."""
        if request.writer.output_size > 0:
            raise ConnectionError("part of a response has been sent already")
        text = f"the request cannot be read: {(message or str(exc)).strip().partition(chr(10))[0]}"
        response = web.Response(status=status, body=rest.encode_error(text), content_type=rest.JSON_TYPE)
        response.force_close()
        return response


class _Connection(asyncio.Protocol):
    """One connection: on the fast path, then on aiohttp, or on neither if there are too many connections."""

    def __init__(self, port: "HttpPort") -> None:
        self._port = port
        self._aiohttp: web.RequestHandler | None = None
        self._transport: asyncio.Transport | None = None
        self._read_timer: asyncio.TimerHandle | None = None  # for a head or a body
        self._write_timeout: WriteTimeout | None = None
        self._is_responding = False
        self._buffered: _BufferedConnection | None = None  # made for its first large request
        self.fast_path: FastPathConnection | None = None
        self.body: StreamReader | None = None
        """The body of the current request on aiohttp, unless it was complete at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not of that class
        self._write_timeout = WriteTimeout(transport, self._port.limits.write_timeout_s)
        if not self._port.add(self):
            self._start_head_timer()
        elif self._port.fast_path_handler is None:
            self._switch_to_aiohttp(b"")
        else:
            self.fast_path = FastPathConnection(
                self._port.heads,
                self._port.fast_path_handler,
                self._port.limits,
                self._port.memory.take,
                self._transport,
                self._switch_to_aiohttp,
                self._receive_into_buffer,
            )

    def data_received(self, data: bytes) -> None:
        if self.fast_path is not None:
            self.fast_path.receive(data)
            return
        if self._aiohttp is None:
            self._refuse()
            return
        if self._read_timer is None and not self._is_responding:
            self._start_head_timer()
        self._aiohttp.data_received(data)

    def eof_received(self) -> None:
        if self._aiohttp is not None:
            self._aiohttp.eof_received()

    def pause_writing(self) -> None:
        if self._write_timeout is not None:
            self._write_timeout.start()
        if self.fast_path is not None:
            self.fast_path.pause()
        if self._aiohttp is not None:
            self._aiohttp.pause_writing()

    def resume_writing(self) -> None:
        if self.fast_path is not None:
            self.fast_path.resume()
        if self._aiohttp is not None:
            self._aiohttp.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
        if self._write_timeout is not None:
            self._write_timeout.stop()
        self._port.remove(self, self._aiohttp)
        if self.fast_path is not None:
            self.fast_path.close()
        if self._buffered is not None:
            self._buffered.receiver.close()
        if self._aiohttp is not None:
            self._aiohttp.connection_lost(exc)

    def begin_response(self, body: StreamReader) -> None:
        """Aiohttp has read a request head and calls its handler."""
        self._stop_read_timer()
        self._is_responding = True
        if not body.is_eof():
            self.body = body
            self._read_timer = asyncio.get_running_loop().call_later(self._port.limits.body_timeout_s, self._abandon_body, body)

    def end_response(self) -> None:
        """Aiohttp's handler has returned."""
        self._stop_read_timer()
        self._is_responding, self.body = False, None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _receive_into_buffer(self, is_buffered: bool) -> None:
        assert self._transport is not None
        assert self.fast_path is not None
        if not is_buffered:
            self._transport.set_protocol(self)
            return
        if self._buffered is None:
            self._buffered = _BufferedConnection(self, self.fast_path, self._port.threads, self._transport)
        self._transport.set_protocol(self._buffered)

    def _switch_to_aiohttp(self, data: bytes) -> None:
        assert self._transport is not None
        self.fast_path = None
        self._start_head_timer()
        self._aiohttp = self._port.make_aiohttp_handler(self)
        self._aiohttp.connection_made(self._transport)
        if data:
            self._aiohttp.data_received(data)

    def _start_head_timer(self) -> None:
        self._read_timer = asyncio.get_running_loop().call_later(self._port.limits.head_timeout_s, self.abort)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _abandon_body(self, body: StreamReader) -> None:
        if not body.is_eof():
            body.set_exception(BodyTimeoutError(body_timeout_message(self._port.limits.body_timeout_s)))

    def _refuse(self) -> None:
        """Respond to the first request on a surplus connection. A response before it would be lost."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_encode_refusal(f"the server has reached its limit of {self._port.limits.max_connections} connections"))
            self._transport.close()


class _BufferedConnection(asyncio.BufferedProtocol):
    """A connection on the fast path while it receives large requests: the bytes are written to their place at once."""

    def __init__(
        self, connection: _Connection, fast_path: FastPathConnection, threads: ReceivingThreads, transport: asyncio.Transport
    ) -> None:
        self._connection, self._fast_path = connection, fast_path
        self.receiver = Receiver(threads, transport, self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._fast_path.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._fast_path.buffer_updated(nbytes)
        self.receiver.expect(self._fast_path.large_space())

    def continue_reading(self) -> None:
        self._fast_path.continue_reading()

    def eof_received(self) -> None:
        self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


class HttpPort:
    """A listening port with its connections."""

    def __init__(
        self,
        routes: list[web.RouteDef],
        handle: Callable[[web.Request, Handler], Awaitable[web.StreamResponse]],
        limits: Limits,
        fast_path_handler: FastPathHandler | None = None,
        memory: HostMemory | None = None,
        threads: ReceivingThreads | None = None,
    ) -> None:
        """`handle` calls a route's handler and turns exceptions into responses. Without `fast_path_handler`, aiohttp does everything."""
        self.limits, self.fast_path_handler = limits, fast_path_handler
        self.heads, self.memory, self.threads = HeadCache(limits.max_body_bytes), memory or HostMemory(), threads or ReceivingThreads(0)
        self._handle = handle
        self._connections: set[_Connection] = set()
        self._by_handler: dict[web.RequestHandler, _Connection] = {}
        self._surplus: set[_Connection] = set()

        @web.middleware
        async def track(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._track(request, handler)

        application = web.Application(middlewares=[track], client_max_size=limits.max_body_bytes)
        application.add_routes(
            web.RouteDef(route.method, route.path, route.handler, {**route.kwargs, "expect_handler": self._expect}) for route in routes
        )
        self._step_timeout_s = limits.stop_timeout_s / 3  # three steps: bodies arrive, handlers finish, handlers are cancelled
        # a request is cancelled when its client disconnects
        self._runner = web.AppRunner(application, shutdown_timeout=self._step_timeout_s, handle_signals=False, handler_cancellation=True)
        self._options: dict[str, Any] = {
            "access_log": None,
            "logger": _QUIET_LOGGER,
            "auto_decompress": False,
            "keepalive_timeout": limits.idle_timeout_s,
            "lingering_time": min(_LINGER_S, limits.head_timeout_s),
        }
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, and return the port. Raises OSError if that fails."""
        await self._runner.setup()
        handshake_s = None if tls is None else self.limits.head_timeout_s
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), host, port, ssl=tls, ssl_handshake_timeout=handshake_s
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening, and wait until the requests in flight are answered or `stop_timeout_s` has passed."""
        if self._server is not None:
            self._server.close()
        await self._wait_for_bodies()  # during `cleanup`, aiohttp reads no more bytes, not even of requests in flight
        await self._runner.cleanup()
        for connection in (*self._surplus, *self._connections):
            connection.abort()

    def add(self, connection: _Connection) -> bool:
        """Register a connection. Returns False if there are too many."""
        if len(self._connections) < self.limits.max_connections:
            self._connections.add(connection)
            return True
        if len(self._surplus) < self.limits.max_connections:
            self._surplus.add(connection)
        else:
            connection.abort()
        return False

    def make_aiohttp_handler(self, connection: _Connection) -> web.RequestHandler:
        """Aiohttp's protocol for a connection."""
        server = self._runner.server
        assert server is not None, "the runner is set up before listening"
        handler = _AiohttpHandler(server, loop=asyncio.get_running_loop(), **self._options)
        self._by_handler[handler] = connection
        return handler

    def remove(self, connection: _Connection, handler: web.RequestHandler | None) -> None:
        """Unregister a closed connection."""
        if handler is not None:
            self._by_handler.pop(handler, None)
        self._connections.discard(connection)
        self._surplus.discard(connection)

    async def _expect(self, request: web.Request) -> None:
        """Send 100 Continue if the body fits. Other expectations are ignored, as HTTP allows."""
        fits = (request.content_length or 0) <= self.limits.max_body_bytes
        if fits and request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # nothing of the actual response has been sent

    async def _track(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = self._by_handler.get(request.protocol)
        if connection is None:  # disconnected before the handler was called
            return await self._handle(request, handler)
        connection.begin_response(request.content)
        try:
            return await self._handle(request, handler)
        finally:
            connection.end_response()

    async def _wait_for_bodies(self) -> None:
        bodies = [connection.body for connection in self._connections if connection.body is not None]
        fast_paths = [connection.fast_path for connection in self._connections if connection.fast_path is not None]
        arriving = asyncio.gather(*(body.wait_eof() for body in bodies), *(path.stop() for path in fast_paths), return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(arriving, self._step_timeout_s)

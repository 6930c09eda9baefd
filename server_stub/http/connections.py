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
from server_stub.http.fast_path import FastPathConnection, HeadCache
from server_stub.http.inference import HttpInference, body_timeout_message
from server_stub.options import Limits
from server_stub.receiving import Receiver, ReceivingThreads
from server_stub.tracing.request_trace import RequestTrace
from server_stub.write_timeout import WriteTimeout

# the front ends report errors; aiohttp would also log a traceback for each client that does not speak HTTP
_QUIET_LOGGER = logging.Logger("server_stub.http.connections", logging.CRITICAL)  # noqa: LOG001 - getLogger would return a shared one
_SCRATCH_BYTES = 2**18
_LINGER_S = 10.0  # for reading the rest of a rejected body, so that its client gets to read the error

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MODEL_PATHS = tuple(rf"/v2/models/{{model:[^/]+}}{version}" for version in ("", r"/versions/{version:[0-9]+}"))
"""The route patterns of a model, without and with a version."""
TRACE: Any = web.RequestKey("trace", RequestTrace) if hasattr(web, "RequestKey") else "trace"  # since aiohttp 3.14, which warns of strings
"""The key of a request at which its RequestTrace is, if it is traced and its response not sent yet."""


class BodyTimeoutError(Exception):
    """A request body that did not arrive in time."""


def json_response(document: object) -> web.Response:
    """A response with a JSON body, or with an empty one for None."""
    body = b"" if document is None else json.dumps(document, separators=(",", ":")).encode()
    return web.Response(body=body, content_type=rest.JSON_TYPE)


def error_answer(status: int, message: str, content_type: str = rest.JSON_TYPE) -> web.Response:
    """A response of `{"error": …}`."""
    return web.Response(status=status, body=rest.encode_error(message), content_type=content_type)


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
        response = error_answer(status, text)
        response.force_close()
        return response


class _Connection(asyncio.BufferedProtocol):
    """One connection: on the fast path, then on aiohttp, or on neither if there are too many connections."""

    def __init__(self, port: "HttpPort") -> None:
        self._port = port
        self._aiohttp: web.RequestHandler | None = None
        self._transport: asyncio.Transport
        self._write_timeout: WriteTimeout
        self._read_timer: asyncio.TimerHandle | None = None  # for a head or a body
        self._is_responding = False
        self._receiver: Receiver | None = None  # made for its first large request
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
            )

    def get_buffer(self, sizehint: int) -> memoryview:
        fast_path = self.fast_path
        return self._port.scratch if fast_path is None or not fast_path.is_buffered else fast_path.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        fast_path = self.fast_path
        if fast_path is not None:
            if not fast_path.is_buffered:
                fast_path.receive(bytes(self._port.scratch[:nbytes]))
                return
            fast_path.buffer_updated(nbytes)
            if self._receiver is None:
                self._receiver = Receiver(self._port.threads, self._transport, self)
            self._receiver.expect(fast_path.large_space())
        elif self._aiohttp is None:
            self._refuse()
        else:
            if self._read_timer is None and not self._is_responding:
                self._start_head_timer()
            self._aiohttp.data_received(bytes(self._port.scratch[:nbytes]))

    def continue_reading(self) -> None:
        if self.fast_path is not None:
            self.fast_path.continue_reading()

    def eof_received(self) -> None:
        if self._aiohttp is not None:
            self._aiohttp.eof_received()

    def pause_writing(self) -> None:
        self._write_timeout.start()
        if self.fast_path is not None:
            self.fast_path.pause()
        if self._aiohttp is not None:
            self._aiohttp.pause_writing()

    def resume_writing(self) -> None:
        if self.fast_path is not None:
            self.fast_path.resume(can_read=self._receiver is None or not self._receiver.is_active)
        if self._aiohttp is not None:
            self._aiohttp.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._write_timeout.stop()
        self._port.remove(self, self._aiohttp)
        if self.fast_path is not None:
            self.fast_path.close()
        if self._receiver is not None:
            self._receiver.close()
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
        self._transport.abort()

    def _switch_to_aiohttp(self, data: bytes) -> None:
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
        if not self._transport.is_closing():
            self._transport.write(_encode_refusal(f"the server has reached its limit of {self._port.limits.max_connections} connections"))
            self._transport.close()


class HttpPort:
    """A listening port with its connections."""

    def __init__(
        self,
        routes: list[web.RouteDef],
        handle: Callable[[web.Request, Handler], Awaitable[web.StreamResponse]],
        limits: Limits,
        fast_path_handler: HttpInference | None = None,
        memory: HostMemory | None = None,
        threads: ReceivingThreads | None = None,
    ) -> None:
        """`handle` calls a route's handler and turns exceptions into responses. Without `fast_path_handler`, aiohttp does everything."""
        self.limits, self.fast_path_handler = limits, fast_path_handler
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        """Where small requests are received. All connections use it, since each read is taken before the next one."""
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

"""One port of HTTP: as many connections as there may be, each with limits on the time that its client takes.

aiohttp reads and answers requests behind this; what it has no limits for is held here, by the bytes that pass.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import HttpVersion11, StreamReader, web

from perfkit.protocol import rest
from server_stub.http_brief import AnswerBrief, BriefExchange, Heads
from server_stub.http_inference import slow_body_text
from server_stub.limits import Limits

# what fails is told by the fronts; what aiohttp would log besides are bytes that are no HTTP, at a traceback each
_QUIET_LOGGER = logging.Logger("server_stub.http_connections", logging.CRITICAL)  # noqa: LOG001 - one of its own, since the shared one is aiohttp's
_LINGER_S = 10.0  # for the rest of a body that is refused, so that its client comes to read the refusal

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SlowBodyError(Exception):
    """A body that is not there in time."""


def _refusal(text: str) -> bytes:
    body = rest.encode_error(text)
    head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _Handler(web.RequestHandler):
    """aiohttp's protocol, with errors as v2 has them also for what is no HTTP."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """What is answered to bytes that aiohttp cannot read; the connection ends with it."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is on its way already")
        text = f"the request cannot be read: {(message or str(exc)).strip().partition(chr(10))[0]}"
        answer = web.Response(status=status, body=rest.encode_error(text), content_type=rest.JSON_TYPE)
        answer.force_close()
        return answer


class _Connection(asyncio.Protocol):
    """What stands between a socket and aiohttp's protocol, `inner`, which there is from the first request on that is not brief.

    Where there are too many connections already there is neither.
    """

    def __init__(self, port: "HttpPort") -> None:
        self._port = port
        self._inner: web.RequestHandler | None = None
        self._transport: asyncio.Transport | None = None
        self._arriving: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._is_answering = False
        self.brief: BriefExchange | None = None
        self.body: StreamReader | None = None
        """The body of the request that is being answered."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's callback."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        if not self._port.enter(self):
            self._await_head()
        elif self._port.answer_brief is None:
            self._pass_on(b"")
        else:
            self.brief = BriefExchange(self._port.heads, self._port.answer_brief, self._port.limits, self._transport, self._pass_on)

    def data_received(self, data: bytes) -> None:
        """Asyncio's callback."""
        if self.brief is not None:
            self.brief.receive(data)
            return
        if self._inner is None:
            self._refuse()
            return
        if self._arriving is None and not self._is_answering:
            self._await_head()
        self._inner.data_received(data)

    def eof_received(self) -> None:
        """Asyncio's callback."""
        if self._inner is not None:
            self._inner.eof_received()

    def pause_writing(self) -> None:
        """Asyncio's callback: the client does not read as fast as it is answered."""
        self._await_reader()
        if self.brief is not None:
            self.brief.pause()
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Asyncio's callback."""
        if self._leaving is not None:
            self._leaving.cancel()
        if self.brief is not None:
            self.brief.resume()
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's callback."""
        for timer in (self._arriving, self._leaving):
            if timer is not None:
                timer.cancel()
        self._port.leave(self, self._inner)
        if self.brief is not None:
            self.brief.close()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def begin(self, body: StreamReader) -> None:
        """A request's head is whole, and it is being answered."""
        self._stop_waiting()
        self._is_answering = True
        if not body.is_eof():
            self.body = body
            self._arriving = asyncio.get_running_loop().call_later(self._port.limits.body_timeout_s, self._end_body, body)

    def end(self) -> None:
        """The request is answered."""
        self._stop_waiting()
        self._is_answering, self.body = False, None

    def abort(self) -> None:
        """Closes the connection, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def _pass_on(self, data: bytes) -> None:
        """From here on requests are aiohttp's."""
        assert self._transport is not None
        self.brief = None
        self._await_head()
        self._inner = self._port.inner(self)
        self._inner.connection_made(self._transport)
        if data:
            self._inner.data_received(data)

    def _await_head(self) -> None:
        self._arriving = asyncio.get_running_loop().call_later(self._port.limits.head_timeout_s, self.abort)

    def _await_reader(self) -> None:
        if self._transport is not None:
            left_bytes = self._transport.get_write_buffer_size()
            self._leaving = asyncio.get_running_loop().call_later(self._port.limits.write_timeout_s, self._check_reader, left_bytes)

    def _check_reader(self, left_bytes: int) -> None:
        if self._transport is not None and self._transport.get_write_buffer_size() < left_bytes:
            self._await_reader()
        else:
            self.abort()

    def _stop_waiting(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _end_body(self, body: StreamReader) -> None:
        if not body.is_eof():
            body.set_exception(SlowBodyError(slow_body_text(self._port.limits.body_timeout_s)))

    def _refuse(self) -> None:
        """Answers what is asked on a connection too many; before it is asked the answer would be lost."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_refusal(f"the server has {self._port.limits.max_connections} connections, which are all it takes"))
            self._transport.close()


class HttpPort:
    """A port on which an application is served."""

    def __init__(
        self,
        routes: list[web.RouteDef],
        answer: Callable[[web.Request, Handler], Awaitable[web.StreamResponse]],
        limits: Limits,
        answer_brief: AnswerBrief | None = None,
    ) -> None:
        """`answer` calls a handler, and turns what it raises into answers; `answer_brief` is for infer requests, where there are any."""
        self.limits, self.answer_brief, self.heads = limits, answer_brief, Heads(limits.max_body_bytes)
        self._answer = answer
        self._connections: set[_Connection] = set()
        self._handled: dict[web.RequestHandler, _Connection] = {}
        self._refused: set[_Connection] = set()

        @web.middleware
        async def hold(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._hold(request, handler)

        application = web.Application(middlewares=[hold], client_max_size=limits.max_body_bytes)
        application.add_routes(
            web.RouteDef(one.method, one.path, one.handler, {**one.kwargs, "expect_handler": self._expect}) for one in routes
        )
        self._step_timeout_s = limits.stop_timeout_s / 3  # it is waited for bodies, for the handlers, and for them to be cancelled
        self._runner = web.AppRunner(
            application,
            shutdown_timeout=self._step_timeout_s,
            handle_signals=False,
            handler_cancellation=True,  # who has left waits no more, and is not waited for
        )
        self._options: dict[str, Any] = {
            "access_log": None,
            "logger": _QUIET_LOGGER,
            "auto_decompress": False,
            "keepalive_timeout": limits.idle_timeout_s,
            "lingering_time": min(_LINGER_S, limits.head_timeout_s),
        }
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listens, and gives the port; raises OSError where it cannot."""
        await self._runner.setup()
        handshake_s = None if tls is None else self.limits.head_timeout_s
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), host, port, ssl=tls, ssl_handshake_timeout=handshake_s
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stops listening and returns when the requests in flight are answered, or the time for it has passed."""
        if self._server is not None:
            self._server.close()
        await self._await_bodies()  # from `cleanup` on aiohttp takes no more bytes, also of a request that it has begun
        await self._runner.cleanup()
        for connection in (*self._refused, *self._connections):
            connection.abort()

    def enter(self, connection: _Connection) -> bool:
        """Counts a connection; False where there are too many."""
        if len(self._connections) < self.limits.max_connections:
            self._connections.add(connection)
            return True
        if len(self._refused) < self.limits.max_connections:
            self._refused.add(connection)
        else:
            connection.abort()
        return False

    def inner(self, connection: _Connection) -> web.RequestHandler:
        """Aiohttp's protocol for a connection."""
        server = self._runner.server
        assert server is not None, "the runner was set up before it listened"
        handler = _Handler(server, loop=asyncio.get_running_loop(), **self._options)
        self._handled[handler] = connection
        return handler

    def leave(self, connection: _Connection, inner: web.RequestHandler | None) -> None:
        """Counts it no more."""
        if inner is not None:
            self._handled.pop(inner, None)
        self._connections.discard(connection)
        self._refused.discard(connection)

    async def _expect(self, request: web.Request) -> None:
        """Asks for a body that there is room for; what else a client may expect is passed over, as HTTP allows."""
        fits = (request.content_length or 0) <= self.limits.max_body_bytes
        if fits and request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # nothing of the answer has gone out

    async def _hold(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = self._handled.get(request.protocol)
        if connection is None:  # gone before its request was looked at
            return await self._answer(request, handler)
        connection.begin(request.content)
        try:
            return await self._answer(request, handler)
        finally:
            connection.end()

    async def _await_bodies(self) -> None:
        bodies = [connection.body for connection in self._connections if connection.body is not None]
        brief = [connection.brief for connection in self._connections if connection.brief is not None]
        arriving = asyncio.gather(*(body.wait_eof() for body in bodies), *(one.end() for one in brief), return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(arriving, self._step_timeout_s)

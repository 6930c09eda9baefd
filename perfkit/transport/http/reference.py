"""The reference engine for HTTP: aiohttp, which is slower than the wire engine and independent of it."""

import asyncio
import dataclasses
import io
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import aiohttp

from perfkit.errors import MeasurementError, ProtocolError, TargetError
from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest
from perfkit.target.address import Address
from perfkit.transport.base import ConnectionCounts, Outcome, Prepared, Reply
from perfkit.transport.connect import client_context, unreachable
from perfkit.transport.http.calls import COMPARED_BYTES, HttpResponse, RestTransport
from perfkit.transport.limits import SWITCHED_PROTOCOLS
from perfkit.transport.options import TransportOptions

# aiohttp warns about larger bodies that are not streams
_MAX_WHOLE_BYTES = 1 << 20


@dataclasses.dataclass(slots=True)
class _RequestTrace:
    """What aiohttp's tracing reports of a request and its connection."""

    started_ns: int
    """When the connection was ready."""
    has_connection: bool = False
    is_connecting: bool = False
    is_reconnect: bool = False


class ReferenceHttpTransport(RestTransport):
    """One aiohttp session, whose connector pools the connections.

    aiohttp does not report lost connections, but it opens one only if none is idle. A connection that is opened while
    fewer requests hold one than did at the peak therefore replaces a lost one.
    """

    def __init__(self, address: Address, options: TransportOptions, now_ns: Callable[[], int]) -> None:
        super().__init__(address, options)
        self.counts = ConnectionCounts()
        self._now_ns = now_ns
        self._in_flight: set[asyncio.Task[Reply]] = set()
        limit = self._max_connections = options.max_connections
        self._in_use = 0
        self._peak_in_use = 0
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_start.append(self._connecting)
        tracing.on_connection_create_end.append(self._connected)
        tracing.on_connection_reuseconn.append(self._reused)
        connector: aiohttp.BaseConnector
        if address.socket_path:
            connector = aiohttp.UnixConnector(address.socket_path, limit=limit, keepalive_timeout=600)
        else:
            context = client_context(address.tls) if address.tls else True
            connector = aiohttp.TCPConnector(limit=limit, limit_per_host=limit, keepalive_timeout=600, ssl=context)
        self._server_name = address.tls.server_name or None if address.tls else None
        self._session = aiohttp.ClientSession(
            f"{'https' if address.tls else 'http'}://{address.authority}",
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=options.timeout_ns / 1e9),
            headers={"Accept-Encoding": "identity", **address.headers},  # aiohttp's default makes Triton compress every response
            trace_configs=[tracing],
            auto_decompress=False,
        )

    async def open(self, connections: int) -> None:
        """Aiohttp opens connections only for requests."""
        await asyncio.gather(*(self.get("/v2/health/live") for _ in range(connections)))

    def prepare(self, request: InferRequest) -> Prepared:
        headers, body = self._encode(request)
        path = rest.model_path(request.model, request.version, "infer")
        return Prepared((path.encode(), b"".join(body)), headers)

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        task = asyncio.ensure_future(self._send(prepared))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return task

    def raw_failure(self, reply: Reply) -> str | bytes:
        return reply.payload.body[:COMPARED_BYTES] if isinstance(reply.payload, HttpResponse) and not reply.error else reply.error

    def abandon(self) -> None:
        for task in tuple(self._in_flight):
            task.cancel()

    async def aclose(self) -> None:
        await self._session.close()

    async def _send(self, prepared: Prepared) -> Reply:
        path, body = prepared.buffers
        trace = _RequestTrace(self._now_ns())
        try:
            response = await self._request("POST", path.decode(), trace, body, dict(prepared.headers))
        except asyncio.CancelledError:
            return Reply(Outcome.UNFINISHED, trace.started_ns, self._now_ns())
        except aiohttp.ClientConnectorError as error:
            return Reply(Outcome.CONNECT_FAILED, trace.started_ns, self._now_ns(), None, str(_unreachable(self._address, error)))
        except TimeoutError as error:
            if trace.is_connecting:
                return Reply(Outcome.CONNECT_FAILED, trace.started_ns, self._now_ns(), None, str(unreachable(self._address, error)))
            return Reply(Outcome.TIMED_OUT, trace.started_ns, self._now_ns(), None, "no complete answer within the time-out")
        except (aiohttp.ClientError, OSError) as error:
            return Reply(Outcome.BROKEN, trace.started_ns, self._now_ns(), None, str(error) or type(error).__name__)
        if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
            return Reply(Outcome.BROKEN, trace.started_ns, self._now_ns(), None, SWITCHED_PROTOCOLS)
        outcome = Outcome.OK if response.status == 200 else Outcome.REJECTED
        return Reply(outcome, trace.started_ns, self._now_ns(), response, status="" if outcome is Outcome.OK else response.status)

    async def _request(self, method: str, path: str, trace: _RequestTrace, body: bytes | None, headers: dict[str, str]) -> HttpResponse:
        url = self._address.base_path + path
        data = io.BytesIO(body) if body is not None and len(body) > _MAX_WHOLE_BYTES else body
        try:
            async with self._session.request(
                method, url, data=data, headers=headers, trace_request_ctx=trace, allow_redirects=False, server_hostname=self._server_name
            ) as response:
                content = await self._read(response)
                return HttpResponse(response.status, {name.lower(): value for name, value in response.headers.items()}, content)
        finally:
            self._in_use -= trace.has_connection
            if trace.is_connecting and not trace.is_reconnect:  # it was not opened
                self._peak_in_use -= 1

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """The body; raises aiohttp.ClientPayloadError if it is too long."""
        if (response.content_length or 0) > self._limit.max_bytes:
            raise aiohttp.ClientPayloadError(self._limit.announced_too_long(response.content_length or 0))
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._limit.max_bytes:
                raise aiohttp.ClientPayloadError(self._limit.too_long())
        return bytes(body)

    def answer_bytes(self, reply: Reply) -> int:
        return len(reply.payload.body)

    def _response(self, reply: Reply) -> HttpResponse:
        if not isinstance(reply.payload, HttpResponse):
            raise ProtocolError(reply.error)
        return reply.payload

    async def get(self, path: str) -> HttpResponse:
        return await self._call("GET", path, None, {})

    async def post(self, path: str, body: bytes) -> HttpResponse:
        return await self._call("POST", path, body, {"Content-Type": rest.JSON_TYPE})

    async def _call(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> HttpResponse:
        try:
            return await self._request(method, path, _RequestTrace(0), body, headers)
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(self._address, error) from None

    async def _connecting(self, _session: object, context: Any, _parameters: object) -> None:
        trace = self._hold(context)
        trace.is_connecting = True
        trace.is_reconnect = self._in_use <= self._peak_in_use or self._peak_in_use >= self._max_connections
        if not trace.is_reconnect:
            self._peak_in_use += 1

    async def _connected(self, _session: object, context: Any, _parameters: object) -> None:
        trace: _RequestTrace = context.trace_request_ctx
        trace.is_connecting = False
        trace.started_ns = self._now_ns()
        self.counts.opened += 1
        self.counts.reconnects += trace.is_reconnect

    async def _reused(self, _session: object, context: Any, _parameters: object) -> None:
        self._hold(context).started_ns = self._now_ns()

    def _hold(self, context: Any) -> _RequestTrace:
        trace: _RequestTrace = context.trace_request_ctx
        if not trace.has_connection:  # aiohttp sends a GET again if its connection was stale
            trace.has_connection = True
            self._in_use += 1
        return trace


def _unreachable(address: Address, error: Exception) -> TargetError | MeasurementError:
    """Like `unreachable`, for aiohttp's errors, which wrap the system's."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    return unreachable(address, cause if isinstance(cause, OSError) else OSError(str(error)))

"""The reference engine for HTTP: aiohttp, which is slower than the wire engine and independent of it."""

import asyncio
import dataclasses
import io
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import aiohttp
import aiohttp.abc

from perfkit.errors import AnswerTooLargeError, MeasurementError, ProtocolError, TargetError
from perfkit.override import override
from perfkit.target.address import Address
from perfkit.transport.base import ConnectionCounts, Outcome, Prepared, Reply
from perfkit.transport.connect import client_context, unreachable
from perfkit.transport.future_replies import TaskSender
from perfkit.transport.http.calls import COMPARED_BYTES, HttpApi, HttpCall, HttpResponse, HttpTransport
from perfkit.transport.options import SWITCHED_PROTOCOLS, TransportOptions

# aiohttp warns about larger bodies that are not streams
_MAX_WHOLE_BYTES = 1 << 20


@dataclasses.dataclass(slots=True)
class RequestTrace:
    """What aiohttp's tracing reports of a request and its connection."""

    started_ns: int
    """When the connection was ready."""
    has_connection: bool = False
    is_connecting: bool = False
    is_reconnect: bool = False
    connecting_since_ns: int = 0


class _OneAddress(aiohttp.abc.AbstractResolver):
    """Resolves every name to one address."""

    def __init__(self, ip: str) -> None:
        self._ip = ip

    @override
    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[aiohttp.abc.ResolveResult]:
        version = socket.AF_INET6 if ":" in self._ip else socket.AF_INET
        return [{"hostname": host, "host": self._ip, "port": port, "family": version, "proto": 0, "flags": socket.AI_NUMERICHOST}]

    @override
    async def close(self) -> None:
        """Holds nothing."""


class ReferenceHttpTransport(TaskSender, HttpTransport):
    """One aiohttp session, whose connector pools the connections.

    aiohttp does not report lost connections, but it opens one only if none is idle. A connection that is opened while
    fewer requests hold one than did at the peak therefore replaces a lost one.
    """

    def __init__(self, address: Address, options: TransportOptions, now_ns: Callable[[], int], api: HttpApi) -> None:
        TaskSender.__init__(self)
        HttpTransport.__init__(self, address)
        self.counts = ConnectionCounts()
        self._opening_path, self._answer_limit = api.opening_path, options.answer_limit
        self._now_ns = now_ns
        limit = self._max_connections = options.max_connections
        self._in_use = 0
        self._peak_in_use = 0
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_start.append(self._connecting)
        tracing.on_connection_create_end.append(self._connected)
        tracing.on_connection_reuseconn.append(self._reused)
        connector = self._connector(limit)
        self._server_name = address.tls.server_name or None if address.tls else None
        self._session = aiohttp.ClientSession(
            f"{'https' if address.tls else 'http'}://{address.authority}",
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=options.timeout_ns / 1e9),
            headers={"Accept-Encoding": "identity", **address.headers},  # aiohttp's default makes Triton compress every response
            trace_configs=[tracing],
            auto_decompress=False,
        )

    def _connector(self, limit: int) -> aiohttp.BaseConnector:
        address, kept_s = self.address, 600
        if address.socket_path:
            return aiohttp.UnixConnector(address.socket_path, limit=limit, keepalive_timeout=kept_s)
        context = client_context(address.tls) if address.tls else True
        resolver = _OneAddress(address.ip) if address.ip else None
        return aiohttp.TCPConnector(limit=limit, limit_per_host=limit, keepalive_timeout=kept_s, ssl=context, resolver=resolver)

    async def open(self, connections: int) -> None:
        """Aiohttp opens connections only for requests."""
        await asyncio.gather(*(self.exchange(HttpCall("GET", self._opening_path)) for _ in range(connections)))

    def prepare(self, call: HttpCall) -> Prepared:
        """The buffers are method, path and body."""
        return Prepared((call.method.encode(), call.path.encode(), b"".join(call.body)), call.headers)

    def raw_failure(self, reply: Reply) -> str | bytes:
        return reply.payload.body[:COMPARED_BYTES] if isinstance(reply.payload, HttpResponse) and not reply.error else reply.error

    @override
    def renew(self, address: Address) -> None:
        super().renew(address)
        self._session.headers.update(address.headers)

    async def aclose(self) -> None:
        await self._session.close()

    async def _send(self, prepared: Prepared) -> Reply:
        method, path, body = prepared.buffers
        trace = self._trace()
        try:
            response = await self._request(method.decode(), path.decode(), trace, body or None, prepared.headers)
        except asyncio.CancelledError:
            return self._reply(trace, Outcome.UNFINISHED)
        except aiohttp.ClientConnectorError as error:
            return self._reply(trace, Outcome.CONNECT_FAILED, error=str(_unreachable(self.address, error)))
        except TimeoutError as error:
            if trace.is_connecting:
                return self._reply(trace, Outcome.CONNECT_FAILED, error=str(unreachable(self.address, error)))
            return self._reply(trace, Outcome.TIMED_OUT, error="no complete answer within the time-out")
        except AnswerTooLargeError as error:
            return Reply(Outcome.BROKEN, trace.started_ns, self._now_ns(), None, str(error), is_own_limit=True)
        except (aiohttp.ClientError, OSError) as error:
            return self._reply(trace, Outcome.BROKEN, error=str(error) or type(error).__name__)
        if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
            return self._reply(trace, Outcome.BROKEN, error=SWITCHED_PROTOCOLS)
        if response.status == 200:
            return self._reply(trace, Outcome.OK, response)
        return self._reply(trace, Outcome.REJECTED, response, status=response.status)

    def _trace(self) -> RequestTrace:
        return RequestTrace(self._now_ns())

    def _reply(
        self, trace: RequestTrace, outcome: Outcome, payload: HttpResponse | None = None, error: str = "", status: str | int = ""
    ) -> Reply:
        """The reply to a request that ends now."""
        return Reply(outcome, trace.started_ns, self._now_ns(), payload, error, status)

    async def _request(self, method: str, path: str, trace: RequestTrace, body: bytes | None, headers: Mapping[str, str]) -> HttpResponse:
        url = self.address.base_path + path
        data = io.BytesIO(body) if body is not None and len(body) > _MAX_WHOLE_BYTES else body
        try:
            async with self._session.request(
                method, url, data=data, headers=headers, trace_request_ctx=trace, allow_redirects=False, server_hostname=self._server_name
            ) as response:
                content = await self._read(response, trace)
                return HttpResponse(response.status, {name.lower(): value for name, value in response.headers.items()}, content)
        finally:
            self._in_use -= trace.has_connection
            if trace.is_connecting and not trace.is_reconnect:  # it was not opened
                self._peak_in_use -= 1

    async def _read(self, response: aiohttp.ClientResponse, trace: RequestTrace) -> bytes:
        """The body; raises AnswerTooLargeError."""
        if (response.content_length or 0) > self._answer_limit.max_bytes:
            raise AnswerTooLargeError(self._answer_limit.announced_too_long(response.content_length or 0))
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._answer_limit.max_bytes:
                raise AnswerTooLargeError(self._answer_limit.too_long())
        return bytes(body)

    def answer(self, reply: Reply) -> HttpResponse:
        if not isinstance(reply.payload, HttpResponse):
            raise ProtocolError(reply.error)
        return reply.payload

    def received(self, reply: Reply) -> bytes:
        return bytes(reply.payload.body)

    async def _exchange(self, prepared: Prepared) -> Reply:
        return await self.send(prepared)

    async def _connecting(self, _session: object, context: Any, _parameters: object) -> None:
        trace = self._hold(context)
        trace.is_connecting = True
        trace.connecting_since_ns = self._now_ns()
        trace.is_reconnect = self._in_use <= self._peak_in_use or self._peak_in_use >= self._max_connections
        if not trace.is_reconnect:
            self._peak_in_use += 1

    async def _connected(self, _session: object, context: Any, _parameters: object) -> None:
        trace: RequestTrace = context.trace_request_ctx
        trace.is_connecting = False
        trace.started_ns = self._now_ns()
        self.counts.connect_times.add(trace.started_ns - trace.connecting_since_ns)
        self.counts.opened += 1
        self.counts.reconnects += trace.is_reconnect

    async def _reused(self, _session: object, context: Any, _parameters: object) -> None:
        self._hold(context).started_ns = self._now_ns()

    def _hold(self, context: Any) -> RequestTrace:
        trace: RequestTrace = context.trace_request_ctx
        if not trace.has_connection:  # aiohttp sends a GET again if its connection was stale
            trace.has_connection = True
            self._in_use += 1
        return trace


def _unreachable(address: Address, error: Exception) -> TargetError | MeasurementError:
    """Like `unreachable`, for aiohttp's errors, which wrap the system's."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    return unreachable(address, cause if isinstance(cause, OSError) else OSError(str(error)))

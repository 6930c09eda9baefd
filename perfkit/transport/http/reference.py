"""The reference engine for HTTP: aiohttp. Slower than `wire`, and independent of it."""

import asyncio
import dataclasses
import io
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from perfkit.errors import ProtocolError, TargetError
from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest
from perfkit.target.address import Address
from perfkit.transport.base import ConnectionCounts, Outcome, Prepared, Reply
from perfkit.transport.http.calls import Answer, RestTransport
from perfkit.transport.options import TransportOptions
from perfkit.transport.reaching import unreachable
from perfkit.transport.tls import client_context

# aiohttp warns of larger bodies, which it would write in one go
_WHOLE_BELOW_BYTES = 1 << 20


@dataclasses.dataclass(slots=True)
class _Course:
    """How far a request has come: when its connection was ready, and whether it holds one, opened it, or is opening it."""

    started_ns: int
    holds: bool = False
    opens: bool = False
    replaces: bool = False


class ReferenceHttpTransport(RestTransport):
    """One aiohttp session; its connector keeps the connections.

    aiohttp does not tell of connections that are lost. It opens one only where none is idle: so one that is opened
    while fewer requests are under way than connections were ever needed at once takes the place of a lost one.
    """

    def __init__(self, address: Address, options: TransportOptions, now_ns: Callable[[], int]) -> None:
        super().__init__(address, options.compression)
        self.counts = ConnectionCounts()
        self._now_ns = now_ns
        self._in_flight: set[asyncio.Task[Reply]] = set()
        limit = self._limit = options.max_connections
        self._held = 0
        self._needed_at_once = 0
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
            headers={"Accept-Encoding": "identity", **address.headers},  # aiohttp's own asks Triton to compress every answer
            trace_configs=[tracing],
            auto_decompress=False,
        )

    async def open(self, connections: int) -> None:
        """See `Transport.open`; aiohttp opens connections by using them."""
        await asyncio.gather(*(self._get("/v2/health/live") for _ in range(connections)))

    def prepare(self, request: InferRequest) -> Prepared:
        """See `Transport.prepare`."""
        headers, body = self._encode(request)
        path = rest.model_path(request.model, request.version, "infer")
        return Prepared((path.encode(), b"".join(body)), headers)

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        """See `Transport.send`."""
        task = asyncio.ensure_future(self._send(prepared))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return task

    def abandon(self) -> None:
        """See `Transport.abandon`."""
        for task in tuple(self._in_flight):
            task.cancel()

    async def aclose(self) -> None:
        """See `Transport.aclose`."""
        await self._session.close()

    async def _send(self, prepared: Prepared) -> Reply:
        path, body = prepared.buffers
        course = _Course(self._now_ns())
        try:
            answer = await self._request("POST", path.decode(), course, body, dict(prepared.headers))
        except asyncio.CancelledError:
            return Reply(Outcome.UNFINISHED, course.started_ns, self._now_ns())
        except aiohttp.ClientConnectorError as error:
            return Reply(Outcome.CONNECT_FAILED, course.started_ns, self._now_ns(), None, str(_unreachable(self._address, error)))
        except TimeoutError as error:
            if course.opens:
                return Reply(Outcome.CONNECT_FAILED, course.started_ns, self._now_ns(), None, str(unreachable(self._address, error)))
            return Reply(Outcome.TIMED_OUT, course.started_ns, self._now_ns(), None, "no complete answer within the time-out")
        except (aiohttp.ClientError, OSError) as error:
            return Reply(Outcome.BROKEN, course.started_ns, self._now_ns(), None, str(error) or type(error).__name__)
        outcome = Outcome.OK if answer.status == 200 else Outcome.REJECTED
        return Reply(outcome, course.started_ns, self._now_ns(), answer, status="" if outcome is Outcome.OK else answer.status)

    async def _request(self, method: str, path: str, course: _Course, body: bytes | None, headers: dict[str, str]) -> Answer:
        url = self._address.base_path + path
        data = io.BytesIO(body) if body is not None and len(body) > _WHOLE_BELOW_BYTES else body
        try:
            async with self._session.request(
                method,
                url,
                data=data,
                headers=headers,
                trace_request_ctx=course,
                allow_redirects=False,
                server_hostname=self._server_name,
            ) as response:
                content = await response.read()
                return Answer(response.status, {name.lower(): value for name, value in response.headers.items()}, content)
        finally:
            self._held -= course.holds
            if course.opens and not course.replaces:  # in vain
                self._needed_at_once -= 1

    def _answer(self, reply: Reply) -> Answer:
        if not isinstance(reply.payload, Answer):
            raise ProtocolError(reply.error)
        return reply.payload

    async def _get(self, path: str) -> Answer:
        try:
            return await self._request("GET", path, _Course(0), None, {})
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(self._address, error) from None

    async def _connecting(self, _session: object, context: Any, _parameters: object) -> None:
        course = self._hold(context)
        course.opens = True
        course.replaces = self._held <= self._needed_at_once or self._needed_at_once >= self._limit
        if not course.replaces:
            self._needed_at_once += 1

    async def _connected(self, _session: object, context: Any, _parameters: object) -> None:
        course: _Course = context.trace_request_ctx
        course.opens = False
        course.started_ns = self._now_ns()
        self.counts.opened += 1
        self.counts.reconnects += course.replaces

    async def _reused(self, _session: object, context: Any, _parameters: object) -> None:
        self._hold(context).started_ns = self._now_ns()

    def _hold(self, context: Any) -> _Course:
        course: _Course = context.trace_request_ctx
        if not course.holds:  # a GET is sent again where its connection turns out to be stale
            course.holds = True
            self._held += 1
        return course


def _unreachable(address: Address, error: Exception) -> TargetError:
    """Aiohttp wraps what the system said."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    return unreachable(address, cause if isinstance(cause, OSError) else OSError(str(error)))

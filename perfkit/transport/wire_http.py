"""The wire engine's HTTP transport: v2 requests as ready-made bytes over `http1` connections."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping

from perfkit.address import Address
from perfkit.errors import ProtocolError, TargetError
from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Buffer
from perfkit.transport.base import Compression, Outcome, Prepared, Reply
from perfkit.transport.http1 import ConnectionPool, WaitedTooLongError, read_answer
from perfkit.transport.rest import Answer, RestTransport
from perfkit.transport.tls import client_context, describe_tls_error

# up to here one buffer is cheaper than several; above, a tensor is not copied
_JOIN_BELOW_BYTES = 1 << 16


class WireHttpTransport(RestTransport):
    """HTTP/1.1 keep-alive connections, one request on each at a time."""

    def __init__(
        self, address: Address, max_connections: int, timeout_ns: int, now_ns: Callable[[], int], compression: Compression = "none"
    ) -> None:
        super().__init__(address, compression)
        context = client_context(address.tls) if address.tls else None
        self._pool = ConnectionPool(address, max_connections, timeout_ns, now_ns, context)
        self.counts = self._pool.counts

    async def open(self, connections: int) -> None:
        """See `Transport.open`."""
        try:
            for connection in await asyncio.gather(*(self._pool.connect() for _ in range(connections))):
                self._pool.give_back(connection)
        except OSError as error:
            raise unreachable(self._address, error) from None

    def prepare(self, request: InferRequest) -> Prepared:
        """See `Transport.prepare`."""
        headers, body = self._encode(request)
        path = self._address.base_path + rest.model_path(request.model, request.version, "infer")
        length = sum(len(buffer) for buffer in body)
        head = self._head("POST", path, {**headers, "Content-Length": str(length)})
        if length < _JOIN_BELOW_BYTES:
            return Prepared((head + b"".join(body),))
        first, *blobs = body
        return Prepared((head + bytes(first), *(_as_bytes(blob) for blob in blobs)))

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        """See `Transport.send`."""
        connection = self._pool.take()
        if connection is None:
            return self._connect_and_send(prepared)
        reply: asyncio.Future[Reply] = self._pool.loop.create_future()
        connection.send(prepared.buffers, reply)
        return reply

    def abandon(self) -> None:
        """See `Transport.abandon`."""
        self._pool.abandon()

    async def aclose(self) -> None:
        """See `Transport.aclose`."""
        self._pool.close()
        await asyncio.sleep(0)  # the connections' last callbacks run

    async def _connect_and_send(self, prepared: Prepared) -> Reply:
        asked_ns = self._pool.now_ns()
        try:
            connection = await self._pool.take_or_connect()
        except WaitedTooLongError:
            return Reply(Outcome.TIMED_OUT, asked_ns, self._pool.now_ns(), None, "no connection became free within the time-out")
        except OSError as error:
            if self._pool.is_abandoned:
                return Reply(Outcome.UNFINISHED, asked_ns, self._pool.now_ns())
            return Reply(Outcome.CONNECT_FAILED, asked_ns, self._pool.now_ns(), None, str(unreachable(self._address, error)))
        reply: asyncio.Future[Reply] = self._pool.loop.create_future()
        connection.send(prepared.buffers, reply)
        if self._pool.is_abandoned:  # while it was being opened
            connection.fail(Outcome.UNFINISHED, "")
        return await reply

    def _head(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        ours = {name.lower() for name in headers}  # no header is sent twice
        own = {lower: value for name, value in self._address.headers.items() if (lower := name.lower()) not in ours}
        lines = {"Host": own.pop("host", self._address.authority), **headers, **own}
        text = "\r\n".join((f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items()), "", ""))
        return text.encode("latin-1")

    def _answer(self, reply: Reply) -> Answer:
        if reply.payload is None:
            raise ProtocolError(reply.error)
        return read_answer(reply.payload)

    async def _get(self, path: str) -> Answer:
        reply = await self.send(Prepared((self._head("GET", self._address.base_path + path, {}),)))
        if reply.payload is None:
            raise TargetError(f"{self._address}: {reply.error}" if reply.outcome is not Outcome.CONNECT_FAILED else reply.error)
        try:
            return self._answer(reply)
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None


def unreachable(address: Address, error: OSError) -> TargetError:
    """The sentence for a connection that could not be opened."""
    if isinstance(error, ssl.SSLError):
        return TargetError(f"{address} cannot be reached: {describe_tls_error(error)}.")
    reason = "no answer within the time-out" if isinstance(error, TimeoutError) else (error.strerror or str(error))
    return TargetError(f"{address} cannot be reached: {reason}. Is the server running, and is this its address?")


def _as_bytes(buffer: Buffer) -> bytes:
    return buffer if isinstance(buffer, bytes) else bytes(buffer)

"""The wire engine's HTTP transport: v2 requests as ready-made bytes over `http1` connections."""

from collections.abc import Callable, Mapping

from perfkit.errors import ProtocolError, TargetError
from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Buffer
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.http.calls import Answer, RestTransport
from perfkit.transport.http.connection import Connection, read_answer
from perfkit.transport.options import TransportOptions
from perfkit.transport.pool import ConnectionPool
from perfkit.transport.pooled import PooledTransport
from perfkit.transport.tls import client_context

# up to here one buffer is cheaper than several; above, a tensor is not copied
_JOIN_BELOW_BYTES = 1 << 16


class WireHttpTransport(PooledTransport[Connection], RestTransport):
    """HTTP/1.1 keep-alive connections, one request on each at a time."""

    def __init__(self, address: Address, options: TransportOptions, now_ns: Callable[[], int]) -> None:
        super().__init__(address, options.compression)
        context = client_context(address.tls) if address.tls else None
        self._pool = ConnectionPool(address, options, now_ns, context, Connection)

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


def _as_bytes(buffer: Buffer) -> bytes:
    return buffer if isinstance(buffer, bytes) else bytes(buffer)

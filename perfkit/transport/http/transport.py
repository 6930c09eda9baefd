"""The wire engine's HTTP transport: v2 requests as prepared bytes over HTTP/1.1 connections."""

from collections.abc import Callable, Mapping

from perfkit.errors import ProtocolError, TargetError
from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Buffer
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.connect import client_context
from perfkit.transport.http.calls import COMPARED_BYTES, HttpResponse, RestTransport
from perfkit.transport.http.connection import HttpConnection, parse_response
from perfkit.transport.options import TransportOptions
from perfkit.transport.pool import PooledTransport
from perfkit.transport.resolution import AttributedConnection, register_peers
from perfkit.transport.rotation import make_pool

# below this size joining buffers is cheaper than writing several; above it, tensors are not copied
_MAX_JOINED_BYTES = 1 << 16


class _AttributedHttpConnection(AttributedConnection, HttpConnection):
    """A connection whose replies name the address that it leads to."""


class WireHttpTransport(PooledTransport[HttpConnection], RestTransport):
    """HTTP/1.1 keep-alive connections with one request at a time."""

    def __init__(self, address: Address, options: TransportOptions, now_ns: Callable[[], int]) -> None:
        super().__init__(address, options)
        self._context = client_context(address.tls) if address.tls else None
        self._pool = make_pool(address, options, now_ns, self._context, _AttributedHttpConnection if options.peers else HttpConnection)
        register_peers(self._pool.counts, address, options.peers)

    def prepare(self, request: InferRequest) -> Prepared:
        headers, body = self._encode(request)
        path = self._address.base_path + rest.model_path(request.model, request.version, "infer")
        length = sum(len(buffer) for buffer in body)
        head = self._head("POST", path, {**headers, "Content-Length": str(length)})
        if length < _MAX_JOINED_BYTES:
            return Prepared((head + b"".join(body),))
        first, *blobs = body
        return Prepared((head + bytes(first), *(_as_bytes(blob) for blob in blobs)))

    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        """See `Sender.with_traceparent`; the header comes first, since the end of the head differs between requests."""
        start, *others = prepared.buffers
        at = start.index(b"\r\n") + 2
        return Prepared((b"%btraceparent: %b\r\n%b" % (start[:at], traceparent.encode(), start[at:]), *others))

    def raw_failure(self, reply: Reply) -> str | bytes:
        """The start of the body: heads hold dates and request ids."""
        if reply.error or not reply.payload:
            return reply.error
        answer = b"".join(reply.payload[:2])
        begin = answer.find(b"\r\n\r\n")
        return answer[begin : begin + COMPARED_BYTES]

    def _head(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        names = {name.lower() for name in headers}  # no header is sent twice
        target_headers = {lower: value for name, value in self._address.headers.items() if (lower := name.lower()) not in names}
        lines = {"Host": target_headers.pop("host", self._address.authority), **headers, **target_headers}
        text = "\r\n".join((f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items()), "", ""))
        return text.encode("latin-1")

    def answer_bytes(self, reply: Reply) -> int:
        return sum(map(len, reply.payload))

    def _response(self, reply: Reply) -> HttpResponse:
        if reply.payload is None:
            raise ProtocolError(reply.error)
        return parse_response(reply.payload)

    async def get(self, path: str) -> HttpResponse:
        return await self._exchange(self._head("GET", self._address.base_path + path, {}))

    async def post(self, path: str, body: bytes) -> HttpResponse:
        headers = {"Content-Type": rest.JSON_TYPE, "Content-Length": str(len(body))}
        return await self._exchange(self._head("POST", self._address.base_path + path, headers) + body)

    async def _exchange(self, request: bytes) -> HttpResponse:
        reply = await self._pool.send((request,))
        if reply.payload is None:
            message = reply.error if reply.outcome is Outcome.CONNECT_FAILED else f"{self._address}: {reply.error}"
            raise TargetError(message, may_pass=reply.outcome in (Outcome.CONNECT_FAILED, Outcome.BROKEN))
        try:
            return self._response(reply)
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None


def _as_bytes(buffer: Buffer) -> bytes:
    return buffer if isinstance(buffer, bytes) else bytes(buffer)

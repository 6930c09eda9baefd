"""The wire engine's gRPC transport: v2 calls as prepared HTTP/2 frames."""

from collections.abc import Callable

from perfkit.errors import ProtocolError, TargetError
from perfkit.protocol import http2, protobuf
from perfkit.protocol.decoded_size import check_protobuf_fields
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.connect import client_context
from perfkit.transport.grpc.calls import RefusedError, RpcTransport, refusal
from perfkit.transport.grpc.connection import GrpcConnection
from perfkit.transport.grpc.messages import AnswerHeaders, read_message, request_headers, write_message
from perfkit.transport.grpc.stream import header_buffers, request_buffers
from perfkit.transport.options import Compression, TransportOptions
from perfkit.transport.pool import ConnectionPool, PooledTransport
from perfkit.transport.resolution import AttributedConnection, register_peers
from perfkit.transport.rotation import make_pool


class _AttributedGrpcConnection(AttributedConnection, GrpcConnection):
    """A connection whose replies name the address that it leads to."""


class WireGrpcTransport(PooledTransport[GrpcConnection], RpcTransport):
    """HTTP/2 connections with up to `streams_per_connection` concurrent requests each."""

    def __init__(self, address: Address, options: TransportOptions, now_ns: Callable[[], int]) -> None:
        super().__init__(address)
        self._options = options
        self._context = client_context(address.tls) if address.tls else None
        if self._context is not None:
            self._context.set_alpn_protocols(["h2"])
        header_cache: dict[bytes, AnswerHeaders] = {}

        def make(pool: ConnectionPool[GrpcConnection]) -> GrpcConnection:
            made = _AttributedGrpcConnection if options.peers else GrpcConnection
            return made(pool, options.streams_per_connection, header_cache)

        self._pool = make_pool(address, options, now_ns, self._context, make)
        register_peers(self._pool.counts, address, options.peers)

    def prepare(self, request: InferRequest) -> Prepared:
        """The buffers are those of `request_buffers`."""
        return self._prepare("ModelInfer", protobuf.encode_infer_request(request), self._options.compression)

    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        """See `Sender.with_traceparent`."""
        _, block, *data = prepared.buffers
        return Prepared((*header_buffers(block + http2.literal_header("traceparent", traceparent)), *data))

    def decode(self, reply: Reply) -> InferResponse:
        message = self._message(reply)
        check_protobuf_fields(message, self._options.answer_limit.max_bytes)
        return protobuf.decode_infer_response(message)

    def answer_bytes(self, reply: Reply) -> int:
        return sum(map(len, reply.payload[1]))

    def _prepare(self, rpc: str, message: bytes, compression: Compression) -> Prepared:
        headers = request_headers(self._address, protobuf.method_path(rpc), self._options.timeout_ns, compression)
        return Prepared(request_buffers(headers, write_message(message, compression)))

    async def _exchange(self, rpc: str, message: bytes) -> bytes:
        reply = await self._pool.send(self._prepare(rpc, message, "none").buffers)
        if reply.outcome is Outcome.REJECTED:
            raise RefusedError(self._address, rpc, reply.error)
        if reply.outcome is not Outcome.OK:
            error = reply.error if reply.outcome is Outcome.CONNECT_FAILED else f"{self._address}: {reply.error}"
            raise TargetError(error, may_pass=reply.outcome in (Outcome.CONNECT_FAILED, Outcome.BROKEN))
        try:
            return self._message(reply)
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None

    def _message(self, reply: Reply) -> bytes:
        """The message of an answer; raises ProtocolError if there is none or it is malformed."""
        if reply.payload is None:
            raise refusal(reply.error)
        headers, chunks = reply.payload
        return read_message(b"".join(chunks), "" if headers is None else headers.encoding, self._options.answer_limit.max_bytes)

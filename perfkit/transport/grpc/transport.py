"""The wire engine's gRPC transport: calls as prepared HTTP/2 frames."""

import dataclasses
from collections.abc import Callable

from perfkit.protocol import http2
from perfkit.target.address import Address
from perfkit.transport.base import Prepared, Reply
from perfkit.transport.connect import client_context
from perfkit.transport.grpc.calls import GrpcTransport, RpcCall, refusal
from perfkit.transport.grpc.connection import GrpcConnection
from perfkit.transport.grpc.messages import AnswerHeaders, read_message, request_headers, write_message
from perfkit.transport.grpc.request_writer import header_buffers, request_buffers
from perfkit.transport.options import Compression, TransportOptions
from perfkit.transport.pool import PooledTransport
from perfkit.transport.rotation import make_pool
from perfkit.transport.streamed_answer import StreamedAnswer, StreamedMessages


class WireGrpcTransport(PooledTransport[GrpcConnection], GrpcTransport):
    """HTTP/2 connections with up to `streams_per_connection` concurrent requests each.

    With `options.stream`, requests are messages of up to so many streams on each connection, and all other calls have connections of
    their own.
    """

    def __init__(self, address: Address, options: TransportOptions, now_ns: Callable[[], int], api: StreamedMessages | None = None) -> None:
        """`api` is needed for streamed requests."""
        super().__init__(address)
        self._options, self._stream, self._api = options, options.stream, api
        context = client_context(address.tls) if address.tls else None
        if context is not None:
            context.set_alpn_protocols(["h2"])
        streams = options.streams_per_connection
        self._pool = make_pool(address, options, now_ns, context, GrpcConnection, streams, dict[bytes, AnswerHeaders]())
        if options.stream is not None:
            from perfkit.transport.grpc.streaming_connection import StreamingConnection

            slots = dataclasses.replace(options, streams_per_connection=streams * options.stream.in_flight)
            arguments = (streams, dict[bytes, AnswerHeaders](), options.stream, api)
            self._streams = make_pool(address, slots, now_ns, context, StreamingConnection, *arguments)

    def prepare(self, call: RpcCall) -> Prepared:
        """The buffers are those of `request_buffers`; of a stream that carries several requests, header block, start of the id, and message."""
        if self._stream is None:
            return self._unary(call, self._options.compression)
        assert self._api is not None
        is_single = self._stream.requests_per_stream == 1
        headers = request_headers(self.address, call.path, self._options.timeout_ns if is_single else None, self._options.compression)
        if not is_single:
            return Prepared((http2.encode_headers(headers), call.request_id.encode(), call.message))
        message = (self._api.id_field(call.request_id) if call.request_id else b"") + call.message
        return Prepared(request_buffers(headers, write_message(message, self._options.compression)))

    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        _, block, *data = prepared.buffers
        return Prepared((*header_buffers(block + http2.literal_header("traceparent", traceparent)), *data))

    def answer(self, reply: Reply) -> bytes:
        """The message, decompressed; of a streamed request that of the first response."""
        if reply.payload is None:
            raise refusal(reply.error)
        if isinstance(reply.payload, StreamedAnswer):
            return bytes(reply.payload.first)
        headers, chunks = reply.payload
        return read_message(b"".join(chunks), "" if headers is None else headers.encoding, self._options.answer_limit.max_bytes)

    def _unary(self, call: RpcCall, compression: Compression) -> Prepared:
        headers = request_headers(self.address, call.path, self._options.timeout_ns, compression)
        return Prepared(request_buffers(headers, write_message(call.message, compression)))

    async def _exchange(self, call: RpcCall) -> Reply:
        return await self._pool.send(self._unary(call, "none").buffers)

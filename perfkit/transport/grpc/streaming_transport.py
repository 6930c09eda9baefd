"""The wire engine's transport for `ModelStreamInfer`: requests are messages of streams, each with none to many responses."""

import dataclasses
from collections.abc import Callable

from perfkit.protocol import http2, protobuf
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.target.address import Address
from perfkit.transport.base import Prepared, Reply
from perfkit.transport.grpc.calls import refusal
from perfkit.transport.grpc.messages import AnswerHeaders, request_headers, write_message
from perfkit.transport.grpc.stream import request_buffers
from perfkit.transport.grpc.streamed_messages import decode_streamed_response, id_field, streamed_message
from perfkit.transport.grpc.streaming_connection import StreamingConnection
from perfkit.transport.grpc.transport import WireGrpcTransport
from perfkit.transport.options import StreamOptions, TransportOptions
from perfkit.transport.pool import ConnectionPool
from perfkit.transport.resolution import AttributedConnection, register_peers
from perfkit.transport.rotation import make_pool
from perfkit.transport.streamed_answer import StreamedAnswer

_RPC = "ModelStreamInfer"


class _AttributedStreamingConnection(AttributedConnection, StreamingConnection):
    """A connection whose replies name the address that it leads to."""


class StreamingWireGrpcTransport(WireGrpcTransport):
    """Up to `streams_per_connection` streams on each HTTP/2 connection; all other calls have connections of their own."""

    _streams: ConnectionPool[StreamingConnection]

    def __init__(self, address: Address, options: TransportOptions, now_ns: Callable[[], int]) -> None:
        super().__init__(address, options, now_ns)
        self._stream_options = stream = options.stream or StreamOptions()
        header_cache: dict[bytes, AnswerHeaders] = {}

        def make(pool: ConnectionPool[StreamingConnection]) -> StreamingConnection:
            made = _AttributedStreamingConnection if options.peers else StreamingConnection
            return made(pool, options.streams_per_connection, header_cache, stream)

        slots = dataclasses.replace(options, streams_per_connection=options.streams_per_connection * stream.in_flight)
        self._streams = make_pool(address, slots, now_ns, self._context, make)
        register_peers(self._streams.counts, address, options.peers)

    def prepare(self, request: InferRequest) -> Prepared:
        """The buffers are those of `request_buffers` for a stream of its own; otherwise header block, start of the id, and message."""
        is_single = self._stream_options.requests_per_stream == 1
        message = streamed_message(request)
        timeout_ns = self._options.timeout_ns if is_single else None
        headers = request_headers(self._address, protobuf.method_path(_RPC), timeout_ns, self._options.compression)
        if is_single:
            message = (id_field(request.id) if request.id else b"") + message
            return Prepared(request_buffers(headers, write_message(message, self._options.compression)))
        return Prepared((http2.encode_headers(headers), request.id.encode(), message))

    def decode(self, reply: Reply) -> InferResponse:
        """The first response."""
        if not isinstance(reply.payload, StreamedAnswer):
            raise refusal(reply.error)
        return decode_streamed_response(reply.payload.first, self._options.answer_limit.max_bytes)

    def answer_bytes(self, reply: Reply) -> int:
        """The size of the largest response."""
        return reply.payload.largest_bytes if isinstance(reply.payload, StreamedAnswer) else 0

"""The wire engine's gRPC transport and its unary calls: prepared HTTP/2 frames out, one reply per request.

The timed span includes reading an answer's status; its message is left in the chunks in which it arrived.
"""

import dataclasses
from collections.abc import Callable, Sequence

from perfkit.protocol import http2
from perfkit.target.address import Address
from perfkit.transport.base import OkReply, Outcome, Prepared, Reply, ReplyReceiver
from perfkit.transport.connect import client_context
from perfkit.transport.grpc.calls import GrpcTransport, RpcCall, refusal
from perfkit.transport.grpc.http2_connection import Http2Connection
from perfkit.transport.grpc.messages import AnswerHeaders, classify, is_complete, read_message, request_headers, write_message
from perfkit.transport.grpc.request_writer import header_buffers, request_buffers
from perfkit.transport.grpc.session import Stream
from perfkit.transport.options import Compression, TransportOptions
from perfkit.transport.pooled_transport import PooledTransport
from perfkit.transport.resolution import make_pool
from perfkit.transport.streamed_answer import StreamedAnswer, StreamedMessages

_OK = Outcome.OK  # an enum's attribute lookup costs more than the rest of a reply


class Call(Stream[AnswerHeaders]):
    """A request in flight, with what is needed to send it again."""

    __slots__ = ("buffers", "is_resent", "reply", "started_ns", "submitted_ns")

    def __init__(self, buffers: Sequence[bytes], reply: ReplyReceiver, started_ns: int) -> None:
        self.buffers = buffers
        self.reply = reply
        self.submitted_ns = self.started_ns = started_ns
        self.is_resent = False
        self.headers = None
        self.chunks = []
        self.received_bytes = 0


class GrpcConnection(Http2Connection[Call]):
    """A connection for unary calls, each a stream of its own."""

    def send(self, buffers: Sequence[bytes], reply: ReplyReceiver) -> None:
        if self._timer is None:
            self._set_timer(self._pool.timeout_ns)
        now_ns = self._now_ns  # by way of a local (docs/architecture.md)
        self._session.send(Call(buffers, reply, now_ns()), buffers)

    def send_queued(self, buffers: Sequence[bytes], reply: ReplyReceiver, submitted_ns: int, started_ns: int | None) -> None:
        call = Call(buffers, reply, self._now_ns())
        call.submitted_ns = submitted_ns
        if started_ns is not None:
            call.started_ns, call.is_resent = started_ns, True
        self._session.send(call, buffers)
        self._reset_timer()  # it may fire after this request's deadline

    def abandon(self) -> None:
        self.is_usable = False
        for call in tuple(self._session.streams.values()):
            self._session.cancel(call)
            self._resolve(call, Outcome.UNFINISHED, "")
        self.close()

    def give_up(self, reply: ReplyReceiver) -> bool:
        call = next((one for one in self._session.streams.values() if one.reply is reply), None)
        if call is None:
            return False
        self._session.cancel(call)
        self._end(call, Outcome.UNFINISHED, "")
        return True

    def on_answer(self, stream: Call, trailers: AnswerHeaders | None) -> None:
        if trailers is not None and trailers.is_ok and is_complete(stream.chunks):
            started_ns, received_ns = stream.started_ns, self._received_ns
            # the chunk that led to this call's sending may hold its answer, too
            finished_ns = received_ns if received_ns > started_ns else self._now_ns()
            if self.is_usable and self.stream_slots == self._allowed_slots:
                self._pool.release(self)
            else:
                self._release()
            receiver = stream.reply
            is_done = receiver.done
            if not is_done():  # after the release: the receiver may send its next request at once
                reply = OkReply()
                reply.outcome, reply.started_ns, reply.finished_ns = _OK, started_ns, finished_ns
                reply.payload, reply.variant = (stream.headers, stream.chunks), 0
                receiver.set_result(reply)
        else:
            outcome, error, status = classify(stream.headers, trailers, stream.chunks)
            if status == "DEADLINE_EXCEEDED" and self._is_due(stream.submitted_ns):
                outcome, status = Outcome.TIMED_OUT, ""
            last = trailers or stream.headers
            self._end(stream, outcome, error, status, None if last is None else last.pushback_ns)

    def on_reset(self, stream: Call, code: int) -> None:
        if code == http2.CANCEL and self._is_due(stream.submitted_ns):
            self._end(stream, Outcome.TIMED_OUT, self._describe_time_out())
        else:
            self._end(stream, Outcome.BROKEN, f"the stream was reset before the answer was complete ({http2.error_name(code)})")

    def on_refused(self, stream: Call, reason: str) -> None:
        if stream.is_resent:
            self._end(stream, Outcome.BROKEN, f"{reason}, for the second time")
            return
        if not stream.reply.done():
            self._pool.resend(stream.buffers, stream.reply, stream.submitted_ns, stream.started_ns)
        self._release()

    def _end(self, call: Call, outcome: Outcome, error: str, status: str = "", pushback_ns: int | None = None) -> None:
        self._resolve(call, outcome, error, status, pushback_ns)
        self._release()

    def _resolve(
        self, call: Call, outcome: Outcome, error: str, status: str = "", pushback_ns: int | None = None, *, is_own_limit: bool = False
    ) -> None:
        if not call.reply.done():
            call.reply.set_result(Reply(outcome, call.started_ns, self._now_ns(), pushback_ns, error, status, is_own_limit=is_own_limit))

    def _end_all(self, error: str, *, is_own_limit: bool = False) -> None:
        self.is_usable = False
        calls = tuple(self._session.streams.values())
        self._session.streams.clear()
        for call in calls:
            self._resolve(call, Outcome.BROKEN, error, is_own_limit=is_own_limit)

    def _submitted_ns(self) -> list[int]:
        return [call.submitted_ns for call in self._session.streams.values()]

    def _end_timed_out(self, due_ns: int) -> bool:
        due = [call for call in self._session.streams.values() if call.submitted_ns <= due_ns]
        for call in due:
            self._session.cancel(call)
            self._end(call, Outcome.TIMED_OUT, self._describe_time_out())
        return bool(due)


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
        if reply.payload is None or isinstance(reply.payload, int):
            raise refusal(reply.error)
        if isinstance(reply.payload, StreamedAnswer):
            return bytes(reply.payload.first)
        headers, chunks = reply.payload
        return read_message(b"".join(chunks), "" if headers is None else headers.encoding, self._options.answer_limit.max_bytes)

    def received(self, reply: Reply) -> bytes:
        payload: StreamedAnswer | tuple[AnswerHeaders | None, list[bytes]] = reply.payload
        return payload[1][0] if isinstance(payload, tuple) else bytes(payload.first)

    def _unary(self, call: RpcCall, compression: Compression) -> Prepared:
        headers = request_headers(self.address, call.path, self._options.timeout_ns, compression)
        return Prepared(request_buffers(headers, write_message(call.message, compression)))

    async def _exchange(self, call: RpcCall) -> Reply:
        return await self._pool.send(self._unary(call, "none"))

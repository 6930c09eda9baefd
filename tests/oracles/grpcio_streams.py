"""Streams of `ModelStreamInfer` on grpcio's asyncio API, which the wire engine's are compared with."""

import asyncio
import dataclasses
from typing import Any

import grpc
import grpc.aio

from perfkit.api_v2.grpc import id_field, read_streamed_response
from perfkit.errors import ProtocolError
from perfkit.protocol import protobuf
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.grpc.calls import refusal
from perfkit.transport.grpc.reference import ReferenceChannel, ReferenceGrpcTransport, is_own_limit
from perfkit.transport.grpc.streaming_connection import ERROR_MESSAGE_STATUS
from perfkit.transport.options import StreamOptions
from perfkit.transport.streamed_answer import StreamedAnswer
from perfkit.units import format_duration_ns

_CLOSED = "the server ended the stream before the answer was complete"


@dataclasses.dataclass(slots=True, eq=False)
class _Request:
    """A request in flight on a stream."""

    started_ns: int
    reply: "asyncio.Future[Reply]"
    answer: StreamedAnswer


@dataclasses.dataclass(slots=True, eq=False)
class _Stream:
    """An open call that may take `left` more requests, and those in flight on it by id."""

    channel: ReferenceChannel
    is_exclusive: bool
    call: Any
    left: int
    requests: dict[str, _Request] = dataclasses.field(default_factory=dict)
    is_cut_off: bool = False
    writing: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    reader: "asyncio.Task[None] | None" = None


class MessageStreamOracle(ReferenceGrpcTransport):
    """A stream at a time on each channel, as long as there is an idle one; otherwise streams share channels."""

    def __init__(self, address, options, now_ns):
        super().__init__(address, options, now_ns)
        self._options = options.stream or StreamOptions()
        self._open_streams: list[_Stream] = []  # that may take more requests
        self._streams: set[_Stream] = set()
        self._next_id = 0

    def prepare(self, call):
        """The start of the id, and the message without one."""
        return Prepared((call.request_id.encode(), call.message))

    def answer(self, reply):
        """The first response."""
        if not isinstance(reply.payload, StreamedAnswer):
            raise refusal(reply.error)
        return reply.payload.first

    async def aclose(self):
        readers = [stream.reader for stream in self._streams if stream.reader is not None]
        for stream in tuple(self._streams):
            stream.call.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await super().aclose()

    async def _send(self, prepared):
        id_prefix, message = prepared.buffers
        stream = self._open_streams[-1] if self._open_streams else self._open_stream()
        self._next_id += 1
        request_id = f"{id_prefix.decode()}{self._next_id}"
        request = _Request(
            self._now_ns(), asyncio.get_running_loop().create_future(), StreamedAnswer(keeps_messages=self._options.keeps_messages)
        )
        stream.requests[request_id] = request
        stream.left -= 1
        is_last = not stream.left
        if not stream.left or len(stream.requests) == self._options.in_flight:
            self._open_streams.remove(stream)
        try:
            try:
                async with stream.writing:  # grpcio takes one message at a time
                    await stream.call.write(id_field(request_id) + message)
                    if is_last:
                        await stream.call.done_writing()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass  # the reader learns why
            return await asyncio.wait_for(request.reply, self._timeout_s)
        except TimeoutError:
            error = f"no complete answer within {format_duration_ns(int(self._timeout_s * 1e9))}"
            return self._cut_off(stream, request_id, request, Outcome.TIMED_OUT, error)
        except asyncio.CancelledError:
            return self._cut_off(stream, request_id, request, Outcome.UNFINISHED, "")

    def _open_stream(self):
        is_exclusive = bool(self._idle)
        channel = self._idle.pop() if is_exclusive else self._channels[len(self._in_flight) % len(self._channels)]
        is_single = self._options.requests_per_stream == 1
        method: Any = channel.channel.stream_stream(self.address.base_path + protobuf.method_path("ModelStreamInfer"))
        call = method(timeout=self._timeout_s if is_single else None, metadata=self._metadata, compression=self._compression)
        stream = _Stream(channel, is_exclusive, call, self._options.requests_per_stream)
        self._streams.add(stream)
        self._open_streams.append(stream)
        stream.reader = asyncio.ensure_future(self._read(stream))
        return stream

    async def _read(self, stream: _Stream):
        """Reads a stream to its end."""
        failure: grpc.aio.AioRpcError | tuple[Outcome, str, str] | None = None
        try:
            while (message := await stream.call.read()) is not grpc.aio.EOF:
                self._take(stream, message, self._now_ns())
            if stream.left:
                failure = Outcome.BROKEN, _CLOSED, ""
        except grpc.aio.AioRpcError as error:
            failure = error
        except ProtocolError as error:
            failure = Outcome.BROKEN, str(error), ""
            stream.call.cancel()
        except asyncio.CancelledError:
            failure = Outcome.UNFINISHED, "", ""
        ended_ns = self._now_ns()
        self._streams.discard(stream)
        self._close(stream)
        if stream.is_exclusive:
            self._idle.append(stream.channel)
        for request in stream.requests.values():
            if not request.reply.done():
                request.reply.set_result(self._ended(request, failure, ended_ns))
        stream.requests.clear()

    def _ended(self, request: _Request, failure: grpc.aio.AioRpcError | tuple[Outcome, str, str] | None, ended_ns: int):
        """The reply to a request whose stream has ended."""
        started_ns, answer = request.started_ns, request.answer
        if failure is None:
            return answer.complete(started_ns, ended_ns, ERROR_MESSAGE_STATUS)
        is_ours = isinstance(failure, grpc.aio.AioRpcError) and is_own_limit(failure)
        if isinstance(failure, grpc.aio.AioRpcError):
            failure = (Outcome.BROKEN, "too long", "") if is_ours else self._failure(failure, ended_ns - started_ns)
        outcome, error, status = failure
        return answer.failed(outcome, started_ns, ended_ns, error, status, is_own_limit=is_ours)

    def _take(self, stream: _Stream, message: bytes, at_ns: int):
        """Takes a message of a stream, and ends its request if no more follow; raises ProtocolError."""
        response = read_streamed_response(message, self._max_answer_bytes)
        request = stream.requests.get(response.id)
        if request is None:
            return
        if not response.error:
            request.answer.keep(message, at_ns)
        if response.is_response:
            request.answer.add(message, len(message), at_ns, response.model)
        elif response.error and not request.answer.error:
            request.answer.error = response.error
        request.answer.is_final = response.is_final is True
        if self._options.requests_per_stream == 1 or response.is_final is False:
            return
        self._remove(stream, response.id)
        if not request.reply.done():
            request.reply.set_result(request.answer.complete(request.started_ns, at_ns, ERROR_MESSAGE_STATUS))

    def _remove(self, stream: _Stream, request_id: str):
        """Removes a request that has ended, so that its stream may take another."""
        stream.requests.pop(request_id, None)
        if stream.is_cut_off:
            if not stream.requests:
                stream.call.cancel()
        elif stream.left and len(stream.requests) == self._options.in_flight - 1:
            self._open_streams.append(stream)

    def _cut_off(self, stream: _Stream, request_id: str, request: _Request, outcome: Outcome, error: str):
        """Ends a request before its answer is complete; its stream takes no other, and is cancelled with its last one."""
        stream.is_cut_off, stream.left = True, 0
        self._close(stream)
        self._remove(stream, request_id)
        return request.answer.failed(outcome, request.started_ns, self._now_ns(), error)

    def _close(self, stream: _Stream):
        """Lets a stream take no more requests."""
        if stream in self._open_streams:
            self._open_streams.remove(stream)

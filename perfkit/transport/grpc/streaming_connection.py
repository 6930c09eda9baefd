"""The wire engine's connection for streams of messages, such as those of `ModelStreamInfer`: HTTP/2 streams that carry one request each, or many.

A response is timed when its last bytes are received. Requests of a stream are told apart by their ids.
"""

from collections.abc import Callable, Sequence
from typing import Any

from perfkit.errors import AnswerTooLargeError, ProtocolError
from perfkit.protocol import http2
from perfkit.protocol.grpc_call import PREFIX_BYTES
from perfkit.transport.base import Outcome, Reply, ReplyReceiver
from perfkit.transport.future_replies import LeavingReply
from perfkit.transport.grpc.http2_connection import Http2Connection
from perfkit.transport.grpc.messages import AnswerHeaders, classify
from perfkit.transport.grpc.session import OwnLimitError, Stream
from perfkit.transport.options import AnswerLimit, StreamOptions, inflate
from perfkit.transport.pool import ConnectionPool
from perfkit.transport.streamed_answer import StreamedAnswer, StreamedMessages

ERROR_MESSAGE_STATUS = "error_message"
"""The status of a request that a stream answers with an error; gRPC has none for it."""
_UNMARKED = (
    "the server does not say which response to a request is its last one (triton_final_response), so that requests cannot share a stream: set "
    "stream.requests_per_stream to 1"
)


class MessageSplitter:
    """Takes the data of a stream in chunks and calls `on_message` with each message, and whether it is compressed.

    It stands in for a stream's list of chunks. `append` raises OwnLimitError for a message beyond the limit.
    """

    def __init__(self, limit: AnswerLimit, on_message: Callable[[bytes, bool], None]) -> None:
        self._limit, self.on_message = limit, on_message
        self._parts: list[bytes] = []
        self._size, self._needed = 0, PREFIX_BYTES

    def __len__(self) -> int:
        """The number of pieces of the message that is not complete."""
        return len(self._parts)

    def append(self, chunk: bytes) -> None:
        """Takes the next bytes."""
        if self._parts:
            self._parts.append(chunk)
            self._size += len(chunk)
            if self._size < self._needed:
                return
            chunk = b"".join(self._parts)
            self._parts.clear()
        position, end, needed = 0, len(chunk), PREFIX_BYTES
        while end - position >= PREFIX_BYTES:
            length = int.from_bytes(chunk[position + 1 : position + PREFIX_BYTES])
            if length > self._limit.max_bytes:
                raise OwnLimitError(self._limit.announced_too_long(length))
            stop = position + PREFIX_BYTES + length
            if stop > end:
                needed = stop - position
                break
            self.on_message(chunk[position + PREFIX_BYTES : stop], chunk[position] != 0)
            position = stop
        if position < end:
            self._parts.append(chunk[position:])
        self._size, self._needed = end - position, needed


class StreamedRequest:
    """A request in flight, with what is needed to send it again."""

    __slots__ = ("answer", "buffers", "id", "is_resent", "reply", "started_ns", "submitted_ns")

    def __init__(self, buffers: Sequence[bytes], reply: ReplyReceiver, now_ns: int, *, keeps_messages: bool) -> None:
        self.buffers, self.reply = buffers, reply
        self.submitted_ns = self.started_ns = now_ns
        self.is_resent = False
        self.id = ""
        self.answer = StreamedAnswer(keeps_messages=keeps_messages)


class RequestStream(Stream[AnswerHeaders]):
    """An HTTP/2 stream and its requests in flight by id; it may take `left` more."""

    __slots__ = ("has_timed_out", "is_unmarked", "left", "requests", "splitter")
    has_many_messages = True

    def __init__(self, limit: AnswerLimit, left: int, on_message: "Callable[[RequestStream, bytes, bool], None]") -> None:
        super().__init__()
        self.splitter = MessageSplitter(limit, lambda message, is_compressed: on_message(self, message, is_compressed))
        # it stands in for the list that holds the chunks of a single answer
        self.chunks = self.splitter  # type: ignore[assignment]  # of a list, the session only appends to it and takes its length
        self.requests: dict[str, StreamedRequest] = {}
        self.left = left
        self.has_timed_out = False
        """Whether the server still works on a request that timed out."""
        self.is_unmarked = False
        """Whether several requests may share the stream, and a response came that does not say whether it is the last one."""

    def end(self) -> list[StreamedRequest]:
        """The requests that the stream had when it ended. It has none from then on, and ignores further messages."""
        requests, self.requests = list(self.requests.values()), {}
        # what it called refers to the stream: the two would keep the last message until the next garbage collection
        self.splitter.on_message = _ignore
        return requests


class StreamingConnection(Http2Connection[RequestStream]):
    """A connection with up to `max_streams` streams, each with as many requests as the options say."""

    def __init__(
        self,
        pool: "ConnectionPool[StreamingConnection]",
        max_streams: int,
        header_cache: dict[bytes, AnswerHeaders],
        options: StreamOptions,
        messages: StreamedMessages,
    ) -> None:
        super().__init__(pool, max_streams, header_cache, options.in_flight)
        self._options, self._messages = options, messages
        self._open_streams: list[RequestStream] = []  # that may take more requests, the one to be used next last
        self._next_id = 0

    def send(self, buffers: Sequence[bytes], reply: ReplyReceiver) -> None:
        if self._timer is None:
            self._set_timer(self._pool.timeout_ns)
        self._start(StreamedRequest(buffers, reply, self._now_ns(), keeps_messages=self._options.keeps_messages))

    def send_queued(self, buffers: Sequence[bytes], reply: ReplyReceiver, submitted_ns: int, started_ns: int | None) -> None:
        request = StreamedRequest(buffers, reply, self._now_ns(), keeps_messages=self._options.keeps_messages)
        request.submitted_ns = submitted_ns
        if started_ns is not None:
            request.started_ns, request.is_resent = started_ns, True
        self._start(request)
        self._reset_timer()  # it may fire after this request's deadline

    def abandon(self) -> None:
        self.is_usable = False
        now_ns = self._now_ns()
        for stream in tuple(self._session.streams.values()):
            if stream.requests:
                self._session.cancel(stream)
            elif stream.left:
                self._session.send_data(stream, b"", ends_stream=True)
                stream.left = 0
            for request in stream.end():
                _resolve(request, request.answer.failed(Outcome.UNFINISHED, request.started_ns, now_ns, ""))
        self.close()

    def give_up(self, reply: ReplyReceiver) -> bool:
        """Cancels the stream of a request that has one of its own."""
        for stream in self._session.streams.values():
            if any(request.reply is reply for request in stream.requests.values()):
                self._session.cancel(stream)
                for request in stream.end():
                    self._fail_request(request, Outcome.UNFINISHED, "")
                return True
        return False

    def on_answer(self, stream: RequestStream, trailers: AnswerHeaders | None) -> None:
        self._forget(stream)
        last = trailers or stream.headers
        if last is not None and last.is_ok:
            is_complete = not stream.left and not len(stream.chunks)
            outcome, error, status = Outcome.BROKEN, "the server ended the stream before the answer was complete", ""
        else:
            is_complete = False
            outcome, error, status = classify(stream.headers, trailers, ())
        for request in stream.end():
            if is_complete:
                self._end(request, request.answer.complete(request.started_ns, self._received_ns, ERROR_MESSAGE_STATUS))
            elif status == "DEADLINE_EXCEEDED" and self._is_due(request.submitted_ns):
                self._fail_request(request, Outcome.TIMED_OUT, _explained(self._describe_time_out(), stream))
            else:
                self._fail_request(request, outcome, _explained(error, stream), status)

    def on_reset(self, stream: RequestStream, code: int) -> None:
        self._forget(stream)
        for request in stream.end():
            if code == http2.CANCEL and self._is_due(request.submitted_ns):
                self._fail_request(request, Outcome.TIMED_OUT, self._describe_time_out())
            else:
                error = f"the stream was reset before the answer was complete ({http2.error_name(code)})"
                self._fail_request(request, Outcome.BROKEN, error)

    def on_refused(self, stream: RequestStream, reason: str) -> None:
        self._forget(stream)
        for request in stream.end():
            if request.is_resent:
                self._fail_request(request, Outcome.BROKEN, f"{reason}, for the second time")
                continue
            if not request.reply.done():
                self._pool.resend(request.buffers, request.reply, request.submitted_ns, request.started_ns)
            self._release()

    @property
    def _is_idle(self) -> bool:
        return not any(stream.requests for stream in self._session.streams.values())

    def _start(self, request: StreamedRequest) -> None:
        """Sends a request on an open stream, or on a new one."""
        if self._options.requests_per_stream == 1:
            is_leaving = isinstance(request.reply, LeavingReply) and request.reply.after_responses
            stream = RequestStream(self.answer_limit, 0, self._on_message_and_leave if is_leaving else self._on_message)
            stream.requests[""] = request
            self._session.send(stream, request.buffers)
            return
        block, id_prefix, body = request.buffers
        if self._open_streams:
            stream = self._open_streams[-1]
        else:
            stream = RequestStream(self.answer_limit, self._options.requests_per_stream, self._on_message)
            self._session.open_stream(stream, block)
            self._open_streams.append(stream)
        self._next_id += 1
        request.id = f"{id_prefix.decode()}{self._next_id}"
        stream.requests[request.id] = request
        stream.left -= 1
        if not stream.left or len(stream.requests) == self._options.in_flight:
            self._open_streams.pop()
        field = self._messages.id_field(request.id)
        data = b"".join((b"\x00", (len(field) + len(body)).to_bytes(4), field, body))
        self._session.send_data(stream, data, ends_stream=not stream.left)

    def _on_message(self, stream: RequestStream, message: bytes, is_compressed: bool) -> None:
        """Takes a message of a stream, and ends its request if no more follow."""
        try:
            if is_compressed:
                encoding = stream.headers.encoding if stream.headers is not None else ""
                message = inflate(message, encoding or "gzip", self.answer_limit.max_bytes)
            response = self._messages.read(message, self.answer_limit.max_bytes)
        except ProtocolError as error:
            self._cancel_broken(stream, str(error), is_own_limit=isinstance(error, AnswerTooLargeError))
            return
        is_single = self._options.requests_per_stream == 1
        stream.is_unmarked |= not is_single and response.is_response and response.is_final is None
        found = stream.requests.get("" if is_single else response.id)
        if found is None:  # a message to a request that has ended
            if response.is_response and response.is_final is None and not stream.has_timed_out:
                self._cancel_broken(stream, f"a response belongs to no request in flight, as its id is {response.id[:50]!r}: {_UNMARKED}")
            return
        if not response.error:
            found.answer.keep(message, self._received_ns)
        if response.is_response:
            found.answer.add(message, len(message), self._received_ns, response.model)
        elif response.error and not found.answer.error:
            found.answer.error = response.error
        found.answer.is_final = response.is_final is True
        if is_single or response.is_final is False:
            return
        del stream.requests[found.id]
        if stream.left and len(stream.requests) == self._options.in_flight - 1:
            self._open_streams.append(stream)
        elif stream.has_timed_out and not stream.requests:
            self._session.cancel(stream)
            stream.end()
        self._end(found, found.answer.complete(found.started_ns, self._received_ns, ERROR_MESSAGE_STATUS))

    def _on_message_and_leave(self, stream: RequestStream, message: bytes, is_compressed: bool) -> None:
        """Takes a message of a stream with one request, and gives it up with its last wanted response."""
        self._on_message(stream, message, is_compressed)
        for request in stream.requests.values():
            if isinstance(request.reply, LeavingReply) and len(request.answer.responses_ns) >= request.reply.after_responses:
                self.give_up(request.reply)
                return

    def _cancel_broken(self, stream: RequestStream, error: str, *, is_own_limit: bool = False) -> None:
        """Ends a stream whose messages cannot be taken."""
        self._session.cancel(stream)
        self._forget(stream)
        for request in stream.end():
            self._fail_request(request, Outcome.BROKEN, error, is_own_limit=is_own_limit)

    def _forget(self, stream: RequestStream) -> None:
        if stream in self._open_streams:
            self._open_streams.remove(stream)

    def _end(self, request: StreamedRequest, reply: Reply) -> None:
        _resolve(request, reply)
        self._release()

    def _fail_request(
        self, request: StreamedRequest, outcome: Outcome, error: str, status: str = "", *, is_own_limit: bool = False
    ) -> None:
        self._end(request, request.answer.failed(outcome, request.started_ns, self._now_ns(), error, status, is_own_limit=is_own_limit))

    def _end_all(self, error: str, *, is_own_limit: bool = False) -> None:
        self.is_usable = False
        streams = tuple(self._session.streams.values())
        self._session.streams.clear()
        self._open_streams.clear()
        for stream in streams:
            for request in stream.end():
                now_ns = self._now_ns()
                _resolve(request, request.answer.failed(Outcome.BROKEN, request.started_ns, now_ns, error, is_own_limit=is_own_limit))

    def _submitted_ns(self) -> list[int]:
        return [request.submitted_ns for stream in self._session.streams.values() for request in stream.requests.values()]

    def _end_timed_out(self, due_ns: int) -> bool:
        has_timed_out = False
        for stream in tuple(self._session.streams.values()):
            due = [one for one in stream.requests.values() if one.submitted_ns <= due_ns]
            if not due:
                continue
            has_timed_out = stream.has_timed_out = True
            self._forget(stream)
            stream.left = 0
            stream.requests = {key: one for key, one in stream.requests.items() if one not in due}
            if not stream.requests:  # a single request of a stream cannot be cancelled
                self._session.cancel(stream)
                stream.end()
            for request in due:
                self._fail_request(request, Outcome.TIMED_OUT, _explained(self._describe_time_out(), stream))
        return has_timed_out


def _ignore(_message: bytes, _is_compressed: bool) -> None:
    """Takes a message of a stream that has ended."""


def _explained(error: str, stream: RequestStream) -> str:
    return f"{error}; {_UNMARKED}" if stream.is_unmarked else error


def _resolve(request: StreamedRequest, reply: Any) -> None:
    if not request.reply.done():
        request.reply.set_result(reply)

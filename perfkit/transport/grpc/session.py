"""The client side of an HTTP/2 connection without I/O: streams, flow control, and the server's control frames."""

import abc
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from perfkit.errors import AnswerTooLargeError
from perfkit.protocol import http2
from perfkit.protocol.http2 import HeaderBlockReader, Http2Error, LimitError
from perfkit.protocol.http2_session import Http2Session, Writer
from perfkit.transport.grpc.known_answer import H, KnownAnswers
from perfkit.transport.grpc.messages import announced_bytes
from perfkit.transport.grpc.request_writer import WINDOW_UPDATES_BYTES, RequestWriter
from perfkit.transport.options import BYTES_PER_CHUNK, AnswerLimit

# as large as h2load's, so that no answer waits for a window
_WINDOW_BYTES = (1 << 30) - 1
_HALF_WINDOW_BYTES = _WINDOW_BYTES // 2
_PREFACE = http2.PREFACE + http2.settings(
    {
        http2.HEADER_TABLE_SIZE: 0,
        http2.ENABLE_PUSH: 0,
        http2.INITIAL_WINDOW_SIZE: _WINDOW_BYTES,
        http2.MAX_HEADER_LIST_SIZE: http2.LARGEST_HEADERS_BYTES,
    }
)
# used for every frame: a module's own globals are faster to look up than another module's
_DATA, _HEADERS, _CONTINUATION, _WINDOW_UPDATE = http2.DATA, http2.HEADERS, http2.CONTINUATION, http2.WINDOW_UPDATE
_PADDED, _END_STREAM, _END_HEADERS = http2.PADDED, http2.END_STREAM, http2.END_HEADERS
_PLAIN_HEADERS = (_END_HEADERS, _END_HEADERS | _END_STREAM)
_HEAD_BYTES, _FRAME_BYTES, _LAST_ID = http2.HEAD_BYTES, http2.DEFAULT_FRAME_BYTES, http2.LAST_STREAM_ID
_read_head = http2.read_head
_MAX_HEADERS_BYTES = 2 * http2.LARGEST_HEADERS_BYTES
_CHECKED_BYTES = 1 << 20
# a chunk so short takes far more memory than its bytes, so that their number is limited, too
_TINY_BYTES = 16


class OwnLimitError(AnswerTooLargeError, LimitError):
    """An answer that perfkit refuses because of its size, which ends its connection."""


class Stream(Generic[H]):
    """The part of an answer received so far: its first headers, and its data in chunks."""

    __slots__ = ("chunks", "headers", "id", "received_bytes")
    has_many_messages = False
    """Whether the answer is a stream of messages, whose length as a whole has no limit."""

    def __init__(self) -> None:
        self.id = 0
        self.headers: H | None = None
        self.chunks: list[bytes] = []
        self.received_bytes = 0
        """The bytes received since the answer's size was last checked."""


S = TypeVar("S", bound=Stream[Any])


class SessionListener(abc.ABC, Generic[S, H]):
    """Callbacks of a session, and what it asks. Each stream ends with exactly one of `on_answer`, `on_reset` and `on_refused`."""

    @property
    @abc.abstractmethod
    def answer_limit(self) -> AnswerLimit:
        """The length from which an answer is refused."""

    @abc.abstractmethod
    def now_ns(self) -> int:
        """The time, for limits per second; read once for every few thousand control frames."""

    @abc.abstractmethod
    def on_answer(self, stream: S, trailers: H | None) -> None:
        """The answer is complete; `trailers` is None if data ended it."""

    @abc.abstractmethod
    def on_reset(self, stream: S, code: int) -> None:
        """The server reset the stream, or the session did because the server violated the protocol."""

    @abc.abstractmethod
    def on_refused(self, stream: S, reason: str) -> None:
        """The server declares that it did not process the request."""

    @abc.abstractmethod
    def on_settings(self) -> None:
        """The server's settings arrived, the first or new ones: `max_concurrent_streams` may have changed."""

    @abc.abstractmethod
    def on_goaway(self) -> None:
        """The session can open no more streams; `goaway_reason` says why."""


class ClientSession(Http2Session, Generic[S, H]):
    """Takes requests and received bytes, writes frames, and calls its listener. It knows neither clocks nor sockets.

    A stream carries one request, by `send`; or it is opened without data, carries many, and ends when its owner says so.
    """

    def __init__(self, writer: Writer, listener: SessionListener[S, H], header_blocks: HeaderBlockReader[H]) -> None:
        super().__init__(writer, listener.now_ns, peer="server", last_id=-1, max_headers_bytes=_MAX_HEADERS_BYTES)
        self.streams: dict[int, S] = {}
        self.goaway_reason = ""
        """Why no more streams can be opened; empty as long as they can."""
        self.max_concurrent_streams = http2.LAST_STREAM_ID
        self._requests = RequestWriter(writer)
        self._unsent = self._requests.unsent
        self._listener = listener
        self._header_blocks = header_blocks
        self._partial: list[bytes] = []
        self._partial_bytes = self._needed_bytes = 0
        self._received_bytes = 0  # since the last update of the connection's window
        self._checked_bytes: dict[int, int] = {}  # of large answers, by their streams
        self._known_answers = KnownAnswers(header_blocks)

    def open(self) -> None:
        """Writes the preface, the settings and a large connection window."""
        self._write(_PREFACE + http2.number_frame(http2.WINDOW_UPDATE, 0, _WINDOW_BYTES - http2.DEFAULT_WINDOW_BYTES))

    def send(self, stream: S, buffers: Sequence[bytes]) -> None:
        """Opens a stream for a request from `request_buffers`, and writes as much of it as the send windows allow."""
        self._requests.send(self._number(stream), buffers)

    def open_stream(self, stream: S, block: bytes) -> None:
        """Opens a stream with a header block, which `send_data` follows."""
        self._requests.open_stream(self._number(stream), block)

    def send_data(self, stream: S, data: bytes, *, ends_stream: bool = False) -> None:
        """Writes as much of a message as the send windows allow; the rest follows. With `ends_stream` it is the stream's last."""
        self._requests.send_data(stream.id, data, ends_stream=ends_stream)

    def _number(self, stream: S) -> int:
        """Gives a stream its id."""
        stream.id = self.last_id = stream_id = self.last_id + 2
        self.streams[stream_id] = stream
        if stream_id == _LAST_ID:
            self._begin_close("the connection has used all its stream ids")
        return stream_id

    def cancel(self, stream: S) -> None:
        """Resets a stream; anything still received on it is ignored."""
        self._remove(stream)
        self._write(http2.number_frame(http2.RST_STREAM, stream.id, http2.CANCEL))

    def receive(self, data: bytes) -> None:
        """Takes the server's bytes; raises Http2Error, after which the session is over, if they violate the protocol."""
        if self._partial:
            self._partial.append(data)
            self._partial_bytes += len(data)
            if self._partial_bytes < self._needed_bytes:
                return
            data = b"".join(self._partial)
            self._partial.clear()
        elif len(data) == WINDOW_UPDATES_BYTES and self._unsent and self.is_ready and self._block is None:
            if self._requests.update_both_windows(data):
                self._count_control_frames(2)
                self._requests.write_on()
                return
        elif (known := self._known_answers.read(data)) and self._receive_known(known):
            return
        read_head, streams = _read_head, self.streams
        position, end, needed = 0, len(data), _HEAD_BYTES
        while end - position >= _HEAD_BYTES:
            upper, lower, kind, flags, stream_id = read_head(data, position)
            length = upper << 8 | lower
            if length > _FRAME_BYTES:
                raise Http2Error("a frame is longer than the agreed maximum", http2.FRAME_SIZE_ERROR)
            first = position + _HEAD_BYTES
            stop = first + length
            if stop > end:
                needed = stop - position
                break
            if self._block is not None and kind != _CONTINUATION:
                raise Http2Error("another frame interrupts a header block")
            if kind == _DATA:
                stream = streams.get(stream_id)
                if not flags and length > _TINY_BYTES and stream is not None and stream.headers is not None:  # nearly all data frames
                    self._received_bytes += length
                    stream.received_bytes += length
                    stream.chunks.append(data[first:stop])
                    if self._received_bytes > _HALF_WINDOW_BYTES or stream.received_bytes > _CHECKED_BYTES:
                        self._check_size(stream)
                else:
                    self._receive_data(stream_id & _LAST_ID, flags, data[first:stop], length)
            elif kind == _HEADERS and flags in _PLAIN_HEADERS:
                self._receive_headers(stream_id & _LAST_ID, flags, data[first:stop])
            elif kind == _WINDOW_UPDATE and length == 4 and self.is_ready:  # dozens of them for a large request
                self._receive_window_update(stream_id & _LAST_ID, data[first:stop])
            else:
                self._receive_other(kind, flags, stream_id & _LAST_ID, data[first:stop])
            position = stop
        if position < end:
            self._partial.append(data[position:])
            self._partial_bytes, self._needed_bytes = end - position, needed
        else:
            self._known_answers.learn(data)
        if self._unsent:
            self._requests.write_on()

    def _receive_known(self, answer: tuple[int, H, bytes, H]) -> bool:
        """Takes an answer whose frames need no parsing; False if its stream, or the session, is not in the state for that."""
        stream_id, headers, message, trailers = answer
        stream = self.streams.get(stream_id)
        if stream is None or stream.headers is not None or stream.has_many_messages or self._unsent or self._block is not None:
            return False
        self._received_bytes += len(message)
        if self._received_bytes > _HALF_WINDOW_BYTES:
            self._renew_window()
        stream.headers = headers
        stream.chunks.append(message)
        del self.streams[stream_id]
        self._listener.on_answer(stream, trailers)
        return True

    def _receive_data(self, stream_id: int, flags: int, chunk: bytes, length: int) -> None:
        self._received_bytes += length
        self._renew_window()
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_was_opened(stream_id)
            self._count_control_frames(1)
            return
        if flags & _PADDED:
            chunk = http2.strip_padding(chunk, http2.PADDED)
        if stream.headers is None:
            self._reset_malformed(stream)
            return
        if chunk:
            stream.chunks.append(chunk)
        if flags & _END_STREAM:
            if stream_id in self.streams:  # otherwise what took the chunk has cancelled the stream
                self._finish(stream, None)
            return
        if len(chunk) <= _TINY_BYTES:
            self._count_control_frames(1)
        stream.received_bytes += length
        if stream.received_bytes > _CHECKED_BYTES:
            self._check_size(stream)

    def _check_size(self, stream: S) -> None:
        """Refuses an answer that is too long, once in each MiB of it; renews the receive windows before they are half used."""
        self._renew_window()
        if stream.has_many_messages:  # each of which is checked as it arrives
            self._write(http2.number_frame(http2.WINDOW_UPDATE, stream.id, stream.received_bytes))
            stream.received_bytes = 0
            return
        limit, checked_bytes = self._listener.answer_limit, self._checked_bytes.get(stream.id, 0)
        if not checked_bytes:
            if (announced := announced_bytes(stream.chunks)) > limit.max_bytes:
                raise OwnLimitError(limit.announced_too_long(announced))
            self._checked_bytes = {known: size for known, size in self._checked_bytes.items() if known in self.streams}
        checked_bytes += stream.received_bytes
        if checked_bytes + BYTES_PER_CHUNK * len(stream.chunks) > limit.max_bytes + _CHECKED_BYTES:
            raise OwnLimitError(limit.too_long())
        self._checked_bytes[stream.id] = checked_bytes
        if limit.max_bytes > _HALF_WINDOW_BYTES:
            self._write(http2.number_frame(http2.WINDOW_UPDATE, stream.id, stream.received_bytes))
        stream.received_bytes = 0

    def _renew_window(self) -> None:
        if self._received_bytes > _HALF_WINDOW_BYTES:
            self._write(http2.number_frame(http2.WINDOW_UPDATE, 0, self._received_bytes))
            self._received_bytes = 0

    def _requests_and_bytes(self) -> tuple[int, int]:
        return (self.last_id + 2) // 2, self._requests.written_bytes

    def _receive_headers(self, stream_id: int, flags: int, block: bytes) -> None:
        # read the block of an unknown stream too: later blocks may refer to it
        headers = self._header_blocks.look_up(block)
        if headers is None:
            headers = self._header_blocks.read(block)
            self._known_answers.forget()  # the block may have begun a dynamic table
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_was_opened(stream_id)
            self._count_control_frames(1)
        elif flags & _END_STREAM:
            self._finish(stream, headers)
        elif stream.headers is not None:
            self._reset_malformed(stream)
        elif not headers.is_interim:
            stream.headers = headers
        else:
            self._count_control_frames(1)

    def _finish(self, stream: S, trailers: H | None) -> None:
        del self.streams[stream.id]
        if self._unsent and stream.id in self._unsent:  # answered before the whole request was sent
            del self._unsent[stream.id]
            self._write(http2.number_frame(http2.RST_STREAM, stream.id, http2.NO_ERROR))
        self._listener.on_answer(stream, trailers)

    def _reset_malformed(self, stream: S) -> None:
        """Resets a stream whose frames come in an invalid order."""
        self._remove(stream)
        self._write(http2.number_frame(http2.RST_STREAM, stream.id, http2.PROTOCOL_ERROR))
        self._listener.on_reset(stream, http2.PROTOCOL_ERROR)

    def _remove(self, stream: S) -> None:
        del self.streams[stream.id]
        self._unsent.pop(stream.id, None)

    def _check_headers_may_begin(self, stream_id: int) -> None:
        self._check_was_opened(stream_id)

    def _change_settings(self, values: dict[int, int]) -> None:
        self.max_concurrent_streams = values.get(http2.MAX_CONCURRENT_STREAMS, self.max_concurrent_streams)
        self._requests.change_settings(values)
        self._listener.on_settings()

    def _receive_window_update(self, stream_id: int, payload: bytes) -> None:
        self._count_control_frames(1)
        if not self._requests.update_window(stream_id, payload):
            self._check_was_opened(stream_id)

    def _receive_reset(self, stream_id: int, code: int) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        self._remove(stream)
        if code == http2.REFUSED_STREAM:
            self._listener.on_refused(stream, "the server refused the stream")
        else:
            self._listener.on_reset(stream, code)

    def _receive_goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise Http2Error("a GOAWAY frame is too short", http2.FRAME_SIZE_ERROR)
        last_id, code, text = int.from_bytes(payload[:4]) & http2.LAST_STREAM_ID, int.from_bytes(payload[4:8]), payload[8:]
        detail = text.decode("utf-8", "replace")
        self._begin_close(f"the server sent GOAWAY ({http2.error_name(code)}{f': {detail}' if detail else ''})")
        for stream in [stream for stream_id, stream in self.streams.items() if stream_id > last_id]:
            self._remove(stream)
            self._listener.on_refused(stream, self.goaway_reason)

    def _begin_close(self, reason: str) -> None:
        self.goaway_reason = reason
        self._listener.on_goaway()

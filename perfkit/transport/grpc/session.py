"""A client's side of an HTTP/2 connection, without sockets: streams, both windows, and what the peer asks of us."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from perfkit.protocol import http2
from perfkit.protocol.http2 import BlockReader, Http2Error
from perfkit.transport.grpc.stream import Fields, Listener, Stream, Writer

# windows as h2load has them: no answer waits for us
_WINDOW_BYTES = (1 << 30) - 1
_OPENING = http2.PREFACE + http2.settings(
    {
        http2.HEADER_TABLE_SIZE: 0,
        http2.ENABLE_PUSH: 0,
        http2.INITIAL_WINDOW_SIZE: _WINDOW_BYTES,
        http2.MAX_HEADER_LIST_SIZE: http2.LARGEST_HEADERS_BYTES,
    }
)
# looked up for each frame: a module's own names are found sooner than another's
_DATA, _HEADERS, _CONTINUATION, _WINDOW_UPDATE = http2.DATA, http2.HEADERS, http2.CONTINUATION, http2.WINDOW_UPDATE
_PADDED, _END_STREAM, _END_HEADERS = http2.PADDED, http2.END_STREAM, http2.END_HEADERS
_PLAIN_HEADERS = (_END_HEADERS, _END_HEADERS | _END_STREAM)
_HEAD_BYTES, _FRAME_BYTES, _LAST_ID = http2.HEAD_BYTES, http2.DEFAULT_FRAME_BYTES, http2.LAST_STREAM_ID
_HALF_WINDOW_BYTES = _WINDOW_BYTES // 2
_read_head, _frame_head = http2.read_head, http2.frame_head


_F = TypeVar("_F", bound=Fields)
_S = TypeVar("_S", bound=Stream[Any])


class _Unsent:
    """What is left of a request's data, and the stream's window for it."""

    __slots__ = ("data", "window_bytes")

    def __init__(self, data: memoryview, window_bytes: int) -> None:
        self.data = data
        self.window_bytes = window_bytes


class ClientConnection(Generic[_S, _F]):
    """Takes requests and received bytes, writes frames, and tells its listener. It knows no time and no socket."""

    def __init__(self, writer: Writer, listener: Listener[_S, _F], blocks: BlockReader[_F]) -> None:
        self.streams: dict[int, _S] = {}
        self.is_ready = False
        self.is_leaving = False
        self.farewell = ""
        self.most_streams = http2.LAST_STREAM_ID
        self._write, self._writelines = writer.write, writer.writelines
        self._listener = listener
        self._blocks = blocks
        self._next_id = 1
        self._partial: list[bytes] = []
        self._partial_bytes = self._needed_bytes = 0
        self._received_bytes = 0
        self._block: list[bytes] | None = None  # of a HEADERS frame that goes on in CONTINUATION
        self._block_stream_id = self._block_flags = 0
        self._window_bytes = self._stream_window_bytes = http2.DEFAULT_WINDOW_BYTES
        self._frame_bytes = self._at_once_bytes = http2.DEFAULT_FRAME_BYTES
        self._unsent: dict[int, _Unsent] = {}
        self._may_go_on = False

    def open(self) -> None:
        """Writes the preface, our settings and a wide window."""
        self._write(_OPENING + http2.number_frame(http2.WINDOW_UPDATE, 0, _WINDOW_BYTES - http2.DEFAULT_WINDOW_BYTES))

    def send(self, stream: _S, buffers: Sequence[bytes]) -> None:
        """Opens a stream for a request as `prepare` made it, and writes as much of it as the peer's windows take."""
        headers_start, block, data_start, data = buffers
        stream_id = self._next_id
        self._next_id = stream_id + 2
        stream.id = stream_id
        self.streams[stream_id] = stream
        length = len(data)
        if stream_id == _LAST_ID:
            self._leave("the connection's stream numbers are used up")
        if length <= self._at_once_bytes and length <= self._window_bytes and headers_start and stream_id != 1:
            self._window_bytes -= length
            number = stream_id.to_bytes(4)
            self._write(b"".join((headers_start, number, block, data_start, number, data)))
            return
        # the peer may have asked for a smaller table than the one that stands at first
        frames = self._header_frames(stream_id, http2.NO_TABLE + block if stream_id == 1 else block)
        self._unsent[stream_id] = _Unsent(memoryview(data), self._stream_window_bytes)
        self._go_on(frames)

    def cancel(self, stream: _S) -> None:
        """Takes a request back; what still comes of it is ignored."""
        self._drop(stream)
        self._write(http2.number_frame(http2.RST_STREAM, stream.id, http2.CANCEL))

    def receive(self, data: bytes) -> None:
        """Takes the peer's bytes; raises Http2Error where they break the protocol: the connection is over then."""
        if self._partial:
            self._partial.append(data)
            self._partial_bytes += len(data)
            if self._partial_bytes < self._needed_bytes:
                return
            data = b"".join(self._partial)
            self._partial.clear()
        read_head, streams = _read_head, self.streams
        position, end, needed = 0, len(data), _HEAD_BYTES
        while end - position >= _HEAD_BYTES:
            upper, lower, kind, flags, stream_id = read_head(data, position)
            length = upper << 8 | lower
            if length > _FRAME_BYTES:
                raise Http2Error("a frame is longer than was agreed", http2.FRAME_SIZE_ERROR)
            first = position + _HEAD_BYTES
            stop = first + length
            if stop > end:
                needed = stop - position
                break
            if self._block is not None and kind != _CONTINUATION:
                raise Http2Error("a header block is interrupted by another frame")
            if kind == _DATA:
                stream = streams.get(stream_id)
                if not flags and length and stream is not None and stream.head is not None:  # as nearly all data is
                    self._received_bytes += length
                    stream.received_bytes += length
                    stream.chunks.append(data[first:stop])
                    if self._received_bytes > _HALF_WINDOW_BYTES or stream.received_bytes > _HALF_WINDOW_BYTES:
                        self._widen(stream)
                else:
                    self._take_data(stream_id & _LAST_ID, flags, data[first:stop], length)
            elif kind == _HEADERS and flags in _PLAIN_HEADERS:
                self._take_headers(stream_id & _LAST_ID, flags, data[first:stop])
            elif kind == _WINDOW_UPDATE and length == 4 and self.is_ready:  # a large request has dozens of them
                self._take_window(stream_id & _LAST_ID, data[first:stop])
            else:
                self._take_other(kind, flags, stream_id & _LAST_ID, data[first:stop])
            position = stop
        if position < end:
            self._partial.append(data[position:])
            self._partial_bytes, self._needed_bytes = end - position, needed
        if self._may_go_on and self._unsent:
            self._go_on([])

    def _take_data(self, stream_id: int, flags: int, chunk: bytes, length: int) -> None:
        self._received_bytes += length
        stream = self.streams.get(stream_id)
        self._widen(stream)
        if stream is None:
            self._check_was_opened(stream_id)
            return
        if flags & _PADDED:
            chunk = http2.unpadded(chunk, http2.PADDED)
        if stream.head is None:
            self._break(stream)
            return
        if chunk:
            stream.chunks.append(chunk)
        if flags & _END_STREAM:
            self._finish(stream, None)
            return
        stream.received_bytes += length
        self._widen(stream)

    def _widen(self, stream: _S | None) -> None:
        """Renews the windows that we give, before they are half used up."""
        if self._received_bytes > _HALF_WINDOW_BYTES:
            self._write(http2.number_frame(http2.WINDOW_UPDATE, 0, self._received_bytes))
            self._received_bytes = 0
        if stream is not None and stream.received_bytes > _HALF_WINDOW_BYTES:
            self._write(http2.number_frame(http2.WINDOW_UPDATE, stream.id, stream.received_bytes))
            stream.received_bytes = 0

    def _take_headers(self, stream_id: int, flags: int, block: bytes) -> None:
        # first: later blocks may stand on this one, whoever's it is
        fields = self._blocks.look_up(block) or self._blocks.read(block)
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_was_opened(stream_id)
        elif flags & _END_STREAM:
            self._finish(stream, fields)
        elif stream.head is not None:
            self._break(stream)
        elif not fields.is_announcement:
            stream.head = fields

    def _finish(self, stream: _S, trailers: _F | None) -> None:
        del self.streams[stream.id]
        if self._unsent and stream.id in self._unsent:  # answered before all of it was asked
            del self._unsent[stream.id]
            self._write(http2.number_frame(http2.RST_STREAM, stream.id, http2.NO_ERROR))
        self._listener.on_answer(stream, trailers)

    def _break(self, stream: _S) -> None:
        """Ends a stream whose frames stand in no order of an answer's."""
        self._drop(stream)
        self._write(http2.number_frame(http2.RST_STREAM, stream.id, http2.PROTOCOL_ERROR))
        self._listener.on_reset(stream, http2.PROTOCOL_ERROR)

    def _drop(self, stream: _S) -> None:
        del self.streams[stream.id]
        self._unsent.pop(stream.id, None)

    def _check_was_opened(self, stream_id: int) -> None:
        if stream_id % 2 == 0 or stream_id >= self._next_id:
            raise Http2Error(f"a frame is for stream {stream_id}, which nobody opened")

    def _take_other(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """The frames beside the few that every answer has."""
        if not self.is_ready and (kind != http2.SETTINGS or flags & http2.ACK):
            raise Http2Error("the server's first frame is no SETTINGS")
        length = len(payload)
        if kind in _LENGTHS and length != _LENGTHS[kind]:
            raise Http2Error("a frame's length is not that of its kind", http2.FRAME_SIZE_ERROR)
        if kind in _OF_THE_CONNECTION and stream_id:
            raise Http2Error("a frame of the connection names a stream")
        match kind:
            case http2.HEADERS:
                self._check_was_opened(stream_id)
                self._block = [http2.unpadded(payload, flags)]
                self._block_stream_id, self._block_flags = stream_id, flags
                self._end_block(flags)
            case http2.CONTINUATION:
                if self._block is None or stream_id != self._block_stream_id:
                    raise Http2Error("a CONTINUATION goes on from nothing")
                self._block.append(payload)
                if sum(map(len, self._block)) > 2 * http2.LARGEST_HEADERS_BYTES or len(self._block) > _MOST_CONTINUATIONS:
                    raise Http2Error("a header block does not end", http2.ENHANCE_YOUR_CALM)
                self._end_block(flags)
            case http2.SETTINGS:
                self._take_settings(flags, payload)
            case http2.PING if not flags & http2.ACK:
                self._write(http2.frame(http2.PING, http2.ACK, 0, payload))
            case http2.RST_STREAM:
                self._take_reset(stream_id, int.from_bytes(payload))
            case http2.GOAWAY:
                self._take_goaway(payload)
            case http2.PUSH_PROMISE:
                raise Http2Error("the server pushes, which it was told not to")
            case _:
                pass  # PRIORITY, and what later standards add; `receive` has taken WINDOW_UPDATE

    def _end_block(self, flags: int) -> None:
        if flags & _END_HEADERS:
            block, self._block = b"".join(self._block or ()), None
            self._take_headers(self._block_stream_id, self._block_flags, block)

    def _take_settings(self, flags: int, payload: bytes) -> None:
        if flags & http2.ACK:
            if payload:
                raise Http2Error("an acknowledgement holds settings", http2.FRAME_SIZE_ERROR)
            return
        values = http2.read_settings(payload)
        self._write(http2.frame(http2.SETTINGS, http2.ACK, 0))
        self.most_streams = values.get(http2.MAX_CONCURRENT_STREAMS, self.most_streams)
        self._frame_bytes = values.get(http2.MAX_FRAME_SIZE, self._frame_bytes)
        widened = values.get(http2.INITIAL_WINDOW_SIZE, self._stream_window_bytes) - self._stream_window_bytes
        self._stream_window_bytes += widened
        for unsent in self._unsent.values():
            unsent.window_bytes = _widened(unsent.window_bytes, widened)
        self._at_once_bytes = min(http2.DEFAULT_FRAME_BYTES, self._stream_window_bytes)
        self._may_go_on = True
        self.is_ready = True
        self._listener.on_settings()

    def _take_window(self, stream_id: int, payload: bytes) -> None:
        increment = int.from_bytes(payload) & http2.LARGEST_WINDOW_BYTES
        if not increment:
            raise Http2Error("a window is widened by nothing")
        self._may_go_on = True
        if not stream_id:
            self._window_bytes = _widened(self._window_bytes, increment)
        elif (unsent := self._unsent.get(stream_id)) is not None:
            unsent.window_bytes = _widened(unsent.window_bytes, increment)
        else:
            self._check_was_opened(stream_id)

    def _take_reset(self, stream_id: int, code: int) -> None:
        self._check_was_opened(stream_id)
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        self._drop(stream)
        if code == http2.REFUSED_STREAM:
            self._listener.on_untaken(stream, "the server refused the stream")
        else:
            self._listener.on_reset(stream, code)

    def _take_goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise Http2Error("a GOAWAY is too short", http2.FRAME_SIZE_ERROR)
        last_id, code, text = int.from_bytes(payload[:4]) & http2.LAST_STREAM_ID, int.from_bytes(payload[4:8]), payload[8:]
        words = text.decode("utf-8", "replace")
        self._leave(f"the server said goodbye ({http2.error_name(code)}{f': {words}' if words else ''})")
        for stream in [stream for stream_id, stream in self.streams.items() if stream_id > last_id]:
            self._drop(stream)
            self._listener.on_untaken(stream, self.farewell)

    def _leave(self, farewell: str) -> None:
        self.is_leaving = True
        self.farewell = farewell
        self._listener.on_goaway()

    def _header_frames(self, stream_id: int, block: bytes) -> list[bytes | memoryview]:
        pieces = [block[first : first + self._frame_bytes] for first in range(0, len(block), self._frame_bytes)]
        frames: list[bytes | memoryview] = []
        for index, piece in enumerate(pieces):
            flags = _END_HEADERS if index == len(pieces) - 1 else 0
            frames.append(http2.frame(http2.CONTINUATION if index else http2.HEADERS, flags, stream_id, piece))
        return frames

    def _go_on(self, frames: list[bytes | memoryview]) -> None:
        """Writes those frames, and as much data as the windows take, the stream opened first before the others."""
        self._may_go_on = False
        for stream_id, unsent in tuple(self._unsent.items()):
            data, frame_bytes = unsent.data, self._frame_bytes
            length, position = len(data), 0
            last = min(length, self._window_bytes, unsent.window_bytes)
            if last <= 0:
                continue
            whole = _frame_head(frame_bytes, _DATA, 0, stream_id)
            while last - position > frame_bytes:
                frames.append(whole)
                frames.append(data[position : position + frame_bytes])
                position += frame_bytes
            frames.append(_frame_head(last - position, _DATA, _END_STREAM if last == length else 0, stream_id))
            frames.append(data[position:last])
            self._window_bytes -= last
            unsent.window_bytes -= last
            if last == length:
                del self._unsent[stream_id]
            else:
                unsent.data = data[last:]
        if frames:
            self._writelines(frames)


_LENGTHS = {http2.PING: 8, http2.RST_STREAM: 4, http2.WINDOW_UPDATE: 4, http2.PRIORITY: 5}
_OF_THE_CONNECTION = frozenset((http2.SETTINGS, http2.PING, http2.GOAWAY))
_MOST_CONTINUATIONS = 64


def _widened(window_bytes: int, increment: int) -> int:
    window_bytes += increment
    if window_bytes > http2.LARGEST_WINDOW_BYTES:
        raise Http2Error("a window is wider than the standard allows", http2.FLOW_CONTROL_ERROR)
    return window_bytes

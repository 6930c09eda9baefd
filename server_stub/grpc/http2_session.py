"""The server side of an HTTP/2 connection without I/O: streams, flow control, the client's control frames, and limits on them.

Data frames are taken as their bytes arrive. Frames may be large, so that most of a large message is received into its own memory.
"""

from collections.abc import Callable

from perfkit.protocol import http2
from perfkit.protocol.grpc_call import PREFIX_BYTES
from perfkit.protocol.http2 import HeaderBlockReader, Http2Error, LimitError
from perfkit.protocol.http2_session import Http2Session, Writer
from perfkit.protocol.tensor import Buffer
from server_stub.grpc.http2_responses import ResponseSender
from server_stub.grpc.http2_stream import RequestHeaders, ServerStream, SessionListener
from server_stub.grpc.message_reader import MessageReader
from server_stub.grpc.whole_calls import read_whole_call
from server_stub.receiving import COPIED_BYTES

_FRAME_BYTES = http2.LARGEST_FRAME_BYTES
_STREAM_WINDOW_BYTES = 1 << 22
_CONNECTION_WINDOW_BYTES = http2.LARGEST_WINDOW_BYTES
# frames from this size on, where so much of them is missing, are received into the message's memory: a read for each frame pays then
_IN_PLACE_BYTES = 1 << 15
_MAX_HEADERS_BYTES = 1 << 14  # like gRPC's core; blocks are decoded by Python
_DATA, _HEADERS = http2.DATA, http2.HEADERS
_END_STREAM, _END_HEADERS, _PADDED = http2.END_STREAM, http2.END_HEADERS, http2.PADDED
_PLAIN_HEADERS = (_END_HEADERS, _END_HEADERS | _END_STREAM)
_HEAD_BYTES, _LAST_ID, _PREFACE_BYTES = http2.HEAD_BYTES, http2.LAST_STREAM_ID, len(http2.PREFACE)


class ServerSession(ResponseSender, Http2Session):
    """Takes received bytes and responses, writes frames, and calls its listener. It knows neither clocks nor sockets."""

    def __init__(
        self,
        writer: Writer,
        listener: SessionListener,
        header_blocks: HeaderBlockReader[RequestHeaders],
        *,
        max_streams: int,
        max_message_bytes: int,
        take_memory: Callable[[int], memoryview],
    ) -> None:
        """`take_memory` gives the memory of large messages."""
        ResponseSender.__init__(self, writer, listener)
        Http2Session.__init__(self, writer, listener.now_ns, peer="client", last_id=0, max_headers_bytes=_MAX_HEADERS_BYTES)
        self.streams: dict[int, ServerStream] = {}
        self._header_blocks = header_blocks
        self._max_streams, self._max_message_bytes, self._take_memory = max_streams, max_message_bytes, take_memory
        self._max_whole_bytes = min(max_message_bytes, _STREAM_WINDOW_BYTES - PREFIX_BYTES)  # of a message in the first frame of its stream
        self._has_preface = self._is_going_away = False
        self._pending = b""  # the beginning of a frame other than DATA, or of any frame's head
        self._data_stream: ServerStream | None = None  # of the data frame that has begun; None if its stream is over
        self.data_bytes = 0
        """What is left of the data frame that has begun; `space` is None as long as this is 0."""
        self._padding_bytes = 0
        self._data_flags = 0
        self._is_in_place = False
        self._received_bytes = 0  # since the last update of the connection's window

    def open(self) -> None:
        """Writes the server's settings and a large connection window."""
        values = {
            http2.HEADER_TABLE_SIZE: 0,  # equal header blocks then have equal meanings
            http2.MAX_CONCURRENT_STREAMS: self._max_streams,
            http2.INITIAL_WINDOW_SIZE: _STREAM_WINDOW_BYTES,
            http2.MAX_FRAME_SIZE: _FRAME_BYTES,
            http2.MAX_HEADER_LIST_SIZE: _MAX_HEADERS_BYTES,
        }
        update = http2.number_frame(http2.WINDOW_UPDATE, 0, _CONNECTION_WINDOW_BYTES - http2.DEFAULT_WINDOW_BYTES)
        self._write(http2.settings(values) + update)

    def go_away(self) -> None:
        """Tells the client to open no more streams here; those that it opens anyway are refused."""
        self._is_going_away = True
        self._write(http2.goaway(http2.NO_ERROR, self.last_id))

    def space(self) -> memoryview | None:
        """Where the next bytes from the client belong, if they are part of a large message; `advance` takes them then."""
        self._is_in_place = False
        stream, missing_bytes = self._data_stream, self.data_bytes
        if missing_bytes < _IN_PLACE_BYTES or stream is None or (space := stream.reader.space()) is None or len(space) < _IN_PLACE_BYTES:
            return None
        self._is_in_place = True
        return space[:missing_bytes]

    def advance(self, byte_count: int) -> bool:
        """Takes bytes that have been written to `space`; False if there was none."""
        if not self._is_in_place:
            return False
        stream = self._data_stream
        if stream is not None:  # otherwise it was reset meanwhile
            for message in stream.reader.advance(byte_count):
                stream.call.receive(message)
        self.data_bytes -= byte_count
        if not self.data_bytes:
            self._end_data_frame()
        return True

    def receive(self, data: Buffer) -> None:
        """Takes the client's bytes; raises Http2Error, after which the session is over, if they violate the protocol."""
        if self._pending:
            data, self._pending = self._pending + data, b""
        position, end = 0, len(data)
        data = bytes(data) if end <= COPIED_BYTES else memoryview(data)
        if not self._has_preface:
            if data[:_PREFACE_BYTES] != http2.PREFACE[:end]:
                raise Http2Error("the client's first bytes are not those of HTTP/2")
            if end < _PREFACE_BYTES:
                self._pending = bytes(data)
                return
            self._has_preface, position = True, _PREFACE_BYTES
        read_head = http2.read_head
        while True:
            if self.data_bytes or self._padding_bytes:
                position = self._continue_data_frame(data, position)
            if end - position < _HEAD_BYTES:
                break
            upper, lower, kind, flags, stream_id = read_head(data, position)  # type: ignore[arg-type]  # takes any buffer
            length, first = upper << 8 | lower, position + _HEAD_BYTES
            if self._block is not None and kind != http2.CONTINUATION:
                raise Http2Error("another frame interrupts a header block")
            if kind == _DATA:
                if flags & _PADDED and first == end:
                    break
                position = self._begin_data_frame(stream_id & _LAST_ID, flags, length, data, first)
                continue
            if length > _MAX_HEADERS_BYTES:
                raise LimitError(f"a frame of {length:,} B that is not data")
            if (stop := first + length) > end:
                break
            if kind == _HEADERS and flags in _PLAIN_HEADERS and self.is_ready:
                if flags == _END_HEADERS and (next_position := self._answer_at_once(data, position)) > position:
                    position = next_position
                    continue
                self._receive_headers(stream_id & _LAST_ID, flags, bytes(data[first:stop]))
            else:
                self._receive_other(kind, flags, stream_id & _LAST_ID, bytes(data[first:stop]))
            position = stop
        if position < end:
            self._pending = bytes(data[position:])
        if self._can_continue and self._unsent:
            self._continue_unsent()

    def reset(self, stream: ServerStream, code: int) -> None:
        """Ends a stream at once."""
        self._write(http2.number_frame(http2.RST_STREAM, stream.id, code))
        self._remove(stream)

    def close(self) -> None:
        """Ends all streams: the connection is over."""
        for stream in tuple(self.streams.values()):
            self._remove(stream)

    def take(self, stream: ServerStream, byte_count: int) -> None:
        """A message of so many bytes has been taken by its reader: the client may send as much again."""
        stream.queued_bytes -= byte_count
        if stream.receive_window_bytes + stream.queued_bytes < _STREAM_WINDOW_BYTES // 2 and stream.id in self.streams:
            self._renew_window(stream)

    def _answer_at_once(self, data: Buffer, position: int) -> int:
        """Answers the calls from `position` on that are whole and that the listener answers at once, by one write; returns the place after them.

        They open no stream, which would be over again, unless their answers have to wait.
        """
        if self._is_going_away or len(self.streams) >= self._max_streams:
            return position
        answer_at_once, look_up = self._listener.answer_at_once, self._header_blocks.look_up  # by way of locals (docs/architecture.md)
        received_bytes, max_bytes, end = 0, self._max_whole_bytes, len(data)
        frames: list[Buffer] = []
        while position < end and (call := read_whole_call(data, position, self.last_id, look_up)) is not None:
            stream_id, headers, first, stop = call
            if stop - first > max_bytes or (answer := answer_at_once(headers, data, first, stop)) is None:
                break
            position, self.last_id = stop, stream_id
            received_bytes += PREFIX_BYTES + stop - first
            if isinstance(answer, Exception) or (response := self._response_frames(stream_id, answer, self._stream_window_bytes)) is None:
                self._open_stream(stream_id, headers, is_client_done=True).call.answer(answer)
                break
            frames += response
            self._answers += 1
        if frames:
            self._write(b"".join(frames))
        if received_bytes:
            self._count_received(received_bytes)
        return position

    def _count_received(self, byte_count: int) -> None:
        """Counts received bytes of data, and renews the connection's window before it is half used."""
        self._received_bytes += byte_count
        if self._received_bytes > _CONNECTION_WINDOW_BYTES // 2:
            self._write(http2.number_frame(http2.WINDOW_UPDATE, 0, self._received_bytes))
            self._received_bytes = 0

    def _begin_data_frame(self, stream_id: int, flags: int, length: int, data: Buffer, first: int) -> int:
        """Takes the head of a data frame, and a small frame whole; returns the place after that."""
        if not self.is_ready:
            raise Http2Error("the client's first frame is not SETTINGS")
        self._count_received(length)
        stream = self.streams.get(stream_id)
        if stream is None or stream.is_client_done:
            if not 0 < stream_id <= self.last_id or stream_id % 2 == 0:
                raise Http2Error(f"a data frame names stream {stream_id}, which is not open")
            stream = None  # the client may not know yet that it is over
        elif (window_bytes := stream.receive_window_bytes - length) < 0:
            self._count_control_frames(1)
            self.reset(stream, http2.FLOW_CONTROL_ERROR)
            stream = None
        else:
            stream.receive_window_bytes = window_bytes
            if window_bytes + stream.queued_bytes < _STREAM_WINDOW_BYTES // 2 and not flags & _END_STREAM:
                self._renew_window(stream)
        if flags & _PADDED:
            padding = data[first]
            if padding >= length:
                raise Http2Error("a frame is shorter than its padding")
            self._padding_bytes, length, first = padding, length - 1 - padding, first + 1
        if not length:
            self._count_control_frames(1)
        elif stream is not None and not flags & _PADDED and (stop := first + length) <= len(data):  # all of it is there
            self._feed(stream, data[first:stop])
            if flags & _END_STREAM and stream_id in self.streams:
                self._end_client_side(stream)
            return stop
        self._data_stream, self._data_flags, self.data_bytes = stream, flags, length
        if not length:
            self._end_data_frame()
        return first

    def _continue_data_frame(self, data: Buffer, position: int) -> int:
        """Takes as much of the data frame as there is; returns the place after that."""
        if missing_bytes := self.data_bytes:
            taken = data[position : position + missing_bytes]
            position += len(taken)
            if (stream := self._data_stream) is not None:
                self._feed(stream, taken)
            self.data_bytes = missing_bytes = missing_bytes - len(taken)
            if missing_bytes:
                return position
            self._end_data_frame()
        skipped = min(self._padding_bytes, len(data) - position)
        self._padding_bytes -= skipped
        return position + skipped

    def _feed(self, stream: ServerStream, data: Buffer) -> None:
        for message in stream.reader.feed(data):
            stream.call.receive(message)
        if stream.reader.refusal and stream.id in self.streams:
            self._listener.on_message_too_large(stream, stream.reader.refusal)
            if stream.id in self.streams:  # its end waits for a window
                self.reset(stream, http2.CANCEL)

    def _end_data_frame(self) -> None:
        stream, self._data_stream = self._data_stream, None
        if stream is not None and self._data_flags & _END_STREAM:
            self._end_client_side(stream)

    def _end_client_side(self, stream: ServerStream) -> None:
        stream.is_client_done = True
        stream.call.receive_end()

    def _renew_window(self, stream: ServerStream) -> None:
        increment = _STREAM_WINDOW_BYTES - stream.receive_window_bytes - stream.queued_bytes
        stream.receive_window_bytes += increment
        self._write(http2.number_frame(http2.WINDOW_UPDATE, stream.id, increment))

    def _receive_headers(self, stream_id: int, flags: int, block: bytes) -> None:
        # every block is read: later ones may refer to it
        headers = self._header_blocks.look_up(block) or self._header_blocks.read(block)
        if (stream := self.streams.get(stream_id)) is not None:
            self._count_control_frames(1)
            if stream.is_client_done or not flags & _END_STREAM:
                self.reset(stream, http2.PROTOCOL_ERROR)
            else:  # trailers, which gRPC's requests do not have
                self._end_client_side(stream)
            return
        self._check_headers_may_begin(stream_id)
        if stream_id <= self.last_id:
            self._count_control_frames(1)  # the client may not know yet that it is over
            return
        self.last_id = stream_id
        if self._is_going_away or len(self.streams) >= self._max_streams:
            self._count_control_frames(1)
            self._write(http2.number_frame(http2.RST_STREAM, stream_id, http2.REFUSED_STREAM))
            return
        self._open_stream(stream_id, headers, is_client_done=flags & _END_STREAM != 0)
        if flags & _END_STREAM and (stream := self.streams.get(stream_id)) is not None:
            self._end_client_side(stream)

    def _open_stream(self, stream_id: int, headers: RequestHeaders, *, is_client_done: bool) -> ServerStream:
        reader = MessageReader(self._max_message_bytes, self._take_memory)
        stream = self.streams[stream_id] = ServerStream(stream_id, headers, reader, _STREAM_WINDOW_BYTES, self._stream_window_bytes)
        stream.is_client_done = is_client_done
        self._listener.on_headers(stream)
        return stream

    def _check_headers_may_begin(self, stream_id: int) -> None:
        if stream_id % 2 == 0:
            raise Http2Error(f"a client opens stream {stream_id}, which is not a client's")

    def _change_settings(self, values: dict[int, int]) -> None:
        self._frame_bytes = values.get(http2.MAX_FRAME_SIZE, self._frame_bytes)
        increment = values.get(http2.INITIAL_WINDOW_SIZE, self._stream_window_bytes) - self._stream_window_bytes
        self._stream_window_bytes += increment
        if increment:
            self._control_frames += len(self.streams)  # each of which it concerns
            for stream in self.streams.values():
                stream.send_window_bytes = http2.increased_window(stream.send_window_bytes, increment)
        self._can_continue = True

    def _receive_reset(self, stream_id: int, code: int) -> None:
        if (stream := self.streams.get(stream_id)) is not None:
            self._remove(stream)

    def _receive_window_update(self, stream_id: int, payload: bytes) -> None:
        increment = int.from_bytes(payload) & http2.LARGEST_WINDOW_BYTES
        self._can_continue = True
        if not stream_id:
            if not increment:
                raise Http2Error("a WINDOW_UPDATE frame has an increment of 0")
            self._window_bytes = http2.increased_window(self._window_bytes, increment)
            return
        self._check_was_opened(stream_id)
        if (stream := self.streams.get(stream_id)) is None:
            return
        if not increment or stream.send_window_bytes + increment > http2.LARGEST_WINDOW_BYTES:
            self.reset(stream, http2.FLOW_CONTROL_ERROR if increment else http2.PROTOCOL_ERROR)
        else:
            stream.send_window_bytes += increment

    def _receive_goaway(self, payload: bytes) -> None:
        """Changes nothing: the client ends its streams."""

    def _requests_and_bytes(self) -> tuple[int, int]:
        return self._answers, self.sent_bytes  # reset calls allow no more frames, which limits how many a client can open and reset

    def _end(self, stream: ServerStream) -> None:
        # the client may still send
        if not stream.is_client_done:
            self._write(http2.number_frame(http2.RST_STREAM, stream.id, http2.NO_ERROR))
        self._answers += 1
        self._remove(stream)

    def _remove(self, stream: ServerStream) -> None:
        del self.streams[stream.id]
        self._unsent.pop(stream.id, None)
        if self._data_stream is stream:
            self._data_stream = None
        self._listener.on_closed(stream)

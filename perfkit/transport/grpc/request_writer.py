"""The sending half of an HTTP/2 session: requests in frames, as far as the server's windows allow."""

import dataclasses
import struct
from collections.abc import Sequence

from perfkit.protocol import http2
from perfkit.protocol.http2 import Headers, Http2Error
from perfkit.protocol.http2_session import BYTES_OF_A_REQUEST, Writer

_DATA, _END_STREAM, _LARGEST_WINDOW_BYTES = http2.DATA, http2.END_STREAM, http2.LARGEST_WINDOW_BYTES
_frame_head, _increased_window = http2.frame_head, http2.increased_window
# the head of an update of the connection's window; that of a stream's window differs in the id alone
_CONNECTION_UPDATE = http2.frame_head(4, http2.WINDOW_UPDATE, 0, 0)
_ID_OFFSET = 5
_STREAM_UPDATE = _CONNECTION_UPDATE[:_ID_OFFSET]
_window_updates = struct.Struct(">9sI9sI")
WINDOW_UPDATES_BYTES, _read_window_updates = _window_updates.size, _window_updates.unpack
"""The length of one update of each window, which `RequestWriter.update_both_windows` takes."""


@dataclasses.dataclass(slots=True)
class UnsentData:
    """The rest of a request's data, and the stream's send window."""

    data: memoryview
    window_bytes: int
    ends_stream: bool = True
    """Whether the stream ends with this data."""


class RequestWriter:
    """Writes requests to a connection. It numbers no streams: each method takes the id."""

    def __init__(self, writer: Writer) -> None:
        self.unsent: dict[int, UnsentData] = {}
        """The streams whose data is not completely written, and those that are open for more."""
        self.written_bytes = 0
        """The bytes of requests that needed several frames."""
        self._write, self._writelines = writer.write, writer.writelines
        self._window_bytes = self._stream_window_bytes = http2.DEFAULT_WINDOW_BYTES
        self._frame_bytes = self._max_single_write_bytes = http2.DEFAULT_FRAME_BYTES
        self._can_continue = False

    def send(self, stream_id: int, buffers: Sequence[bytes]) -> None:
        """Writes as much of a request from `request_buffers` as the send windows allow."""
        headers_start, block, data_start, data = buffers
        length = len(data)
        if length <= self._max_single_write_bytes and length <= self._window_bytes and headers_start and stream_id != 1:
            self._window_bytes -= length
            encoded_id, write = stream_id.to_bytes(4), self._write  # by way of a local (docs/architecture.md)
            write(b"".join((headers_start, encoded_id, block, data_start, encoded_id, data)))
            return
        self.unsent[stream_id] = UnsentData(memoryview(data), self._stream_window_bytes)
        self._write_unsent(self._header_frames(stream_id, block))

    def open_stream(self, stream_id: int, block: bytes) -> None:
        """Writes a stream's header block; its data follows by `send_data`."""
        self.unsent[stream_id] = UnsentData(memoryview(b""), self._stream_window_bytes, ends_stream=False)
        self._writelines(self._header_frames(stream_id, block))

    def send_data(self, stream_id: int, data: bytes, *, ends_stream: bool) -> None:
        """Writes as much of an open stream's message as the send windows allow; the rest follows."""
        unsent = self.unsent[stream_id]
        unsent.ends_stream = ends_stream
        self.written_bytes += len(data) + BYTES_OF_A_REQUEST
        if unsent.data:
            unsent.data = memoryview(b"".join((unsent.data, data)))
        elif not data or len(data) <= min(self._frame_bytes, self._window_bytes, unsent.window_bytes):
            # an empty frame may be sent whatever the windows are, even negative ones
            self._window_bytes -= len(data)
            unsent.window_bytes -= len(data)
            if ends_stream:
                del self.unsent[stream_id]
            self._write(http2.frame(_DATA, _END_STREAM if ends_stream else 0, stream_id, data))
        else:
            unsent.data = memoryview(data)
            self._write_unsent([])

    def change_settings(self, values: dict[int, int]) -> None:
        """Takes the server's settings; raises Http2Error if they make a window too large."""
        self._frame_bytes = values.get(http2.MAX_FRAME_SIZE, self._frame_bytes)
        increment = values.get(http2.INITIAL_WINDOW_SIZE, self._stream_window_bytes) - self._stream_window_bytes
        self._stream_window_bytes += increment
        for unsent in self.unsent.values():
            unsent.window_bytes = _increased_window(unsent.window_bytes, increment)
        self._max_single_write_bytes = min(http2.DEFAULT_FRAME_BYTES, self._stream_window_bytes)
        self._can_continue = True

    def update_window(self, stream_id: int, payload: bytes) -> bool:
        """Takes a WINDOW_UPDATE frame; False if the stream has no unsent data. Raises Http2Error."""
        increment = int.from_bytes(payload) & _LARGEST_WINDOW_BYTES
        if not increment:
            raise Http2Error("a WINDOW_UPDATE frame has an increment of 0")
        self._can_continue = True
        if not stream_id:
            self._window_bytes = _increased_window(self._window_bytes, increment)
        elif (unsent := self.unsent.get(stream_id)) is not None:
            unsent.window_bytes = _increased_window(unsent.window_bytes, increment)
        else:
            return False
        return True

    def update_both_windows(self, frames: bytes) -> bool:
        """Takes one update of each window; False, with nothing done, for other frames and for invalid updates.

        nghttpd, whose windows hold 64 KiB, sends these 16 or 17 times within a request of 602,112 B.
        """
        connection_head, increment, stream_head, stream_increment = _read_window_updates(frames)
        unsent = self.unsent.get(int.from_bytes(stream_head[_ID_OFFSET:]))
        if unsent is None or connection_head != _CONNECTION_UPDATE or stream_head[:_ID_OFFSET] != _STREAM_UPDATE:
            return False
        window_bytes, stream_window_bytes = self._window_bytes + increment, unsent.window_bytes + stream_increment
        if not (increment and stream_increment and max(window_bytes, stream_window_bytes) <= _LARGEST_WINDOW_BYTES):
            return False
        self._window_bytes, unsent.window_bytes = window_bytes, stream_window_bytes
        self._can_continue = True
        return True

    def write_on(self) -> None:
        """Writes more unsent data if a window grew since the last call."""
        if self._can_continue:
            self._write_unsent([])

    def _header_frames(self, stream_id: int, block: bytes) -> list[bytes | memoryview]:
        if stream_id == 1:  # the first block announces an empty header table, in case the server asked for a smaller one than the default
            block = http2.NO_TABLE + block
        return [*http2.header_frames(stream_id, block, self._frame_bytes)]

    def _write_unsent(self, frames: list[bytes | memoryview]) -> None:
        """Writes `frames`, and then as much unsent data as the send windows allow, oldest stream first."""
        self._can_continue = False
        for stream_id, unsent in tuple(self.unsent.items()):
            data, frame_bytes = unsent.data, self._frame_bytes
            length, position = len(data), 0
            last = min(length, self._window_bytes, unsent.window_bytes)
            if last <= 0:
                continue
            if last > frame_bytes:
                full_frame_head = _frame_head(frame_bytes, _DATA, 0, stream_id)
                while last - position > frame_bytes:
                    frames += (full_frame_head, data[position : (position := position + frame_bytes)])
            is_end = last == length and unsent.ends_stream
            frames += (_frame_head(last - position, _DATA, _END_STREAM if is_end else 0, stream_id), data[position:last])
            self._window_bytes -= last
            self.written_bytes += last
            unsent.window_bytes -= last
            if is_end:
                del self.unsent[stream_id]
            else:
                unsent.data = data[last:]
        if frames:
            self._writelines(frames)


def request_buffers(headers: Headers, data: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """A request's frames without stream ids: start of the HEADERS frame, header block, start of the DATA frame, data.

    The stream id belongs after each start. A start is empty if its payload needs several frames.
    """
    return *header_buffers(http2.encode_headers(headers)), _frame_start(data, http2.DATA, http2.END_STREAM), data


def header_buffers(block: bytes) -> tuple[bytes, bytes]:
    """The first two of `request_buffers` for an encoded header block."""
    return _frame_start(block, http2.HEADERS, http2.END_HEADERS), block


def _frame_start(payload: bytes, kind: int, flags: int) -> bytes:
    return b"" if len(payload) > http2.DEFAULT_FRAME_BYTES else http2.frame_head(len(payload), kind, flags, 0)[:5]

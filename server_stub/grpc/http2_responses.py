"""The sending half of a server's HTTP/2 session without I/O: responses as frames, as the client's windows allow."""

import abc
import functools
from collections.abc import Sequence

from perfkit.protocol import http2
from perfkit.protocol.grpc_call import PREFIX_BYTES, message_prefix
from perfkit.protocol.http2_session import Writer
from perfkit.protocol.tensor import Buffer
from server_stub.grpc.http2_stream import ServerStream, SessionListener

_MAX_LENGTHS = 2**10
_DATA, _HEADERS, _END_STREAM, _END_HEADERS = http2.DATA, http2.HEADERS, http2.END_STREAM, http2.END_HEADERS

_RESPONSE_BLOCK = http2.encode_headers(
    [(":status", "200"), ("content-type", "application/grpc"), ("grpc-accept-encoding", "identity, deflate, gzip")]
)
_OK_BLOCK = http2.encode_headers([("grpc-status", "0")])
_RESPONSE_START = http2.frame_head(len(_RESPONSE_BLOCK), _HEADERS, _END_HEADERS, 0)[:5]
_OK_START = http2.frame_head(len(_OK_BLOCK), _HEADERS, _END_HEADERS | _END_STREAM, 0)[:5]


@functools.lru_cache(_MAX_LENGTHS)
def _data_start(framed_bytes: int) -> tuple[bytes, bytes]:
    """What is between the first two stream ids of a response, and between the second one and its message of `framed_bytes` with the prefix."""
    return _RESPONSE_BLOCK + http2.frame_head(framed_bytes, _DATA, 0, 0)[:5], message_prefix(framed_bytes - PREFIX_BYTES)


class ResponseSender(abc.ABC):
    """Writes the responses of all streams, and keeps what has to wait."""

    def __init__(self, writer: Writer, listener: SessionListener) -> None:
        self.sent_bytes = 0
        """The bytes of data sent so far."""
        self._answers = 0
        """The messages of streams, and the ends of calls, so far: each accounts for control frames of the client."""
        self._write, self._writelines, self._listener = writer.write, writer.writelines, listener
        self._frame_bytes = http2.DEFAULT_FRAME_BYTES  # the client's maximum
        self._window_bytes = self._stream_window_bytes = http2.DEFAULT_WINDOW_BYTES
        self._unsent: dict[int, ServerStream] = {}
        self._can_continue = False  # whether a window has grown
        # announces an empty header table, in case the client asks for a smaller one than the default
        self._table_update = http2.NO_TABLE

    @abc.abstractmethod
    def _end(self, stream: ServerStream) -> None:
        """The response is complete: the stream is over."""

    @property
    def unsent_bytes(self) -> int:
        """The data that waits for the client to open its windows."""
        return sum(stream.unsent_bytes for stream in self._unsent.values())

    def respond(self, stream: ServerStream, message: Sequence[Buffer]) -> None:
        """The only message of a successful call, and its end."""
        if (frames := self._response_frames(stream.id, message, stream.send_window_bytes)) is None:
            self._send(stream, (message_prefix(sum(map(len, message))), *message), _OK_BLOCK)
            return
        self._write(b"".join(frames))
        self._end(stream)

    def send(self, stream: ServerStream, message: Sequence[Buffer]) -> bool:
        """One of several messages of a response. False if a part of it has to wait: `resume` of its call follows."""
        length = sum(map(len, message))
        self._answers += 1
        self._send(stream, (message_prefix(length), *message), None)
        return not stream.unsent_bytes

    def end(self, stream: ServerStream, trailers: http2.Headers = ()) -> None:
        """The end of a call, after what is unsent; without trailers, of a successful one."""
        if trailers and not stream.has_sent_headers:
            stream.has_sent_headers = True
            self._writelines(self._header_frames(stream.id, http2.encode_headers(trailers), ends_stream=True))
            self._end(stream)
            return
        block = http2.encode_headers([header for header in trailers if header[0].startswith("grpc-")]) if trailers else _OK_BLOCK
        self._send(stream, (), block)

    def _response_frames(self, stream_id: int, message: Sequence[Buffer], window_bytes: int) -> Sequence[Buffer] | None:
        """The pieces of a successful call's whole response, which the caller has to write: its headers, its message, and its trailers.

        None if it takes more than one data frame, or more than the connection's window or the stream's `window_bytes` allow.
        """
        framed_bytes = PREFIX_BYTES
        for buffer in message:
            framed_bytes += len(buffer)
        if framed_bytes > self._frame_bytes or framed_bytes > self._window_bytes or framed_bytes > window_bytes or self._table_update:
            return None
        self._window_bytes -= framed_bytes
        self.sent_bytes += framed_bytes
        (block, prefix), encoded_id = _data_start(framed_bytes), stream_id.to_bytes(4)
        return (_RESPONSE_START, encoded_id, block, encoded_id, prefix, *message, _OK_START, encoded_id, _OK_BLOCK)

    def _send(self, stream: ServerStream, buffers: Sequence[Buffer], trailers: bytes | None) -> None:
        frames: list[Buffer] = []
        if not stream.has_sent_headers:
            stream.has_sent_headers = True
            frames += self._header_frames(stream.id, _RESPONSE_BLOCK)
        stream.add_unsent(buffers)
        stream.ends_with = trailers
        self._write_unsent(stream, frames)

    def _write_unsent(self, stream: ServerStream, frames: list[Buffer]) -> None:
        """Writes `frames`, and then as much of the stream's data as the send windows allow."""
        frame_bytes = self._frame_bytes
        left = sendable = max(0, min(stream.unsent_bytes, self._window_bytes, stream.send_window_bytes))
        while left:
            size = min(left, frame_bytes)
            frames.append(http2.frame_head(size, _DATA, 0, stream.id))
            stream.take_unsent(size, frames)
            left -= size
        self._window_bytes -= sendable
        self.sent_bytes += sendable
        stream.send_window_bytes -= sendable
        is_done = not stream.unsent_bytes
        if is_done and stream.ends_with is not None:
            frames += self._header_frames(stream.id, stream.ends_with, ends_stream=True)
        if frames:
            self._writelines(frames)
        if is_done:
            was_waiting = self._unsent.pop(stream.id, None) is not None
            if stream.ends_with is not None:
                self._end(stream)
            elif was_waiting:
                stream.call.resume()
        else:
            self._unsent[stream.id] = stream
            self._listener.on_waiting()

    def _continue_unsent(self) -> None:
        """Writes what the send windows allow by now, oldest stream first."""
        self._can_continue = False
        for stream in tuple(self._unsent.values()):
            if self._window_bytes <= 0:
                break
            if stream.send_window_bytes > 0:
                self._write_unsent(stream, [])

    def _header_frames(self, stream_id: int, block: bytes, *, ends_stream: bool = False) -> list[Buffer]:
        block, self._table_update = self._table_update + block, b""
        return [*http2.header_frames(stream_id, block, self._frame_bytes, ends_stream=ends_stream)]

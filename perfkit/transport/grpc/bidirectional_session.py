"""An HTTP/2 session whose streams can stay open on the client's side, so that each carries many requests."""

from perfkit.protocol import http2
from perfkit.protocol.flood import BYTES_OF_A_REQUEST
from perfkit.transport.grpc.session import ClientSession
from perfkit.transport.grpc.stream import H, S, UnsentData


class BidirectionalSession(ClientSession[S, H]):
    """Adds streams that are opened without data, and end when their owner says so."""

    def open_stream(self, stream: S, block: bytes) -> None:
        """Opens a stream with a header block."""
        stream_id = self._next_id
        self._next_id = stream_id + 2
        stream.id = stream_id
        self.streams[stream_id] = stream
        if stream_id == http2.LAST_STREAM_ID:
            self._begin_close("the connection has used all its stream ids")
        # the first block announces an empty header table, in case the server asked for a smaller one than the default
        frames = self._header_frames(stream_id, http2.NO_TABLE + block if stream_id == 1 else block)
        self._unsent[stream_id] = UnsentData(memoryview(b""), self._stream_window_bytes, ends_stream=False)
        self._writelines(frames)

    def send_data(self, stream: S, data: bytes, *, ends_stream: bool = False) -> None:
        """Writes as much of a message as the send windows allow; the rest follows. With `ends_stream` it is the stream's last."""
        unsent = self._unsent[stream.id]
        unsent.ends_stream = ends_stream
        self._written_bytes += len(data) + BYTES_OF_A_REQUEST
        if unsent.data:
            unsent.data = memoryview(b"".join((unsent.data, data)))
        elif len(data) <= min(self._frame_bytes, self._window_bytes, unsent.window_bytes):
            flags = http2.END_STREAM if ends_stream else 0
            self._window_bytes -= len(data)
            unsent.window_bytes -= len(data)
            if ends_stream:
                del self._unsent[stream.id]
            self._write(http2.frame(http2.DATA, flags, stream.id, data))
        else:
            unsent.data = memoryview(data)
            self._write_unsent([])

"""What both sides of an HTTP/2 connection do with frames other than data; no I/O.

Header blocks are put together, control frames are checked, answered and limited. Each side adds its streams and its data.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Protocol

from perfkit.protocol import http2
from perfkit.protocol.http2 import Http2Error, LimitError
from perfkit.protocol.tensor import Buffer
from perfkit.units import NS_PER_S

MAX_CONTROL_FRAMES_PER_S = 10_000
# peers may renew two windows for each packet of a request, reset each answered stream, and measure the path with PING
_PER_REQUEST, _BYTES_PER_FRAME = 10, 512
BYTES_OF_A_REQUEST = _PER_REQUEST * _BYTES_PER_FRAME
"""Written bytes that allow as many control frames as a request does."""
_MAX_CONTINUATIONS = 64
_MAX_UNREAD_REPLIES = 1000
_FIXED_LENGTHS = {http2.PING: 8, http2.RST_STREAM: 4, http2.WINDOW_UPDATE: 4, http2.PRIORITY: 5}
_CONNECTION_FRAMES = frozenset((http2.SETTINGS, http2.PING, http2.GOAWAY))


class Writer(Protocol):
    """The destination of a session's bytes, such as an asyncio transport."""

    def write(self, data: bytes) -> None:
        """Writes one buffer."""

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:
        """Writes several buffers."""


class Http2Session(abc.ABC):
    """The part of a session that is the same on both sides. `peer` is the other one, server or client, for error messages."""

    def __init__(self, writer: Writer, now_ns: Callable[[], int], *, peer: str, last_id: int, max_headers_bytes: int) -> None:
        self.is_ready = False
        """Whether the peer's settings have arrived."""
        self.is_writing_paused = False
        """Whether the peer reads less than is written to it."""
        self.last_id = last_id
        """The last stream that the client opened."""
        self._write = writer.write
        self._peer, self._max_headers_bytes = peer, max_headers_bytes
        self._block: list[bytes] | None = None  # of a HEADERS frame that CONTINUATION frames complete
        self._block_stream_id = self._block_flags = 0
        self._unread_replies = self._control_frames = 0
        self._control_limit, self._max_control_frames = ControlFrameLimit(now_ns, peer), MAX_CONTROL_FRAMES_PER_S

    def _receive_other(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Handles the frames that are not part of every request and answer."""
        if not self.is_ready and (kind != http2.SETTINGS or flags & http2.ACK):
            raise Http2Error(f"the {self._peer}'s first frame is not SETTINGS")
        self._count_control_frames(1)
        if kind in _FIXED_LENGTHS and len(payload) != _FIXED_LENGTHS[kind]:
            raise Http2Error("a frame has the wrong length for its type", http2.FRAME_SIZE_ERROR)
        if kind in _CONNECTION_FRAMES and stream_id:
            raise Http2Error("a frame that concerns the connection names a stream")
        match kind:
            case http2.HEADERS:
                self._check_headers_may_begin(stream_id)
                self._block, self._block_stream_id, self._block_flags = [], stream_id, flags
                self._add_to_block(http2.strip_padding(payload, flags), flags)
            case http2.CONTINUATION:
                if self._block is None or stream_id != self._block_stream_id:
                    raise Http2Error("a CONTINUATION frame follows no HEADERS frame")
                self._add_to_block(payload, flags)
            case http2.SETTINGS:
                self._receive_settings(flags, payload)
            case http2.PING if not flags & http2.ACK:
                self._write_reply(http2.frame(http2.PING, http2.ACK, 0, payload))
            case http2.RST_STREAM:
                self._check_was_opened(stream_id)
                self._receive_reset(stream_id, int.from_bytes(payload))
            case http2.WINDOW_UPDATE:
                self._receive_window_update(stream_id, payload)
            case http2.GOAWAY:
                self._receive_goaway(payload)
            case http2.PUSH_PROMISE:
                raise Http2Error(f"the {self._peer} pushes a response, which it may not")
            case _:
                pass  # PRIORITY, acknowledged PINGs, and types of later standards

    def _add_to_block(self, piece: bytes, flags: int) -> None:
        assert self._block is not None
        self._block.append(piece)
        if len(self._block) > 1 and (sum(map(len, self._block)) > self._max_headers_bytes or len(self._block) > _MAX_CONTINUATIONS):
            raise LimitError(f"the {self._peer}'s headers are longer than {self._max_headers_bytes:,} B")
        if flags & http2.END_HEADERS:
            block, self._block = b"".join(self._block), None
            self._receive_headers(self._block_stream_id, self._block_flags, block)

    def _receive_settings(self, flags: int, payload: bytes) -> None:
        if flags & http2.ACK:
            if payload:
                raise Http2Error("a SETTINGS acknowledgement has a payload", http2.FRAME_SIZE_ERROR)
            return
        values = http2.read_settings(payload, self._peer)
        self._write_reply(http2.frame(http2.SETTINGS, http2.ACK, 0))
        self.is_ready = True
        self._change_settings(values)

    def _write_reply(self, frame: bytes) -> None:
        """Writes an acknowledgement; raises LimitError if a peer that does not read demands ever more of them."""
        self._unread_replies = self._unread_replies + 1 if self.is_writing_paused else 0
        if self._unread_replies > _MAX_UNREAD_REPLIES:
            raise LimitError(f"the {self._peer} sends PING or SETTINGS frames, but does not read what is sent to it")
        self._write(frame)

    def _check_was_opened(self, stream_id: int) -> None:
        if stream_id % 2 == 0 or stream_id > self.last_id:
            raise Http2Error(f"a frame names stream {stream_id}, which was never opened")

    def _count_control_frames(self, count: int) -> None:
        """Raises LimitError if there are too many."""
        self._control_frames += count
        if self._control_frames > self._max_control_frames:
            self._max_control_frames = self._control_limit.raised(self._control_frames, *self._requests_and_bytes())

    @abc.abstractmethod
    def _requests_and_bytes(self) -> tuple[int, int]:
        """The requests, and the bytes written, that account for control frames so far."""

    @abc.abstractmethod
    def _check_headers_may_begin(self, stream_id: int) -> None:
        """Raises Http2Error if the peer may not send a header block on this stream."""

    @abc.abstractmethod
    def _receive_headers(self, stream_id: int, flags: int, block: bytes) -> None:
        """Takes a complete header block."""

    @abc.abstractmethod
    def _change_settings(self, values: dict[int, int]) -> None:
        """Takes the peer's settings, which have been checked and acknowledged."""

    @abc.abstractmethod
    def _receive_reset(self, stream_id: int, code: int) -> None:
        """Takes the reset of a stream that may be over."""

    @abc.abstractmethod
    def _receive_window_update(self, stream_id: int, payload: bytes) -> None:
        """Takes the update of the connection's window, which is stream 0, or of a stream's."""

    @abc.abstractmethod
    def _receive_goaway(self, payload: bytes) -> None:
        """Takes the peer's announcement that it is about to close."""


class ControlFrameLimit:
    """Frames such as PING, SETTINGS, PRIORITY and WINDOW_UPDATE within a second: 10,000, and more where requests account for them.

    The session counts them and asks only when the count exceeds the number that it was told.
    """

    def __init__(self, now_ns: Callable[[], int], peer: str = "server") -> None:
        """`peer` is who sends the frames, for the error message."""
        self._now_ns, self._peer = now_ns, peer
        self._since_ns = now_ns()
        self._count = self._allowance = 0  # at that time

    def raised(self, count: int, requests: int, written_bytes: int) -> int:
        """The new maximum; the arguments are the connection's totals so far. Raises LimitError if `count` exceeds it."""
        allowance, now_ns = requests * _PER_REQUEST + written_bytes // _BYTES_PER_FRAME, self._now_ns()
        if now_ns - self._since_ns >= NS_PER_S:
            self._count, self._since_ns, self._allowance = count - 1, now_ns, allowance
        maximum = self._count + MAX_CONTROL_FRAMES_PER_S + allowance - self._allowance
        if count > maximum:
            kinds = "PING, SETTINGS, WINDOW_UPDATE and the like"
            raise LimitError(f"the {self._peer} sent more than {MAX_CONTROL_FRAMES_PER_S:,} control frames ({kinds}) within a second")
        return maximum

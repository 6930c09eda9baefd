"""HTTP/2 frames and header blocks as bytes (RFC 9113, RFC 7541); no I/O."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import hpack

from perfkit.errors import ProtocolError

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = range(1, 7)
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = range(4)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 6, 7, 8, 9, 11

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
DEFAULT_WINDOW_BYTES = (1 << 16) - 1
DEFAULT_FRAME_BYTES = 1 << 14
LARGEST_FRAME_BYTES = (1 << 24) - 1
LARGEST_WINDOW_BYTES = LAST_STREAM_ID = (1 << 31) - 1
LARGEST_HEADERS_BYTES = 1 << 16

_HEAD = struct.Struct(">HBBBI")  # upper two and lower byte of the length, type, flags, stream id
_SETTING = struct.Struct(">HI")
_ERROR_NAMES = (
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM",
    "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
)  # fmt: skip
# sets the size of the dynamic table to 0: our header blocks do not use it
NO_TABLE = b"\x20"
_MAX_GOAWAY_TEXT = 200
_MAX_CACHED_BLOCKS, _MAX_CACHED_BLOCK_BYTES = 1024, 1024

Headers = Sequence[tuple[str, str]]
_F = TypeVar("_F")

read_head: Callable[[bytes, int], tuple[int, int, int, int, int]] = _HEAD.unpack_from


class Http2Error(ProtocolError):
    """A violation of HTTP/2 by the peer; `code` is the error code to send."""

    def __init__(self, message: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


class LimitError(Http2Error):
    """The peer sends more than is accepted, whether or not HTTP/2 allows it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ENHANCE_YOUR_CALM)


def error_name(code: int) -> str:
    """An error code's name, or its number if the standard does not define it."""
    return _ERROR_NAMES[code] if code < len(_ERROR_NAMES) else f"error {code:#x}"


def frame_head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    """The nine bytes before a frame's payload; the first five do not depend on the stream."""
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A frame with its head."""
    return frame_head(len(payload), kind, flags, stream_id) + payload


def number_frame(kind: int, stream_id: int, number: int) -> bytes:
    """A frame that holds a number: WINDOW_UPDATE with its increment, RST_STREAM with its error code."""
    return frame(kind, 0, stream_id, number.to_bytes(4))


def header_frames(stream_id: int, block: bytes, frame_bytes: int, *, ends_stream: bool = False) -> list[bytes]:
    """A header block as a HEADERS frame, and CONTINUATION frames for what exceeds `frame_bytes`."""
    frames = []
    for first in range(0, len(block), frame_bytes):
        piece = block[first : first + frame_bytes]
        flags = (END_HEADERS if first + frame_bytes >= len(block) else 0) | (END_STREAM if ends_stream and not first else 0)
        frames.append(frame(CONTINUATION if first else HEADERS, flags, stream_id, piece))
    return frames


def goaway(code: int, last_stream_id: int = 0, text: str = "") -> bytes:
    """A GOAWAY frame, with the beginning of a text; a client's has 0 as the last stream id."""
    return frame(GOAWAY, 0, 0, last_stream_id.to_bytes(4) + code.to_bytes(4) + text[:_MAX_GOAWAY_TEXT].encode())


def settings(values: Mapping[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items()))


def read_settings(payload: bytes, peer: str = "server") -> dict[int, int]:
    """The values of a SETTINGS frame that the `peer` sent; raises Http2Error if one is not allowed."""
    if len(payload) % _SETTING.size:
        raise Http2Error("the length of a SETTINGS frame is not a multiple of 6", FRAME_SIZE_ERROR)
    values = dict(_SETTING.iter_unpack(payload))
    if values.get(INITIAL_WINDOW_SIZE, 0) > LARGEST_WINDOW_BYTES:
        raise Http2Error(f"the {peer}'s initial window is {values[INITIAL_WINDOW_SIZE]} bytes", FLOW_CONTROL_ERROR)
    if not DEFAULT_FRAME_BYTES <= values.get(MAX_FRAME_SIZE, DEFAULT_FRAME_BYTES) <= LARGEST_FRAME_BYTES:
        raise Http2Error(f"the {peer}'s largest frame is {values[MAX_FRAME_SIZE]} bytes")
    return values


def increased_window(window_bytes: int, increment: int) -> int:
    """A send window after its update; raises Http2Error if it exceeds what is allowed."""
    window_bytes += increment
    if window_bytes > LARGEST_WINDOW_BYTES:
        raise Http2Error("a send window exceeds the maximum of the standard", FLOW_CONTROL_ERROR)
    return window_bytes


def strip_padding(payload: bytes, flags: int) -> bytes:
    """A frame's payload without padding and without the priority of a HEADERS frame; raises Http2Error."""
    first, last = 0, len(payload)
    if flags & PADDED:
        first, last = 1, last - (payload[0] if payload else 0)
    if flags & WITH_PRIORITY:
        first += 5
    if first > last:
        raise Http2Error("a frame is shorter than its padding")
    return payload[first:last]


def encode_headers(headers: Headers) -> bytes:
    """A header block that uses only the static table and adds nothing to the peer's dynamic table."""
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(name, value) for name, value in headers])


def literal_header(name: str, value: str) -> bytes:
    """A header to append to a block, written out: a literal that is never indexed, without Huffman coding (RFC 7541, section 6.2.3).

    Name and value are ASCII texts of fewer than 127 characters. Much cheaper than `encode_headers`, which makes an HPACK encoder each time.
    """
    return b"\x10%c%b%c%b" % (len(name), name.encode(), len(value), value.encode())


def _not_cached(_block: bytes) -> None:
    """The lookup while a dynamic table is in use, with which equal blocks may have different meanings."""


class HeaderBlockReader(Generic[_F]):
    """Reads a connection's header blocks in order; `parse` converts headers to the returned value.

    Once the peer has acknowledged that the dynamic table has size 0, equal blocks have equal meanings, and blocks read before
    are looked up in `cache`, which connections share.
    """

    def __init__(self, parse: Callable[[Headers], _F], cache: dict[bytes, _F]) -> None:
        self._parse = parse
        self._cache = cache
        self._decoder = hpack.Decoder(LARGEST_HEADERS_BYTES)
        self.look_up: Callable[[bytes], _F | None] = _not_cached
        """The cached value of a block, or None; then call `read`."""

    def read(self, block: bytes) -> _F:
        """The value of a block; raises Http2Error if it is malformed."""
        if (cached := self.look_up(block)) is not None:
            return cached
        was_static = self.look_up is not _not_cached
        try:
            headers = self._parse([(str(name), str(value)) for name, value in self._decoder.decode(block)])
        except hpack.HPACKError:  # whose text may repeat the block
            raise Http2Error("a header block cannot be read", COMPRESSION_ERROR) from None
        self.look_up = _not_cached if self._decoder.header_table_size else self._cache.get
        if was_static and self.look_up is not _not_cached and len(block) <= _MAX_CACHED_BLOCK_BYTES:
            if len(self._cache) >= _MAX_CACHED_BLOCKS:
                self._cache.clear()
            self._cache[block] = headers
        return headers

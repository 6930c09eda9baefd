"""HTTP/2's frames and header blocks, without sockets: bytes from values, and values from bytes."""

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

_HEAD = struct.Struct(">HBBBI")  # the upper two bytes and the lower one of the length, the kind, the flags, the stream
_SETTING = struct.Struct(">HI")
_ERROR_NAMES = (
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM",
    "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
)  # fmt: skip
# a table of that size is no table: whatever the peer's may hold, our blocks need none of it
NO_TABLE = b"\x20"
_MOST_BLOCKS = 1024

Headers = Sequence[tuple[str, str]]
_F = TypeVar("_F")

read_head: Callable[[bytes, int], tuple[int, int, int, int, int]] = _HEAD.unpack_from


class Http2Error(ProtocolError):
    """The peer broke HTTP/2; `code` is what it is told."""

    def __init__(self, message: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


def error_name(code: int) -> str:
    """An error code's name, or its number where the standard has none."""
    return _ERROR_NAMES[code] if code < len(_ERROR_NAMES) else f"error {code:#x}"


def frame_head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    """The nine bytes before a frame's payload; the first five of them are the same for every stream."""
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return frame_head(len(payload), kind, flags, stream_id) + payload


def number_frame(kind: int, stream_id: int, number: int) -> bytes:
    """A frame of one number: the increment of a WINDOW_UPDATE, the code of a RST_STREAM."""
    return frame(kind, 0, stream_id, number.to_bytes(4))


def goaway(code: int) -> bytes:
    """A GOAWAY of a client, who has taken no stream of the server's."""
    return frame(GOAWAY, 0, 0, bytes(4) + code.to_bytes(4))


def settings(values: Mapping[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items()))


def read_settings(payload: bytes) -> dict[int, int]:
    """The values of a SETTINGS frame, the last of each; raises Http2Error for those that are not allowed."""
    if len(payload) % _SETTING.size:
        raise Http2Error("a SETTINGS frame has no whole number of settings", FRAME_SIZE_ERROR)
    values = dict(_SETTING.iter_unpack(payload))
    if values.get(INITIAL_WINDOW_SIZE, 0) > LARGEST_WINDOW_BYTES:
        raise Http2Error(f"the server's initial window is {values[INITIAL_WINDOW_SIZE]} bytes", FLOW_CONTROL_ERROR)
    if not DEFAULT_FRAME_BYTES <= values.get(MAX_FRAME_SIZE, DEFAULT_FRAME_BYTES) <= LARGEST_FRAME_BYTES:
        raise Http2Error(f"the server's largest frame is {values[MAX_FRAME_SIZE]} bytes")
    return values


def strip_padding(payload: bytes, flags: int) -> bytes:
    """What a frame's payload is without its padding, and without a HEADERS frame's priority; raises Http2Error."""
    first, last = 0, len(payload)
    if flags & PADDED:
        first, last = 1, last - (payload[0] if payload else 0)
    if flags & WITH_PRIORITY:
        first += 5
    if first > last:
        raise Http2Error("a frame is shorter than its padding")
    return payload[first:last]


def encode_headers(headers: Headers) -> bytes:
    """A header block that uses no table but the standard's own, and leaves nothing in the peer's."""
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(name, value) for name, value in headers])


def _unknown(_block: bytes) -> None:
    """Where a table is in use, what was read before tells nothing."""


class HeaderBlockReader(Generic[_F]):
    """Reads a connection's header blocks, in their order, into whatever `parse` makes of headers.

    Once the peer knows that we give it no table, and has said so, a block says the same each time: one seen before is
    looked up in `known`, which connections share.
    """

    def __init__(self, parse: Callable[[Headers], _F], known: dict[bytes, _F]) -> None:
        self._parse = parse
        self._known = known
        self._decoder = hpack.Decoder(LARGEST_HEADERS_BYTES)
        self.look_up: Callable[[bytes], _F | None] = _unknown
        """What a block says that was read before, as long as it says the same; `read` takes all others."""

    def read(self, block: bytes) -> _F:
        """The headers of a block; raises Http2Error where it is none."""
        if (known := self.look_up(block)) is not None:
            return known
        had_no_table = self.look_up is not _unknown
        try:
            headers = self._parse([(str(name), str(value)) for name, value in self._decoder.decode(block)])
        except hpack.HPACKError as error:
            raise Http2Error(f"a header block cannot be read: {error}", COMPRESSION_ERROR) from None
        self.look_up = _unknown if self._decoder.header_table_size else self._known.get
        if had_no_table and self.look_up is not _unknown:
            if len(self._known) >= _MOST_BLOCKS:
                self._known.clear()
            self._known[block] = headers
        return headers

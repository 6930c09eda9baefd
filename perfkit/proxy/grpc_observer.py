"""Finds the inference requests on a connection that speaks gRPC over HTTP/2."""

import collections
import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import hpack

from perfkit.errors import ProtocolError
from perfkit.override import override
from perfkit.protocol import http2, protobuf
from perfkit.protocol.grpc_call import PREFIX_BYTES
from perfkit.proxy.observer import MAX_BODY_BYTES, CapturedRequest, Observer

# also below the prefix of an ingress
_CALLS = {protobuf.method_path("ModelInfer"): "infer", protobuf.method_path("ModelStreamInfer"): "stream"}
_MAX_CACHED_BLOCKS = 256


class Piece(NamedTuple):
    """A part of a frame's payload, as much as one read gave."""

    kind: int
    flags: int
    stream_id: int
    data: memoryview
    is_first: bool
    is_last: bool


class FrameScanner:
    """Splits the bytes of one direction into frames, without waiting for the end of a frame."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._fields = (0, 0, 0)

    def feed(self, data: memoryview) -> Iterator[Piece]:
        """The parts of frames in further bytes; an empty frame has one empty part."""
        while data:
            is_first = not self._left
            if is_first:
                needed = http2.HEAD_BYTES - len(self._head)
                self._head, data = self._head + bytes(data[:needed]), data[needed:]
                if len(self._head) < http2.HEAD_BYTES:
                    return
                upper, lower, kind, flags, stream_id = http2.read_head(self._head, 0)
                self._head, self._left, self._fields = b"", upper << 8 | lower, (kind, flags, stream_id & http2.LAST_STREAM_ID)
            part, data = data[: self._left], data[self._left :]
            self._left -= len(part)
            yield Piece(*self._fields, part, is_first, not self._left)


@dataclasses.dataclass
class _Call:
    """A call to ModelInfer or ModelStreamInfer, whose messages are put together from pieces."""

    call: str
    encoding: str
    arrival_ns: int
    prefix: bytes = b""
    left: int = 0
    size: int = 0
    parts: list[bytes] = dataclasses.field(default_factory=list)

    def messages(self, data: memoryview, read_ns: int) -> Iterator[CapturedRequest]:
        """The messages that further data complete."""
        while data:
            if len(self.prefix) < PREFIX_BYTES:
                if not self.prefix and self.call == "stream":
                    self.arrival_ns = read_ns
                needed = PREFIX_BYTES - len(self.prefix)
                self.prefix, data = self.prefix + bytes(data[:needed]), data[needed:]
                if len(self.prefix) < PREFIX_BYTES:
                    return
                self.size = self.left = int.from_bytes(self.prefix[1:])
            part, data = data[: self.left], data[self.left :]
            self.left -= len(part)
            if self.size <= MAX_BODY_BYTES:
                self.parts.append(bytes(part))
            if not self.left:
                yield CapturedRequest(
                    self.arrival_ns, "stream" if self.call == "stream" else "infer", self.parts, True,
                    encoding=self.encoding if self.prefix[0] else "",
                )  # fmt: skip
                self.prefix, self.parts = b"", []


class GrpcObserver(Observer):
    """See `Observer`. A request arrives with its headers; on a stream, with the first byte of its message."""

    def __init__(self, on_request: Callable[[CapturedRequest], None], on_delay: Callable[[int], None]) -> None:
        super().__init__(on_request, on_delay)
        self._to_server, self._to_client = FrameScanner(), FrameScanner()
        self._preface = b""
        self._is_readable = True
        self._decoder = hpack.Decoder()
        # the server may allow a larger table, in settings that are not read here
        self._decoder.max_allowed_table_size = 2**32 - 1
        self._headers_of: dict[bytes, tuple[str, str]] = {}
        self._block, self._frame = bytearray(), bytearray()
        self._headers_ns = 0
        self._calls: dict[int, _Call] = {}
        self._delays_ns: dict[int, collections.deque[int]] = {}

    @property
    @override
    def unanswered(self) -> int:
        return sum(map(len, self._delays_ns.values()))

    @override
    def client_sent(self, data: bytes, read_ns: int, passed_ns: int) -> None:
        if not self._is_readable:
            return
        view = memoryview(data)
        if (missing := len(http2.PREFACE) - len(self._preface)) > 0:
            self._preface, view = self._preface + bytes(view[:missing]), view[missing:]
            if not http2.PREFACE.startswith(self._preface):
                self._is_readable = False
                raise ProtocolError("the client does not send HTTP/2")
        try:
            for piece in self._to_server.feed(view):
                self._take(piece, read_ns, passed_ns)
        except (hpack.HPACKError, http2.Http2Error) as error:
            self._is_readable = False
            raise ProtocolError(f"the client's HTTP/2 frames cannot be read: {error}") from None

    @override
    def server_sent(self, data: bytes, read_ns: int, passed_ns: int) -> None:
        for kind, flags, stream_id, _, is_first, is_last in self._to_client.feed(memoryview(data)):
            delays_ns = self._delays_ns.get(stream_id)
            if delays_ns is None:
                continue
            ends = kind == http2.RST_STREAM or (kind in (http2.DATA, http2.HEADERS) and flags & http2.END_STREAM)
            if delays_ns and is_first and (kind == http2.DATA or ends):
                self._on_delay(delays_ns.popleft() + passed_ns - read_ns)
            if ends and is_last:
                del self._delays_ns[stream_id]

    def _take(self, piece: Piece, read_ns: int, passed_ns: int) -> None:
        kind, flags, stream_id, data, is_first, is_last = piece
        if kind in (http2.HEADERS, http2.CONTINUATION):
            if is_first and kind == http2.HEADERS:
                self._headers_ns = read_ns
            self._frame += data
            if is_last:
                self._block += http2.strip_padding(bytes(self._frame), flags if kind == http2.HEADERS else 0)
                self._frame.clear()
                if flags & http2.END_HEADERS:
                    self._open_call(stream_id, bytes(self._block))
                    self._block.clear()
        elif kind == http2.DATA and (call := self._calls.get(stream_id)) is not None:
            if flags & http2.PADDED:
                self._frame += data
                if not is_last:
                    return
                data = memoryview(http2.strip_padding(bytes(self._frame), http2.PADDED))
                self._frame.clear()
            for request in call.messages(data, read_ns):
                self._delays_ns.setdefault(stream_id, collections.deque()).append(passed_ns - read_ns)
                self._on_request(request)
            if is_last and flags & http2.END_STREAM:
                del self._calls[stream_id]
        elif kind == http2.RST_STREAM:
            self._calls.pop(stream_id, None)
            self._delays_ns.pop(stream_id, None)

    def _open_call(self, stream_id: int, block: bytes) -> None:
        """Reads a header block, of which path and compression alone are kept."""
        found = self._headers_of.get(block)
        if found is None:
            table = self._decoder.header_table.dynamic_entries
            count, newest = len(table), table[0] if table else None
            headers = {str(name): str(value) for name, value in self._decoder.decode(block)}
            found = headers.get(":path", ""), headers.get("grpc-encoding", "")
            # a block that leaves the table as it is means the same again, until another block changes it
            is_changed = len(table) != count or (count > 0 and table[0] is not newest)
            if is_changed or len(self._headers_of) >= _MAX_CACHED_BLOCKS:
                self._headers_of.clear()
            else:
                self._headers_of[block] = found
        path, encoding = found
        call = next((call for method, call in _CALLS.items() if path.endswith(method)), None)
        if call is not None:
            self._calls[stream_id] = _Call(call, "" if encoding == "identity" else encoding, self._headers_ns)

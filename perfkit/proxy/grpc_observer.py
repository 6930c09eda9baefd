"""Finds the inference requests on a connection that speaks gRPC over HTTP/2."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import hpack

from perfkit.errors import ProtocolError
from perfkit.override import override
from perfkit.protocol import http2, protobuf
from perfkit.protocol.grpc_call import PREFIX_BYTES
from perfkit.proxy.observer import Observer
from perfkit.proxy.open_requests import BodyMemory, Call, OpenRequest

# also below the prefix of an ingress
_CALLS: dict[str, Call] = {protobuf.method_path("ModelInfer"): "infer", protobuf.method_path("ModelStreamInfer"): "stream"}
_NOT_FOUND_AGAIN = "more came than could be recorded, and where the next request begins is not known"
_MAX_CACHED_BLOCKS, _MAX_CACHED_BLOCK_BYTES = 256, 1024
# of one connection, that have not ended; a server may have reset the oldest ones
_MOST_OPEN_CALLS = 1024


class Piece(NamedTuple):
    """A part of a frame's payload, as much as one read gave; of DATA without its padding."""

    kind: int
    flags: int
    stream_id: int
    data: memoryview
    is_last: bool


class FrameScanner:
    """Splits the bytes of a client into frames, without waiting for the end of a frame."""

    def __init__(self) -> None:
        self._head = b""
        self._left = self._padding = 0
        self._has_pad_length = True
        self._fields = (0, 0, 0)

    def feed(self, data: memoryview) -> Iterator[Piece]:
        """The parts of frames in further bytes; an empty frame has one empty part. Raises Http2Error for wrong padding."""
        while data:
            if not self._left:
                needed = http2.HEAD_BYTES - len(self._head)
                self._head, data = self._head + bytes(data[:needed]), data[needed:]
                if len(self._head) < http2.HEAD_BYTES:
                    return
                upper, lower, kind, flags, stream_id = http2.read_head(self._head, 0)
                self._head, self._left, self._fields = b"", upper << 8 | lower, (kind, flags, stream_id & http2.LAST_STREAM_ID)
                self._padding, self._has_pad_length = 0, kind != http2.DATA or not flags & http2.PADDED
            if not self._has_pad_length and data:
                self._padding, self._left, data, self._has_pad_length = data[0], self._left - 1, data[1:], True
                if self._padding > self._left:
                    raise http2.Http2Error("a frame is shorter than its padding")
            part, data = data[: self._left], data[self._left :]
            content = part[: max(self._left - self._padding, 0)]
            self._left -= len(part)
            yield Piece(*self._fields, content, not self._left)

    def skip(self, size_bytes: int) -> int | None:
        """Passes over bytes of a DATA frame that go no further than its content; the stream that they belong to, or None if they do not."""
        kind, _, stream_id = self._fields
        if kind != http2.DATA or not self._has_pad_length or size_bytes >= self._left - self._padding:
            return None
        self._left -= size_bytes
        return stream_id


@dataclasses.dataclass(slots=True, eq=False)
class _Call:
    """A call to ModelInfer or ModelStreamInfer, with the message that has begun."""

    call: Call
    encoding: str
    arrival_ns: int
    prefix: bytes = b""
    left: int = 0
    request: OpenRequest | None = None


class GrpcObserver(Observer):
    """See `Observer`. A request arrives with its headers; on a stream, with the first byte of its message."""

    def __init__(self, on_request: Callable[[OpenRequest], None], memory: BodyMemory) -> None:
        super().__init__(on_request, memory)
        self._frames = FrameScanner()
        self._preface = b""
        # the server may allow a larger table, in settings that are not read here; no known one allows more than the headers themselves
        self._decoder = hpack.Decoder(http2.LARGEST_HEADERS_BYTES)
        self._decoder.max_allowed_table_size = http2.LARGEST_HEADERS_BYTES
        self._headers_of: dict[bytes, tuple[str, str]] = {}
        self._block, self._frame = bytearray(), bytearray()
        self._headers_ns: int | None = None  # when the header block that has begun came
        self._calls: dict[int, _Call] = {}

    @override
    def receive(self, data: bytes, read_ns: int, *, is_first: bool) -> None:
        view = memoryview(data)
        if (missing := len(http2.PREFACE) - len(self._preface)) > 0:
            self._preface, view = self._preface + bytes(view[:missing]), view[missing:]
            if not http2.PREFACE.startswith(self._preface):
                raise ProtocolError("the client does not send HTTP/2")
        try:
            for piece in self._frames.feed(view):
                self._take(piece, read_ns)
        except (hpack.HPACKError, http2.Http2Error) as error:
            raise ProtocolError(f"the client's HTTP/2 frames cannot be read: {error}") from None

    @override
    def skip(self, size_bytes: int) -> None:
        stream_id = self._frames.skip(size_bytes)
        if stream_id is None:
            raise ProtocolError(_NOT_FOUND_AGAIN)
        if (call := self._calls.get(stream_id)) is not None:
            if call.request is None or size_bytes > call.left:
                raise ProtocolError(_NOT_FOUND_AGAIN)
            self._memory.drop(call.request)
            call.left -= size_bytes
            if not call.left:
                self._end_message(call)

    @override
    def close(self) -> None:
        for stream_id in tuple(self._calls):
            self._end_call(stream_id)

    def _take(self, piece: Piece, read_ns: int) -> None:
        kind, flags, stream_id, data, is_last = piece
        if kind in (http2.HEADERS, http2.CONTINUATION):
            if self._headers_ns is None:
                self._headers_ns = read_ns
            self._frame += data
            if len(self._frame) + len(self._block) > http2.LARGEST_HEADERS_BYTES:
                raise http2.LimitError(f"the headers of a call are longer than {http2.LARGEST_HEADERS_BYTES:,} B")
            if is_last:
                self._block += http2.strip_padding(bytes(self._frame), flags if kind == http2.HEADERS else 0)
                self._frame.clear()
                if flags & http2.END_HEADERS:
                    self._open_call(stream_id, bytes(self._block), self._headers_ns)
                    self._block.clear()
                    self._headers_ns = None
        elif kind == http2.DATA and (call := self._calls.get(stream_id)) is not None:
            self._add(call, data, read_ns)
            if is_last and flags & http2.END_STREAM:
                self._end_call(stream_id)
        elif kind == http2.RST_STREAM:
            self._end_call(stream_id)

    def _add(self, call: _Call, data: memoryview, read_ns: int) -> None:
        """Adds data to the message that has begun, and begins the next ones."""
        while data:
            if call.request is None:
                if not call.prefix and call.call == "stream":
                    call.arrival_ns = read_ns
                needed = PREFIX_BYTES - len(call.prefix)
                call.prefix, data = call.prefix + bytes(data[:needed]), data[needed:]
                if len(call.prefix) < PREFIX_BYTES:
                    return
                call.left = int.from_bytes(call.prefix[1:])
                call.request = OpenRequest(call.arrival_ns, call.call, True, encoding=call.encoding if call.prefix[0] else "")
            part, data = data[: call.left], data[call.left :]
            call.left -= len(part)
            self._memory.add(call.request, part)
            if not call.left:
                self._end_message(call)

    def _end_message(self, call: _Call) -> None:
        request, call.request, call.prefix = call.request, None, b""
        if request is not None:
            self._complete(request)

    def _end_call(self, stream_id: int) -> None:
        call = self._calls.pop(stream_id, None)
        if call is not None and (call.request is not None or call.prefix):
            self._forget(call.request)

    def _open_call(self, stream_id: int, block: bytes, arrival_ns: int) -> None:
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
            elif len(block) <= _MAX_CACHED_BLOCK_BYTES:
                self._headers_of[block] = found
        path, encoding = found
        call = next((call for method, call in _CALLS.items() if path.endswith(method)), None)
        if call is not None:
            if len(self._calls) >= _MOST_OPEN_CALLS:
                self._end_call(next(iter(self._calls)))
            self._end_call(stream_id)  # a broken client begins a call again
            self._calls[stream_id] = _Call(call, "" if encoding == "identity" else encoding, arrival_ns)

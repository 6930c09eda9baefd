"""The lean server's gRPC side: it finds where a request ends, and writes frames that were made ahead of time."""

import asyncio
import collections
from collections.abc import Mapping
from typing import cast

from perfkit.calibration.lean_answers import GrpcAnswer, grpc_refusal
from perfkit.protocol import http2
from perfkit.protocol.http2 import BlockReader, Headers, Http2Error

_WINDOW_BYTES = (1 << 30) - 1
_OPENING = http2.settings({http2.HEADER_TABLE_SIZE: 0, http2.INITIAL_WINDOW_SIZE: _WINDOW_BYTES}) + http2.number_frame(
    http2.WINDOW_UPDATE, 0, _WINDOW_BYTES - http2.DEFAULT_WINDOW_BYTES
)


class LeanGrpc(asyncio.Protocol):
    """One HTTP/2 connection. A request may be as large as its stream's first window, 1 GiB; that of the connection is renewed."""

    def __init__(self, answers: Mapping[str, GrpcAnswer], known: dict[bytes, GrpcAnswer]) -> None:
        self._answers = answers
        self._blocks = BlockReader(self._find, known)
        self._unread = b""
        self._is_open = self._has_answered = False
        self._streams: dict[int, GrpcAnswer] = {}
        self._block = b""  # of a HEADERS frame that goes on in CONTINUATION
        self._block_flags = 0
        self._received_bytes = 0
        self._window_bytes = http2.DEFAULT_WINDOW_BYTES
        self._waiting: collections.deque[tuple[int, GrpcAnswer]] = collections.deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.write(_OPENING)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._unread:
            data = self._unread + data
        position, end = 0, len(data)
        if not self._is_open:
            if not data.startswith(http2.PREFACE):
                self._unread = data
                if not http2.PREFACE.startswith(data):
                    self._transport.close()
                return
            self._is_open, position = True, len(http2.PREFACE)
        try:
            while end - position >= http2.HEAD_BYTES:
                upper, lower, kind, flags, stream_id = http2.read_head(data, position)
                first = position + http2.HEAD_BYTES
                stop = first + (upper << 8 | lower)
                if stop > end:
                    break
                if kind == http2.DATA:
                    self._received_bytes += stop - first
                    if flags & http2.END_STREAM:
                        self._answer(stream_id)
                else:
                    self._take(kind, flags, stream_id, data[first:stop])
                position = stop
        except Http2Error:
            self._transport.close()
            return
        self._unread = data[position:]
        if self._received_bytes > _WINDOW_BYTES // 2:
            self._transport.write(http2.number_frame(http2.WINDOW_UPDATE, 0, self._received_bytes))
            self._received_bytes = 0

    def _find(self, headers: Headers) -> GrpcAnswer:
        path = dict(headers).get(":path", "")
        return self._answers.get(path) or grpc_refusal(path)

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """The frames that hold no data."""
        match kind:
            case http2.HEADERS:
                self._block, self._block_flags = http2.unpadded(payload, flags), flags
                self._end_block(flags, stream_id)
            case http2.CONTINUATION:
                self._block += payload
                if len(self._block) > http2.LARGEST_HEADERS_BYTES:
                    raise Http2Error("a header block does not end")
                self._end_block(flags, stream_id)
            case http2.SETTINGS if not flags & http2.ACK:
                self._transport.write(http2.frame(http2.SETTINGS, http2.ACK, 0))
            case http2.PING if not flags & http2.ACK:
                self._transport.write(http2.frame(http2.PING, http2.ACK, 0, payload))
            case http2.WINDOW_UPDATE if not stream_id:
                self._window_bytes += int.from_bytes(payload)
                for _ in range(len(self._waiting)):
                    self._write(*self._waiting.popleft())
            case http2.RST_STREAM:
                self._streams.pop(stream_id, None)
            case _:
                pass  # the windows of streams are wider than any answer

    def _end_block(self, flags: int, stream_id: int) -> None:
        if flags & http2.END_HEADERS:
            self._streams[stream_id] = self._blocks.look_up(self._block) or self._blocks.read(self._block)
            if self._block_flags & http2.END_STREAM:
                self._answer(stream_id)

    def _answer(self, stream_id: int) -> None:
        answer = self._streams.pop(stream_id, None)
        if answer is not None:  # otherwise it was reset
            self._write(stream_id, answer)

    def _write(self, stream_id: int, answer: GrpcAnswer) -> None:
        if answer.data_bytes > self._window_bytes:
            self._waiting.append((stream_id, answer))
            return
        self._window_bytes -= answer.data_bytes
        self._transport.write(stream_id.to_bytes(4).join(answer.pieces if self._has_answered else answer.first_pieces))
        self._has_answered = True

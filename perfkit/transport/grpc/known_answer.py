"""Small answers that a server repeats: only stream id and message differ from one to the next, so that bytes can be compared, not parsed."""

import dataclasses
import struct
from typing import Generic, Protocol, TypeVar

from perfkit.protocol import http2
from perfkit.protocol.http2 import HeaderBlockReader

_KINDS = [(http2.HEADERS, http2.END_HEADERS), (http2.DATA, 0), (http2.HEADERS, http2.END_HEADERS | http2.END_STREAM)]
_START_BYTES = 5  # of a frame: its length, type and flags; the stream id follows
# below that the session counts messages
_LEAST_MESSAGE_BYTES = 17
_LEARN_EVERY = 8
"""Reads that are parsed until one may become the known answer: where each answer differs, that should cost little."""


class ParsedHeaders(Protocol):
    """What a session needs to know about a parsed header block."""

    @property
    def is_interim(self) -> bool:
        """Whether the status is below 200, so that the final headers are still to come."""


H = TypeVar("H", bound=ParsedHeaders)


@dataclasses.dataclass(frozen=True, slots=True)
class _Known(Generic[H]):
    """The layout of an answer, and what is equal in all answers like it."""

    layout: struct.Struct
    parts: tuple[bytes, bytes, bytes, bytes]
    """The first frame's start, its block with the start of the second, the start of the third, its block."""
    headers: H
    trailers: H


class KnownAnswers(Generic[H]):
    """Recognizes answers of a HEADERS frame, a DATA frame, and a HEADERS frame that ends the stream, received as a whole."""

    def __init__(self, blocks: HeaderBlockReader[H]) -> None:
        self._blocks = blocks
        self._known: _Known[H] | None = None
        self._reads_until_learning = _LEARN_EVERY

    def read(self, data: bytes) -> tuple[int, H, bytes, H] | None:
        """Stream id, headers, message and trailers of an answer; None if it is not like the one that was learned."""
        known = self._known
        if known is None or len(data) != known.layout.size:
            return None
        start, stream_id, headers_and_start, second_id, message, last_start, third_id, trailers = known.layout.unpack(data)
        if not stream_id == second_id == third_id or (start, headers_and_start, last_start, trailers) != known.parts:
            return None
        return stream_id, known.headers, message, known.trailers

    def learn(self, data: bytes) -> None:
        """Remembers one of many answers that were parsed."""
        self._reads_until_learning -= 1
        if self._reads_until_learning <= 0:
            self._reads_until_learning = _LEARN_EVERY
            self._known = self._layout_of(data) or self._known

    def forget(self) -> None:
        """Parses the next answers: equal header blocks may no longer have equal meanings."""
        self._known = None

    def _layout_of(self, data: bytes) -> _Known[H] | None:
        kinds: list[tuple[int, int]] = []
        payloads, position = list[bytes](), 0
        while len(data) - position >= http2.HEAD_BYTES and len(kinds) < len(_KINDS):
            upper, lower, kind, flags, _ = http2.read_head(data, position)
            first = position + http2.HEAD_BYTES
            position = first + (upper << 8 | lower)
            kinds.append((kind, flags))
            payloads.append(data[first:position])
        if kinds != _KINDS or position != len(data) or len(payloads[1]) < _LEAST_MESSAGE_BYTES:
            return None
        block, message, trailers_block = payloads
        headers, trailers = self._blocks.look_up(block), self._blocks.look_up(trailers_block)
        if headers is None or trailers is None or headers.is_interim:
            return None
        sizes = (_START_BYTES, len(block) + _START_BYTES, len(message), _START_BYTES, len(trailers_block))
        layout = struct.Struct(">{}sI{}sI{}s{}sI{}s".format(*sizes))
        start, _, headers_and_start, _, _, last_start, _, _ = layout.unpack(data)
        return _Known(layout, (start, headers_and_start, last_start, trailers_block), headers, trailers)

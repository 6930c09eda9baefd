"""The values and interfaces that an HTTP/2 session and its owner exchange."""

import abc
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from perfkit.protocol import http2
from perfkit.protocol.http2 import Headers
from perfkit.transport.limits import AnswerLimit


class ParsedHeaders(Protocol):
    """What a session needs to know about a parsed header block."""

    @property
    def is_interim(self) -> bool:
        """Whether the status is below 200, so that the final headers are still to come."""


H = TypeVar("H", bound=ParsedHeaders)


class Stream(Generic[H]):
    """The part of an answer received so far: its first headers, and its data in chunks."""

    __slots__ = ("chunks", "headers", "id", "received_bytes")
    has_many_messages = False
    """Whether the answer is a stream of messages, whose length as a whole has no limit."""

    def __init__(self) -> None:
        self.id = 0
        self.headers: H | None = None
        self.chunks: list[bytes] = []
        self.received_bytes = 0
        """The bytes received since the answer's size was last checked."""


S = TypeVar("S", bound=Stream[Any])


class SessionListener(abc.ABC, Generic[S, H]):
    """Callbacks of a session, and what it asks. Each stream ends with exactly one of `on_answer`, `on_reset` and `on_refused`."""

    @property
    @abc.abstractmethod
    def answer_limit(self) -> AnswerLimit:
        """The length from which an answer is refused."""

    @abc.abstractmethod
    def now_ns(self) -> int:
        """The time, for limits per second; read once for every few thousand control frames."""

    @abc.abstractmethod
    def on_answer(self, stream: S, trailers: H | None) -> None:
        """The answer is complete; `trailers` is None if data ended it."""

    @abc.abstractmethod
    def on_reset(self, stream: S, code: int) -> None:
        """The server reset the stream, or the session did because the server violated the protocol."""

    @abc.abstractmethod
    def on_refused(self, stream: S, reason: str) -> None:
        """The server declares that it did not process the request."""

    @abc.abstractmethod
    def on_settings(self) -> None:
        """The server's settings arrived, the first or new ones: `max_concurrent_streams` may have changed."""

    @abc.abstractmethod
    def on_goaway(self) -> None:
        """The session can open no more streams; `goaway_reason` says why."""


class Writer(Protocol):
    """The destination of a session's bytes, such as an asyncio transport."""

    def write(self, data: bytes) -> None:
        """Writes one buffer."""

    def writelines(self, list_of_data: Sequence[bytes | memoryview]) -> None:
        """Writes several buffers."""


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

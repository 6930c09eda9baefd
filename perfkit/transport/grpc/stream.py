"""What an HTTP/2 connection and its owner hand each other: a request's bytes, an answer's pieces, and news of them."""

import abc
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from perfkit.protocol import http2
from perfkit.protocol.http2 import Headers


class Fields(Protocol):
    """What a connection must know of an answer's headers."""

    @property
    def is_announcement(self) -> bool:
        """A status below 200: the answer's own headers are still to come."""


_F = TypeVar("_F", bound=Fields)


class Stream(Generic[_F]):
    """What has come of one answer: its first headers, and its data in pieces."""

    __slots__ = ("chunks", "head", "id", "received_bytes")

    def __init__(self) -> None:
        self.id = 0
        self.head: _F | None = None
        self.chunks: list[bytes] = []
        self.received_bytes = 0


_S = TypeVar("_S", bound=Stream[Any])


class Listener(abc.ABC, Generic[_S, _F]):
    """Who is told what becomes of the streams: of each one thing, once."""

    @abc.abstractmethod
    def on_answer(self, stream: _S, trailers: _F | None) -> None:
        """The answer is complete; `trailers` are its last headers, None where data ended it."""

    @abc.abstractmethod
    def on_reset(self, stream: _S, code: int) -> None:
        """The peer, or what it broke, ended the stream."""

    @abc.abstractmethod
    def on_untaken(self, stream: _S, why: str) -> None:
        """The peer says that it has not looked at the request."""

    @abc.abstractmethod
    def on_settings(self) -> None:
        """The peer's settings, the first time or new ones: `most_streams` may have changed."""

    @abc.abstractmethod
    def on_goaway(self) -> None:
        """The connection takes no more requests; `farewell` says why."""


class Writer(Protocol):
    """Where bytes go: an asyncio transport, or a test's."""

    def write(self, data: bytes) -> None:
        """Writes one buffer."""

    def writelines(self, list_of_data: Sequence[bytes | memoryview]) -> None:
        """Writes several."""


def prepare(headers: Headers, data: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """A request's bytes, but for its stream's number behind the first and the third: start of a frame, headers, start of a frame, data.

    A start is empty where the headers or the data need several frames.
    """
    block = http2.encode_headers(headers)
    return _start(block, http2.HEADERS, http2.END_HEADERS), block, _start(data, http2.DATA, http2.END_STREAM), data


def _start(payload: bytes, kind: int, flags: int) -> bytes:
    return b"" if len(payload) > http2.DEFAULT_FRAME_BYTES else http2.frame_head(len(payload), kind, flags, 0)[:5]

"""Infer requests over HTTP that are brief: small and plain. They go without aiohttp, at half the CPU time.

What a client of a small model sends again and again is the same head in front of another body, so a head that was read
once is known by its bytes. A connection is one of brief requests until it brings anything else, and from there on aiohttp's.
"""

import asyncio
import http
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import httptools

from perfkit.protocol import rest
from perfkit.protocol.compression import choose_encoding
from server_stub.http_inference import HttpAnswer, slow_body
from server_stub.limits import Limits

_MAX_BODY_BYTES, _MAX_HEAD_BYTES = 2**16, 2**12
_MAX_HEADS = 2**10
_PATH = re.compile(rb"/v2/models/([\w.-]+)(?:/versions/([0-9]+))?/infer", re.ASCII)
_HEADER_LENGTH = rest.HEADER_LENGTH.lower().encode()
# with these a request is more than bytes behind a head
_LEFT_ALONE = frozenset({b"transfer-encoding", b"content-encoding", b"expect", b"upgrade"})
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


class Head(NamedTuple):
    """What the head of a brief request says."""

    model: str
    version: str
    body_bytes: int
    header_length: str | None

    @property
    def line(self) -> str:
        """Method and path, for the log."""
        return f"POST {rest.model_path(self.model, self.version, 'infer')}"


AnswerBrief = Callable[[Head, bytes], Awaitable[HttpAnswer]]
"""Answers a request by its head and its body; raises nothing."""


class Heads:
    """Reads the heads of brief requests, whose bodies have `max_body_bytes` at most."""

    def __init__(self, max_body_bytes: int = _MAX_BODY_BYTES) -> None:
        self._max_body_bytes = min(max_body_bytes, _MAX_BODY_BYTES)
        self._known: dict[bytes, Head] = {}

    def find(self, received: bytes) -> tuple[Head, int] | None:
        """The head that stands at the beginning, and its length; None where there is no whole one, or one of anything else."""
        end = received.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES) + 4
        if end < 4:
            return None
        encoded = received[:end]
        head = self._known.get(encoded)
        if head is None:
            head = read_head(encoded)
            if head is None or head.body_bytes > self._max_body_bytes:
                return None
            if len(self._known) >= _MAX_HEADS:  # a client with a new head for every request gains nothing by them
                self._known.clear()
            self._known[encoded] = head
        return head, end


class _Fields:
    """httptools' callbacks."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


def read_head(encoded: bytes) -> Head | None:
    """What a whole head says; None where it is not that of a brief request, or not plainly so."""
    fields = _Fields()
    parser = httptools.HttpRequestParser(fields)
    try:
        parser.feed_data(encoded)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    found, values = _PATH.fullmatch(fields.target), dict(fields.headers)
    if not found or parser.get_method() != b"POST" or parser.get_http_version() != "1.1" or not parser.should_keep_alive():
        return None
    if len(values) < len(fields.headers) or _LEFT_ALONE & values.keys():
        return None
    if choose_encoding(values.get(b"accept-encoding", b"").decode("latin-1")) != "identity":
        return None
    length = values.get(b"content-length", b"")
    if not length.isdigit() or int(length) > _MAX_BODY_BYTES:
        return None
    header_length = values.get(_HEADER_LENGTH)
    if header_length is not None and not (header_length.isascii() and header_length == header_length.strip()):
        return None
    return Head(found[1].decode(), (found[2] or b"").decode(), int(length), None if header_length is None else header_length.decode())


def write_answer(answer: HttpAnswer) -> bytes:
    """An answer as it goes over the wire."""
    fields = "".join([f"{name}: {value}\r\n" for name, value in answer.headers.items()])
    head = f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n{fields}Content-Length: {len(answer.body)}\r\n\r\n"
    return head.encode("latin-1") + answer.body


class BriefExchange:
    """The brief requests of one connection, one after the other; `pass_on` gets the first bytes that are anything else."""

    def __init__(
        self, heads: Heads, answer: AnswerBrief, limits: Limits, transport: asyncio.Transport, pass_on: Callable[[bytes], None]
    ) -> None:
        self._heads, self._answer, self._limits, self._transport, self._pass_on = heads, answer, limits, transport, pass_on
        self._loop = asyncio.get_running_loop()
        self._received = b""  # of a request whose body is arriving, or what came while another one was answered
        self._answering: asyncio.Task[None] | None = None
        self._is_paused = self._awaits_body = False
        self._ended: asyncio.Future[None] | None = None
        self._arriving: asyncio.TimerHandle | None = self._loop.call_later(limits.head_timeout_s, transport.abort)
        self._answered_s = self._loop.time()
        self._idle = self._loop.call_later(limits.idle_timeout_s, self._check_idle)

    def receive(self, data: bytes) -> None:
        """Takes what the client sent."""
        self._received = self._received + data if self._received else data
        if self._answering is None and not self._is_paused:
            self._take()
        else:
            self._transport.pause_reading()  # the rest stays with a client that does not wait for answers

    def pause(self) -> None:
        """The client does not read: it is not read from either."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume(self) -> None:
        """The client has read."""
        self._is_paused = False
        self._go_on()

    async def end(self) -> None:
        """Closes the connection when what has begun is answered."""
        if self._answering is not None or self._received:
            self._ended = self._loop.create_future()
            await self._ended
        self._transport.close()

    def close(self) -> None:
        """Nothing comes from this connection any more, or what comes is somebody else's."""
        self._idle.cancel()
        self._stop_waiting()
        if self._answering is not None:  # who has left waits no more
            self._answering.cancel()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _take(self) -> None:
        received = self._received
        found = self._heads.find(received)
        missing = -1 if found is None else found[1] + found[0].body_bytes - len(received)
        if found is None or missing < 0:
            self.close()
            self._received = b""
            self._pass_on(received)
        elif missing > 0:
            if not self._awaits_body:
                self._stop_waiting()
                self._awaits_body, self._arriving = True, self._loop.call_later(self._limits.body_timeout_s, self._end_body)
        else:
            self._stop_waiting()
            self._awaits_body, self._received = False, b""
            self._answering = self._loop.create_task(self._exchange(found[0], received[found[1] :]))

    async def _exchange(self, head: Head, body: bytes) -> None:
        self._write(await self._answer(head, body))
        self._answering = None
        self._answered_s = self._loop.time()
        if self._ended is not None:
            self.close()
        elif self._received:
            self._go_on()

    def _go_on(self) -> None:
        if self._transport.is_closing() or self._is_paused or self._answering is not None:
            return
        self._transport.resume_reading()
        if self._received:
            self._take()

    def _write(self, answer: HttpAnswer) -> None:
        if not self._transport.is_closing():  # who has left gets nothing
            self._transport.write(write_answer(answer))

    def _end_body(self) -> None:
        self._write(slow_body(self._limits.body_timeout_s))
        self._transport.close()

    def _check_idle(self) -> None:
        left_s = self._answered_s + self._limits.idle_timeout_s - self._loop.time()
        if self._answering is None and not self._received and left_s <= 0:
            self._transport.close()
        else:
            self._idle = self._loop.call_later(left_s if left_s > 0 else self._limits.idle_timeout_s, self._check_idle)

    def _stop_waiting(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

"""The fast path: plain infer requests over HTTP/1.1, read and answered without aiohttp.

Clients send the same head again and again with different bodies, so parsed heads are cached by their bytes. Small requests
take half of aiohttp's CPU time. Large ones are received straight into a buffer, and their bodies are views of it.
A connection stays on the fast path until its first other request, and then moves to aiohttp for good.
"""

import asyncio
import functools
import http
import re
import time
from collections.abc import Callable

import httptools

from perfkit.digits import whole_number
from perfkit.protocol import rest
from perfkit.protocol.compression import choose_encoding
from perfkit.protocol.tensor import Buffer
from server_stub.begun_task import begin_task
from server_stub.http.inference import HttpInference, HttpResponse, RequestHead, body_timeout_response
from server_stub.http.request_buffer import RequestBuffer
from server_stub.inference.repetition import MAX_HEAD_BYTES, MAX_REMEMBERED, remember
from server_stub.options import Limits

_MAX_SMALL_BYTES = 2**16  # requests with larger bodies are received into a buffer
_PATH = re.compile(rb"/v2/models/([\w.-]+)(?:/versions/([0-9]+))?/infer", re.ASCII)
_HEADER_LENGTH = rest.HEADER_LENGTH.lower().encode()
# headers of requests that need aiohttp; a traceparent is one unless it is written as all clients do, because `HeadCache` takes that out
_UNSUPPORTED_HEADERS = frozenset({b"transfer-encoding", b"content-encoding", b"expect", b"upgrade", b"traceparent"})
_TRACEPARENT = re.compile(rb"\r\n[Tt]raceparent: ([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})(?=\r\n[^ \t])")
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


class HeadCache:
    """Parses and caches request heads. Bodies are limited to `max_body_bytes`."""

    def __init__(self, max_body_bytes: int, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._max_body_bytes, self._now_ns = max_body_bytes, now_ns
        self._known: dict[bytes, RequestHead] = {}

    def find(self, received: bytes) -> tuple[RequestHead, int] | None:
        """The head at the beginning of `received`, and its length. None if it is incomplete or not for the fast path."""
        end = received.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
        if end < 4:
            return None
        encoded = received[:end]
        head = self._known.get(encoded)
        if head is None:
            traced = _TRACEPARENT.search(encoded)
            if traced is None:
                head = self._parse(encoded)
            elif (head := self._parse(encoded[: traced.start()] + encoded[traced.end() :])) is not None:
                # each has its own, so it is not part of what is cached
                head = head._replace(traceparent=traced[1].decode(), received_ns=self._now_ns())
        return None if head is None else (head, end)

    def _parse(self, encoded: bytes) -> RequestHead | None:
        if (known := self._known.get(encoded)) is not None:
            return known
        head = parse_head(encoded)
        if head is None or head.body_bytes > self._max_body_bytes:
            return None
        remember(self._known, encoded, head)
        return head


class _Fields:
    """httptools' callbacks, which collect the target and the headers."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


def parse_head(encoded: bytes) -> RequestHead | None:
    """Parse a complete head. None if the request is not for the fast path, or in doubt."""
    fields = _Fields()
    parser = httptools.HttpRequestParser(fields)
    try:
        parser.feed_data(encoded)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    path, values = _PATH.fullmatch(fields.target), dict(fields.headers)
    if not path or parser.get_method() != b"POST" or parser.get_http_version() != "1.1" or not parser.should_keep_alive():
        return None
    if len(values) < len(fields.headers) or _UNSUPPORTED_HEADERS & values.keys():
        return None
    if choose_encoding(values.get(b"accept-encoding", b"").decode("latin-1")) != "identity":
        return None
    length = whole_number(values.get(b"content-length", b""))
    if length is None:
        return None
    header_length = values.get(_HEADER_LENGTH)
    if header_length is not None and not (header_length.isascii() and header_length == header_length.strip()):
        return None
    return RequestHead(path[1].decode(), (path[2] or b"").decode(), length, None if header_length is None else header_length.decode())


@functools.lru_cache(MAX_REMEMBERED)
def _encode_head(status: int, headers: tuple[tuple[str, str], ...], body_bytes: int) -> bytes:
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers])
    return f"HTTP/1.1 {status} {_REASONS[status]}\r\n{fields}Content-Length: {body_bytes}\r\n\r\n".encode("latin-1")


def encode_response(response: HttpResponse) -> list[Buffer]:
    """A response in wire format, in one piece if it is small."""
    body_bytes = response.body_bytes
    head = _encode_head(response.status, tuple(response.headers.items()), body_bytes)
    return [head, *response.body] if body_bytes > _MAX_SMALL_BYTES else [b"".join((head, *response.body))]


class FastPathConnection:
    """One connection on the fast path, one request at a time."""

    def __init__(
        self,
        heads: HeadCache,
        handler: HttpInference,
        limits: Limits,
        take_memory: Callable[[int], memoryview],
        transport: asyncio.Transport,
        hand_over: Callable[[bytes], None],
    ) -> None:
        """`hand_over` gets the first bytes of any other request."""
        self._heads, self._handler, self._limits, self._transport, self._hand_over = heads, handler, limits, transport, hand_over
        self._loop = asyncio.get_running_loop()
        self._received = b""  # an incomplete small request, or bytes that arrived during the current one
        self._buffer = RequestBuffer(take_memory)
        self.is_buffered = False
        """Whether bytes are received by `get_buffer` and `buffer_updated`, rather than by `receive`."""
        self._large: RequestHead | None = None  # of the request that is being received into the buffer
        self._responding: asyncio.Task[None] | None = None
        self._is_paused = self._awaits_body = False
        self._stopped: asyncio.Future[None] | None = None
        self._read_timer: asyncio.TimerHandle | None = self._loop.call_later(limits.head_timeout_s, transport.abort)
        self._responded_s = self._loop.time()
        self._idle_timer = self._loop.call_later(limits.idle_timeout_s, self._check_idle)

    def receive(self, data: bytes) -> None:
        """Process bytes from the client."""
        self._received = self._received + data if self._received else data
        if self._responding is None and not self._is_paused:
            self._process()
        else:
            self._transport.pause_reading()  # limits what a pipelining client makes us hold

    def get_buffer(self) -> memoryview:
        """Where the next bytes from the client belong."""
        return self._buffer.space()

    def buffer_updated(self, byte_count: int) -> None:
        """Process bytes that have been written there."""
        self._buffer.filled += byte_count
        if self._responding is None and not self._is_paused:
            self._process_buffer()
        else:
            self._transport.pause_reading()

    def large_space(self) -> memoryview | None:
        """Where the missing bytes of a large request belong; None if none has begun, or none are missing."""
        missing_bytes = 0 if self._large is None else self._buffer.missing_bytes
        return self._buffer.space()[:missing_bytes] if missing_bytes > 0 else None

    def continue_reading(self) -> None:
        """Read again after the transport was stopped for another way to receive."""
        if not self._transport.is_closing() and not self._is_paused:
            self._transport.resume_reading()

    def pause(self) -> None:
        """Stop reading, because the client does not read."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume(self, *, can_read: bool = True) -> None:
        """Read again, because the client does, unless another way to receive is in use, which ends by `continue_reading`."""
        self._is_paused = False
        if can_read:
            self._continue()

    async def stop(self) -> None:
        """Close the connection once the request that has begun, if any, is answered."""
        if self._responding is not None or self._has_bytes:
            self._stopped = self._loop.create_future()
            await self._stopped
        self._transport.close()

    def close(self) -> None:
        """Stop the timers and the current request: the connection is closed or handed over."""
        self._idle_timer.cancel()
        self._stop_read_timer()
        self._buffer.release()
        if self._responding is not None:
            self._responding.cancel()
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    @property
    def _has_bytes(self) -> bool:
        return bool(self._received or self._buffer.filled)

    def _process(self) -> None:
        received = self._received
        parsed = self._heads.find(received)
        if parsed is not None and self._is_for_buffer(parsed[0]):
            self._received = b""
            self.is_buffered = True
            self._begin_large(*parsed, received)
            return
        self.is_buffered = False
        missing_bytes = -1 if parsed is None else parsed[1] + parsed[0].body_bytes - len(received)
        if parsed is None or missing_bytes < 0 or parsed[0].body_bytes > _MAX_SMALL_BYTES:
            self._give_up(received)
        elif missing_bytes > 0:
            self._await_body()
        else:
            self._received = b""
            self._respond_to(parsed[0], received[parsed[1] :])

    def _process_buffer(self) -> None:
        if self._large is not None:
            self._process_large()
            return
        parsed = self._heads.find(self._buffer.head(MAX_HEAD_BYTES))
        if parsed is not None and self._is_for_buffer(parsed[0]):
            self._begin_large(*parsed)
        else:
            self._received = self._buffer.take_rest()
            self._process()

    def _begin_large(self, head: RequestHead, head_bytes: int, received: bytes = b"") -> None:
        """Receives a request into the buffer, which holds its beginning, or does once `received` is appended."""
        try:
            self._buffer.append(received)
            self._buffer.begin(head_bytes, head.body_bytes)
        except MemoryError:  # aiohttp takes memory only as bytes arrive, and knows what to respond if there is none
            received = self._buffer.take_rest() or received
            self.is_buffered = False
            self._give_up(received)
            return
        self._large = head
        self._process_large()

    def _give_up(self, received: bytes) -> None:
        """Hands the connection over, with the bytes from the current request on."""
        self.close()
        self._received = b""
        self._hand_over(received)

    def _process_large(self) -> None:
        missing_bytes = self._buffer.missing_bytes
        if missing_bytes > 0:
            self._await_body()
            return
        if missing_bytes < 0:
            self._transport.pause_reading()  # see `receive`
        head, self._large = self._large, None
        assert head is not None
        self._respond_to(head, self._buffer.body())

    def _await_body(self) -> None:
        if not self._awaits_body:
            self._stop_read_timer()
            self._awaits_body, self._read_timer = True, self._loop.call_later(self._limits.body_timeout_s, self._abandon_body)

    def _respond_to(self, head: RequestHead, body: Buffer) -> None:
        if self._read_timer is not None:  # asked here, because most requests have none and a call would cost more
            self._stop_read_timer()
        self._awaits_body = False
        response = self._handler.answer_at_once(head, body)
        if response is not None:
            self._write(response)
            self._end_response()
            return
        task = begin_task(self._loop, self._respond(head, body))
        if task is not None:  # otherwise it is answered, and a task may be that of the next request
            self._responding = task

    async def _respond(self, head: RequestHead, body: Buffer) -> None:
        response = await self._handler.respond_to(head, body)
        if response.trace is None:
            self._write(response)
        else:
            started_ns = time.monotonic_ns()
            self._write(response)
            self._handler.end_trace(response.trace, started_ns)
        self._responding = None
        self._end_response()

    def _end_response(self) -> None:
        self._responded_s = self._loop.time()
        if self._buffer.filled:
            self._received = self._buffer.take_rest()
        if self._stopped is not None:
            self.close()
        elif self._received:
            self._continue()

    def _continue(self) -> None:
        if self._transport.is_closing() or self._is_paused or self._responding is not None:
            return
        self._transport.resume_reading()
        if self._received:
            self._process()
        elif self._buffer.filled:
            self._process_buffer()

    def _is_for_buffer(self, head: RequestHead) -> bool:
        return head.body_bytes > _MAX_SMALL_BYTES and self._handler.accepts(head)

    def _write(self, response: HttpResponse) -> None:
        if not self._transport.is_closing():
            self._transport.writelines(encode_response(response))

    def _abandon_body(self) -> None:
        self._write(body_timeout_response(self._limits.body_timeout_s))
        self._transport.close()

    def _check_idle(self) -> None:
        left_s = self._responded_s + self._limits.idle_timeout_s - self._loop.time()
        if self._responding is None and not self._has_bytes and left_s <= 0:
            self._transport.close()
        else:
            self._idle_timer = self._loop.call_later(left_s if left_s > 0 else self._limits.idle_timeout_s, self._check_idle)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

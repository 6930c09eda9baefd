"""The wire engine's HTTP/1.1 connection: prepared bytes out, httptools in, one reply per request.

The timed span includes only what finds the end of an answer: a parser, or, where the head is one that was parsed before, a comparison.
The received chunks are kept as they are; `parse_response` parses them again for the few answers that are checked.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any, cast

import httptools

from perfkit.errors import ProtocolError
from perfkit.transport.base import OkReply, Outcome, Reply, ReplyReceiver
from perfkit.transport.http.calls import HttpResponse
from perfkit.transport.options import BYTES_PER_CHUNK, MAX_HEAD_BYTES, MAX_HEADERS, SWITCHED_PROTOCOLS
from perfkit.transport.pool import ConnectionPool, PooledConnection
from perfkit.units import format_duration_ns

_WRITE_HIGH_WATER_BYTES = 1 << 20
# an event loop reads at most 256 KiB at once, so an answer in so many reads is below every limit of its size
_UNCHECKED_READS = 3
_CONTENT_LENGTH = re.compile(rb"\ncontent-length:[ \t]*0*(?P<bytes>[0-9]{1,20})", re.IGNORECASE)
# a head that differs in each answer should cost little; one with a date, which changes every second, is learned soon enough
_LEARN_EVERY = 8
_OK, _REJECTED = Outcome.OK, Outcome.REJECTED  # an enum's attribute lookup costs more than the rest of a reply


class _ResponseParser:
    """httptools callbacks that collect one final response and ignore interim (1xx) ones."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.response: HttpResponse | None = None
        self.header_count = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()  # a list of many small chunks would take far more memory than their bytes
        self._has_headers = False

    def on_message_begin(self) -> None:
        self._headers, self._body, self._has_headers = {}, bytearray(), False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.header_count += 1
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._has_headers = True

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        if self.response is None and status >= 200:
            self.response = HttpResponse(status, self._headers, bytes(self._body))

    def end(self) -> None:
        """Handles the end of the connection, which also ends a response without a length (RFC 9112, 6.3)."""
        has_length = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._has_headers and not has_length:
            self.on_message_complete()


def parse_response(chunks: list[bytes]) -> HttpResponse:
    """Parses the chunks of one response; raises ProtocolError if it is incomplete or not HTTP."""
    reader = _ResponseParser()
    try:
        for chunk in chunks:
            reader.parser.feed_data(chunk)
        reader.end()
    except httptools.HttpParserError as error:
        if reader.response is None:  # otherwise the error is in the bytes after the response
            raise ProtocolError(f"the answer is not HTTP/1.1: {error}") from None
    except httptools.HttpParserUpgrade:
        raise ProtocolError(SWITCHED_PROTOCOLS) from None
    finally:
        del reader.parser  # they refer to each other: see `connection_lost`
    if reader.response is None:
        raise ProtocolError("the answer ends before its body does")
    if reader.header_count > MAX_HEADERS:
        raise ProtocolError(f"the answer has {reader.header_count:,} headers, and at most {MAX_HEADERS:,} are accepted")
    return reader.response


def _final_head(data: bytes) -> bytes | None:
    """The head that follows the interim (1xx) ones; None if it is not complete."""
    first = 0
    while (last := data.find(b"\r\n\r\n", first)) >= 0:
        if data[first + 8 : first + 10] != b" 1":  # of HTTP/1.1 1xx
            return data[first : last + 4]
        first = last + 4
    return None


class HttpConnection(PooledConnection):
    """A keep-alive connection with at most one request at a time."""

    # a load may have ten thousand of them
    __slots__ = (
        "_buffers",
        "_checkpoint_bytes",
        "_chunk_bytes",
        "_chunks",
        "_has_answered",
        "_has_head",
        "_is_resent",
        "_known_bytes",
        "_known_head",
        "_known_head_place",
        "_now_ns",
        "_parsed_answers",
        "_parser",
        "_pool",
        "_received_ns",
        "_reply",
        "_started_ns",
        "_status",
        "_submitted_ns",
        "_timer",
        "_wire",
        "_write",
        "is_closing",
        "is_usable",
    )

    def __init__(self, pool: "ConnectionPool[Any]") -> None:
        self._pool = pool
        self._now_ns = pool.now_ns
        self._wire: asyncio.Transport | None = None
        self.is_usable = False
        self._parser = httptools.HttpResponseParser(self)
        self._reply: ReplyReceiver | None = None
        self._buffers: Sequence[bytes] = ()
        self._chunks: list[bytes] = []
        self._chunk_bytes = self._checkpoint_bytes = 0  # of an answer that takes many reads
        self._has_head = False
        self._status = 0  # of an answer that is complete, while the rest of its chunk is parsed
        self._known_head, self._known_head_place = b"", slice(0)
        self._known_bytes = -1  # of a whole answer with that head; until there is one, no answer has as many
        self._parsed_answers = 0
        self._submitted_ns = self._started_ns = self._received_ns = 0
        self._has_answered = self._is_resent = False
        self._timer: asyncio.TimerHandle | None = None

    def send(self, buffers: Sequence[bytes], reply: ReplyReceiver) -> None:
        self._reply = reply
        self._buffers = buffers
        if self._chunks:
            self._chunks = []
        self._is_resent = False
        if self._timer is None:
            self._set_timer(self._pool.timeout_ns)
        now_ns, write = self._now_ns, self._write  # by way of a local (docs/architecture.md)
        self._submitted_ns = self._started_ns = now_ns()
        if len(buffers) == 1:
            write(buffers[0])
        else:
            assert self._wire is not None
            self._wire.writelines(buffers)

    def send_queued(self, buffers: Sequence[bytes], reply: ReplyReceiver, submitted_ns: int, started_ns: int | None) -> None:
        self.send(buffers, reply)
        left_ns = submitted_ns + self._pool.timeout_ns - self._started_ns
        self._submitted_ns = submitted_ns
        if started_ns is not None:
            self._started_ns, self._is_resent = started_ns, True
        assert self._timer is not None
        self._timer.cancel()  # it may fire after this request's deadline
        self._set_timer(max(left_ns, 0))

    def close_when_idle(self) -> None:
        if self._reply is None:
            self.close()

    def abandon(self) -> None:
        self._fail(Outcome.UNFINISHED, "")

    def give_up(self, reply: ReplyReceiver) -> bool:
        if self._reply is not reply:
            return False
        self._pool.discard(self)
        self._fail(Outcome.UNFINISHED, "")
        return True

    def close(self) -> None:
        self.is_usable = False
        if self._timer is not None:
            self._timer.cancel()
        if self._wire is not None:
            self._wire.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = wire = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it
        self._write, self.is_closing = wire.write, wire.is_closing
        self.is_usable = True
        wire.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)

    def eof_received(self) -> None:
        """Asyncio's callback: the server closed its side, which may end an answer without a length; asyncio then closes ours."""
        self.is_usable = False
        if self._reply is None or not self._chunks:
            return
        self._received_ns = self._now_ns()
        try:
            response = parse_response(self._chunks)
        except ProtocolError:
            return  # `connection_lost` ends the request
        reply, self._reply = self._reply, None
        if not reply.done():
            reply.set_result(self._answered(response.status))

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire, self.is_usable = None, False
        if self._reply is not None and not self._chunks and self._has_answered and not self._is_resent:
            # the server closed an idle connection while the request was on its way, so it probably never read it
            reply, self._reply = self._reply, None
            self._pool.resend(self._buffers, reply, self._submitted_ns, self._started_ns)
        self._fail(Outcome.BROKEN, f"the connection was closed before the answer was complete{f': {exc}' if exc else ''}")
        self._pool.remove(self)
        # the parser refers to this connection: the two would keep the last answer until the next garbage collection
        del self._parser, self._write
        self._buffers, self._chunks = (), []

    def data_received(self, data: bytes) -> None:
        now_ns, receiver = self._now_ns, self._reply  # by way of a local (docs/architecture.md)
        received_ns = now_ns()  # before parsing, which is the client's time
        if receiver is None:
            self.close()  # unrequested bytes, which could be mistaken for the next answer
            return
        if len(data) == self._known_bytes and not self._chunks and data[self._known_head_place] == self._known_head:
            reply = OkReply()  # nearly all answers to small requests
            reply.outcome, reply.started_ns, reply.finished_ns = _OK, self._started_ns, received_ns
            reply.payload, reply.variant = [data], 0
        else:
            self._received_ns = received_ns
            parsed = self._parse(data)
            if parsed is None:
                return
            reply = parsed
        self._reply = None
        self._pool.release(self)  # before the receiver gets the reply: it may send the next request at once
        is_done = receiver.done
        if not is_done():
            receiver.set_result(reply)

    def _parse(self, data: bytes) -> Reply | None:
        """The reply to the request if these bytes complete its answer; None if not, also if the answer is broken, which ends the request."""
        self._chunks.append(data)
        error = ""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as parser_error:
            error = f"the answer is not HTTP/1.1: {parser_error}"
        except httptools.HttpParserUpgrade:
            error = SWITCHED_PROTOCOLS
        status, self._status = self._status, 0
        if status:  # only now: the same chunk may hold bytes after the answer
            if error:
                self.close()
            self._learn_head(status, data)
            return self._answered(status)
        if error:
            self._fail(Outcome.BROKEN, error)
        elif len(self._chunks) > _UNCHECKED_READS and self._reply is not None:
            self._check_size(len(data))
        return None

    def on_message_begin(self) -> None:
        """Httptools' callback: a response begins."""
        if self._status:
            self.close()  # a second response in the same chunk

    def on_message_complete(self) -> None:
        """Httptools' callback: a response is complete."""
        status = self._parser.get_status_code()
        if self._status or self._reply is None or status < 200:
            return  # an interim response, such as 100 Continue
        self._has_answered = True
        self._status = status
        if not self._parser.should_keep_alive():
            self.close()

    def _learn_head(self, status: int, data: bytes) -> None:
        """Remembers the head of an answer that came in one chunk: another one with this head and length need not be parsed."""
        self._parsed_answers += 1
        if self._parsed_answers % _LEARN_EVERY or status != 200 or len(self._chunks) > 1:
            return
        head = _final_head(data) or b""
        length = _CONTENT_LENGTH.search(head)
        is_whole = length is not None and len(head) + int(length["bytes"]) == len(data) and data.startswith(head)
        if is_whole and b"transfer-encoding" not in head.lower():
            self._known_head, self._known_head_place, self._known_bytes = head, slice(len(head)), len(data)

    def _check_size(self, added_bytes: int) -> None:
        """Ends the request if its answer, which takes many reads, is too large."""
        chunks = self._chunks
        if len(chunks) == _UNCHECKED_READS + 1:
            added_bytes, self._chunk_bytes, self._checkpoint_bytes, self._has_head = sum(map(len, chunks)), 0, MAX_HEAD_BYTES, False
        self._chunk_bytes += added_bytes + BYTES_PER_CHUNK
        if self._chunk_bytes <= self._checkpoint_bytes:
            return
        limit = self._pool.answer_limit
        if self._has_head:
            self._fail(Outcome.BROKEN, limit.too_long(), is_own_limit=True)
            return
        start = b"".join(chunks)[:MAX_HEAD_BYTES]
        head = _final_head(start)
        if head is None and len(start) == MAX_HEAD_BYTES:
            self._fail(Outcome.BROKEN, f"the answer's head is longer than {MAX_HEAD_BYTES:,} B")
        elif head is None:
            self._checkpoint_bytes = 2 * self._chunk_bytes
        elif (match := _CONTENT_LENGTH.search(head)) and int(match["bytes"]) > limit.max_bytes:
            self._fail(Outcome.BROKEN, limit.announced_too_long(int(match["bytes"])), is_own_limit=True)
        else:
            self._has_head, self._checkpoint_bytes = True, len(head) + limit.max_bytes

    def _answered(self, status: int) -> Reply:
        """The reply to the request whose answer is complete."""
        if status == 200:
            return Reply(_OK, self._started_ns, self._received_ns, self._chunks)
        return Reply(_REJECTED, self._started_ns, self._received_ns, self._chunks, status=status)

    def _fail(self, outcome: Outcome, error: str, *, is_own_limit: bool = False) -> None:
        """Ends the request and closes the connection: HTTP/1.1 cannot cancel a request."""
        reply, self._reply = self._reply, None
        if reply is not None and not reply.done():
            reply.set_result(self._failed(outcome, error, is_own_limit=is_own_limit))
        self.close()

    def _failed(self, outcome: Outcome, error: str, *, is_own_limit: bool) -> Reply:
        """The reply to the request that fails now."""
        return Reply(outcome, self._started_ns, self._now_ns(), None, error, is_own_limit=is_own_limit)

    def _set_timer(self, delay_ns: int) -> None:
        # one timer per connection, set again only when it fires, so that a request needs none of its own
        self._timer = self._pool.loop.call_later(delay_ns / 1e9, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._reply is None:
            return
        left_ns = self._submitted_ns + self._pool.timeout_ns - self._now_ns()
        if left_ns > 0:
            self._set_timer(left_ns)
        else:
            self._fail(Outcome.TIMED_OUT, f"no complete answer within {format_duration_ns(self._pool.timeout_ns)}")

"""The wire engine for HTTP/1.1: prepared bytes out, httptools in, one future a request.

Nothing is parsed or decoded in the timed span beyond finding the end of the answer: the received chunks are kept as
they came, and read again by `read_answer` for the few answers that are looked at.
"""

import asyncio
from collections.abc import Sequence
from typing import cast

import httptools

from perfkit.errors import ProtocolError
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.http.calls import Answer
from perfkit.transport.pool import ConnectionPool, PooledConnection
from perfkit.units import format_duration_ns

_WRITE_HIGH_WATER_BYTES = 1 << 20
_OK, _REJECTED = Outcome.OK, Outcome.REJECTED  # reading an enum's member costs more than the rest of a reply


class _AnswerReader:
    """The callbacks with which httptools reads a whole response, without what announces it or stands behind it."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.answer: Answer | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._is_head_whole = False

    def on_message_begin(self) -> None:
        self._headers, self._body, self._is_head_whole = {}, [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._is_head_whole = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        if self.answer is None and status >= 200:
            self.answer = Answer(status, self._headers, b"".join(self._body))

    def end(self) -> None:
        """Says that no more bytes come: they end an answer whose head names no other end (RFC 9112, 6.3)."""
        is_framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._is_head_whole and not is_framed:
            self.on_message_complete()


def read_answer(chunks: list[bytes]) -> Answer:
    """Reads the chunks of one response; raises ProtocolError where they are not a whole one."""
    reader = _AnswerReader()
    try:
        for chunk in chunks:
            reader.parser.feed_data(chunk)
    except httptools.HttpParserError as error:
        if reader.answer is None:  # bytes behind a whole answer are not its own
            raise ProtocolError(f"the answer is not HTTP/1.1: {error}") from None
    reader.end()
    if reader.answer is None:
        raise ProtocolError("the answer ends before its body does")
    return reader.answer


class Connection(PooledConnection):
    """One keep-alive connection with at most one request on it."""

    def __init__(self, owner: "ConnectionPool[Connection]") -> None:
        self._owner = owner
        self._now_ns = owner.now_ns
        self._wire: asyncio.Transport | None = None
        self._reply: asyncio.Future[Reply] | None = None
        self._chunks: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._buffers: Sequence[bytes] = ()
        self._asked_ns = self._started_ns = self._received_ns = 0
        self._has_answered = self._is_repeated = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Open, and free of a request."""
        return self._wire is not None and self._reply is None and not self._wire.is_closing()

    def send(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]") -> None:
        """Writes a request; `reply` is resolved when its answer is complete, it times out, or the connection is lost."""
        assert self._wire is not None
        self._reply = reply
        self._buffers = buffers
        self._chunks = []
        self._is_repeated = False
        if self._timer is None:
            self._watch(self._owner.timeout_ns)
        self._asked_ns = self._started_ns = self._now_ns()
        if len(buffers) == 1:
            self._wire.write(buffers[0])
        else:
            self._wire.writelines(buffers)

    def send_late(self, buffers: Sequence[bytes], reply: "asyncio.Future[Reply]", asked_ns: int, started_ns: int | None) -> None:
        """As `send`, for a request whose time has run since `asked_ns`; `started_ns` is when it was sent in vain, if it was."""
        self.send(buffers, reply)
        left_ns = asked_ns + self._owner.timeout_ns - self._started_ns
        self._asked_ns = asked_ns
        if started_ns is not None:
            self._started_ns, self._is_repeated = started_ns, True
        assert self._timer is not None
        self._timer.cancel()  # it may be set to later than this request's end
        self._watch(max(left_ns, 0))

    def abandon(self) -> None:
        """See `PooledConnection.abandon`."""
        self.fail(Outcome.UNFINISHED, "")

    def fail(self, outcome: Outcome, error: str) -> None:
        """Ends the request in flight, if any, and the connection with it: HTTP/1.1 cannot take a request back."""
        reply, self._reply = self._reply, None
        if reply is not None and not reply.done():
            reply.set_result(Reply(outcome, self._started_ns, self._now_ns(), None, error))
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        if self._timer is not None:
            self._timer.cancel()
        if self._wire is not None:
            self._wire.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's callback."""
        self._wire = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._wire.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)

    def eof_received(self) -> None:
        """Asyncio's callback: the server ends cleanly, which may be how it ends its answer. The connection closes behind it."""
        if self._reply is None or not self._chunks:
            return
        self._received_ns = self._now_ns()
        try:
            answer = read_answer(self._chunks)
        except ProtocolError:
            return  # `connection_lost` breaks the request
        self._resolve(answer.status)

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's callback."""
        self._wire = None
        if self._reply is not None and not self._chunks and self._has_answered and not self._is_repeated:
            # kept alive, and closed by the server as the request was on its way: nothing says that it was read
            reply, self._reply = self._reply, None
            self._owner.send_again(self._buffers, reply, self._asked_ns, self._started_ns)
        self.fail(Outcome.BROKEN, f"the connection was closed before the answer was complete{f': {exc}' if exc else ''}")
        self._owner.forget(self)

    def data_received(self, data: bytes) -> None:
        """Asyncio's callback."""
        self._received_ns = self._now_ns()  # reading them is our time, not the server's
        if self._reply is None:
            self.close()  # bytes nobody asked for: the next answer could not be told from them
            return
        self._chunks.append(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(Outcome.BROKEN, f"the answer is not HTTP/1.1: {error}")
            return
        if self._reply is None:  # only now, when it is known what stands behind the answer
            self._owner.give_back(self)

    def on_message_begin(self) -> None:
        """The callback of httptools: a response begins, also right behind the answer in the same bytes."""
        if self._reply is None:
            self.close()  # nobody asked for it

    def on_message_complete(self) -> None:
        """The callback of httptools: the answer is whole."""
        status = self._parser.get_status_code()
        if self._reply is None or status < 200:
            return  # 100 Continue and its like announce the answer
        self._has_answered = True
        self._resolve(status)
        if not self._parser.should_keep_alive():
            self.close()

    def _resolve(self, status: int) -> None:
        reply, self._reply = self._reply, None
        if reply is None or reply.done():
            return
        if status == 200:
            reply.set_result(Reply(_OK, self._started_ns, self._received_ns, self._chunks))
        else:
            reply.set_result(Reply(_REJECTED, self._started_ns, self._received_ns, self._chunks, status=status))

    def _watch(self, delay_ns: int) -> None:
        # one timer a connection, set again only when it fires: a request costs no timer of its own
        self._timer = self._owner.loop.call_later(delay_ns / 1e9, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._reply is None:
            return
        left_ns = self._asked_ns + self._owner.timeout_ns - self._now_ns()
        if left_ns > 0:
            self._watch(left_ns)
        else:
            self.fail(Outcome.TIMED_OUT, f"no complete answer within {format_duration_ns(self._owner.timeout_ns)}")

"""Calls: what methods get and raise, and how a stream's messages become a method's request, and its result the stream's end."""

import asyncio
import collections
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import http2
from perfkit.protocol.compression import BodyTooLargeError, decompress
from perfkit.protocol.grpc_call import MAX_MESSAGE_BYTES, PREFIX_BYTES, Status, quote_message
from perfkit.protocol.http2 import Headers
from perfkit.protocol.tensor import Buffer
from server_stub.begun_task import begin_task
from server_stub.grpc.http2_session import ServerSession
from server_stub.grpc.http2_stream import ServerStream
from server_stub.grpc.message_reader import Message

_NS_PER_S = 1e9
_MAX_WAITING = 2**16  # of the requests of a stream, whatever their size
MAX_INFLATED_BYTES = 2**26
"""Like that of compressed HTTP bodies."""
_MAX_TEXT_BYTES = 2000  # three times as much once quoted: clients accept 8 KiB of trailers


class StatusError(Exception):
    """A call that ends with a status other than OK."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text.encode(errors="replace")[:_MAX_TEXT_BYTES].decode(errors="ignore"))
        self.status = status


def status_error(error: ProtocolError) -> StatusError:
    """The status of a request that is refused."""
    if isinstance(error, BodyTooLargeError):
        return StatusError(Status.RESOURCE_EXHAUSTED, str(error))
    # the kinds are named as gRPC's statuses, but for one
    return StatusError(Status.UNIMPLEMENTED if error.kind is ErrorKind.UNSUPPORTED else Status[error.kind.name], str(error))


_DEADLINE_EXCEEDED = StatusError(Status.DEADLINE_EXCEEDED, "Deadline Exceeded")
# gRPC's statuscodes.md: what a server says of too few or too many messages
_CARDINALITY = StatusError(Status.UNIMPLEMENTED, "the method requires exactly one request message")
_RESPONSE_TOO_LARGE = StatusError(Status.RESOURCE_EXHAUSTED, "the response exceeds the 4 GiB that a gRPC message can have")
_TOO_MANY_MESSAGES = StatusError(Status.RESOURCE_EXHAUSTED, f"more than {_MAX_WAITING:,} requests of the stream wait")
_INCOMPLETE = StatusError(Status.INTERNAL, "the request ends before its message does")


class CallConnection(Protocol):
    """What a call needs of its connection."""

    session: ServerSession
    loop: asyncio.AbstractEventLoop
    max_message_bytes: int
    begun_calls: "list[Call]"
    """The calls with a time-out whose headers are among the bytes being read. The connection calls their `start_deadline` after these bytes."""

    def admit(self, stream: ServerStream) -> bool:
        """Counts a call that begins, or ends it: there are too many."""

    async def until_writable(self) -> None:
        """Waits until the client reads what is written."""


def error_headers(error: StatusError) -> Headers:
    """The headers of a response that has nothing else, or its trailers."""
    return [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-status", str(error.status.value)),
        ("grpc-message", quote_message(str(error))),
    ]


class Call:
    """One call. It is over when its stream is, which the connection tells by `close`."""

    def __init__(self, connection: CallConnection, stream: ServerStream) -> None:
        self._connection, self._session, self._stream = connection, connection.session, stream
        self._task: asyncio.Task[None] | None = None
        self._on_sent: Callable[[], None] | None = None
        self._is_closed = False
        self._deadline: asyncio.TimerHandle | None = None
        if stream.headers.timeout_ns is not None:
            connection.begun_calls.append(self)

    @property
    def metadata(self) -> Mapping[str, str]:
        """The request's headers that are not gRPC's own."""
        return self._stream.headers.metadata

    def on_sent(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once the response has been written, or the call has ended otherwise."""
        if self._is_closed:
            callback()
        else:
            self._on_sent = callback

    def start_deadline(self) -> None:
        """Let the call end once its time-out has passed, unless it is over."""
        timeout_ns = self._stream.headers.timeout_ns
        if timeout_ns is None or self._is_closed:
            return
        if timeout_ns:
            self._deadline = self._connection.loop.call_later(timeout_ns / _NS_PER_S, self._expire)
        else:
            self._expire()

    def fail(self, error: StatusError) -> None:
        """End the call, unless it is over."""
        if not self._is_closed:
            self._session.end(self._stream, error_headers(error))

    def _expire(self) -> None:
        if self._stream.unsent_bytes:  # its client does not take the response
            self._session.reset(self._stream, http2.CANCEL)
        else:
            self.fail(_DEADLINE_EXCEEDED)

    def close(self) -> None:
        """The stream is over: answered or reset."""
        self._is_closed = True
        if self._deadline is not None:
            self._deadline.cancel()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._on_sent is not None:
            self._on_sent()

    def _inflated(self, message: Message) -> Buffer:
        """A message as it was before compression; raises ProtocolError."""
        if not message.is_compressed:
            return message.data
        if (encoding := self._stream.headers.encoding) == "identity":
            raise ProtocolError("a message is compressed, but the header grpc-encoding is missing", ErrorKind.INTERNAL)
        return decompress(bytes(message.data), encoding, min(self._connection.max_message_bytes, MAX_INFLATED_BYTES))


class UnaryCall(Call):
    """A call with one request and one response."""

    def __init__(self, connection: CallConnection, stream: ServerStream, method: "UnaryMethod") -> None:
        super().__init__(connection, stream)
        self._method = method
        self._request: Message | None = None

    def receive(self, message: Message) -> None:
        """The request has arrived."""
        if self._request is not None:
            self.fail(_CARDINALITY)
        self._request = message

    def receive_end(self) -> None:
        """The client has sent everything."""
        if self._request is None:
            self.fail(_CARDINALITY if self._stream.reader.is_empty else _INCOMPLETE)
        elif not self._stream.reader.is_empty:
            self.fail(_INCOMPLETE)
        elif self._stream.headers.timeout_ns is not None and self._is_late():
            self.fail(_DEADLINE_EXCEEDED)
        elif self._connection.admit(self._stream):
            self._task = begin_task(self._connection.loop, self._respond(self._request))

    def _is_late(self) -> bool:
        """Whether the call's time-out has passed, by the clock of the event loop, which stands still while bytes are read."""
        if self._deadline is None:  # it began with these bytes
            return self._stream.headers.timeout_ns == 0
        return self._deadline.when() <= self._connection.loop.time()

    async def _respond(self, request: Message) -> None:
        self._request = None  # the method alone keeps its memory
        answer: Answer
        try:
            answer = await self._method(self._inflated(request), self)
        except StatusError as error:
            answer = error
        except ProtocolError as error:
            answer = status_error(error)
        self._task = None  # it ends by itself
        self._finish(answer)

    def answer(self, answer: "Answer") -> None:
        """The request has arrived, and an `AtOnceMethod` has answered it."""
        if self._connection.admit(self._stream):
            self._finish(answer)

    def _finish(self, answer: "Answer") -> None:
        """End the call with its answer, unless it is over."""
        if isinstance(answer, StatusError):
            self.fail(answer)
        elif self._is_closed:
            return
        elif sum(map(len, answer)) > MAX_MESSAGE_BYTES:
            self.fail(_RESPONSE_TOO_LARGE)
        else:
            self._session.respond(self._stream, answer)


class StreamingCall(Call):
    """A call with streams of requests and of responses. Its method starts at once."""

    def __init__(self, connection: CallConnection, stream: ServerStream, method: "StreamMethod") -> None:
        super().__init__(connection, stream)
        self._messages: collections.deque[Message] = collections.deque()
        self._is_ended = False
        self._arrival: asyncio.Future[None] | None = None
        self._written: asyncio.Future[None] | None = None
        self._task = connection.loop.create_task(self._serve(method))

    def receive(self, message: Message) -> None:
        """The next request has arrived."""
        if len(self._messages) == _MAX_WAITING:
            self.fail(_TOO_MANY_MESSAGES)
        self._messages.append(message)
        self._stream.queued_bytes += PREFIX_BYTES + len(message.data)  # empty messages take memory, too
        _wake(self._arrival)

    def receive_end(self) -> None:
        """The client has sent everything."""
        if not self._stream.reader.is_empty:
            self.fail(_INCOMPLETE)
        self._is_ended = True
        _wake(self._arrival)

    def resume(self) -> None:
        """What could not be written at once is written."""
        _wake(self._written)

    async def write(self, message: Sequence[Buffer]) -> None:
        """Send one message of the stream of responses, given in pieces; waits while the client does not read."""
        if not self._is_closed and not self._session.send(self._stream, message):
            self._written = self._connection.loop.create_future()
            await self._written
        await self._connection.until_writable()

    async def _requests(self) -> AsyncIterator[Buffer]:
        while True:
            if self._messages:
                message = self._messages.popleft()
                self._session.take(self._stream, PREFIX_BYTES + len(message.data))
                yield self._inflated(message)
            elif self._is_ended:
                return
            else:
                self._arrival = self._connection.loop.create_future()
                await self._arrival

    async def _serve(self, method: "StreamMethod") -> None:
        try:
            await method(self._requests(), self)
        except StatusError as error:
            self._task = None  # it ends by itself
            self.fail(error)
        else:
            self._task = None
            if not self._is_closed:
                self._session.end(self._stream)


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


Answer: TypeAlias = Sequence[Buffer] | StatusError
"""The pieces of a response, or why there is none."""
UnaryMethod: TypeAlias = Callable[[Buffer, Call], Awaitable[Sequence[Buffer]]]
"""Returns the pieces of the response. Raises StatusError."""
AtOnceMethod: TypeAlias = Callable[[bytes], Answer | None]
"""Answers a message as the unary method of the same path would, without waiting; None if it leaves the message to that one."""
StreamMethod: TypeAlias = Callable[[AsyncIterator[Buffer], StreamingCall], Awaitable[None]]
"""Takes a stream of requests and writes responses. Raises StatusError."""


class Methods(NamedTuple):
    """The methods of all services by their paths."""

    unary: Mapping[str, UnaryMethod]
    at_once: Mapping[str, AtOnceMethod]
    streaming: Mapping[str, StreamMethod]

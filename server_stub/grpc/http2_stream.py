"""One stream of an HTTP/2 connection, as the server sees it: its request's headers, its state, and what its owner is told of it."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from perfkit.protocol.grpc_call import parse_timeout
from perfkit.protocol.http2 import Headers
from perfkit.protocol.tensor import Buffer
from server_stub.grpc.message_reader import MessageReader

_CONTENT_TYPE = "application/grpc"


@dataclasses.dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The parsed headers of a request. They are shared by requests whose headers are equal."""

    path: str
    timeout_ns: int | None
    encoding: str
    """The encoding of the compressed messages."""
    metadata: Mapping[str, str]
    http_status: int
    """The status of the response: 200, or another for a request that is not a gRPC call."""


def parse_request_headers(headers: Headers) -> RequestHeaders:
    """Parse a request's headers, or its trailers; accepts whatever a client sends."""
    values = dict(headers)
    content_type = values.get("content-type", "")
    http_status = 200
    if ":path" not in values or any(name != name.lower() for name in values):
        http_status = 400
    elif values.get(":method") != "POST":
        http_status = 405
    elif not content_type.startswith(_CONTENT_TYPE) or content_type[len(_CONTENT_TYPE) :][:1] not in ("", "+", ";"):
        http_status = 415
    metadata = {name: value for name, value in values.items() if not name.startswith((":", "grpc-"))}
    timeout = values.get("grpc-timeout")
    return RequestHeaders(
        path=values.get(":path", ""),
        timeout_ns=None if timeout is None else parse_timeout(timeout),
        encoding=values.get("grpc-encoding", "identity"),
        metadata=metadata,
        http_status=http_status,
    )


class ServerStream:
    """A call's stream: its messages, its windows, and what is left to send."""

    __slots__ = (
        "call", "ends_with", "has_sent_headers", "headers", "id", "is_admitted", "is_client_done", "queued_bytes", "reader", "receive_window_bytes",
        "send_window_bytes", "unsent", "unsent_bytes",
    )  # fmt: skip

    def __init__(
        self, stream_id: int, headers: RequestHeaders, reader: MessageReader, receive_window_bytes: int, send_window_bytes: int
    ) -> None:
        self.id, self.headers, self.reader = stream_id, headers, reader
        self.receive_window_bytes, self.send_window_bytes = receive_window_bytes, send_window_bytes
        self.call: Any = None
        """What `SessionListener.on_headers` sets, unless it ends the stream: it gets each message by `receive` and the client's end by `receive_end`, or
        in place of both the answer of `SessionListener.answer_at_once` by `answer`; and `resume` once data that had to wait has been sent."""
        self.is_admitted = False
        """For the session's owner: whether it is one of those that are limited."""
        self.is_client_done = self.has_sent_headers = False
        self.queued_bytes = 0
        """The bytes of complete messages that nobody has taken; the client's window is not renewed for them."""
        self.unsent: collections.deque[memoryview] = collections.deque()
        self.unsent_bytes = 0
        self.ends_with: bytes | None = None
        """The trailers' header block, to send after the unsent data."""

    def add_unsent(self, buffers: Sequence[Buffer]) -> None:
        """Data to send."""
        for buffer in buffers:
            if length := len(buffer):
                self.unsent.append(memoryview(buffer))
                self.unsent_bytes += length

    def take_unsent(self, byte_count: int, buffers: list[Buffer]) -> None:
        """Moves the next `byte_count` bytes to `buffers`."""
        self.unsent_bytes -= byte_count
        unsent = self.unsent
        while byte_count:
            first = unsent[0]
            if len(first) > byte_count:
                buffers.append(first[:byte_count])
                unsent[0] = first[byte_count:]
                return
            buffers.append(unsent.popleft())
            byte_count -= len(first)


class SessionListener(Protocol):
    """The owner of a session. Each stream begins with `on_headers` and ends with `on_closed`; in between its `call` gets its messages.

    A call that has arrived whole may be answered by `answer_at_once`, without a stream unless its answer has to wait.
    """

    def on_headers(self, stream: ServerStream) -> None:
        """A client opens a stream; the session may be told to end it at once."""

    def answer_at_once(self, headers: RequestHeaders, data: Buffer, first: int, stop: int) -> Sequence[Buffer] | Exception | None:
        """The answer to a call whose only message is `data[first:stop]`: the pieces of its response, or why it fails.

        None for a call that has to take the usual way, of which nothing has been done. If an answer has to wait, or is a failure, `on_headers` follows,
        and the `call` that it sets gets the answer.
        """

    def on_waiting(self) -> None:
        """Data waits for the client to open its windows."""

    def on_message_too_large(self, stream: ServerStream, text: str) -> None:
        """A message exceeds the limit: the call is to be ended."""

    def on_closed(self, stream: ServerStream) -> None:
        """The stream is over: completely answered, reset, or lost with the connection."""

    def now_ns(self) -> int:
        """The time, for limits per second."""

"""What the methods of the service and the gRPC engines agree on: messages in, messages out, and statuses of failures."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.compression import BodyTooLargeError
from perfkit.protocol.grpc_call import Status
from perfkit.protocol.tensor import Buffer

MAX_INFLATED_BYTES = 2**26
"""Like that of compressed HTTP bodies."""
_MIN_STREAMS = 100
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


def too_many_calls(max_calls: int) -> StatusError:
    """The status of a call beyond the limit."""
    return StatusError(Status.RESOURCE_EXHAUSTED, f"the server has reached its limit of {max_calls} calls")


def max_streams(max_calls: int) -> int:
    """How many streams a connection may have open: at least `max_calls`, so that a call beyond the limit gets a status and is not reset."""
    return max(_MIN_STREAMS, max_calls)


class Call(Protocol):
    """One call, as its method sees it."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The request's headers that are not gRPC's own."""

    def on_sent(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once the response has been written, or the call has ended otherwise."""

    async def write(self, message: Sequence[Buffer]) -> None:
        """Send one message of a stream of responses, given in pieces; waits while the client does not read."""


UnaryMethod: TypeAlias = Callable[[Buffer, Call], Awaitable[Sequence[Buffer]]]
"""Returns the pieces of the response. Raises StatusError."""
StreamMethod: TypeAlias = Callable[[AsyncIterator[Buffer], Call], Awaitable[None]]
"""Takes a stream of requests and writes responses. Raises StatusError."""


class Methods(NamedTuple):
    """The methods of all services by their paths."""

    unary: Mapping[str, UnaryMethod]
    streaming: Mapping[str, StreamMethod]

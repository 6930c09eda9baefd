"""HTTP calls and their responses, and what both engines make of an exchange."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from perfkit.errors import ProtocolError, TargetError
from perfkit.protocol.compression import compress, decompress
from perfkit.protocol.tensor import Buffer
from perfkit.target.address import Address
from perfkit.transport.base import OneAddress, Outcome, Prepared, Reply, StreamedAnswer

COMPARED_BYTES = 2000
"""Error bodies whose first bytes are equal have the same message, of which 300 characters are shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class HttpCall:
    """A call: the path below the target's URL, headers besides the target's own, and the body in pieces."""

    method: str
    path: str
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: Sequence[Buffer] = ()

    def compressed(self, encoding: str) -> "HttpCall":
        """The same call with a compressed body, which asks for a compressed answer; unchanged if `encoding` is none."""
        if encoding == "none":
            return self
        headers = {**self.headers, "Content-Encoding": encoding, "Accept-Encoding": encoding}
        return dataclasses.replace(self, headers=headers, body=[compress(self.body, encoding)])


@dataclasses.dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def decompressed(self, limit_bytes: int) -> bytes:
        """The body, decompressed; raises ProtocolError if it is invalid, or longer than the limit."""
        return decompress(self.body, self.headers.get("content-encoding", ""), limit_bytes)


def streamed_response(answer: StreamedAnswer) -> HttpResponse:
    """The first event of a stream in place of the response that it is part of."""
    return HttpResponse(200, {}, bytes(answer.first))


class HttpApi(NamedTuple):
    """What a transport must know of the API."""

    opening_path: str
    """A path that can be asked for at any time, to open a connection."""
    read_event_error: Callable[[bytes], str]
    """The message of a server-sent event that is an error; empty for a response. Raises ProtocolError for what is neither."""


class HttpTransport(OneAddress, abc.ABC):
    """The part of an HTTP transport to one address that is the same for both engines."""

    def __init__(self, address: Address) -> None:
        self.address = address

    @abc.abstractmethod
    def prepare(self, call: HttpCall) -> Prepared:
        """The bytes of a call; does no I/O."""

    @abc.abstractmethod
    def answer(self, reply: Reply) -> HttpResponse:
        """The response that a reply carries, also that of a rejection; raises ProtocolError if there is none or it is malformed."""

    @abc.abstractmethod
    def received(self, reply: Reply) -> bytes:
        """See `Transport`."""

    @abc.abstractmethod
    async def _exchange(self, prepared: Prepared) -> Reply:
        """The reply to a call that is not part of the load."""

    async def exchange(self, call: HttpCall) -> HttpResponse:
        """Makes a call that is not part of the load; raises TargetError if there is no response."""
        reply = await self._exchange(self.prepare(call))
        if reply.payload is None:
            message = reply.error if reply.outcome is Outcome.CONNECT_FAILED else f"{self.address}: {reply.error}"
            raise TargetError(message, may_pass=reply.outcome in (Outcome.CONNECT_FAILED, Outcome.BROKEN))
        try:
            return self.answer(reply)
        except ProtocolError as error:
            raise TargetError(f"{self.address}: {error}") from None

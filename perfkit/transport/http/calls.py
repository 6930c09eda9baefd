"""HTTP calls and their responses, and what both engines make of an exchange."""

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from perfkit.digits import whole_number
from perfkit.errors import ProtocolError, TargetError
from perfkit.protocol.compression import ACCEPTED, compress
from perfkit.protocol.tensor import Buffer
from perfkit.target.address import Address
from perfkit.transport.base import OneAddress, Outcome, Prepared, Reply
from perfkit.transport.options import MAX_DESCRIPTION_BYTES, inflate
from perfkit.transport.streamed_answer import StreamedAnswer
from perfkit.units import NS_PER_S

_SHOWN_CHARACTERS = 50
_LONGEST_PAUSE_S = 24 * 3600
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
        """The body, decompressed; raises ProtocolError if it is invalid, compressed in another way than known, or longer than the limit.

        A server may compress what nobody asked it to (RFC 9110, 12.5.3).
        """
        encoding = self.headers.get("content-encoding", "")
        return inflate(self.body, known_encoding(encoding), limit_bytes)


def streamed_response(answer: StreamedAnswer) -> HttpResponse:
    """The first event of a stream in place of the response that it is part of."""
    return HttpResponse(200, {}, bytes(answer.first))


def known_encoding(encoding: str) -> str:
    """The name that `decompress` knows of a Content-Encoding; raises ProtocolError if there is none."""
    names = [name for part in encoding.lower().split(",") if (name := part.strip().removeprefix("x-")) not in ("", "identity")]
    if names and (len(names) > 1 or names[0] not in ACCEPTED):
        raise ProtocolError(
            f"the answer is compressed as {encoding[:_SHOWN_CHARACTERS]!r}; perfkit reads {' and '.join(ACCEPTED)}, and asks for no other"
        )
    return names[0] if names else ""


class HttpApi(NamedTuple):
    """What a transport must know of the API."""

    opening_path: str
    """A path that can be asked for at any time, to open a connection."""
    new_answer: "Callable[[], EventAnswer]"
    """An answer that takes the events of one stream."""


class EventAnswer(StreamedAnswer, abc.ABC):
    """The answer to a request whose stream is one of server-sent events; what an event says is the API's."""

    __slots__ = ()

    @abc.abstractmethod
    def take(self, data: bytes, at_ns: int) -> None:
        """Takes the data of an event: a response, or an error, or neither."""

    def end(self, *, is_done: bool) -> None:
        """Takes the end of the stream, and whether `[DONE]` was in it. Without any event, only the model tells whether that is right."""
        self.is_final = True


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

    def retry_after_ns(self, reply: Reply) -> int | None:
        """The time in the header `Retry-After` if it is given in seconds, -1 for more than a day; a date is ignored, since it is of another machine's clock."""
        if reply.outcome is not Outcome.REJECTED or reply.payload is None or isinstance(reply.payload, StreamedAnswer):
            return None
        try:
            text = self.answer(reply).headers.get("retry-after", "").strip()
        except ProtocolError:
            return None
        if not text.isascii() or not text.isdigit():
            return None
        seconds = whole_number(text, _LONGEST_PAUSE_S)
        return -1 if seconds is None else seconds * NS_PER_S

    @abc.abstractmethod
    async def _exchange(self, prepared: Prepared) -> Reply:
        """The reply to a call that is not part of the load."""

    async def exchange(self, call: HttpCall, limit_bytes: int = MAX_DESCRIPTION_BYTES) -> HttpResponse:
        """Makes a call that is not part of the load; the response's body is decompressed, to at most `limit_bytes`.

        Raises TargetError if there is no response, or if that of a success cannot be decompressed: some servers declare errors to be
        compressed that are not.
        """
        reply = await self._exchange(self.prepare(call))
        if reply.payload is None:
            message = reply.error if reply.outcome is Outcome.CONNECT_FAILED else f"{self.address}: {reply.error}"
            raise TargetError(message, may_pass=reply.outcome in (Outcome.CONNECT_FAILED, Outcome.BROKEN))
        try:
            response = self.answer(reply)
            if response.status == 200:
                return dataclasses.replace(response, body=response.decompressed(limit_bytes))
        except ProtocolError as error:
            raise TargetError(f"{self.address}: {error}") from None
        with contextlib.suppress(ProtocolError):
            response = dataclasses.replace(response, body=response.decompressed(limit_bytes))
        return response

"""The answer to a request that is a stream of responses, as they come, and what a transport must know of such messages."""

import array
from collections.abc import Callable
from typing import Any, NamedTuple

from perfkit.transport.base import Outcome, Reply


class StreamedResponse(NamedTuple):
    """One message of a stream."""

    id: str
    error: str
    is_response: bool
    """False for an error, and for Triton's final response without outputs, which only says that no more follow."""
    is_final: bool | None
    """Whether no more messages follow for the request; None if the server does not say so."""
    model: str = ""
    """The model that answers; empty if the message does not say so."""


class StreamedMessages(NamedTuple):
    """What a transport must know of the messages of streams that carry many requests."""

    id_field: Callable[[str], bytes]
    """The beginning of a request's message, with its id."""
    read: Callable[[bytes, int], StreamedResponse]
    """What a message says; its second argument limits the size of what is decoded. Raises ProtocolError."""


WITHOUT_RESPONSE = "the stream ended without a response, and without saying that there is none"


class StreamedAnswer:
    """The responses to a request so far; the first one is kept to be checked."""

    __slots__ = ("error", "fault", "first", "is_final", "largest_bytes", "messages", "model", "responses_ns")

    def __init__(self, *, keeps_messages: bool = False) -> None:
        self.responses_ns = array.array("q")  # a stream may have a million responses, and a list of them would take five times the memory
        self.first: Any = None
        """The first response, in the transport's own form."""
        self.largest_bytes = 0
        self.error = ""
        """The message of the first error that came in place of a response."""
        self.fault = ""
        """Why the first response that cannot be one is none."""
        self.is_final = False
        """Whether the server said that no more responses follow: only then a request may have none."""
        self.model = ""
        """The model that the responses name; empty if they name none."""
        self.messages: list[tuple[int, bytes]] | None = [] if keeps_messages else None
        """All messages without an error, that of an empty final response included, and when they came; None if they are not kept."""

    def keep(self, message: bytes, at_ns: int) -> None:
        """Takes a message as it came, if messages are kept."""
        if self.messages is not None:
            self.messages.append((at_ns, message))

    def add(self, response: Any, size_bytes: int, at_ns: int, model: str = "") -> None:
        """Takes a response, and the model that it names."""
        if self.first is None:
            self.first = response
        if model and model != self.model:
            if self.model:
                self.fault = self.fault or f"the stream has responses of the models '{self.model}' and '{model}'"
            self.model = self.model or model
        self.largest_bytes = max(self.largest_bytes, size_bytes)
        self.responses_ns.append(at_ns)

    def complete(self, started_ns: int, ended_ns: int, error_status: str) -> Reply:
        """The reply to a request whose responses are complete at `ended_ns`; `error_status` is that of one with an error."""
        if self.error:
            return self.failed(Outcome.REJECTED, started_ns, ended_ns, self.error, error_status)
        if fault := self.fault or ("" if self.responses_ns or self.is_final else WITHOUT_RESPONSE):
            return self.failed(Outcome.INVALID_OUTPUT, started_ns, ended_ns, fault)
        finished_ns = self.responses_ns[-1] if self.responses_ns else ended_ns
        payload = self if self.responses_ns else None
        return Reply(Outcome.OK, started_ns, max(finished_ns, started_ns), payload, responses_ns=self.responses_ns)

    def failed(
        self, outcome: Outcome, started_ns: int, ended_ns: int, error: str, status: str | int = "", *, is_own_limit: bool = False
    ) -> Reply:
        """The reply to a request that failed after these responses."""
        finished_ns, responses_ns = max(ended_ns, started_ns), self.responses_ns
        return Reply(outcome, started_ns, finished_ns, None, error, status, responses_ns=responses_ns, is_own_limit=is_own_limit)

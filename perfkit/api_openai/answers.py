"""Answers: the events of a stream, as far as they are read while load is sent, and whole ones."""

import json
import re
from collections.abc import Mapping
from typing import Any

from perfkit.api_openai.token_counts import find_usage, read_usage, streamed_tokens
from perfkit.errors import ProtocolError
from perfkit.override import override
from perfkit.protocol.decoded_size import check_json_values
from perfkit.protocol.message import InferResponse, TokenCounts
from perfkit.protocol.rest_json import load_document
from perfkit.text import page_words
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.http.calls import EventAnswer

_TEXTS = ("content", "reasoning_content", "reasoning", "text", "refusal")
"""Where an event may have a piece of the answer's text. Reasoning is part of it: the user waits for the first sign of an answer."""
_CALLS = ("tool_calls", "function_call", "audio")
_HAS_TEXT = re.compile(rb'"(?:content|reasoning_content|reasoning|text|refusal)"[ \t]*:[ \t]*"(?!")')
_IS_FINISHED = re.compile(rb'"finish_reason"[ \t]*:[ \t]*"')
_ERROR, _EMPTY = b'"error"', (b'"', b"")
_WITH_END = ("stop", "tool_calls", "function_call")
"""Reasons of a finish after which a token of its own may have ended the answer."""
MOST_EVENTS = 1 << 22
"""The most events of a stream; a longer stream is refused, since each event takes memory until the stream ends."""
CUT_OFF = "the stream ended without [DONE], a finish_reason or usage: it may be cut off"


class EventsAnswer(EventAnswer):
    """A stream of chunks. A response is an event with content: text, reasoning, or a part of a call of a tool.

    An event is parsed only where its bytes do not tell at once that it has text; the newest usage is kept as bytes, until the answer is recorded.
    """

    __slots__ = ("_events_before_end", "_first_usage", "_has_end", "_is_finished", "_last", "_last_usage", "_place", "_sign", "_usage")

    def __init__(self) -> None:
        super().__init__()
        self._last = self._usage = self._first_usage = self._last_usage = b""
        self._has_end = False  # whether an event without content ends the text, as a token of its own does
        self._is_finished = False  # whether an event without content had a finish_reason
        self._events_before_end = -1  # those with content before the last event that has a usage alone
        self._sign, self._place = b"\xff", 0  # what no JSON begins with

    @override
    def take(self, data: bytes, at_ns: int) -> None:
        usage = find_usage(data)
        if usage:
            self._usage = usage
        if self.first is None or not self._has_text(data) or _ERROR in data or not (data[0] == 123 and data[-1] == 125):  # in braces
            if not self._reads_content(data, has_usage=bool(usage)):
                return
            if self.first is None:
                self._first_usage = usage
        self._last, self._last_usage = data, usage
        if len(self.responses_ns) >= MOST_EVENTS:
            self.fault = self.fault or f"the stream has more than {MOST_EVENTS:,} events with content"
            return
        self.add(data, len(data), at_ns)

    @override
    def end(self, *, is_done: bool) -> None:
        super().end(is_done=is_done)
        if not (is_done or self._is_finished or self._events_before_end == len(self.responses_ns) or _IS_FINISHED.search(self._last)):
            self.fault = self.fault or CUT_OFF

    @override
    def complete(self, started_ns: int, ended_ns: int, error_status: str) -> Reply:
        reply = super().complete(started_ns, ended_ns, error_status)
        if reply.outcome is Outcome.OK and reply.payload is None:
            reply.tokens = self.tokens  # without content there is no answer that could be asked for them later
        return reply

    @property
    def tokens(self) -> TokenCounts | None:
        """The tokens that the stream reports; None if it reports none."""
        whole, first, last = map(read_usage, (self._usage, self._first_usage, self._last_usage))
        return streamed_tokens(whole, first, last, len(self.responses_ns), has_end=self._has_end)

    def _has_text(self, data: bytes) -> bool:
        """Whether the bytes show that an event has a text, by default at the same place as the event before."""
        if data.startswith(self._sign, self._place) and data[(end := self._place + len(self._sign)) : end + 1] not in _EMPTY:
            return True
        if (found := _HAS_TEXT.search(data)) is None:
            return False
        self._sign, self._place = found[0], found.start()
        return True

    def _reads_content(self, data: bytes, *, has_usage: bool) -> bool:
        """Whether an event has content; takes its error or its fault, or that it ends the answer."""
        try:
            check_json_values(data, 0)
            document = load_document(data, "event")
        except ProtocolError as fault:
            self.fault = self.fault or str(fault)
            return False
        if error := error_message(document):
            self.error = self.error or error
            return False
        choices = document.get("choices")
        if has_usage and not choices:
            self._events_before_end = len(self.responses_ns)
        if not isinstance(choices, list):
            return False
        if any(map(_has_content, choices)):
            return True
        reasons = [reason for one in choices if isinstance(one, dict) and isinstance(reason := one.get("finish_reason"), str) and reason]
        self._is_finished |= bool(reasons)
        self._has_end |= any(reason in _WITH_END for reason in reasons)
        return False


def _has_content(choice: object) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    found = delta if isinstance(delta, dict) else choice
    return any(isinstance(found.get(name), str | list) and found[name] for name in _TEXTS) or any(found.get(name) for name in _CALLS)


def error_message(document: Mapping[str, Any]) -> str:
    """The message of a document that is an error, or has one; empty for any other."""
    error: object = document if document.get("object") == "error" else document.get("error")
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        error = error["message"]
    if not error and "choices" not in document:
        error = document.get("detail")  # FastAPI's
    return error if isinstance(error, str) else json.dumps(error) if error else ""


def error_words(body: bytes) -> str:
    """What a body says that refuses a request: its error, the words of a page, or the whole text."""
    text = body.decode(errors="replace").strip()
    if text.startswith("<"):
        return page_words(text)
    try:
        return error_message(load_document(body, "answer")) or text
    except ProtocolError:
        return text


def decode_answer(body: bytes, limit_bytes: int) -> InferResponse:
    """A whole answer, or an event of a stream, as a response without outputs; raises ProtocolError if it is none, or an error."""
    check_json_values(body, limit_bytes)
    document = load_document(body, "answer")
    if error := error_message(document):
        raise ProtocolError(f"it holds an error: {error}")
    if not any(isinstance(document.get(name), list) for name in ("choices", "data")):
        raise ProtocolError("it holds neither choices nor embeddings")
    model = document.get("model")
    return InferResponse(model if isinstance(model, str) else "", "", ())

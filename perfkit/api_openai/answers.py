"""Answers: the events of a stream, as far as they are read while load is sent, and whole ones."""

import json
import re
from collections.abc import Mapping
from typing import Any

from perfkit.api_openai.token_counts import USAGE, read_usage, streamed_tokens
from perfkit.errors import ProtocolError
from perfkit.override import override
from perfkit.protocol.decoded_size import check_json_values
from perfkit.protocol.message import InferResponse, TokenCounts
from perfkit.protocol.rest_json import load_document
from perfkit.text import page_words
from perfkit.transport.http.calls import EventAnswer

_TEXTS = ("content", "reasoning_content", "reasoning", "text", "refusal")
"""Where an event may have a piece of the answer's text. Reasoning is part of it: the user waits for the first sign of an answer."""
_CALLS = ("tool_calls", "function_call", "audio")
_HAS_TEXT = re.compile(rb'"(?:content|reasoning_content|reasoning|text|refusal)"[ \t]*:[ \t]*"(?!")')
_IS_FINISHED = re.compile(rb'"finish_reason"[ \t]*:[ \t]*"')
_ERROR, _USAGE = b'"error"', b'"usage"'
MOST_EVENTS = 1 << 22
"""Those of a stream that are timed; one with more is refused, since each takes memory until the stream ends."""
CUT_OFF = "the stream ended without [DONE], a finish_reason or usage: it may be cut off"


class EventsAnswer(EventAnswer):
    """A stream of chunks. A response is an event with content: text, reasoning, or a part of a call of a tool.

    An event is parsed only where its bytes do not tell at once that it has text; the newest usage is kept as bytes, until the answer is recorded.
    """

    __slots__ = ("_first_usage", "_last", "_usage")

    def __init__(self) -> None:
        super().__init__()
        self._last = self._usage = self._first_usage = b""

    @override
    def take(self, data: bytes, at_ns: int) -> None:
        self._last = data
        has_usage = _USAGE in data and USAGE.search(data) is not None
        if has_usage:
            self._usage = data
        if self.first is None or _HAS_TEXT.search(data) is None or _ERROR in data or not (data[0] == 123 and data[-1] == 125):  # in braces
            if not self._reads_content(data):
                return
            if self.first is None and has_usage:
                self._first_usage = data
        if len(self.responses_ns) >= MOST_EVENTS:
            self.fault = self.fault or f"the stream has more than {MOST_EVENTS:,} events with content"
            return
        self.add(data, len(data), at_ns)

    @override
    def end(self, *, is_done: bool) -> None:
        super().end(is_done=is_done)
        if not (is_done or self._usage == self._last != b"" or _IS_FINISHED.search(self._last)):
            self.fault = self.fault or CUT_OFF

    @property
    def tokens(self) -> TokenCounts | None:
        """The tokens that the stream reports; None if it reports none."""
        return streamed_tokens(_usage_in(self._usage), _usage_in(self._first_usage), len(self.responses_ns))

    def _reads_content(self, data: bytes) -> bool:
        """Whether an event has content; takes its error or its fault."""
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
        return any(map(_has_content, choices)) if isinstance(choices, list) else False


def _has_content(choice: object) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    found = delta if isinstance(delta, dict) else choice
    return any(isinstance(found.get(name), str) and found[name] for name in _TEXTS) or any(found.get(name) for name in _CALLS)


def _usage_in(data: bytes) -> TokenCounts | None:
    """The usage of an event; None without an event, or a usage that can be."""
    if not data:
        return None
    try:
        return read_usage(load_document(data, "event"))
    except ProtocolError:
        return None


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


def answer_tokens(body: bytes) -> TokenCounts | None:
    """The tokens that a whole answer reports; None if it reports none."""
    return _usage_in(body)

"""Answers of the OpenAI API as JSON and as server-sent events, without times.

Every output token is a word of the text, so that whoever counts words counts tokens.
"""

import base64
import dataclasses
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from server_stub.openai.requests import EmbeddingsRequest, TextRequest
from server_stub.synthetic.service_model import TextForm

STREAM_FAILURE = "the stream ends here, as its service model specifies"
DONE = b"data: [DONE]\n\n"


Part = Literal["reasoning", "text", "arguments"]


class Piece(NamedTuple):
    """The part of an answer that one event carries."""

    part: Part
    """What it continues; `arguments` are those of a tool call."""
    text: str
    tokens: int
    """The number of tokens of the answer up to the end of this piece."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request for a text. `created_s` is Unix time."""

    request: TextRequest
    form: TextForm
    model: str
    id: str
    created_s: int

    @property
    def tokens(self) -> int:
        """The number of output tokens."""
        return self.form.tokens if self.request.max_tokens is None else self.request.max_tokens

    @property
    def finish_reason(self) -> str:
        """`length` for a text that ends where the request's limit is."""
        if self._content == "arguments":
            return "tool_calls"
        return "stop" if self.request.max_tokens is None else "length"

    def pieces(self) -> Iterator[Piece]:
        """What each event carries."""
        parts: tuple[tuple[Part, int, int], ...] = (("reasoning", 0, self._reasoning), (self._content, self._reasoning, self.tokens))
        for part, start, stop in parts:
            for first in range(start, stop, self.form.tokens_per_event):
                last = min(first + self.form.tokens_per_event, stop)
                words = _arguments if part == "arguments" else _words
                yield Piece(part, words(first - start, last - start, stop - start), last)

    @property
    def last_event(self) -> int:
        """The number of the last event, from 0."""
        per_event = self.form.tokens_per_event
        count = -(-self._reasoning // per_event) - (-(self.tokens - self._reasoning) // per_event)
        return count - 1 if self.form.error_after is None else min(self.form.error_after, count - 1)

    @property
    def is_cut(self) -> bool:
        """Whether its last event is an error, in place of a piece."""
        return self.last_event == self.form.error_after

    def events(self) -> Iterator[bytes]:
        """What is sent at each instant: the event with a piece, the first one behind that with the role, the last one with all that ends the stream."""
        pending = [self._chunk({"role": "assistant", "content": ""}, 0)] if self.request.endpoint == "chat" else []
        end = DONE if self.form.sends_done else b""
        for number, piece in enumerate(self.pieces()):
            if number == self.form.error_after:
                yield b"".join((*pending, _event(error_document(STREAM_FAILURE, "server_error")), end))
                return
            pending.append(self._chunk(self._delta(piece), piece.tokens))
            if piece.tokens == self.tokens:
                pending.append(self._chunk({}, self.tokens, self.finish_reason))
                if self._states_usage:
                    pending.append(_event({**self._head, "choices": [], "usage": self.usage(self.tokens)}))
                pending.append(end)
            yield b"".join(pending)
            pending.clear()

    def document(self) -> dict[str, Any]:
        """The answer as a whole."""
        texts = {"reasoning": "", "text": "", "arguments": ""}
        for piece in self.pieces():
            texts[piece.part] += piece.text
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": self.finish_reason}
        if self.request.endpoint == "completions":
            choice["text"] = texts["text"]
        else:
            choice["message"] = {"role": "assistant", "content": texts["text"] or None}
            if texts["reasoning"]:
                choice["message"]["reasoning_content"] = texts["reasoning"]
            if texts["arguments"]:
                choice["message"]["tool_calls"] = [self._call(texts["arguments"])]
        usage = {} if self.form.usage == "off" else {"usage": self.usage(self.tokens)}
        return {**self._head, "object": self._head["object"].removesuffix(".chunk"), "choices": [choice], **usage}

    def usage(self, tokens: int) -> dict[str, Any]:
        """The numbers of tokens once so many of the output have been sent."""
        prompt = self.request.prompt_tokens
        details = {"completion_tokens_details": {"reasoning_tokens": min(tokens, self._reasoning)}} if self._reasoning else {}
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens, **details}

    @property
    def _reasoning(self) -> int:
        """The number of reasoning tokens."""
        return min(self.form.reasoning, self.tokens) if self.request.endpoint == "chat" else 0

    @property
    def _content(self) -> Part:
        return "arguments" if self.request.tool else "text"

    @property
    def _states_usage(self) -> bool:
        return self.request.include_usage and self.form.usage != "off"

    @property
    def _head(self) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.request.endpoint == "chat" else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created_s, "model": self.model}

    def _chunk(self, part: Mapping[str, Any], tokens: int, finish_reason: str | None = None) -> bytes:
        """An event with a choice. `part` is the delta of a chat, or of a completion the text."""
        content = {"delta": part} if self.request.endpoint == "chat" else part or {"text": ""}
        document = {**self._head, "choices": [{"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}]}
        if self._states_usage:
            is_in_chunks = self.form.usage == "chunks" and self.request.continuous_usage
            document["usage"] = self.usage(tokens) if is_in_chunks else None
        return _event(document)

    def _delta(self, piece: Piece) -> dict[str, Any]:
        if self.request.endpoint == "completions":
            return {"text": piece.text}
        if piece.part != "arguments":
            return {"reasoning_content" if piece.part == "reasoning" else "content": piece.text}
        is_first = piece.text.startswith("{")  # of the JSON object
        call = self._call(piece.text) if is_first else {"function": {"arguments": piece.text}}
        return {"tool_calls": [{"index": 0, **call}]}

    def _call(self, arguments: str) -> dict[str, Any]:
        return {"id": f"call_{self.id}", "type": "function", "function": {"name": self.request.tool, "arguments": arguments}}


def embeddings_document(request: EmbeddingsRequest, model: str, *, has_usage: bool) -> dict[str, Any]:
    """The answer to a request for embeddings: the same vector of length 1 for each text."""
    vector = [request.dimensions**-0.5] * request.dimensions
    value = base64.b64encode(struct.pack(f"<{request.dimensions}f", *vector)).decode() if request.is_base64 else vector
    data = [{"object": "embedding", "index": index, "embedding": value} for index in range(len(request.input_tokens))]
    tokens = sum(request.input_tokens)
    usage = {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}} if has_usage else {}
    return {"object": "list", "data": data, "model": model, **usage}


def error_document(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error; `kind` is such as `invalid_request_error`."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _event(document: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def _words(first: int, last: int, _total: int) -> str:
    """The words from one number to before another one."""
    return "".join([" token" if number else "token" for number in range(first, last)])


def _arguments(first: int, last: int, total: int) -> str:
    """The same of a JSON object, whose beginning and end are a token each."""
    if total == 1:
        return "{}"
    begin, end = '{"words":"' if first == 0 else "", '"}' if last == total else ""
    return f"{begin}{_words(max(first - 1, 0), min(last - 1, total - 2), total)}{end}"

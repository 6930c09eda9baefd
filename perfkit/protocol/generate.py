"""Triton's generate extension: flat JSON objects as requests, and server-sent events as responses; no I/O."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from perfkit.errors import AnswerTooLargeError, ProtocolError
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.rest_json import decode_error_member, load_document
from perfkit.protocol.tensor import tensor_to_json

# a \r before it stays with the last line; a pattern that began with `\r?` would be ten times slower
_END_OF_EVENT = re.compile(rb"\n\r?\n")
_DATA = b"data: "
_SHOWN_BYTES = 16 << 10
_DONE = b"[DONE]"  # how some servers end a stream; it is no response
_BOM = b"\xef\xbb\xbf"  # may begin a stream (HTML, 9.2.6)


def encode_generate_request(request: InferRequest) -> bytes:
    """The body of `generate` and `generate_stream`: a member for each input and parameter; raises ProtocolError.

    The extension has neither shapes nor datatypes: each input is a flat list, in a batch of 1.
    """
    document: dict[str, object] = {**request.parameters, **({"id": request.id} if request.id else {})}
    for tensor in request.inputs:
        values = tensor_to_json(tensor)
        document[tensor.name] = values[0] if len(values) == 1 else values
    return json.dumps(document, separators=(",", ":")).encode()


def read_event_error(data: bytes) -> str:
    """The message of an event that is an error; empty for a response, of which only the ends are read.

    Raises ProtocolError for an event that is no JSON object.
    """
    if b'"error"' in data:
        return _error_of(load_document(data, "event"))
    if not (data.lstrip().startswith(b"{") and data.rstrip().endswith(b"}")):
        raise ProtocolError("an event of the stream is no JSON object, or ends within it")
    return ""


def decode_event(data: bytes) -> InferResponse:
    """An event as a response without outputs, which have neither shapes nor datatypes; raises ProtocolError if it is none."""
    document = load_document(data, "event")
    if error := _error_of(document):
        raise ProtocolError(f"it holds an error: {error}")
    model, request_id = (value if isinstance(value := document.get(name), str) else "" for name in ("model_name", "id"))
    return InferResponse(model, "", (), request_id)


def _error_of(document: Mapping[str, Any]) -> str:
    """The message of an event with an error, a text or an object; any other member `error` is an output of that name."""
    return decode_error_member(document) if isinstance(document.get("error"), str | dict) else ""


class EventSplitter:
    """Takes the body of an event stream in pieces, and calls `on_event` with the data of each event."""

    def __init__(self, max_bytes: int, on_event: Callable[[bytes], None]) -> None:
        self._max_bytes, self._on_event = max_bytes, on_event
        self._parts: list[bytes] = []  # of the event that is not complete
        self._size = 0
        self.is_done = False
        """Whether `[DONE]` has come."""

    @property
    def has_rest(self) -> bool:
        """Whether an event is incomplete, or something other than events was received."""
        return any(part.strip() for part in self._parts)

    @property
    def shown_rest(self) -> bytes:
        """What is no complete event, for a message; empty beyond 16 KiB: cut anywhere, it could end with a part of a secret, which nobody would redact."""
        return b"".join(self._parts) if self._size <= _SHOWN_BYTES else b""

    def append(self, piece: bytes) -> None:
        """Takes the next bytes; raises AnswerTooLargeError for an event beyond the maximum."""
        if (
            not self._size
            and piece.startswith(_DATA)
            and piece.find(b"\n") == len(piece) - 2
            and piece.endswith(b"\n")
            and b"\r" not in piece
        ):
            self._take(piece[len(_DATA) : -2])  # an event of one line by itself, as most are
            return
        tail = b"".join(self._parts[-3:])[-3:]
        if not _END_OF_EVENT.search(tail + piece):  # so that a long event is not joined again and again
            self._parts.append(piece)
            self._size += len(piece)
            if self._size > self._max_bytes:
                raise AnswerTooLargeError(f"an event of the stream is longer than {self._max_bytes:,} B")
            return
        *events, rest = _END_OF_EVENT.split(b"".join((*self._parts, piece)))
        self._parts, self._size = [rest], len(rest)
        for event in events:
            lines = [line[5:].removeprefix(b" ") for line in event.removeprefix(_BOM).splitlines() if line.startswith(b"data:")]
            self._take(b"\n".join(lines))

    def _take(self, data: bytes) -> None:
        if data == _DONE:
            self.is_done = True
        elif data:
            self._on_event(data)

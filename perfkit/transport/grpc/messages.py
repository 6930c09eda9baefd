"""gRPC on top of HTTP/2: request headers, answer headers and statuses, message framing."""

import base64
import dataclasses
from collections.abc import Mapping, Sequence

from perfkit.digits import whole_number
from perfkit.errors import ProtocolError
from perfkit.protocol.compression import compress
from perfkit.protocol.grpc_call import PREFIX_BYTES, Status, format_timeout, message_prefix, unquote_message
from perfkit.protocol.http2 import Headers
from perfkit.target.address import Address
from perfkit.text import PAGE_CHARACTERS, page_words
from perfkit.transport.base import Outcome
from perfkit.transport.options import Compression, inflate

# a deadline that passes before this share of the time-out is the server's own
OWN_DEADLINE_SHARE = 0.9
_STATUS_NAMES = tuple(status.name for status in Status)
# the gRPC status for an HTTP status without one (gRPC's http-grpc-status-mapping.md)
_STATUS_OF_HTTP = {400: "INTERNAL", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "UNIMPLEMENTED"} | dict.fromkeys(
    (429, 502, 503, 504), "UNAVAILABLE"
)
_LONGEST_PUSHBACK_MS, _NS_PER_MS = 24 * 3600 * 1000, 1_000_000
_RESERVED_HEADERS = frozenset(("host", "content-type", "te"))


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerHeaders:
    """The headers or trailers of an answer."""

    http_status: int
    """0 in trailers."""
    content_type: str
    encoding: str
    is_ok: bool
    status: str
    """The name of the grpc-status; empty if there is none."""
    error: str
    pushback_ns: int | None = None
    """How long the client should wait before it sends the request again; -1 to send it no more, None if the server says neither."""

    @property
    def is_interim(self) -> bool:
        return 100 <= self.http_status < 200


def parse_headers(headers: Headers) -> AnswerHeaders:
    """Parses headers or trailers; accepts invalid values."""
    values = dict(headers)
    http_status = values.get(":status", "")
    name, error = "", ""
    if (status := values.get("grpc-status")) is not None:
        number = whole_number(status, len(_STATUS_NAMES) - 1)
        name = "UNKNOWN" if number is None else _STATUS_NAMES[number]
        error = "" if name == "OK" else f"{name}: {unquote_message(values.get('grpc-message', ''))}"
    return AnswerHeaders(
        http_status=whole_number(http_status, 999) or 0,
        content_type=values.get("content-type", ""),
        encoding=values.get("grpc-encoding", ""),
        is_ok=name == "OK",
        status=name,
        error=error,
        pushback_ns=None if (pushback := values.get("grpc-retry-pushback-ms")) is None else _pushback_ns(pushback),
    )


def _pushback_ns(text: str) -> int:
    """Anything but a number of milliseconds asks the client not to send the request again (gRFC A6)."""
    pushback_ms = whole_number(text, _LONGEST_PUSHBACK_MS)
    return -1 if pushback_ms is None else pushback_ms * _NS_PER_MS


def announced_bytes(chunks: Sequence[bytes]) -> int:
    """The length of the message by its prefix; 0 if the prefix is not complete."""
    start = b"".join(chunks[:PREFIX_BYTES])[:PREFIX_BYTES]
    return int.from_bytes(start[1:]) if len(start) == PREFIX_BYTES else 0


def is_complete(chunks: Sequence[bytes]) -> bool:
    """Whether the chunks hold exactly one message, by the length in its prefix."""
    if len(chunks) == 1:
        (data,) = chunks
        return len(data) - PREFIX_BYTES == int.from_bytes(data[1:PREFIX_BYTES])
    start = b"".join(chunks[:PREFIX_BYTES])[:PREFIX_BYTES]
    return sum(map(len, chunks)) - PREFIX_BYTES == int.from_bytes(start[1:])


def classify(headers: AnswerHeaders | None, trailers: AnswerHeaders | None, chunks: Sequence[bytes]) -> tuple[Outcome, str, str]:
    """The outcome of a complete answer, the error message of a failure, and the status of a rejection.

    An HTTP error status without a grpc-status, as proxies send it, is a rejection.
    """
    last, first = trailers or headers, headers or trailers
    assert first is not None
    assert last is not None
    if last.is_ok:
        if not is_complete(chunks):
            return Outcome.BROKEN, f"the answer's status is OK, but it holds no {'complete ' if chunks else ''}message", ""
        return Outcome.OK, "", ""
    if last.status:
        return Outcome.REJECTED, last.error, last.status
    if first.http_status not in (0, 200):
        text = page_words(_start(chunks, PAGE_CHARACTERS).decode("utf-8", "replace"))
        name = _STATUS_OF_HTTP.get(first.http_status, "UNKNOWN")
        return Outcome.REJECTED, f"{name}: HTTP {first.http_status} without a gRPC status{f': {text}' if text else ''}", name
    if first.content_type and not first.content_type.startswith("application/grpc"):
        return Outcome.BROKEN, f"the answer is not gRPC, its content-type is {first.content_type}", ""
    return Outcome.BROKEN, "the answer ends without a grpc-status", ""


def _start(chunks: Sequence[bytes], size_bytes: int) -> bytes:
    """The first bytes: a body may be as long as `target.max_answer` permits."""
    start = bytearray()
    for chunk in chunks:
        start += chunk[: size_bytes - len(start)]
        if len(start) == size_bytes:
            break
    return bytes(start)


def write_message(message: bytes, compression: Compression) -> bytes:
    """A message with its prefix, compressed if that makes it smaller."""
    if compression != "none" and len(compressed := compress([message], compression)) < len(message):
        return message_prefix(len(compressed), is_compressed=True) + compressed
    return message_prefix(len(message)) + message


def read_message(data: bytes, encoding: str, max_bytes: int) -> bytes:
    """The single message of an answer's data, decompressed to at most `max_bytes`; raises ProtocolError."""
    if len(data) < PREFIX_BYTES or len(data) < PREFIX_BYTES + (length := int.from_bytes(data[1:PREFIX_BYTES])):
        raise ProtocolError("the answer ends before its message does")
    if len(data) > PREFIX_BYTES + length:
        raise ProtocolError("the answer holds more than one message")
    if data[0] > 1:
        raise ProtocolError(f"the answer's message has the compression flag {data[0]}, which must be 0 or 1")
    if data[0] == 0:
        return data[PREFIX_BYTES:]
    if encoding in ("", "identity"):
        raise ProtocolError("the answer's message is compressed, but the grpc-encoding header is missing")
    return inflate(data[PREFIX_BYTES:], encoding, max_bytes)


def request_headers(address: Address, path: str, timeout_ns: int | None, compression: Compression) -> Headers:
    """The headers of a call, including the target's own; None for a call without a time-out."""
    target_headers = {name.lower(): value for name, value in address.headers.items()}
    headers = [
        (":method", "POST"),
        (":scheme", "https" if address.tls else "http"),
        (":path", address.base_path + path),
        (":authority", target_headers.get("host", address.authority)),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    if timeout_ns is not None:
        headers.append(("grpc-timeout", format_timeout(timeout_ns)))
    if compression != "none":
        headers += [("grpc-encoding", compression), ("grpc-accept-encoding", compression)]
    return [*headers, *metadata(target_headers)]


def metadata(headers: Mapping[str, str]) -> Headers:
    """Headers, with names in lower case, as gRPC metadata: `-bin` values in base64, and reserved names left out."""
    return [
        (name, base64.b64encode(value.encode()).rstrip(b"=").decode() if name.endswith("-bin") else value)
        for name, value in headers.items()
        if name not in _RESERVED_HEADERS and not name.startswith("grpc-")
    ]

"""What gRPC writes into HTTP/2's headers and data: statuses, messages, time-outs."""

import base64
import dataclasses
import urllib.parse
from collections.abc import Mapping, Sequence

from perfkit.errors import ProtocolError
from perfkit.protocol.compression import compress, decompress
from perfkit.protocol.http2 import Headers
from perfkit.target.address import Address
from perfkit.transport.base import Outcome
from perfkit.transport.options import Compression

_PREFIX_BYTES = 5  # a byte that says whether the message is packed, and its length
_LARGEST_ANSWER_BYTES = 2**31  # as Triton's clients have it
_SHOWN_BYTES = 200
_STATUS_NAMES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
# what an HTTP status means to gRPC, where nobody on the way speaks it
_NAMES_OF_HTTP = {400: "INTERNAL", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "UNIMPLEMENTED"} | dict.fromkeys(
    (429, 502, 503, 504), "UNAVAILABLE"
)
_TIME_UNITS = (("n", 1), ("u", 1_000), ("m", 1_000_000), ("S", 1_000_000_000), ("M", 60 * 10**9), ("H", 3600 * 10**9))
_OWN_HEADERS = frozenset(("host", "content-type", "te"))


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerFields:
    """What a block of an answer's headers says; `status` is the name of its grpc-status, empty where it holds none, `http_status` 0 in trailers."""

    http_status: int
    content_type: str
    encoding: str
    is_ok: bool
    status: str
    error: str

    @property
    def is_announcement(self) -> bool:
        """See `http2_stream.Fields`."""
        return 100 <= self.http_status < 200


def read_fields(headers: Headers) -> AnswerFields:
    """Reads headers or trailers; whatever they hold."""
    values = dict(headers)
    http_status = values.get(":status", "")
    name, error = "", ""
    if (status := values.get("grpc-status")) is not None:
        number = int(status) if len(status) <= 2 and status.isascii() and status.isdecimal() else len(_STATUS_NAMES)
        name = _STATUS_NAMES[number] if number < len(_STATUS_NAMES) else "UNKNOWN"
        error = "" if name == "OK" else f"{name}: {urllib.parse.unquote(values.get('grpc-message', ''))}"
    return AnswerFields(
        http_status=int(http_status) if len(http_status) == 3 and http_status.isascii() and http_status.isdecimal() else 0,
        content_type=values.get("content-type", ""),
        encoding=values.get("grpc-encoding", ""),
        is_ok=name == "OK",
        status=name,
        error=error,
    )


def is_whole(chunks: Sequence[bytes]) -> bool:
    """Whether data in pieces is one message, as long as it says itself."""
    if len(chunks) == 1:
        (data,) = chunks
        return len(data) - _PREFIX_BYTES == int.from_bytes(data[1:_PREFIX_BYTES])
    start = b"".join(chunks[:_PREFIX_BYTES])[:_PREFIX_BYTES]
    return sum(map(len, chunks)) - _PREFIX_BYTES == int.from_bytes(start[1:])


def judge(head: AnswerFields | None, trailers: AnswerFields | None, chunks: Sequence[bytes]) -> tuple[Outcome, str, str]:
    """What a complete answer comes to, the sentence of a failure, and the status of a rejection. A proxy's HTTP status in place of gRPC's is a rejection."""
    last, first = trailers or head, head or trailers
    assert first is not None
    assert last is not None
    if last.is_ok:
        if not is_whole(chunks):
            return Outcome.BROKEN, f"the answer says OK, and holds no {'whole ' if chunks else ''}message", ""
        return Outcome.OK, "", ""
    if last.status:
        return Outcome.REJECTED, last.error, last.status
    if first.http_status not in (0, 200):
        words = b"".join(chunks)[:_SHOWN_BYTES].decode("utf-8", "replace")
        name = _NAMES_OF_HTTP.get(first.http_status, "UNKNOWN")
        return Outcome.REJECTED, f"{name}: HTTP {first.http_status} in place of a gRPC status{f': {words}' if words else ''}", name
    if first.content_type and not first.content_type.startswith("application/grpc"):
        return Outcome.BROKEN, f"the answer is not gRPC, its content-type is {first.content_type}", ""
    return Outcome.BROKEN, "the answer ends without a grpc-status", ""


def write_message(message: bytes, compression: Compression) -> bytes:
    """A message as it stands in the data; packed where that makes it smaller."""
    if compression != "none" and len(packed := compress([message], compression)) < len(message):
        return b"\x01" + len(packed).to_bytes(4) + packed
    return b"\x00" + len(message).to_bytes(4) + message


def read_message(data: bytes, encoding: str) -> bytes:
    """The one message of an answer's data, unpacked; raises ProtocolError."""
    if len(data) < _PREFIX_BYTES or len(data) < _PREFIX_BYTES + (length := int.from_bytes(data[1:_PREFIX_BYTES])):
        raise ProtocolError("the answer ends before its message does")
    if len(data) > _PREFIX_BYTES + length:
        raise ProtocolError("the answer holds more than one message")
    if data[0] > 1:
        raise ProtocolError(f"the answer's message begins with {data[0]}, where 0 or 1 says whether it is packed")
    if data[0] == 0:
        return data[_PREFIX_BYTES:]
    if encoding in ("", "identity"):
        raise ProtocolError("the answer's message is packed, and no grpc-encoding says how")
    return decompress(data[_PREFIX_BYTES:], encoding, _LARGEST_ANSWER_BYTES)


def format_timeout(timeout_ns: int) -> str:
    """A time-out as `grpc-timeout` has it: eight digits at most, in the finest unit that they allow, rounded up."""
    for unit, unit_ns in _TIME_UNITS:
        count = -(-timeout_ns // unit_ns)
        if count < 10**8:
            return f"{count}{unit}"
    return f"{10**8 - 1}H"


def request_headers(address: Address, path: str, timeout_ns: int, compression: Compression) -> Headers:
    """The headers of a call: the target's own among them in lower case, `-bin` ones in base64."""
    own = {name.lower(): value for name, value in address.headers.items()}
    headers = [
        (":method", "POST"),
        (":scheme", "https" if address.tls else "http"),
        (":path", address.base_path + path),
        (":authority", own.get("host", address.authority)),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", format_timeout(timeout_ns)),
    ]
    if compression != "none":
        headers += [("grpc-encoding", compression), ("grpc-accept-encoding", compression)]
    return [*headers, *metadata(own)]


def metadata(headers: Mapping[str, str]) -> Headers:
    """Headers, names in lower case, without those that say how a call travels."""
    return [
        (name, base64.b64encode(value.encode()).rstrip(b"=").decode() if name.endswith("-bin") else value)
        for name, value in headers.items()
        if name not in _OWN_HEADERS and not name.startswith("grpc-")
    ]

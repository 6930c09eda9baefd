"""How requests travel to a target, and what a server may send before its connection is closed, with the error messages.

Checks cost a small answer nothing: they begin where an answer does not fit into the first reads, or with frames that are not
part of an answer. The outcome of a request whose answer exceeds a limit is `broken`.
"""

import dataclasses
from typing import Literal, TypeAlias

from perfkit.errors import AnswerTooLargeError
from perfkit.protocol.compression import BodyTooLargeError, decompress

MAX_HEAD_BYTES = 1 << 16
"""The largest head of an HTTP/1.1 answer, interim answers (1xx) included; Node.js has 16 KiB, curl 300 KiB."""
MAX_HEADERS = 1000
MIN_LIMIT_BYTES = 1 << 20
"""The smallest limit that can be set: the wire engines do not count the bytes of answers that arrive in few reads."""
MAX_DESCRIPTION_BYTES = 1 << 22
"""The largest metadata or configuration."""
BYTES_PER_CHUNK = 64
"""What each received piece of an answer counts besides its bytes: about the memory that Python takes for it."""
OWN_LIMIT = "target.max_answer sets this limit, and the server's answers need more: raise it"
"""The end of a message about an answer that perfkit itself refuses because of its size."""
SWITCHED_PROTOCOLS = "the server switched protocols (HTTP 101), which no request asks for"


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerLimit:
    """The length from which an answer's body or message is refused, at least `MIN_LIMIT_BYTES`; also for the decompressed one."""

    max_bytes: int

    def too_long(self, what: str = "the answer") -> str:
        """The error message for an answer that is too long, or for the part of it that `what` names."""
        return f"{what} is longer than {self.max_bytes:,} B"

    def announced_too_long(self, announced_bytes: int) -> str:
        """The error message for an answer that announces a length beyond the limit."""
        return f"the answer announces {announced_bytes:,} B, more than {self.max_bytes:,} B"


def inflate(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """An answer, decompressed to at most the limit that `target.max_answer` sets; raises ProtocolError, beyond it AnswerTooLargeError."""
    try:
        return decompress(body, encoding, limit_bytes)
    except BodyTooLargeError:
        raise AnswerTooLargeError(AnswerLimit(limit_bytes).too_long("the decompressed answer")) from None


FIRST_ANSWER_LIMIT = AnswerLimit(1 << 28)
"""The limit of the answer to the probe request, and the largest limit of an answer without `target.max_answer`."""
STATISTICS_LIMIT = AnswerLimit(1 << 20)
METRICS_LIMIT = AnswerLimit(1 << 24)
_ANSWERS_BYTES = 1 << 30


def limit_for_load(known_bytes: int, in_flight: int) -> AnswerLimit:
    """The limit under load, where the first answer, for example, had `known_bytes`.

    A request's share of 1 GiB for all in flight, so that answers may grow, but never less than four times the known size and 1 MiB.
    """
    return AnswerLimit(min(max(4 * known_bytes + MIN_LIMIT_BYTES, _ANSWERS_BYTES // in_flight), FIRST_ANSWER_LIMIT.max_bytes))


Compression: TypeAlias = Literal["none", "gzip", "deflate"]
Engine: TypeAlias = Literal["wire", "reference"]
Balance: TypeAlias = Literal["round_robin", "least_in_flight", "random"]
Resolution: TypeAlias = Literal["first", "all"]


@dataclasses.dataclass(frozen=True, slots=True)
class Rotation:
    """When a connection is replaced: after so many requests, or with its first request after so long, whichever comes first."""

    max_requests: int | None = None
    max_age_ns: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StreamOptions:
    """How requests share the streams of a gRPC method; over HTTP, each request has an event stream of its own."""

    requests_per_stream: int = 1
    """After so many requests a stream is closed, and another takes its place."""
    in_flight: int = 1
    """Requests on one stream at a time."""
    keeps_messages: bool = False
    """Whether replies have all messages of their responses, and not only the first; over gRPC only."""
    has_infer_bodies: bool = False
    """Over HTTP: whether requests and events have the form of `infer`, and not that of Triton's `generate_stream`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """The engine, its connections, and the time-out and compression of each request."""

    timeout_ns: int
    engine: Engine = "wire"
    max_connections: int = 1
    streams_per_connection: int = 1
    """Concurrent requests on one connection; only gRPC with the wire engine supports more than one."""
    answer_limit: AnswerLimit = FIRST_ANSWER_LIMIT
    stream: StreamOptions | None = None
    """None sends each request as a call of its own."""
    compression: Compression = "none"
    """The compression of requests, and the one that the server is asked to use for answers."""
    has_output_slots: bool = False
    """Whether answers may lack the data of outputs, because the server writes them to shared memory."""
    rotation: Rotation | None = None
    balance: Balance = "round_robin"
    """How requests are spread over several addresses."""
    resolve: Resolution = "first"
    """Which of the addresses of a name are used: for each connection the first that accepts it, or all as replicas."""
    peers: tuple[str, ...] = ()
    """The IP addresses to tell apart with `resolve: first`; empty for a name with a single one."""
    seed: int = 0
    """The seed of `balance: random`."""

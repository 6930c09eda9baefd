"""How requests travel to a target."""

import dataclasses
from typing import Literal, TypeAlias

from perfkit.transport.limits import FIRST_ANSWER_LIMIT, AnswerLimit

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

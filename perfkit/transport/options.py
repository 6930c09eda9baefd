"""How requests travel to a target."""

import dataclasses
from typing import Literal, TypeAlias

from perfkit.transport.limits import FIRST_ANSWER_LIMIT, AnswerLimit

Compression: TypeAlias = Literal["none", "gzip", "deflate"]
Engine: TypeAlias = Literal["wire", "reference"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """The engine, its connections, and the time-out and compression of each request."""

    timeout_ns: int
    engine: Engine = "wire"
    max_connections: int = 1
    streams_per_connection: int = 1
    """Concurrent requests on one connection; only gRPC with the wire engine supports more than one."""
    answer_limit: AnswerLimit = FIRST_ANSWER_LIMIT
    compression: Compression = "none"
    """The compression of requests, and the one that the server is asked to use for answers."""

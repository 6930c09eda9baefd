"""What the proxy tells the process that observes its traffic, and the other way round: plain data of declared types."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from perfkit.process.encoding import Encoding

Payloads: TypeAlias = Literal["none", "hash", "full"]


class Recording(NamedTuple):
    """The first message: what is recorded where."""

    file: str
    payloads: Payloads
    wall_minus_monotonic_ns: int
    """Turns instants of arrival into nanoseconds since 1970."""


class Opened(NamedTuple):
    """A client has connected."""

    connection: int
    is_grpc: bool
    listen: str
    """Where."""


class Received(NamedTuple):
    """Bytes of a client, and when they were read."""

    connection: int
    read_ns: int
    is_first: bool
    """Whether they are the first since the server's last bytes."""
    data: bytes


class Skipped(NamedTuple):
    """So many bytes of a client are not told, because too many were waiting."""

    connection: int
    size_bytes: int


class Closed(NamedTuple):
    """A connection has ended."""

    connection: int


class End(NamedTuple):
    """There is no more: what has come is written, and `Recorded` the answer."""


class Started(NamedTuple):
    """The trace can be written; `error` says why not."""

    error: str


class Unreadable(NamedTuple):
    """A connection's traffic cannot be read from here on."""

    connection: int
    listen: str
    reason: str


class Failed(NamedTuple):
    """The trace cannot be written any more; the text is the reason."""

    reason: str


class Recorded(NamedTuple):
    """The last message: what was recorded, and what was not."""

    calls: Mapping[tuple[str, str], int]
    """The number of requests written, by model and call."""
    without_payload: int
    """Requests among them without the payload that was asked for."""
    unwritten: int
    """Requests that came after the trace could not be written any more."""
    incomplete: int
    """Requests that had not ended when their connection did, or that were forgotten because too many were open on it."""
    unread_bytes: int
    """Bytes of clients that were not read, because their connection was `Unreadable`."""
    distinct_payloads: int
    payload_bytes: int
    failure: str
    """Why the trace is not whole; empty if it is."""


TO_OBSERVER = Encoding(Received | Recording | Opened | Skipped | Closed | End, {})
FROM_OBSERVER = Encoding(Started | Unreadable | Failed | Recorded, {})

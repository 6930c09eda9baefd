"""The seam between load and wire: prepared bytes go in, replies come out, failures are data."""

import dataclasses
import enum
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from perfkit.protocol.message import InferRequest, InferResponse, ModelConfig, ModelMetadata, ServerMetadata
from perfkit.protocol.statistics import ModelStatistics


class Outcome(enum.Enum):
    """What became of a request that was sent; each has exactly one. The value is its key in a result."""

    OK = "ok"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"
    CONNECT_FAILED = "connect_failed"
    BROKEN = "broken"
    INVALID_OUTPUT = "invalid_output"
    UNFINISHED = "unfinished"


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """A request as bytes: the buffers that go on the wire, in order, and the tensors' bytes among them."""

    buffers: Sequence[bytes]
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Reply:
    """What came back. `started_ns` is when the request's bytes were handed to a ready connection.

    An open loop adds when the request was meant to start, `intended_ns`, and when the loop came to it, `paced_ns`.
    `payload` is the engine's own form of the answer, for `decode`; `error` the sentence of a failure; `status` what a
    rejected request was answered with, such as 503 or RESOURCE_EXHAUSTED. `variant` is the request's place in its pool,
    which the loops set.
    """

    __slots__ = ("error", "finished_ns", "intended_ns", "outcome", "paced_ns", "payload", "started_ns", "status", "variant")

    def __init__(
        self, outcome: Outcome, started_ns: int, finished_ns: int, payload: Any = None, error: str = "", status: str | int = ""
    ) -> None:
        self.outcome = outcome
        self.started_ns = started_ns
        self.finished_ns = finished_ns
        self.payload = payload
        self.error = error
        self.status = status
        self.intended_ns = self.paced_ns = self.variant = 0


@dataclasses.dataclass(slots=True)
class ConnectionCounts:
    """Connections opened since the transport was made, how many of those replaced a lost one, and requests sent again.

    A request is sent a second time only where a kept HTTP/1.1 connection was closed before any byte of the answer came,
    or where a gRPC server says that it did not take it.
    """

    opened: int = 0
    reconnects: int = 0
    retried: int = 0


class Transport(Protocol):
    """One engine, connected to one target. `send` is the timed call; everything else is not."""

    @property
    def counts(self) -> ConnectionCounts:
        """What became of its connections so far."""
        ...

    async def open(self, connections: int) -> None:
        """Opens that many connections ahead of time; raises TargetError where the target cannot be reached."""
        ...

    def prepare(self, request: InferRequest) -> Prepared:
        """A request's bytes; pure."""
        ...

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        """Sends a request and waits for its reply or its time-out, which runs from this call; never raises for what the target does."""
        ...

    def decode(self, reply: Reply) -> InferResponse:
        """Reads an answer, outside the timed span; raises ProtocolError where it breaks the protocol."""
        ...

    def abandon(self) -> None:
        """Ends every request in flight: each resolves as unfinished. Nothing is sent from then on."""
        ...

    async def server_metadata(self) -> ServerMetadata:
        """The server's name and version; raises TargetError."""
        ...

    async def is_ready(self, model: str, version: str) -> bool:
        """Whether server and model are ready; raises TargetError where the target cannot be reached."""
        ...

    async def model_metadata(self, model: str, version: str) -> ModelMetadata:
        """The model's metadata; raises TargetError, also where the server does not know the model."""
        ...

    async def model_config(self, model: str, version: str) -> ModelConfig:
        """The model's configuration; an empty one where the server has no such call."""
        ...

    async def model_statistics(self, model: str, version: str) -> tuple[ModelStatistics, ...]:
        """What the model's versions did since they were loaded, of one version where it is given; empty where the server has no such call.

        Raises TargetError where the target cannot be reached, or its answer is not what the protocol says.
        """
        ...

    async def aclose(self) -> None:
        """Closes all connections."""
        ...

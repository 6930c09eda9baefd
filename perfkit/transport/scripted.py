"""A transport without a network: answers follow a script, on any clock. For tests and virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from perfkit.clock import Clock
from perfkit.errors import ProtocolError
from perfkit.protocol.message import (
    IndexedModel,
    InferRequest,
    InferResponse,
    ModelConfig,
    ModelMetadata,
    RegionKind,
    ServerMetadata,
    SharedRegion,
)
from perfkit.protocol.statistics import ModelStatistics
from perfkit.transport.base import ConnectionCounts, Outcome, Prepared, RegionRefusal, Reply

_WITHOUT_ERROR = (Outcome.OK, Outcome.UNFINISHED)


class ScriptedTransport:
    """`script` returns the service time in nanoseconds and the outcome of request n, counted from 0."""

    def __init__(self, clock: Clock, script: Callable[[int], tuple[int, Outcome]]) -> None:
        self.counts = ConnectionCounts()
        self.sent = 0
        self.in_flight_max = 0
        self._clock = clock
        self._script = script
        self._in_flight: set[asyncio.Future[Outcome]] = set()

    async def open(self, connections: int) -> None:
        self.counts.opened += connections

    def prepare(self, request: InferRequest) -> Prepared:
        """The request has no bytes."""
        return Prepared(())

    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        """The header alone."""
        return prepared.with_header("traceparent", traceparent)

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        index, self.sent = self.sent, self.sent + 1
        return self._answer(*self._script(index))

    def abandon(self) -> None:
        for ended in self._in_flight:
            if not ended.done():
                ended.set_result(Outcome.UNFINISHED)

    def decode(self, reply: Reply) -> InferResponse:
        """No answer has a body."""
        raise ProtocolError(reply.error)

    def raw_failure(self, reply: Reply) -> str:
        return reply.error

    def answer_bytes(self, reply: Reply) -> int:
        """No answer has a body."""
        return 0

    async def server_metadata(self) -> ServerMetadata:
        return ServerMetadata("scripted", "")

    async def is_ready(self, model: str, version: str) -> bool:
        return True

    async def model_metadata(self, model: str, version: str) -> ModelMetadata:
        """A model without inputs or outputs."""
        return ModelMetadata(model, (version,), "scripted", (), ())

    async def model_config(self, model: str, version: str) -> ModelConfig:
        return ModelConfig()

    async def model_index(self) -> tuple[IndexedModel, ...]:
        """Empty: the script has no repository."""
        return ()

    async def load_model(self, model: str) -> str:
        """Refused: the script has no repository."""
        return "a script has no repository"

    async def unload_model(self, model: str) -> str:
        """Refused: the script has no repository."""
        return "a script has no repository"

    async def change_trace_settings(self, settings: Mapping[str, Sequence[str]]) -> str:
        """Refused: the script traces nothing."""
        return "a script traces nothing"

    async def model_statistics(self, model: str, version: str) -> tuple[ModelStatistics, ...]:
        """Empty: the script has no statistics."""
        return ()

    async def register_region(self, region: SharedRegion) -> RegionRefusal | None:
        """Refused: the script has no shared memory."""
        return RegionRefusal("a script", is_unsupported=True)

    async def unregister_region(self, kind: RegionKind, name: str) -> None:
        """Nothing: the script has no shared memory."""

    async def region_names(self, kind: RegionKind) -> tuple[str, ...]:
        """Empty: the script has no shared memory."""
        return ()

    async def aclose(self) -> None:
        self.abandon()

    async def _answer(self, service_time_ns: int, outcome: Outcome) -> Reply:
        started_ns = self._clock.now_ns()
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._in_flight.add(ended)
        self.in_flight_max = max(self.in_flight_max, len(self._in_flight))
        served = asyncio.ensure_future(self._clock.sleep_until_ns(started_ns + service_time_ns))
        served.add_done_callback(lambda _: None if ended.done() else ended.set_result(outcome))
        try:
            result = await ended
            return Reply(result, started_ns, self._clock.now_ns(), None, "" if result in _WITHOUT_ERROR else result.value)
        finally:
            self._in_flight.discard(ended)
            served.cancel()

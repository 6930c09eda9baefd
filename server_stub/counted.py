"""What every model keeps of its requests: how many are in flight, and what became of the others."""

from collections.abc import Mapping
from typing import Any

from server_stub.definition import ModelDefinition
from server_stub.in_flight import InFlight
from server_stub.statistics import FailureReason, Statistics


class CountedModel:
    """The part of `server_stub.model.Model` that does not depend on how a model answers."""

    def __init__(self, definition: ModelDefinition, version: str = "") -> None:
        self.definition = definition
        self.version = version or definition.versions[-1]
        self._statistics, self._in_flight = Statistics(), InFlight()

    def statistics(self) -> dict[str, Any]:
        """See `Model.statistics`."""
        return self._statistics.document(self.definition.name, self.version)

    @property
    def failures(self) -> Mapping[FailureReason, int]:
        """See `Model.failures`."""
        return self._statistics.failures

    @property
    def pending(self) -> int:
        """See `Model.pending`; nobody waits where a model has no line."""
        return 0

    @property
    def max_queue(self) -> int:
        """See `Model.max_queue`."""
        return self._in_flight.most

    @max_queue.setter
    def max_queue(self, count: int) -> None:
        self._in_flight.most = count

    async def drain(self) -> None:
        """See `Model.drain`."""
        await self._in_flight.drain()

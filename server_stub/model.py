"""A model that is being served: what it is, what executes it, and what it has done."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol, TypeVar

from perfkit.protocol.message import InferRequest, InferResponse
from server_stub import inference
from server_stub.batching import BatchingLine, BatchingPolicy
from server_stub.counted import CountedModel
from server_stub.definition import ModelDefinition
from server_stub.execution import BatchExecution
from server_stub.executors.base import Executor
from server_stub.line import Fifo, Line, Waiting
from server_stub.scheduler import InlineInstances, Instances, Scheduler, ThreadInstances
from server_stub.sequences import SequenceLine, SequencePolicy
from server_stub.statistics import FailureReason

_Answer = TypeVar("_Answer")


class Model(Protocol):
    """One loaded model, as the fronts see it."""

    definition: ModelDefinition
    version: str
    max_queue: int
    """How many requests it has at a time, waiting or being answered; more are refused."""

    async def infer(self, request: InferRequest, arrived_ns: int, encode: Callable[[InferResponse], _Answer]) -> _Answer:
        """What a front makes of the response, by `encode`; raises ProtocolError where it does not fit the model or the model fails.

        `arrived_ns` is the instant of the monotonic clock at which all of the request was there.
        """
        ...

    def responses(self, request: InferRequest, arrived_ns: int) -> AsyncGenerator[InferResponse, None]:
        """All responses of a request, each when it is there: one, but for a decoupled model. Raises as `infer` does."""
        ...

    def statistics(self) -> dict[str, Any]:
        """The model's entry in `model_stats`."""
        ...

    @property
    def failures(self) -> Mapping[FailureReason, int]:
        """Failures by reason, which `model_stats` does not tell apart."""
        ...

    @property
    def pending(self) -> int:
        """How many requests wait for their execution."""
        ...

    async def drain(self) -> None:
        """Returns when every request is answered; none may come any more."""
        ...

    def close(self) -> None:
        """Drops what still waits; called in the event loop when the fronts are closed."""
        ...


class ExecutedModel(CountedModel):
    """A model whose requests wait in line for its instances' threads, so the event loop stays free."""

    def __init__(self, definition: ModelDefinition, executor: Executor, version: str = "") -> None:
        super().__init__(definition, version)
        execution = BatchExecution(definition, self.version, executor)
        instances: Instances
        if executor.is_brief and definition.instances == 1:
            instances = InlineInstances(execution)
        else:
            # one after the other, nobody who comes later can change what is next; a batch can still grow
            instances = ThreadInstances(definition.instances, execution, definition.name, ahead=1 if definition.scheduling is None else 0)
        self._scheduler = Scheduler(_line(definition), instances, self._statistics)

    async def infer(self, request: InferRequest, arrived_ns: int, encode: Callable[[InferResponse], _Answer]) -> _Answer:
        """See `Model.infer`; what it counts begins when the request joins the line."""
        batch_size = inference.check_request(self.definition, request)
        with self._in_flight:
            return encode(await self._scheduler.submit(Waiting(request, batch_size, time.monotonic_ns())))

    async def responses(self, request: InferRequest, arrived_ns: int) -> AsyncGenerator[InferResponse, None]:
        """See `Model.responses`."""
        yield await self.infer(request, arrived_ns, lambda response: response)

    @property
    def pending(self) -> int:
        """See `Model.pending`."""
        return self._scheduler.pending

    def close(self) -> None:
        """See `Model.close`; returns when the threads have ended."""
        self._scheduler.close()


def _line(definition: ModelDefinition) -> Line:
    open_inputs = [one.name for one in definition.inputs if -1 in one.dims]
    match definition.scheduling:
        case BatchingPolicy() as policy:
            return BatchingLine(policy, definition.max_batch_size, open_inputs)
        case SequencePolicy() as policy:
            return SequenceLine(definition.name, policy, definition.instances, definition.max_batch_size, open_inputs)
        case None:
            return Fifo()

"""A model that runs on an executor: requests are queued, batched, executed and split into responses."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from perfkit.errors import ErrorKind, ProtocolError, UsageError
from perfkit.override import override
from perfkit.protocol.message import InferRequest, InferResponse
from server_stub.executors.array import Arrays, Executor, Inputs
from server_stub.inference.conversion import input_arrays, make_response
from server_stub.inference.definition import ModelDefinition
from server_stub.inference.layouts import AnyRequest, Layouts, RepeatedRequest
from server_stub.inference.model import Model
from server_stub.inference.repeated_responses import AnyResponse, Responder, Write
from server_stub.scheduling.batching import BatchingPolicy, BatchingQueue
from server_stub.scheduling.model_statistics import Timing
from server_stub.scheduling.request_queue import FifoQueue, QueuedRequest, RequestQueue
from server_stub.scheduling.scheduler import BatchResult, Execution, InlineInstance, Instances, Scheduler, ThreadInstances
from server_stub.scheduling.sequences import SequencePolicy, SequenceQueue
from server_stub.tracing.request_trace import RequestTrace

_Encoded = TypeVar("_Encoded")


@dataclasses.dataclass(frozen=True, slots=True)
class WarmupSample:
    """Requests that are executed together, `count` times, before the model is ready. `where` names it in errors."""

    requests: tuple[InferRequest, ...]
    controls: Mapping[str, Any]
    """The values of the control inputs of a sequence, by input name."""
    count: int
    where: str


class ExecutedModel(Model):
    """A model whose requests are queued for its instances."""

    def __init__(self, definition: ModelDefinition, executor: Executor, version: str = "", warmup: Sequence[WarmupSample] = ()) -> None:
        """Every instance executes the `warmup`, which counts in the statistics as in Triton. Raises UsageError if it fails."""
        super().__init__(definition, version)
        execution = BatchExecution(definition, self.version, executor)
        self._executor, self._layouts = executor, Layouts(definition)
        warmed: list[tuple[Timing, Sequence[tuple[int, int]]]] = []
        instances: Instances
        try:
            if executor.runs_inline and definition.instances == 1:
                warmed.extend(execution.warm_up(warmup))
                instances = InlineInstance(execution)
            else:
                # in a plain queue the next request is settled and can be handed over early; a batch can still grow
                prefetch_count = 1 if definition.scheduling is None else 0
                prepare = (lambda: warmed.extend(execution.warm_up(warmup))) if warmup else None
                instances = ThreadInstances(
                    definition.instances, execution, definition.name, prefetch_count=prefetch_count, prepare=prepare
                )
        except BaseException:
            executor.close()
            raise
        for timing, requests in warmed:
            self._statistics.add_execution(timing, requests)
        self._scheduler = Scheduler(_make_queue(definition, executor.batch_rows), instances, self._statistics)
        self._scheduler.never_waits &= not definition.is_decoupled

    @override
    async def infer(
        self, request: AnyRequest, arrived_ns: int, encode: Callable[[InferResponse], _Encoded], trace: RequestTrace | None = None
    ) -> _Encoded:
        """Statistics count from the moment the request joins the queue."""
        checked, batch_size, inputs = self._layouts.read(request)
        with self.in_flight:
            queued = QueuedRequest(checked, batch_size, time.monotonic_ns(), trace, inputs)
            if trace is None:
                return encode(await self._scheduler.submit(queued))
            trace.enqueue(self.definition.name, self.version, checked.id, queued.enqueued_ns)
            try:
                response = await self._scheduler.submit(queued)
            finally:
                trace.completed_ns = time.monotonic_ns()
            return encode(response)

    @property
    @override
    def never_waits(self) -> bool:
        return self._scheduler.never_waits

    @override
    def infer_at_once(self, request: RepeatedRequest, encode: Callable[[AnyResponse], _Encoded], write: Write) -> _Encoded:
        checked, batch_size, inputs = self._layouts.read(request)
        template = request.template
        responder = template.responder
        if responder is None or responder.definition is not self.definition or responder.version != self.version:
            responder = template.responder = Responder(self.definition, self.version, template.request, write)
        with self.in_flight:
            return encode(self._scheduler.execute(QueuedRequest(checked, batch_size, time.monotonic_ns(), None, inputs, responder.respond)))

    @property
    @override
    def execution(self) -> dict[str, Any] | None:
        return self._executor.document()

    @property
    @override
    def pending(self) -> int:
        return self._scheduler.pending

    @override
    async def drain(self) -> None:
        self._scheduler.stop_delaying()
        await super().drain()

    @override
    def close(self) -> None:
        """Returns when the threads have ended."""
        self._scheduler.close()
        self._executor.close()


def _make_queue(definition: ModelDefinition, batch_rows: Sequence[int]) -> RequestQueue:
    variable_inputs = [tensor.name for tensor in definition.inputs if -1 in tensor.dims]
    match definition.scheduling:
        case BatchingPolicy() as policy:
            return BatchingQueue(policy, definition.max_batch_size, variable_inputs, batch_rows)
        case SequencePolicy() as policy:
            return SequenceQueue(definition.name, policy, definition.instances, definition.max_batch_size, variable_inputs)
        case None:
            return FifoQueue()


class Begun(NamedTuple):
    """A batch whose execution has begun, or failed to. Times are monotonic nanoseconds."""

    batch: Sequence[QueuedRequest]
    started_ns: int
    input_ready_ns: int
    inputs: Any
    failure: Exception | None = None


class BatchExecution(Execution):
    """Executes batches of checked requests. See `Execution`."""

    def __init__(
        self, definition: ModelDefinition, version: str, executor: Executor, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._definition, self._version, self._executor, self._now_ns = definition, version, executor, now_ns

    @override
    def begin_at_once(self, batch: Sequence[QueuedRequest]) -> Begun | None:
        if not self._executor.begins_in_loop:
            return None
        started_ns = self._now_ns()
        try:
            parts = self._request_inputs(batch)
            if not self._executor.begins_at_once(parts):
                return None
        except Exception:  # noqa: BLE001 - `begin` meets it again
            return None
        return self._begin(batch, started_ns, parts)

    @override
    def begin(self, batch: Sequence[QueuedRequest]) -> Begun:
        return self._begin(batch, self._now_ns(), None)

    @override
    def finish(self, begun: Begun) -> BatchResult:
        """Whatever the model raises becomes the result's `failure`."""
        if begun.failure is not None:
            return self._failed(begun, begun.failure)
        try:
            outputs = self._executor.finish(begun.inputs)
            inferred_ns = self._now_ns()
            responses = self._split_outputs(begun.batch, outputs)
            return BatchResult(responses, Timing(begun.started_ns, begun.input_ready_ns, inferred_ns, self._now_ns()))
        except Exception as error:  # noqa: BLE001 - an error in a model must not end the server
            return self._failed(begun, error)

    def warm_up(self, samples: Sequence[WarmupSample]) -> list[tuple[Timing, Sequence[tuple[int, int]]]]:
        """Execute the samples in this thread; what to add to the statistics. Raises UsageError if one fails."""
        executions: list[tuple[Timing, Sequence[tuple[int, int]]]] = []
        for sample in samples:
            for _ in range(sample.count):
                batch = [QueuedRequest(request, 1, self._now_ns(), controls=sample.controls) for request in sample.requests]
                result = self.finish(self.begin(batch))
                if result.failure is not None:
                    raise UsageError(f"{sample.where} fails: {result.failure}")
                executions.append((result.timing, [(queued.enqueued_ns, 1) for queued in batch]))
        return executions

    def _begin(self, batch: Sequence[QueuedRequest], started_ns: int, parts: Sequence[Inputs] | None) -> Begun:
        try:
            inputs = self._executor.join(self._request_inputs(batch) if parts is None else parts)
            input_ready_ns = self._now_ns()
            self._executor.start(inputs)
            return Begun(batch, started_ns, input_ready_ns, inputs)
        except Exception as error:  # noqa: BLE001 - as in `finish`
            return Begun(batch, started_ns, started_ns, None, error)

    def _failed(self, begun: Begun, error: Exception) -> BatchResult:
        if isinstance(error, ProtocolError):  # the model's own message
            failure = error
        else:
            failure = ProtocolError(f"model '{self._definition.name}' failed: {error}", ErrorKind.INTERNAL)
            failure.__cause__ = error
        failed_ns = self._now_ns()
        return BatchResult((), Timing(begun.started_ns, failed_ns, failed_ns, failed_ns), failure)

    def _request_inputs(self, batch: Sequence[QueuedRequest]) -> Sequence[Inputs]:
        return [self._inputs(queued) if not queued.controls else {**self._inputs(queued), **queued.controls} for queued in batch]

    def _inputs(self, queued: QueuedRequest) -> Inputs:
        return input_arrays(self._definition, queued.request, self._executor) if queued.inputs is None else queued.inputs

    def _split_outputs(self, batch: Sequence[QueuedRequest], outputs: Arrays) -> Sequence[Any]:
        if len(batch) == 1:
            queued = batch[0]
            if queued.respond is not None:
                return (queued.respond(outputs),)
            return (make_response(self._definition, self._version, queued.request, outputs),)
        rows = sum(queued.batch_size for queued in batch)
        for name, array in outputs.items():
            if len(array) != rows:
                raise ProtocolError(
                    f"model '{self._definition.name}' returned {len(array)} rows of '{name}' for a batch of {rows}", ErrorKind.INTERNAL
                )
        responses, start = [], 0
        for queued in batch:
            end = start + queued.batch_size
            part = {name: array[start:end] for name, array in outputs.items()}
            responses.append(make_response(self._definition, self._version, queued.request, part))
            start = end
        return responses

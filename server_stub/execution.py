"""A batch executed: the requests' tensors joined, the model called, its outputs shared out. Runs in an instance's thread."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferResponse
from server_stub import inference
from server_stub.definition import ModelDefinition
from server_stub.executors.base import Arrays, Executor
from server_stub.line import Waiting
from server_stub.statistics import Timing


class Executed(NamedTuple):
    """What came of a batch: a response for each request, or one failure for all; then `timing` ends where that happened."""

    responses: Sequence[InferResponse]
    timing: Timing
    failure: ProtocolError | None = None


class BatchExecution:
    """Executes batches of checked requests."""

    def __init__(
        self, definition: ModelDefinition, version: str, executor: Executor, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._definition, self._version, self._executor, self._now_ns = definition, version, executor, now_ns

    def __call__(self, batch: Sequence[Waiting]) -> Executed:
        """Executes one batch; whatever the model raises is an answer."""
        instants_ns = [self._now_ns()]
        try:
            inputs = self._joined(batch)
            instants_ns.append(self._now_ns())
            outputs = self._executor.execute(inputs)
            instants_ns.append(self._now_ns())
            responses = self._shared_out(batch, outputs)
            return Executed(responses, Timing(instants_ns[0], instants_ns[1], instants_ns[2], self._now_ns()))
        except ProtocolError as error:  # the model's own sentence
            failure = error
        except Exception as error:  # noqa: BLE001 - a model's fault must not end the server
            failure = ProtocolError(f"model '{self._definition.name}' failed: {error}", ErrorKind.INTERNAL)
            failure.__cause__ = error
        end_ns = self._now_ns()
        return Executed((), Timing(instants_ns[0], end_ns, end_ns, end_ns), failure)

    def _joined(self, batch: Sequence[Waiting]) -> Arrays:
        parts = [{**inference.input_arrays(self._definition, waiting.request), **waiting.controls} for waiting in batch]
        return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _shared_out(self, batch: Sequence[Waiting], outputs: Arrays) -> Sequence[InferResponse]:
        if len(batch) == 1:
            return (inference.response(self._definition, self._version, batch[0].request, outputs),)
        rows = sum(waiting.batch_size for waiting in batch)
        for name, array in outputs.items():
            if len(array) != rows:
                raise ProtocolError(f"model '{self._definition.name}' gave {len(array)} rows of '{name}' for {rows}", ErrorKind.INTERNAL)
        responses, start = [], 0
        for waiting in batch:
            end = start + waiting.batch_size
            part = {name: array[start:end] for name, array in outputs.items()}
            responses.append(inference.response(self._definition, self._version, waiting.request, part))
            start = end
        return responses

"""A model that is being served: what it is, what executes it, and what it has done."""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest, InferResponse
from server_stub import inference
from server_stub.definition import ModelDefinition
from server_stub.executors.base import Executor
from server_stub.statistics import Statistics, Timing

_Answer = TypeVar("_Answer")


class Model(Protocol):
    """One loaded model, as the fronts see it."""

    definition: ModelDefinition
    version: str

    async def infer(self, request: InferRequest, arrived_ns: int, encode: Callable[[InferResponse], _Answer]) -> _Answer:
        """What a front makes of the response, by `encode`; raises ProtocolError where it does not fit the model or the model fails.

        `arrived_ns` is the instant of the monotonic clock at which all of the request was there.
        """
        ...

    def statistics(self) -> dict[str, Any]:
        """The model's entry in `model_stats`."""
        ...

    def close(self) -> None:
        """Drops what still waits; called in the event loop when the fronts are closed."""
        ...


class ExecutedModel:
    """A model with one instance: requests wait in line for its thread, so the event loop stays free."""

    def __init__(self, definition: ModelDefinition, executor: Executor) -> None:
        self.definition = definition
        self.version = definition.versions[-1]
        self._executor = executor
        self._statistics = Statistics()
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix=definition.name)

    async def infer(self, request: InferRequest, arrived_ns: int, encode: Callable[[InferResponse], _Answer]) -> _Answer:
        """See `Model.infer`; what it counts begins when the request joins the line."""
        batch_size = inference.check_request(self.definition, request)
        enqueued_ns = time.monotonic_ns()
        loop = asyncio.get_running_loop()
        return encode(await loop.run_in_executor(self._thread, self._execute, request, batch_size, enqueued_ns))

    def statistics(self) -> dict[str, Any]:
        """See `Model.statistics`."""
        return self._statistics.document(self.definition.name, self.version)

    def close(self) -> None:
        """See `Model.close`; returns when the thread has ended."""
        self._thread.shutdown(cancel_futures=True)

    def _execute(self, request: InferRequest, batch_size: int, enqueued_ns: int) -> InferResponse:
        started_ns = time.monotonic_ns()
        try:
            inputs = inference.input_arrays(self.definition, request)
            input_ready_ns = time.monotonic_ns()
            outputs = self._executor.execute(inputs)
            inferred_ns = time.monotonic_ns()
            response = inference.response(self.definition, self.version, request, outputs)
        except ProtocolError:  # the model's own sentence
            self._statistics.add_failure(time.monotonic_ns() - enqueued_ns)
            raise
        except Exception as error:  # whatever a model raises is an answer to its client, not the server's end
            self._statistics.add_failure(time.monotonic_ns() - enqueued_ns)
            raise ProtocolError(f"model '{self.definition.name}' failed: {error}", ErrorKind.INTERNAL) from error
        self._statistics.add_success(Timing(enqueued_ns, started_ns, input_ready_ns, inferred_ns, time.monotonic_ns()), batch_size)
        return response

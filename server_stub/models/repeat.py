"""`repeat_int32`: Triton's example of a decoupled model, which sends one response per value of its input."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

import numpy as np

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.override import override
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Datatype
from server_stub.executors.array import Arrays
from server_stub.inference.conversion import check_request, input_arrays, make_response
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.layouts import AnyRequest
from server_stub.inference.model import Model
from server_stub.scheduling.model_statistics import FailureReason, Timing
from server_stub.tracing.request_trace import RequestTrace

NAME = "repeat_int32"
_Encoded = TypeVar("_Encoded")
_IN, _OUT = TensorDefinition("IN", Datatype.INT32, (-1,)), TensorDefinition("OUT", Datatype.INT32, (1,))
_DELAY, _WAIT, _IDX = (TensorDefinition(name, Datatype.UINT32, dims) for name, dims in (("DELAY", (-1,)), ("WAIT", (1,)), ("IDX", (1,))))
_DEFINITION = ModelDefinition(NAME, "", "repeat", 0, (_IN, _DELAY, _WAIT), (_OUT, _IDX), is_decoupled=True)


class RepeatModel(Model):
    """Handles requests concurrently, without a queue. DELAY and WAIT are milliseconds."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__(_DEFINITION)
        self._sleep, self._now_ns = sleep, now_ns

    @override
    async def infer(
        self, request: AnyRequest, arrived_ns: int, encode: Callable[[InferResponse], _Encoded], trace: RequestTrace | None = None
    ) -> _Encoded:
        """Always raises, since there is no single response."""
        raise ProtocolError(f"model '{NAME}' is decoupled: its responses are only available on a stream", ErrorKind.UNSUPPORTED)

    @override
    async def responses(
        self, request: InferRequest, arrived_ns: int, trace: RequestTrace | None = None
    ) -> AsyncGenerator[InferResponse, None]:
        """OUT and its index IDX for each value of IN, each after its DELAY. The stream ends after WAIT."""
        check_request(self.definition, request)
        inputs = input_arrays(self.definition, request)
        if inputs["IN"].shape != inputs["DELAY"].shape:
            raise ProtocolError(f"expected IN and DELAY of the same shape, got {[*inputs['IN'].shape]} and {[*inputs['DELAY'].shape]}")
        with self.in_flight:
            async for response in self._repeated(request, inputs, trace):
                yield response

    async def _repeated(self, request: InferRequest, inputs: Arrays, trace: RequestTrace | None) -> AsyncGenerator[InferResponse, None]:
        enqueued_ns = self._now_ns()
        if trace is not None:
            trace.enqueue(NAME, self.version, request.id, enqueued_ns)
        try:
            for index, (value, delay_ms) in enumerate(zip(inputs["IN"], inputs["DELAY"].tolist(), strict=True)):
                await self._sleep(delay_ms / 1000)
                if trace is not None and trace.completed_ns is None:
                    trace.completed_ns = self._now_ns()
                outputs = {"OUT": np.array([value]), "IDX": np.array([index], np.uint32)}
                yield make_response(self.definition, self.version, request, outputs)
            await self._sleep(inputs["WAIT"].item() / 1000)
        except (asyncio.CancelledError, GeneratorExit):
            self._statistics.add_failure(self._now_ns() - enqueued_ns, FailureReason.CANCELED)
            raise
        finished_ns = self._now_ns()
        timing = Timing(enqueued_ns, enqueued_ns, finished_ns, finished_ns)
        self._statistics.add_execution(timing, [(enqueued_ns, 1)])
        if trace is not None:
            trace.compute = timing

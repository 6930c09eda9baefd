"""`repeat_int32`: Triton's example of a decoupled model, which answers a request with as many responses as its input has values."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

import numpy as np

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Datatype
from server_stub import inference
from server_stub.counted import CountedModel
from server_stub.definition import ModelDefinition, TensorDefinition
from server_stub.executors.base import Arrays
from server_stub.statistics import FailureReason, Timing

NAME = "repeat_int32"
_Answer = TypeVar("_Answer")
_DEFINITION = ModelDefinition(
    NAME,
    platform="",
    backend="repeat",
    max_batch_size=0,
    inputs=(
        TensorDefinition("IN", Datatype.INT32, (-1,)),
        TensorDefinition("DELAY", Datatype.UINT32, (-1,)),
        TensorDefinition("WAIT", Datatype.UINT32, (1,)),
    ),
    outputs=(TensorDefinition("OUT", Datatype.INT32, (1,)), TensorDefinition("IDX", Datatype.UINT32, (1,))),
    is_decoupled=True,
)


class RepeatModel(CountedModel):
    """A `server_stub.model.Model`; requests do not wait for each other. DELAY and WAIT are milliseconds."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__(_DEFINITION)
        self._sleep, self._now_ns = sleep, now_ns

    async def infer(self, request: InferRequest, arrived_ns: int, encode: Callable[[InferResponse], _Answer]) -> _Answer:
        """See `Model.infer`; it has no one answer."""
        raise ProtocolError(f"model '{NAME}' is decoupled: its responses come over a stream alone", ErrorKind.UNSUPPORTED)

    async def responses(self, request: InferRequest, arrived_ns: int) -> AsyncGenerator[InferResponse, None]:
        """See `Model.responses`: OUT and its index IDX for each value of IN, each after its DELAY, and an end after WAIT."""
        inference.check_request(self.definition, request)
        inputs = inference.input_arrays(self.definition, request)
        if inputs["IN"].shape != inputs["DELAY"].shape:
            raise ProtocolError(f"expected IN and DELAY of one shape, got {[*inputs['IN'].shape]} and {[*inputs['DELAY'].shape]}")
        with self._in_flight:
            async for response in self._repeated(request, inputs):
                yield response

    async def _repeated(self, request: InferRequest, inputs: Arrays) -> AsyncGenerator[InferResponse, None]:
        enqueued_ns = self._now_ns()
        try:
            for index, (value, delay_ms) in enumerate(zip(inputs["IN"], inputs["DELAY"].tolist(), strict=True)):
                await self._sleep(delay_ms / 1000)
                outputs = {"OUT": np.array([value]), "IDX": np.array([index], np.uint32)}
                yield inference.response(self.definition, self.version, request, outputs)
            await self._sleep(inputs["WAIT"].item() / 1000)
        except (asyncio.CancelledError, GeneratorExit):
            self._statistics.add_failure(self._now_ns() - enqueued_ns, FailureReason.CANCELED)
            raise
        finished_ns = self._now_ns()
        self._statistics.add_success(enqueued_ns, Timing(enqueued_ns, enqueued_ns, finished_ns, finished_ns), 1)

    def close(self) -> None:
        """See `Model.close`; the streams that its responses go to end with their front."""

"""The model `synthetic` as the fronts see it: an identity that answers when its declared queue says so."""

from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

from perfkit.errors import ProtocolError
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Datatype
from server_stub import inference
from server_stub.counted import CountedModel
from server_stub.definition import ModelDefinition, TensorDefinition
from server_stub.statistics import FailureReason, Timing
from server_stub.synthetic.batched_line import BatchedLine, Execution
from server_stub.synthetic.departures import Departures
from server_stub.synthetic.law import Law
from server_stub.synthetic.queue import DeclaredQueue, Passage

NAME = "synthetic"
_Answer = TypeVar("_Answer")
_DEFINITION = ModelDefinition(
    NAME,
    platform="",
    backend="synthetic",
    max_batch_size=64,
    inputs=(TensorDefinition("INPUT0", Datatype.FP32, (-1,)),),
    outputs=(TensorDefinition("OUTPUT0", Datatype.FP32, (-1,)),),
)


class SyntheticModel(CountedModel):
    """A `server_stub.model.Model` without a thread: that would be a second queue behind the declared one.

    The times of its statistics are the declared ones.
    """

    def __init__(self, law: Law) -> None:
        super().__init__(_DEFINITION)
        self._queue = DeclaredQueue(law)
        self._line = None if law.batch is None else BatchedLine(law, law.batch)
        self._lead_ns = law.lead_ns
        self._departures: Departures | None = None  # made with the first request, in whose loop it lives

    async def infer(self, request: InferRequest, arrived_ns: int, encode: Callable[[InferResponse], _Answer]) -> _Answer:
        """See `Model.infer`; reading the request, checking it and encoding its answer are part of its service time."""
        batch_size = inference.check_request(self.definition, request)
        arrays = inference.input_arrays(self.definition, request)
        answer = encode(inference.response(self.definition, self.version, request, {"OUTPUT0": arrays["INPUT0"]}))
        with self._in_flight:
            passage = await self._pass(arrived_ns, batch_size)
        if passage.failure is not None:
            self._statistics.add_failure(passage.departed_ns - arrived_ns, FailureReason.BACKEND)
            raise ProtocolError(f"model '{NAME}' failed, as its law declares for a share of requests", passage.failure)
        return answer

    async def _pass(self, arrived_ns: int, batch_size: int) -> Passage:
        """Brings a request through the queue, and counts."""
        if self._departures is None:
            self._departures = Departures()
        departures = self._departures
        if self._line is None:
            passage, execution = self._queue.arrive(arrived_ns, batch_size), Execution(1)
        else:
            passage, execution = await self._line.serve(arrived_ns, batch_size)
        departs = False
        try:
            await departures.wait(passage.departed_ns - self._lead_ns)
            departs = True
        finally:
            execution.leave((arrived_ns, batch_size) if departs and passage.failure is None else None)
            if execution.is_over and execution.answered:
                timing = Timing(passage.started_ns, passage.started_ns, passage.departed_ns, passage.departed_ns)
                self._statistics.add_execution(timing, execution.answered)
        return passage

    async def responses(self, request: InferRequest, arrived_ns: int) -> AsyncGenerator[InferResponse, None]:
        """See `Model.responses`."""
        yield await self.infer(request, arrived_ns, lambda response: response)

    @property
    def pending(self) -> int:
        """See `Model.pending`; one by one it is declared on arrival when a request is served, and nobody waits."""
        return 0 if self._line is None else self._line.pending

    def close(self) -> None:
        """Ends the waiting of those who have not departed yet."""
        if self._departures is not None:
            self._departures.close()
        if self._line is not None:
            self._line.close()

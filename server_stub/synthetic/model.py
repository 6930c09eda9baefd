"""The model `synthetic`: returns its input, at the time that its simulated queue gives."""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.override import override
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Datatype
from server_stub.inference.conversion import check_request, input_arrays, make_response
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.layouts import AnyRequest, whole_request
from server_stub.inference.model import Model
from server_stub.scheduling.model_statistics import FailureReason, Timing
from server_stub.synthetic.dispatch import BatchDispatcher, DepartureTimer, Execution
from server_stub.synthetic.service_model import ServiceModel
from server_stub.synthetic.simulated_queue import ServedRequest, SimulatedQueue
from server_stub.tracing.request_trace import RequestTrace

NAME = "synthetic"
_Encoded = TypeVar("_Encoded")
_INPUTS, _OUTPUTS = ((TensorDefinition(tensor, Datatype.FP32, (-1,)),) for tensor in ("INPUT0", "OUTPUT0"))
_DEFINITION = ModelDefinition(NAME, "", "synthetic", 64, _INPUTS, _OUTPUTS)


class SyntheticModel(Model):
    """Runs on the event loop, because a thread would add a second queue behind the simulated one.

    Its statistics report the simulated times.
    """

    def __init__(self, service_model: ServiceModel, make_departures: Callable[[], DepartureTimer] = DepartureTimer) -> None:
        super().__init__(dataclasses.replace(_DEFINITION, is_decoupled=service_model.responses is not None))
        self.text = service_model.text
        self._queue = SimulatedQueue(service_model)
        self._batches = None if service_model.batch is None else BatchDispatcher(service_model, service_model.batch)
        self._responses, self._gap_ns, self._lead_ns = service_model.responses, service_model.gap_ns, service_model.lead_ns
        self._counts_left, self._left = service_model.counts_left, set[asyncio.Task[None]]()
        self._make_departures = make_departures
        self._departures: DepartureTimer | None = None  # made with the first request, in its event loop

    @override
    async def infer(
        self, request: AnyRequest, arrived_ns: int, encode: Callable[[InferResponse], _Encoded], trace: RequestTrace | None = None
    ) -> _Encoded:
        """The simulated service time includes decoding, checking and encoding."""
        if self.definition.is_decoupled:
            raise ProtocolError(f"model '{NAME}' is decoupled: its responses are only available on a stream", ErrorKind.UNSUPPORTED)
        whole = whole_request(request)
        batch_size, response = self._answer(whole)
        encoded = encode(response)
        with self.in_flight:
            await self.serve(arrived_ns, batch_size, whole.id, trace)
        return encoded

    @override
    async def responses(
        self, request: InferRequest, arrived_ns: int, trace: RequestTrace | None = None
    ) -> AsyncGenerator[InferResponse, None]:
        """The first response departs as a single one would, and each other one a gap after the one before."""
        if self._responses is None:
            yield await self.infer(request, arrived_ns, lambda response: response, trace)
            return
        batch_size, response = self._answer(request)
        with self.in_flight:
            served = await self.serve(arrived_ns, batch_size, request.id, trace)
            for number in range(self._responses):
                await self.wait_for_response(served, number)
                yield response

    def _answer(self, request: InferRequest) -> tuple[int, InferResponse]:
        """The batch size, and the response; raises ProtocolError for a wrong request."""
        batch_size = check_request(self.definition, request)
        arrays = input_arrays(self.definition, request)
        return batch_size, make_response(self.definition, self.version, request, {"OUTPUT0": arrays["INPUT0"]})

    async def serve(self, arrived_ns: int, batch_size: int, request_id: str, trace: RequestTrace | None) -> ServedRequest:
        """Wait for the simulated departure, within `in_flight`. A trace gets the simulated times. Raises the failure that the service model specifies."""
        served = await self._serve(arrived_ns, batch_size)
        if trace is not None:
            trace.enqueue(NAME, self.version, request_id, arrived_ns)
            trace.compute = (served.started_ns, served.started_ns, served.departed_ns, served.departed_ns)
            trace.completed_ns = served.departed_ns
        if served.failure is not None:
            reason = FailureReason.REJECTED if served.is_refused else FailureReason.BACKEND
            self._statistics.add_failure(served.departed_ns - arrived_ns, reason)
            if served.is_refused:
                raise ProtocolError(f"model '{NAME}' refuses the request: its queue is full", served.failure)
            raise ProtocolError(f"model '{NAME}' failed, as its service model specifies for a share of requests", served.failure)
        return served

    async def wait_for_response(self, served: ServedRequest, number: int) -> None:
        """Wait until one of several responses to a served request is due; the first is number 0."""
        if number and self._departures is not None:
            await self._departures.wait(served.departed_ns + number * self._gap_ns - self._lead_ns)

    async def _serve(self, arrived_ns: int, batch_size: int) -> ServedRequest:
        """Wait for the simulated departure, and update the statistics."""
        if self._departures is None:
            self._departures = self._make_departures()
        departures = self._departures
        if self._batches is None:
            served, execution = self._queue.arrive(arrived_ns, batch_size), Execution(1)
        else:
            served, execution = await self._batches.serve(arrived_ns, batch_size)
        try:
            await departures.wait(served.departed_ns - self._lead_ns)
        except asyncio.CancelledError:
            if self._counts_left:
                task = asyncio.ensure_future(self._end_left(departures, served, execution, batch_size))
                self._left.add(task)
                task.add_done_callback(self._left.discard)
            else:
                self._end(served, execution, None)
            raise
        self._end(served, execution, batch_size)
        return served

    async def _end_left(self, departures: DepartureTimer, served: ServedRequest, execution: Execution, batch_size: int) -> None:
        """Count a request whose client has left at its simulated departure."""
        await departures.wait(served.departed_ns)
        self._end(served, execution, batch_size)

    def _end(self, served: ServedRequest, execution: Execution, batch_size: int | None) -> None:
        """Update the statistics; without a batch size the request is not counted."""
        execution.end_request((served.arrived_ns, batch_size) if batch_size is not None and served.failure is None else None)
        if execution.is_over and execution.succeeded:
            timing = Timing(served.started_ns, served.started_ns, served.departed_ns, served.departed_ns)
            self._statistics.add_execution(timing, execution.succeeded)

    @property
    @override
    def pending(self) -> int:
        """Without batches it is 0, because each request's times are fixed on arrival."""
        return 0 if self._batches is None else self._batches.pending

    @override
    def close(self) -> None:
        if self._departures is not None:
            self._departures.close()
        if self._batches is not None:
            self._batches.close()

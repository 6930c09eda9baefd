"""The base class of every served model, with its limit on requests in flight and its statistics."""

import abc
import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest, InferResponse
from server_stub.inference.definition import ModelDefinition
from server_stub.inference.layouts import AnyRequest, RepeatedRequest
from server_stub.inference.repeated_responses import AnyResponse, Write
from server_stub.scheduling.model_statistics import FailureReason, Statistics
from server_stub.tracing.request_trace import RequestTrace

_Encoded = TypeVar("_Encoded")


class InFlightRequests:
    """Counts a model's requests waiting or being executed, up to `maximum`; further ones are rejected. Use it as a `with` block around each request, in one event loop."""

    def __init__(self, maximum: int = sys.maxsize) -> None:
        self.maximum = maximum
        self._count = 0
        self._drained: asyncio.Event | None = None

    def __enter__(self) -> None:
        """Raises ProtocolError if the maximum is reached."""
        if self._count >= self.maximum:
            raise ProtocolError("Exceeds maximum queue size", ErrorKind.UNAVAILABLE)
        self._count += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._count -= 1
        if not self._count and self._drained is not None:
            self._drained.set()

    async def drain(self) -> None:
        """Wait until no request is left. No new ones may arrive meanwhile."""
        if self._count:
            self._drained = asyncio.Event()
            await self._drained.wait()


class Model(abc.ABC):
    """One version of a loaded model, as the front ends see it."""

    def __init__(self, definition: ModelDefinition, version: str = "") -> None:
        self.definition = definition
        self.version = version or definition.versions[-1]
        self._statistics, self.in_flight = Statistics(), InFlightRequests()

    @abc.abstractmethod
    async def infer(
        self, request: AnyRequest, arrived_ns: int, encode: Callable[[InferResponse], _Encoded], trace: RequestTrace | None = None
    ) -> _Encoded:
        """The response, encoded by `encode`. Raises ProtocolError if the request does not fit the model or the model fails.

        `arrived_ns` is the monotonic time at which the whole request had been received. A `trace` gets the instants of the request.
        """

    @property
    def never_waits(self) -> bool:
        """Whether `infer_at_once` may be called; never for decoupled models. It may change from request to request."""
        return False

    def infer_at_once(self, request: RepeatedRequest, encode: Callable[[AnyResponse], _Encoded], write: Write) -> _Encoded:
        """Returns what `infer` would, and raises as it does, without waiting. `encode` gets repeated responses with what `write` returned of them.

        Call it only while `never_waits`.
        """
        raise AssertionError("this model may wait")

    async def responses(
        self, request: InferRequest, arrived_ns: int, trace: RequestTrace | None = None
    ) -> AsyncGenerator[InferResponse, None]:
        """All responses of a request, each as soon as it is ready: exactly one unless the model is decoupled. Raises as `infer` does."""
        yield await self.infer(request, arrived_ns, lambda response: response, trace)

    async def drain(self) -> None:
        """Wait until all requests are answered; no new ones may arrive meanwhile."""
        await self.in_flight.drain()

    def close(self) -> None:  # noqa: B027 - a model may have nothing to close
        """Fail the requests still waiting. Called in the event loop, once the front ends are closed."""

    @property
    def execution(self) -> dict[str, Any] | None:
        """How its executor executes it, for the ready line; None if that reports nothing."""
        return None

    @property
    def pending(self) -> int:
        """The number of requests waiting for execution."""
        return 0

    def statistics(self) -> dict[str, Any]:
        """The model's entry in `model_stats`."""
        return self._statistics.document(self.definition.name, self.version)

    @property
    def failures(self) -> Mapping[FailureReason, int]:
        """Failed requests by reason, which `model_stats` does not distinguish."""
        return self._statistics.failures

"""The interface of a model's request queue, and the plain first-in, first-out queue. Time is passed in: no clock, no threads."""

import asyncio
import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.override import override
from perfkit.protocol.message import InferRequest, InferResponse
from server_stub.tracing.request_trace import RequestTrace


@dataclasses.dataclass(slots=True, eq=False)
class QueuedRequest:
    """A request waiting for an instance of its model."""

    request: InferRequest
    batch_size: int
    enqueued_ns: int
    trace: RequestTrace | None = None
    inputs: Mapping[str, Any] | None = None
    """The model's inputs as arrays, which `request` may lack; None if they are read from it when it is executed."""
    respond: Callable[[Mapping[str, Any]], Any] | None = None
    """Makes its response from the model's outputs, in place of `make_response`. Only for requests that are executed alone."""
    is_queued: bool = False
    """Whether it is in the queue. Set by the scheduler, like `outcome` and `waiter`."""
    outcome: InferResponse | ProtocolError | None = None
    """Its response, or why it has none; None as long as neither is known."""
    waiter: asyncio.Future[None] | None = None
    """Done once there is an outcome, where that was not there at once."""
    controls: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The values of the control inputs of a sequence, by input name."""
    deadline_ns: int | None = None
    level: Any = None
    """The priority level it is queued at. Used by the queue only, like `sequence`."""
    sequence: Any = None
    is_delayed: bool = False
    """Whether it missed its deadline and now waits behind all others."""
    is_cancelled: bool = False
    """Whether its client has disconnected. Queues skip it."""


class Selection(NamedTuple):
    """The batch to execute now, the requests that timed out, and when to ask again if no new request arrives."""

    batch: Sequence[QueuedRequest] = ()
    rejected: Sequence[QueuedRequest] = ()
    wake_ns: int | None = None


class RequestQueue(Protocol):
    """The waiting requests of a model, and the order in which they are served. Times are monotonic nanoseconds."""

    never_waits: bool = False
    """Whether a request that finds an instance idle is always the next batch, so that it need not join the queue."""

    def add(self, queued: QueuedRequest, now_ns: int) -> None:
        """Add a request. Raises ProtocolError if the queue is full or does not accept it."""

    def select(self, now_ns: int, instance: int) -> Selection:
        """Remove and return the next batch for an idle instance. The batch is empty if none is ready."""

    def discard(self, queued: QueuedRequest) -> None:
        """Drop a request that is still in the queue."""

    def finish(self, batch: Sequence[QueuedRequest], now_ns: int) -> None:
        """Record that a selected batch has been executed."""

    def stop_delaying(self) -> None:
        """No request follows: those that wait for others to fill their batch need not wait any longer."""

    def __len__(self) -> int:
        """The number of waiting requests."""


class FifoQueue(RequestQueue):
    """First in, first out, one request at a time."""

    never_waits = True

    def __init__(self) -> None:
        self._waiting: collections.deque[QueuedRequest] = collections.deque()
        self._count = 0

    @override
    def add(self, queued: QueuedRequest, now_ns: int) -> None:
        self._waiting.append(queued)
        self._count += 1

    @override
    def select(self, now_ns: int, instance: int) -> Selection:
        while self._waiting:
            queued = self._waiting.popleft()
            if not queued.is_cancelled:
                self._count -= 1
                return Selection((queued,))
        return Selection()

    @override
    def discard(self, queued: QueuedRequest) -> None:
        queued.is_cancelled = True
        self._count -= 1

    @override
    def finish(self, batch: Sequence[QueuedRequest], now_ns: int) -> None:
        """Nothing waits for it here."""

    @override
    def stop_delaying(self) -> None:
        """No request waits for others."""

    def __len__(self) -> int:
        return self._count


def have_same_shapes(first: QueuedRequest, second: QueuedRequest, names: frozenset[str]) -> bool:
    """Whether the named inputs of both requests have the same shapes, without the batch dimension."""
    if not names:
        return True
    shapes, others = (
        {tensor.name: tensor.shape[1:] for tensor in queued.request.inputs if tensor.name in names} for queued in (first, second)
    )
    return shapes == others


def queue_full_error(request: InferRequest) -> ProtocolError:
    """The error for a request that a full queue rejects."""
    return ProtocolError(f"[request id: {request.id or '<id_unknown>'}] Exceeds maximum queue size", ErrorKind.UNAVAILABLE)

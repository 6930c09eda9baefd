"""The scheduler: hands queued requests to idle model instances and returns their responses.

It runs in the event loop. Only instances may be threads.
"""

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.override import override
from perfkit.protocol.message import InferResponse
from server_stub.scheduling.alarm import Alarm, MakeAlarm, make_alarm
from server_stub.scheduling.model_statistics import FailureReason, Statistics, Timing
from server_stub.scheduling.request_queue import QueuedRequest, RequestQueue


class BatchResult(NamedTuple):
    """The responses of a batch in the order of its requests, or one failure for all of them, with which `timing` ends.

    A response is an InferResponse, or what the request's `respond` returned.
    """

    responses: Sequence[Any]
    timing: Timing
    failure: ProtocolError | None = None


class Execution(Protocol):
    """Executes batches in two steps, so that a GPU can be given the next batch at once, and waited for in a thread."""

    def begin_at_once(self, batch: Sequence[QueuedRequest]) -> Any:
        """Begin a batch if that takes only microseconds; None if it does not."""

    def begin(self, batch: Sequence[QueuedRequest]) -> Any:
        """Begin a batch. What fails is for `finish` to tell."""

    def finish(self, begun: Any) -> BatchResult:
        """Wait for a batch that has begun."""


class Instances(Protocol):
    """The instances of a model, which execute batches."""

    count: int
    """The number of batches executed at a time."""
    prefetch_count: int
    """The number of further batches accepted meanwhile, so that an instance need not wait for the event loop between two."""
    never_waits: bool = False
    """Whether no batch ever waits for an idle instance, because the event loop itself executes each batch by `execute`."""

    def start(self, batch: Sequence[QueuedRequest], on_finished: Callable[[BatchResult], None]) -> None:
        """Start executing a batch. `on_finished` is called in the event loop with its result."""

    def execute(self, batch: Sequence[QueuedRequest]) -> BatchResult:
        """Execute a batch, and return its result. Only instances with `never_waits` do this."""
        raise AssertionError("these instances may be busy")

    def close(self) -> None:
        """Wait until nothing is being executed."""


class InlineInstance(Instances):
    """One instance on the event loop, for models that execute faster than a thread wakes up."""

    never_waits = True

    def __init__(self, execution: Execution) -> None:
        self.count, self.prefetch_count = 1, 0
        self._execution = execution

    @override
    def start(self, batch: Sequence[QueuedRequest], on_finished: Callable[[BatchResult], None]) -> None:
        """The batch has been executed when this returns."""
        on_finished(self.execute(batch))

    @override
    def execute(self, batch: Sequence[QueuedRequest]) -> BatchResult:
        return self._execution.finish(self._execution.begin(batch))

    @override
    def close(self) -> None:
        """Nothing is executed beside the event loop."""


class ThreadInstances(Instances):
    """Instances as threads, `count` of them."""

    def __init__(
        self, count: int, execution: Execution, name: str, *, prefetch_count: int = 0, prepare: Callable[[], None] | None = None
    ) -> None:
        """`prepare` is called once in each thread, and its exceptions are raised here."""
        self.count, self.prefetch_count = count, prefetch_count
        self._execution, self._unfinished = execution, 0
        self._threads = concurrent.futures.ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)
        if prepare is not None:
            started = threading.Barrier(count)  # so that no thread takes the preparation of another one
            try:
                list(self._threads.map(lambda _: (started.wait(), prepare()), range(count)))
            except BaseException:
                self._threads.shutdown()
                raise

    @override
    def start(self, batch: Sequence[QueuedRequest], on_finished: Callable[[BatchResult], None]) -> None:
        """A batch begins in the event loop if an instance is free and that takes only microseconds."""
        begun = self._execution.begin_at_once(batch) if self._unfinished < self.count else None
        self._unfinished += 1

        def finish(result: BatchResult) -> None:
            self._unfinished -= 1
            on_finished(result)

        self._threads.submit(self._run, batch, begun, asyncio.get_running_loop(), finish)

    @override
    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _run(
        self, batch: Sequence[QueuedRequest], begun: Any, loop: asyncio.AbstractEventLoop, on_finished: Callable[[BatchResult], None]
    ) -> None:
        result = self._execution.finish(self._execution.begin(batch) if begun is None else begun)
        if not loop.is_closed():  # otherwise the server has ended and nobody waits for the result
            loop.call_soon_threadsafe(on_finished, result)


class Scheduler:
    """Starts the batches that the queue selects on idle instances, and keeps the model's statistics."""

    def __init__(
        self,
        queue: RequestQueue,
        instances: Instances,
        statistics: Statistics,
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
        make_alarm: MakeAlarm = make_alarm,
    ) -> None:
        self._queue, self._instances, self._statistics, self._now_ns, self._make_alarm = queue, instances, statistics, now_ns, make_alarm
        self.never_waits = instances.never_waits and queue.never_waits
        """Whether the event loop executes each request at once, by `execute`."""
        self._idle = list(reversed(range(instances.count + instances.prefetch_count)))
        self._is_dispatching = self._is_closed = False
        self._alarm: Alarm | None = None  # made in the loop, and only if the queue lets requests wait
        self._waiting: set[QueuedRequest] = set()  # for their outcome

    @property
    def pending(self) -> int:
        """The number of requests waiting for execution."""
        return len(self._queue) + max(0, self._instances.prefetch_count - len(self._idle))

    async def submit(self, queued: QueuedRequest) -> InferResponse:
        """The response to a checked request, which is executed at once if nothing ever waits here, and is otherwise queued and waited for.

        Raises ProtocolError if it is rejected or the model fails.
        """
        if self.never_waits:
            return cast("InferResponse", self.execute(queued))
        self._queue.add(queued, queued.enqueued_ns)
        queued.is_queued = True
        self._dispatch()
        if queued.outcome is None:
            await self._wait(queued)
        if isinstance(queued.outcome, ProtocolError):
            raise queued.outcome
        assert queued.outcome is not None, "it was waited for"
        return queued.outcome

    def execute(self, queued: QueuedRequest) -> Any:
        """Execute a checked request now, and return its response; see `BatchResult`. Raises ProtocolError if the model fails.

        Call it only while `never_waits`.
        """
        result = self._instances.execute((queued,))
        timing = result.timing
        if queued.trace is not None:
            queued.trace.compute = timing
        if result.failure is not None:
            self._statistics.add_failure(timing.finished_ns - queued.enqueued_ns, FailureReason.BACKEND)
            raise result.failure
        self._statistics.add_execution(timing, ((queued.enqueued_ns, queued.batch_size),))
        return result.responses[0]

    def stop_delaying(self) -> None:
        """Start what waits for others to fill its batch, since none follow."""
        self._queue.stop_delaying()
        self._dispatch()

    def close(self) -> None:
        """Fail all requests in flight, and wait until nothing is being executed."""
        self._is_closed, self.never_waits = True, False
        if self._alarm is not None:
            self._alarm.close()
        for queued in tuple(self._waiting):
            if queued.waiter is not None and not queued.waiter.get_loop().is_closed():
                _settle(queued, ProtocolError("the server is shutting down", ErrorKind.UNAVAILABLE))
        self._instances.close()

    async def _wait(self, queued: QueuedRequest) -> None:
        """Wait for the outcome of a request. If it is cancelled, it leaves the queue."""
        queued.waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(queued)
        try:
            await queued.waiter
        except asyncio.CancelledError:
            if queued.is_queued:
                queued.is_queued = False
                self._queue.discard(queued)
                self._statistics.add_failure(self._now_ns() - queued.enqueued_ns, FailureReason.CANCELED)
            raise
        finally:
            self._waiting.discard(queued)

    def _dispatch(self) -> None:
        if self._is_dispatching or self._is_closed:  # an inline instance finishes, and calls this, from within _start
            return
        self._is_dispatching = True
        try:
            self._start_ready_batches()
        finally:
            self._is_dispatching = False

    def _start_ready_batches(self) -> None:
        without_batch = 0  # idle instances that the queue has no batch for
        while without_batch < len(self._idle) and len(self._queue):
            instance, now_ns = self._idle[-1 - without_batch], self._now_ns()
            selection = self._queue.select(now_ns, instance)
            for queued in selection.rejected:
                self._reject(queued, now_ns)
            if selection.batch:
                self._idle.remove(instance)
                self._start(selection.batch, instance)
                without_batch = 0
                continue
            without_batch += 1
            if selection.wake_ns is not None:
                if self._alarm is None:
                    self._alarm = self._make_alarm(asyncio.get_running_loop(), self._dispatch)
                self._alarm.set(selection.wake_ns)

    def _start(self, batch: Sequence[QueuedRequest], instance: int) -> None:
        for queued in batch:
            assert queued.is_queued, "the queue selected a request that had left it"
            queued.is_queued = False

        def on_finished(result: BatchResult) -> None:
            self._finish(batch, result)
            self._idle.append(instance)
            self._dispatch()

        self._instances.start(batch, on_finished)

    def _reject(self, queued: QueuedRequest, now_ns: int) -> None:
        queued.is_queued = False
        self._statistics.add_failure(now_ns - queued.enqueued_ns, FailureReason.REJECTED)
        _settle(queued, ProtocolError("Request timeout expired", ErrorKind.UNAVAILABLE))

    def _finish(self, batch: Sequence[QueuedRequest], result: BatchResult) -> None:
        self._queue.finish(batch, result.timing.finished_ns)
        if result.failure is None:
            self._statistics.add_execution(result.timing, [(queued.enqueued_ns, queued.batch_size) for queued in batch])
        for index, queued in enumerate(batch):
            if result.failure is not None:
                self._statistics.add_failure(result.timing.finished_ns - queued.enqueued_ns, FailureReason.BACKEND)
            if queued.trace is not None:
                queued.trace.compute = result.timing
            _settle(queued, result.responses[index] if result.failure is None else result.failure)


def _settle(queued: QueuedRequest, outcome: InferResponse | ProtocolError) -> None:
    """Set the outcome of a request, unless it has one."""
    if queued.outcome is None:
        queued.outcome = outcome
        if queued.waiter is not None and not queued.waiter.done():  # its client may have disconnected
            queued.waiter.set_result(None)

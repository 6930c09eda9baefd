"""Requests brought to a model's instances: a line before them, an alarm for batches that wait, futures for the answers.

All of it happens in the event loop; the instances alone are threads.
"""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferResponse
from server_stub.execution import Executed
from server_stub.line import Line, Waiting
from server_stub.statistics import FailureReason, Statistics
from server_stub.timer import Alarm, MakeAlarm, make_alarm


class Instances(Protocol):
    """What executes batches, several at a time."""

    count: int
    """How many batches are executed at a time."""
    ahead: int
    """How many more it takes, so that it need not wait for the event loop between two."""

    def start(self, batch: Sequence[Waiting], ended: Callable[[Executed], None]) -> None:
        """Begins to execute a batch; calls `ended` in the event loop when that is done."""
        ...

    def close(self) -> None:
        """Returns when nothing is being executed any more."""
        ...


class InlineInstances:
    """An instance within the event loop, for models that take less time than it takes to wake a thread."""

    def __init__(self, execute: Callable[[Sequence[Waiting]], Executed]) -> None:
        self.count, self.ahead = 1, 0
        self._execute = execute

    def start(self, batch: Sequence[Waiting], ended: Callable[[Executed], None]) -> None:
        """See `Instances.start`; it has ended by the time that this returns."""
        ended(self._execute(batch))

    def close(self) -> None:
        """See `Instances.close`."""


class ThreadInstances:
    """Instances of a model as threads."""

    def __init__(self, count: int, execute: Callable[[Sequence[Waiting]], Executed], name: str, *, ahead: int = 0) -> None:
        self.count, self.ahead = count, ahead
        self._execute = execute
        self._threads = concurrent.futures.ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)

    def start(self, batch: Sequence[Waiting], ended: Callable[[Executed], None]) -> None:
        """See `Instances.start`."""
        self._threads.submit(self._run, batch, asyncio.get_running_loop(), ended)

    def close(self) -> None:
        """See `Instances.close`."""
        self._threads.shutdown(cancel_futures=True)

    def _run(self, batch: Sequence[Waiting], loop: asyncio.AbstractEventLoop, ended: Callable[[Executed], None]) -> None:
        executed = self._execute(batch)
        if not loop.is_closed():  # nobody waits for what is executed beyond the server's end
            loop.call_soon_threadsafe(ended, executed)


class Scheduler:
    """Gives idle instances what the line says, and counts."""

    def __init__(
        self,
        line: Line,
        instances: Instances,
        statistics: Statistics,
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
        make_alarm: MakeAlarm = make_alarm,
    ) -> None:
        self._line, self._instances, self._statistics, self._now_ns, self._make_alarm = line, instances, statistics, now_ns, make_alarm
        self._idle = list(reversed(range(instances.count + instances.ahead)))
        self._is_dispatching = self._is_closed = False
        self._alarm: Alarm | None = None  # made in the loop, and only for lines that let requests wait
        self._in_flight: set[asyncio.Future[InferResponse]] = set()

    @property
    def pending(self) -> int:
        """How many requests wait for their execution."""
        return len(self._line) + max(0, self._instances.ahead - len(self._idle))

    async def submit(self, waiting: Waiting) -> InferResponse:
        """Executes a checked request in its turn; raises ProtocolError where it is refused or the model fails."""
        future: asyncio.Future[InferResponse] = asyncio.get_running_loop().create_future()
        waiting.context = future
        self._line.add(waiting, waiting.enqueued_ns)
        self._in_flight.add(future)
        try:
            self._dispatch()
            return await future
        except asyncio.CancelledError:
            if waiting.context is not None:
                waiting.context = None
                self._line.discard(waiting)
                self._statistics.add_failure(self._now_ns() - waiting.enqueued_ns, FailureReason.CANCELED)
            raise
        finally:
            self._in_flight.discard(future)

    def close(self) -> None:
        """Drops what waits, and returns when nothing is being executed any more."""
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.close()
        for future in tuple(self._in_flight):
            if not future.done() and not future.get_loop().is_closed():
                future.set_exception(ProtocolError("the server is shutting down", ErrorKind.UNAVAILABLE))
        self._instances.close()

    def _dispatch(self) -> None:
        if self._is_dispatching or self._is_closed:  # what ends at once calls this from within
            return
        self._is_dispatching = True
        try:
            self._take_all()
        finally:
            self._is_dispatching = False

    def _take_all(self) -> None:
        refused = 0  # idle instances for which the line has nothing
        while refused < len(self._idle) and len(self._line):
            instance, now_ns = self._idle[-1 - refused], self._now_ns()
            taken = self._line.take(now_ns, instance)
            for waiting in taken.rejected:
                self._reject(waiting, now_ns)
            if taken.batch:
                self._idle.remove(instance)
                self._start(taken.batch, instance)
                refused = 0
                continue
            refused += 1
            if taken.wake_ns is not None:
                if self._alarm is None:
                    self._alarm = self._make_alarm(asyncio.get_running_loop(), self._dispatch)
                self._alarm.set(taken.wake_ns)

    def _start(self, batch: Sequence[Waiting], instance: int) -> None:
        futures = []
        for waiting in batch:
            futures.append(waiting.context)
            waiting.context = None  # it is in line no more

        def ended(executed: Executed) -> None:
            self._finish(batch, futures, executed)
            self._idle.append(instance)
            self._dispatch()

        self._instances.start(batch, ended)

    def _reject(self, waiting: Waiting, now_ns: int) -> None:
        future, waiting.context = waiting.context, None
        self._statistics.add_failure(now_ns - waiting.enqueued_ns, FailureReason.REJECTED)
        if not future.done():
            future.set_exception(ProtocolError("Request timeout expired", ErrorKind.UNAVAILABLE))

    def _finish(self, batch: Sequence[Waiting], futures: "Sequence[asyncio.Future[InferResponse]]", executed: Executed) -> None:
        self._line.executed(batch, executed.timing.finished_ns)
        if executed.failure is None:
            self._statistics.add_execution(executed.timing, [(waiting.enqueued_ns, waiting.batch_size) for waiting in batch])
        for index, (waiting, future) in enumerate(zip(batch, futures, strict=True)):
            if executed.failure is not None:
                self._statistics.add_failure(executed.timing.finished_ns - waiting.enqueued_ns, FailureReason.BACKEND)
            if future.done():  # its client may have left
                continue
            if executed.failure is not None:
                future.set_exception(executed.failure)
            else:
                future.set_result(executed.responses[index])

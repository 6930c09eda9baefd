"""The workers of one load point as processes on this machine: started together, supervised, and their recordings merged."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence

from perfkit.clock import Clock
from perfkit.errors import MeasurementError, PerfkitError, TargetError
from perfkit.load.loop import StopCause
from perfkit.load.tasks import run_with_side_tasks
from perfkit.process.child import Child
from perfkit.process.start_module import start_module
from perfkit.recorder.recent import LiveFigures
from perfkit.recorder.recording import Interval
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Begin, Crashed, Logged, Ready, Stop
from perfkit.workers.point_recording import PointRecording, merge_points
from perfkit.workers.worker_spec import MixSpec, WorkerSpec

_MODULE = "perfkit.workers.worker_process"
# how far ahead the common start lies: time for every process to receive it
_LEAD_NS = NS_PER_S // 5
_MAX_SILENCE_NS, _STARTS_WITHIN_NS = 10 * NS_PER_S, 120 * NS_PER_S
_ENDS_WITHIN_S = 5


@dataclasses.dataclass
class _Worker:
    """The state of a worker process."""

    number: int
    child: Child
    heard_ns: int
    """The instant of its last message, or of its start."""
    has_reported: bool = False
    is_ready: bool = False
    intervals: list[tuple[int, Interval]] = dataclasses.field(default_factory=list)
    point: PointRecording | None = None
    error: PerfkitError | None = None
    lost: str = ""
    """Why its recording is missing."""

    @property
    def has_ended(self) -> bool:
        return bool(self.point or self.error or self.lost)


@dataclasses.dataclass(eq=False)
class LocalWorkers:
    """The running workers of one load point."""

    _workers: Sequence[_Worker]
    _clock: Clock
    _on_interval: Callable[[int, Interval], None]
    _on_lost_interval: Callable[[int, Interval], None]
    _on_received: Callable[[Interval], None]
    _on_live: Callable[[LiveFigures], None]

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self._stopped: Stop | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids, in the workers' order."""
        return tuple(worker.child.pid for worker in self._workers)

    def stop(self, reason: str, cause: StopCause = StopCause.INTERRUPTED, *, drain: bool = True) -> None:
        """Ends the point in every worker; see `Loop.stop`."""
        self._stopped = Stop(reason, cause, drain)
        self._changed.set()
        for worker in self._workers:
            worker.child.send(self._stopped)

    async def run(self) -> PointRecording:
        """Begins in all workers at once, and merges their recordings.

        A worker that dies, or is silent for ten seconds, is named in the recording, and the others go on. Raises the
        error of a worker that could not measure; MeasurementError if no recording is left; if the point is stopped before it has
        begun, TargetError for a lost target and CancelledError otherwise.
        """
        return await run_with_side_tasks(self._run(), self._detect_silence(), *(self._listen(worker) for worker in self._workers))

    async def _run(self) -> PointRecording:
        await self._until(lambda: bool(self._stopped) or all(worker.is_ready or worker.has_ended for worker in self._workers))
        self._raise_errors()
        if self._stopped:  # nothing was measured
            raise TargetError(self._stopped.reason) if self._stopped.cause is StopCause.TARGET_LOST else asyncio.CancelledError
        begin = Begin(self._clock.now_ns() + _LEAD_NS)
        for worker in self._workers:
            worker.child.send(begin)
        await self._until(lambda: all(worker.has_ended for worker in self._workers))
        self._raise_errors()
        for worker in self._workers:  # not earlier: the log holds exactly the requests that the figures hold
            for interval in worker.intervals:
                (self._on_interval if worker.point else self._on_lost_interval)(*interval)
        lost = [worker.lost for worker in self._workers if worker.lost]
        points = [worker.point for worker in self._workers if worker.point]
        if not points:
            raise MeasurementError(f"no worker is left: {'; '.join(lost)}")
        return merge_points(points, lost)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def _listen(self, worker: _Worker) -> None:
        """Takes a worker's messages until its last one."""
        try:
            while not worker.has_ended:
                message = await worker.child.receive()
                worker.heard_ns, worker.has_reported = self._clock.now_ns(), True
                self._take(worker, message)
                self._changed.set()
        except EOFError:
            worker.lost = worker.lost or f"{self._name(worker)} {await worker.child.wait_for_end(_ENDS_WITHIN_S)}"
            self._changed.set()

    def _take(self, worker: _Worker, message: object) -> None:
        match message:
            case Logged(window_start_ns, interval):
                worker.intervals.append((window_start_ns, interval))
                self._on_received(interval)
            case LiveFigures() as figures:
                self._on_live(figures)
            case Ready():
                worker.is_ready = True
            case PointRecording() as point:
                worker.point = point
                if point.ending.cause is not None:  # it holds for all: the target is gone, fails or is overloaded
                    self.stop(point.ending.reason, point.ending.cause)
            case PerfkitError() as error:
                worker.error = error
            case Crashed(traceback):
                raise RuntimeError(f"{self._name(worker)} failed:\n{traceback}")

    async def _detect_silence(self) -> None:
        """Kills workers that have sent nothing for too long."""
        while True:
            await self._clock.sleep_until_ns(self._clock.now_ns() + NS_PER_S)
            for worker in self._workers:
                silence_ns = self._clock.now_ns() - worker.heard_ns
                if not worker.has_ended and silence_ns > (_MAX_SILENCE_NS if worker.has_reported else _STARTS_WITHIN_NS):
                    worker.lost = f"{self._name(worker)} sent nothing for {silence_ns / NS_PER_S:.0f} s"
                    worker.child.kill()  # a late recording would be counted although it is reported as missing
                    self._changed.set()

    def _name(self, worker: _Worker) -> str:
        return f"worker {worker.number + 1} of {len(self._workers)} (process {worker.child.pid})"

    def _raise_errors(self) -> None:
        for worker in self._workers:
            if worker.error is not None:
                raise worker.error


@contextlib.asynccontextmanager
async def local_workers(
    specs: Sequence[WorkerSpec | MixSpec],
    clock: Clock,
    on_interval: Callable[[int, Interval], None],
    on_lost_interval: Callable[[int, Interval], None],
    on_received: Callable[[Interval], None] = lambda _: None,
    on_live: Callable[[LiveFigures], None] = lambda _: None,
) -> AsyncIterator[LocalWorkers]:
    """Runs a worker process for each spec, for the length of the block.

    `on_interval` gets the intervals of all workers at the end, with the same arguments as in `run_point`. `on_lost_interval` gets those of
    lost workers, whose requests are in no figure. `on_received` gets each interval as soon as it arrives, and `on_live` the figures for
    a live view.
    """
    workers: list[_Worker] = []
    async with contextlib.AsyncExitStack() as children:
        try:
            for number, spec in enumerate(specs):
                child = await children.enter_async_context(start_module(_MODULE, stop_within_s=_ENDS_WITHIN_S))
                workers.append(_Worker(number, child, clock.now_ns()))
                child.send(spec)
            yield LocalWorkers(workers, clock, on_interval, on_lost_interval, on_received, on_live)
        finally:
            for worker in workers:  # all at once, before the first is waited for
                worker.child.close_stdin()

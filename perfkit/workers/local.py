"""Several workers on this machine, each in a process of its own: started together, heard, and their recordings merged."""

import asyncio
import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence

from perfkit.clock import Clock
from perfkit.errors import MeasurementError, PerfkitError, TargetError
from perfkit.load.loop import StopCause
from perfkit.recorder.recording import Interval
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Begin, Crashed, Done, Failed, Logged, Progress, Ready, Stop, message_bytes, read_message
from perfkit.workers.point import PointRecording, merge_points
from perfkit.workers.worker_spec import WorkerSpec

# from the order to begin until that instant: time for every process to hear of it
_LEAD_NS = NS_PER_S // 5
_SILENT_AFTER_NS, _STARTS_WITHIN_NS = 10 * NS_PER_S, 120 * NS_PER_S
_ENDS_WITHIN_S = 5
_READ_AHEAD_BYTES = 2**20


@dataclasses.dataclass
class _Worker:
    """A worker's process, and what came of it."""

    number: int
    process: "subprocess.Popen[bytes]"
    orders: asyncio.WriteTransport
    incoming: asyncio.ReadTransport
    reports: asyncio.StreamReader
    heard_ns: int
    point: PointRecording | None = None
    error: PerfkitError | None = None
    lost: str = ""
    logged: list[tuple[int, Interval]] = dataclasses.field(default_factory=list)
    has_spoken: bool = False
    is_ready: bool = False

    def send(self, message: object) -> None:
        """Says something to the worker, who may be gone."""
        if not self.orders.is_closing():
            self.orders.write(message_bytes(message))


class LocalWorkers:
    """The workers of one load point. `stop` is a `Loop`'s, for all of them."""

    def __init__(
        self,
        workers: Sequence[_Worker],
        clock: Clock,
        on_interval: Callable[[int, Interval], None],
        on_lost_interval: Callable[[int, Interval], None],
        on_heard: Callable[[Interval], None],
    ) -> None:
        self._workers = workers
        self._clock = clock
        self._on_interval = on_interval
        self._on_lost_interval = on_lost_interval
        self._on_heard = on_heard
        self._heard = asyncio.Event()
        self._stopped: Stop | None = None
        self._failure: Exception | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """The workers' processes, as they are numbered."""
        return tuple(worker.process.pid for worker in self._workers)

    def stop(self, reason: str, cause: StopCause = StopCause.INTERRUPTED, *, drain: bool = True) -> None:
        """Ends the point now, in every worker."""
        self._stopped = Stop(reason, cause, drain)
        self._heard.set()
        for worker in self._workers:
            worker.send(self._stopped)

    async def run(self) -> PointRecording:
        """Begins together, and waits for the end of all.

        A worker that dies, or says nothing for ten seconds, is named in the recording, and the others go on. Raises what a
        worker raised before the load, MeasurementError where none of them brings a recording home, and where it is stopped before
        it has begun TargetError for a target that is lost, CancelledError otherwise.
        """
        listening = [asyncio.ensure_future(self._listen(worker)) for worker in self._workers]
        watching = asyncio.ensure_future(self._watch())
        try:
            await self._until(
                lambda: bool(self._stopped) or all(worker.is_ready or worker.error or worker.lost for worker in self._workers)
            )
            self._raise_errors()
            if self._stopped:  # nothing was measured
                raise TargetError(self._stopped.reason) if self._stopped.cause is StopCause.TARGET_LOST else asyncio.CancelledError
            begin = Begin(self._clock.now_ns() + _LEAD_NS)
            for worker in self._workers:
                worker.send(begin)
            await self._until(lambda: all(worker.point or worker.error or worker.lost for worker in self._workers))
        finally:
            for task in (*listening, watching):
                task.cancel()
        self._raise_errors()
        for worker in self._workers:  # the log of the point holds what its figures hold
            for logged in worker.logged:
                (self._on_interval if worker.point else self._on_lost_interval)(*logged)
        lost = [worker.lost for worker in self._workers if worker.lost]
        points = [worker.point for worker in self._workers if worker.point]
        if not points:
            raise MeasurementError(f"no worker is left: {'; '.join(lost)}")
        return merge_points(points, lost)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so() and self._failure is None:
            self._heard.clear()
            await self._heard.wait()

    async def _listen(self, worker: _Worker) -> None:
        try:
            while worker.point is None and worker.error is None:
                message = await read_message(worker.reports)
                worker.heard_ns, worker.has_spoken = self._clock.now_ns(), True
                self._take(worker, message)
        except EOFError:
            code = await asyncio.to_thread(worker.process.wait)
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            worker.lost = f"{self._name(worker)} ended with {how}"
        except Exception as error:  # noqa: BLE001 - whatever it is, `run` raises it
            self._failure = error
        self._heard.set()

    def _take(self, worker: _Worker, message: object) -> None:
        match message:
            case Logged(window_start_ns, interval):
                worker.logged.append((window_start_ns, interval))
                self._on_heard(interval)
            case Ready():
                worker.is_ready = True
                self._heard.set()
            case Done(point):
                worker.point = point
                if point.ending.cause is not None:  # what ended one ends all: the target is gone, or fails
                    self.stop(point.ending.reason, point.ending.cause)
            case Failed(error):
                worker.error = error
            case Crashed(traceback):
                raise RuntimeError(f"{self._name(worker)} failed:\n{traceback}")
            case Progress():
                pass

    async def _watch(self) -> None:
        """Gives up workers that are silent."""
        while True:
            await self._clock.sleep_until_ns(self._clock.now_ns() + NS_PER_S)
            now_ns = self._clock.now_ns()
            for worker in self._workers:
                allowed_ns = _SILENT_AFTER_NS if worker.has_spoken else _STARTS_WITHIN_NS
                if not (worker.point or worker.error or worker.lost) and now_ns - worker.heard_ns > allowed_ns:
                    worker.lost = f"{self._name(worker)} said nothing for {(now_ns - worker.heard_ns) / NS_PER_S:.0f} s"
                    worker.process.kill()  # what it may still bring would be counted, and missing, at once
                    self._heard.set()

    def _name(self, worker: _Worker) -> str:
        return f"worker {worker.number + 1} of {len(self._workers)} (process {worker.process.pid})"

    def _raise_errors(self) -> None:
        if self._failure is not None:
            raise self._failure
        for worker in self._workers:
            if worker.error is not None:
                raise worker.error


@contextlib.asynccontextmanager
async def local_workers(
    orders: Sequence[WorkerSpec],
    clock: Clock,
    on_interval: Callable[[int, Interval], None],
    on_lost_interval: Callable[[int, Interval], None],
    on_heard: Callable[[Interval], None] = lambda _: None,
) -> AsyncIterator[LocalWorkers]:
    """A process for each order, for the length of the block.

    `on_interval` as for `run_point`, from all workers, at the end; `on_lost_interval` is given those of lost ones, whose
    requests stand in no figure; `on_heard` each interval as soon as it comes.
    """
    starts: list[asyncio.Task[_Worker]] = []
    try:
        for number, order in enumerate(orders):
            starts.append(asyncio.ensure_future(_start(number, clock.now_ns())))
            await asyncio.wait(starts[-1:])  # which is not cancelled with us: halfway there would be a process without an end
            starts[-1].result().send(order)
        yield LocalWorkers([start.result() for start in starts], clock, on_interval, on_lost_interval, on_heard)
    finally:
        await asyncio.gather(*starts, return_exceptions=True)
        await asyncio.gather(*(_end(start.result()) for start in starts if start.exception() is None))


async def _start(number: int, now_ns: int) -> _Worker:
    # not the event loop's own way: that forks, which hangs where gRPC's threads run
    process = subprocess.Popen(  # noqa: ASYNC220 - it takes no more than a fork would
        [sys.executable, "-m", "perfkit.workers.worker_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in the terminal is for perfkit, which tells its workers
    )
    loop, reports = asyncio.get_running_loop(), asyncio.StreamReader(limit=_READ_AHEAD_BYTES)
    incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reports), process.stdout)
    orders, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
    return _Worker(number, process, orders, incoming, reports, now_ns)


async def _end(worker: _Worker) -> None:
    if not worker.orders.is_closing():  # it closes by itself where the worker is gone, and must not be asked to again
        worker.orders.abort()  # which ends it
    try:
        ended = asyncio.ensure_future(asyncio.to_thread(worker.process.wait))
        await asyncio.wait([ended], timeout=_ENDS_WITHIN_S)
        if not ended.done():
            worker.process.kill()
        await ended
        with contextlib.suppress(EOFError):
            while True:
                await read_message(worker.reports)
    finally:
        worker.incoming.close()  # which asyncio does by itself at the end, and uvloop does not
        await asyncio.sleep(0)

"""The workers of one load point: started together, supervised, and their recordings merged, wherever they run."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from perfkit.clock import Clock
from perfkit.errors import MeasurementError, PerfkitError, TargetError
from perfkit.load.loop import StopCause, run_with_side_tasks
from perfkit.recorder.recent import LiveFigures
from perfkit.target.address import Address
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Begin, Crashed, PartLost, Piece, Ready, RenewedAddresses, Replied, StopOrder
from perfkit.workers.point_recording import PointRecording, PointSum, after_known_part, merge_points

# how far ahead the common start lies: time for every worker to receive it
LEAD_NS = NS_PER_S // 10
_MAX_SILENCE_NS, _STARTS_WITHIN_NS = 10 * NS_PER_S, 120 * NS_PER_S


class NoWorkerLeftError(MeasurementError):
    """All workers were lost before anything was known of what they recorded."""


class WorkerLink(Protocol):
    """The way to a worker: a process of this machine, or all the workers of another machine, which answer as one."""

    @property
    def workers(self) -> int:
        """How many workers they are."""

    @property
    def name(self) -> str:
        """What it is called in messages, such as `worker 1 of 2 (process 4711)`."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of this machine that send its load; empty for another machine."""

    def send(self, message: object) -> None:
        """Sends one of `messages` to it."""

    async def receive(self) -> Any:
        """Its next message; raises EOFError when there are no more."""

    async def wait_for_end(self) -> str:
        """Says how it ended, once there are no more messages, such as `ended with exit code 3`."""

    def kill(self) -> None:
        """Ends it at once."""


@dataclasses.dataclass
class _Worker:
    """The state of a worker."""

    number: int
    link: WorkerLink
    heard_ns: int
    """The instant of its last message, or of its start."""
    has_reported: bool = False
    is_ready: bool = False
    pieces: PointSum = dataclasses.field(default_factory=PointSum)
    point: PointRecording | None = None
    error: PerfkitError | None = None
    lost: str = ""
    """Why the rest of its recording is missing."""

    @property
    def has_ended(self) -> bool:
        return bool(self.point or self.error or self.lost)


class GroupListener:
    """Hears of what the workers of one load point send; they are numbered from 0. By default it ignores all."""

    def workers_start(self, workers: int) -> None:
        """So many workers, or links to workers that answer as one, are about to start."""

    def piece_came(self, worker: int, piece: Piece) -> None:
        """A worker sent the next piece of its recording."""

    def reply_came(self, reply: Replied) -> None:
        """A request of a cold start has ended."""

    def worker_lost(self, worker: int | None, reason: str) -> None:
        """A worker is lost, None for one of several that answer as one; what it had sent counts."""

    def stopped_early(self, stop: StopOrder) -> None:
        """A worker has stopped for a reason that holds for all, which are stopped now."""

    def figures_came(self, figures: LiveFigures) -> None:
        """A worker sent figures for a live view."""


class WorkerGroup:
    """The running workers of one load point, whose result is the sum of the pieces that they send."""

    def __init__(
        self,
        links: Sequence[WorkerLink],
        clock: Clock,
        listener: GroupListener,
        *,
        lead_ns: int = LEAD_NS,
        stops_when_one_is_lost: bool = False,
        begins_after: "asyncio.Future[None] | None" = None,
        begin_at: Callable[[], Awaitable[int]] | None = None,
        of: int | None = None,
    ) -> None:
        """The workers behind `links`. `of` is the number of all workers that send the load, by default only these.

        They begin once all are ready and `begins_after` is done. `begin_at` is called then, and returns the common start; by default it lies
        `lead_ns` ahead.
        """
        self._workers, self._lead_ns = [_Worker(number, link, clock.now_ns()) for number, link in enumerate(links)], lead_ns
        self._clock, self._listener, self._stops_when_one_is_lost = clock, listener, stops_when_one_is_lost
        self._begins_after, self._begin_at = begins_after, begin_at
        self._of = sum(link.workers for link in links) if of is None else of
        self._changed = asyncio.Event()
        self._stopped: StopOrder | None = None
        if begins_after is not None:
            begins_after.add_done_callback(lambda _: self._changed.set())
        listener.workers_start(len(links))

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of this machine that send the load, in the workers' order."""
        return tuple(pid for worker in self._workers for pid in worker.link.pids)

    def stop(self, reason: str, cause: StopCause = StopCause.INTERRUPTED, *, drain: bool = True) -> None:
        """Ends the point in every worker; see `Loop.stop`."""
        self._stopped = StopOrder(reason, cause, drain)
        self._changed.set()
        for worker in self._workers:
            worker.link.send(self._stopped)

    def renew(self, addresses: Sequence[Address]) -> None:
        """Has every worker send its workloads' requests with the headers of these addresses."""
        for worker in self._workers:
            worker.link.send(RenewedAddresses(tuple(addresses)))

    def kill(self) -> None:
        """Ends all workers at once."""
        for worker in self._workers:
            worker.link.kill()

    @property
    def recordings(self) -> Sequence[tuple[PointRecording | None, str]]:
        """For each worker in order: the known part of its recording, and why the rest is missing."""
        return [(worker.point, self._loss(worker)) for worker in self._workers]

    async def run(self) -> PointRecording:
        """Begins in all workers at once, and merges their recordings.

        A worker that dies, or is silent for ten seconds, is named in the recording, and the others go on; what it had sent counts.
        Raises the error of a worker that could not measure; NoWorkerLeftError if all are lost before they have sent anything; if the point is
        stopped before it has begun, TargetError for a lost target and CancelledError otherwise.
        """
        return await run_with_side_tasks(self._run(), self._detect_silence(), *(self._listen(worker) for worker in self._workers))

    async def _run(self) -> PointRecording:
        await self._until(lambda: bool(self._stopped) or self._may_begin)
        self._raise_errors()
        if self._stopped:  # nothing was measured
            raise TargetError(self._stopped.reason) if self._stopped.cause is StopCause.TARGET_LOST else asyncio.CancelledError
        if self._begins_after is not None:
            self._begins_after.result()  # which raises its error
        begin = Begin(await self._begin_at() if self._begin_at else self._clock.now_ns() + self._lead_ns)
        for worker in self._workers:
            worker.link.send(begin)
        await self._until(lambda: all(worker.has_ended for worker in self._workers))
        self._raise_errors()
        lost = [self._loss(worker) for worker in self._workers if worker.lost]
        # the lost ones last: how the load ended is what the others say
        points = [worker.point for worker in sorted(self._workers, key=lambda one: bool(one.lost)) if worker.point]
        if not points:
            raise NoWorkerLeftError(f"no worker is left: {'; '.join(worker.lost for worker in self._workers)}")
        return merge_points(points, lost)

    @property
    def _may_begin(self) -> bool:
        if any(worker.error is not None for worker in self._workers):
            return True
        is_due = self._begins_after is None or self._begins_after.done()
        return is_due and all(worker.is_ready or worker.has_ended for worker in self._workers)

    def _loss(self, worker: _Worker) -> str:
        """What is missing because a worker was lost; empty if it was not."""
        if not worker.lost:
            return ""
        missing = f"its share of the load, {worker.link.workers:,} of {self._of:,}, is missing"
        return f"{worker.lost}: {missing}{after_known_part(worker.point)}"

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def _listen(self, worker: _Worker) -> None:
        """Takes a worker's messages until its last one."""
        try:
            while not worker.has_ended:
                message = await worker.link.receive()
                if worker.has_ended:  # it was given up meanwhile
                    return
                worker.heard_ns, worker.has_reported = self._clock.now_ns(), True
                self._take(worker, message)
                self._changed.set()
        except EOFError:
            self._lose(worker, f"{worker.link.name} {await worker.link.wait_for_end()}")

    def _take(self, worker: _Worker, message: object) -> None:
        match message:
            case Piece(_, point, is_last) as piece:
                worker.pieces.add(worker.number, point)
                self._listener.piece_came(worker.number, piece)
                if is_last:
                    worker.point = worker.pieces.take()
                    if point.ending.cause is not None:  # it holds for all: the target is gone, fails or is overloaded
                        self._stop_all(StopOrder(point.ending.reason, point.ending.cause, drain=True))
            case Replied() as reply:
                self._listener.reply_came(reply)
            case LiveFigures() as figures:
                self._listener.figures_came(figures)
            case Ready():
                worker.is_ready = True
            case StopOrder() as stop:
                self._stop_all(stop)
            case PartLost(reason):
                self._listener.worker_lost(None, reason)
                if self._stops_when_one_is_lost:
                    self.stop(reason, StopCause.WORKER_LOST)
            case PerfkitError() as error:
                worker.error = error
            case Crashed(traceback):
                raise RuntimeError(f"{worker.link.name} failed:\n{traceback}")

    def _stop_all(self, stop: StopOrder) -> None:
        self.stop(stop.reason, stop.cause, drain=stop.drain)
        self._listener.stopped_early(stop)

    async def _detect_silence(self) -> None:
        """Kills workers that have sent nothing for too long."""
        while True:
            await self._clock.sleep_until_ns(self._clock.now_ns() + NS_PER_S)
            for worker in self._workers:
                silence_ns = self._clock.now_ns() - worker.heard_ns
                if not worker.has_ended and silence_ns > (_MAX_SILENCE_NS if worker.has_reported else _STARTS_WITHIN_NS):
                    worker.link.kill()  # a late recording would be counted although it is reported as missing
                    self._lose(worker, f"{worker.link.name} sent nothing for {silence_ns / NS_PER_S:.0f} s")

    def _lose(self, worker: _Worker, message: str) -> None:
        if not worker.lost:
            worker.lost = message
            worker.point = worker.pieces.take()
            self._listener.worker_lost(worker.number, self._loss(worker))
        self._changed.set()
        if self._stops_when_one_is_lost:
            self.stop(worker.lost, StopCause.WORKER_LOST)

    def _raise_errors(self) -> None:
        for worker in self._workers:
            if worker.error is not None:
                raise worker.error

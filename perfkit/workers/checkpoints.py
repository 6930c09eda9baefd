"""The checkpoints of a long load point: taken by each worker while it sends load, and put together where the workers were started."""

import asyncio
import collections
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

from perfkit.clock import Clock
from perfkit.load.loop import Phases
from perfkit.load.loop_group import LoopGroup
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import Recording
from perfkit.recorder.recording_so_far import RecordingSoFar
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Checkpoint
from perfkit.workers.point_recording import PointRecording, merge_points

# late requests are sent in this time
_SENT_WITHIN_NS = NS_PER_S
_LOOK_EVERY_NS = NS_PER_S // 10
# most answers to a second's requests have come by then, and are sent with it
_ANSWERED_WITHIN_NS = NS_PER_S // 5


async def take_checkpoints(
    every_ns: int | None,
    timeout_ns: int,
    phases: Phases,
    clock: Clock,
    loops: LoopGroup,
    recorders: Sequence[Recorder],
    send: Callable[[int, list[Recording]], None],
) -> None:
    """Calls `send` with the pieces of all recorders and the instant before which they lie, `every_ns` until the window's end, known or not.

    That is some time after the instant: when all requests sent until then are answered, or after the timeout of a request, so that each
    checkpoint holds what a run that ended there would hold.
    """
    if every_ns is None:
        return
    for at_ns in itertools.count(phases.window_start_ns + every_ns, every_ns):
        if phases.window_end_ns is not None and at_ns >= phases.window_end_ns:
            return
        await clock.sleep_until_ns(at_ns + _SENT_WITHIN_NS)
        awaited = loops.unanswered
        for recorder in recorders:
            recorder.await_sent_until(clock.now_ns())
        latest_ns = clock.now_ns() + timeout_ns + _LOOK_EVERY_NS
        while sum(recorder.answered_awaited for recorder in recorders) < awaited and clock.now_ns() < latest_ns:
            await clock.sleep_until_ns(clock.now_ns() + _LOOK_EVERY_NS)
            for recorder in recorders:
                recorder.record_pending()
        if loops.stopped_ns:
            return  # the recording itself is about to come
        loops.report_drops()
        pieces = []
        for recorder in recorders:
            pieces.append(recorder.take_before(at_ns))
            await asyncio.sleep(0)
        send(at_ns, pieces)
        for recorder in recorders:
            for _ in recorder.keep():
                await asyncio.sleep(0)  # requests that are due are sent in between


async def emit_seconds(recorders: Sequence[Recorder], phases: Phases, clock: Clock) -> None:
    """Has each second's interval sent soon after its end, so that little is lost with the process."""
    second_ns = phases.window_start_ns
    while recorders:
        second_ns = max(second_ns + NS_PER_S, phases.window_start_ns + (clock.now_ns() - phases.window_start_ns) // NS_PER_S * NS_PER_S)
        await clock.sleep_until_ns(second_ns + _ANSWERED_WITHIN_NS)
        for recorder in recorders:
            for _ in recorder.emit_before(second_ns):
                await asyncio.sleep(0)  # requests that are due are sent in between


class PointSoFar:
    """The sum of one worker's checkpoints."""

    def __init__(self) -> None:
        self._newest: PointRecording | None = None
        self._recordings = collections.defaultdict[int, RecordingSoFar](RecordingSoFar)

    @property
    def is_empty(self) -> bool:
        """Whether there was no checkpoint yet."""
        return self._newest is None

    def add(self, piece: PointRecording) -> None:
        """Adds the next piece."""
        self._newest = piece
        for number, one in enumerate(piece.workloads):
            self._recordings[number].add(one.recording)

    def totals(self) -> PointRecording:
        """A piece with all that pieces do not add up: see `RecordingSoFar`."""
        return self._with({number: one.totals() for number, one in self._recordings.items()})

    def whole(self) -> PointRecording:
        """The recording until the newest checkpoint."""
        return self._with({number: one.whole() for number, one in self._recordings.items()})

    def _with(self, recordings: Mapping[int, Recording]) -> PointRecording:
        assert self._newest is not None
        workloads = (dataclasses.replace(one, recording=recordings[number]) for number, one in enumerate(self._newest.workloads))
        return dataclasses.replace(self._newest, workloads=tuple(workloads))


class CheckpointCollector:
    """The checkpoints of a load point's workers, together: those of the same instant, as soon as the last worker that is left has sent it."""

    def __init__(self, workers: int) -> None:
        self._so_far = {worker: PointSoFar() for worker in range(workers)}
        self._waiting = {worker: collections.deque[Checkpoint]() for worker in range(workers)}

    def add(self, worker: int, checkpoint: Checkpoint) -> None:
        """Adds a worker's next checkpoint."""
        if worker in self._waiting:
            self._waiting[worker].append(checkpoint)

    def lose(self, worker: int) -> PointRecording | None:
        """Waits no longer for a worker. Its recording until the newest instant that all had reached counts on: returns it, None if there is none."""
        self._waiting.pop(worker, None)
        if worker in self._so_far and self._so_far[worker].is_empty:
            del self._so_far[worker]
        return self._so_far[worker].whole() if worker in self._so_far else None

    def take(self, lost: Sequence[str]) -> tuple[int, PointRecording] | None:
        """The newest instant that all workers have reached, and the recording until then; None if there is none since the last call."""
        at_ns = None
        while (complete := self._next_complete()) is not None:
            at_ns = complete[0].at_ns
        return None if at_ns is None else (at_ns, merge_points([one.whole() for one in self._so_far.values()], lost))

    def take_piece(self, lost: Sequence[str]) -> Checkpoint | None:
        """The next checkpoint that all workers have reached, merged as if from one worker; None if there is none."""
        if (complete := self._next_complete()) is None:
            return None
        lost_parts = [so_far.totals() for worker, so_far in self._so_far.items() if worker not in self._waiting]
        return Checkpoint(complete[0].at_ns, merge_points([*(one.piece for one in complete), *lost_parts], lost))

    def _next_complete(self) -> list[Checkpoint] | None:
        """The next checkpoint of each worker that is left, added to the sums, if all of them have sent it."""
        if not self._waiting or not all(self._waiting.values()):
            return None
        complete = [waiting.popleft() for waiting in self._waiting.values()]
        for worker, checkpoint in zip(self._waiting, complete, strict=True):
            self._so_far[worker].add(checkpoint.piece)
        return complete

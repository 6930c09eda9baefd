"""The checkpoints of a long load point: taken by each worker while it sends load, and put together where the workers were started."""

import asyncio
import collections
import dataclasses
from collections.abc import Callable, Sequence

from perfkit.clock import Clock
from perfkit.load.loop import Phases
from perfkit.load.loop_group import LoopGroup
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import Recording
from perfkit.recorder.recording_so_far import RecordingSoFar
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Checkpoint
from perfkit.workers.point_recording import PointRecording, WorkloadRecording, merge_points

# late requests are sent in this time
_SENT_WITHIN_NS = NS_PER_S
_LOOK_EVERY_NS = NS_PER_S // 10


async def take_checkpoints(
    every_ns: int | None,
    timeout_ns: int,
    phases: Phases,
    clock: Clock,
    loops: LoopGroup,
    recorders: Sequence[Recorder],
    send: Callable[[int, list[Recording]], None],
) -> None:
    """Calls `send` with the pieces of all recorders and the instant before which they lie, `every_ns` until the window's end.

    That is some time after the instant: when all requests sent until then are answered, or after the timeout of a request, so that each
    checkpoint holds what a run that ended there would hold.
    """
    if every_ns is None or phases.window_end_ns is None:
        return
    for at_ns in range(phases.window_start_ns + every_ns, phases.window_end_ns, every_ns):
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
        for recorder, piece in zip(recorders, pieces, strict=True):
            for _ in recorder.keep(piece):
                await asyncio.sleep(0)  # requests that are due are sent in between


class PointSoFar:
    """The sum of one worker's checkpoints."""

    def __init__(self) -> None:
        self._newest: PointRecording | None = None
        self._recordings = collections.defaultdict[int, RecordingSoFar](RecordingSoFar)

    def add(self, piece: PointRecording) -> None:
        """Adds the next piece."""
        self._newest = dataclasses.replace(piece, workloads=())
        self._connections = [one.connections for one in piece.workloads]
        for number, recording in enumerate((piece.recording, *(one.recording for one in piece.workloads))):
            self._recordings[number].add(recording)

    def whole(self) -> PointRecording:
        """The recording until the newest checkpoint."""
        assert self._newest is not None
        recording, *parts = (one.whole() for one in self._recordings.values())
        workloads = tuple(WorkloadRecording(*one) for one in zip(parts, self._connections, strict=True))
        return dataclasses.replace(self._newest, recording=recording, workloads=workloads)


class CheckpointCollector:
    """The checkpoints of a load point's workers, together: those of the same instant, as soon as the last worker that is left has sent it."""

    def __init__(self, workers: int) -> None:
        self._so_far = {worker: PointSoFar() for worker in range(workers)}
        self._waiting = {worker: collections.deque[Checkpoint]() for worker in range(workers)}

    def add(self, worker: int, checkpoint: Checkpoint) -> None:
        """Adds a worker's next checkpoint."""
        if worker in self._waiting:
            self._waiting[worker].append(checkpoint)

    def lose(self, worker: int) -> None:
        """Leaves out a worker, whose recording counts in no figure."""
        self._so_far.pop(worker, None)
        self._waiting.pop(worker, None)

    def take(self, lost: Sequence[str]) -> tuple[int, PointRecording] | None:
        """The newest instant that all workers have reached, and the recording until then; None if there is none since the last call."""
        at_ns = None
        while self._waiting and all(self._waiting.values()):
            for worker, waiting in self._waiting.items():
                checkpoint = waiting.popleft()
                at_ns = checkpoint.at_ns
                self._so_far[worker].add(checkpoint.piece)
        return None if at_ns is None else (at_ns, merge_points([one.whole() for one in self._so_far.values()], lost))

"""Recordings and control messages of a fleet's workers: made by the real recorder from simulated replies, and merged as the driver does."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from perfkit.figures.resources import EVENT_LOOP_LAG
from perfkit.fleet.machine import LiveSum
from perfkit.fleet.messages import OF_MACHINE, FromWorkers, OfWorkers
from perfkit.fleet.token import MAC_BYTES, Sealer
from perfkit.load.arrivals import Instants, Schedule, constant_rate, worker_arrivals
from perfkit.load.loop import Ending
from perfkit.machine.readings import BusyShares
from perfkit.recorder.batches import merge_times
from perfkit.recorder.recent import LiveFigures
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import Recording, merge
from perfkit.stats.buckets import BucketCounts
from perfkit.telemetry.series import Series
from perfkit.transport.base import ConnectionCounts, Outcome, Reply
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Piece, Progress
from perfkit.workers.point_recording import PointRecording, PointSum, WorkloadRecording, merge_points

START_NS = 10**12
_LAG_EVERY_NS = NS_PER_S // 20


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerOutput:
    """What one worker, or the workers of one machine together, send to the driver in a load point."""

    point: PointRecording
    pieces: Sequence[Piece]
    """One for each second."""
    live: Sequence[LiveFigures]
    """One for each second."""

    @property
    def whole(self) -> Piece:
        """The recording in one piece, as in a short load point."""
        return Piece(self.point.end_ns, self.point, is_last=True)


def poisson_arrivals(rate_per_s: float, seconds: float, seed: int) -> Instants:
    """The instants of an open loop with Poisson arrivals, on the clock of the recordings."""
    chunks = Schedule("poisson", constant_rate(rate_per_s), (seed,)).chunks()
    return np.concatenate(list(itertools.takewhile(lambda chunk: chunk[0] < seconds * NS_PER_S, chunks))) + START_NS


def simulated_replies(arrivals: Instants, seed: int) -> list[Reply]:
    """A reply to each arrival: log-normal service times of 5 ms (median), start delays of some 50 µs, one failure in a thousand."""
    random = np.random.default_rng(seed)
    paced = arrivals + random.exponential(5_000, arrivals.size).astype(np.int64)
    started = paced + random.exponential(50_000, arrivals.size).astype(np.int64)
    finished = started + (5e6 * random.lognormal(0, 0.5, arrivals.size)).astype(np.int64)
    outcomes = [Outcome.TIMED_OUT if chance < 0.001 else Outcome.OK for chance in random.random(arrivals.size).tolist()]
    rows = zip(outcomes, started.tolist(), finished.tolist(), arrivals.tolist(), paced.tolist(), strict=True)
    return [
        Reply(outcome, start, finish, error="" if outcome is Outcome.OK else "no answer", intended_ns=arrival, paced_ns=pace)
        for outcome, start, finish, arrival, pace in rows
    ]


def record(replies: Iterable[Reply], seconds: int, worker: int = 0) -> WorkerOutput:
    """What a worker's recorder makes of the replies to its requests, which it gets in the order in which they finish."""
    end_ns = START_NS + seconds * NS_PER_S
    recorder = Recorder(
        window_start_ns=START_NS,
        window_end_ns=end_ns,
        is_open=True,
        is_live=True,
        good_within_ns={"waited": 20_000_000},
    )
    live, recordings, due_ns = list[LiveFigures](), list[Recording](), START_NS + NS_PER_S
    for reply in sorted(replies, key=lambda reply: reply.finished_ns):
        if reply.finished_ns >= due_ns:
            live.append(recorder.live_figures(worker, due_ns, 5))
            recordings.append(recorder.take_before(due_ns))
            due_ns += NS_PER_S
        recorder.add(reply)
    recordings.append(recorder.finish(end_ns))
    random = np.random.default_rng(worker)
    times_ns = range(START_NS, end_ns, _LAG_EVERY_NS)
    lag = Series(EVENT_LOOP_LAG, "ns", {"worker": str(worker + 1)}, tuple(times_ns), tuple(random.exponential(1e5, len(times_ns)).tolist()))

    def point_of(recording: Recording) -> PointRecording:
        own = WorkloadRecording(recording, ConnectionCounts(opened=8))
        return PointRecording((own,), START_NS, Ending(recording.end_ns), BusyShares(0.4, 0.3))

    pieces = [Piece(one.end_ns, point_of(one)) for one in recordings]
    return WorkerOutput(dataclasses.replace(point_of(merge(recordings)), series=(lag,)), pieces, live)


def merge_outputs(parts: Sequence[WorkerOutput]) -> WorkerOutput:
    """What a machine sends for its workers."""
    return WorkerOutput(merge_points([part.point for part in parts]), list(merge_pieces(parts)), list(_live_sums(parts)))


def merge_pieces(parts: Sequence[WorkerOutput]) -> Iterator[Piece]:
    """The pieces of each second, added up as on a machine."""
    for pieces in zip(*(part.pieces for part in parts), strict=True):
        together = PointSum(NS_PER_S)
        for worker, piece in enumerate(pieces):
            together.add(worker, piece.point)
        point = together.take()
        assert point is not None
        yield Piece(pieces[0].at_ns, point)


def _seconds(output: WorkerOutput) -> dict[int, Mapping[str, BucketCounts]]:
    """The times of each second, as the driver logs them."""
    found = collections.defaultdict[int, list[Mapping[str, BucketCounts]]](list)
    for piece in output.pieces:
        for second, times in piece.point.recording.times_by_second():
            found[second].append(times)
    return {second: merge_times(parts) for second, parts in found.items()}


def _live_sums(parts: Sequence[WorkerOutput]) -> Iterator[LiveFigures]:
    for figures in zip(*(part.live for part in parts), strict=False):
        together = LiveSum(0)
        for number, one in enumerate(figures):
            together.add(dataclasses.replace(one, worker=number))
        if (total := together.take()) is not None:
            yield total


@dataclasses.dataclass(frozen=True, slots=True)
class Exactness:
    """Recordings of many workers, merged by machine and then together, beside that of one worker with all requests."""

    requests: int
    is_recording_equal: bool
    are_intervals_equal: bool


def compare_with_one_worker(workers: int, machines: int, rate_per_s: float, seconds: int, seed: int) -> Exactness:
    """Divides one schedule among the workers as perfkit does, records each part, and merges."""
    arrivals = poisson_arrivals(rate_per_s, seconds, seed)
    replies = simulated_replies(arrivals, seed)
    numbers = [np.concatenate(list(worker_arrivals(iter([np.arange(arrivals.size)]), worker, workers))) for worker in range(workers)]
    parts = [record([replies[number] for number in own.tolist()], seconds, worker) for worker, own in enumerate(numbers)]
    whole = merge_outputs([merge_outputs(parts[machine::machines]) for machine in range(machines)])
    alone = record(replies, seconds)
    return Exactness(len(replies), is_same(whole.point.recording, alone.point.recording), is_same(_seconds(whole), _seconds(alone)))


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal in every part, arrays included."""
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        return all(is_same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


def merge_one_by_one(bodies: Iterable[bytes]) -> PointRecording:
    """The recording of all workers, where each is merged as soon as it arrives: only one of them is in memory beside the sum."""
    points: Iterator[PointRecording] = (unpacked(body)[0].point for body in bodies)
    return functools.reduce(lambda total, point: merge_points([total, point]), points)


def messages_of_second(outputs: Sequence[WorkerOutput], second: int) -> list[OfWorkers]:
    """What a machine passes on of its workers in a second, together."""
    kinds: list[list[OfWorkers]] = [[output.pieces[second], output.live[second], Progress()] for output in outputs]
    return [message for messages in kinds for message in messages]


def packed(*messages: OfWorkers) -> bytes:
    """What a machine passes on of its workers, as the body of a frame."""
    return OF_MACHINE.encoded(FromWorkers(0, messages))


def unpacked(body: bytes) -> Sequence[Any]:
    """The workers' messages in the body of a frame."""
    message: FromWorkers = OF_MACHINE.decoded(body)
    return message.messages


def check_frames(bodies: Sequence[bytes]) -> int:
    """Checks that frames with these bodies are the next ones, as the driver does before it reads them; returns their size together."""
    made, checked = (Sealer("token", "machine", b"driver", b"machine") for _ in range(2))
    size = 0
    for body in bodies:
        frame = made.seal(body)
        assert checked.is_next(body, frame[-MAC_BYTES:])
        size += len(frame)
    return size

"""The log of a load point while it is measured: the pieces of its recording on disk as they come.

The lines of the interval log are made from it, and the result of a run that was killed. The result of a run that ends is the sum of the same pieces.
"""

import asyncio
import collections
import dataclasses
import errno
import os
import pathlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning, ResultError
from perfkit.measurement.point_measurement import ProbedFacts
from perfkit.process.encoding import Encoding, MalformedError
from perfkit.recorder.batches import merge_times
from perfkit.result.interval_log import PointLines
from perfkit.stats.buckets import BucketCounts
from perfkit.workers.messages import Piece
from perfkit.workers.point_recording import STAND_INS, PointRecording, PointSum

_FRAME = struct.Struct(">II")
"""The length of an entry and its CRC-32, before it."""
_LARGEST_ENTRY_BYTES = 2**28
# answers that come so much later than others get a line of their own for their second
_OPEN_SECONDS = 8
_Times = Mapping[str, BucketCounts]


@dataclasses.dataclass(frozen=True, slots=True)
class PointHead:
    """What a load point's log begins with: all that its measurement needs besides its recording, for this version of perfkit."""

    version: str
    folder: str
    """The folder that the scenario's relative paths refer to."""
    log_started_ns: int
    """The start of the interval log on the monotonic clock."""
    log_bytes: int
    """The size of the interval log when the load point began."""
    telemetry_bytes: int
    probe_time_ns: int
    """See `WholePoint`."""
    workers: int
    """The number of workers that share the load."""
    warnings: tuple[MeasurementWarning, ...]
    """The warnings of the run."""
    workloads: tuple[ProbedFacts, ...]
    senders: int = 0
    """The workers whose pieces are logged; those of a machine of a fleet are one."""


@dataclasses.dataclass(frozen=True, slots=True)
class LoggedPiece:
    """A piece that a worker sent."""

    worker: int
    piece: Piece


@dataclasses.dataclass(frozen=True, slots=True)
class LoggedLoss:
    """A worker was lost; None for one of several that answer as one."""

    worker: int | None
    reason: str


_ENTRIES = Encoding(PointHead | LoggedPiece | LoggedLoss, STAND_INS)


class PointLog:
    """Writes the log of a load point, from its first piece on. What fails is kept in `failure`, and the load goes on."""

    def __init__(self, file: pathlib.Path, head: PointHead, clock: Clock, sync_every_ns: int) -> None:
        """What is written is forced onto the disk every `sync_every_ns`, so that a power cut takes no more."""
        self.failure: OSError | None = None
        self.file, self._clock, self._sync_every_ns = file, clock, sync_every_ns
        self._descriptor: int | None = None
        self._synced_ns = clock.now_ns()
        self._syncing: asyncio.Future[None] | None = None
        self._head = head

    def expect(self, senders: int) -> None:
        """Sets how many workers will send pieces, before the first one."""
        self._head = dataclasses.replace(self._head, senders=senders)

    def add(self, worker: int, piece: Piece) -> None:
        """Adds a worker's next piece."""
        self._write(_ENTRIES.encoded(LoggedPiece(worker, piece)))
        if self._descriptor is not None and self._syncing is None and self._clock.now_ns() - self._synced_ns >= self._sync_every_ns:
            self._synced_ns = self._clock.now_ns()
            self._syncing = asyncio.get_running_loop().run_in_executor(None, os.fsync, self._descriptor)
            self._syncing.add_done_callback(self._synced)

    def lose(self, worker: int | None, reason: str) -> None:
        """Notes that a worker is lost."""
        self._write(_ENTRIES.encoded(LoggedLoss(worker, reason)))

    async def aclose(self) -> None:
        """Closes the file, which stays."""
        if self._syncing is not None:
            await asyncio.wait([self._syncing])
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _synced(self, done: "asyncio.Future[None]") -> None:
        self._syncing = None
        if isinstance(error := done.exception(), OSError):
            self.failure = self.failure or error

    def _write(self, entry: bytes) -> None:
        if self.failure is None and len(entry) > _LARGEST_ENTRY_BYTES:
            self.failure = OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        if self.failure is not None:
            return
        entries = [entry]
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
                entries = [_ENTRIES.encoded(self._head), entry]
            rest = memoryview(b"".join(map(_framed, entries)))
            while rest:  # a full disk takes a part first
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self.failure = error


def _framed(entry: bytes) -> bytes:
    return _FRAME.pack(len(entry), zlib.crc32(entry)) + entry


def read_point_log(file: pathlib.Path) -> tuple[PointHead, Iterator[PointHead | LoggedPiece | LoggedLoss]]:
    """The head and the entries of a log, without what a crash cut off at its end; raises ResultError if it has no head of this version."""
    entries = _decoded(_read(file))
    if not isinstance(head := next(entries, None), PointHead):
        raise ResultError(f"{file}: the load point that was being measured cannot be read by this version of perfkit")
    return head, entries


def _read(file: pathlib.Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while len(frame := stream.read(_FRAME.size)) == _FRAME.size:
            length, checksum = _FRAME.unpack(frame)
            entry = stream.read(min(length, _LARGEST_ENTRY_BYTES))
            if len(entry) != length or zlib.crc32(entry) != checksum:
                return
            yield entry


def _decoded(entries: Iterable[bytes]) -> Iterator[PointHead | LoggedPiece | LoggedLoss]:
    for entry in entries:
        try:
            yield _ENTRIES.decoded(entry)
        except MalformedError:
            return


def recorded_so_far(file: pathlib.Path) -> PointRecording | None:
    """The recording of a load point until the newest instant that all workers that were not lost had reached; None if there is none."""
    reached_ns, ended, lost = dict[int, int](), set[int](), list[str]()
    head, entries = read_point_log(file)
    for entry in entries:
        match entry:
            case LoggedPiece(worker, piece):
                reached_ns[worker] = piece.at_ns
                if piece.is_last:
                    ended.add(worker)
            case LoggedLoss(worker, reason):
                lost.append(reason)
                ended |= {worker} if worker is not None else set()
    if not reached_ns or len(reached_ns.keys() | ended) < head.senders:
        return None
    end_ns = min((at_ns for worker, at_ns in reached_ns.items() if worker not in ended), default=None)
    total = PointSum()
    for entry in read_point_log(file)[1]:
        if isinstance(entry, LoggedPiece):
            total.add(entry.worker, entry.piece.point if end_ns is None else entry.piece.point.before(end_ns))
    point = total.take()
    assert point is not None
    return dataclasses.replace(point, lost=(*lost, *point.lost))


def log_lines(file: pathlib.Path, lines: PointLines, first_s: int, last_s: int | None = None) -> Iterator[str]:
    """The lines of the interval log from second `first_s` of the recording, where the window starts; `last_s` is not among them."""
    if not file.exists():  # no worker has sent anything
        return
    seconds, origin_ns = collections.defaultdict[tuple[int, int], list[_Times]](list), 0
    for entry in read_point_log(file)[1]:
        if not isinstance(entry, LoggedPiece):
            continue
        for workload, one in enumerate(entry.piece.point.workloads):
            origin_ns = one.recording.origin_ns
            for second, times in one.recording.times_by_second():
                if second >= first_s and (last_s is None or second < last_s):
                    seconds[second, workload].append(times)
        newest = max((second for second, _ in seconds), default=0)
        for key in sorted(key for key in seconds if key[0] < newest - _OPEN_SECONDS):
            yield lines.of_second(origin_ns, *key, merge_times(seconds.pop(key)))
    for key in sorted(seconds):
        yield lines.of_second(origin_ns, *key, merge_times(seconds[key]))
    if origin_ns:
        yield lines.of_window(origin_ns, first_s)

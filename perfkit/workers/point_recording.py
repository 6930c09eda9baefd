"""The recording of a load point by one worker or several."""

import dataclasses
import functools
from collections.abc import Sequence

from perfkit.load.loop import Ending
from perfkit.machine.readings import BusyShares
from perfkit.process.encoding import StandIn
from perfkit.recorder.recording import Recording, RecordingSum, merge, merge_workloads
from perfkit.spans.span import SampledRequest
from perfkit.stats.buckets import BucketCounts
from perfkit.telemetry.series import Series
from perfkit.transport.base import ConnectionCounts, ConnectTimes
from perfkit.units import NS_PER_S

STAND_INS: dict[type, StandIn | None] = {ConnectTimes: StandIn(BucketCounts, ConnectTimes.counts, lambda counts: ConnectTimes([counts]))}
"""How parts of a `PointRecording` that are no plain data are encoded."""


@dataclasses.dataclass(frozen=True, slots=True)
class WorkloadRecording:
    """What one worker recorded of one workload, or several workers together."""

    recording: Recording
    connections: ConnectionCounts
    sampled: tuple[SampledRequest, ...] = ()
    """The traced requests that were answered, also those of the warm-up."""

    def shifted(self, by_ns: int) -> "WorkloadRecording":
        """A copy with `by_ns` added to each instant, to convert it to another clock."""
        sampled = tuple(request.shifted(by_ns) for request in self.sampled)
        return dataclasses.replace(self, recording=self.recording.shifted(by_ns), sampled=sampled)


@dataclasses.dataclass(frozen=True, slots=True)
class MachineRecording:
    """What the workers of one machine of a fleet recorded together."""

    name: str
    workers: int
    recording: Recording | None
    """None if all its workers were lost."""
    shares: BusyShares | None
    """The shares of its busiest worker."""
    clock_offset_ns: int
    """How much more its clock showed than the driver's when the load began; its instants are corrected by that."""
    clock_drift_ppm: float
    clock_bound_ns: int
    """The largest possible error of that correction at any instant of the load."""
    lost: tuple[str, ...] = ()
    """A message for each of its workers whose recording is missing."""


@dataclasses.dataclass(frozen=True)
class PointRecording:
    """What one worker recorded, or several together; the recording is shorter than planned if the point ended early."""

    workloads: tuple[WorkloadRecording, ...]
    """One for each workload, at least one."""
    start_ns: int
    ending: Ending
    shares: BusyShares
    series: tuple[Series, ...] = ()
    """Measurements of each worker's event loop."""
    are_alike: bool = True
    """Whether the loads of all workloads are open, or those of all closed."""
    lost: tuple[str, ...] = ()
    """A message for each worker whose recording is missing."""
    machines: tuple[MachineRecording, ...] = ()
    """The parts of a fleet, which add up to `recording`; empty for workers of this machine."""

    @functools.cached_property
    def recording(self) -> Recording:
        """The recording of all workloads together."""
        return merge_workloads([one.recording for one in self.workloads], are_alike=self.are_alike)

    @property
    def connections(self) -> ConnectionCounts:
        """The connections of all workloads."""
        return ConnectionCounts.added([one.connections for one in self.workloads])

    @property
    def sampled(self) -> tuple[SampledRequest, ...]:
        """The traced requests of all workloads."""
        return tuple(request for one in self.workloads for request in one.sampled)

    def before(self, instant_ns: int) -> "PointRecording":
        """The part before an instant; see `Recording.before`."""
        parts = (dataclasses.replace(one, recording=one.recording.before(instant_ns)) for one in self.workloads)
        return dataclasses.replace(self, workloads=tuple(parts))

    @property
    def end_ns(self) -> int:
        """The end of what was recorded."""
        return max(one.recording.end_ns for one in self.workloads)

    def of_workload(self, number: int) -> "PointRecording":
        """One workload of a mix by itself, which ends with the whole; what was lost is told of the whole alone."""
        own = self.workloads[number]
        own = dataclasses.replace(own, recording=dataclasses.replace(own.recording, end_ns=self.recording.end_ns))
        return dataclasses.replace(self, workloads=(own,), are_alike=True, lost=(), machines=())

    def shifted(self, by_ns: int) -> "PointRecording":
        """A copy with `by_ns` added to each instant, to convert it to another clock."""
        return dataclasses.replace(
            self,
            workloads=tuple(one.shifted(by_ns) for one in self.workloads),
            start_ns=self.start_ns + by_ns,
            ending=dataclasses.replace(self.ending, stopped_ns=self.ending.stopped_ns + by_ns),
            series=tuple(series.shifted(by_ns) for series in self.series),
        )


def after_known_part(point: PointRecording | None) -> str:
    """A phrase for the part of a recording that is missing, such as ` after the first 60 s`; empty if all of it is missing."""
    return "" if point is None else f" after the first {(point.ending.stopped_ns - point.start_ns) / NS_PER_S:,.0f} s"


class PointSum:
    """Adds up the pieces of a load point that its workers send while it lasts; see `RecordingSum`.

    Each series, traced request and loss comes in one piece; connections and shares of the CPU are those of each worker's newest piece.
    """

    def __init__(self, longest_ns: int | None = None) -> None:
        self._longest_ns = longest_ns
        self._sums = list[RecordingSum]()
        self._newest = dict[int, PointRecording]()
        self._listed = list[PointRecording]()

    def add(self, worker: int, piece: PointRecording) -> None:
        """Adds the next piece of a worker."""
        self._sums = self._sums or [RecordingSum(self._longest_ns) for _ in piece.workloads]
        for total, own in zip(self._sums, piece.workloads, strict=True):
            total.add(own.recording)
        self._newest[worker] = piece
        if piece.series or piece.lost or piece.sampled:
            self._listed.append(piece)

    def take(self) -> PointRecording | None:
        """The sum of the pieces since the last call; None if none came."""
        if not (sums := self._sums):
            return None
        listed, self._sums, self._listed = self._listed, [], []
        return _joined(list(self._newest.values()), listed, [one.whole() for one in sums])


def merge_points(points: Sequence[PointRecording], lost: Sequence[str] = ()) -> PointRecording:
    """The recording of all workers together; `lost` has a message for each whose recording is missing, besides those of the parts."""
    recordings = [merge([one.recording for one in parts]) for parts in zip(*(point.workloads for point in points), strict=True)]
    return _joined(points, points, recordings, lost)


def _joined(
    points: Sequence[PointRecording], listed: Sequence[PointRecording], recordings: Sequence[Recording], lost: Sequence[str] = ()
) -> PointRecording:
    """With the busiest core, the cause for which the first of the workers was stopped, and series, traced requests and losses of `listed`."""
    endings = [point.ending for point in points]
    early = next((ending for ending in endings if ending.reason), endings[0])
    workloads = (
        WorkloadRecording(
            recording,
            ConnectionCounts.added([point.workloads[number].connections for point in points]),
            tuple(request for point in listed for request in point.workloads[number].sampled),
        )
        for number, recording in enumerate(recordings)
    )
    return PointRecording(
        workloads=tuple(workloads),
        start_ns=points[0].start_ns,
        ending=dataclasses.replace(early, stopped_ns=max(ending.stopped_ns for ending in endings)),
        shares=BusyShares(*map(max, zip(*(dataclasses.astuple(point.shares) for point in points), strict=True))),
        series=tuple(series for point in listed for series in point.series),
        are_alike=points[0].are_alike,
        lost=(*lost, *(message for point in listed for message in point.lost)),
    )

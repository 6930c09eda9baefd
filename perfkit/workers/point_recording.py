"""The recording of a load point by one worker or several."""

import dataclasses
import functools
from collections.abc import Sequence

from perfkit.load.loop import Ending
from perfkit.machine.readings import BusyShares
from perfkit.recorder.batches import batch_length_ns
from perfkit.recorder.recording import AnswerTotals, Recording, merge, merge_workloads
from perfkit.recorder.series import SeriesRecorder
from perfkit.spans.span import SampledRequest
from perfkit.telemetry.series import Series
from perfkit.transport.base import ConnectionCounts
from perfkit.units import NS_PER_S


@dataclasses.dataclass(frozen=True, slots=True)
class WorkloadRecording:
    """What one worker recorded of one workload, or several workers together."""

    recording: Recording
    connections: ConnectionCounts
    sampled: tuple[SampledRequest, ...] = ()
    """The traced requests that were answered, also those of the warm-up."""

    def shifted(self, by_ns: int) -> "WorkloadRecording":
        """The same on a clock that shows `by_ns` more."""
        sampled = tuple(request.shifted(by_ns) for request in self.sampled)
        return dataclasses.replace(self, recording=self.recording.shifted(by_ns), sampled=sampled)

    @classmethod
    def merged(cls, parts: "Sequence[WorkloadRecording]") -> "WorkloadRecording":
        """The recording of all workers together."""
        sampled = tuple(request for part in parts for request in part.sampled)
        return cls(merge([part.recording for part in parts]), ConnectionCounts.added([part.connections for part in parts]), sampled)


@dataclasses.dataclass(frozen=True, slots=True)
class MachineRecording:
    """What the workers of one machine of a fleet recorded together."""

    name: str
    workers: int
    recording: Recording | None
    """None if all its workers were lost."""
    shares: BusyShares | None
    """Of its busiest worker."""
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

    def of_workload(self, number: int) -> "PointRecording":
        """One workload of a mix by itself, which ends with the whole; what was lost is told of the whole alone."""
        own = self.workloads[number]
        own = dataclasses.replace(own, recording=dataclasses.replace(own.recording, end_ns=self.recording.end_ns))
        return dataclasses.replace(self, workloads=(own,), are_alike=True, lost=(), machines=())

    def shifted(self, by_ns: int) -> "PointRecording":
        """The same on a clock that shows `by_ns` more."""
        return dataclasses.replace(
            self,
            workloads=tuple(one.shifted(by_ns) for one in self.workloads),
            start_ns=self.start_ns + by_ns,
            ending=dataclasses.replace(self.ending, stopped_ns=self.ending.stopped_ns + by_ns),
            series=tuple(series.shifted(by_ns) for series in self.series),
        )


def empty_point(start_ns: int, window_start_ns: int, end_ns: int, workloads: int) -> PointRecording:
    """The recording of a load point of so many workloads without any figures."""
    end_ns = max(end_ns, window_start_ns)
    series = SeriesRecorder(window_start_ns, window_start_ns).finish()
    recording = Recording(window_start_ns, end_ns, batch_length_ns(end_ns - window_start_ns), {}, series, {}, {}, AnswerTotals())
    parts = tuple(WorkloadRecording(recording, ConnectionCounts()) for _ in range(workloads))
    return PointRecording(parts, start_ns, Ending(end_ns), BusyShares())


def after_known_part(point: PointRecording | None) -> str:
    """A phrase for the part of a recording that is missing, such as ` after the first 60 s`; empty if all of it is missing."""
    return "" if point is None else f" after the first {(point.ending.stopped_ns - point.start_ns) / NS_PER_S:,.0f} s"


def merge_points(points: Sequence[PointRecording], lost: Sequence[str] = ()) -> PointRecording:
    """The recording of all workers together, with the busiest core and the cause for which the first of them was stopped.

    `lost` has a message for each worker whose recording is missing, besides those of the parts.
    """
    endings = [point.ending for point in points]
    early = next((ending for ending in endings if ending.reason), endings[0])
    return PointRecording(
        workloads=tuple(map(WorkloadRecording.merged, zip(*(point.workloads for point in points), strict=True))),
        start_ns=points[0].start_ns,
        ending=dataclasses.replace(early, stopped_ns=max(ending.stopped_ns for ending in endings)),
        shares=BusyShares(*map(max, zip(*(dataclasses.astuple(point.shares) for point in points), strict=True))),
        series=tuple(series for point in points for series in point.series),
        are_alike=points[0].are_alike,
        lost=(*lost, *(message for point in points for message in point.lost)),
    )

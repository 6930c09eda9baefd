"""The recording of a load point by one worker or several."""

import dataclasses
from collections.abc import Sequence

from perfkit.load.loop import Ending
from perfkit.machine.readings import BusyShares
from perfkit.recorder.batches import batch_length_ns
from perfkit.recorder.recording import AnswerTotals, Recording, merge
from perfkit.recorder.series import SeriesRecorder
from perfkit.spans.span import SampledRequest
from perfkit.telemetry.series import Series
from perfkit.transport.base import ConnectionCounts
from perfkit.units import NS_PER_S


@dataclasses.dataclass(frozen=True, slots=True)
class WorkloadRecording:
    """What one worker recorded of one workload of a mix, or several workers together."""

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


@dataclasses.dataclass(frozen=True, slots=True)
class PointRecording:
    """What one worker recorded, or several together; the recording is shorter than planned if the point ended early."""

    recording: Recording
    start_ns: int
    ending: Ending
    connections: ConnectionCounts
    shares: BusyShares
    series: tuple[Series, ...] = ()
    """Measurements of each worker's event loop."""
    lost: tuple[str, ...] = ()
    """A message for each worker whose recording is missing."""
    workloads: "tuple[WorkloadRecording, ...]" = ()
    """The parts of a mix, which add up to `recording`; empty for a single workload."""
    sampled: tuple[SampledRequest, ...] = ()
    """See `WorkloadRecording.sampled`."""
    machines: tuple[MachineRecording, ...] = ()
    """The parts of a fleet, which add up to `recording`; empty for workers of this machine."""

    def shifted(self, by_ns: int) -> "PointRecording":
        """The same on a clock that shows `by_ns` more."""
        return dataclasses.replace(
            self,
            recording=self.recording.shifted(by_ns),
            start_ns=self.start_ns + by_ns,
            ending=dataclasses.replace(self.ending, stopped_ns=self.ending.stopped_ns + by_ns),
            series=tuple(series.shifted(by_ns) for series in self.series),
            workloads=tuple(one.shifted(by_ns) for one in self.workloads),
            sampled=tuple(request.shifted(by_ns) for request in self.sampled),
        )


def empty_point(start_ns: int, window_start_ns: int, end_ns: int, workloads: int = 0) -> PointRecording:
    """The recording of a load point without any figures, for a mix with so many workloads."""
    end_ns = max(end_ns, window_start_ns)
    series = SeriesRecorder(window_start_ns, window_start_ns).finish()
    recording = Recording(window_start_ns, end_ns, batch_length_ns(end_ns - window_start_ns), {}, series, {}, {}, AnswerTotals())
    parts = tuple(WorkloadRecording(recording, ConnectionCounts()) for _ in range(workloads))
    return PointRecording(recording, start_ns, Ending(end_ns), ConnectionCounts(), BusyShares(), workloads=parts)


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
        recording=merge([point.recording for point in points]),
        start_ns=points[0].start_ns,
        ending=dataclasses.replace(early, stopped_ns=max(ending.stopped_ns for ending in endings)),
        connections=ConnectionCounts.added([point.connections for point in points]),
        shares=BusyShares(*map(max, zip(*(dataclasses.astuple(point.shares) for point in points), strict=True))),
        series=tuple(series for point in points for series in point.series),
        lost=(*lost, *(message for point in points for message in point.lost)),
        sampled=tuple(request for point in points for request in point.sampled),
        workloads=tuple(map(WorkloadRecording.merged, zip(*(point.workloads for point in points), strict=True))),
    )

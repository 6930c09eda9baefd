"""What workers recorded of one load point."""

import dataclasses
from collections.abc import Sequence

from perfkit.load.loop import Ending
from perfkit.machine.readings import BusyShares
from perfkit.recorder.recording import Recording, merge
from perfkit.telemetry.series import Series
from perfkit.transport.base import ConnectionCounts


@dataclasses.dataclass(frozen=True, slots=True)
class PointRecording:
    """What came of it; the recording is shorter than asked for where the point ended early."""

    recording: Recording
    start_ns: int
    ending: Ending
    connections: ConnectionCounts
    shares: BusyShares
    series: tuple[Series, ...] = ()
    """What each worker noted of its own event loop."""
    lost: tuple[str, ...] = ()
    """Sentences for workers that did not bring their recording home."""


def merge_points(points: Sequence[PointRecording], lost: Sequence[str] = ()) -> PointRecording:
    """What the workers made of a point together: the busiest core counts, and the reason that one of them ended early for."""
    endings = [point.ending for point in points]
    early = next((ending for ending in endings if ending.reason), endings[0])
    return PointRecording(
        recording=merge([point.recording for point in points]),
        start_ns=points[0].start_ns,
        ending=dataclasses.replace(early, stopped_ns=max(ending.stopped_ns for ending in endings)),
        connections=ConnectionCounts(
            opened=sum(point.connections.opened for point in points),
            reconnects=sum(point.connections.reconnects for point in points),
            retried=sum(point.connections.retried for point in points),
        ),
        shares=BusyShares(
            cpu=max(point.shares.cpu for point in points),
            steal=max(point.shares.steal for point in points),
            throttled=max(point.shares.throttled for point in points),
        ),
        series=tuple(series for point in points for series in point.series),
        lost=tuple(lost),
    )

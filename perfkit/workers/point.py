"""What workers do in one load point, how they share it, and what they made of it together."""

import dataclasses
from collections.abc import Sequence

from perfkit.load.arrivals import count_worker_arrivals
from perfkit.load.load_plan import ClosedPlan, LoadPlan, OpenPlan
from perfkit.load.loop import Ending
from perfkit.machine.readings import BusyShares
from perfkit.recorder.merge import merge
from perfkit.recorder.recording import Recording
from perfkit.telemetry.series import Series
from perfkit.transport.base import ConnectionCounts


@dataclasses.dataclass(frozen=True, slots=True)
class PointSpec:
    """What one worker does in one load point; `load` is that of all of them."""

    load: LoadPlan
    warmup_ns: int
    window_ns: int | None
    requests: int | None
    drain_ns: int
    connections: int
    finds_warm_up: bool = False
    good_within_ns: int | None = None
    abort_error_rate: float | None = None
    overload_abort_after_ns: int | None = None
    """The longest time that any limit of an SLO allows: an open loop that is behind by three times that, and goes on falling, stops."""
    worker: int = 0
    workers: int = 1

    @property
    def max_workers(self) -> int | None:
        """How many workers have something to do; None for as many as one likes."""
        return self.load.concurrency if isinstance(self.load, ClosedPlan) else self.load.max_in_flight

    def shared(self, workers: int) -> list["PointSpec"]:
        """What each of so many workers does, so that together they do what one would."""
        return [self._of(worker, workers) for worker in range(workers)]

    def _of(self, worker: int, workers: int) -> "PointSpec":
        load, requests = self.load, self.requests
        if isinstance(load, OpenPlan):
            if requests is not None:
                requests = count_worker_arrivals(load.schedule.chunks(), self.warmup_ns, requests, worker, workers)
            if load.max_in_flight is not None:
                load = dataclasses.replace(load, max_in_flight=part(load.max_in_flight, worker, workers))
        elif requests is not None:  # as many as its slots will come to, so that no worker ends long before the others
            slots = [len(range(one, load.concurrency, workers)) for one in range(worker + 1)]
            requests = requests * sum(slots) // load.concurrency - requests * sum(slots[:-1]) // load.concurrency
        connections = part(self.connections, worker, workers)
        return dataclasses.replace(self, load=load, requests=requests, connections=connections, worker=worker, workers=workers)


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


def part(whole: int, worker: int, workers: int) -> int:
    """A worker's part of a number: all parts add up to it, and differ by one at most."""
    return whole // workers + (worker < whole % workers)

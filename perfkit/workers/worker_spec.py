"""What a worker is to do in one load point: plain data, which crosses to other processes."""

import dataclasses
from collections.abc import Sequence

from perfkit.load.arrivals import count_worker_arrivals
from perfkit.load.load_plan import ClosedPlan, LoadPlan, OpenPlan
from perfkit.protocol.message import InferRequest
from perfkit.target.address import Address
from perfkit.transport.options import TransportOptions
from perfkit.workload.expectation import Expectation


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

    def split(self, workers: int) -> list["PointSpec"]:
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


@dataclasses.dataclass(frozen=True)
class WorkerSpec:
    """A load point, its target, and the requests to send there: plain data, which crosses to other processes."""

    point: PointSpec
    address: Address
    transport: TransportOptions
    requests: tuple[InferRequest, ...]
    expectation: Expectation
    check_share: float
    check_at_most_per_s: float
    seed: int
    cpus: tuple[int, ...] = ()
    """To be pinned to, where the worker is a process of its own."""

    def split(self, workers: int, cpus: Sequence[int]) -> "list[WorkerSpec]":
        """The orders of so many workers, who together do what one would, on a CPU each as long as there are enough."""
        return [
            dataclasses.replace(
                self,
                point=point,
                transport=dataclasses.replace(self.transport, max_connections=part(self.transport.max_connections, worker, workers)),
                check_at_most_per_s=self.check_at_most_per_s / workers,
                seed=self.seed * workers + worker,
                cpus=(cpus[worker % len(cpus)],) if cpus else (),
            )
            for worker, point in enumerate(self.point.split(workers))
        ]


def part(whole: int, worker: int, workers: int) -> int:
    """A worker's part of a number: all parts add up to it, and differ by one at most."""
    return whole // workers + (worker < whole % workers)

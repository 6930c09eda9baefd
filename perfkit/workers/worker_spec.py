"""The specification of a worker's part in a load point: plain data that is sent to the worker's process."""

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
    """What one of `workers` workers does in a load point; `load` is that of all workers together."""

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
    """The longest limit of the SLO: an open loop whose backlog grows beyond three times that is stopped; see `is_overloaded`."""
    worker: int = 0
    workers: int = 1

    @property
    def max_workers(self) -> int | None:
        """The largest number of workers that all have work to do; None without a limit."""
        return self.load.concurrency if isinstance(self.load, ClosedPlan) else self.load.max_in_flight

    def split(self, workers: int) -> list["PointSpec"]:
        """The specs that divide the load among several workers."""
        return [self._share(worker, workers) for worker in range(workers)]

    def _share(self, worker: int, workers: int) -> "PointSpec":
        load, requests = self.load, self.requests
        if isinstance(load, OpenPlan):
            if requests is not None:
                requests = count_worker_arrivals(load.schedule.chunks(), self.warmup_ns, requests, worker, workers)
            if load.max_in_flight is not None:
                load = dataclasses.replace(load, max_in_flight=part(load.max_in_flight, worker, workers))
        elif requests is not None:  # in proportion to its slots, so that all workers end at about the same time
            slots = [len(range(number, load.concurrency, workers)) for number in range(worker + 1)]
            requests = requests * sum(slots) // load.concurrency - requests * sum(slots[:-1]) // load.concurrency
        connections = part(self.connections, worker, workers)
        return dataclasses.replace(self, load=load, requests=requests, connections=connections, worker=worker, workers=workers)


@dataclasses.dataclass(frozen=True)
class WorkerSpec:
    """A load point, its target, and the requests to send."""

    point: PointSpec
    address: Address
    transport: TransportOptions
    requests: tuple[InferRequest, ...]
    expectation: Expectation
    check_share: float
    check_at_most_per_s: float
    seed: int
    cpus: tuple[int, ...] = ()
    """CPUs to pin the worker process to; empty for no pinning."""
    is_live: bool = False
    """Whether a worker process sends `LiveFigures` once a second."""

    def split(self, workers: int, cpus: Sequence[int]) -> "list[WorkerSpec]":
        """The specs that divide the load among several workers, each on one CPU; they share CPUs if there are too few."""
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
    """A worker's part of a number; the parts add up to it and differ by at most 1."""
    return whole // workers + (worker < whole % workers)

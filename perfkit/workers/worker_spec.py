"""The specification of a worker's part in a load point: plain data that is sent to the worker's process."""

import dataclasses
from collections.abc import Sequence

from perfkit.load.arrivals import count_worker_arrivals
from perfkit.load.load_plan import ClosedPlan, LoadPlan, OpenPlan
from perfkit.protocol.message import InferRequest
from perfkit.target.address import Address
from perfkit.trace.recorded import Indices
from perfkit.transport.options import TransportOptions
from perfkit.units import part
from perfkit.workers.request_sampler import SamplingSpec
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
    is_streamed: bool = False
    """Whether replies have the instants of their responses."""
    worker: int = 0
    workers: int = 1
    checkpoint_ns: int | None = None
    """How often the recording so far is sent, in whole seconds; None for never."""
    expected_window_ns: int | None = None
    """About how long a window lasts that a number of requests ends; None if its length is known."""
    timeout_ns: int = 0
    """That of a request: by then it is answered, or has failed."""

    @property
    def has_checkpoints(self) -> bool:
        """Whether its window is longer than the time between checkpoints, or is expected to be."""
        window_ns = self.window_ns or self.expected_window_ns
        return self.checkpoint_ns is not None and window_ns is not None and window_ns > self.checkpoint_ns

    @property
    def max_workers(self) -> int | None:
        """The largest number of workers that all have work to do; None without a limit."""
        if isinstance(self.load, ClosedPlan):
            return self.load.concurrency
        live = self.load.sequences.live if self.load.sequences else None
        return min((limit for limit in (self.load.max_in_flight, live) if limit is not None), default=None)

    def split(self, workers: int) -> list["PointSpec"]:
        """The specs that divide the load among several workers."""
        return [self.share(worker, workers) for worker in range(workers)]

    def share(self, worker: int, workers: int) -> "PointSpec":
        """The spec of one of several workers that divide the load."""
        load, requests = self.load, self.requests
        if isinstance(load, OpenPlan):
            if requests is not None:
                requests = count_worker_arrivals(load.schedule.chunks(), self.warmup_ns, requests, worker, workers)
            if load.max_in_flight is not None:
                load = dataclasses.replace(load, max_in_flight=part(load.max_in_flight, worker, workers))
            if load.sequences is not None and load.sequences.live is not None:
                sequences = dataclasses.replace(load.sequences, live=part(load.sequences.live, worker, workers))
                load = dataclasses.replace(load, sequences=sequences)
        elif requests is not None:  # in proportion to its slots, so that all workers end at about the same time
            before = worker * (load.concurrency // workers) + min(worker, load.concurrency % workers)
            own = len(range(worker, load.concurrency, workers))
            requests = requests * (before + own) // load.concurrency - requests * before // load.concurrency
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
    request_indices: Indices | None = None
    """Of a replay: the index of the request for each arrival of all workers; None for requests that are used in turn."""
    sampling: SamplingSpec | None = None
    """How many requests are traced; None for none."""
    is_live: bool = False
    """Whether a worker process sends `LiveFigures` once a second."""

    @property
    def connections(self) -> int:
        """The connections that are opened ahead."""
        return self.point.connections

    @property
    def has_checkpoints(self) -> bool:
        """See `PointSpec.has_checkpoints`."""
        return self.point.has_checkpoints

    @property
    def workload_count(self) -> int:
        """The number of workloads of a mix: this is none."""
        return 0

    def live(self, *, is_live: bool) -> "WorkerSpec":
        """The same for workers that send live figures, or not."""
        return dataclasses.replace(self, is_live=is_live)

    def without_requests(self) -> "WorkerSpec":
        """The same without tensors, which may be large."""
        return dataclasses.replace(self, requests=())

    def split(self, workers: int, cpus: Sequence[int]) -> "list[WorkerSpec]":
        """The specs that divide the load among several workers, each on one CPU; they share CPUs if there are too few."""
        return [self.share(worker, workers, (cpus[worker % len(cpus)],) if cpus else ()) for worker in range(workers)]

    def share(self, worker: int, workers: int, cpus: tuple[int, ...] = ()) -> "WorkerSpec":
        """The spec of one of several workers that divide the load, pinned to these CPUs."""
        seed = self.seed * workers + worker
        return dataclasses.replace(
            self,
            point=self.point.share(worker, workers),
            transport=dataclasses.replace(self.transport, max_connections=part(self.transport.max_connections, worker, workers), seed=seed),
            check_at_most_per_s=self.check_at_most_per_s / workers,
            seed=seed,
            sampling=self.sampling and self.sampling.split(worker, workers),
            cpus=cpus,
        )


@dataclasses.dataclass(frozen=True)
class MixSpec:
    """A load point of several workloads: what a single worker would do for each.

    With `weights` the workloads share the load of the first one's `point`, one of them chosen for each request; otherwise each has its own.
    """

    workloads: tuple[WorkerSpec, ...]
    weights: tuple[int, ...] = ()
    choices_seed: tuple[int, ...] = ()

    @property
    def cpus(self) -> tuple[int, ...]:
        """See `WorkerSpec.cpus`."""
        return self.workloads[0].cpus

    @property
    def has_checkpoints(self) -> bool:
        """See `PointSpec.has_checkpoints`."""
        return self.workloads[0].has_checkpoints

    @property
    def workload_count(self) -> int:
        """The number of workloads."""
        return len(self.workloads)

    @property
    def is_live(self) -> bool:
        """See `WorkerSpec.is_live`."""
        return self.workloads[0].is_live

    @property
    def connections(self) -> int:
        """The connections that are opened ahead."""
        return sum(one.point.connections for one in self.workloads)

    @property
    def max_workers(self) -> int:
        """The largest number of workers that all have work to do, and may open connections for each workload."""
        limits = [one.transport.max_connections for one in self.workloads]
        limits += [most for one in self.workloads if isinstance(one.point.load, OpenPlan) and (most := one.point.max_workers) is not None]
        closed = [one.point.load.concurrency for one in self.workloads if isinstance(one.point.load, ClosedPlan)]
        return min(*limits, max(closed) if len(closed) == len(self.workloads) else limits[0])

    def without_requests(self) -> "MixSpec":
        """See `WorkerSpec.without_requests`."""
        return dataclasses.replace(self, workloads=tuple(one.without_requests() for one in self.workloads))

    def split(self, workers: int, cpus: Sequence[int]) -> "list[MixSpec]":
        """See `WorkerSpec.split`."""
        return [self.share(worker, workers, (cpus[worker % len(cpus)],) if cpus else ()) for worker in range(workers)]

    def share(self, worker: int, workers: int, cpus: tuple[int, ...] = ()) -> "MixSpec":
        """See `WorkerSpec.share`."""
        workloads = tuple(one.share(worker, workers, cpus) for one in self.workloads)
        return dataclasses.replace(self, workloads=workloads, choices_seed=(*self.choices_seed, worker))

    def live(self, *, is_live: bool) -> "MixSpec":
        """The same for workers that send live figures, or not."""
        return dataclasses.replace(self, workloads=tuple(dataclasses.replace(one, is_live=is_live) for one in self.workloads))

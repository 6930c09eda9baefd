"""Messages between perfkit and its worker processes.

To the worker, for each load point: a `WorkerSpec`, then `Begin`, `RenewedAddresses` when secrets have changed, and `StopOrder` if the point is ended early. From the worker: `Ready`; once a second
`Progress`, a `Piece` of its recording and, for a live view, `LiveFigures`; in a cold start a `Replied` for each request; and finally the last
piece, the PerfkitError that prevented the measurement, or `Crashed`. Workers that answer as one also send `PartLost`, and `StopOrder`
when one of them has stopped for a reason that holds for all.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from perfkit.load.abandonment import AbandonPlan
from perfkit.load.arrivals import count_worker_arrivals
from perfkit.load.load_plan import ClosedPlan, LoadPlan, OpenPlan
from perfkit.load.loop import StopCause
from perfkit.load.retries import RetryPlan
from perfkit.protocol.message import InferRequest
from perfkit.target.address import Address
from perfkit.trace.recorded import Indices
from perfkit.transport.base import Outcome
from perfkit.transport.options import TransportOptions
from perfkit.units import part
from perfkit.workers.point_recording import PointRecording
from perfkit.workers.request_sampler import SamplingSpec
from perfkit.workload.expectation import Expectation

# the first arrival of an open loop may be due at once; what remains to be made ready takes some ms
_OPEN_LEAD_NS = 20_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Begin:
    """To the worker: begin at that instant of the monotonic clock, which all processes of a machine share."""

    at_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class StopOrder:
    """To the worker, and from several that answer as one: see `Loop.stop`."""

    reason: str
    cause: StopCause
    drain: bool


@dataclasses.dataclass(frozen=True, slots=True)
class RenewedAddresses:
    """To the worker: the addresses of its workloads, in their order, with other headers than before."""

    addresses: tuple[Address, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """From the worker: its connections are open."""


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """From the worker, once a second: it is alive."""


@dataclasses.dataclass(frozen=True, slots=True)
class Replied:
    """From the worker of a cold start: a request has ended."""

    outcome: Outcome
    started_ns: int
    finished_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """From the worker: the next piece of its recording; with those before, it holds what a load that ended at `at_ns` would have."""

    at_ns: int
    """Whole seconds after the window's start; the end of the recording for the last piece."""
    point: PointRecording
    is_last: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class PartLost:
    """From workers that answer as one: one of them is lost; what it had sent counts."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Crashed:
    """From the worker: a bug, with its traceback."""

    traceback: str


@dataclasses.dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """One workload of a load point: its load, its target, and the requests to send."""

    load: LoadPlan
    """Where the workloads share a load, its share of it, which says how its requests are recorded."""
    connections: int
    """The number of connections that are opened ahead."""
    address: Address
    transport: TransportOptions
    requests: tuple[InferRequest, ...]
    expectation: Expectation
    check_share: float
    check_at_most_per_s: float
    seed: int
    request_indices: Indices | None = None
    """The index of the request for each arrival of a replay, of all workers; None for requests that are used in turn."""
    sampling: SamplingSpec | None = None
    """How many requests are traced; None for none."""
    good_within_ns: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """See `Recorder`."""
    is_streamed: bool = False
    """Whether replies have the instants of their responses."""
    abandon: AbandonPlan | None = None
    """Which requests are given up; None for none."""
    retry: RetryPlan | None = None
    """How failed requests are sent again; None if they are not."""

    @property
    def is_open(self) -> bool:
        """Whether its requests have intended starts."""
        return isinstance(self.load, OpenPlan)

    def share(self, worker: int, workers: int) -> "WorkloadSpec":
        """The part of one of several workers that divide the load."""
        seed = self.seed * workers + worker
        return dataclasses.replace(
            self,
            load=_share_of_load(self.load, worker, workers),
            connections=part(self.connections, worker, workers),
            transport=dataclasses.replace(self.transport, max_connections=part(self.transport.max_connections, worker, workers), seed=seed),
            check_at_most_per_s=self.check_at_most_per_s / workers,
            seed=seed,
            sampling=self.sampling and self.sampling.split(worker, workers),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What one of `workers` workers does in a load point: the phases of all workloads, and the load of each."""

    workloads: tuple[WorkloadSpec, ...]
    warmup_ns: int
    window_ns: int | None
    requests: int | None
    drain_ns: int
    shared: LoadPlan | None = None
    """The load that the workloads share: one of them is chosen for each request. None if each sends its own."""
    weights: tuple[int, ...] = ()
    """Their weights in the shared load."""
    choices_seed: tuple[int, ...] = ()
    finds_warm_up: bool = False
    warm_up: LoadPlan | None = None
    """A load that is sent first and not recorded; None for none."""
    warm_up_ns: int = 0
    """How long it is sent: a part of `warmup_ns`."""
    abort_error_rate: float | None = None
    overload_abort_after_ns: int | None = None
    """The longest limit of the SLO: an open loop whose backlog grows beyond three times that is stopped; see `is_overloaded`."""
    worker: int = 0
    workers: int = 1
    timeout_ns: int = 0
    """The longest of a request: by then it is answered, or has failed."""
    cpus: tuple[int, ...] = ()
    """CPUs to pin the worker process to; empty for no pinning."""
    is_live: bool = False
    """Whether a worker process sends `LiveFigures` once a second."""
    reports_replies: bool = False
    """Whether it sends `Replied` for each request."""
    replies_file: str | None = None
    """Where it writes all replies; see `ReplyFile`."""

    @property
    def loads(self) -> tuple[LoadPlan, ...]:
        """The loads that are sent side by side, each by a loop of its own."""
        return tuple(one.load for one in self.workloads) if self.shared is None else (self.shared,)

    @property
    def lead_ns(self) -> int:
        """How long before its start a worker has all ready, and its loops begin to wait for it."""
        return _OPEN_LEAD_NS if any(isinstance(load, OpenPlan) for load in self.loads) else 0

    @property
    def connections(self) -> int:
        """The connections that are opened ahead."""
        return sum(one.connections for one in self.workloads)

    @property
    def max_workers(self) -> int:
        """The largest number of workers that all have work to do, and may open connections for each workload."""
        limits = [one.transport.max_connections for one in self.workloads]
        opened = [load for load in self.loads if isinstance(load, OpenPlan)]
        limits += [limit for load in opened for limit in _limits_in_flight(load) if limit is not None]
        closed = [load.concurrency for load in self.loads if isinstance(load, ClosedPlan)]
        return min(*limits, limits[0] if opened else max(closed))

    def without_requests(self) -> "WorkerSpec":
        """The same without tensors, which may be large."""
        return dataclasses.replace(self, workloads=tuple(dataclasses.replace(one, requests=()) for one in self.workloads))

    def split(self, workers: int, cpus: Sequence[int] = ()) -> "list[WorkerSpec]":
        """The specs that divide the load among several workers, each on one CPU; they share CPUs if there are too few."""
        return [self.share(worker, workers, (cpus[worker % len(cpus)],) if cpus else ()) for worker in range(workers)]

    def share(self, worker: int, workers: int, cpus: tuple[int, ...] = ()) -> "WorkerSpec":
        """The spec of one of several workers that divide the load, pinned to these CPUs."""
        return dataclasses.replace(
            self,
            workloads=tuple(one.share(worker, workers) for one in self.workloads),
            shared=self.shared and _share_of_load(self.shared, worker, workers),
            warm_up=self.warm_up and _share_of_load(self.warm_up, worker, workers),
            requests=None if self.requests is None else self._share_of_requests(self.requests, worker, workers),
            choices_seed=(*self.choices_seed, worker),
            worker=worker,
            workers=workers,
            cpus=cpus,
        )

    def _share_of_requests(self, requests: int, worker: int, workers: int) -> int:
        (load,) = self.loads
        if isinstance(load, OpenPlan):
            return count_worker_arrivals(load.schedule.chunks(), self.warmup_ns - self.warm_up_ns, requests, worker, workers)
        # in proportion to its slots, so that all workers end at about the same time
        before = worker * (load.concurrency // workers) + min(worker, load.concurrency % workers)
        own = len(range(worker, load.concurrency, workers))
        return requests * (before + own) // load.concurrency - requests * before // load.concurrency


def _limits_in_flight(load: OpenPlan) -> tuple[int | None, int | None]:
    return load.max_in_flight, load.sequences.live if load.sequences else None


def _share_of_load(load: LoadPlan, worker: int, workers: int) -> LoadPlan:
    """A load with one worker's part of its limits; a loop takes its part of slots and arrivals by itself."""
    if not isinstance(load, OpenPlan):
        return load
    if load.max_in_flight is not None:
        load = dataclasses.replace(load, max_in_flight=part(load.max_in_flight, worker, workers))
    if load.sequences is not None and load.sequences.live is not None:
        load = dataclasses.replace(load, sequences=dataclasses.replace(load.sequences, live=part(load.sequences.live, worker, workers)))
    return load

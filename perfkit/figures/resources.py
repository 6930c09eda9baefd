"""The figures of a load point's window: the server, its GPUs, pages of metrics and the generator's machine.

Plain values for `result.json`. Shares are fractions of one; None means that the source does not report the figure.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from perfkit.figures.declaration import Figure, largest, mean, mean_of_all, smallest, total, total_known, union

_SERVER_MEAN = "the mean of {counted}"
_ServerMean = Annotated[float | None, Figure(unit="ns", explained=_SERVER_MEAN)]
_Mean = Annotated[float | None, Figure(pooled=mean)]
_Total = Annotated[float | None, Figure(pooled=total)]

IDLE_GPU_SHARE = 0.05
"""A GPU that computes for a smaller share of a window counts as idle."""
EVENT_LOOP_LAG, GC_PAUSE = "event_loop_lag", "gc_pause"
"""Names of the series of a worker's late timers and garbage collections."""
_MOST_PROCESSES = 5


def _used(values: Sequence[tuple[bool | None, int]]) -> bool | None:
    return True if any(value for value, _ in values) else values[0][0]


def _energy_source(values: Sequence[tuple[str | None, int]]) -> str | None:
    """The least exact of the sources of energy."""
    return "power" if any(value == "power" for value, _ in values) else values[0][0]


@dataclasses.dataclass(frozen=True, slots=True)
class GpuFigures:
    """One GPU over a window."""

    uuid: str
    name: str
    source: Literal["nvml", "metrics"]
    """The driver (nvml), or a page of metrics."""
    utilization_mean: _Mean = None
    """The share of time in which it computed."""
    memory_used_max_bytes: Annotated[int | None, Figure(pooled=largest)] = None
    power_mean_w: _Mean = None
    energy_j: _Total = None
    sm_clock_mean_mhz: _Mean = None
    throttled_share: _Mean = None
    """The share of time in which its clocks were lowered."""
    index: int | None = None
    mig: bool = False
    """A MIG instance, for which the driver reports memory only."""
    memory_total_bytes: int | None = None
    memory_utilization_mean: _Mean = None
    """The share of time in which its memory was read or written."""
    temperature_max_celsius: Annotated[float | None, Figure(pooled=largest)] = None
    memory_clock_mean_mhz: _Mean = None
    energy_source: Annotated[Literal["counter", "power"] | None, Figure(pooled=_energy_source)] = None
    """Whether the energy comes from an energy counter or from integrated power."""
    idle_power_w: float | None = None
    """Mean power before the run, without load."""
    ecc_errors: Annotated[int | None, Figure(pooled=total)] = None
    """New ECC errors in the window, corrected and uncorrected."""
    throttle_reasons: Annotated[tuple[str, ...], Figure(pooled=union)] = ()
    """Why its clocks were lowered, in the driver's words."""
    driver_version: str | None = None
    parent_uuid: str | None = None
    """The UUID of the GPU that a MIG instance belongs to."""
    power_source: Literal["instant", "samples", "average"] | None = None
    """How the driver reports power: an instant value, its sample buffer, or a mean over a second."""
    energy_above_idle_j: _Total = None
    """The energy minus what `idle_power_w` adds up to over the window."""
    ecc_uncorrected_errors: Annotated[int | None, Figure(pooled=total)] = None
    pcie_sent_mean_bytes_per_s: _Mean = None
    pcie_received_mean_bytes_per_s: _Mean = None
    used_by_server: Annotated[bool | None, Figure(pooled=_used)] = None
    """Whether a process of the target computed on it; None where that is unknown."""

    @property
    def may_serve(self) -> bool:
        """Whether the target may use it: it is not known not to."""
        return self.used_by_server is not False


@dataclasses.dataclass(frozen=True, slots=True)
class MetricFigures:
    """One metric of a page over a window: `rise` and `per_s` of a counter; mean, minimum and maximum of anything else."""

    name: str
    labels: dict[str, str]
    kind: Literal["counter", "gauge"]
    rise: _Total = None
    """How much a counter grew."""
    per_s: Annotated[float | None, Figure(pooled=mean_of_all)] = None
    """A counter's growth per second."""
    mean: _Mean = None
    min: Annotated[float | None, Figure(pooled=smallest)] = None
    max: Annotated[float | None, Figure(pooled=largest)] = None


@dataclasses.dataclass(frozen=True, slots=True)
class BusyProcess:
    """A process that is neither perfkit's nor the target's."""

    name: str
    pid: int
    cpus: float
    """How many CPUs it kept busy."""


@dataclasses.dataclass(frozen=True, slots=True)
class OtherProcesses:
    """What all processes besides perfkit and the target used while a load point was measured, its warm-up included."""

    cpus: float
    """How many CPUs they kept busy."""
    busiest: tuple[BusyProcess, ...] = ()
    """The busiest of those that can be seen, at most five."""
    may_include_target: bool = False
    """Whether the target may be among them: its processes are another user's or a container's, and cannot be told apart."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerCpuUse:
    """What all processes of a server that perfkit started used in a window."""

    cpu_ns: int
    """User and system time."""
    instructions: int | None = None
    """Executed in user mode; None where they are not counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerCpuFigures:
    """The CPU use of a server that perfkit started, all its processes together."""

    cpus: Annotated[float, Figure("CPUs", "number", "server", column="server_cpus", order=1)]
    """How many CPUs it kept busy."""
    time_per_request_ns: Annotated[float | None, Figure("CPU time", "ns", "server", column="server_cpu_per_request_ns", metric="cpu_time")]
    """User and system time in the window ÷ ok answers that came in it; None without answers."""
    instructions_per_request: Annotated[float | None, Figure("instructions", metric="instructions")] = None
    """Executed in user mode; counted only if `gate.metrics` names them, and where the machine has such counters."""


def _each_mean(values: Sequence[tuple[tuple[float | None, ...], int]]) -> tuple[float | None, ...]:
    """The mean of each worker, over the windows that had as many."""
    workers = max(len(shares) for shares, _ in values)
    return tuple(mean([(shares[worker], length) for shares, length in values if worker < len(shares)]) for worker in range(workers))


def _pooled_others(values: Sequence[tuple[OtherProcesses | None, int]]) -> OtherProcesses | None:
    """Means over all windows where they are known; a process that was not among the busiest of a window counts there as idle."""
    known = [(others, length) for others, length in values if others is not None]
    total_ns = sum(length for _, length in known)
    if not total_ns:
        return None
    cpus_by_process: dict[tuple[str, int], float] = {}
    for others, length in known:
        for one in others.busiest:
            cpus_by_process[one.name, one.pid] = cpus_by_process.get((one.name, one.pid), 0.0) + one.cpus * length / total_ns
    busiest = sorted((BusyProcess(name, pid, used) for (name, pid), used in cpus_by_process.items()), key=lambda one: -one.cpus)
    cpus = sum(others.cpus * length for others, length in known) / total_ns
    return OtherProcesses(cpus, tuple(busiest[:_MOST_PROCESSES]), any(others.may_include_target for others, _ in known))


@dataclasses.dataclass(frozen=True, slots=True)
class MachineFigures:
    """The generator's machine over a window; None also where the window was too short for a figure."""

    cpu_share: _Mean = None
    """The busy share of all CPUs together."""
    steal_share: _Mean = None
    worker_cpu_shares: Annotated[tuple[float | None, ...], Figure(pooled=_each_mean)] = ()
    """The share of one core that each worker used."""
    voluntary_switches: Annotated[int | None, Figure(pooled=total_known)] = None
    """Context switches of all workers' main threads because they waited."""
    involuntary_switches: Annotated[int | None, Figure(pooled=total_known)] = None
    """Context switches of the same threads because another process took the CPU."""
    tcp_segments_sent: Annotated[int | None, Figure(pooled=total_known)] = None
    tcp_retransmits: Annotated[int | None, Figure(pooled=total_known)] = None
    sockets_max: Annotated[int | None, Figure(pooled=largest)] = None
    """TCP sockets of the machine, including those in TIME_WAIT."""
    open_files_max: Annotated[int | None, Figure(pooled=largest)] = None
    """The open files and sockets of the worker with the most."""
    open_files_limit: Annotated[int | None, Figure(pooled=largest)] = None
    others: Annotated[OtherProcesses | None, Figure(pooled=_pooled_others)] = None
    """What else ran on the machine."""


@dataclasses.dataclass(frozen=True, slots=True)
class ComposingModelFigures:
    """The statistics of a model that an ensemble runs as a step; see `ServerFigures`. Other requests for the model count, too."""

    name: str
    versions: tuple[str, ...]
    requests: int
    failed: int
    queue_ns: float | None
    compute_input_ns: float | None
    compute_infer_ns: float | None
    compute_output_ns: float | None
    executions: int
    mean_batch: float | None
    success_ns: float | None = None
    """See `ServerFigures`."""


Stage = Literal["queue", "preprocess", "inference", "postprocess", "explain", "first_response", "total"]
"""A part of a request's time in the server; `first_response` and `total` begin when the request comes."""
STAGE_NAMES: Mapping[Stage, str] = {
    "queue": "queue", "preprocess": "pre-processing", "inference": "inference", "postprocess": "post-processing", "explain": "explanation",
    "first_response": "first response", "total": "total",
}  # fmt: skip
_SPLIT: Mapping[Stage, str] = {
    "queue": "queue_ns", "preprocess": "compute_input_ns", "inference": "compute_infer_ns", "postprocess": "compute_output_ns",
    "total": "success_ns",
}  # fmt: skip
"""The figures of `ServerFigures` that are the means of stages."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerTimeFigures:
    """The times of one stage by a metric of the server's page, between the readings of the page at the window's ends."""

    stage: Stage
    metric: str
    """Its name, without `_bucket`, `_sum` and `_count`."""
    count: int
    """How many times it counted."""
    mean_ns: float | None
    percentiles_ns: dict[str, tuple[float, float | None]]
    """The ends of the bucket in which a percentile lies; null above the last bound. Without one that has too few times, or no buckets."""
    buckets: tuple[tuple[float | None, int], ...] = ()
    """The upper bounds in nanoseconds, null for none, and the numbers of times above the bound before; without empty buckets."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerFigures:
    """The server's own figures of a load point. Times are means per request; None where nothing was counted."""

    requests: int
    """Successful requests of the whole load point, warm-up and drain included. Of a page of metrics: what its metrics counted in the window."""
    failed: int | None
    """None if the figures are from a page of metrics."""
    success_ns: _ServerMean
    """From entering the server's queue to the end of the answer, without network and parsing."""
    queue_ns: Annotated[float | None, Figure("queue", "ns", "server", column="server_queue_ns", explained=_SERVER_MEAN)]
    """Time in the server's queue, a mean per request in nanoseconds; null where nothing was counted."""
    compute_input_ns: _ServerMean
    """Time to prepare inputs, a mean per request in nanoseconds; null where nothing was counted."""
    compute_infer_ns: _ServerMean
    """Time of the inference itself, a mean per request in nanoseconds; null where nothing was counted."""
    compute_output_ns: _ServerMean
    """Time to take the outputs, a mean per request in nanoseconds; null where nothing was counted."""
    executions: int | None
    """Executions of the model, each of a batch; None if the figures are from a page of metrics."""
    mean_batch: float | None
    """Inferences per execution."""
    inferences: int = 0
    cache_hits: int = 0
    """Requests answered from the server's cache."""
    cache_misses: int = 0
    """Requests that a server with a response cache looked up in vain."""
    cache_hit_ns: float | None = None
    """Looking up an answer in the cache and copying it."""
    cache_miss_ns: float | None = None
    """Looking up in vain, and storing the answer."""
    client_requests: int = 0
    """Requests that perfkit saw answered over the same span."""
    client_mean_ns: float | None = None
    """Mean service time of `client_requests`; where `source` is `metrics`, of all requests in those windows, with those that timed out."""
    versions: tuple[str, ...] = ()
    """Versions of the model that executed requests."""
    composing_models: tuple[ComposingModelFigures, ...] = ()
    """The models of an ensemble's steps, and those that `target.composing_models` names."""
    source: Literal["statistics", "metrics"] = "statistics"
    """The server's v2 statistics, or its page of metrics."""
    times: tuple[ServerTimeFigures, ...] = ()
    """What the page of metrics has of each stage, also beside statistics."""

    @classmethod
    def of_page(cls, times: Sequence[ServerTimeFigures], client_requests: int, client_mean_ns: float | None) -> "ServerFigures":
        """The figures of a server without statistics; the client's are those of the window."""
        by_stage = {one.stage: one for one in times}
        counted = next((by_stage[stage] for stage in ("total", "inference", "queue") if stage in by_stage), times[0])
        means = {field: by_stage[stage].mean_ns for stage, field in _SPLIT.items() if stage in by_stage}
        return cls(
            requests=counted.count,
            failed=None,
            success_ns=means.get("success_ns"),
            queue_ns=means.get("queue_ns"),
            compute_input_ns=means.get("compute_input_ns"),
            compute_infer_ns=means.get("compute_infer_ns"),
            compute_output_ns=means.get("compute_output_ns"),
            executions=None,
            mean_batch=None,
            client_requests=client_requests,
            client_mean_ns=client_mean_ns,
            source="metrics",
            times=tuple(times),
        )

    @property
    def counted(self) -> str:
        """What the means are of, in words."""
        if self.source == "metrics":
            return "the times in the window, by the server's page of metrics"
        return f"{self.requests:,} successful requests of the whole load point by the server's own count, warm-up included"

    @property
    def missing(self) -> tuple[Stage, ...]:
        """The stages of the split that are not known."""
        return tuple(stage for stage, field in _SPLIT.items() if stage != "total" and getattr(self, field) is None)

    @property
    def compute_ns(self) -> Annotated[float | None, Figure("compute", "ns", "server", column="server_compute_ns")]:
        """Input, inference and output together."""
        parts = [part for part in (self.compute_input_ns, self.compute_infer_ns, self.compute_output_ns) if part is not None]
        return sum(parts) if parts else None

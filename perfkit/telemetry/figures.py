"""The figures of a load point's window: the server, its GPUs, pages of metrics and the generator's machine.

Plain values for `result.json`. Shares are fractions of one; None means that the source does not report the figure.
"""

import dataclasses
from typing import Literal

IDLE_GPU_SHARE = 0.05
"""A GPU that computes for a smaller share of a window counts as idle."""


@dataclasses.dataclass(frozen=True, slots=True)
class GpuFigures:
    """One GPU over a window."""

    uuid: str
    name: str
    source: Literal["nvml", "metrics"]
    """The driver (nvml), or a page of metrics."""
    utilization_mean: float | None = None
    """The share of time in which it computed."""
    memory_used_max_bytes: int | None = None
    power_mean_w: float | None = None
    energy_j: float | None = None
    sm_clock_mean_mhz: float | None = None
    throttled_share: float | None = None
    """The share of time in which its clocks were lowered."""
    index: int | None = None
    mig: bool = False
    """A MIG instance, for which the driver reports memory only."""
    memory_total_bytes: int | None = None
    memory_utilization_mean: float | None = None
    """The share of time in which its memory was read or written."""
    temperature_max_celsius: float | None = None
    memory_clock_mean_mhz: float | None = None
    energy_source: Literal["counter", "power"] | None = None
    """Whether the energy comes from an energy counter or from integrated power."""
    idle_power_w: float | None = None
    """Mean power before the run, without load."""
    ecc_errors: int | None = None
    """New ECC errors in the window, corrected and uncorrected."""
    throttle_reasons: tuple[str, ...] = ()
    """Why its clocks were lowered, in the driver's words."""
    driver_version: str | None = None
    parent_uuid: str | None = None
    """The UUID of the GPU that a MIG instance belongs to."""
    power_source: Literal["instant", "samples", "average"] | None = None
    """How the driver reports power: an instant value, its sample buffer, or a mean over a second."""
    energy_above_idle_j: float | None = None
    """The energy minus what `idle_power_w` adds up to over the window."""
    ecc_uncorrected_errors: int | None = None
    pcie_sent_mean_bytes_per_s: float | None = None
    pcie_received_mean_bytes_per_s: float | None = None
    used_by_server: bool | None = None
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
    rise: float | None = None
    """How much a counter grew."""
    per_s: float | None = None
    """A counter's growth per second."""
    mean: float | None = None
    min: float | None = None
    max: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PageFigures:
    """A page of metrics over a window: its GPUs and its other metrics."""

    gpus: tuple[GpuFigures, ...]
    metrics: tuple[MetricFigures, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class BusyProcess:
    """A process that is neither perfkit's nor the target's, and how many CPUs it kept busy."""

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

    cpus: float
    """How many CPUs it kept busy."""
    time_per_request_ns: float | None
    """User and system time in the window ÷ ok answers that came in it; None without answers."""
    instructions_per_request: float | None = None
    """Executed in user mode; counted only if `gate.metrics` names them, and where the machine has such counters."""


@dataclasses.dataclass(frozen=True, slots=True)
class MachineFigures:
    """The generator's machine over a window; None also where the window was too short for a figure."""

    cpu_share: float | None = None
    """The busy share of all CPUs together."""
    steal_share: float | None = None
    worker_cpu_shares: tuple[float | None, ...] = ()
    """The share of one core that each worker used."""
    voluntary_switches: int | None = None
    """Context switches of all workers' main threads because they waited."""
    involuntary_switches: int | None = None
    """Context switches of the same threads because another process took the CPU."""
    tcp_segments_sent: int | None = None
    tcp_retransmits: int | None = None
    sockets_max: int | None = None
    """TCP sockets of the machine, including those in TIME_WAIT."""
    open_files_max: int | None = None
    """The open files and sockets of the worker with the most."""
    open_files_limit: int | None = None
    others: OtherProcesses | None = None
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
    """See `ServerFigures`; None in results of earlier versions."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerFigures:
    """The server's own statistics of a load point. Times are means per request; None where nothing was counted."""

    requests: int
    """Successful requests of the whole load point, warm-up and drain included."""
    failed: int
    success_ns: float | None
    """From entering the server's queue to the end of the answer, without network and parsing."""
    queue_ns: float | None
    """Time in the server's queue, a mean per request in nanoseconds; null where nothing was counted."""
    compute_input_ns: float | None
    """Time to prepare inputs, a mean per request in nanoseconds; null where nothing was counted."""
    compute_infer_ns: float | None
    """Time of the inference itself, a mean per request in nanoseconds; null where nothing was counted."""
    compute_output_ns: float | None
    """Time to take the outputs, a mean per request in nanoseconds; null where nothing was counted."""
    executions: int
    """Executions of the model, each of a batch."""
    mean_batch: float | None
    """Inferences per execution."""
    inferences: int = 0
    cache_hits: int = 0
    """Requests answered from the server's cache."""
    cache_misses: int = 0
    """Requests that a server with a response cache looked up in vain; 0 in results of earlier versions."""
    cache_hit_ns: float | None = None
    """Looking up an answer in the cache and copying it."""
    cache_miss_ns: float | None = None
    """Looking up in vain, and storing the answer."""
    client_requests: int = 0
    """Requests that perfkit saw answered over the same span."""
    client_mean_ns: float | None = None
    """Mean service time of `client_requests`."""
    versions: tuple[str, ...] = ()
    """Versions of the model that executed requests."""
    composing_models: tuple[ComposingModelFigures, ...] = ()
    """The models of an ensemble's steps, and those that `target.composing_models` names."""

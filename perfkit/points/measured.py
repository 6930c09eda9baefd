"""What was measured at a load point: its windows, and the resources used in them, pooled over repetitions."""

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from perfkit.errors import MeasurementWarning
from perfkit.figures.declaration import pooled
from perfkit.figures.resources import (
    GpuFigures,
    MachineFigures,
    MetricFigures,
    OtherProcesses,
    ServerCpuFigures,
    ServerCpuUse,
    ServerFigures,
)
from perfkit.recorder.window import Window
from perfkit.result.cold_start import ColdStart
from perfkit.result.counts import Connections
from perfkit.result.distribution import QUANTILES
from perfkit.result.generator import ContextSwitches, GcPauses, Generator, Tcp
from perfkit.result.load import Load, OpenLoad
from perfkit.result.model import Protocol
from perfkit.spans.span import SampledRequest
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.percentiles import PercentileInterval
from perfkit.telemetry.prometheus.server_times import ServerTime, added
from perfkit.telemetry.server.statistics import ServerCounts
from perfkit.transport.base import Outcome
from perfkit.transport.options import Balance
from perfkit.workers.point_recording import MachineRecording


@dataclasses.dataclass(frozen=True, slots=True)
class Resources:
    """The resources used during one window."""

    server: ServerCounts | None = None
    server_times: tuple[ServerTime, ...] = ()
    """The times of the server's stages by its page of metrics."""
    server_cpu: ServerCpuUse | None = None
    gpus: tuple[GpuFigures, ...] = ()
    server_has_gpu: bool = False
    """Whether the target is known to have a GPU: its device is CUDA, its process is on a GPU, or its own metrics page lists one."""
    metrics: tuple[MetricFigures, ...] = ()
    machine: MachineFigures | None = None
    event_loop_lag: BucketCounts = EMPTY
    """How late the timers of the workers' event loops fired."""
    gc_pauses_ns: tuple[int, ...] | None = None


NO_RESOURCES = Resources()


@dataclasses.dataclass(frozen=True, slots=True)
class MachineMeasurement:
    """The part of one machine of a fleet in a load point."""

    recorded: MachineRecording
    window: Window | None
    """None if all its workers were lost."""


@dataclasses.dataclass(frozen=True, slots=True)
class PointMeasurement:
    """What was measured at one load point in one repetition."""

    protocol: Protocol
    load: Load
    batch_size: float
    """The inferences of a request; of a replay or a whole mix, the mean."""
    repetition: int
    window: Window
    warmup_ns: int
    """From the start of the load to the start of the window."""
    connections: Connections
    generator: Generator
    warnings: tuple[MeasurementWarning, ...]
    think_time_ns: int = 0
    has_slo: bool = False
    """Whether the window counted good answers."""
    beyond_share: float = 0.0
    """The largest share of requests beyond a limit of the SLO with which it is met."""
    has_token_slo: bool = False
    """Whether good answers are also within a limit on the time per output token."""
    workload: str | None = None
    """The workload of a mix; None for the whole, and for a scenario that is no mix."""
    is_alone: bool = False
    shares_load: bool = False
    """Whether the requests in flight are not those of this workload alone, or not of one think time."""
    load_varies: bool = False
    """Whether the load itself changes within the window, so that a change of the times says nothing of the target."""
    is_streamed: bool = False
    has_sequences: bool = False
    has_retries: bool = False
    """Whether failed requests were sent again."""
    executed_late_per_s: float | None = None
    """The requests that the server executed a second in the last third of the window, by samples of its own counters; None without these."""
    cold_start: ColdStart | None = None
    resources: Resources = NO_RESOURCES
    connect_times: BucketCounts = EMPTY
    connections_by_address: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Empty for a target with a single address."""
    balance: Balance | None = None
    """How requests are spread over several addresses; None where each connection takes the first that accepts it."""
    machines: tuple[MachineMeasurement, ...] = ()
    """The parts of a fleet; empty for a load that this machine sent by itself."""
    sampled: tuple[SampledRequest, ...] = ()
    """The traced requests of the window."""
    faults: tuple[MeasurementWarning, ...] = ()
    """Events that make the point invalid, whatever its figures are."""

    @property
    def is_open(self) -> bool:
        """Whether the load was an open loop."""
        return isinstance(self.load, OpenLoad)


def ends_by_name(intervals: Mapping[float, PercentileInterval]) -> dict[str, tuple[float, float | None]]:
    """The ends of percentile intervals by the names of the percentiles, without those that the window is too short for."""
    found = ((name, intervals.get(quantile)) for name, quantile in QUANTILES.items())
    return {name: (one.low_ns, one.high_ns) for name, one in found if one is not None and one.low_ns is not None}


_T = TypeVar("_T", GpuFigures, MetricFigures)
_Figures = TypeVar("_Figures")

DISTURBING_CPUS = 0.25
"""Other processes that use fewer CPUs than this are not named as a cause."""
Windows = Sequence[tuple[Resources, int]]
"""The resources used during some windows, and the windows' lengths in nanoseconds."""


def server_figures(windows: Windows, measured: Sequence[Window]) -> ServerFigures | None:
    """The server's own figures over all windows: from its statistics where they are known, or else from its page of metrics.

    The client's part of the latter are the ok answers and the mean service time of the windows whose page was read. None without either.
    """
    known = [resources.server for resources, _ in windows if resources.server is not None]
    times = tuple(one.figures() for one in added(one for resources, _ in windows for one in resources.server_times))
    if known:
        return dataclasses.replace(ServerCounts.added(known).figures(), times=times)
    if not times:
        return None
    read = [window for (resources, _), window in zip(windows, measured, strict=True) if resources.server_times]
    service_times = BucketCounts.merged(window.times["service_time"] for window in read)
    answered = sum(window.outcomes[Outcome.OK] for window in read)
    return ServerFigures.of_page(times, answered, service_times.mean_and_stddev_ns()[0] if service_times.count else None)


def server_cpu_figures(windows: Windows, finished: Sequence[int]) -> ServerCpuFigures | None:
    """The server's CPU use over all windows where it is known, `finished` being each window's ok answers; None without such windows."""
    known = [
        (resources.server_cpu, length_ns, answers)
        for (resources, length_ns), answers in zip(windows, finished, strict=True)
        if resources.server_cpu is not None and length_ns
    ]
    if not known:
        return None
    answers = sum(number for _, _, number in known)
    cpu_ns = sum(use.cpu_ns for use, _, _ in known)
    known_instructions = [use.instructions for use, _, _ in known if use.instructions is not None]
    return ServerCpuFigures(
        cpus=cpu_ns / sum(length_ns for _, length_ns, _ in known),
        time_per_request_ns=cpu_ns / answers if answers else None,
        instructions_per_request=sum(known_instructions) / answers if answers and len(known_instructions) == len(known) else None,
    )


def generator_figures(windows: Windows) -> dict[str, Any]:
    """The fields of `Generator` that telemetry measures."""
    machine = pooled_part((resources.machine, length_ns) for resources, length_ns in windows) or MachineFigures()
    known_pauses = [resources.gc_pauses_ns for resources, _ in windows if resources.gc_pauses_ns is not None]
    pauses_ns = [pause_ns for pauses in known_pauses for pause_ns in pauses]
    voluntary, involuntary = machine.voluntary_switches, machine.involuntary_switches
    segments, retransmits = machine.tcp_segments_sent, machine.tcp_retransmits
    return {
        "machine_cpu_share": machine.cpu_share,
        "gc_pauses": GcPauses(count=len(pauses_ns), total_ns=sum(pauses_ns), max_ns=max(pauses_ns, default=0)) if known_pauses else None,
        "context_switches": None
        if voluntary is None or involuntary is None
        else ContextSwitches(voluntary=voluntary, involuntary=involuntary),
        "tcp": None if segments is None or retransmits is None else Tcp(segments_sent=segments, retransmits=retransmits),
        **{name: getattr(machine, name) for name in ("worker_cpu_shares", "others", "sockets_max", "open_files_max", "open_files_limit")},
    }


def pooled_part(parts: Iterable[tuple[_Figures | None, int]]) -> _Figures | None:
    """One source's figures over all windows where they are known, given with the windows' lengths; None without such windows."""
    known = [(part, length_ns) for part, length_ns in parts if part is not None]
    return pooled(known) if known else None


def describe_processes(others: OtherProcesses) -> str:
    """The busiest processes: `cc1plus (pid 77) 95 % of a CPU, dask (pid 80) 40 %`."""
    return ", ".join(f"{one.name} (pid {one.pid}) {one.cpus:.0%}{'' if index else ' of a CPU'}" for index, one in enumerate(others.busiest))


def pooled_gpus(windows: Windows) -> tuple[GpuFigures, ...]:
    """Each GPU once, over all windows."""
    return _pooled_by((gpu.uuid, gpu, length_ns) for resources, length_ns in windows for gpu in resources.gpus)


def pooled_metrics(windows: Windows) -> tuple[MetricFigures, ...]:
    """Each metric once, over all windows."""
    return _pooled_by(
        ((one.name, *sorted(one.labels.items())), one, length_ns) for resources, length_ns in windows for one in resources.metrics
    )


def _pooled_by(figures: Iterable[tuple[Hashable, _T, int]]) -> tuple[_T, ...]:
    """The figures of several windows by what they are of."""
    together: dict[Hashable, list[tuple[_T, int]]] = {}
    for key, one, length_ns in figures:
        together.setdefault(key, []).append((one, length_ns))
    return tuple(map(pooled, together.values()))


def energy_per_inference_j(
    inferences: float, gpus: Sequence[GpuFigures], energy: Literal["energy_j", "energy_above_idle_j"]
) -> float | None:
    """The energy of all GPUs per inference; None if one GPU's energy is unknown, or without inferences.

    GPUs that the server is known not to use are left out, and so are MIG instances, whose energy is part of their GPU's.
    """
    energies = [getattr(gpu, energy) for gpu in gpus if not gpu.mig and gpu.may_serve]
    return sum(energies) / inferences if energies and None not in energies and inferences else None

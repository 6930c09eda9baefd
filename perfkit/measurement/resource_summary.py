"""What the server, the GPUs and the load generator used during the measured windows, pooled over repetitions."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from perfkit.errors import MeasurementWarning
from perfkit.result.generator import ContextSwitches, GcPauses, Generator, Tcp
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.telemetry.figures import (
    BusyProcess,
    GpuFigures,
    MachineFigures,
    MetricFigures,
    OtherProcesses,
    ServerCpuFigures,
    ServerCpuUse,
    ServerFigures,
)
from perfkit.telemetry.server.statistics import ServerCounts

_RETRANSMIT_SHARE, _FEWEST_RETRANSMITS = 0.001, 10
_TCP_TIMEOUT_NS = 200_000_000  # the least time-out before Linux sends a segment again (TCP_RTO_MIN)
_BUSY_MACHINE_SHARE = 0.85
DISTURBING_CPUS = 0.25
"""Other processes that use fewer CPUs than this are not named as a cause."""
_MOST_PROCESSES = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Resources:
    """The resources used during one window."""

    server: ServerCounts | None = None
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
Windows = Sequence[tuple[Resources, int]]
"""The resources used during some windows, and the windows' lengths in nanoseconds."""


def server_figures(windows: Windows) -> ServerFigures | None:
    """The server's own figures over all windows with known counts; None without such windows."""
    known = [resources.server for resources, _ in windows if resources.server is not None]
    return ServerCounts.added(known).figures() if known else None


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
    cpu_ns, instructions = sum(use.cpu_ns for use, _, _ in known), [use.instructions for use, _, _ in known]
    return ServerCpuFigures(
        cpus=cpu_ns / sum(length_ns for _, length_ns, _ in known),
        time_per_request_ns=cpu_ns / answers if answers else None,
        instructions_per_request=_sum(instructions) / answers if answers and None not in instructions else None,
    )


def generator_figures(windows: Windows) -> dict[str, Any]:
    """The fields of `Generator` that telemetry measures."""
    machines = [(resources.machine, length_ns) for resources, length_ns in windows if resources.machine is not None]
    workers = max((len(machine.worker_cpu_shares) for machine, _ in machines), default=0)
    known_pauses = [resources.gc_pauses_ns for resources, _ in windows if resources.gc_pauses_ns is not None]
    pauses_ns = [pause_ns for pauses in known_pauses for pause_ns in pauses]

    def values(name: str) -> list[Any]:
        return [getattr(machine, name) for machine, _ in machines]

    voluntary, involuntary = _sum(values("voluntary_switches")), _sum(values("involuntary_switches"))
    segments, retransmits = _sum(values("tcp_segments_sent")), _sum(values("tcp_retransmits"))
    return {
        "worker_cpu_shares": tuple(
            _mean([(one.worker_cpu_shares[worker], length_ns) for one, length_ns in machines if worker < len(one.worker_cpu_shares)])
            for worker in range(workers)
        ),
        "machine_cpu_share": _mean([(machine.cpu_share, length_ns) for machine, length_ns in machines]),
        "gc_pauses": GcPauses(count=len(pauses_ns), total_ns=sum(pauses_ns), max_ns=max(pauses_ns, default=0)) if known_pauses else None,
        "context_switches": None if None in (voluntary, involuntary) else ContextSwitches(voluntary=voluntary, involuntary=involuntary),
        "tcp": None if segments is None or retransmits is None else Tcp(segments_sent=segments, retransmits=retransmits),
        "others": _pooled_others([(machine.others, length_ns) for machine, length_ns in machines if machine.others is not None]),
        **{name: _maximum(values(name)) for name in ("sockets_max", "open_files_max", "open_files_limit")},
    }


def _pooled_others(parts: Sequence[tuple[OtherProcesses, int]]) -> OtherProcesses | None:
    """Means over all windows; a process that was not among the busiest of a window counts there as idle."""
    total_ns = sum(length_ns for _, length_ns in parts)
    if not total_ns:
        return None
    cpus_by_process: dict[tuple[str, int], float] = {}
    for others, length_ns in parts:
        for one in others.busiest:
            cpus_by_process[one.name, one.pid] = cpus_by_process.get((one.name, one.pid), 0.0) + one.cpus * length_ns / total_ns
    busiest = sorted((BusyProcess(name, pid, used) for (name, pid), used in cpus_by_process.items()), key=lambda one: -one.cpus)[
        :_MOST_PROCESSES
    ]
    cpus = sum(others.cpus * length_ns for others, length_ns in parts) / total_ns
    return OtherProcesses(cpus, tuple(busiest), any(others.may_include_target for others, _ in parts))


def busy_machine_warnings(generator: Generator, cpus: int, *, has_disturbed: bool) -> list[MeasurementWarning]:
    """A warning if other processes kept the machine busy, or used a CPU noticeably while the generator was disturbed."""
    others = generator.others
    if others is None or others.cpus < DISTURBING_CPUS:
        return []
    if not has_disturbed and (generator.machine_cpu_share or 0.0) < _BUSY_MACHINE_SHARE:
        return []
    named = f": {describe_processes(others)}" if others.busiest else ", which perfkit cannot see"
    if others.may_include_target:
        besides = "besides perfkit"
        hint = (
            "The target itself may be among them, because perfkit cannot see which processes serve its address: another user's or a "
            "container's. Long times, late starts and stops may be due to the others. End those, or measure from another machine."
        )
    else:
        besides = "besides perfkit and the target"
        hint = "Long times, late starts and stops may be due to them. End them, or measure from another machine."
    message = f"This machine was busy: processes {besides} used {others.cpus:.1f} of its {cpus} CPUs{named}. {hint}"
    return [MeasurementWarning("busy_machine", message)]


def describe_processes(others: OtherProcesses) -> str:
    """The busiest processes: `cc1plus (pid 77) 95 % of a CPU, dask (pid 80) 40 %`."""
    return ", ".join(f"{one.name} (pid {one.pid}) {one.cpus:.0%}{'' if index else ' of a CPU'}" for index, one in enumerate(others.busiest))


def network_warnings(generator: Generator, longest_ns: int) -> list[MeasurementWarning]:
    """A warning if the network may have lost packets, and the longest service time is long enough for TCP's time-out after a loss."""
    tcp = generator.tcp
    if tcp is None or longest_ns < _TCP_TIMEOUT_NS or tcp.retransmits < max(_FEWEST_RETRANSMITS, _RETRANSMIT_SHARE * tcp.segments_sent):
        return []
    resent = f"{tcp.retransmits:,} of {tcp.segments_sent:,} TCP segments of this machine were sent again"
    return [
        MeasurementWarning(
            "tcp_retransmits", f"{resent}: the network may have lost packets, and a lost packet delays its request by 200 ms or more."
        )
    ]


def pooled_gpus(windows: Windows) -> tuple[GpuFigures, ...]:
    """Each GPU once: means weighted by the windows' lengths, energies and errors added, and the greatest maxima."""
    by_uuid: dict[str, list[tuple[GpuFigures, int]]] = {}
    for resources, length_ns in windows:
        for gpu in resources.gpus:
            by_uuid.setdefault(gpu.uuid, []).append((gpu, length_ns))
    return tuple(figures[0][0] if len(figures) == 1 else _pooled_gpu(figures) for figures in by_uuid.values())


def pooled_metrics(windows: Windows) -> tuple[MetricFigures, ...]:
    """Each metric once: rises added, means weighted by the windows' lengths, minima and maxima over all windows."""
    by_name: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[MetricFigures, int]]] = {}
    for resources, length_ns in windows:
        for metric in resources.metrics:
            by_name.setdefault((metric.name, tuple(sorted(metric.labels.items()))), []).append((metric, length_ns))
    return tuple(figures[0][0] if len(figures) == 1 else _pooled_metric(figures) for figures in by_name.values())


def energy_per_inference_j(
    inferences: float, gpus: Sequence[GpuFigures], energy: Literal["energy_j", "energy_above_idle_j"]
) -> float | None:
    """The energy of all GPUs per inference; None if one GPU's energy is unknown, or without inferences.

    GPUs that the server is known not to use are left out, and so are MIG instances, whose energy is part of their GPU's.
    """
    energies = [getattr(gpu, energy) for gpu in gpus if not gpu.mig and gpu.may_serve]
    return sum(energies) / inferences if energies and None not in energies and inferences else None


def _pooled_gpu(figures: Sequence[tuple[GpuFigures, int]]) -> GpuFigures:
    def pool(name: str) -> Any:
        values = [getattr(gpu, name) for gpu, _ in figures]
        if "_mean_" in f"{name}_" or name == "throttled_share":
            return _mean([(getattr(gpu, name), length_ns) for gpu, length_ns in figures])
        if "_max_" in f"{name}_":
            return _maximum(values)
        if name in ("energy_j", "energy_above_idle_j", "ecc_errors", "ecc_uncorrected_errors"):
            return None if None in values else _sum(values)
        if name == "used_by_server":
            return True if any(values) else values[0]
        if name == "energy_source":
            return "power" if "power" in values else values[0]
        if name == "throttle_reasons":
            return tuple(dict.fromkeys(reason for reasons in values for reason in reasons))
        return values[0]

    return GpuFigures(**{field.name: pool(field.name) for field in dataclasses.fields(GpuFigures)})


def _pooled_metric(figures: Sequence[tuple[MetricFigures, int]]) -> MetricFigures:
    first, total_s = figures[0][0], sum(length_ns for _, length_ns in figures) / 1e9
    rises = [metric.rise for metric, _ in figures]
    rise = None if None in rises else _sum(rises)
    return MetricFigures(
        first.name,
        first.labels,
        first.kind,
        rise=rise,
        per_s=rise / total_s if rise is not None and total_s else None,
        mean=_mean([(metric.mean, length_ns) for metric, length_ns in figures]),
        min=min((metric.min for metric, _ in figures if metric.min is not None), default=None),
        max=_maximum(metric.max for metric, _ in figures),
    )


def _mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    """The mean of the known values, weighted by lengths."""
    known = [(value, length) for value, length in values if value is not None and length > 0]
    total = sum(length for _, length in known)
    return sum(value * length for value, length in known) / total if total else None


def _sum(values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _maximum(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)

"""What the server, the GPUs and the load generator used during the measured windows, pooled over repetitions."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, TypeVar

from perfkit.figures.declaration import pooled
from perfkit.figures.resources import GpuFigures, MachineFigures, MetricFigures, OtherProcesses, ServerCpuFigures, ServerFigures
from perfkit.points.measured import Resources
from perfkit.result.generator import ContextSwitches, GcPauses, Tcp
from perfkit.telemetry.server.statistics import ServerCounts

_T = TypeVar("_T", GpuFigures, MetricFigures)
_Figures = TypeVar("_Figures")

DISTURBING_CPUS = 0.25
"""Other processes that use fewer CPUs than this are not named as a cause."""
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

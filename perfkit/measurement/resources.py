"""What server, GPUs and generator used in the measured windows: one repetition's figures, or several pooled."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from perfkit.errors import MeasurementWarning
from perfkit.result.model import ContextSwitches, GcPauses, Generator, Tcp
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.telemetry.gpu.figures import GpuFigures
from perfkit.telemetry.host.generator import MachineFigures
from perfkit.telemetry.prometheus.figures import MetricFigures
from perfkit.telemetry.server.statistics import ServerCounts, ServerFigures

_LOST_SHARE, _FEWEST_LOST = 0.001, 10


@dataclasses.dataclass(frozen=True, slots=True)
class Resources:
    """What was seen of one window beside its requests."""

    server: ServerCounts | None = None
    gpus: tuple[GpuFigures, ...] = ()
    metrics: tuple[MetricFigures, ...] = ()
    machine: MachineFigures | None = None
    lag: BucketCounts = EMPTY
    """How late the timers of the workers' event loops were."""
    gc_pauses_ns: tuple[int, ...] | None = None


NOTHING_SEEN = Resources()
Seen = Sequence[tuple[Resources, int]]
"""Windows, and their lengths in nanoseconds."""


def server_figures(seen: Seen) -> ServerFigures | None:
    """Of the windows whose counts are known, added; None where none is."""
    known = [one.server for one, _ in seen if one.server is not None]
    return ServerCounts.added(known).figures() if known else None


def generator_figures(seen: Seen) -> dict[str, Any]:
    """The fields of `Generator` that are sampled from outside, and the pauses that workers noted."""
    machines = [(one.machine, length_ns) for one, length_ns in seen if one.machine is not None]
    workers = max((len(machine.worker_cpu_shares) for machine, _ in machines), default=0)
    pauses = [one.gc_pauses_ns for one, _ in seen if one.gc_pauses_ns is not None]
    flat = [pause for some in pauses for pause in some]
    voluntary, involuntary = (
        _sum(getattr(machine, name) for machine, _ in machines) for name in ("voluntary_switches", "involuntary_switches")
    )
    segments, again = (_sum(getattr(machine, name) for machine, _ in machines) for name in ("tcp_segments_sent", "tcp_retransmits"))
    return {
        "worker_cpu_shares": tuple(
            _mean(
                [
                    (machine.worker_cpu_shares[number], length_ns)
                    for machine, length_ns in machines
                    if number < len(machine.worker_cpu_shares)
                ]
            )
            for number in range(workers)
        ),
        "machine_cpu_share": _mean([(machine.cpu_share, length_ns) for machine, length_ns in machines]),
        "gc_pauses": GcPauses(count=len(flat), total_ns=sum(flat), max_ns=max(flat, default=0)) if pauses else None,
        "context_switches": None
        if voluntary is None or involuntary is None
        else ContextSwitches(voluntary=voluntary, involuntary=involuntary),
        "tcp": None if segments is None or again is None else Tcp(segments_sent=segments, retransmits=again),
        "sockets_max": _most(machine.sockets_max for machine, _ in machines),
        "open_files_max": _most(machine.open_files_max for machine, _ in machines),
        "open_files_limit": _most(machine.open_files_limit for machine, _ in machines),
    }


def network_warnings(generator: Generator) -> list[MeasurementWarning]:
    """A network that loses packets makes a tail of its own."""
    tcp = generator.tcp
    if tcp is None or tcp.retransmits < max(_FEWEST_LOST, _LOST_SHARE * tcp.segments_sent):
        return []
    message = (
        f"{tcp.retransmits:,} of {tcp.segments_sent:,} TCP segments of this machine were sent again: the network lost packets, "
        "and each loss adds at least its time-out, some 200 ms, to a request."
    )
    return [MeasurementWarning(code="tcp_retransmits", message=message)]


def pooled_gpus(seen: Seen) -> tuple[GpuFigures, ...]:
    """Each GPU once: means weighted by the windows' lengths, energies and errors added, maxima the greatest."""
    by_uuid: dict[str, list[tuple[GpuFigures, int]]] = {}
    for one, length_ns in seen:
        for gpu in one.gpus:
            by_uuid.setdefault(gpu.uuid, []).append((gpu, length_ns))
    return tuple(some[0][0] if len(some) == 1 else _pooled_gpu(some) for some in by_uuid.values())


def pooled_metrics(seen: Seen) -> tuple[MetricFigures, ...]:
    """Each metric once: rises added, means weighted by the windows' lengths, least and most of all."""
    by_name: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[MetricFigures, int]]] = {}
    for one, length_ns in seen:
        for metric in one.metrics:
            by_name.setdefault((metric.name, tuple(sorted(metric.labels.items()))), []).append((metric, length_ns))
    return tuple(some[0][0] if len(some) == 1 else _pooled_metric(some) for some in by_name.values())


def energy_per(inferences: float, gpus: Sequence[GpuFigures], energy: Literal["energy_j", "energy_above_idle_j"]) -> float | None:
    """The GPUs' energy together, per inference; None where one of them does not tell, or nothing was inferred.

    GPUs that the server is known not to use are left out; instances of a divided one are in what the whole draws.
    """
    drawn = [getattr(gpu, energy) for gpu in gpus if not gpu.mig and gpu.used_by_server is not False]
    return sum(drawn) / inferences if drawn and None not in drawn and inferences else None


def _pooled_gpu(some: Sequence[tuple[GpuFigures, int]]) -> GpuFigures:
    def pool(name: str) -> Any:
        values = [(getattr(gpu, name), length_ns) for gpu, length_ns in some]
        if "_mean_" in f"{name}_" or name == "throttled_share":
            return _mean(values)
        if "_max_" in f"{name}_":
            return _most(value for value, _ in values)
        if name in ("energy_j", "energy_above_idle_j", "ecc_errors", "ecc_uncorrected_errors"):
            return None if any(value is None for value, _ in values) else _sum(value for value, _ in values)
        if name == "used_by_server":
            return True if any(value for value, _ in values) else values[0][0]
        if name == "energy_source":
            return "power" if any(value == "power" for value, _ in values) else values[0][0]
        if name == "throttle_reasons":
            return tuple(dict.fromkeys(reason for reasons, _ in values for reason in reasons))
        return values[0][0]

    return GpuFigures(**{field.name: pool(field.name) for field in dataclasses.fields(GpuFigures)})


def _pooled_metric(some: Sequence[tuple[MetricFigures, int]]) -> MetricFigures:
    first, whole_s = some[0][0], sum(length_ns for _, length_ns in some) / 1e9
    rise = None if any(metric.rise is None for metric, _ in some) else _sum(metric.rise for metric, _ in some)
    least = [metric.min for metric, _ in some if metric.min is not None]
    return MetricFigures(
        first.name,
        first.labels,
        first.kind,
        rise=rise,
        per_s=rise / whole_s if rise is not None and whole_s else None,
        mean=_mean([(metric.mean, length_ns) for metric, length_ns in some]),
        min=min(least, default=None),
        max=_most(metric.max for metric, _ in some),
    )


def _mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    """Weighted by lengths, over those that are known."""
    known = [(value, length) for value, length in values if value is not None and length > 0]
    whole = sum(length for _, length in known)
    return sum(value * length for value, length in known) / whole if whole else None


def _sum(values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _most(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)

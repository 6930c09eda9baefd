"""One GPU over one span of time: from its series to its figures and what must be said of them; reads neither NVML nor clocks."""

import bisect
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, cast

from perfkit.errors import MeasurementWarning
from perfkit.telemetry.gpu.figures import GpuFigures
from perfkit.telemetry.gpu.nvml import Gpu
from perfkit.telemetry.gpu.queries import THROTTLE_REASONS, THROTTLING
from perfkit.telemetry.integrals import Span, counter_growth, held_mean, over_s, preceding_mean
from perfkit.telemetry.series import Series

_PowerSource = Literal["instant", "samples", "average"]


@dataclasses.dataclass(frozen=True)
class Energy:
    """What a GPU drew over a span, in joules, and whether its counter or integrated power says so."""

    joules: float
    source: Literal["counter", "power"]


@dataclasses.dataclass(frozen=True)
class Kept:
    """What was sampled of a GPU, by the name of the question; a span's series begin with the sample that holds at its start."""

    gpu: Gpu
    series: Mapping[str, Series]
    precedes: frozenset[str]
    """The series whose values are means since the sample before."""
    power_source: str = ""
    lost_ns: int | None = None
    processes: Mapping[int, int | None] | None = None
    """Those that computed on it, and the most bytes of each; None where nobody says."""
    used: bool | None = None
    """Whether the server is among them; None where that cannot be told."""

    def mean(self, name: str, span: Span) -> float | None:
        """The mean of a series over the span, as far as it was sampled; None where it was not."""
        series, start_ns, end_ns = self.series.get(name), span[0], min(span[1], self.lost_ns or span[1])
        if series is None or end_ns <= start_ns:
            return None
        mean = preceding_mean if name in self.precedes else held_mean
        return mean(series.times_ns, series.values, (start_ns, end_ns))

    def most(self, name: str, span: Span) -> float | None:
        """The largest value that held in the span; None where none did."""
        series = self.series.get(name)
        if series is None or self._is_lost_before(span[0]):
            return None
        return max((value for time_ns, value in zip(series.times_ns, series.values, strict=True) if time_ns <= span[1]), default=None)

    def growth(self, name: str, span: Span) -> int | None:
        """By how much a count that is read now and then grew, from its last reading before the span on."""
        series = self.series.get(name)
        values = [value for time_ns, value in zip(series.times_ns, series.values, strict=True) if time_ns <= span[1]] if series else []
        return max(int(values[-1] - values[0]), 0) if values and not self._is_lost_before(span[0]) else None

    def energy(self, span: Span) -> Energy | None:
        """From the counter; from power where there is no counter, or it went back. None where neither covers the span."""
        if self._is_lost_before(span[1]):
            return None
        counter, power = self.series.get("gpu_energy"), self.series.get("gpu_power")
        if counter is not None and (joules := counter_growth(counter.times_ns, counter.values, span)) is not None:
            return Energy(joules, "counter")
        if power is None or not power.times_ns or power.times_ns[0] > span[0]:
            return None
        mean_w = self.mean("gpu_power", span)
        return None if mean_w is None else Energy(over_s(mean_w, span), "power")

    def throttled(self, span: Span) -> dict[str, float]:
        """The share of the span in which each reason held the clocks down; those that did at all."""
        shares = {words: self._share_of_reasons(bit, span) for bit, words in THROTTLE_REASONS.items()}
        return {words: share for words, share in shares.items() if share}

    def throttled_share(self, span: Span) -> float | None:
        """The share of the span in which any of the reasons held the clocks down."""
        return self._share_of_reasons(THROTTLING, span)

    def _share_of_reasons(self, bits: int, span: Span) -> float | None:
        reasons, end_ns = self.series.get("gpu_throttle_reasons"), min(span[1], self.lost_ns or span[1])
        if reasons is None:
            return None
        return held_mean(reasons.times_ns, reasons.values, (span[0], end_ns), lambda value: int(value) & bits > 0)

    def _is_lost_before(self, instant_ns: int) -> bool:
        return self.lost_ns is not None and self.lost_ns <= instant_ns


def holding_from(series: Series, start_ns: int) -> Series:
    """The samples from that instant on, and before them the one that holds then."""
    first = max(bisect.bisect_right(series.times_ns, start_ns) - 1, 0)
    return dataclasses.replace(series, times_ns=series.times_ns[first:], values=series.values[first:])


def gpu_figures(kept: Kept, span: Span, idle_w: float | None) -> GpuFigures:
    """A GPU's figures over the span; `idle_w` is its power at rest."""
    gpu, energy = kept.gpu, kept.energy(span)
    power_w, memory, hottest = kept.mean("gpu_power", span), kept.most("gpu_memory_used", span), kept.most("gpu_temperature", span)
    corrected, uncorrected = kept.growth("gpu_ecc_corrected", span), kept.growth("gpu_ecc_uncorrected", span)
    return GpuFigures(
        uuid=gpu.uuid,
        name=gpu.name,
        source="nvml",
        utilization_mean=kept.mean("gpu_utilization", span),
        memory_used_max_bytes=None if memory is None else int(memory),
        power_mean_w=power_w if power_w is not None or energy is None else energy.joules / over_s(1.0, span),
        energy_j=None if energy is None else energy.joules,
        sm_clock_mean_mhz=kept.mean("gpu_sm_clock", span),
        throttled_share=kept.throttled_share(span),
        index=gpu.index,
        mig=gpu.parent is not None,
        memory_total_bytes=gpu.memory_total_bytes,
        memory_utilization_mean=kept.mean("gpu_memory_utilization", span),
        temperature_max_celsius=hottest,
        memory_clock_mean_mhz=kept.mean("gpu_memory_clock", span),
        energy_source=None if energy is None else energy.source,
        idle_power_w=idle_w,
        ecc_errors=None if corrected is None and uncorrected is None else (corrected or 0) + (uncorrected or 0),
        throttle_reasons=tuple(kept.throttled(span)),
        driver_version=gpu.driver_version,
        parent_uuid=gpu.parent.uuid if gpu.parent else None,
        power_source=cast("_PowerSource", kept.power_source) if power_w is not None else None,
        energy_above_idle_j=None if energy is None or idle_w is None else energy.joules - over_s(idle_w, span),
        ecc_uncorrected_errors=uncorrected,
        pcie_sent_mean_bytes_per_s=kept.mean("gpu_pcie_sent", span),
        pcie_received_mean_bytes_per_s=kept.mean("gpu_pcie_received", span),
        used_by_server=kept.used,
    )


def gpu_warnings(kept: Kept, span: Span, server_pids: Collection[int]) -> list[MeasurementWarning]:
    """What a reader of the window's figures must know of this GPU; `server_pids` are the target's processes, none where unknown."""
    warnings, title = list[MeasurementWarning](), kept.gpu.title
    if (share := kept.throttled_share(span)) and kept.used is not False:
        listed = ", ".join(f"{words} {one:.1%}" for words, one in kept.throttled(span).items())
        warnings.append(MeasurementWarning("gpu_throttled", f"{title} held its clocks down for {share:.1%} of the window: {listed}."))
    if others := _others(kept, server_pids):
        known = [size for size in others.values() if size is not None]
        amount = f"{sum(known) / 2**20:,.0f} MiB" if known else "an amount that the driver does not tell"
        who = f"{len(others)} {'process' if len(others) == 1 else 'processes'} (PID {', '.join(map(str, sorted(others)))})"
        if kept.used:
            message = f"{title} was shared: {who} beside the server held {amount} of its memory."
        else:
            message = f"{title} was used by {who}, which held {amount} of its memory; which of them is the server, if any, is not known."
        warnings.append(MeasurementWarning("gpu_shared", message))
    if errors := kept.growth("gpu_ecc_uncorrected", span):
        warnings.append(MeasurementWarning("gpu_ecc", f"{title} had {errors:,} memory errors in the window that could not be corrected."))
    if kept.lost_ns is not None and span[0] < kept.lost_ns <= span[1]:
        after_s = over_s(1.0, (span[0], kept.lost_ns))
        warnings.append(
            MeasurementWarning("gpu_lost", f"{title} was lost {after_s:.1f} s into the window: its figures are of the time before.")
        )
    return warnings


def uses(processes: Sequence[Mapping[int, int | None] | None], server_pids: Collection[int]) -> list[bool | None]:
    """Of GPUs with those processes, whether the server computes on each; None where that cannot be told.

    The driver may count PIDs otherwise than this process does, as in a container: only where it names the server somewhere is
    it known that the server is not elsewhere.
    """
    found = [one is not None and not set(server_pids).isdisjoint(one) for one in processes]
    return [None if one is None or not any(found) else is_found for one, is_found in zip(processes, found, strict=True)]


def _others(kept: Kept, server_pids: Collection[int]) -> dict[int, int | None]:
    """The processes beside the server's; where those are not known all of them, if there are several."""
    if kept.processes is None or kept.used is False or (kept.used is None and len(kept.processes) < 2):
        return {}
    return {pid: size for pid, size in kept.processes.items() if pid not in server_pids}

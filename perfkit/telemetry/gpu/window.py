"""The figures and warnings of one GPU over a window, computed from its series; no access to NVML or clocks."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, cast

from perfkit.errors import MeasurementWarning
from perfkit.figures.resources import GpuFigures
from perfkit.telemetry.gpu.nvml import Gpu
from perfkit.telemetry.gpu.queries import THROTTLE_MASK, THROTTLE_REASONS
from perfkit.telemetry.series import Series, Span, counter_growth, held_mean, preceding_mean, rate_integral


@dataclasses.dataclass(frozen=True)
class GpuWindow:
    """A GPU's samples of a window; each series begins with the sample in effect at the window's start."""

    gpu: Gpu
    series: Mapping[str, Series]
    """By the names of the queries."""
    preceding_means: frozenset[str]
    """Names of the series whose values are means since the previous sample."""
    power_source: str = ""
    lost_ns: int | None = None
    processes: Mapping[int, int | None] | None = None
    """PIDs that computed on the GPU and the largest number of bytes each held; None if the driver lists none."""
    used_by_server: bool | None = None

    def mean(self, name: str, span: Span) -> float | None:
        """The mean of a series over the sampled part of a span; None if there is no such part."""
        series, start_ns, end_ns = self.series.get(name), span[0], min(span[1], self.lost_ns or span[1])
        if series is None or end_ns <= start_ns:
            return None
        mean = preceding_mean if name in self.preceding_means else held_mean
        return mean(series.times_ns, series.values, (start_ns, end_ns))

    def maximum(self, name: str, span: Span) -> float | None:
        """The largest value in a span; None without values."""
        return max(self._values_until(name, span), default=None)

    def growth(self, name: str, span: Span) -> int | None:
        """How much a slowly sampled counter grew, from its last sample before the span; None without samples."""
        values = self._values_until(name, span)
        return max(int(values[-1] - values[0]), 0) if values else None

    def energy_j(self, span: Span) -> tuple[float | None, Literal["counter", "power"] | None]:
        """The energy over a span and its source: the energy counter, or power if there is no counter or it fell.

        Both are None if neither covers the span.
        """
        if self._is_lost_before(span[1]):
            return None, None
        counter, power = self.series.get("gpu_energy"), self.series.get("gpu_power")
        if counter is not None and (energy_j := counter_growth(counter.times_ns, counter.values, span)) is not None:
            return energy_j, "counter"
        if power is None or not power.times_ns or power.times_ns[0] > span[0] or (mean_w := self.mean("gpu_power", span)) is None:
            return None, None
        return rate_integral(mean_w, span), "power"

    def throttled_shares(self, span: Span) -> dict[str, float]:
        """The share of a span in which each reason lowered the clocks, without the reasons that did not occur."""
        shares = {reason: self.throttled_share(span, bit) for bit, reason in THROTTLE_REASONS.items()}
        return {reason: share for reason, share in shares.items() if share}

    def throttled_share(self, span: Span, mask: int = THROTTLE_MASK) -> float | None:
        """The share of a span in which any of the reasons in a mask lowered the clocks."""
        reasons, end_ns = self.series.get("gpu_throttle_reasons"), min(span[1], self.lost_ns or span[1])
        if reasons is None or end_ns <= span[0]:
            return None
        return held_mean(reasons.times_ns, reasons.values, (span[0], end_ns), lambda value: int(value) & mask > 0)

    def _values_until(self, name: str, span: Span) -> Sequence[float]:
        if name not in self.series or self._is_lost_before(span[0]):
            return ()
        series = self.series[name]
        return [value for time_ns, value in zip(series.times_ns, series.values, strict=True) if time_ns <= span[1]]

    def _is_lost_before(self, instant_ns: int) -> bool:
        return self.lost_ns is not None and self.lost_ns <= instant_ns


def gpu_figures(window: GpuWindow, span: Span, idle_power_w: float | None) -> GpuFigures:
    """The figures of a GPU over a span; `idle_power_w` is its power before the run, without load."""
    gpu, (energy_j, energy_source) = window.gpu, window.energy_j(span)
    power_w, memory_bytes = window.mean("gpu_power", span), window.maximum("gpu_memory_used", span)
    corrected, uncorrected = window.growth("gpu_ecc_corrected", span), window.growth("gpu_ecc_uncorrected", span)
    return GpuFigures(
        uuid=gpu.uuid,
        name=gpu.name,
        source="nvml",
        utilization_mean=window.mean("gpu_utilization", span),
        memory_used_max_bytes=None if memory_bytes is None else int(memory_bytes),
        power_mean_w=power_w if power_w is not None or energy_j is None else energy_j / rate_integral(1.0, span),
        energy_j=energy_j,
        sm_clock_mean_mhz=window.mean("gpu_sm_clock", span),
        throttled_share=window.throttled_share(span),
        index=gpu.index,
        mig=gpu.parent is not None,
        memory_total_bytes=gpu.memory_total_bytes,
        memory_utilization_mean=window.mean("gpu_memory_utilization", span),
        temperature_max_celsius=window.maximum("gpu_temperature", span),
        memory_clock_mean_mhz=window.mean("gpu_memory_clock", span),
        energy_source=energy_source,
        idle_power_w=idle_power_w,
        ecc_errors=None if corrected is None and uncorrected is None else (corrected or 0) + (uncorrected or 0),
        throttle_reasons=tuple(window.throttled_shares(span)),
        driver_version=gpu.driver_version,
        parent_uuid=gpu.parent.uuid if gpu.parent else None,
        power_source=cast("Literal['instant', 'samples', 'average']", window.power_source) if power_w is not None else None,
        energy_above_idle_j=None if energy_j is None or idle_power_w is None else energy_j - rate_integral(idle_power_w, span),
        ecc_uncorrected_errors=uncorrected,
        pcie_sent_mean_bytes_per_s=window.mean("gpu_pcie_sent", span),
        pcie_received_mean_bytes_per_s=window.mean("gpu_pcie_received", span),
        used_by_server=window.used_by_server,
    )


def gpu_warnings(window: GpuWindow, span: Span, server_pids: Collection[int]) -> list[MeasurementWarning]:
    """The warnings about a GPU over a span; `server_pids` are the target's processes, empty if unknown."""
    warnings, title = list[MeasurementWarning](), window.gpu.title
    if (share := window.throttled_share(span)) and window.used_by_server is not False:
        reasons = ", ".join(f"{reason} {share:.1%}" for reason, share in window.throttled_shares(span).items())
        warnings.append(MeasurementWarning("gpu_throttled", f"{title} lowered its clocks for {share:.1%} of the window: {reasons}."))
    if others := _other_processes(window, server_pids):
        known = [size for size in others.values() if size is not None]
        amount = f"{sum(known) / 2**20:,.0f} MiB" if known else "an unknown amount"
        processes = f"{len(others)} {'process' if len(others) == 1 else 'processes'} (PID {', '.join(map(str, sorted(others)))})"
        if window.used_by_server:
            message = f"{title} was shared: besides the server, {processes} held {amount} of its memory."
        else:
            message = f"{title} was used by {processes}, which held {amount} of its memory; whether one of them is the server is not known."
        warnings.append(MeasurementWarning("gpu_shared", message))
    if errors := window.growth("gpu_ecc_uncorrected", span):
        warnings.append(MeasurementWarning("gpu_ecc", f"{title} had {errors:,} uncorrectable memory errors in the window."))
    if window.lost_ns is not None and span[0] < window.lost_ns <= span[1]:
        after_s = rate_integral(1.0, (span[0], window.lost_ns))
        message = f"{title} was lost {after_s:.1f} s into the window: its means cover only the time before that."
        warnings.append(MeasurementWarning("gpu_lost", message))
    return warnings


def used_by_server(processes: Sequence[Mapping[int, int | None] | None], server_pids: Collection[int]) -> list[bool | None]:
    """For each GPU, given the processes on it, whether the server computes on it; None where that is unknown.

    The driver may number processes differently, for example outside of a container. So a GPU counts as not used by the
    server only if the server's PIDs appear on another one.
    """
    has_server = [pids is not None and not set(server_pids).isdisjoint(pids) for pids in processes]
    return [None if pids is None or not any(has_server) else is_used for pids, is_used in zip(processes, has_server, strict=True)]


def _other_processes(window: GpuWindow, server_pids: Collection[int]) -> dict[int, int | None]:
    """The processes besides the server's. If the server's are unknown, all processes, provided there are several."""
    is_used = window.used_by_server
    if window.processes is None or is_used is False or (is_used is None and len(window.processes) < 2):
        return {}
    return {pid: size for pid, size in window.processes.items() if pid not in server_pids}

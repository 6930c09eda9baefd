"""GPUs as a page of metrics tells of them: Triton's `nv_gpu_*` and the `DCGM_FI_DEV_*` of NVIDIA's DCGM exporter.

Triton: docs/user_guide/metrics.md of its server. DCGM: the field identifiers of its API, with the exporter's labels.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perfkit.telemetry.gpu.figures import GpuFigures
from perfkit.telemetry.gpu.queries import THROTTLING
from perfkit.telemetry.prometheus.page import Sample
from perfkit.telemetry.series import Series, SeriesBuffer
from perfkit.units import NS_PER_S

_MIB = 2.0**20


class _Meaning(NamedTuple):
    """What a metric is here: the series it becomes, in which unit, and what its values are multiplied by."""

    series: str
    unit: str
    scale: float = 1.0


_MEANINGS = {
    "nv_gpu_utilization": _Meaning("gpu_utilization", "share"),
    "nv_gpu_memory_used_bytes": _Meaning("gpu_memory_used", "bytes"),
    "nv_gpu_memory_total_bytes": _Meaning("gpu_memory_total", "bytes"),
    "nv_gpu_power_usage": _Meaning("gpu_power", "W"),
    "nv_energy_consumption": _Meaning("gpu_energy", "J"),
    "DCGM_FI_DEV_GPU_UTIL": _Meaning("gpu_utilization", "share", 0.01),
    "DCGM_FI_DEV_MEM_COPY_UTIL": _Meaning("gpu_memory_utilization", "share", 0.01),
    "DCGM_FI_DEV_FB_USED": _Meaning("gpu_memory_used", "bytes", _MIB),
    "DCGM_FI_DEV_FB_FREE": _Meaning("gpu_memory_free", "bytes", _MIB),
    "DCGM_FI_DEV_FB_RESERVED": _Meaning("gpu_memory_reserved", "bytes", _MIB),
    "DCGM_FI_DEV_FB_TOTAL": _Meaning("gpu_memory_total", "bytes", _MIB),
    "DCGM_FI_DEV_POWER_USAGE": _Meaning("gpu_power", "W"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _Meaning("gpu_energy", "J", 0.001),
    "DCGM_FI_DEV_SM_CLOCK": _Meaning("gpu_sm_clock", "MHz"),
    "DCGM_FI_DEV_MEM_CLOCK": _Meaning("gpu_memory_clock", "MHz"),
    "DCGM_FI_DEV_GPU_TEMP": _Meaning("gpu_temperature", "celsius"),
}
_REASONS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")


class MetricsGpu:
    """One GPU, or an instance of a divided one, as its samples come in."""

    def __init__(self, uuid: str, labels: Mapping[str, str]) -> None:
        self.uuid = uuid
        self._name, self._index = labels.get("modelName", ""), labels.get("gpu", "")
        self._is_instance = "GPU_I_ID" in labels
        self._tracks: dict[str, SeriesBuffer] = {}

    def take(self, time_ns: int, sample: Sample) -> None:
        """Takes a sample of this GPU."""
        if sample.name in _REASONS:
            throttles = float(bool(int(sample.value) & THROTTLING))  # DCGM's bits are NVML's
            self._track("gpu_throttled", "share").add(time_ns, throttles)
        elif meaning := _MEANINGS.get(sample.name):
            track = self._track(meaning.series, meaning.unit)
            value = sample.value * meaning.scale
            if meaning.series != "gpu_energy" or value != track.latest:  # a counter's reading counts from when it was new
                track.add(time_ns, value)

    def series(self, start_ns: int, end_ns: int) -> list[Series]:
        """What there is of that span."""
        return [series for track in self._tracks.values() if (series := track.between(start_ns, end_ns)).values]

    def latest(self) -> list[Series]:
        """The newest sample of each series."""
        return [series for track in self._tracks.values() if (series := track.whole().last())]

    def figures(self, start_ns: int, end_ns: int) -> GpuFigures | None:
        """Its figures of that span; None where it was not seen then."""
        series = {one.name: one for one in self.series(start_ns, end_ns)}
        if not series:
            return None
        energy_j = _grown(series.get("gpu_energy"), start_ns, end_ns)
        power_w = _mean(series, "gpu_power")
        integrated_j = None if power_w is None else power_w * (end_ns - start_ns) / NS_PER_S
        used, total = _most(series, "gpu_memory_used"), _most(series, "gpu_memory_total")
        if total is None and (free := series.get("gpu_memory_free")) and used is not None:
            total = series["gpu_memory_used"].values[-1] + free.values[-1] + (_most(series, "gpu_memory_reserved") or 0.0)
        return GpuFigures(
            uuid=self.uuid,
            name=self._name,
            source="metrics",
            utilization_mean=_mean(series, "gpu_utilization"),
            memory_used_max_bytes=None if used is None else round(used),
            power_mean_w=power_w,
            energy_j=integrated_j if energy_j is None else energy_j,
            sm_clock_mean_mhz=_mean(series, "gpu_sm_clock"),
            throttled_share=_mean(series, "gpu_throttled"),
            index=int(self._index) if self._index.isdecimal() else None,
            mig=self._is_instance,
            memory_total_bytes=None if total is None else round(total),
            memory_utilization_mean=_mean(series, "gpu_memory_utilization"),
            temperature_max_celsius=_most(series, "gpu_temperature"),
            memory_clock_mean_mhz=_mean(series, "gpu_memory_clock"),
            energy_source="counter" if energy_j is not None else "power" if integrated_j is not None else None,
        )

    def forget_before(self, instant_ns: int) -> None:
        """See `SeriesBuffer.forget_before`."""
        for track in self._tracks.values():
            track.forget_before(instant_ns)

    def _track(self, name: str, unit: str) -> SeriesBuffer:
        return self._tracks.setdefault(name, SeriesBuffer(name, unit, {"gpu": self.uuid}))


def gpu_uuid(sample: Sample) -> str | None:
    """Which GPU a sample is of; None where it is of none, or nothing is known to do with it."""
    if sample.name not in _MEANINGS and sample.name not in _REASONS:
        return None
    uuid = sample.labels.get("gpu_uuid") or sample.labels.get("UUID")
    instance = sample.labels.get("GPU_I_ID")
    return f"{uuid}/{instance}" if uuid and instance else uuid


def _grown(counter: Series | None, start_ns: int, end_ns: int) -> float | None:
    """By how much a counter grew in the span, at its rate between the first and the last new reading in it.

    None where those lie less than half the span apart, or the counter fell.
    """
    if counter is None or len(counter.values) < 2:
        return None
    seen_ns, grown = counter.times_ns[-1] - counter.times_ns[0], counter.values[-1] - counter.values[0]
    falls = any(later < earlier for earlier, later in zip(counter.values, counter.values[1:], strict=False))
    return None if falls or 2 * seen_ns < end_ns - start_ns else grown * (end_ns - start_ns) / seen_ns


def _mean(series: Mapping[str, Series], name: str) -> float | None:
    return series[name].mean if name in series else None


def _most(series: Mapping[str, Series], name: str) -> float | None:
    values: Sequence[float] = series[name].values if name in series else ()
    return max(values, default=None)

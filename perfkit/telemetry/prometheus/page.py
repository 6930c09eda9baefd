"""Pages of Prometheus metrics: their samples, read with Prometheus' own parser, and the GPUs that they describe.

GPU metrics are Triton's `nv_gpu_*` (its server's docs/user_guide/metrics.md), and the DCGM exporter's `DCGM_FI_DEV_*` (field
identifiers of the DCGM API).
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from perfkit.figures.resources import GpuFigures
from perfkit.telemetry.gpu.queries import THROTTLE_MASK
from perfkit.telemetry.series import Series, SeriesBuffer, falls, rate_integral

_TYPE = re.compile(r"#\s*TYPE\s+(?P<name>\S+)\s+(?P<kind>\S+)\s*")
_MIB = 2.0**20


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a page; `kind` is `counter`, `gauge`, `histogram`, `summary`, or `untyped` if the page gives no type."""

    name: str
    labels: Mapping[str, str]
    value: float
    kind: str


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """The samples of a page in its order, and the number of lines that could not be parsed."""

    samples: tuple[Sample, ...]
    invalid_lines: int


def parse_page(text: str) -> Page:
    """Parses the text format or OpenMetrics; an invalid line loses only that line.

    Of native histograms, which have their buckets in Prometheus' binary format alone, only count and sum are read.
    """
    kinds = {match["name"]: match["kind"] for line in text.splitlines() if (match := _TYPE.fullmatch(line.strip()))}
    is_openmetrics = text.rstrip().endswith("# EOF")
    try:
        return Page(tuple(_samples(text, kinds, is_openmetrics=is_openmetrics)), 0)
    except ValueError:
        samples, invalid_lines = list[Sample](), 0
        for line in text.splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                try:
                    samples += _samples(line + "\n", kinds, is_openmetrics=is_openmetrics)
                except ValueError:
                    invalid_lines += 1
        return Page(tuple(samples), invalid_lines)


def _samples(text: str, kinds: Mapping[str, str], *, is_openmetrics: bool) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name, stem = sample.name, sample.name.removesuffix("_total")
            if name not in kinds and name != stem and kinds.get(stem) == "counter" and not is_openmetrics:
                name = stem  # the parser adds the suffix that OpenMetrics requires of counters
            kind = kinds.get(name) or kinds.get(re.sub(r"_(?:bucket|sum|count|total)$", "", name)) or "untyped"
            yield Sample(name, dict(sample.labels), float(sample.value), kind)


class _GpuMetric(NamedTuple):
    """The series that a metric becomes, its unit, and the factor to that unit."""

    series: str
    unit: str
    scale: float = 1.0


_GPU_METRICS = {
    "nv_gpu_utilization": _GpuMetric("gpu_utilization", "share"),
    "nv_gpu_memory_used_bytes": _GpuMetric("gpu_memory_used", "bytes"),
    "nv_gpu_memory_total_bytes": _GpuMetric("gpu_memory_total", "bytes"),
    "nv_gpu_power_usage": _GpuMetric("gpu_power", "W"),
    "nv_energy_consumption": _GpuMetric("gpu_energy", "J"),
    "DCGM_FI_DEV_GPU_UTIL": _GpuMetric("gpu_utilization", "share", 0.01),
    "DCGM_FI_DEV_MEM_COPY_UTIL": _GpuMetric("gpu_memory_utilization", "share", 0.01),
    "DCGM_FI_DEV_FB_USED": _GpuMetric("gpu_memory_used", "bytes", _MIB),
    "DCGM_FI_DEV_FB_FREE": _GpuMetric("gpu_memory_free", "bytes", _MIB),
    "DCGM_FI_DEV_FB_RESERVED": _GpuMetric("gpu_memory_reserved", "bytes", _MIB),
    "DCGM_FI_DEV_FB_TOTAL": _GpuMetric("gpu_memory_total", "bytes", _MIB),
    "DCGM_FI_DEV_POWER_USAGE": _GpuMetric("gpu_power", "W"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _GpuMetric("gpu_energy", "J", 0.001),
    "DCGM_FI_DEV_SM_CLOCK": _GpuMetric("gpu_sm_clock", "MHz"),
    "DCGM_FI_DEV_MEM_CLOCK": _GpuMetric("gpu_memory_clock", "MHz"),
    "DCGM_FI_DEV_GPU_TEMP": _GpuMetric("gpu_temperature", "celsius"),
}
_THROTTLE_REASONS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")


class PageGpu:
    """One GPU or MIG instance that a page describes, with its samples so far."""

    def __init__(self, uuid: str, labels: Mapping[str, str]) -> None:
        self.uuid = uuid
        self._name, self._index = labels.get("modelName", ""), labels.get("gpu", "")
        self._is_instance = "GPU_I_ID" in labels
        self.buffers: dict[str, SeriesBuffer] = {}

    def add(self, time_ns: int, sample: Sample) -> None:
        """Adds a sample of this GPU."""
        if sample.name in _THROTTLE_REASONS:
            is_throttled = float(bool(int(sample.value) & THROTTLE_MASK))  # DCGM's bits are NVML's
            self._buffer("gpu_throttled", "share").add(time_ns, is_throttled)
        elif metric := _GPU_METRICS.get(sample.name):
            buffer = self._buffer(metric.series, metric.unit)
            value = sample.value * metric.scale
            if metric.series != "gpu_energy" or value != buffer.latest:  # a counter's value counts from when it was new
                buffer.add(time_ns, value)

    def series(self, start_ns: int, end_ns: int) -> list[Series]:
        """The series of a span, without empty ones."""
        return [series for buffer in self.buffers.values() if (series := buffer.between(start_ns, end_ns)).values]

    def figures(self, start_ns: int, end_ns: int) -> GpuFigures | None:
        """The figures of a span; None without samples in it."""
        series = {series.name: series for series in self.series(start_ns, end_ns)}
        if not series:
            return None
        energy_j = _extrapolated_growth(series.get("gpu_energy"), start_ns, end_ns)
        power_w = _mean(series, "gpu_power")
        integrated_j = None if power_w is None else rate_integral(power_w, (start_ns, end_ns))
        used, total = _maximum(series, "gpu_memory_used"), _maximum(series, "gpu_memory_total")
        if total is None and (free := series.get("gpu_memory_free")) and used is not None:
            total = series["gpu_memory_used"].values[-1] + free.values[-1] + (_maximum(series, "gpu_memory_reserved") or 0.0)
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
            index=int(self._index) if re.fullmatch("[0-9]{1,9}", self._index) else None,
            mig=self._is_instance,
            memory_total_bytes=None if total is None else round(total),
            memory_utilization_mean=_mean(series, "gpu_memory_utilization"),
            temperature_max_celsius=_maximum(series, "gpu_temperature"),
            memory_clock_mean_mhz=_mean(series, "gpu_memory_clock"),
            energy_source="counter" if energy_j is not None else "power" if integrated_j is not None else None,
        )

    def forget_before(self, instant_ns: int) -> None:
        """Drops the samples before an instant, but for the last one of each series."""
        for buffer in self.buffers.values():
            buffer.forget_before(instant_ns)

    def _buffer(self, name: str, unit: str) -> SeriesBuffer:
        return self.buffers.setdefault(name, SeriesBuffer(name, unit, {"gpu": self.uuid}))


def gpu_uuid(sample: Sample) -> str | None:
    """The UUID of the GPU or MIG instance that a sample describes; None for a sample of anything else."""
    if sample.name not in _GPU_METRICS and sample.name not in _THROTTLE_REASONS:
        return None
    uuid = sample.labels.get("gpu_uuid") or sample.labels.get("UUID")
    instance = sample.labels.get("GPU_I_ID")
    return f"{uuid}/{instance}" if uuid and instance else uuid


def _extrapolated_growth(counter: Series | None, start_ns: int, end_ns: int) -> float | None:
    """How much a counter grew over a span, at its rate between the first and the last new value within it.

    None if those are less than half the span apart, or the counter fell.
    """
    if counter is None or len(counter.values) < 2:
        return None
    covered_ns, growth = counter.times_ns[-1] - counter.times_ns[0], counter.values[-1] - counter.values[0]
    return None if falls(counter.values) or 2 * covered_ns < end_ns - start_ns else growth * (end_ns - start_ns) / covered_ns


def _mean(series: Mapping[str, Series], name: str) -> float | None:
    return series[name].mean if name in series else None


def _maximum(series: Mapping[str, Series], name: str) -> float | None:
    values: Sequence[float] = series[name].values if name in series else ()
    return max(values, default=None)

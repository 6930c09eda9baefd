"""GPU metrics from NVIDIA's management library (NVML), under Triton's names."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple


class _Metric(NamedTuple):
    name: str
    text: str
    kind: str
    read: Callable[[Any, Any], float]
    """Reads the value, in the metric's unit, given the library and the GPU's handle."""


_METRICS = (
    _Metric(
        "utilization", "GPU utilization rate [0.0 - 1.0)", "gauge", lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100
    ),
    _Metric("memory_total_bytes", "GPU total memory, in bytes", "gauge", lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    _Metric("memory_used_bytes", "GPU used memory, in bytes", "gauge", lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used),
    _Metric("power_usage", "GPU power usage in watts", "gauge", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
    _Metric(
        "power_limit", "GPU power management limit in watts", "gauge", lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3
    ),
)
_ENERGY_TEXT = "GPU energy consumption in joules since the Triton Server started"
_ENERGY = _Metric("energy", _ENERGY_TEXT, "counter", lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3)


class GpuMetrics:
    """The metrics of all GPUs, by UUID. Energy counts from the construction of this object."""

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self._nvml = nvml
        self._handles = {uuid: handle for handle in handles if (uuid := self._query(nvml.nvmlDeviceGetUUID, handle)) is not None}
        self._initial_energy_j = {uuid: self._query(_ENERGY.read, nvml, handle) for uuid, handle in self._handles.items()}

    def lines(self) -> Iterator[str]:
        """The lines of the page, without values that a GPU does not report."""
        for metric in _METRICS:
            values = {uuid: self._query(metric.read, self._nvml, handle) for uuid, handle in self._handles.items()}
            yield from _render(metric, f"nv_gpu_{metric.name}", values)
        yield from _render(
            _ENERGY, "nv_energy_consumption", {uuid: self._used_energy_j(uuid, handle) for uuid, handle in self._handles.items()}
        )

    def _used_energy_j(self, uuid: str, handle: Any) -> float | None:
        before_j, now_j = self._initial_energy_j[uuid], self._query(_ENERGY.read, self._nvml, handle)
        return None if before_j is None or now_j is None else now_j - before_j

    def _query(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """The value, or None if this GPU or its driver does not report it."""
        try:
            return read(*arguments)
        except self._nvml.NVMLError:
            return None


def find_gpus() -> GpuMetrics | None:
    """The metrics of the machine's GPUs, or None if there is no driver or no GPU."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return None
    return GpuMetrics(pynvml, handles) if handles else None


def _render(metric: _Metric, name: str, values: dict[str, float | None]) -> Iterator[str]:
    if any(value is not None for value in values.values()):
        yield f"# HELP {name} {metric.text}"
        yield f"# TYPE {name} {metric.kind}"
    for uuid, value in values.items():
        if value is not None:
            # without exponents, since perf_analyzer reads 5e+07 as 5
            yield f'{name}{{gpu_uuid="{uuid}"}} {value:.6f}'

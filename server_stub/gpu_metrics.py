"""What NVIDIA's management library (NVML) tells of each GPU, under Triton's metric names."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple


class _Metric(NamedTuple):
    name: str
    text: str
    kind: str
    ask: Callable[[Any, Any], float]
    """By the library and the GPU's handle, in the metric's own unit."""


_METRICS = (
    _Metric(
        "utilization",
        "GPU utilization rate [0.0 - 1.0)",
        "gauge",
        lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
    ),
    _Metric("memory_total_bytes", "GPU total memory, in bytes", "gauge", lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle).total),
    _Metric("memory_used_bytes", "GPU used memory, in bytes", "gauge", lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle).used),
    _Metric("power_usage", "GPU power usage in watts", "gauge", lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
    _Metric(
        "power_limit",
        "GPU power management limit in watts",
        "gauge",
        lambda nvml, handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
    ),
)
_ENERGY = _Metric(
    "nv_energy_consumption",
    "GPU energy consumption in joules since the Triton Server started",
    "counter",
    lambda nvml, handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
)


class Gpus:
    """The GPUs that the library tells of, by UUID; `energy_j` at the start is what counting begins from."""

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self._nvml = nvml
        self._handles = {uuid: handle for handle in handles if (uuid := self._asked(nvml.nvmlDeviceGetUUID, handle)) is not None}
        self._energy_j = {uuid: self._asked(_ENERGY.ask, nvml, handle) for uuid, handle in self._handles.items()}

    def lines(self) -> Iterator[str]:
        """The lines of the document; what a GPU does not tell has none."""
        for metric in _METRICS:
            values = {uuid: self._asked(metric.ask, self._nvml, handle) for uuid, handle in self._handles.items()}
            yield from _told(metric, f"nv_gpu_{metric.name}", values)
        yield from _told(_ENERGY, _ENERGY.name, {uuid: self._used_j(uuid, handle) for uuid, handle in self._handles.items()})

    def _used_j(self, uuid: str, handle: Any) -> float | None:
        before_j, now_j = self._energy_j[uuid], self._asked(_ENERGY.ask, self._nvml, handle)
        return None if before_j is None or now_j is None else now_j - before_j

    def _asked(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        """The answer; None where this GPU, or its driver, has none."""
        try:
            return ask(*arguments)
        except self._nvml.NVMLError:
            return None


def find_gpus() -> Gpus | None:
    """The machine's GPUs; None where there is no library, no driver or no GPU."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return None
    return Gpus(pynvml, handles) if handles else None


def _told(metric: _Metric, name: str, values: dict[str, float | None]) -> Iterator[str]:
    if any(value is not None for value in values.values()):
        yield f"# HELP {name} {metric.text}"
        yield f"# TYPE {name} {metric.kind}"
    for uuid, value in values.items():
        if value is not None:
            # no exponent: perf_analyzer would read 5e+07 as 5
            yield f'{name}{{gpu_uuid="{uuid}"}} {value:.6f}'

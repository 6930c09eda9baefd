"""The metrics front end: statistics of models, and figures of GPUs from NVIDIA's management library (NVML), for Prometheus, under Triton's names."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from aiohttp import web

from server_stub.http.connections import Handler, HttpPort, error_answer
from server_stub.inference.model import Model
from server_stub.options import Limits
from server_stub.repository.repository import Repository

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MAX_BODY_BYTES = 2**16  # scrapers send no bodies


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


class MetricsFrontEnd(HttpPort):
    """Serves `GET /metrics` and nothing else."""

    def __init__(self, repository: Repository, gpus: GpuMetrics | None = None, *, limits: Limits | None = None) -> None:
        self._repository, self._gpus = repository, gpus
        limits = dataclasses.replace(limits or Limits(), max_body_bytes=_MAX_BODY_BYTES)
        super().__init__([web.get("/metrics", self._metrics)], _handle, limits)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=render(self._repository.loaded, self._gpus).encode(), headers={"Content-Type": CONTENT_TYPE})


async def _handle(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return error_answer(error.status, error.reason)


def _duration_us(name: str) -> Callable[[dict[str, Any]], int]:
    return lambda entry: int(entry["inference_stats"][name]["ns"] // 1000)


def _successes(entry: dict[str, Any]) -> int:
    return int(entry["inference_stats"]["success"]["count"])


_COUNTERS: tuple[tuple[str, str, Callable[[dict[str, Any]], int]], ...] = (
    ("request_success", "Number of successful inference requests, all batch sizes", _successes),
    ("count", "Number of inferences performed, all batch sizes", lambda entry: int(entry["inference_count"])),
    ("exec_count", "Number of model executions performed", lambda entry: int(entry["execution_count"])),
    ("request_duration_us", "Cumulative inference request duration in microseconds", _duration_us("success")),
    ("queue_duration_us", "Cumulative inference queuing duration in microseconds", _duration_us("queue")),
    ("compute_input_duration_us", "Cumulative compute input duration in microseconds", _duration_us("compute_input")),
    ("compute_infer_duration_us", "Cumulative compute inference duration in microseconds", _duration_us("compute_infer")),
    ("compute_output_duration_us", "Cumulative compute output duration in microseconds", _duration_us("compute_output")),
)


def render(models: Sequence[Model], gpus: GpuMetrics | None = None) -> str:
    """Render the whole page."""
    return "".join(f"{line}\n" for line in (*_model_lines(models), *(gpus.lines() if gpus is not None else ())))


def _model_lines(models: Sequence[Model]) -> Iterator[str]:
    entries = [model.statistics() for model in models]
    for name, text, value in _COUNTERS:
        yield from _comments(name, text, "counter")
        for entry in entries:
            yield f"nv_inference_{name}{{{_labels(entry)}}} {value(entry)}"
    yield from _comments("request_failure", "Number of failed inference requests, all batch sizes", "counter")
    for model, entry in zip(models, entries, strict=True):
        for reason, count in model.failures.items():
            yield f"nv_inference_request_failure{{{_labels(entry, reason=reason.value)}}} {count}"
    yield from _comments("pending_request_count", "Number of requests that await their execution", "gauge")
    for model, entry in zip(models, entries, strict=True):
        yield f"nv_inference_pending_request_count{{{_labels(entry)}}} {model.pending}"


def _comments(name: str, text: str, kind: str) -> tuple[str, str]:
    return f"# HELP nv_inference_{name} {text}", f"# TYPE nv_inference_{name} {kind}"


def _labels(entry: dict[str, Any], **more: str) -> str:
    labels = {"model": entry["name"], **more, "version": entry["version"]}
    return ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

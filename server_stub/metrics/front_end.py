"""The metrics front end: model statistics and GPU metrics in Prometheus' text format, under Triton's names."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aiohttp import web

from perfkit.protocol import rest
from server_stub.http.connections import Handler, HttpPort
from server_stub.inference.model import Model
from server_stub.metrics.gpus import GpuMetrics
from server_stub.options import Limits
from server_stub.repository.repository import Repository

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MAX_BODY_BYTES = 2**16  # scrapers send no bodies


class MetricsFrontEnd:
    """Serves `GET /metrics` and nothing else."""

    def __init__(self, repository: Repository, gpus: GpuMetrics | None = None, *, limits: Limits | None = None) -> None:
        self._repository, self._gpus = repository, gpus
        limits = dataclasses.replace(limits or Limits(), max_body_bytes=_MAX_BODY_BYTES)
        self._port = HttpPort([web.get("/metrics", self._metrics)], _handle, limits)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises OSError if that fails."""
        return await self._port.start(host, port)

    async def stop(self) -> None:
        """Stop listening, and wait until the requests in flight are answered or `stop_timeout_s` has passed."""
        await self._port.stop()

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=render(self._repository.loaded, self._gpus).encode(), headers={"Content-Type": CONTENT_TYPE})


async def _handle(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.Response(status=error.status, body=rest.encode_error(error.reason), content_type=rest.JSON_TYPE)


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

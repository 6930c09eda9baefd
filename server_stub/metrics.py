"""The models' counts in Prometheus' text form, under Triton's names: made from their statistics when somebody asks."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from server_stub.gpu_metrics import Gpus
from server_stub.model import Model

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _duration_us(name: str) -> Callable[[dict[str, Any]], int]:
    return lambda entry: int(entry["inference_stats"][name]["ns"] // 1000)


_COUNTERS: tuple[tuple[str, str, Callable[[dict[str, Any]], int]], ...] = (
    (
        "request_success",
        "Number of successful inference requests, all batch sizes",
        lambda entry: int(entry["inference_stats"]["success"]["count"]),
    ),
    ("count", "Number of inferences performed, all batch sizes", lambda entry: int(entry["inference_count"])),
    ("exec_count", "Number of model executions performed", lambda entry: int(entry["execution_count"])),
    ("request_duration_us", "Cumulative inference request duration in microseconds", _duration_us("success")),
    ("queue_duration_us", "Cumulative inference queuing duration in microseconds", _duration_us("queue")),
    ("compute_input_duration_us", "Cumulative compute input duration in microseconds", _duration_us("compute_input")),
    ("compute_infer_duration_us", "Cumulative compute inference duration in microseconds", _duration_us("compute_infer")),
    ("compute_output_duration_us", "Cumulative compute output duration in microseconds", _duration_us("compute_output")),
)


def render(models: Sequence[Model], gpus: Gpus | None = None) -> str:
    """The whole document."""
    return "".join(f"{line}\n" for line in (*_lines(models), *(gpus.lines() if gpus is not None else ())))


def _lines(models: Sequence[Model]) -> Iterator[str]:
    entries = [model.statistics() for model in models]
    for name, text, value in _COUNTERS:
        yield from _head(name, text, "counter")
        for entry in entries:
            yield f"nv_inference_{name}{{{_labels(entry)}}} {value(entry)}"
    yield from _head("request_failure", "Number of failed inference requests, all batch sizes", "counter")
    for model, entry in zip(models, entries, strict=True):
        for reason, count in model.failures.items():
            yield f"nv_inference_request_failure{{{_labels(entry, reason=reason.value)}}} {count}"
    yield from _head("pending_request_count", "Number of requests that await their execution", "gauge")
    for model, entry in zip(models, entries, strict=True):
        yield f"nv_inference_pending_request_count{{{_labels(entry)}}} {model.pending}"


def _head(name: str, text: str, kind: str) -> tuple[str, str]:
    return f"# HELP nv_inference_{name} {text}", f"# TYPE nv_inference_{name} {kind}"


def _labels(entry: dict[str, Any], **more: str) -> str:
    labels = {"model": entry["name"], **more, "version": entry["version"]}
    return ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

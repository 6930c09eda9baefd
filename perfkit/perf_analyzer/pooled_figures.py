"""The server's and the GPUs' figures of several runs together. Pure."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfkit.figures.resources import ComposingModelFigures, GpuFigures, ServerFigures
from perfkit.points.measured import Resources
from perfkit.points.resources import pooled_gpus as pooled_gpu_resources
from perfkit.units import NS_PER_S

_COMPUTE = ("compute_input_ns", "compute_infer_ns", "compute_output_ns")
_SERVER_TIMES: Mapping[str, Callable[[ServerFigures], int]] = {
    **dict.fromkeys(("success_ns", "queue_ns"), lambda one: one.requests),
    **dict.fromkeys(_COMPUTE, lambda one: one.requests - one.cache_hits),
    "cache_hit_ns": lambda one: one.cache_hits,
    "cache_miss_ns": lambda one: one.cache_misses,
    "client_mean_ns": lambda one: one.client_requests,
}
"""The means of a run, and over how many requests each is."""
_SERVER_COUNTS = ("requests", "failed", "executions", "inferences", "cache_hits", "cache_misses", "client_requests")


def pooled_server(runs: Sequence[ServerFigures]) -> ServerFigures | None:
    """Counts are added, means weighted by what they are means of; None without runs."""
    if len(runs) < 2:
        return runs[0] if runs else None
    figures: dict[str, Any] = {name: sum(getattr(run, name) for run in runs) for name in _SERVER_COUNTS}
    figures |= {name: _mean([(getattr(run, name), weight(run)) for run in runs]) for name, weight in _SERVER_TIMES.items()}
    by_name: dict[str, list[ComposingModelFigures]] = {}
    for model in (model for run in runs for model in run.composing_models):
        by_name.setdefault(model.name, []).append(model)
    return ServerFigures(
        **figures,
        mean_batch=figures["inferences"] / figures["executions"] if figures["executions"] else None,
        versions=tuple(sorted({version for run in runs for version in run.versions})),
        composing_models=tuple(map(_pooled_model, by_name.values())),
    )


def _pooled_model(runs: Sequence[ComposingModelFigures]) -> ComposingModelFigures:
    changes: dict[str, Any] = {name: sum(getattr(run, name) for run in runs) for name in ("requests", "failed", "executions")}
    times = ("success_ns", "queue_ns", *_COMPUTE)
    changes |= {name: _mean([(getattr(run, name), run.requests) for run in runs]) for name in times}
    changes["mean_batch"] = _mean([(run.mean_batch, run.executions) for run in runs])
    changes["versions"] = tuple(sorted({version for run in runs for version in run.versions}))
    return dataclasses.replace(runs[0], **changes)


def _mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def pooled_gpus(runs: Sequence[tuple[tuple[GpuFigures, ...], float]]) -> tuple[GpuFigures, ...]:
    """Each GPU once, from the GPUs of each run and the seconds that count of it."""
    return pooled_gpu_resources([(Resources(gpus=gpus), round(seconds * NS_PER_S)) for gpus, seconds in runs])

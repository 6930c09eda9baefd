"""A measured load in perf_analyzer's terms: its windows together, and the figures of its servers and GPUs. Pure."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfkit.figures.resources import ComposingModelFigures, GpuFigures, ServerFigures
from perfkit.perf_analyzer.options import Options
from perfkit.perf_analyzer.windows import Window, latency_ns, percentiles_ns
from perfkit.points.measured import Resources
from perfkit.points.measured import pooled_gpus as pooled_gpu_resources
from perfkit.stats.buckets import BucketCounts
from perfkit.units import NS_PER_S

_PERCENTILES = (50, 90, 95, 99)
_MS_NS = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """The figures of one load and one model, some windows together. Latencies run from the actual start of a request to its last response."""

    value: float
    """The concurrency, or the requests per second."""
    protocol: str
    requests: int
    """Answered requests."""
    inferences_per_s: float
    requests_per_s: float
    latency_mean_ns: float
    latency_stddev_ns: float
    percentiles_ns: Mapping[int, int]
    """By the percentile; those of the report, and that of `--percentile`."""
    stabilizing_latency_ns: float
    """The mean, or the percentile of `--percentile`."""
    sequences: int | None = None
    """Finished sequences; None for a load without sequences."""
    sequences_per_s: float = 0.0
    responses_per_s: float | None = None
    """The responses of a decoupled model; None for others."""
    delayed_share: float = 0.0
    """Rates only: the share of the requests that started too late; see `_delayed_share`."""
    cpu_share: float = 0.0
    """How much of a CPU the load generator used."""
    server: ServerFigures | None = None
    gpus: tuple[GpuFigures, ...] = ()

    def is_above(self, threshold_ms: int) -> bool:
        """Whether its latency in whole milliseconds reaches a threshold; 0 is none."""
        return threshold_ms > 0 and self.stabilizing_latency_ns // _MS_NS >= threshold_ms


def measured_load(windows: Sequence[Window], options: Options, value: float) -> MeasuredLoad:
    """The figures of some windows of a load, of which `value` is the concurrency or the requests per second.

    What is known of whole runs only is that of all runs that one of the windows is part of; rates of it are weighted by the windows' time.
    """
    times = BucketCounts.merged([window.times for window in windows])
    percentiles = sorted({*_PERCENTILES, *(() if options.percentile is None else (options.percentile,))})
    mean_ns, stddev_ns = times.mean_and_stddev_ns()
    seconds, requests = sum(window.seconds for window in windows), sum(window.requests for window in windows)
    seconds_of_runs: dict[int, float] = {}
    for window in windows:
        seconds_of_runs[id(window.run)] = seconds_of_runs.get(id(window.run), 0.0) + window.seconds
    runs = {id(window.run): window.run for window in windows}

    def mean_rate(rates: Sequence[float | None]) -> float | None:
        known = [(rate, window.seconds) for rate, window in zip(rates, windows, strict=True) if rate is not None]
        return sum(rate * length for rate, length in known) / seconds if known and seconds else None

    sequences_per_s = mean_rate([window.run.sequences_per_s for window in windows])
    return MeasuredLoad(
        value=value,
        protocol=options.protocol,
        requests=requests,
        inferences_per_s=mean_rate([window.inferences_per_s for window in windows]) or 0.0,
        requests_per_s=requests / seconds if seconds else 0.0,
        latency_mean_ns=mean_ns,
        latency_stddev_ns=stddev_ns,
        percentiles_ns=dict(zip(percentiles, percentiles_ns(times, percentiles), strict=True)),
        stabilizing_latency_ns=latency_ns(times, options.percentile),
        sequences=None if sequences_per_s is None else round(sequences_per_s * seconds),
        sequences_per_s=sequences_per_s or 0.0,
        responses_per_s=mean_rate([window.run.responses_per_s for window in windows]),
        delayed_share=_delayed_share(windows),
        cpu_share=mean_rate([window.run.cpu_share for window in windows]) or 0.0,
        server=pooled_server([run.server for run in runs.values() if run.server is not None]),
        gpus=pooled_gpus([(run.gpus, seconds_of_runs[key]) for key, run in runs.items()]),
    )


def _delayed_share(windows: Sequence[Window]) -> float:
    """The share of the requests that started after the next one was due, or at high rates more than a millisecond late.

    perf_analyzer counts those that its threads come to too late, and not those that a thread wakes up late for.
    """
    delays, rate_per_s = BucketCounts.merged([window.start_delays for window in windows]), windows[0].run.scheduled_per_s
    if not delays.count or not rate_per_s:
        return 0.0
    return delays.count_above(max(_MS_NS, round(NS_PER_S / rate_per_s))) / delays.count


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


_NS_PER_US = 1000
_STAGES = {
    "queue": "queue_ns",
    "compute input": "compute_input_ns",
    "compute infer": "compute_infer_ns",
    "compute output": "compute_output_ns",
}
GPU_FIGURES = {
    "Avg GPU Utilization": "utilization_mean",
    "Avg GPU Power Usage": "power_mean_w",
    "Max GPU Memory Usage": "memory_used_max_bytes",
    "Total GPU Memory": "memory_total_bytes",
}
"""The field of `GpuFigures` that each name stands for."""


def whole_us(value_ns: float | None) -> int:
    """A time in whole microseconds, cut; 0 for an unknown one."""
    return int((value_ns or 0.0) / _NS_PER_US)


def stages_us(figures: ServerFigures | ComposingModelFigures) -> dict[str, int]:
    """The mean time of each stage of a request in the server, in whole microseconds."""
    return {name: whole_us(getattr(figures, field)) for name, field in _STAGES.items()}

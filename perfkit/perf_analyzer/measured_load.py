"""A measured load in perf_analyzer's terms. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence

from perfkit.figures.resources import GpuFigures, ServerFigures
from perfkit.perf_analyzer.options import Options
from perfkit.perf_analyzer.percentiles import percentiles_ns
from perfkit.perf_analyzer.pooled_figures import pooled_gpus, pooled_server
from perfkit.perf_analyzer.windows import Window, latency_ns
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
    """Of a decoupled model; None for others."""
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

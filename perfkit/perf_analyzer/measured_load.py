"""A measured load in perf_analyzer's terms."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from perfkit.perf_analyzer.options import Options
from perfkit.perf_analyzer.sweep import STABILITY_WINDOWS, are_stable, has_one_run
from perfkit.result.interval_log import read_all_times, read_window_starts
from perfkit.result.load import OpenLoad
from perfkit.result.model import Failure, Point, Result
from perfkit.stats.buckets import BucketCounts
from perfkit.telemetry.figures import GpuFigures, ServerFigures
from perfkit.units import NS_PER_S

_PERCENTILES = (50, 90, 95, 99)
_MS_NS = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """The figures of one load and one model, all windows together. Latencies run from the actual start of a request to its last response."""

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
    window_inferences_per_s: tuple[float, ...]
    window_latencies_ns: tuple[float, ...]
    """The stabilizing latency of each window."""
    sequences: int | None = None
    """Finished sequences; None for a load without sequences."""
    sequences_per_s: float = 0.0
    responses_per_s: float | None = None
    """Of a decoupled model; None for others."""
    delayed_share: float = 0.0
    """Rates only: the share of the requests that started too late; see `_delayed_share`."""
    server: ServerFigures | None = None
    gpus: tuple[GpuFigures, ...] = ()
    failed: int = 0
    failures: tuple[Failure, ...] = ()

    def is_stable(self, percent: float, *, checks_latency: bool) -> bool:
        """Whether its windows agree; those of a number of requests in one window always do."""
        if len(self.window_inferences_per_s) < 2:
            return True
        return are_stable(self.window_inferences_per_s, percent) and (not checks_latency or are_stable(self.window_latencies_ns, percent))

    def is_above(self, threshold_ms: int) -> bool:
        """Whether its latency in whole milliseconds reaches a threshold; 0 is none."""
        return threshold_ms > 0 and self.stabilizing_latency_ns // _MS_NS >= threshold_ms


def measured_loads(result: Result, folder: pathlib.Path, options: Sequence[Options], values: Sequence[float]) -> list[MeasuredLoad]:
    """The figures of a result with one load, for each model of a mix or the only one. Raises ResultError.

    `values` are the concurrency, or the requests per second, of each.
    """
    windows: dict[tuple[int, int, int], list[BucketCounts]] = {}
    delays: dict[int, list[BucketCounts]] = {}
    starts_s = read_window_starts(folder)
    for (index, repetition), name, start_s, counts in read_all_times(folder, result):
        if name == "service time":
            place = _window(start_s - starts_s.get((index, repetition), 0.0), options[0])
            windows.setdefault((index, repetition, place), []).append(counts)
        elif name == "start delay":
            delays.setdefault(index, []).append(counts)
    indices = [index for index, point in enumerate(result.summary) if point.workload is not None or len(options) == 1]
    loads = []
    for index, one, value in zip(indices, options, values, strict=True):
        pooled = result.summary[index]
        repetitions = [point for point in result.points if point.key == pooled.key]
        times = [
            BucketCounts.merged(windows.get((index, point.repetition or 0, place), ()))
            for point in repetitions
            for place in range(STABILITY_WINDOWS if has_one_run(options[0]) else 1)
        ]
        load = _measured_load(pooled, repetitions, times, one, value)
        late = _delayed_share(BucketCounts.merged(delays.get(index, ())), pooled)
        loads.append(dataclasses.replace(load, delayed_share=late))
    return loads


def _window(second: float, options: Options) -> int:
    """The number of the window within a run of several, by the time since their start; answers after the last count in it."""
    if not has_one_run(options):
        return 0
    return min(max(int(second * 1000 + 0.5) // options.interval_ms, 0), STABILITY_WINDOWS - 1)


def _completed(repetitions: Sequence[Point], options: Options) -> list[int] | None:
    """The requests that were answered in each window of a run of several; None for windows that are runs of their own."""
    if not has_one_run(options):
        return None
    series, seconds = repetitions[0].throughput_series_per_s or (), options.interval_ms // 1000
    return [sum(series[place * seconds : (place + 1) * seconds]) for place in range(STABILITY_WINDOWS)]


def _measured_load(
    pooled: Point, repetitions: Sequence[Point], windows: Sequence[BucketCounts], options: Options, value: float
) -> MeasuredLoad:
    times = BucketCounts.merged(windows)
    batch = pooled.inferences_per_s / pooled.throughput_per_s if pooled.throughput_per_s else 1.0
    percentiles = sorted({*_PERCENTILES, *(() if options.percentile is None else (options.percentile,))})
    mean_ns, stddev_ns = times.mean_and_stddev_ns()
    seconds = sum(point.duration_s for point in repetitions)
    if (completed := _completed(repetitions, options)) is None:
        rates = tuple(point.inferences_per_s for point in repetitions)
    else:
        rates = tuple(batch * count * 1000 / options.interval_ms for count in completed)
    sequences = None if pooled.sequences is None else pooled.sequences.ended
    return MeasuredLoad(
        value=value,
        protocol=pooled.protocol,
        requests=pooled.requests.ok if completed is None else sum(completed),
        inferences_per_s=pooled.inferences_per_s,
        requests_per_s=pooled.throughput_per_s,
        latency_mean_ns=mean_ns,
        latency_stddev_ns=stddev_ns,
        percentiles_ns=dict(zip(percentiles, _percentiles_ns(times, percentiles), strict=True)),
        stabilizing_latency_ns=_latency_ns(times, options),
        window_inferences_per_s=rates,
        window_latencies_ns=tuple(_latency_ns(one, options) for one in windows),
        sequences=sequences,
        sequences_per_s=sequences / seconds if sequences and seconds else 0.0,
        responses_per_s=None if pooled.responses is None else pooled.responses.per_s,
        server=pooled.server,
        gpus=tuple(gpu for gpu in pooled.gpus if gpu.source == "metrics") if options.collects_metrics else (),
        failed=pooled.requests.sent - pooled.requests.ok,
        failures=pooled.failures,
    )


def _delayed_share(start_delays: BucketCounts, pooled: Point) -> float:
    """The share of the requests that started after the next one was due, or at high rates more than a millisecond late.

    perf_analyzer counts those that its threads come to too late, and not those that a thread wakes up late for.
    """
    if not start_delays.count or not isinstance(pooled.load, OpenLoad):
        return 0.0
    return start_delays.count_above(max(_MS_NS, round(NS_PER_S / pooled.load.rate_per_s))) / start_delays.count


def _latency_ns(times: BucketCounts, options: Options) -> float:
    if options.percentile is None:
        return times.mean_and_stddev_ns()[0]
    return float(_percentiles_ns(times, (options.percentile,))[0])


def _percentiles_ns(times: BucketCounts, percentiles: Sequence[int]) -> list[int]:
    """As perf_analyzer takes them: the value with the index of p/100·(n - 1), rounded, of the n sorted times."""
    count = times.count
    if not count:
        return [0 for _ in percentiles]
    ranks = [int(percentile / 100 * (count - 1) + 0.5) + 1 for percentile in percentiles]
    return [min(value, times.largest_ns) for value in times.values_at([rank / count for rank in ranks])]

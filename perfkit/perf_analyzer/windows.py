"""perf_analyzer's measurement windows, cut from a run of perfkit: the requests and times of each, those that must agree, the figures of the run."""

import dataclasses
import pathlib
from collections.abc import Generator, Iterator, Sequence

from perfkit.figures.resources import GpuFigures, ServerFigures
from perfkit.perf_analyzer.options import LoadRange, Options
from perfkit.result.interval_log import read_all_times, read_window_starts
from perfkit.result.load import OpenLoad
from perfkit.result.model import Point, Result
from perfkit.result.point_parts import Failure
from perfkit.stats.buckets import EMPTY, BucketCounts

STABILITY_WINDOWS = 3
"""The consecutive windows that must agree."""
THREADS = 16
"""perf_analyzer's default in a concurrency mode, which with streams is the number of streams."""


def load_range(options: Options) -> LoadRange:
    """The range to sweep; calls that wait in a thread each have an end even where none is given."""
    given = options.load_range
    if options.load_mode == "concurrency" and given.end == 0 and not (options.is_async or options.is_streaming):
        return LoadRange(given.start, options.max_threads or max(THREADS, given.start), given.step)
    return given


def loads(options: Options) -> Generator[float, bool, None]:
    """The loads in the order of their measurement; `send` whether the last one was stable and below the latency threshold.

    A linear sweep ends with the first load that was not. A binary search measures both ends, then halves the range between the last load that
    was and the first that was not, until they are no more than a step apart.
    """
    sweep = load_range(options)
    return _bisected(sweep, is_whole=options.load_mode == "concurrency") if options.is_binary_search else _linear(sweep)


def linear_values(sweep: LoadRange) -> Iterator[float]:
    """The start and what is reached from it by adding steps, as perf_analyzer adds them, up to the end; without an end they go on."""
    value = sweep.start
    while True:
        yield value
        value += sweep.step
        if sweep.end and value > sweep.end:
            return


def _linear(sweep: LoadRange) -> Generator[float, bool, None]:
    for value in linear_values(sweep):
        if not (yield value):
            return


def _bisected(sweep: LoadRange, *, is_whole: bool) -> Generator[float, bool, None]:
    low, high = sweep.start, sweep.end
    if not (yield low) or (yield high):
        return
    while high - low > sweep.step:
        middle = (low + high) // 2 if is_whole else (low + high) / 2
        if (yield middle):
            low = middle
        else:
            high = middle


def are_stable(values: Sequence[float], percent: float) -> bool:
    """Whether the largest of some windows' values is at most so many percent above the smallest, and none is 0."""
    return min(values) > 0 and max(values) / min(values) <= 1 + percent / 100


def windows_to_begin_with(options: Options) -> int:
    """How many windows are measured before the first judgement; further ones follow one by one."""
    return 1 if options.request_count else min(STABILITY_WINDOWS, options.max_trials)


def has_one_run(options: Options) -> bool:
    """Whether the windows that are measured together are parts of one run, without a pause between them.

    Windows of whole seconds can be: the times of a run are kept by the second. Others are runs of their own.
    """
    is_timed = options.measurement_mode == "time_windows" and not options.request_count and options.load_mode != "fixed_schedule"
    return is_timed and options.interval_ms % 1000 == 0


_MS_NS = 1_000_000


def percentiles_ns(times: BucketCounts, percentiles: Sequence[int]) -> list[int]:
    """The value with the index of p/100·(n - 1), rounded, of the n sorted times; 0 without times."""
    count = times.count
    if not count:
        return [0 for _ in percentiles]
    ranks = [int(percentile / 100 * (count - 1) + 0.5) + 1 for percentile in percentiles]
    return [min(value, times.largest_ns) for value in times.values_at([rank / count for rank in ranks])]


@dataclasses.dataclass(frozen=True, slots=True)
class RunFigures:
    """What is not known of each window, but of the run that it is part of."""

    sequences_per_s: float | None = None
    """Finished sequences; None for a load without sequences."""
    responses_per_s: float | None = None
    """The responses of a decoupled model; None for others."""
    scheduled_per_s: float | None = None
    """The rate of an open loop."""
    cpu_share: float = 0.0
    """How much of a CPU the load generator used."""
    server: ServerFigures | None = None
    """The server's figures of the whole run, its warm-up and its last answers included."""
    gpus: tuple[GpuFigures, ...] = ()
    sent: int = 0
    """Requests of all its windows."""
    failed: int = 0
    failures: tuple[Failure, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The requests of one model that were answered in one window."""

    requests: int
    seconds: float
    inferences_per_s: float
    times: BucketCounts
    """From the actual start of a request to its last response."""
    run: RunFigures
    """One object for all windows of a run."""
    start_delays: BucketCounts = EMPTY

    def latency_ns(self, percentile: int | None) -> float:
        """The mean of its times, or a percentile."""
        return latency_ns(self.times, percentile)


def latency_ns(times: BucketCounts, percentile: int | None) -> float:
    """The mean, or a percentile."""
    return times.mean_and_stddev_ns()[0] if percentile is None else float(percentiles_ns(times, (percentile,))[0])


def measured_windows(result: Result, folder: pathlib.Path, options: Sequence[Options], count: int) -> list[list[Window]]:
    """The windows of a result with one load, for each model of a mix or the only one, in their order. Raises ResultError.

    `count` is their number: parts of one run, or runs of their own.
    """
    by_window: dict[tuple[str, int, int, int], list[BucketCounts]] = {}
    starts_s = read_window_starts(folder)
    for (index, repetition), name, start_s, counts in read_all_times(folder, result):
        place = _place(start_s - starts_s.get((index, repetition), 0.0), options[0], count)
        by_window.setdefault((name, index, repetition, place), []).append(counts)
    indices = [index for index, point in enumerate(result.summary) if point.workload is not None or len(options) == 1]
    measured = []
    for index, one in zip(indices, options, strict=True):
        windows = list[Window]()
        for point in (point for point in result.points if point.key == result.summary[index].key):
            run = _run_figures(point, one)
            for place, (requests, seconds) in enumerate(_counted(point, options[0], count)):
                times, delays = (
                    BucketCounts.merged(by_window.get((name, index, point.repetition or 0, place), ()))
                    for name in ("service time", "start delay")
                )
                batch = point.inferences_per_s / point.throughput_per_s if point.throughput_per_s else 1.0
                windows.append(Window(requests, seconds, batch * requests / seconds if seconds else 0.0, times, run, delays))
        measured.append(windows)
    return measured


def _place(second: float, options: Options, count: int) -> int:
    """The number of the window within a run of several, by the time since their start; answers after the last count in it."""
    return min(max(int(second * 1000 + 0.5) // options.interval_ms, 0), count - 1) if has_one_run(options) else 0


def _counted(run: Point, options: Options, count: int) -> list[tuple[int, float]]:
    """The answered requests and the seconds of each window of a run."""
    if not has_one_run(options):
        return [(run.requests.ok, run.duration_s)]
    series, seconds = run.throughput_series_per_s or (), options.interval_ms // 1000
    return [(sum(series[place * seconds : (place + 1) * seconds]), float(seconds)) for place in range(count)]


def _run_figures(run: Point, options: Options) -> RunFigures:
    ended = None if run.sequences is None else run.sequences.ended
    return RunFigures(
        sequences_per_s=None if ended is None else ended / run.duration_s if run.duration_s else 0.0,
        responses_per_s=None if run.responses is None else run.responses.per_s,
        scheduled_per_s=run.load.rate_per_s if isinstance(run.load, OpenLoad) else None,
        cpu_share=run.generator.cpu_share,
        server=run.server if run.server and run.server.source == "statistics" else None,  # perf_analyzer knows no other
        gpus=tuple(gpu for gpu in run.gpus if gpu.source == "metrics") if options.collects_metrics else (),
        sent=run.requests.sent,
        failed=run.requests.sent - run.requests.ok,
        failures=run.failures,
    )


def last_windows(windows: Sequence[Window]) -> Sequence[Window]:
    """The last windows, which must agree and are reported."""
    return windows[-STABILITY_WINDOWS:]


def is_stable(windows: Sequence[Window], options: Options, *, checks_latency: bool = True) -> bool:
    """Whether the last three windows agree in throughput and latency; that of a number of requests always does."""
    if options.request_count:
        return True
    last = last_windows(windows)
    if len(last) < STABILITY_WINDOWS or not are_stable([window.inferences_per_s for window in last], options.stability_percent):
        return False
    return not checks_latency or are_stable([window.latency_ns(options.percentile) for window in last], options.stability_percent)


def is_over_threshold(windows: Sequence[Window], options: Options) -> bool:
    """Whether one of the last three windows reaches the latency threshold, or has no answer: further windows would change nothing."""
    last, threshold_ns = last_windows(windows), options.latency_threshold_ms * _MS_NS
    if not threshold_ns or len(last) < STABILITY_WINDOWS:
        return False
    return any(not window.requests or window.latency_ns(options.percentile) >= threshold_ns for window in last)

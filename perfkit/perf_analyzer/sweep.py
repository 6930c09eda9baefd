"""Which loads perf_analyzer measures, and whether its windows agree. Pure."""

from collections.abc import Generator, Iterator, Sequence

from perfkit.perf_analyzer.options import LoadRange, Options

STABILITY_WINDOWS = 3
"""The consecutive windows that must agree."""
_THREADS = 16


def load_range(options: Options) -> LoadRange:
    """The range to sweep; calls that wait in a thread each have an end even where none is given."""
    given = options.load_range
    if options.load_mode == "concurrency" and given.end == 0 and not (options.is_async or options.is_streaming):
        return LoadRange(given.start, options.max_threads or max(_THREADS, given.start), given.step)
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

"""Figures in perf_analyzer's terms from a stored result whose times are known."""

import dataclasses

import pytest

from perfkit.figures.resources import ComposingModelFigures, GpuFigures
from perfkit.perf_analyzer.measured_load import measured_load, pooled_gpus, pooled_server
from perfkit.perf_analyzer.options import LoadRange, Options
from perfkit.perf_analyzer.windows import RunFigures, are_stable, has_one_run, is_stable, loads, measured_windows, windows_to_begin_with
from perfkit.result.interval_log import interval_lines
from perfkit.result.model import Result
from perfkit.result.rotating_log import LOG_FILE
from perfkit.stats.buckets import BucketCounts
from tests.perf_analyzer.measured import measured_window, server
from tests.stored_results import distribution, document, point, write

MS = 1_000_000


def measured(folder, options, runs_ms, answered=None):
    """The windows whose runs have these service times in ms by second, and so many answers unless others are given; two inferences a request."""
    times = [[[round(value * MS) for value in second] for second in run] for run in runs_ms]
    counts = [sum(map(len, run)) for run in times]
    points = []
    for repetition, (run, count) in enumerate(zip(times, counts, strict=True)):
        made = point(throughput_per_s=count / len(run), duration_s=float(len(run)), inferences_per_s=2 * count / len(run))
        requests = {**made["requests"], "scheduled": count, "sent": count, "ok": count}
        series = answered[repetition] if answered else [len(second) for second in run]
        points.append(
            {
                **made,
                "repetition": repetition,
                "throughput_series_per_s": series,
                "requests": requests,
                "service_time_ns": distribution(1, 2, count),
            }
        )
    total, seconds = sum(counts), sum(map(len, times))
    pooled = {
        **points[0], "repetition": None, "duration_s": float(seconds), "throughput_per_s": total / seconds,
        "inferences_per_s": 2 * total / seconds, "service_time_ns": distribution(1, 2, total),
        "requests": {**points[0]["requests"], "scheduled": total, "sent": total, "ok": total},
    }  # fmt: skip
    result = Result.model_validate({**document(), "points": points, "summary": [pooled]})
    write(folder, document())
    lines = ["#[made by hand]\n"]
    for repetition, run in enumerate(times):
        start_s = 100.0 * repetition + 3.5
        for number, second in enumerate(run):
            lines.append(interval_lines(f"p0.r{repetition}", start_s + number, {"service_time": BucketCounts.of(second)}))
        lines.append(f"#[Window p0.r{repetition} starts at {start_s:.3f} s]\n")
    (folder / LOG_FILE).write_text("".join(lines))
    (windows,) = measured_windows(result, folder, [options], 3 if has_one_run(options) else len(runs_ms))
    return windows


def rates(windows):
    return [window.inferences_per_s for window in windows]


def test_the_windows_of_one_run_are_cut_at_whole_seconds(tmp_path):
    options = Options("m", interval_ms=2000)
    assert has_one_run(options)
    windows = measured(tmp_path / "r", options, [[[10] * 3, [10] * 5, [20] * 4, [20] * 4, [30] * 2, [30] * 4]])
    assert rates(windows) == [8.0, 8.0, 6.0]
    assert [window.latency_ns(None) for window in windows] == pytest.approx([10 * MS, 20 * MS, 30 * MS], rel=1e-3)
    assert len({id(window.run) for window in windows}) == 1
    assert measured_load(windows, options, 4).requests == 22
    agree = [is_stable(windows, Options("m", stability_percent=percent), checks_latency=False) for percent in (10, 34)]
    assert agree == [False, True]
    assert not is_stable(windows, Options("m", stability_percent=34))


def test_a_slow_window_counts_the_answers_that_came_in_it(tmp_path):
    windows = measured(tmp_path / "r", Options("m", interval_ms=1000), [[[10] * 4, [10] * 4, [10] * 4]], answered=[[3, 4, 4]])
    assert ([window.requests for window in windows], rates(windows)) == ([3, 4, 4], [6.0, 8.0, 8.0])


def test_windows_of_fractions_of_a_second_are_runs_of_their_own(tmp_path):
    options = Options("m", interval_ms=1500)
    assert not has_one_run(options)
    windows = measured(tmp_path / "r", options, [[[10] * 30, [10] * 20], [[10] * 50, []], [[10] * 40, [20] * 20]])
    assert rates(windows) == [50.0, 50.0, 60.0]
    assert len({id(window.run) for window in windows}) == 3
    assert measured_load(windows, options, 4).inferences_per_s == pytest.approx(320 / 6)


@pytest.mark.parametrize("options", [Options("m", request_count=9), Options("m", measurement_mode="count_windows")])
def test_counted_windows_are_runs_of_their_own(options):
    assert not has_one_run(options)


def test_percentiles_have_the_rank_that_perf_analyzer_takes(tmp_path):
    # the index of p/100 of n - 1, rounded: of ten values, p50 is the sixth, p75 the eighth
    options = Options("m", percentile=75, request_count=10)
    load = measured_load(measured(tmp_path / "r", options, [[list(range(1, 11))]]), options, 4)
    values = {percentile: round(value / MS) for percentile, value in load.percentiles_ns.items()}
    assert values == {50: 6, 75: 8, 90: 9, 95: 10, 99: 10}
    assert load.stabilizing_latency_ns == load.percentiles_ns[75]
    assert not load.is_above(9)
    assert load.is_above(8)


def test_windows_of_two_runs_are_weighted_by_their_time_and_runs_count_once():
    first = RunFigures(sequences_per_s=2.0, responses_per_s=30.0, server=server(10, 0, 0, 0, count=100))
    second = RunFigures(sequences_per_s=8.0, responses_per_s=60.0, server=server(40, 0, 0, 0, count=50))
    windows = [measured_window(100.0, run=first), measured_window(110.0, run=first), measured_window(90.0, run=second)]
    load = measured_load(windows, Options("m"), 4)
    assert (load.requests, load.sequences) == (300, 12)
    assert [load.inferences_per_s, load.sequences_per_s, load.responses_per_s] == pytest.approx([100.0, 4.0, 40.0])
    assert load.server.requests == 150
    assert load.server.queue_ns == pytest.approx(20_000.0)  # (100 · 10 + 50 · 40) ÷ 150 µs


def test_times_of_cached_answers_weigh_by_the_answers_that_took_them():
    first = dataclasses.replace(server(10, 0, 40, 0, count=100), cache_hits=60, cache_misses=40, cache_hit_ns=5000.0, executions=40)
    second = dataclasses.replace(server(40, 0, 10, 0, count=50), cache_hits=0, cache_misses=50, versions=("2",))
    pooled = pooled_server([first, second])
    assert (pooled.requests, pooled.inferences, pooled.executions, pooled.cache_hits, pooled.cache_misses) == (150, 150, 90, 60, 90)
    assert pooled.queue_ns == pytest.approx(20_000)  # (100 · 10 + 50 · 40) ÷ 150 µs
    assert pooled.compute_infer_ns == pytest.approx(1000 * (40 * 40 + 50 * 10) / 90)  # hits compute nothing
    assert pooled.cache_hit_ns == 5000.0
    assert pooled.mean_batch == pytest.approx(150 / 90)
    assert pooled.versions == ("2",)


def test_composing_models_are_pooled_by_name_and_one_run_or_none_stays_as_it_is():
    step = ComposingModelFigures("step", ("1",), 10, 0, 1000.0, None, 4000.0, None, 5, 2.0, success_ns=6000.0)
    runs = [
        dataclasses.replace(server(1, 1, 1, 1, count=10), composing_models=(step,)),
        dataclasses.replace(server(1, 1, 1, 1, count=30), composing_models=(dataclasses.replace(step, requests=30, queue_ns=5000.0),)),
    ]
    (model,) = pooled_server(runs).composing_models
    assert (model.name, model.requests, model.executions, model.queue_ns, model.compute_input_ns) == ("step", 40, 10, 4000.0, None)
    assert pooled_server(runs[:1]) is runs[0]
    assert pooled_server([]) is None


def test_means_of_a_gpu_weigh_by_time_and_its_maximum_is_the_largest():
    runs = [
        ((GpuFigures("u", "H", "metrics", utilization_mean=share, memory_used_max_bytes=used),), s)
        for share, used, s in ((0.2, 5, 3.0), (0.6, 4, 1.0))
    ]
    (gpu,) = pooled_gpus(runs)
    assert gpu.utilization_mean == pytest.approx(0.3)
    assert gpu.memory_used_max_bytes == 5


def swept(options, passes):
    """The loads that are measured while `passes` says which ones are stable and below the threshold."""
    sweep, values = loads(options), []
    try:
        value = next(sweep)
        while True:
            values.append(value)
            value = sweep.send(passes(value))
    except StopIteration:
        return values


def concurrency(*numbers, **options):
    return Options("m", load_range=LoadRange(*numbers), **options)


def rate_options(*numbers, **options):
    return Options("m", load_mode="request_rate", load_range=LoadRange(*numbers), **options)


@pytest.mark.parametrize(
    ("options", "last_passing", "expected"),
    [
        (concurrency(1, 1, 1), 99, [1]),
        (concurrency(1, 4, 1), 99, [1, 2, 3, 4]),
        (concurrency(2, 9, 3), 99, [2, 5, 8]),
        (concurrency(1, 8, 1), 2, [1, 2, 3]),
        (concurrency(4, 2, 1), 99, [4]),
        (concurrency(1, 0, 4, is_async=True), 30, [1, 5, 9, 13, 17, 21, 25, 29, 33]),
        (concurrency(1, 0, 4), 99, [1, 5, 9, 13]),  # calls that wait need a thread each, of which there are 16
        (concurrency(1, 0, 4, max_threads=6), 99, [1, 5]),
        (rate_options(100, 400, 150), 999, [100, 250, 400]),
        (rate_options(0.5, 1.0, 0.2), 999, [0.5, 0.7, 0.9]),
    ],
)
def test_a_linear_sweep_ends_after_the_first_load_that_does_not_pass(options, last_passing, expected):
    assert swept(options, lambda value: value <= last_passing) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "last_passing", "expected"),
    [
        (concurrency(1, 8, 1, is_binary_search=True), 1, [1, 8, 4, 2]),
        (concurrency(1, 8, 1, is_binary_search=True), 5, [1, 8, 4, 6, 5]),
        (concurrency(1, 8, 1, is_binary_search=True), 0, [1]),
        (concurrency(1, 8, 1, is_binary_search=True), 99, [1, 8]),
        (rate_options(100, 200, 20, is_binary_search=True), 160, [100, 200, 150, 175, 162.5]),
    ],
)
def test_a_binary_search_halves_the_range_between_the_ends(options, last_passing, expected):
    assert swept(options, lambda value: value <= last_passing) == expected


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [((100, 105, 110), 10, True), ((100, 105, 111), 10, False), ((0, 0, 0), 999, False), ((1, 1, 1), 0, True)],
)
def test_windows_agree_within_the_percentage_of_the_smallest(values, percent, expected):
    assert are_stable(values, percent) is expected


@pytest.mark.parametrize(("options", "expected"), [({}, 3), ({"max_trials": 2}, 2), ({"max_trials": 1}, 1), ({"request_count": 9}, 1)])
def test_the_first_windows_are_those_that_must_agree_as_far_as_trials_allow(options, expected):
    assert windows_to_begin_with(Options("m", **options)) == expected

"""Figures in perf_analyzer's terms from a stored result whose times are known."""

import pytest

from perfkit.perf_analyzer.measured_load import measured_load
from perfkit.perf_analyzer.options import Options
from perfkit.perf_analyzer.stability import is_stable
from perfkit.perf_analyzer.sweep import has_one_run
from perfkit.perf_analyzer.windows import RunFigures, measured_windows
from perfkit.recorder.recording import Interval
from perfkit.result.interval_log import LOG_FILE, interval_lines
from perfkit.result.model import Result
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
            lines.append(interval_lines(f"p0.r{repetition}", start_s, Interval(number, {"service_time": BucketCounts.of(second)})))
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

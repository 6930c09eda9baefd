"""The resource plots show what the telemetry file holds."""

import dataclasses

import numpy as np
import pytest

from perfkit.report.render import render_html
from perfkit.report.resource_plots import SeriesLine, resource_figures, step_values
from perfkit.report.run import run_page
from perfkit.report.run_plots import render_plots
from perfkit.report.timeline import read_timeline
from perfkit.result.checksums import write_checksums
from perfkit.result.telemetry_file import SampledPoint, TelemetryLog
from perfkit.telemetry.series import Series

S = 1_000_000_000


@pytest.fixture
def sampled(synthetic):
    """A result of two load points and two repetitions with these series in each."""

    def make(*series, concurrencies=(1, 2)):
        maker = synthetic(protocols=("http",), concurrencies=concurrencies, repetitions=2)
        result, log = maker.write(), TelemetryLog(maker.folder)
        for index in range(len(concurrencies)):
            for repetition in range(2):
                start_ns = round(maker.window_starts_s[index, repetition] * S)
                moved = [dataclasses.replace(one, times_ns=tuple(start_ns + time_ns for time_ns in one.times_ns)) for one in series]
                log.add(SampledPoint(index, repetition, "http", "x", start_ns), 0, tuple(moved))
        log.finish()
        write_checksums(maker.folder, ("result.json", "latency.hlog", "telemetry.parquet", "telemetry.csv"))
        return result, read_timeline(maker.folder, result)

    return make


def drawn(figures):
    return {line.get_gid(): line for _, figure in figures for axes in figure.axes for line in axes.lines if line.get_gid()}


QUEUE = Series("server_queue", "ns", {}, (S, 2 * S, 4 * S), (1e6, 3e6, 2e6))
POWER = Series("gpu_power", "W", {"gpu": "GPU-1"}, (S,), (70.0,))


def test_samples_are_drawn_at_their_seconds_one_repetition_after_another(sampled):
    result, timeline = sampled(QUEUE, POWER)
    lines = drawn(resource_figures(result, timeline))
    for repetition, offset_s in ((0, 0), (1, 5)):
        (line,) = [line for gid, line in lines.items() if gid.startswith("server_queue") and gid.endswith(f"-1-r{repetition}")]
        np.testing.assert_allclose(line.get_xdata(), [offset_s + 1, offset_s + 2, offset_s + 4])
        np.testing.assert_allclose(line.get_ydata(), [1.0, 3.0, 2.0])
    assert sum(gid.startswith("gpu_power") for gid in lines) == 4


def test_only_sampled_quantities_have_a_row(sampled):
    result, timeline = sampled(POWER)
    ((_, figure),) = resource_figures(result, timeline)
    assert [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()] == ["service time,\nms", "GPU power, W"]
    result, timeline = sampled()
    assert list(resource_figures(result, timeline)) == []


def test_many_samples_are_combined_in_steps_and_lateness_by_its_maximum(sampled):
    times = tuple(range(0, 5 * S, S // 1000))
    lag = Series("event_loop_lag", "ns", {"worker": "1"}, times, tuple(5e6 if time == 2 * S else 0.0 for time in times))
    result, timeline = sampled(lag)
    (line, *_) = [line for gid, line in drawn(resource_figures(result, timeline)).items() if gid.startswith("event_loop_lag")]
    assert len(line.get_xdata()) <= 241
    assert max(line.get_ydata()) == 5.0


def test_more_than_four_load_points_continue_in_a_second_figure(sampled):
    result, timeline = sampled(QUEUE, concurrencies=(1, 2, 4, 8, 16))
    plots = render_plots(result, timeline)
    assert [name for name in plots if name.startswith("resources")] == ["resources", "resources-2"]
    page = render_html(run_page(result, plots))
    assert "Server, GPUs and generator during the requests, continued" in page


def test_a_held_value_is_drawn_until_the_next_one_or_the_windows_end():
    series = Series("gpu_power", "W", {}, (-2 * S, 4 * S), (100.0, 250.0))
    drawn = step_values(series, SeriesLine("gpu_power", "", is_held=True), 10.0)
    assert [value for at_s, value in drawn if at_s < 4] == [100.0] * 96
    assert [value for at_s, value in drawn if at_s > 4] == [250.0] * 144
    assert (drawn[0][0], drawn[-1][0]) == pytest.approx((10 / 480, 10 - 10 / 480))


def test_nothing_is_drawn_before_the_first_value():
    drawn = step_values(Series("gpu_power", "W", {}, (5 * S,), (100.0,)), SeriesLine("gpu_power", "", is_held=True), 10.0)
    assert min(at_s for at_s, _ in drawn) > 5


def test_samples_before_the_window_are_left_out_of_means():
    series = Series("gpu_utilization", "share", {}, (-S // 6, S // 6, S // 2), (0.1, 0.2, 0.3))
    assert step_values(series, SeriesLine("gpu_utilization", "", 100), 10.0) == [(pytest.approx(1 / 6), 0.2), (0.5, 0.3)]
    assert step_values(Series("gpu_utilization", "share", {}, (-1,), (0.1,)), SeriesLine("gpu_utilization", ""), 10.0) == []


def test_metrics_that_the_scenario_names_have_rows_and_counters_show_their_rise(sampled):
    counter = Series("nv_inference_count", "count", {"model": "m"}, (S, 2 * S, 4 * S), (10.0, 30.0, 90.0))
    gauge = Series("nv_gpu_power_usage_of_all", "", {}, (S,), (70.0,))
    result, timeline = sampled(counter, gauge, concurrencies=(1,))
    named = result.model_copy(update={"scenario": {**result.scenario, "metrics": {"names": ["nv_*"]}}})
    ((_, figure),) = resource_figures(named, timeline)
    titles = [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()]
    assert titles == ["service time,\nms", "nv_gpu_power_usag…", "nv_inference_coun…, /s"]
    (line,) = [line for gid, line in drawn([("", figure)]).items() if gid == "nv_inference_count-model m-0-r0"]
    np.testing.assert_allclose(line.get_xdata(), [2, 4])
    np.testing.assert_allclose(line.get_ydata(), [20, 30])

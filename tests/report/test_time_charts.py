"""The charts over time show what the telemetry file holds."""

import dataclasses

import numpy as np
import pytest

from perfkit.report.time_charts import SeriesLine, step_values, time_group
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


REQUESTS = 2  # the charts that stand before those of the telemetry


def drawn(result, timeline):
    """The charts of the telemetry by title, each with its lines by name."""
    return {chart.title: {line.name: line for line in chart.lines} for chart in time_group(result, timeline).charts[REQUESTS:]}


QUEUE = Series("server_queue", "ns", {}, (S, 2 * S, 4 * S), (1e6, 3e6, 2e6))
POWER = Series("gpu_power", "W", {"gpu": "GPU-1"}, (S,), (70.0,))


def test_samples_are_drawn_at_their_seconds_one_window_after_another(sampled):
    found = drawn(*sampled(QUEUE, POWER))
    line = found["server's time per request"]["queue"]
    assert line.xs == tuple(start_s + at_s for start_s in (0, 5, 10, 15) for at_s in (1, 2, 4, 5))
    assert line.ys == (1.0, 3.0, 2.0, None) * 4
    assert list(found["GPU power"]) == ["GPU-1"]


def test_only_sampled_quantities_have_a_chart(sampled):
    assert list(drawn(*sampled(POWER))) == ["GPU power"]
    assert drawn(*sampled()) == {}


def test_many_samples_are_combined_in_steps_and_lateness_by_its_maximum(sampled):
    times = tuple(range(0, 5 * S, S // 1000))
    lag = Series("event_loop_lag", "ns", {"worker": "1"}, times, tuple(5e6 if time == 2 * S else 0.0 for time in times))
    line = drawn(*sampled(lag))["generator's loop, late"]["timers 1"]
    assert len(line.xs) <= 4 * 181
    assert max(y for y in line.ys if y is not None) == 5.0


def test_a_held_value_is_drawn_until_the_next_one_or_the_windows_end():
    series = Series("gpu_power", "W", {}, (-2 * S, 4 * S), (100.0, 250.0))
    drawn = step_values(series, SeriesLine("gpu_power", "", is_held=True), 10.0, 240)
    assert [value for at_s, value in drawn if at_s < 4] == [100.0] * 96
    assert [value for at_s, value in drawn if at_s > 4] == [250.0] * 144
    assert (drawn[0][0], drawn[-1][0]) == pytest.approx((10 / 480, 10 - 10 / 480))


def test_nothing_is_drawn_before_the_first_value():
    drawn = step_values(Series("gpu_power", "W", {}, (5 * S,), (100.0,)), SeriesLine("gpu_power", "", is_held=True), 10.0, 240)
    assert min(at_s for at_s, _ in drawn) > 5


def test_samples_before_the_window_are_left_out_of_means():
    series = Series("gpu_utilization", "share", {}, (-S // 6, S // 6, S // 2), (0.1, 0.2, 0.3))
    assert step_values(series, SeriesLine("gpu_utilization", "", 100), 10.0, 240) == [(pytest.approx(1 / 6), 0.2), (0.5, 0.3)]
    assert step_values(Series("gpu_utilization", "share", {}, (-1,), (0.1,)), SeriesLine("gpu_utilization", ""), 10.0, 240) == []


def test_metrics_that_the_scenario_names_have_charts_and_counters_show_their_rise(sampled):
    counter = Series("nv_inference_count", "count", {"model": "m"}, (S, 2 * S, 4 * S), (10.0, 30.0, 90.0))
    gauge = Series("nv_gpu_power_usage_of_all", "", {}, (S,), (70.0,))
    result, timeline = sampled(counter, gauge, concurrencies=(1,))
    named = result.model_copy(update={"scenario": {**result.scenario, "metrics": {"names": ["nv_*"]}}})
    found = drawn(named, timeline)
    assert list(found) == ["nv_gpu_power_usage_of_all", "nv_inference_count"]
    line = found["nv_inference_count"]["model m"]
    np.testing.assert_allclose(line.xs[:2], [2, 4])
    np.testing.assert_allclose(line.ys[:2], [20, 30])

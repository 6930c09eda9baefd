import pytest

from perfkit.report.resource_plots import _Line, _stepped
from perfkit.telemetry.timeline import Series

S = 10**9


def test_a_value_that_holds_is_drawn_until_the_next_one_and_to_the_windows_end():
    series = Series("gpu_power", "W", {}, (-2 * S, 4 * S), (100.0, 250.0))
    drawn = _stepped(series, _Line("gpu_power", "", holds=True), 10.0)
    assert [value for at_s, value in drawn if at_s < 4] == [100.0] * 96
    assert [value for at_s, value in drawn if at_s > 4] == [250.0] * 144
    assert (drawn[0][0], drawn[-1][0]) == pytest.approx((10 / 480, 10 - 10 / 480))


def test_nothing_is_drawn_before_the_first_value():
    drawn = _stepped(Series("gpu_power", "W", {}, (5 * S,), (100.0,)), _Line("gpu_power", "", holds=True), 10.0)
    assert min(at_s for at_s, _ in drawn) > 5


def test_of_means_those_before_the_window_are_left_out():
    series = Series("gpu_utilization", "share", {}, (-S // 6, S // 6, S // 2), (0.1, 0.2, 0.3))
    assert _stepped(series, _Line("gpu_utilization", "", 100), 10.0) == [(pytest.approx(1 / 6), 0.2), (0.5, 0.3)]
    assert _stepped(Series("gpu_utilization", "share", {}, (-1,), (0.1,)), _Line("gpu_utilization", ""), 10.0) == []

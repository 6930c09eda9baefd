"""Ticks of the axes, those of logarithmic ones checked against matplotlib's, and the place of values between the ends."""

import datetime
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.ticker import LogLocator

from perfkit.report.chart import Axis, linear_ticks, log_ticks, scale_of


@given(st.integers(-10_000, 10_000), st.integers(1, 10_000), st.sampled_from([1e-6, 0.01, 1.0, 1e6]), st.integers(3, 12))
def test_linear_ticks_are_all_multiples_of_the_smallest_step_that_does_not_give_too_many(low, length, unit, most):
    first, last = low * unit, (low + length) * unit
    found = linear_ticks(first, last, most)
    steps = sorted(digit * 10.0**power for power in range(-12, 12) for digit in (1, 2, 5))
    step = next(one for one in steps if length * unit <= most * one * (1 + 1e-9))
    multiples = [number * step for number in range(math.floor(first / step) - 1, math.ceil(last / step) + 2)]
    slack = 1e-9 * length * unit
    expected = [one for one in multiples if first - slack <= one <= last + slack]
    assert found == pytest.approx(expected, rel=1e-9, abs=slack)
    assert len(found) <= most + 1


def test_linear_ticks_of_known_axes():
    assert linear_ticks(0.0, 8.3, 10) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert linear_ticks(0.0, 0.03, 5) == [0, 0.01, 0.02, 0.03]
    assert linear_ticks(-7.0, 12.0, 5) == [-5, 0, 5, 10]
    assert linear_ticks(0.0, 1.4, 5, is_whole=True) == [0, 1]


@given(st.floats(1e-9, 1e9), st.floats(10, 1e3))
def test_log_ticks_are_those_of_matplotlib_where_they_are_few_enough(low, ratio):
    high = low * ratio
    expected = [tick for tick in LogLocator(subs=(1, 2, 5), numticks=50).tick_values(low, high) if low <= tick <= high]
    found = log_ticks(low, high)
    if 2 < len(expected) <= 9:
        assert found == pytest.approx(expected)
    assert all(low <= tick <= high for tick in found)


def test_log_ticks_of_a_wide_axis_are_powers_of_ten_and_of_a_narrow_one_round_values():
    assert log_ticks(1.0, 1e6) == [1, 10, 100, 1e3, 1e4, 1e5, 1e6]
    assert log_ticks(1e-12, 1e12) == [10.0**power for power in range(-12, 13, 3)]
    assert log_ticks(3.0, 4.5) == [3.0, 3.4, 3.9, 4.5]


@pytest.mark.parametrize(("first", "last", "most", "expected"), [
    ("2026-01-01", "2026-01-10", 10, [f"2026-01-{day:02}" for day in range(1, 11)]),
    ("2026-01-03", "2026-06-20", 10, ["2026-02-01", "2026-03-01", "2026-04-01", "2026-05-01", "2026-06-01"]),
    ("2020-02-01", "2029-12-31", 10, [f"{year}-01-01" for year in range(2021, 2030)]),
])  # fmt: skip
def test_dates_have_days_or_the_first_days_of_months(first, last, most, expected):
    ends = [(datetime.date.fromisoformat(one) - datetime.date(1970, 1, 1)).days for one in (first, last)]
    assert [text for _, text in scale_of(Axis("date", scale="date"), (ends[0], ends[1]), most, is_x=True).ticks] == expected


def test_a_value_lies_between_the_ends_by_its_scale():
    linear = scale_of(Axis("x", scale="linear", low=10.0, high=20.0), (10.0, 20.0), 10, is_x=True)
    assert [linear.share(value) for value in (10.0, 15.0, 20.0, 25.0, math.inf)] == [0, 0.5, 1, 1.5, math.inf]
    assert linear.share(math.nan) is None
    log = scale_of(Axis("x", scale="log", low=1.0, high=100.0), (1.0, 100.0), 10, is_x=True)
    assert log.share(10.0) == pytest.approx(0.5)
    assert log.share(0.0) is None
    assert log.share(-1.0) is None


def test_named_ticks_outside_the_axis_are_left_out():
    axis = Axis("percentile", scale="log", ticks=((2.0, "50%"), (10.0, "90%"), (100.0, "99%")), low=1.0, high=50.0)
    assert scale_of(axis, (1.0, 50.0), 10, is_x=True).ticks == ((2.0, "50%"), (10.0, "90%"))


@pytest.mark.parametrize("scale", ["linear", "from zero", "log", "date"])
@pytest.mark.parametrize("ends", [None, (0.0, 0.0), (5.0, 5.0), (-3.0, -1.0), (1e-12, 1e12)])
@pytest.mark.parametrize("is_x", [True, False])
def test_every_axis_has_a_length(scale, ends, is_x):
    if scale == "date" and ends == (1e-12, 1e12):
        return  # no calendar goes that far
    drawn = scale_of(Axis("x", scale=scale), ends, 10, is_x=is_x)
    assert drawn.high > drawn.low
    assert all(re.fullmatch(r"[-\d,.e+]+", text) for _, text in drawn.ticks)
    shares = [drawn.share(value) for value, _ in drawn.ticks]
    assert all(share is not None and -1e-9 <= share <= 1 + 1e-9 for share in shares)

"""Forecasts: the closed form without noise, coverage with it."""

import math

import numpy as np
import pytest

from perfkit.stats.forecast import fit_forecast


def test_growth_without_noise_gives_the_closed_form():
    forecast = fit_forecast(range(60), [100 * 1.01**day for day in range(60)], np.random.default_rng(1))
    out = forecast.exhaustion(400.0)
    days = math.log(400 / (100 * 1.01**59)) / math.log(1.01)
    assert forecast.growth_per_day == pytest.approx(0.01)
    assert out.trend_days == pytest.approx(days)
    assert {out.p10_days, out.p50_days, out.p90_days} == {math.ceil(days)}


def test_the_date_is_between_p10_and_p90_in_eight_of_ten_cases():
    """60 histories of 90 days with a week's pattern and 5 % scatter. False alarms, for other seeds: at a coverage of 80 %, fewer than 40
    or more than 57 of 60 come with a chance below 1 %."""  # fmt: skip
    random, inside = np.random.default_rng(5), 0
    for _ in range(60):
        days = np.arange(500)
        course = 100 * np.exp(0.005 * days + random.normal(0, 0.05, 500) + 0.1 * np.sin(2 * np.pi * days / 7))
        out = fit_forecast(days[:90], course[:90], random).exhaustion(300.0)
        first = int(np.argmax(course[90:] > 300.0)) + 1
        inside += (out.p10_days or math.inf) <= first <= (out.p90_days or math.inf)
    assert 40 <= inside <= 57


def test_gaps_in_the_history_do_not_matter_without_noise():
    days = [day for day in range(60) if day % 7 not in (2, 3)]
    forecast = fit_forecast(days, [100 * 1.01**day for day in days], np.random.default_rng(1))
    assert forecast.growth_per_day == pytest.approx(0.01)


def test_shrinking_demand_never_exhausts_a_capacity_and_one_below_the_level_is_exhausted_at_once():
    out = fit_forecast(range(30), [100 * 0.99**day for day in range(30)], np.random.default_rng(1)).exhaustion(200.0)
    assert (out.p10_days, out.p50_days, out.p90_days, out.trend_days) == (None, None, None, None)

    out = fit_forecast(range(30), [100 * 1.01**day for day in range(30)], np.random.default_rng(1)).exhaustion(50.0)
    assert (out.p10_days, out.trend_days) == (1, 0.0)


def test_the_fan_is_ordered_and_has_the_given_length():
    random = np.random.default_rng(2)
    forecast = fit_forecast(range(40), 100 * np.exp(0.01 * np.arange(40) + random.normal(0, 0.1, 40)), random)
    low, middle, high = (forecast.fan_per_s(quantile, 30) for quantile in (0.1, 0.5, 0.9))
    assert low.shape == (30,)
    assert (low < middle).all()
    assert (middle < high).all()


@pytest.mark.parametrize(
    ("days", "peaks", "message"),
    [(range(13), [1.0] * 13, "at least 14"), ([0] * 14, [1.0] * 14, "given twice"), (range(14), [0.0] * 14, "above zero")],
)
def test_invalid_histories_are_refused(days, peaks, message):
    with pytest.raises(ValueError, match=message):
        fit_forecast(list(days), peaks, np.random.default_rng(0))

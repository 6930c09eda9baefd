"""Forecasts: the closed form without noise, what is refused, and what would give a date."""

import math

import numpy as np
import pytest

from perfkit.plan.forecast import HORIZON_DAYS, PATHS, fit_forecast

SLOPE_PER_S, START_PER_S = 2.0, 100.0


def forecast_of(peaks_per_s, days=None, seed=1):
    return fit_forecast(range(len(peaks_per_s)) if days is None else days, peaks_per_s, np.random.default_rng(seed))


def exponential(length, growth=0.01):
    return [START_PER_S * (1 + growth) ** day for day in range(length)]


def dates(exhaustion):
    return exhaustion.p10_days, exhaustion.p50_days, exhaustion.p90_days


def noisy(course, seed, sd=0.05):
    return START_PER_S * np.exp(np.asarray(course) + np.random.default_rng(seed).normal(0, sd, len(course)))


def test_exponential_growth_without_noise_gives_the_closed_form():
    forecast = forecast_of(exponential(60))
    days = math.log(250 / exponential(60)[-1]) / math.log(1.01)
    assert forecast.growth_per_day == pytest.approx(0.01)
    assert forecast.level_per_s == pytest.approx(exponential(60)[-1])
    assert dates(forecast.exhaustion(250.0)) == (math.ceil(days),) * 3


def test_linear_growth_without_noise_gives_the_closed_form():
    """100 + 2·day is 152 on the last day, and exceeds 180.1 to 181.9 on the 15th day after it."""
    forecast = forecast_of([START_PER_S + SLOPE_PER_S * day for day in range(27)])
    assert dates(forecast.exhaustion(180.1)) == (15, 15, 15)
    assert dates(forecast.exhaustion(181.9)) == (15, 15, 15)
    assert dates(forecast.exhaustion(182.1)) == (16, 16, 16)


def test_gaps_in_the_history_do_not_matter_without_noise():
    days = [day for day in range(60) if day % 7 not in (2, 3)]
    forecast = forecast_of([START_PER_S * 1.01**day for day in days], days)
    assert forecast.growth_per_day == pytest.approx(0.01)
    assert forecast.days == days[-1] + 1


def test_the_order_of_the_days_does_not_matter():
    peaks, order = noisy(0.01 * np.arange(40), seed=3), np.random.default_rng(4).permutation(40)
    assert forecast_of(peaks[order], order).exhaustion(200.0) == forecast_of(peaks).exhaustion(200.0)


def test_a_capacity_below_the_level_is_exhausted_on_the_next_day_and_a_constant_demand_exhausts_none_above_it():
    assert dates(forecast_of(exponential(30)).exhaustion(50.0)) == (1, 1, 1)
    constant = forecast_of([START_PER_S] * 30).exhaustion(START_PER_S * 1.5)
    assert (constant.refusal, constant.more_days) == ("beyond_history", None)


def test_a_date_further_away_than_the_history_is_long_is_refused_until_the_history_reaches_half_way():
    """400 is exceeded 81 days after 60 days of history: 11 days later, 70 days remain, and the history has 71."""
    said = forecast_of(exponential(60)).exhaustion(400.0)
    assert (said.refusal, said.reach_days, said.more_days) == ("beyond_history", 60, 11)
    assert dates(said) == (None, None, None)
    later = forecast_of(exponential(71)).exhaustion(400.0)
    assert dates(later) == (70, 70, 70)


def test_shrinking_demand_exhausts_nothing_and_no_history_would_say_when():
    said = forecast_of(exponential(30, growth=-0.01)).exhaustion(200.0)
    assert (said.refusal, said.more_days) == ("beyond_history", None)


def test_models_that_disagree_give_no_date_but_the_weeks_after_which_one_is_contradicted():
    """Four months of growth by 1 a day: a season, whose top may be near, has as much weight as the straight line that made them."""
    said = forecast_of(noisy(np.log(1 + 0.01 * np.arange(120)), seed=0, sd=0.03)).exhaustion(364.0)
    chances = [said.models[name].chance for name in said.models]
    assert said.refusal == "models_disagree"
    assert min(chances) < 0.1
    assert max(chances) > 0.9
    assert dates(said) == (None, None, None)
    assert said.more_days is not None
    assert 0 < said.more_days < HORIZON_DAYS


def test_a_history_that_no_model_describes_gives_no_date():
    """A demand that is multiplied by 30 halfway is outside the widest interval of every model."""
    course = np.where(np.arange(60) < 33, 0.0, math.log(30))
    forecast = forecast_of(noisy(course, seed=1, sd=0.01))
    assert forecast.back_test.coverage < 0.8
    assert forecast.exhaustion(1e4).refusal == "not_described"


def test_an_order_is_due_the_lead_time_before_p10():
    forecast = forecast_of(exponential(60))
    said = forecast.exhaustion(250.0, lead_time_days=20)
    assert said.order_by_days == said.p10_days - 20
    assert forecast.exhaustion(250.0, lead_time_days=45).order_by_days == said.p10_days - 45 < 0
    assert forecast.exhaustion(250.0).order_by_days is None
    assert forecast.exhaustion(400.0, lead_time_days=20).order_by_days is None


def test_dates_and_fan_are_quantiles_of_the_weighted_paths():
    """Counted by hand: the weight of the paths that have exceeded the capacity before and on each date, or are below the fan."""
    forecast = forecast_of(noisy(0.004 * np.arange(120), seed=5))
    capacity = START_PER_S * math.exp(0.004 * 180)
    said = forecast.exhaustion(capacity)

    def weight(condition):
        scores = forecast.back_test.models
        return sum(scores[name].weight * condition(paths).sum() / PATHS for name, paths in forecast.paths_per_s.items())

    for share, day in zip((0.1, 0.5), dates(said)[:2], strict=True):
        assert weight(lambda paths, day=day: (paths[:, :day] > capacity).any(axis=1)) >= share - 1e-12
        assert weight(lambda paths, day=day: (paths[:, : day - 1] > capacity).any(axis=1)) < share
    for share, fan in zip((0.1, 0.5, 0.9), forecast.fan_per_s((0.1, 0.5, 0.9), 30), strict=True):
        assert fan.shape == (30,)
        assert weight(lambda paths, fan=fan: paths[:, 29] <= fan[29]) >= share - 1e-12
        assert weight(lambda paths, fan=fan: paths[:, 29] < fan[29]) < share


def test_the_same_random_numbers_give_the_same_dates():
    peaks = noisy(0.01 * np.arange(40), seed=6)
    assert forecast_of(peaks, seed=7).exhaustion(200.0) == forecast_of(peaks, seed=7).exhaustion(200.0)


@pytest.mark.parametrize(
    ("days", "peaks", "message"),
    [(range(13), [1.0] * 13, "at least 14"), ([0] * 14, [1.0] * 14, "given twice"), (range(14), [0.0] * 14, "above zero")],
)
def test_invalid_histories_are_refused(days, peaks, message):
    with pytest.raises(ValueError, match=message):
        fit_forecast(list(days), peaks, np.random.default_rng(0))


@pytest.mark.parametrize("days", [range(14), range(0, 14 * 30, 30), [*range(13), 4000], [0, *range(4000, 4013)]])
def test_short_and_sparse_histories_have_finite_forecasts(days):
    forecast = forecast_of(noisy(np.zeros(14), seed=8), days)
    assert forecast.reach_days == min(days[-1] - days[0] + 1, HORIZON_DAYS)
    assert all(np.isfinite(paths).all() for paths in forecast.paths_per_s.values())
    assert sum(score.weight for score in forecast.back_test.models.values()) == pytest.approx(1)

"""The models of daily peaks: exact fits, and distributions that agree with their simulated paths."""

import math

import numpy as np
import pytest

from perfkit.plan.forecast_models import MODELS, YEAR_DAYS, peak_history

AHEAD = np.array([1.0, 30.0, 90.0])


def fitted(model, logs):
    """A model fitted to a history that ends today."""
    logs = np.asarray(logs, dtype=np.float64)
    return MODELS[model](peak_history(np.arange(1.0 - logs.size, 1.0), np.exp(logs)))


def days(length):
    return np.arange(1.0 - length, 1.0)


def noise(length, seed, sd=0.05):
    return np.random.default_rng(seed).normal(0, sd, length)


def test_exponential_and_linear_growth_are_continued_exactly():
    assert fitted("exponential", 5 + 0.01 * days(60)).outlook(AHEAD).centre == pytest.approx(5 + 0.01 * AHEAD)
    assert np.exp(fitted("linear", np.log(300 + 2 * days(60))).outlook(AHEAD).centre) == pytest.approx(300 + 2 * AHEAD, rel=1e-5)


def test_a_season_is_continued_exactly_from_two_years_on():
    def course(day):
        return 5 + 0.0005 * day + 0.2 * np.sin(2 * math.pi * (day + 40) / YEAR_DAYS)

    ahead = np.array([30.0, 180.0, 365.0])
    assert fitted("seasonal", course(days(800))).outlook(ahead).centre == pytest.approx(course(ahead), abs=1e-6)


def test_a_season_that_cannot_be_seen_yet_makes_growth_uncertain():
    """90 days of growth by 0.2 % a day may be a season of ±20 %: the standard deviation after 90 days is of that size, and not after two years."""
    short, long = (0.002 * days(length) + noise(length, seed=1, sd=0.02) for length in (90, 800))
    ahead = np.array([90.0])
    assert 0.1 < fitted("seasonal", short).outlook(ahead).sd[0] < 0.4
    assert fitted("exponential", short).outlook(ahead).sd[0] < 0.05
    assert fitted("seasonal", long).outlook(ahead).sd[0] < 0.02


def test_the_level_is_that_after_the_last_shift():
    logs = np.where(days(90) > -30, math.log(150), math.log(100)) + noise(90, seed=2, sd=0.02)
    level = fitted("level shifts", logs).outlook(np.array([1.0]))
    assert level.centre[0] == pytest.approx(math.log(150), abs=0.02)
    assert level.noise_sd == pytest.approx(0.02, rel=0.3)


def test_a_constant_level_may_shift_but_is_most_likely_to_stay():
    """Half a shift is assumed in a history without one: the chance of none in another such time is (1 + 1)^-0.5."""
    outlook = fitted("level shifts", 5 + noise(90, seed=3)).outlook(np.array([90.0]))
    assert outlook.shares[:, 0] == pytest.approx([2**-0.5, 1 - 2**-0.5])


@pytest.mark.parametrize("model", MODELS)
def test_the_distribution_agrees_with_simulated_paths(model):
    """Means and standard deviations of 20,000 paths. The sizes of the shifts have Student's t with some 20 degrees of freedom, whose standard
    deviation is 5 % above that of the distribution."""
    staircase = np.repeat(0.1 * np.random.default_rng(5).normal(0.3, 1, 21).cumsum(), 20)
    fit = fitted(model, (staircase if model == "level shifts" else 0.002 * days(420)) + noise(420, seed=4, sd=0.01))
    outlook, paths = fit.outlook(AHEAD), fit.paths(np.arange(1.0, 91.0), 20_000, np.random.default_rng(6))[:, AHEAD.astype(int) - 1]
    assert np.abs(paths.mean(axis=0) - outlook.centre).max() < 0.03 * outlook.sd.max()
    assert paths.std(axis=0) == pytest.approx(outlook.sd, rel=0.1 if model == "level shifts" else 0.02)


def test_the_interval_of_growth_covers_the_truth_as_often_as_it_says():
    """300 histories of 60 days: the 80 % interval of the level 30 days ahead. At 80 %, fewer than 213 or more than 265 come with a chance
    below 1 % (binomial)."""
    inside = 0
    for seed in range(300):
        outlook = fitted("exponential", 0.005 * days(60) + noise(60, seed)).outlook(np.array([30.0]))
        inside += abs(outlook.centre[0] - 0.15) <= 1.2816 * outlook.sd[0]
    assert 213 <= inside <= 265


def test_the_weekday_pattern_is_found_and_added_again():
    pattern = np.array([0.3, 0.1, 0.0, -0.1, -0.3, 0.05, -0.05])
    back = days(84)
    history = peak_history(back, np.exp(5 + pattern[(back % 7).astype(int)] + noise(84, seed=7, sd=0.01)))
    assert history.weekday(np.arange(7.0)) == pytest.approx(pattern, abs=0.02)
    assert history.logs.std() < 0.02


def test_little_remains_of_a_weekday_pattern_that_is_chance_and_nothing_in_a_short_history():
    patterns = [peak_history(days(84), np.exp(noise(84, seed))).weekday_logs for seed in range(20)]
    raw_sd = 0.05 / math.sqrt(84 / 7)
    assert math.sqrt(np.mean(np.square(patterns))) < 0.6 * raw_sd
    assert not peak_history(days(27), np.exp(noise(27, seed=8))).weekday_logs.any()

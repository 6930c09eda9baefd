"""Back-testing: errors counted by hand, weights, and intervals that are widened until they hold."""

import math

import numpy as np
import pytest

from perfkit.plan.backtest import NOMINAL_COVERAGE, UNSEEN_SEASON_WEIGHT, back_test


def of(logs):
    """The back-test of a history without gaps."""
    logs = np.asarray(logs, dtype=np.float64)
    return back_test(np.arange(float(logs.size)), np.exp(logs))


def noise(length, seed, sd=0.05):
    return np.random.default_rng(seed).normal(0, sd, length)


def test_a_model_that_is_exactly_right_has_no_error_and_all_the_weight():
    models = of(5 + 0.01 * np.arange(60)).models
    assert models["exponential"].error == pytest.approx(0, abs=1e-6)
    assert models["exponential"].weight == pytest.approx(1)
    assert models["linear"].error > 0.1


@pytest.mark.parametrize("days", [np.arange(26.0), np.array([day for day in range(36) if day % 7 < 5], dtype=np.float64)])
def test_the_error_is_that_of_the_medians_in_units_of_the_difference_after_a_week(days):
    """26 days, or 26 weekdays: growth by 2 a day differs by 14 after a week. From every origin the fit is repeated by numpy.polyfit."""
    peaks, errors = 100 + 2 * days, []  # short enough to have no weekday pattern
    for known in (10, 12, 14, 16, 17, 19, 21, 23):
        slope, level = np.polyfit(days[:known], np.log(peaks[:known]), 1)
        ahead = days[known:][days[known:] <= 2 * days[known - 1] + 1]  # as many days as are known
        errors.append(np.abs(np.exp(level + slope * ahead) - (100 + 2 * ahead)).mean() / 14)
    out = back_test(days, peaks)
    assert out.origins == 8
    assert out.models["exponential"].error == pytest.approx(np.mean(errors))
    assert out.models["linear"].error == pytest.approx(0, abs=1e-6)


def test_a_constant_history_has_no_scaled_error():
    assert of(np.full(30, 5.0)).models["linear"].error is None


@pytest.mark.parametrize(
    ("course", "right"),
    [
        (lambda day: 0.004 * day, "exponential"),
        (lambda day: np.log(1 + 0.01 * day), "linear"),
        (lambda day: 0.2 * np.sin(2 * math.pi * day / 365.25), "seasonal"),
        (lambda day: 0.4 * np.floor(day / 150) * (-1) ** np.floor(day / 300), "level shifts"),
    ],
)
def test_the_model_that_made_a_long_history_gets_the_largest_weight(course, right):
    models = of(course(np.arange(800.0)) + noise(800, seed=1, sd=0.03)).models
    assert max(models, key=lambda name: models[name].weight) == right
    assert sum(score.weight for score in models.values()) == pytest.approx(1)


def test_a_season_that_cannot_be_seen_keeps_its_prior_weight():
    """A flat month scores all curves about the same; the season may still be there."""
    models = of(noise(30, seed=2)).models
    assert models["seasonal"].weight / models["exponential"].weight == pytest.approx(UNSEEN_SEASON_WEIGHT, rel=0.2)


def test_one_outage_does_not_decide_between_models():
    """Growth with a day at a tenth of its peak: the weights are those without it, within a factor of 3."""
    logs = 0.004 * np.arange(240) + noise(240, seed=5)
    outage = np.where(np.arange(240) == 150, logs - math.log(10), logs)
    before, after = of(logs).models, of(outage).models
    for name in ("exponential", "seasonal"):
        assert 1 / 3 < after[name].weight / before[name].weight < 3


def test_an_interval_that_holds_is_not_widened_and_one_that_does_not_is_widened_until_it_does():
    steady = of(0.003 * np.arange(365) + noise(365, seed=3))
    assert (steady.widening, steady.coverage) == (1.0, steady.coverage_before_widening)
    walks = [of(np.cumsum(noise(120, seed))) for seed in range(10)]
    assert sum(walk.widening > 1 for walk in walks) >= 5
    for walk in walks:
        assert walk.coverage >= max(walk.coverage_before_widening, NOMINAL_COVERAGE if walk.widening < 4 else 0)


def test_no_forecast_reaches_further_than_the_history_before_it_is_long():
    out = of(noise(100, seed=4))
    lengths = [min(known, 100 - known) for known in (25, 34, 44, 53, 62, 71, 81, 90)]
    assert out.longest_days == max(lengths)
    assert out.windows == pytest.approx((100 - 25) / np.mean(lengths))

"""The zero crossing of a line through noisy points, and its interval."""

import math

import numpy as np
import pytest

from perfkit.search.root_fit import POWER, fit_root
from perfkit.stats.distributions import student_t_quantile

RATES = [75.0, 80.0, 90.0, 94.0, 97.0, 103.0, 106.0, 112.0]


def margins_of(rates, slope, root=100.0, noise=()):
    """Margins whose transform is a straight line, with errors of the transform."""
    y = [slope * (rate / root - 1) for rate in rates]
    return [-math.log1p(-POWER * (one + error)) / POWER for one, error in zip(y, [*noise, *[0.0] * (len(y) - len(noise))], strict=True)]


@pytest.mark.parametrize("centre", [90.0, 100.0, 112.0])
def test_points_on_a_line_give_its_root_from_any_centre(centre):
    found = fit_root(RATES, margins_of(RATES, 1.2), centre, 0.9)
    assert found.root_per_s == pytest.approx(100)
    assert (found.low_per_s, found.high_per_s) == (pytest.approx(100), pytest.approx(100))
    assert found.slope * found.root_per_s / found.centre_per_s == pytest.approx(1.2)
    assert found.intercept + found.slope * (106 / found.centre_per_s - 1) == pytest.approx(1.2 * 0.06)


def test_the_interval_is_where_the_line_does_not_differ_significantly_from_zero():
    noise = np.random.default_rng(4).normal(0, 0.05, len(RATES))
    found = fit_root(RATES, margins_of(RATES, 1.2, noise=noise), 100.0, 0.9)
    # by its definition, over a grid: |line| <= t times the line's standard error there
    x = np.array(RATES) / found.centre_per_s - 1
    y = np.array([1.2 * (rate / 100 - 1) for rate in RATES]) + noise
    slope, intercept = np.polyfit(x, y, 1)
    error = math.sqrt(float(np.square(y - intercept - slope * x).sum()) / (len(x) - 2))
    grid = np.linspace(60, 140, 80_001)
    at = grid / found.centre_per_s - 1
    reach = student_t_quantile(0.95, len(x) - 2) * error * np.sqrt(1 / len(x) + (at - x.mean()) ** 2 / np.square(x - x.mean()).sum())
    inside = grid[np.abs(intercept + slope * at) <= reach]
    assert (found.low_per_s, found.high_per_s) == (pytest.approx(inside[0], abs=0.002), pytest.approx(inside[-1], abs=0.002))


def test_the_interval_covers_the_root_at_its_confidence():
    random = np.random.default_rng(11)
    found = [fit_root(RATES, margins_of(RATES, 1.5, noise=random.normal(0, 0.06, len(RATES))), 100.0, 0.9) for _ in range(600)]
    held = sum(one.low_per_s <= 100 <= one.high_per_s for one in found)
    assert 0.865 * 600 <= held <= 0.935 * 600  # seeded; within three standard errors of 90 %


def test_a_line_that_may_be_level_gives_no_bounds():
    noise = np.random.default_rng(2).normal(0, 0.3, len(RATES))
    found = fit_root(RATES, margins_of(RATES, 0.4, noise=noise), 100.0, 0.9)
    assert (found.low_per_s, found.high_per_s) == (0, math.inf)


def test_falling_lines_and_too_few_points_give_no_fit():
    assert fit_root(RATES, margins_of(RATES, -1.0), 100.0, 0.9) is None
    assert fit_root([95.0, 105.0], margins_of([95.0, 105.0], 1.0), 100.0, 0.9) is None
    assert fit_root([100.0] * 4, [0.1, -0.1, 0.2, 0.0], 100.0, 0.9) is None


def test_points_far_from_the_root_are_ignored():
    far = [10.0, 20.0, 300.0]
    found = fit_root([*RATES, *far], [*margins_of(RATES, 1.2), -0.01, -0.02, 9.0], 100.0, 0.9)
    assert found.root_per_s == pytest.approx(100)
    assert found.points == len(RATES)

"""Forecasts of what was not measured, against laws that are known."""

import itertools
import math

import numpy as np
import scipy.stats

from perfkit.gate.tune.forecast import Forecast

RANKS = {"a": {str(number): number for number in range(8)}, "b": {str(number): number for number in range(8)}}
GRID = [{"a": str(a), "b": str(b), "c": c} for a, b, c in itertools.product(range(8), range(8), ("x", "y"))]
LEVELS = [-0.03 * (int(one["a"]) - 5) ** 2 - 0.02 * (int(one["b"]) - 2) ** 2 + 0.1 * (one["c"] == "y") for one in GRID]
BEST = GRID.index({"a": "5", "b": "2", "c": "y"})


def test_the_optimum_between_measured_ones_is_the_most_promising():
    forecast = Forecast(GRID, RANKS)
    measured = [number for number, one in enumerate(GRID) if int(one["a"]) % 2 == 0 and int(one["b"]) % 3 == 0]
    gains = forecast.gains({number: LEVELS[number] for number in measured})
    gains[measured] = 0.0
    best = GRID[int(np.argmax(gains))]
    assert abs(int(best["a"]) - 5) <= 1
    assert abs(int(best["b"]) - 2) <= 1
    assert best["c"] == "y"


def test_nothing_is_to_be_gained_once_the_optimum_and_all_around_it_are_measured():
    forecast = Forecast(GRID, RANKS)
    gains = forecast.gains({number: level for number, level in enumerate(LEVELS) if number % 3 or number == BEST})
    assert gains.max() < 1e-3


def test_the_expected_gain_is_that_of_the_normal_distribution_far_from_what_was_measured():
    values = [{"k": word} for word in ("a", "b", "c", "d")]
    levels = {0: 0.0, 1: 0.2, 2: 0.1}
    gain = Forecast(values, {}).gains(levels)[3]
    # words are one apart: with the longest reach the covariance of any two is exp(-1/2), and all three weigh the same
    gains = []
    for reach in (0.25, 0.5, 1.0):
        rho = math.exp(-1 / reach**2 / 2)
        matrix = np.full((3, 3), rho) + np.eye(3) * (1 - rho + 1e-3)
        centred = np.array([-0.1, 0.1, 0.0])
        variance = centred @ np.linalg.solve(matrix, centred) / 3
        likelihood = -1.5 * math.log(variance) - 0.5 * np.linalg.slogdet(matrix)[1]
        row = np.full(3, rho)
        error = math.sqrt(variance * (1 - row @ np.linalg.solve(matrix, row)))
        above = 0.1 + row @ np.linalg.solve(matrix, centred) - 0.22
        gains.append((likelihood, above * scipy.stats.norm.cdf(above / error) + error * scipy.stats.norm.pdf(above / error)))
    assert math.isclose(gain, max(gains)[1], rel_tol=1e-9)

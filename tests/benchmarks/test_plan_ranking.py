"""The comparison of simulated plans, with distributions of cost whose verdicts are known in closed form."""

import math
import statistics

import numpy as np
import pytest

from benchmarks.plan_ranking import TARGET, compare

NORMAL = statistics.NormalDist()


@pytest.fixture(scope="module")
def costs():
    """60 plans whose estimates scatter by 3 %, which each one's distribution knows."""
    random = np.random.default_rng(4)
    quantiles = [NORMAL.inv_cdf((index + 0.5) / 100) for index in range(100)]
    return [[200 * math.exp(0.03 * (shift + one)) for one in quantiles] for shift in random.normal(size=60)]


@pytest.mark.parametrize("price", [1.0, 1.05, 1.1])
def test_the_verdicts_are_as_frequent_as_the_normal_distribution_says(costs, price):
    shares, gap = compare(costs, price), math.log(price) / (0.03 * math.sqrt(2))
    z = NORMAL.inv_cdf(1 - TARGET)
    assert shares.right == pytest.approx(1 - NORMAL.cdf(z - gap), abs=3 * shares.right_error + 0.01)
    assert shares.wrong == pytest.approx(NORMAL.cdf(-z - gap), abs=3 * shares.wrong_error + 0.01)
    assert shares.right_error < 0.1


def test_equal_prices_favour_neither(costs):
    shares = compare(costs, 1.0)
    assert shares.right == shares.wrong

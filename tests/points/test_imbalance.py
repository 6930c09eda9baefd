"""The verdict on shares against SciPy's tests, and its error rate in simulations."""

import itertools

import numpy as np
import pytest
import scipy.stats

from perfkit.points.shares import ERROR_RATE, imbalance_p_value


@pytest.mark.parametrize("counts", [(0, 10), (7, 3), (400, 600), (5, 5), (1, 0), (0, 0, 12), (30, 33, 40), (1000, 1100, 990, 910)])
def test_it_is_the_smallest_of_scipy_s_exact_tests_for_each_count(counts):
    total, share = sum(counts), 1 / len(counts)
    law = scipy.stats.binom(total, share)
    smallest = min(min(law.cdf(count), law.sf(count - 1)) for count in counts)
    assert imbalance_p_value(counts) == pytest.approx(min(2 * len(counts) * smallest, 1))


@pytest.mark.parametrize("counts", [(), (5,), (0, 0)])
def test_without_a_choice_there_is_no_imbalance(counts):
    assert imbalance_p_value(counts) == 1


@pytest.mark.parametrize(("total", "addresses"), [(6, 2), (7, 3), (5, 4)])
def test_even_chances_are_called_uneven_no_more_often_than_stated(total, addresses):
    """Over all ways in which the choices may fall, so that the probability is exact."""
    p_values: dict[tuple[int, ...], float] = {}
    for choices in itertools.product(range(addresses), repeat=total):
        counts = tuple(choices.count(address) for address in range(addresses))
        p_values[counts] = p_values.get(counts, 0) + addresses**-total
    for level in (0.5, 0.2, 0.05, 0.01, ERROR_RATE):
        assert sum(chance for counts, chance in p_values.items() if imbalance_p_value(counts) <= level) <= level + 1e-12


def test_many_even_choices_are_called_uneven_no_more_often_than_stated_and_uneven_ones_are_found():
    drawn = np.random.default_rng(1)
    found = [imbalance_p_value(drawn.multinomial(5000, [0.25] * 4).tolist()) for _ in range(1000)]
    for level in (0.05, 0.01):
        share = float(np.mean(np.array(found) < level))
        assert share < level + 4 * (level * (1 - level) / 1000) ** 0.5
        assert share > level / 10  # it is not much more careful than it says
    uneven = [imbalance_p_value(drawn.multinomial(5000, [0.3, 0.25, 0.25, 0.2]).tolist()) for _ in range(200)]
    assert max(uneven) < ERROR_RATE

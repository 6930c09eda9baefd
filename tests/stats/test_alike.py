"""Differences that are alike: the limits, and how often two equal laws give them."""

import itertools

import numpy as np
import pytest

from perfkit.stats.alike import alike_limits, are_alike


def chance_of_alike(law, count, ratio):
    """P(all differences of pairs from a law are alike), from all outcomes; `law` has the probability of each value."""
    differences = dict[float, float]()
    for (first, p), (second, q) in itertools.product(law.items(), law.items()):
        differences[first - second] = differences.get(first - second, 0.0) + p * q
    above = [one for one in differences if one > 0]
    values = np.array(list(itertools.product(above, repeat=count)))
    chances = np.array(list(itertools.product([differences[one] for one in above], repeat=count))).prod(axis=1)
    return float(chances[are_alike(values, ratio)].sum())


@pytest.mark.parametrize(
    ("values", "ratio", "expected"),
    [((2, 2, 2), 1.5, True), ((2, 2.9), 1.5, True), ((2, 3), 1.5, False), ((2, 3), 2, True), ((-2, -2.5), 2, False), ((0, 0), 2, False)],
)
def test_values_are_alike_above_zero_and_within_the_ratio(values, ratio, expected):
    assert are_alike(np.array(values, float), ratio) == expected


def test_limits_extend_the_range_by_a_multiple_of_it():
    for ratio, expected in ((1.5, [0.1, 0.35]), (2.0, [0.15, 0.3])):
        assert list(map(float, alike_limits(np.array([0.2, 0.25, 0.22]), ratio))) == pytest.approx(expected)


def test_a_shift_is_below_the_lower_limit_exactly_if_the_values_beyond_it_are_alike():
    rng = np.random.default_rng(1)
    values, shifts, ratios = rng.normal(0.2, 0.05, (2000, 5)), rng.uniform(-0.2, 0.3, 2000), rng.uniform(1.2, 3, 2000)
    for row, shift, ratio in zip(values, shifts, ratios, strict=True):
        assert are_alike(row - shift, ratio) == (shift < alike_limits(row, ratio)[0])
        assert are_alike(shift - row, ratio) == (shift > alike_limits(row, ratio)[1])


@pytest.mark.parametrize("ratio", [1.5, 2.0])
def test_two_equal_modes_are_alike_with_the_probability_of_a_quarter_for_each_pair(ratio):
    assert chance_of_alike({0: 0.5, 1: 0.5}, 5, ratio) == pytest.approx(4**-5)
    assert chance_of_alike({0: 0.7, 1: 0.3}, 5, ratio) == pytest.approx(0.21**5)


def test_few_laws_are_worse_than_two_equal_modes_and_none_by_much():
    third = dict.fromkeys(range(3), 1 / 3)
    assert chance_of_alike(third, 5, 1.5) == pytest.approx((2 / 9) ** 5 + (1 / 9) ** 5)
    worst = {0.573: 0.072, 1.152: 0.02, 5.212: 0.383, 13.141: 0.433, 20.933: 0.092}
    assert 4**-4 * 0.4 < chance_of_alike(worst, 5, 2.0) < 2 * 4**-5
    assert chance_of_alike(worst, 5, 1.5) < 1.03 * 4**-5


def test_no_law_gives_a_difference_within_a_band_more_often_than_in_one_of_four_pairs():
    """Mantel's theorem, for 300 random laws and every band [d, 2d) that begins at one of their differences."""
    rng = np.random.default_rng(2)
    for _ in range(300):
        places, shares = np.sort(rng.uniform(0, 1, 8) ** 3), rng.dirichlet(np.full(8, 0.5))
        differences = (places[None, :] - places[:, None]).ravel()
        weights = np.outer(shares, shares).ravel()
        for begin in differences[differences > 0]:
            assert weights[(differences >= begin) & (differences < 2 * begin)].sum() <= 0.25 + 1e-12

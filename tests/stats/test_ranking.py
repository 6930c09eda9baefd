"""Shared ranks, the probability that one configuration is below another, and the advised amount of data."""

import functools
import itertools
import math
import statistics

import numpy as np
import pytest

from perfkit.stats.ranking import CERTAIN, pair_confidence, probability_below, sample_size_factor, shared_ranks


def test_configurations_that_cannot_be_told_apart_share_a_rank_whatever_their_order():
    """b is tied with a and c, while a is better than c: ranks 1, 1, 2 in every order."""
    better = {("a", "c")}
    for order in itertools.permutations("abc"):
        ranks = shared_ranks(3, functools.partial(lambda names, one, other: (names[one], names[other]) in better, order))
        assert dict(zip(order, ranks, strict=True)) == {"a": 1, "b": 1, "c": 2}


def test_configurations_that_differ_are_ranked_as_in_a_race_and_equal_ones_tie():
    values = [3.0, 1.0, 1.0, 2.0]
    assert shared_ranks(4, lambda one, other: values[one] < values[other]) == [4, 1, 1, 3]


def test_the_probability_counts_the_pairs_and_half_of_the_equal_ones():
    draws, others = [1.0, 2.0, 2.0, 7.0], [2.0, 3.0, 1.0]
    counted = sum((a < b) + (a == b) / 2 for a in draws for b in others) / 12
    assert probability_below(draws, others) == pytest.approx(counted)
    assert probability_below(others, draws) == pytest.approx(1 - counted)
    with pytest.raises(ValueError, match="needs draws of both"):
        probability_below([], others)


def test_of_two_equal_configurations_one_is_called_better_in_one_of_ten_pairs():
    """Estimates scatter by their standard error, which their draws know: each of both is called better with 5 %.

    Of 1,000 pairs, 70 to 130 hold the expected 100 with a probability of 99.8 %.
    """
    random, normal = np.random.default_rng(1), statistics.NormalDist()
    quantiles = [normal.inv_cdf((index + 0.5) / 200) for index in range(200)]
    called = sum(
        max(probability_below(low, high), probability_below(high, low)) >= CERTAIN
        for low, high in (([shift + one for one in quantiles] for shift in random.normal(size=2)) for _ in range(1000))
    )
    assert 70 <= called <= 130


def test_the_advised_amount_of_data_tells_the_gap_with_a_probability_of_80_percent():
    z = statistics.NormalDist().inv_cdf(CERTAIN)
    normal = statistics.NormalDist(0.02, 0.05 / math.sqrt(sample_size_factor(0.02, 0.05, z)))
    assert 1 - normal.cdf(z * normal.stdev) == pytest.approx(0.8)
    assert sample_size_factor(1.0, 0.05, z) == 1.0
    assert sample_size_factor(0.0, 0.05, z) == math.inf


def test_of_ten_equal_configurations_few_rankings_have_a_difference():
    """Each has 100 draws that know its standard error. Exactly equal ones may differ in both directions: at most 10 % of the rankings.

    Of 300, more than 44 would have a probability below 1 %; with 95 % for each pair most rankings have a difference.
    """
    random, normal = np.random.default_rng(2), statistics.NormalDist()
    quantiles = np.array([normal.inv_cdf((index + 0.5) / 100) for index in range(100)])
    rankings = dict.fromkeys((CERTAIN, pair_confidence(10)), 0)
    for _ in range(300):
        draws = [(quantiles + shift).tolist() for shift in random.normal(size=10)]
        highest = max(probability_below(draws[one], draws[other]) for one, other in itertools.permutations(range(10), 2))
        for needed in rankings:
            rankings[needed] += highest >= needed
    assert rankings[pair_confidence(10)] <= 44
    assert rankings[CERTAIN] > 150


def test_the_confidence_of_a_pair_falls_short_of_one_by_its_part_of_five_percent():
    assert [pair_confidence(number) for number in (1, 2, 3, 10)] == pytest.approx([0.95, 0.95, 1 - 0.05 / 3, 1 - 0.05 / 45])

"""Variance between and within machines."""

import math
import statistics

import numpy as np
import pytest

from perfkit.stats.variance_components import MeanDifferenceError, mean_difference_error, pooled_variance, variance_components


def test_the_components_of_a_layout_worked_out_by_hand():
    # means 2, 5, 8 of two each: MS_b = 2·(9 + 0 + 9)/2 = 18, MS_w = 3·0.5/3 = 0.5, so (18 - 0.5)/2
    found = variance_components([[1.5, 2.5], [4.5, 5.5], [7.5, 8.5]])
    assert (found.within, found.within_df, found.between_df) == (0.5, 3, 2)
    assert found.between == pytest.approx(8.75)


def test_equal_machines_have_no_variance_between_them_and_components_that_cannot_be_estimated_are_none():
    assert variance_components([[1.0, 3.0], [1.0, 3.0]]).between == 0.0
    assert variance_components([[1.0, 2.0]]).between is None
    alone = variance_components([[1.0], [2.0]])
    assert (alone.within, alone.within_df, alone.between) == (None, 0, None)


def test_unequal_groups_are_unbiased():
    random, between, within = np.random.default_rng(3), [], []
    for _ in range(4000):
        found = variance_components([(random.normal(0, 2.0) + random.normal(0, 1.0, size)).tolist() for size in (2, 5, 3, 9)])
        between.append(found.between or 0.0)
        within.append(found.within or 0.0)
    assert np.mean(within) == pytest.approx(1.0, rel=0.03)
    assert np.mean(between) == pytest.approx(4.0, rel=0.06)  # truncation at 0 adds next to nothing here


def test_estimates_are_pooled_by_their_degrees_of_freedom():
    assert pooled_variance([(1.0, 3), (5.0, 1), (None, 0)]) == (2.0, 4)
    assert pooled_variance([(None, 0)]) == (None, 0)


def test_the_error_of_a_difference_of_means_on_one_machine_is_that_of_students_two_sample_test():
    baseline, candidate = [1.0, 1.2, 0.9, 1.1], [1.3, 1.5]
    error = mean_difference_error([baseline], [candidate], counts=(4, 2), is_one_machine=True)
    pooled = (3 * statistics.variance(baseline) + statistics.variance(candidate)) / 4
    assert (error.error, error.df) == (pytest.approx(math.sqrt(pooled * (1 / 4 + 1 / 2))), 4)


def test_control_pairs_and_a_minimum_add_to_the_variance_of_single_runs():
    def error_of(*baseline, **options):
        return mean_difference_error([baseline], [[2.0]], counts=(len(baseline), 1), is_one_machine=True, **options)

    assert error_of(1.0) is None
    assert error_of(1.0, control=(0.04, 9)) == MeanDifferenceError(math.sqrt(0.08), 9)
    assert error_of(1.0, 1.0, minimum_variance=0.06).error == pytest.approx(0.3)


def test_means_of_different_machines_need_the_variance_between_machines():
    assert mean_difference_error([[1.0, 1.1]], [[2.0]], counts=(2, 1), is_one_machine=False) is None
    groups = [[1.0, 1.2], [2.0, 2.2], [3.0, 3.2]]
    error = mean_difference_error(groups, [[2.0, 2.2]], counts=(6, 2), is_one_machine=False)
    between = statistics.variance([1.1, 2.1, 3.1]) - 0.02 / 2
    assert (error.error, error.df) == (pytest.approx(math.sqrt(2 * between + 0.02 * (1 / 6 + 1 / 2))), 2)

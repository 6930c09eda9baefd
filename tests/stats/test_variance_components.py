"""Variance between and within machines."""

import numpy as np
import pytest

from perfkit.stats.variance_components import pooled_variance, variance_components


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

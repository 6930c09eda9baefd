"""Ratios of cases measured in the same repetitions, against least squares, the paired t test, and by simulation."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from perfkit.stats.randomized_blocks import RandomizedBlocks


def test_the_common_variance_is_that_of_least_squares():
    """ln(value) = case + repetition, fitted with one column for each case and one for each repetition."""
    values = np.exp(np.random.default_rng(1).normal(0, 0.1, (4, 5)))
    rows = [(c, r) for c in range(4) for r in range(5)]
    design = np.array([[float(c == k) for k in range(4)] + [float(r == k) for k in range(5)] for c, r in rows])
    fit = np.linalg.lstsq(design, np.log([values[c, r] for c, r in rows]), rcond=None)[0]
    residuals = np.log([values[c, r] for c, r in rows]) - design @ fit
    blocks = RandomizedBlocks.of(values.tolist())
    assert blocks.degrees == 20 - np.linalg.matrix_rank(design)
    assert min(blocks.variances) == pytest.approx(residuals @ residuals / blocks.degrees)
    assert blocks.ratio(0, 2).value == pytest.approx(math.exp(fit[2] - fit[0]))


def test_two_cases_have_the_interval_of_the_paired_t_test():
    one, other = np.exp(np.random.default_rng(2).normal(0, 0.1, (2, 6)))
    test = scipy.stats.ttest_rel(np.log(other), np.log(one)).confidence_interval(0.99)
    ratio = RandomizedBlocks.of([one.tolist(), other.tolist()]).ratio(0, 1, 0.99)
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(test.low), math.exp(test.high)))


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.lists(st.floats(0.01, 100), min_size=3, max_size=6))
def test_what_a_repetition_does_to_all_cases_changes_no_ratio(seed, number, factors):
    values = np.exp(np.random.default_rng(seed).normal(0, 0.1, (number, len(factors))))
    before, after = (RandomizedBlocks.of(one.tolist()).ratio(0, 1) for one in (values, values * np.array(factors)))
    assert (after.value, after.low, after.high) == pytest.approx((before.value, before.low, before.high), rel=1e-6)


def test_the_variance_of_a_case_that_scatters_more_is_its_own():
    """Five times the scatter of the others: mostly above the common variance, so the mean is 25 within a few per cent."""
    random = np.random.default_rng(3)
    scatters = np.array([1.0, 1.0, 1.0, 1.0, 5.0])[:, None] / 100
    found = [RandomizedBlocks.of(np.exp(random.normal(0, 1, (5, 12)) * scatters).tolist()).variances[4] for _ in range(2000)]
    assert np.mean(found) * 1e4 == pytest.approx(25, rel=0.05)


def test_equal_differences_leave_no_doubt():
    ratio = RandomizedBlocks.of([[100, 80, 120], [50, 40, 60]]).ratio(0, 1)
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize("values", [[[1.0, 2.0, 3.0]], [[1.0, 2.0], [1.0, 2.0]], [[1.0, 2.0, 0.0], [1.0, 2.0, 3.0]]])
def test_blocks_need_cases_repetitions_and_positive_values(values):
    with pytest.raises(ValueError, match="two cases or more"):
        RandomizedBlocks.of(values)

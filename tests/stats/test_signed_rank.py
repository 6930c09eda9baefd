import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.stats.signed_rank import cut_off, hodges_lehmann, limits, signed_rank_p

# M. Hollander and D. A. Wolfe (1973), p. 29: depression before and after a first session
BEFORE = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
AFTER = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])
# the printed tables' one-sided critical values: the largest W that is significant
AT_5_PERCENT = {5: 0, 6: 2, 7: 3, 8: 5, 9: 8, 10: 10, 11: 13, 12: 17, 13: 21, 14: 25, 15: 30, 16: 35, 17: 41, 18: 47, 19: 53, 20: 60}
AT_1_PERCENT = {7: 0, 8: 1, 9: 3, 10: 5, 11: 7, 12: 9, 13: 12, 14: 15, 15: 19, 16: 23, 17: 27, 18: 32, 19: 37, 20: 43}


def p_by_enumeration(values):
    """All signs tried, with mean ranks for ties; the signs of zeros change nothing."""
    sizes = [abs(value) for value in values]
    ranks = [sum(other < size for other in sizes) + (sum(other == size for other in sizes) + 1) / 2 for size in sizes]
    observed = sum(rank for rank, value in zip(ranks, values, strict=True) if value > 0)
    ranks = [rank for rank, size in zip(ranks, sizes, strict=True) if size]
    sums = [sum(itertools.compress(ranks, signs)) for signs in itertools.product((0, 1), repeat=len(ranks))]
    return sum(one >= observed for one in sums) / len(sums)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=9))
def test_p_equals_the_count_over_all_signs_with_ties_and_zeros(values):
    assert signed_rank_p(np.array(values, float)) == pytest.approx(p_by_enumeration(values), abs=1e-12)


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=1, max_size=9))
def test_p_equals_the_count_over_all_signs_for_any_values(values):
    assert signed_rank_p(np.array(values)) == pytest.approx(p_by_enumeration(values), abs=1e-12)


def test_a_textbook_sample_has_its_textbook_p_estimate_and_limits():
    differences = BEFORE - AFTER
    assert signed_rank_p(differences) == pytest.approx(0.01953, abs=5e-6)
    assert hodges_lehmann(differences) == pytest.approx(0.46)
    assert [float(limit) for limit in limits(differences, 0.02)] == pytest.approx([0.010, 0.786])


@pytest.mark.parametrize(("alpha", "table"), [(0.05, AT_5_PERCENT), (0.01, AT_1_PERCENT)])
def test_the_cut_offs_equal_the_printed_tables(alpha, table):
    assert {count: cut_off(count, alpha) - 1 for count in table} == table


def test_too_few_values_have_infinite_limits():
    assert cut_off(11, 2.0**-11) == 1
    assert cut_off(10, 2.0**-11) == 0
    assert [float(limit) for limit in limits(np.arange(10.0), 2.0**-11)] == [-np.inf, np.inf]


def test_limits_enclose_the_shifts_that_the_test_does_not_reject():
    values = np.random.default_rng(4).standard_t(3, (5, 12))
    low, high = limits(values, 0.01)
    nudge = 1e-9
    assert (signed_rank_p(values - (low - nudge)[:, None]) <= 0.01).all()
    assert (signed_rank_p(values - (low + nudge)[:, None]) > 0.01).all()
    assert (signed_rank_p((high + nudge)[:, None] - values) <= 0.01).all()
    assert (signed_rank_p((high - nudge)[:, None] - values) > 0.01).all()


def test_many_samples_at_once_equal_each_by_itself():
    values = np.random.default_rng(5).integers(-4, 5, (3, 2, 7)).astype(float)
    together = signed_rank_p(values)
    assert together.shape == (3, 2)
    assert all(together[index] == signed_rank_p(values[index]) for index in np.ndindex(3, 2))
    assert hodges_lehmann(values).shape == (3, 2)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_invalid_samples_are_refused(values):
    with pytest.raises(ValueError, match="finite"):
        signed_rank_p(np.array(values))

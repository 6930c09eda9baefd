"""How one figure differs from another: against published examples, and by coverage."""

import math

import numpy as np
import pytest

from perfkit.stats.ratio_interval import Estimate, difference_of, geometric_mean, ratio_of, ratio_of_means, share_interval


def ends(found):
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def test_a_symmetric_ratio_is_that_of_two_independent_normal_logarithms():
    base, other = Estimate(100.0, 100 / 1.1, 110.0), Estimate(120.0, 120 / 1.2, 144.0)
    found, reach = ratio_of(base, other), math.hypot(math.log(1.1), math.log(1.2))
    assert (found.value, found.low, found.high) == pytest.approx((1.2, 1.2 * math.exp(-reach), 1.2 * math.exp(reach)))


def test_an_end_of_the_ratio_follows_from_opposite_ends_of_the_figures():
    lopsided = Estimate(100.0, 99.0, 200.0)
    exact = Estimate(100.0, 100.0, 100.0)
    assert ends(ratio_of(exact, lopsided)) == pytest.approx((0.99, 2.0))
    assert ends(ratio_of(lopsided, exact)) == pytest.approx((0.5, 1 / 0.99))


def test_an_open_end_opens_the_ends_that_depend_on_it():
    is_open, closed = Estimate(100.0, 90.0, None), Estimate(100.0, 90.0, 110.0)
    assert ratio_of(closed, is_open).high is None
    assert ratio_of(closed, is_open).low is not None
    assert ratio_of(is_open, closed).low is None


def test_ratios_of_zero_are_refused():
    with pytest.raises(ValueError, match="above zero"):
        ratio_of(Estimate(0.0, None, None), Estimate(1.0, None, None))
    with pytest.raises(ValueError, match="above zero"):
        geometric_mean([])


def test_welchs_interval_with_t_from_a_printed_table():
    base, other = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8]
    found = ratio_of_means([math.exp(one) for one in base], [math.exp(one) for one in other])
    means, squares = (np.mean(base), np.mean(other)), (np.var(base, ddof=1) / 6, np.var(other, ddof=1) / 7)
    df = math.floor(sum(squares) ** 2 / (squares[0] ** 2 / 5 + squares[1] ** 2 / 6))
    t_975 = {6: 2.44691, 7: 2.36462, 8: 2.30600, 9: 2.26216}[df]
    assert math.log(found.value) == pytest.approx(means[1] - means[0])
    assert math.log(ends(found)[1]) == pytest.approx(means[1] - means[0] + t_975 * math.sqrt(sum(squares)), rel=1e-5)


def test_single_values_have_open_intervals():
    assert ratio_of_means([10.0], [20.0, 21.0]).low is None
    assert geometric_mean([10.0]).value == pytest.approx(10.0)
    assert geometric_mean([10.0]).high is None


def test_ratios_of_means_have_their_nominal_coverage():
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(2000):
        found = ratio_of_means(np.exp(random.normal(0, 0.02, 3)).tolist(), np.exp(random.normal(0.1, 0.05, 5)).tolist())
        low, high = ends(found)
        covered += low <= math.exp(0.1) <= high
    assert 0.94 <= covered / 2000 <= 0.99  # df are rounded down


def test_differences_of_shares_equal_newcombes_table():
    # R. G. Newcombe (1998), table II, method 10: 56/70 against 48/80 and 9/10 against 3/10
    for (hits, count), (other_hits, other_count), low, high in (((48, 80), (56, 70), 0.0524, 0.3339), ((3, 10), (9, 10), 0.1705, 0.8090)):
        found = difference_of(share_interval(hits, count), share_interval(other_hits, other_count))
        assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_a_share_of_zero_is_bounded_above_alone():
    found = share_interval(0, 1000)
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(3.8415 / (1000 + 3.8415), rel=1e-4)
    with pytest.raises(ValueError, match="found"):
        share_interval(3, 2)

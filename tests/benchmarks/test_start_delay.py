import numpy as np
import pytest

from benchmarks.start_delay import Delays, gaps_of, ks_p_value, max_rejections


def test_gaps_at_the_quantiles_of_the_distribution_are_not_rejected():
    places = (np.arange(1000) + 0.5) / 1000  # half a step from the distribution everywhere
    assert ks_p_value(-np.log1p(-places) * 7e6, 7e6) > 0.99


@pytest.mark.parametrize(("share", "p_value"), [(0.0122, 0.1), (0.01353, 0.05), (0.01623, 0.01)])
def test_p_values_agree_with_published_tables(share, p_value):
    # 10,000 places of a uniform distribution, all moved by `share`: the distance is that share plus half a step
    places = np.clip((np.arange(10_000) + 0.5) / 10_000 + share - 0.00005, 0, 1 - 1e-12)
    assert ks_p_value(-np.log1p(-places), 1.0) == pytest.approx(p_value, rel=0.05)


def test_another_distribution_or_another_mean_is_rejected():
    gaps = np.random.default_rng(1).exponential(1.0, 10_000)
    assert ks_p_value(gaps, 1.0) > 0.05
    assert ks_p_value(gaps, 1.1) < 1e-6
    assert ks_p_value(np.ones(100), 1.0) < 1e-6


@pytest.mark.parametrize(("tests", "rejections"), [(1, 1), (10, 3), (200, 18)])
def test_a_correct_distribution_is_rejected_at_most_this_often(tests, rejections):
    assert max_rejections(tests) == rejections


def test_gaps_are_between_neighbours_in_time():
    assert gaps_of(np.array([30, 10, 15], dtype=np.int64)).tolist() == [5, 15]


def test_delays_are_in_microseconds():
    assert Delays.of(np.full(10, 2000, dtype=np.int64), 7.0) == Delays(2, 2, 2, 2, 7)

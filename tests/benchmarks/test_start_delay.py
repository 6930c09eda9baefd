import numpy as np
import pytest

from benchmarks.start_delay import Delays, gaps_of, ks_p_value, most_alarms


def test_gaps_that_follow_their_law_to_the_letter_are_never_refused():
    places = (np.arange(1000) + 0.5) / 1000  # half a step from the law everywhere
    assert ks_p_value(-np.log1p(-places) * 7e6, 7e6) > 0.99


@pytest.mark.parametrize(("share", "p_value"), [(0.0122, 0.1), (0.01353, 0.05), (0.01623, 0.01)])
def test_the_p_value_is_that_of_the_tables(share, p_value):
    # 10,000 places of a uniform law, all moved by a share: the distance is the share and half a step
    places = np.clip((np.arange(10_000) + 0.5) / 10_000 + share - 0.00005, 0, 1 - 1e-12)
    assert ks_p_value(-np.log1p(-places), 1.0) == pytest.approx(p_value, rel=0.05)


def test_another_law_and_another_mean_are_refused():
    gaps = np.random.default_rng(1).exponential(1.0, 10_000)
    assert ks_p_value(gaps, 1.0) > 0.05
    assert ks_p_value(gaps, 1.1) < 1e-6
    assert ks_p_value(np.ones(100), 1.0) < 1e-6


@pytest.mark.parametrize(("tests", "alarms"), [(1, 1), (10, 3), (200, 18)])
def test_a_right_law_gives_no_more_alarms(tests, alarms):
    assert most_alarms(tests) == alarms


def test_gaps_are_those_between_neighbours_in_time():
    assert gaps_of(np.array([30, 10, 15], dtype=np.int64)).tolist() == [5, 15]


def test_delays_are_microseconds():
    assert Delays.of(np.full(10, 2000, dtype=np.int64), 7.0) == Delays(2, 2, 2, 2, 7)

"""Steps in a series: where they are, how often they are found, and how seldom where there are none."""

import numpy as np
import pytest

from perfkit.history.trend import change_points, split_statistics


def direct(left, right):
    """The statistic from its definition, pair by pair."""

    def within(values):
        pairs = [abs(one - other) for index, one in enumerate(values) for other in values[index + 1 :]]
        return np.mean(pairs) if pairs else 0.0

    across = np.mean([abs(one - other) for one in left for other in right])
    return len(left) * len(right) / (len(left) + len(right)) * (2 * across - within(left) - within(right))


def test_the_statistic_follows_its_definition():
    values = np.random.default_rng(1).normal(size=11)
    assert split_statistics(values) == pytest.approx([direct(values[:cut], values[cut:]) for cut in range(1, 11)])


def test_clear_steps_are_found_where_they_are():
    random = np.random.default_rng(2)
    series = np.concatenate([random.normal(level, 0.1, size) for level, size in ((1.0, 12), (2.0, 9), (0.5, 15))])
    found = change_points(series.tolist(), seed=1)
    assert [one.index for one in found] == [12, 21]
    levels = [level for one in found for level in (one.before, one.after)]
    assert levels == pytest.approx([1.0, 2.0, 2.0, 0.5], abs=0.1)
    assert all(one.p == 1 / 1000 for one in found)  # none of 999 permutations, and never 0


def test_the_same_seed_gives_the_same_steps():
    series = np.random.default_rng(3).normal(size=30).tolist()
    assert change_points(series, seed=4, significance=0.9) == change_points(series, seed=4, significance=0.9)


@pytest.mark.parametrize("series", [[], [1.0], [1.0] * 5, [2.0] * 40])
def test_short_and_constant_series_have_no_step(series):
    assert change_points(series) == []


def test_false_alarms_are_no_more_frequent_than_the_significance():
    # 300 series of 24 without a step, long-tailed, at 5 %: 15 expected
    random = np.random.default_rng(5)
    alarms = sum(
        bool(change_points(random.standard_t(3, 24).tolist(), seed=index, significance=0.05, permutations=99)) for index in range(300)
    )
    assert 4 <= alarms <= 28  # outside with a chance of 0.12 %


def test_a_step_of_three_standard_deviations_is_located_exactly():
    random, found, near = np.random.default_rng(6), 0, 0
    for index in range(60):
        series = np.concatenate([random.normal(0, 1, 20), random.normal(3, 1, 10)])
        steps = change_points(series.tolist(), seed=index, permutations=99)
        found += bool(steps)
        near += any(abs(one.index - 20) <= 1 for one in steps)
    assert found >= 58
    assert near >= 52


def test_permutations_that_split_equally_well_count_despite_rounding():
    # of nine values in two groups, 4 and 5, there are C(9, 4) = 126 orders of groups, and two of them, one the other's reverse, split
    # best: p is 2/126 = 1.6 %, and of 999 permutations 15.9 +- 4.0 do as well
    rng = np.random.default_rng(7)
    for _ in range(5):
        values = [*rng.normal(0, 0.01, 4), *rng.normal(1, 0.01, 5)]
        (step,) = change_points(values, significance=0.05)
        assert step.index == 4
        assert 0.004 < step.p < 0.033
    (many,) = change_points(values, significance=0.05, permutations=10_000)
    assert many.p == pytest.approx(2 / 126, abs=0.005)  # four standard errors: a false alarm in 0.01 % of seeds

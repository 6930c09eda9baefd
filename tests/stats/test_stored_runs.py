import itertools
import math

import numpy as np
import pytest

from perfkit.stats.paired import MetricBounds
from perfkit.stats.rank_sum import shift_limits
from perfkit.stats.stored_runs import MACHINE_ALLOWANCE, allowance, detectable_shift, estimate_shift, judge_runs, missing_runs

TIME = MetricBounds.of_ratio(0.01, 0.15)
ERRORS = MetricBounds(0.001, 0.001, is_error_rate=True)
STEADY = np.array([[0.0, 0.004, -0.004, 0.002, -0.002, 0.001, -0.001, 0.003, -0.003, 0.0005]])


def judge(bounds, baseline, candidate):
    tests = judge_runs(bounds, np.asarray(baseline), np.asarray(candidate))
    return tests.regressed.tolist(), tests.passed.tolist()


@pytest.mark.parametrize(
    ("slower", "regressed", "passed"),
    [
        (0.0, False, True),
        (1.01 * (1 + MACHINE_ALLOWANCE) - 1 - 0.006, False, True),  # the runs scatter by 0.4 %
        (1.01 * (1 + MACHINE_ALLOWANCE) - 1 + 0.010, True, True),
        (1.15 / (1 + MACHINE_ALLOWANCE) - 1 - 0.010, True, True),
        (1.15 / (1 + MACHINE_ALLOWANCE) - 1 + 0.006, True, False),
        (0.2, True, False),
    ],
)
def test_a_regression_exceeds_band_and_allowance_and_a_pass_leaves_the_allowance_below_the_margin(slower, regressed, passed):
    candidate = STEADY[:, :5] + math.log1p(slower)
    assert judge([TIME], STEADY, candidate) == ([regressed], [passed])


def test_the_interval_is_that_of_the_rank_sum_test_and_the_allowance():
    baseline, candidate = np.random.default_rng(1).normal(size=(2, 7))
    estimate, low, high = estimate_shift(TIME, baseline.tolist(), candidate.tolist())
    assert estimate == pytest.approx(np.median([[other - one for one in baseline] for other in candidate]))
    inner = [float(limit) for limit in shift_limits(baseline, candidate, 0.05)]
    assert (low, high) == pytest.approx((inner[0] - math.log(1.05), inner[1] + math.log(1.05)))
    assert estimate_shift(ERRORS, [0.01] * 5, [0.01] * 5) == (0.0, 0.0, 0.0)  # no machine makes errors of answers
    assert estimate_shift(TIME, [1.0], [1.0])[1:] == (-math.inf, math.inf)


def test_errors_are_tested_beside_the_times_without_a_part_of_their_own():
    times = np.concatenate([STEADY, np.zeros((1, 10))])
    faulty = np.concatenate([STEADY[:, :5], np.full((1, 5), 0.005)])
    assert judge([TIME, ERRORS], times, faulty) == ([False, True], [True, False])
    # without an error on either side the error rate is no obstacle for five against five
    slower = np.concatenate([STEADY[:, :5] + 0.2, np.zeros((1, 5))])
    assert judge([TIME, ERRORS], times[:, :5], slower) == ([True, False], [False, True])


def test_one_run_that_fails_much_is_no_regression():
    baseline, candidate = np.zeros((1, 10)), np.array([[0.0, 0.0, 0.5, 0.0, 0.0]])
    assert judge([ERRORS], baseline, candidate)[0] == [False]


@pytest.mark.parametrize(
    ("runs", "more"),
    [((10, 5), (0, 0)), ((5, 4), (0, 0)), ((4, 5), (0, 0)), ((7, 3), (0, 0)), ((6, 3), (0, 1)), ((5, 1), (0, 3)), ((50, 2), (0, 1)), ((1, 1), (3, 4))],
)  # fmt: skip
def test_too_few_runs_are_told_how_many_more_are_needed(runs, more):
    assert missing_runs(*runs) == more


def test_the_numbers_of_runs_asked_for_are_enough_and_no_fewer_would_be():
    for baseline, candidate in itertools.product(range(1, 13), range(1, 8)):
        more = missing_runs(baseline, candidate)
        needed = (baseline + more[0], candidate + more[1])
        assert missing_runs(*needed) == (0, 0)
        assert math.comb(sum(needed), needed[1]) >= 100
        assert needed[1] >= 3
        if more[0]:
            assert math.comb(sum(needed) - 1, needed[1]) < 100


def test_nine_of_ten_gates_as_noisy_detect_the_minimum_detectable_effect():
    rng, bounds = np.random.default_rng(2), [TIME] * 4
    effects = [detectable_shift(bounds, 0, rng.normal(0, 0.03, 10).tolist(), rng.normal(0, 0.03, 5).tolist()) for _ in range(60)]
    effect = float(np.median([one for one in effects if one is not None]))
    assert 0.06 + 0.03 < effect < 0.06 + 6 * 0.03
    values = rng.normal(0, 0.03, (600, 4, 15))
    values[:, 0, 10:] += effect
    assert judge_runs(bounds, values[..., :10], values[..., 10:]).regressed[:, 0].mean() == pytest.approx(0.9, abs=0.07)


def test_too_few_runs_have_no_minimum_detectable_effect_and_no_scatter_leaves_band_and_allowance():
    assert detectable_shift([TIME], 0, [0.0, 0.1], [0.0]) is None
    assert detectable_shift([TIME], 0, [0.0] * 5, [0.0] * 5) == pytest.approx(math.log(1.01 * 1.05))
    assert detectable_shift([ERRORS], 0, [0.0] * 5, [0.0] * 5) == pytest.approx(0.001)


def test_the_allowance_is_for_times_alone():
    assert allowance(TIME) == pytest.approx(math.log(1.05))
    assert allowance(ERRORS) == 0.0

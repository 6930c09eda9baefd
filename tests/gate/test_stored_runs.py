import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from perfkit.gate import stored_runs
from perfkit.gate.paired import MetricBounds
from perfkit.gate.stored_runs import (
    LARGEST_SHIFT,
    Sittings,
    arrangements,
    cut_off,
    detectable_shift,
    estimate_shift,
    judge_runs,
    missing_units,
    shift,
    shift_allowances,
    shift_limits,
    step_down_p,
)

TIME = MetricBounds.of_ratio(0.01, 0.15)
ERRORS = MetricBounds(0.001, 0.001, is_error_rate=True)
STEADY = np.array([[0.0, 0.004, -0.004, 0.002, -0.002, 0.001, -0.001, 0.003, -0.003, 0.0005]])


def units(baseline, candidate):
    """Sittings of one unit each."""
    return Sittings((1,) * np.shape(baseline)[-1], (1,) * np.shape(candidate)[-1])


def judge(bounds, baseline, candidate):
    tests = judge_runs(bounds, np.asarray(baseline), np.asarray(candidate), units(baseline, candidate))
    return tests.regressed.tolist(), tests.passed.tolist()


@pytest.mark.parametrize(
    ("slower", "regressed", "passed"),
    [
        (0.0, False, True),
        (0.004, False, True),  # the sittings scatter by 0.4 %
        (0.020, True, True),
        (0.140, True, True),
        (0.156, True, False),
        (0.2, True, False),
    ],
)
def test_a_regression_exceeds_the_band_and_a_pass_stays_below_the_margin(slower, regressed, passed):
    candidate = STEADY[:, :5] + math.log1p(slower)
    assert judge([TIME], STEADY, candidate) == ([regressed], [passed])


def test_the_interval_is_that_of_the_rank_sum_test_and_the_allowance():
    baseline, candidate = np.random.default_rng(1).normal(size=(2, 7))
    inner = [float(limit) for limit in shift_limits(baseline, candidate, 0.05)]
    estimate, low, high = estimate_shift(TIME, baseline.tolist(), candidate.tolist(), units(baseline, candidate))
    assert estimate == pytest.approx(np.median([[other - one for one in baseline] for other in candidate]))
    assert (low, high) == pytest.approx(tuple(inner))
    allowed = 1.6448536 * LARGEST_SHIFT * math.sqrt(2)  # the normal quantile for 95 %, and the difference of one sitting and another
    assert estimate_shift(TIME, baseline.tolist(), candidate.tolist(), Sittings((7,), (7,)))[1:] == pytest.approx(
        (inner[0] - allowed, inner[1] + allowed)
    )
    assert estimate_shift(ERRORS, [0.01] * 5, [0.01] * 5, Sittings((5,), (5,))) == (0.0, 0.0, 0.0)  # no machine makes errors of answers
    assert estimate_shift(TIME, [1.0], [1.0], Sittings((1,), (1,)))[1:] == (-math.inf, math.inf)


def test_what_sittings_show_is_allowed_where_it_is_less_than_assumed():
    # five sittings of two runs with means 0, 0.01, ... against one of three: 0.01 √2.5 is the deviation of the five, t(4) at 5 % is 2.132
    baseline = np.repeat(np.arange(5) / 100, 2)[None]
    sittings = Sittings((2,) * 5, (3,))
    expected = 2.131847 * 0.01 * math.sqrt(2.5) * math.sqrt(1 / 5 + 1)
    assert shift_allowances([TIME], baseline, np.zeros((1, 3)), sittings, 0.05) == pytest.approx([expected])
    assumed = 1.6448536 * LARGEST_SHIFT * math.sqrt(1 / 5 + 1)
    assert shift_allowances([TIME], 10 * baseline, np.zeros((1, 3)), sittings, 0.05) == pytest.approx([assumed])
    assert shift_allowances([TIME], baseline, np.zeros((1, 3)), Sittings((2,) * 7, (1,) * 3), 0.05) == [0.0]


@pytest.mark.parametrize(
    "sittings",
    [Sittings((10,), (5,)), Sittings((1,) * 10, (5,)), Sittings((5, 5), (5,)), Sittings((1,) * 7, (1,) * 3), Sittings((1,) * 10, (1,) * 5)],
)
def test_false_alarms_stay_below_one_per_cent_where_sittings_differ_by_eight(sittings):
    # three metrics of runs that differ by 3 %, the candidate slower by the band: of 2,000 gates 20 may alarm; above 33 has a chance of 0.3 %
    random = np.random.default_rng(3)
    values = np.repeat(random.normal(0, 0.08, (2000, 1, sum(map(len, sittings)))), [size for side in sittings for size in side], axis=-1)
    values = values + random.normal(0, 0.03, (2000, 3, values.shape[-1]))
    first = sum(sittings.baseline)
    looked = judge_runs([TIME] * 3, values[..., :first], values[..., first:] + TIME.band, sittings)
    assert looked.regressed.any(-1).sum() <= 33


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
    assert missing_units(*runs) == more


def test_the_numbers_of_runs_asked_for_are_enough_and_no_fewer_would_be():
    for baseline, candidate in itertools.product(range(1, 13), range(1, 8)):
        more = missing_units(baseline, candidate)
        needed = (baseline + more[0], candidate + more[1])
        assert missing_units(*needed) == (0, 0)
        assert math.comb(sum(needed), needed[1]) >= 100
        assert needed[1] >= 3
        if more[0]:
            assert math.comb(sum(needed) - 1, needed[1]) < 100


def test_nine_of_ten_gates_as_noisy_detect_the_minimum_detectable_effect():
    rng, bounds, sittings = np.random.default_rng(2), [TIME] * 4, Sittings((1,) * 10, (1,) * 5)
    effects = [detectable_shift(bounds, 0, rng.normal(0, 0.03, 10).tolist(), rng.normal(0, 0.03, 5).tolist(), sittings) for _ in range(60)]
    effect = float(np.median([one for one in effects if one is not None]))
    assert 0.01 + 0.03 < effect < 0.01 + 6 * 0.03
    values = rng.normal(0, 0.03, (600, 4, 15))
    values[:, 0, 10:] += effect
    assert judge_runs(bounds, values[..., :10], values[..., 10:], sittings).regressed[:, 0].mean() == pytest.approx(0.9, abs=0.07)


def test_too_few_runs_have_no_minimum_detectable_effect_and_no_scatter_leaves_band_and_allowance():
    assert detectable_shift([TIME], 0, [0.0, 0.1], [0.0], Sittings((1, 1), (1,))) is None
    assert detectable_shift([TIME], 0, [0.0] * 5, [0.0] * 5, Sittings((1,) * 5, (1,) * 5)) == pytest.approx(math.log(1.01))
    single = Sittings((5,), (5,))
    assert detectable_shift([TIME], 0, [0.0] * 5, [0.0] * 5, single) == pytest.approx(math.log(1.01 * (1 + single.largest_allowance)))
    assert detectable_shift([ERRORS], 0, [0.0] * 5, [0.0] * 5, single) == pytest.approx(0.001)


# W. J. Conover's and M. Hollander & D. A. Wolfe's tables: the largest U that is significant at 5 %, one-sided
AT_5_PERCENT = {
    (3, 3): 0,
    (4, 4): 1,
    (5, 5): 4,
    (6, 5): 5,
    (7, 5): 6,
    (8, 5): 8,
    (9, 5): 9,
    (10, 5): 11,
    (10, 3): 4,
    (10, 4): 7,
    (10, 10): 27,
}
# the permeability of placentas, M. Hollander and D. A. Wolfe (1973), p. 69: at term, and at 12 to 26 weeks
AT_TERM = np.array([0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46])
EARLY = np.array([1.15, 0.88, 0.90, 0.74, 1.21])


def rank_sum_of(values, chosen):
    """Twice the number of pairs, a chosen value and another one, in which the chosen one is larger; ties count half."""
    others = [index for index in range(len(values)) if index not in chosen]
    return sum(2 * (values[one] > values[other]) + (values[one] == values[other]) for one in chosen for other in others)


def p_by_enumeration(metrics, second):
    """The step-down procedure in its plainest form, for lists of values."""
    runs = len(metrics[0])
    ways = list(itertools.combinations(range(runs), second))
    actual = tuple(range(runs - second, runs))
    left = sorted(range(len(metrics)), key=lambda metric: -rank_sum_of(metrics[metric], actual))
    p, highest = {}, 0.0
    while left:
        observed = rank_sum_of(metrics[left[0]], actual)
        as_large = sum(max(rank_sum_of(metrics[metric], way) for metric in left) >= observed for way in ways)
        highest = max(highest, as_large / len(ways))
        p[left.pop(0)] = highest
    return [p[metric] for metric in range(len(metrics))]


@given(st.data())
def test_p_equals_the_plain_enumeration_with_ties(data):
    runs, metrics = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 3))
    second = data.draw(st.integers(1, runs - 1))
    row = st.lists(st.integers(-3, 3), min_size=runs, max_size=runs)
    values = data.draw(st.lists(row, min_size=metrics, max_size=metrics))
    assert step_down_p(np.array(values, float), second) == pytest.approx(p_by_enumeration(values, second), abs=1e-12)


def test_one_metric_has_the_p_of_the_rank_sum_test():
    values = np.random.default_rng(1).normal(size=(40, 1, 13))
    expected = [mannwhitneyu(row[0, -5:], row[0, :-5], alternative="greater", method="exact").pvalue for row in values]
    assert step_down_p(values, 5)[:, 0] == pytest.approx(expected)


def test_the_smallest_p_of_five_against_five_is_one_arrangement_of_252():
    together = np.tile(np.arange(10.0), (4, 1))
    assert step_down_p(together, 5) == pytest.approx([1 / 252] * 4)
    others = np.random.default_rng(2).permuted(together[1:], axis=-1)
    apart = step_down_p(np.concatenate([together[:1], others]), 5)
    assert apart[0] == pytest.approx(4 / 252)  # each of the others has an arrangement of its own that is as extreme
    assert (apart[1:] > apart[0]).all()


def test_any_loss_of_the_second_sample_keeps_the_false_alarms_below_alpha():
    # all labellings of fixed values, those of the second sample lowered by amounts of their own: the docstring's proof, counted
    rng, alpha = np.random.default_rng(3), 0.05
    ways = list(itertools.combinations(range(7), 3))
    for _ in range(60):
        values, losses = rng.normal(size=(2, 7)), rng.exponential(rng.choice([0.1, 1.0, 5.0], (2, 1)), (2, 7))
        labelled = []
        for way in ways:
            lowered = values - losses * np.isin(np.arange(7), way)
            order = [index for index in range(7) if index not in way] + list(way)
            labelled.append(lowered[:, order])
        alarms = (step_down_p(np.array(labelled), 3).min(-1) <= alpha).sum()
        assert alarms <= alpha * len(ways)


def test_textbook_samples_have_their_textbook_estimate_and_limits():
    assert shift(EARLY, AT_TERM) == pytest.approx(0.305)
    assert step_down_p(np.concatenate([EARLY, AT_TERM])[None], 10) == pytest.approx(0.1272, abs=5e-5)
    low, high = shift_limits(EARLY, AT_TERM, 0.02)
    assert (float(low), float(high)) == pytest.approx((-0.15, 0.76), abs=0.011)


@pytest.mark.parametrize(("sizes", "largest"), AT_5_PERCENT.items())
def test_the_cut_offs_equal_the_printed_tables(sizes, largest):
    assert cut_off(*sizes, 0.05) - 1 == cut_off(*sizes[::-1], 0.05) - 1 == largest


def test_limits_enclose_the_shifts_that_the_test_does_not_reject():
    rng, nudge = np.random.default_rng(4), 1e-9
    first, second = rng.standard_t(3, (6, 8)), rng.standard_t(3, (6, 4))

    def p(one, other):
        return step_down_p(np.concatenate([one, other], axis=-1)[:, None], other.shape[-1])[:, 0]

    low, high = (limit[:, None] for limit in shift_limits(first, second, 0.05))
    assert (p(first, second - (low - nudge)) <= 0.05).all()
    assert (p(first, second - (low + nudge)) > 0.05).all()
    assert (p(-first, (high + nudge) - second) <= 0.05).all()
    assert (p(-first, (high - nudge) - second) > 0.05).all()


def test_too_few_values_have_infinite_limits():
    assert [float(limit) for limit in shift_limits(np.arange(3.0), np.arange(2.0), 0.05)] == [-np.inf, np.inf]
    assert cut_off(3, 2, 0.1) == 1


def test_many_arrangements_are_sampled_and_the_actual_one_counts():
    assert math.comb(30, 10) > stored_runs.MAXIMUM_ARRANGEMENTS
    sampled = arrangements(30, 10)
    assert sampled.shape == (stored_runs.SAMPLED_ARRANGEMENTS + 1, 30)
    assert (sampled.sum(-1) == 10).all()
    assert sampled[0].tolist() == [0.0] * 20 + [1.0] * 10
    assert sampled[1:].mean(0) == pytest.approx([1 / 3] * 30, abs=0.02)
    assert step_down_p(np.arange(30.0)[None], 10) == pytest.approx(1 / (stored_runs.SAMPLED_ARRANGEMENTS + 1))
    values = np.random.default_rng(5).normal(size=(20, 1, 30))
    expected = [mannwhitneyu(row[0, -10:], row[0, :-10], alternative="greater", method="exact").pvalue for row in values]
    assert step_down_p(values, 10)[:, 0] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(("values", "second"), [([1.0, float("nan")], 1), ([1.0, 2.0], 0), ([1.0, 2.0], 2)])
def test_invalid_samples_are_refused(values, second):
    with pytest.raises(ValueError, match="finite values in two samples"):
        step_down_p(np.array([values]), second)

"""The paired decision rule, and the smallest effect that it detects."""

import itertools
import math
import statistics

import numpy as np
import pytest

from perfkit.gate.paired import (
    EARLY_PART,
    MetricBounds,
    Rule,
    decide,
    fewest_pairs,
    holm,
    improvement_p,
    look,
    minimum_detectable_effect,
    rule_for,
)

BOUNDS = [*(MetricBounds.of_ratio(0.01, margin) for margin in (0.05, 0.05, 0.05, 0.10)), MetricBounds(0.001, 0.001, is_error_rate=True)]


def pairs(*shifts, count=12, spread=0.001):
    """Differences around the shifts, without ties; the error rate's are all equal, as of servers without errors."""
    wobble = spread * (np.arange(count) - (count - 1) / 2) / count
    return np.array([shift + wobble for shift in shifts[:-1]] + [np.full(count, shifts[-1])])


def test_holm_gives_the_textbook_example():
    # S. Holm's procedure on (.01, .04, .03, .005): .005 x 4, .01 x 3, .03 x 2, then no less than that
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([[0.9, 0.8], [0.3, 0.1]])).tolist() == [[1.0, 1.0], pytest.approx([0.3, 0.2])]
    assert holm(np.empty(0)).tolist() == []


@pytest.mark.parametrize("pairs_given", [None, 14, 18, 40])
@pytest.mark.parametrize("metrics", [0, 1, 4, 7, 16, 100])
def test_the_strongest_evidence_is_enough_at_every_look(metrics, pairs_given):
    rule = rule_for(metrics, pairs_given)
    for count in rule.looks:
        bounds = [*([BOUNDS[0]] * metrics), BOUNDS[-1]]
        slow, fine = [math.log(1.2)] * metrics, [0.0] * metrics
        if metrics:
            looked = look(rule, bounds, pairs(slow[0], *fine[1:], 0.0, count=count))
            assert looked.regressed.tolist() == [True, *([False] * metrics)]
        assert look(rule, bounds, pairs(*fine, 0.02, count=count)).regressed.tolist() == [*([False] * metrics), True]
        assert look(rule, bounds, pairs(*fine, 0.0, count=count)).passed.all()


@pytest.mark.parametrize(
    ("metrics", "pairs_given", "looks"),
    [(4, None, (12, 16, 20)), (4, 10, (10,)), (4, 15, (15,)), (4, 16, (12, 14, 16)), (4, 40, (24, 32, 40)), (100, None, (17, 19, 21))],
)
def test_a_gate_has_three_full_looks_unless_its_pairs_are_few_and_shares_its_errors_among_all(metrics, pairs_given, looks):
    rule = rule_for(metrics, pairs_given)
    assert rule.looks == looks
    assert rule.early == tuple(range(8 if metrics == 100 else 5 + (len(looks) == 1), looks[0]))
    assert rule.early_part == EARLY_PART * (1 if len(looks) == 3 else 1 / 4)
    assert sum(rule.time_alpha(count) + rule.error_rate_alpha(count) for count in rule.all_looks) == pytest.approx(0.01 - rule.early_part)
    assert sum(rule.pass_alpha(count) for count in rule.all_looks) == pytest.approx(0.05)


@pytest.mark.parametrize("metrics", range(1, 100))
def test_there_is_a_rule_for_the_fewest_pairs_and_none_for_fewer(metrics):
    fewest = fewest_pairs(metrics)
    assert rule_for(metrics, fewest).looks[-1] == fewest
    with pytest.raises(ValueError, match=f"need at least {fewest} pairs"):
        rule_for(metrics, fewest - 1)


@pytest.mark.parametrize(("metrics", "first"), [(1, 5), (4, 5), (5, 6), (16, 6), (17, 7), (64, 7)])
def test_two_equal_modes_of_every_metric_alarm_at_early_looks_within_their_part(metrics, first):
    """Two modes at a distance beyond the margin: a metric's differences are all alike with a probability of 4^-n, and those of more pairs only with those of fewer."""
    assert rule_for(metrics).early[0] == first
    assert 4**-first + (metrics - 1) * 4 ** -(first + 1) <= EARLY_PART


def test_an_early_look_tells_what_is_gross_and_alike_first_in_the_first_metric():
    rule, gross = rule_for(4), math.log(1.2)

    def regressed(*shifts, count=5, spread=0.02):
        return look(rule, BOUNDS, pairs(*shifts, count=count, spread=spread)).regressed.tolist()

    assert regressed(gross, gross, 0, 0, 0) == [True, False, False, False, False]
    assert regressed(gross, gross, 0, 0, 0, count=6) == [True, True, False, False, False]
    assert regressed(math.log(1.04), 0, 0, math.log(1.08), 0, count=6) == [False] * 5  # within the margins
    assert regressed(gross, gross, 0, 0, 0.5, count=8) == [True, True, False, False, False]  # the error rate has full looks alone
    assert regressed(gross, gross, 0, 0, 0, spread=0.15) == [False] * 5
    assert regressed(gross, gross, 0, 0, 0, spread=0.15, count=9) == [True, True, False, False, False]


def test_limits_of_an_early_look_are_beyond_the_margin_where_it_tells_a_regression():
    rule, differences = rule_for(4), pairs(math.log(1.2), 0, 0, 0, 0, count=5, spread=0.02)[0]
    low, high = rule.limits(differences, 5)
    assert BOUNDS[0].band < low < differences.min() < differences.max() < high
    assert rule.limit_alpha(5) == EARLY_PART
    assert rule.limits(differences[:4], 5)[1] == math.inf  # the others may be the generator's


def test_an_unchanged_candidate_passes_from_seven_pairs_on_where_the_margin_is_wide_beside_the_noise():
    rule = rule_for(4)
    assert [count for count in range(5, 21) if look(rule, BOUNDS, pairs(0, 0, 0, 0, 0, count=count)).passed.all()] == [7, 12, 16, 20]
    # all signs are equally likely at the margin, and a pass of seven pairs needs all of them
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=7)))
    at_margin = BOUNDS[0].margin + signs * np.arange(1, 8) / 1000
    assert look(rule, BOUNDS[:1], at_margin[:, None, :]).passed.mean() == 2**-7


def test_too_few_pairs_are_refused():
    with pytest.raises(ValueError, match="4 metrics need at least 10 pairs to show a regression, found 9"):
        rule_for(4, 9)


def test_a_gate_whose_time_is_over_has_what_is_left_of_the_errors_for_its_last_look():
    rule = rule_for(4)
    for pairs_measured, looks in ((11, (11,)), (12, (12,)), (14, (12, 14)), (19, (12, 16, 19))):
        ended = rule.ending_at(pairs_measured)
        assert ended.looks == looks
        assert ended.early == tuple(count for count in rule.early if count < pairs_measured)
        for level in ("time_alpha", "error_rate_alpha", "pass_alpha"):
            before, after = ([getattr(one, level)(count) for count in one.all_looks] for one in (rule, ended))
            assert sum(after) == pytest.approx(sum(before))
            assert after[:-1] == before[: len(after) - 1]


@pytest.mark.parametrize(
    ("shifts", "decision"),
    [
        ((0, 0, 0, 0, 0), "pass"),
        ((math.log(1.2), 0, 0, 0, 0), "regressed"),
        ((0, 0, 0, math.log(1.2), 0), "regressed"),
        ((-math.log(1.2), 0, 0, 0, 0), "pass"),
        ((0, 0, 0, 0, 0.01), "regressed"),
        ((0, math.log(1.02), 0, 0, 0), "regressed"),  # beyond the band, though within the margin
    ],
)
def test_a_look_decides_plain_cases(shifts, decision):
    assert decide(look(rule_for(4), BOUNDS, pairs(*shifts))) == decision


def test_a_look_at_noise_decides_nothing():
    noisy = np.random.default_rng(3).normal(0, 0.3, (5, 12))
    assert decide(look(rule_for(4), BOUNDS, noisy)) is None


def test_an_adjusted_p_below_the_false_alarm_rate_is_a_regression_and_nothing_else():
    differences = np.random.default_rng(6).normal(0.02, 0.02, (400, 5, 12))
    rule = rule_for(4)
    looked = look(rule, BOUNDS, differences)
    assert ((looked.adjusted_p <= 0.01) == looked.regressed).all()
    assert 0 < looked.regressed.mean() < 1
    assert looked.adjusted_p.max() <= 1


TIME, ERRORS = MetricBounds.of_ratio(0.01, 0.05), MetricBounds(0.001, 0.001, is_error_rate=True)


def detection_rate(rule, bounds, shift, scale):
    """The share of gates that detect a shift of the first metric in normal noise, at any look."""
    noise = np.random.default_rng(9).normal(0, scale, (3000, len(bounds), rule.looks[-1]))
    noise[:, 0] += shift
    return np.mean(np.any([look(rule, bounds, noise[..., :count]).regressed[:, 0] for count in rule.looks], axis=0))


def effect_beyond_the_band(rule, bounds, differences):
    effect = minimum_detectable_effect(rule, bounds, 0, differences)
    assert effect is not None
    return effect - bounds[0].band


@pytest.mark.parametrize("metrics", [1, 4])
def test_nine_of_ten_gates_detect_the_effect_if_many_pairs_show_the_noise(metrics):
    rule, bounds = Rule.at(12, 16, 20), [TIME] * metrics
    normal = statistics.NormalDist(0.3, 0.05)  # the mean does not matter
    seen = [normal.inv_cdf((number + 0.5) / 1000) for number in range(1000)]
    shift = minimum_detectable_effect(rule, bounds, 0, seen)
    assert detection_rate(rule, bounds, shift, 0.05) == pytest.approx(0.9, abs=0.025)


def test_the_detectable_effect_grows_with_the_noise_from_the_band_on():
    rule, bounds = rule_for(1), [TIME]
    wobble = np.random.default_rng(2).normal(0, 1, 20)
    beyond = [effect_beyond_the_band(rule, bounds, (0.2 + scale * wobble).tolist()) for scale in (0.0, 0.01, 0.02)]
    assert beyond[0] == pytest.approx(0.0, abs=1e-12)
    assert beyond[2] == pytest.approx(2 * beyond[1])


def test_too_few_pairs_detect_no_effect():
    assert minimum_detectable_effect(rule_for(1), [TIME], 0, [0.0, 0.1]) is None
    assert minimum_detectable_effect(Rule.at(5), [TIME], 0, [0.0, 0.1] * 6) is None
    assert minimum_detectable_effect(Rule.at(10), [TIME, ERRORS], 1, [0.0] * 10) == 0.001


def test_an_improvement_is_tested_like_a_regression_of_the_other_sign():
    rule = rule_for(4)
    faster = pairs(-math.log(1.2), -math.log(1.005), 0.0, math.log(1.2), -0.01)
    adjusted = improvement_p(rule, BOUNDS, faster)
    assert (adjusted <= rule.false_alarm_rate).tolist() == [True, False, False, False, True]
    assert adjusted.tolist() == look(rule, BOUNDS, -faster).adjusted_p.tolist()


def test_a_metric_that_is_better_by_the_noise_band_is_called_improved_in_at_most_one_of_a_hundred_gates():
    rule, band = Rule.at(10), BOUNDS[0].band
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=10)))  # all equally likely, since the order within a pair is random
    differences = -band + signs * np.arange(1, 11) / 100
    called = (improvement_p(rule, BOUNDS[:1], differences[:, None, :]) <= rule.false_alarm_rate).mean()
    assert 0 < called <= 0.009  # the rest of the 1 % is the error rate's

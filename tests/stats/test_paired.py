import math

import numpy as np
import pytest

from perfkit.stats.paired import Bounds, decide, holm, look, rule_for

BOUNDS = [*(Bounds.of_ratio(0.01, margin) for margin in (0.05, 0.05, 0.05, 0.10)), Bounds(0.001, 0.001, is_error_rate=True)]


def pairs(*shifts, count=12, spread=0.001):
    """Differences around the shifts, without ties; the errors' are all alike, as those of servers without errors are."""
    wobble = spread * (np.arange(count) - (count - 1) / 2) / count
    return np.array([shift + wobble for shift in shifts[:-1]] + [np.full(count, shifts[-1])])


def test_holm_is_its_textbook_example():
    # S. Holm's procedure on (.01, .04, .03, .005): .005 x 4, .01 x 3, .03 x 2, then no less than that
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([[0.9, 0.8], [0.3, 0.1]])).tolist() == [[1.0, 1.0], pytest.approx([0.3, 0.2])]
    assert holm(np.empty(0)).tolist() == []


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("metrics", [0, 1, 4, 7, 16, 100])
def test_at_every_look_the_strongest_evidence_is_enough(metrics, quick):
    rule = rule_for(metrics, quick=quick)
    for count in rule.looks:
        bounds = [*([BOUNDS[0]] * metrics), BOUNDS[-1]]
        slow, fine = [math.log(1.2)] * metrics, [0.0] * metrics
        if metrics:
            looked = look(rule, bounds, pairs(slow[0], *fine[1:], 0.0, count=count))
            assert looked.regressed.tolist() == [True, *([False] * metrics)]
        assert look(rule, bounds, pairs(*fine, 0.02, count=count)).regressed.tolist() == [*([False] * metrics), True]
        assert look(rule, bounds, pairs(*fine, 0.0, count=count)).passed.all()


def test_the_standard_gate_looks_at_12_16_and_20_pairs_and_a_quick_one_at_10():
    assert rule_for(4).looks == (12, 16, 20)
    assert rule_for(4, quick=True).looks == (10,)
    assert rule_for(16).looks == (13, 17, 21)


def test_all_parts_of_the_false_alarms_together_are_one_per_cent():
    rule = rule_for(4)
    assert len(rule.looks) * (rule.times_rate + rule.errors_rate) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("shifts", "decision"),
    [
        ((0, 0, 0, 0, 0), "pass"),
        ((math.log(1.2), 0, 0, 0, 0), "regressed"),
        ((0, 0, 0, math.log(1.2), 0), "regressed"),
        ((-math.log(1.2), 0, 0, 0, 0), "pass"),
        ((0, 0, 0, 0, 0.01), "regressed"),
        ((0, math.log(1.02), 0, 0, 0), "regressed"),  # surely beyond the band, though within the margin
    ],
)
def test_a_look_settles_what_is_plain(shifts, decision):
    assert decide(look(rule_for(4), BOUNDS, pairs(*shifts))) == decision


def test_a_look_at_noise_settles_nothing():
    noisy = np.random.default_rng(3).normal(0, 0.3, (5, 12))
    assert decide(look(rule_for(4), BOUNDS, noisy)) is None


def test_an_adjusted_p_below_the_false_alarm_rate_is_a_regression_and_nothing_else():
    differences = np.random.default_rng(6).normal(0.02, 0.02, (400, 5, 12))
    rule = rule_for(4)
    looked = look(rule, BOUNDS, differences)
    assert ((looked.adjusted_p <= 0.01) == looked.regressed).all()
    assert 0 < looked.regressed.mean() < 1
    assert looked.adjusted_p.max() <= 1

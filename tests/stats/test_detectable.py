import statistics

import numpy as np
import pytest

from perfkit.stats.detectable import minimum_detectable_difference
from perfkit.stats.paired import Bounds, Rule, look, rule_for

TIME, ERRORS = Bounds.of_ratio(0.01, 0.05), Bounds(0.001, 0.001, is_error_rate=True)


def found(rule, bounds, shift, scale):
    """The share of gates that find a shift of the first metric in normal noise, at any look."""
    noise = np.random.default_rng(9).normal(0, scale, (3000, len(bounds), rule.looks[-1]))
    noise[:, 0] += shift
    return np.mean(np.any([look(rule, bounds, noise[..., :count]).regressed[:, 0] for count in rule.looks], axis=0))


def found_beyond(rule, bounds, differences):
    """What is found of the first metric, beyond its band."""
    effect = minimum_detectable_difference(rule, bounds, 0, differences)
    assert effect is not None
    return effect - bounds[0].band


@pytest.mark.parametrize("metrics", [1, 4])
def test_nine_of_ten_gates_find_it_where_many_pairs_show_the_noise(metrics):
    rule, bounds = Rule(looks=(12, 16, 20)), [TIME] * metrics
    normal = statistics.NormalDist(0.3, 0.05)  # where they lie does not matter
    seen = [normal.inv_cdf((number + 0.5) / 1000) for number in range(1000)]
    shift = minimum_detectable_difference(rule, bounds, 0, seen)
    assert found(rule, bounds, shift, 0.05) == pytest.approx(0.9, abs=0.025)


def test_it_grows_with_the_noise_and_begins_at_the_band():
    rule, bounds = rule_for(1), [TIME]
    wobble = np.random.default_rng(2).normal(0, 1, 20)
    beyond = [found_beyond(rule, bounds, (0.2 + scale * wobble).tolist()) for scale in (0.0, 0.01, 0.02)]
    assert beyond[0] == pytest.approx(0.0, abs=1e-12)
    assert beyond[2] == pytest.approx(2 * beyond[1])


def test_too_few_pairs_find_nothing_however_large():
    assert minimum_detectable_difference(rule_for(1), [TIME], 0, [0.0, 0.1]) is None
    assert minimum_detectable_difference(Rule(looks=(5,)), [TIME], 0, [0.0, 0.1] * 6) is None
    assert minimum_detectable_difference(Rule(looks=(10,)), [TIME, ERRORS], 1, [0.0] * 10) == 0.001

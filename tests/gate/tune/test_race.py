"""The race of configurations, on simulated windows whose truth is known; seeds are fixed."""

import math

import pytest
import scipy.stats

from benchmarks.simulated_tunes import Noise, simulate
from perfkit.gate.tune.race import ratio_of_pairs, stand

FACTORIAL = [0.1 * a + 0.05 * b - 0.04 * a * b for a in range(4) for b in range(4)]
"""Two keys of four values with an interaction; the best is (3, 0), at 0.3."""
CASES = {
    "normal noise": (FACTORIAL, [0.02] * 16, 0.0),
    "with drift": (FACTORIAL, [0.02] * 16, 0.1),
    "noise that differs": (FACTORIAL, [0.01 + 0.002 * index for index in range(16)], 0.05),
    "all alike": ([0.0] * 6, [0.02] * 6, 0.0),
    "one noisy": ([0.0, 0.05, 0.0, 0.0], [0.01, 0.01, 0.06, 0.01], 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_best_configuration_or_one_within_3_per_cent_is_found_and_the_bound_holds(name):
    truth, noise, drift = CASES[name]
    races = [simulate(truth, Noise(noise, drift), seed, 0.03) for seed in range(20)]
    assert sum(one.loss <= 0.03 for one in races) >= 19
    assert sum(one.loss <= one.bound + 1e-9 for one in races) >= 19


def test_64_candidates_of_which_60_are_clearly_worse_take_a_quarter_of_measuring_all_as_long_as_the_winner():
    truth = [0.0, -0.01, -0.02, -0.03, *[-0.25] * 60]
    races = [simulate(truth, Noise([0.02] * 64, drift=0.05), seed, 0.03) for seed in range(5)]
    assert sum(one.windows for one in races) <= 64 * sum(one.rounds for one in races) / 4
    assert max(one.loss for one in races) <= 0.03


def test_the_best_is_dropped_in_no_more_races_than_stated():
    races = [simulate([0.0] * 5, Noise([0.03] * 5), seed, 0.05) for seed in range(200)]
    dropped_all_but_one = sum(len(one.standing.bounds) < 5 for one in races)
    assert dropped_all_but_one <= 0.05 * len(races), "all are the best: each that is dropped is an error, of one of five"


def test_the_interval_of_the_confirmation_holds_the_ratio_though_it_is_looked_at_until_it_is_narrow():
    races = [simulate([0.0, 0.3], Noise([0.03, 0.03]), seed, 0.03) for seed in range(400)]
    assert {one.pairs for one in races} <= {5, 8, 12, 18, 27, 40}
    assert sum(one.covers for one in races) >= 0.975 * len(races)


def test_drift_of_the_machine_is_no_difference_between_configurations():
    rates = {number: 100.0 * 2**number for number in range(1, 9)}
    wobble = {number: 1.001 if number % 2 else 0.999 for number in rates}
    windows = {0: rates, 1: {number: 1.2 * rate * wobble[number] for number, rate in rates.items()}}
    standing = stand(windows, [0, 1], 2)
    assert standing.leader == 1
    assert standing.worse == {0: 1}
    assert standing.bounds == {1: 1.0}


def test_nothing_is_said_after_one_common_round():
    standing = stand({0: {1: 100.0}, 1: {1: 50.0}}, [0, 1], 2)
    assert standing.worse == {}
    assert standing.bounds == {0: math.inf, 1: math.inf}


def test_a_configuration_alone_is_the_best():
    standing = stand({0: {1: 100.0, 2: 99.0}}, [0], 1)
    assert (standing.leader, standing.bounds) == (0, {0: 1.0})


def test_the_ratio_of_pairs_is_students_t_of_the_logarithms():
    ratio = ratio_of_pairs([(110.0, 100.0), (121.0, 100.0), (110.0, 110.0), (133.1, 110.0), (100.0, 100.0)])
    # logs in units of ln 1.1: 1, 2, 0, 2, 0: mean 1, standard deviation 1; t of 4 degrees of freedom at 1 - 0.025 / 6 / 2
    reach = scipy.stats.t.ppf(1 - 0.025 / 12, 4) * math.log(1.1) / math.sqrt(5)
    assert ratio is not None
    assert ratio.estimate == pytest.approx(1.1)
    assert ratio.low == pytest.approx(1.1 * math.exp(-reach), rel=1e-6)
    assert ratio.high == pytest.approx(1.1 * math.exp(reach), rel=1e-6)
    assert ratio_of_pairs([(1.0, 1.0)] * 4) is None


def test_pairs_after_a_look_wait_for_the_next_one():
    pairs = [(110.0 + number, 100.0) for number in range(8)]
    assert ratio_of_pairs(pairs[:7]) == ratio_of_pairs(pairs[:5])
    last = ratio_of_pairs(pairs)
    assert last is not None
    assert last.pairs == 8

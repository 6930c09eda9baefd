"""The race of configurations, on simulated windows whose truth is known; seeds are fixed."""

import math

import numpy as np
import pytest
import scipy.stats

from benchmarks.simulated_spaces import separable
from benchmarks.simulated_tunes import Noise, simulate
from perfkit.gate.tune.race import is_confirmed, ratio_of_pairs, ratios_to, stand

FACTORIAL = [0.1 * a + 0.05 * b - 0.04 * a * b for a in range(4) for b in range(4)]
"""Two keys of four values with an interaction; the best is (3, 0), at 0.3."""
CASES = {
    "normal noise": (FACTORIAL, [0.02] * 16, 0.0),
    "with drift": (FACTORIAL, [0.02] * 16, 0.1),
    "noise that differs": (FACTORIAL, [0.01 + 0.002 * index for index in range(16)], 0.05),
    "one noisy": ([0.0, 0.05, 0.0, 0.0], [0.01, 0.01, 0.06, 0.01], 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_best_configuration_or_one_within_3_per_cent_is_found_and_the_bound_holds(name):
    truth, noise, drift = CASES[name]
    races = [simulate(truth, Noise(noise, drift), seed, 0.03) for seed in range(20)]
    assert sum(one.loss <= 0.03 for one in races) >= 19
    assert sum(one.loss <= one.bound + 1e-9 for one in races) >= 19


def test_of_configurations_that_are_alike_the_present_one_is_kept():
    races = [simulate([0.0] * 6, Noise([0.01] * 6), seed, 0.03) for seed in range(20)]
    assert [one.answer for one in races] == ["kept"] * 20
    assert max(one.bound for one in races) <= 0.03
    assert max(one.windows for one in races) <= 6 * 20


def test_64_candidates_of_which_60_are_clearly_worse_take_a_quarter_of_measuring_all_as_long_as_the_winner():
    truth = [0.0, -0.01, -0.02, -0.03, *[-0.25] * 60]
    races = [simulate(truth, Noise([0.02] * 64, drift=0.05), seed, 0.03) for seed in range(5)]
    assert sum(one.windows for one in races) <= 64 * sum(one.rounds for one in races) / 4
    assert max(one.loss for one in races) <= 0.03


def test_the_best_is_dropped_in_no_more_races_than_stated():
    races = [simulate([0.0] * 5, Noise([0.03] * 5), seed, 0.05) for seed in range(60)]
    dropped_all_but_one = sum(one.standing is not None and len(one.standing.bounds) < 5 for one in races)
    assert dropped_all_but_one <= 0.05 * len(races), "all are the best: each that is dropped is an error, of one of five"


def test_the_interval_of_the_confirmation_holds_the_ratio_though_it_is_looked_at_until_it_is_narrow():
    races = [simulate([0.0, 0.3], Noise([0.03, 0.03]), seed, 0.03) for seed in range(200)]
    assert {one.pairs for one in races} <= {5, 8, 12, 18, 27, 40, 60, 90, 135, 202}
    assert sum(one.covers is True for one in races) >= 0.975 * len(races)


def test_drift_of_the_machine_is_no_difference_between_configurations():
    rates = {number: 100.0 * 2**number for number in range(1, 9)}
    wobble = {number: 1.001 if number % 2 else 0.999 for number in rates}
    windows = {0: rates, 1: {number: 1.2 * rate * wobble[number] for number, rate in rates.items()}}
    standing = stand(windows, [0, 1], 2, 8)
    assert standing.leader == 1
    assert standing.worse == {0: 1}
    assert standing.bounds == {1: 1.0}


def test_nothing_is_said_where_each_configuration_has_one_window():
    standing = stand({0: {1: 100.0}, 1: {1: 50.0}}, [0, 1], 2, 2)
    assert standing.worse == {}
    assert standing.bounds == {0: math.inf, 1: math.inf}


@pytest.mark.parametrize(("rate", "rounds", "is_dropped"), [(80.0, 1, True), (90.0, 1, False), (90.0, 2, False), (90.0, 3, True)])
def test_a_small_difference_drops_a_configuration_after_three_common_rounds_and_a_large_one_after_one(rate, rounds, is_dropped):
    wobble = {number: 1.001 if number % 2 else 0.999 for number in range(1, 9)}
    alike = {one: {number: 100.0 * wobble[number] ** one for number in wobble} for one in (-1, 0, 1)}
    standing = stand({**alike, 2: dict.fromkeys(range(1, rounds + 1), rate)}, [-1, 0, 1, 2], 4, 8)
    assert (2 in standing.worse) == is_dropped
    assert standing.bounds[0] < 1.01, "the others are known better"


def test_the_noisiest_one_is_hardly_dropped_though_it_is_the_best():
    def is_dropped(seed):
        draw = np.random.default_rng(seed)
        windows: dict[int, dict[int, float]] = {one: {} for one in range(8)}
        for number in range(1, 6):
            for one, rounds in windows.items():
                rounds[number] = math.exp(draw.normal(0.0 if one else 0.01, 0.01 if one else 0.06))
            if number > 1 and 0 in stand(windows, range(8), 8, number).worse:
                return True
        return False

    assert sum(map(is_dropped, range(200))) <= 0.05 * 200


def test_a_configuration_alone_is_the_best():
    standing = stand({0: {1: 100.0, 2: 99.0}}, [0], 1, 2)
    assert (standing.leader, standing.bounds) == (0, {0: 1.0})


def test_the_ratio_of_pairs_is_students_t_of_the_logarithms():
    ratio = ratio_of_pairs([(110.0, 100.0), (121.0, 100.0), (110.0, 110.0), (133.1, 110.0), (100.0, 100.0)])
    # logs in units of ln 1.1: 1, 2, 0, 2, 0: mean 1, standard deviation 1; t of 4 degrees of freedom with half of the error at the first look
    reach = scipy.stats.t.ppf(1 - 0.025 / 4, 4) * math.log(1.1) / math.sqrt(5)
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


def test_more_pairs_decide_at_last_what_40_leave_open():
    noisy = [(100.0 * math.exp(0.05 + 0.2 * (-1) ** number), 100.0) for number in range(2000)]
    ratios = [ratio_of_pairs(noisy[:count]) for count in (40, 60, 90, 2000)]
    assert [ratio and ratio.pairs for ratio in ratios] == [40, 60, 90, 1533]
    assert [is_confirmed(ratio, 1.0, 0.03) for ratio in ratios] == [False, False, False, True]
    last = ratios[-1]
    assert last is not None
    # the 15th look: the share 1 / (15 × 16) of the error; the logarithms have the standard deviation 0.2
    assert last.half_width == pytest.approx(math.exp(scipy.stats.t.ppf(1 - 0.025 / 480, 1532) * 0.2 / math.sqrt(1533)) - 1, rel=1e-3)


def test_a_space_of_hundreds_is_searched_by_moves():
    space = separable(1)
    races = [simulate(space.truth, Noise(0.02, drift=0.05), seed, 0.03, space.values) for seed in range(3)]
    assert len(space.values) == 625
    assert max(race.measured for race in races) <= 64
    assert max(race.loss for race in races) <= 0.03
    assert max(race.measured_loss - race.bound for race in races) <= 0


def test_the_interval_of_a_ratio_in_the_race_is_95_per_cent():
    draw = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        levels = draw.normal(0, 0.3, 6)
        windows = {
            one: {number: math.exp(0.2 * one + level + draw.normal(0, 0.05)) for number, level in enumerate(levels, 1)} for one in range(3)
        }
        ratio = ratios_to(0, windows)[2]
        held += ratio.low <= math.exp(0.4) <= ratio.high
    assert 0.92 * 400 <= held <= 0.98 * 400


def test_bounds_that_are_too_large_for_a_float_are_infinite():
    windows = {0: {1: 100.0, 2: 1.0}, 1: {1: 1.0, 2: 100.0}, 2: {1: 50.0}}
    standing = stand(windows, windows, 64, 2)
    assert standing.worse == {}
    assert standing.bounds == dict.fromkeys(windows, math.inf)
    pairs = [(1.0, 10.0**300), (10.0**300, 1.0)] * 3
    ratio = ratio_of_pairs(pairs)
    assert ratio is not None
    assert (ratio.low, ratio.high, ratio.half_width) == (0.0, math.inf, math.inf)


def test_ratios_come_from_the_rounds_that_both_have():
    windows = {0: {1: 100.0, 2: 100.0, 3: 101.0}, 1: {1: 200.0, 2: 202.0}, 2: {3: 300.0, 4: 300.0}, 3: {4: 1.0}}
    found = ratios_to(0, windows)
    assert found.keys() == {1, 2}, "that without a common round has none"
    assert found[1].estimate == pytest.approx(math.sqrt(2 * 2.02))
    assert (found[1].pairs, found[2].pairs) == (2, 1)
    assert found[2].estimate == pytest.approx(300 / 101)
    assert found[2].half_width > found[1].half_width

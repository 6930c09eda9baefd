import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.gate_simulation import Case, Noise, simulate_pairs
from perfkit.bisection.search import ALPHA, GATE_ERROR_RATE, LOOKS, MOST_UNDECIDED, Outcome, Search, Size, decide, most_precise


def searched(bad, first, *, lost=(), as_what: Outcome = "skipped", bad_is_shown=True):
    """A search whose every gate is right, except that some revisions cannot be decided; the first slower one is `first`."""
    search = Search(bad, {}, bad_is_shown)
    while (position := search.next_position) is not None:
        outcome: Outcome = as_what if position in lost else "slower" if position >= first else "not_slower"
        assert position not in search.outcomes
        search = Search(bad, {**search.outcomes, position: outcome}, bad_is_shown)
    return search


@pytest.mark.parametrize("bad", range(1, 70))
def test_every_first_slower_revision_is_found_with_the_fewest_gates(bad):
    for first in range(1, bad + 1):
        search = searched(bad, first)
        assert search.found == first
        assert len(search.outcomes) <= math.ceil(math.log2(bad)) == Search(bad).most_gates_left


def test_a_regression_among_32_revisions_takes_five_gates_after_the_first():
    assert {len(searched(32, first).outcomes) for first in range(1, 33)} == {5}


@pytest.mark.parametrize("bad", range(1, 9))
def test_revisions_that_cannot_be_measured_leave_only_themselves_and_the_next_in_doubt(bad):
    for first in range(1, bad + 1):
        for lost in itertools.chain.from_iterable(itertools.combinations(range(1, bad), count) for count in range(bad)):
            search = searched(bad, first, lost=lost)
            assert first in search.suspects
            assert set(search.suspects) - {search.first_bad} <= set(lost)
            assert search.found == (first if len(search.suspects) == 1 else None)


def test_the_neighbour_of_a_skipped_revision_is_next():
    assert Search(32).next_position == 16
    assert Search(32, {16: "skipped"}).next_position == 15
    assert Search(32, {16: "skipped", 15: "undecided"}).next_position == 17
    assert Search(32, {16: "slower"}).next_position == 8
    assert Search(32, {16: "not_slower"}).next_position == 24


def test_a_search_ends_after_three_undecided_revisions():
    search = searched(32, 20, lost=range(40), as_what="undecided")
    assert len(search.outcomes) == MOST_UNDECIDED == 3
    assert search.found is None
    assert list(search.suspects) == list(range(1, 33))


def test_a_bad_revision_that_the_first_gate_does_not_show_to_be_slower_is_measured_if_the_search_ends_there():
    for first in range(1, 33):
        search = searched(32, first, bad_is_shown=False)
        assert search.found == first
        assert (32 in search.outcomes) is (first == 32)
    assert searched(32, 33, bad_is_shown=False).found is None
    assert searched(32, 33, bad_is_shown=False).suspects == range(33, 33)
    assert searched(32, 33).found == 32  # which is shown to be slower
    undecided = searched(2, 2, lost=[2], as_what="undecided", bad_is_shown=False)
    assert (undecided.found, list(undecided.suspects)) == (None, [2])


MOST = LOOKS[-1]


def decided(differences, threshold, most=MOST):
    """The decision at the first look that has one, and its number of pairs."""
    for count in range(1, len(differences) + 1):
        if (outcome := decide(differences[:count], threshold, most)) is not None:
            return outcome, count
    return None


def test_each_side_is_decided_at_the_first_look_if_every_pair_is_on_it():
    pairs = [0.1 + 0.001 * number for number in range(MOST)]
    assert decided(pairs, 0.05) == ("slower", LOOKS[0])
    assert decided([-value for value in pairs], 0.05) == ("not_slower", LOOKS[0])
    assert decided([0.0] * MOST, 0.05) == ("not_slower", LOOKS[0])
    assert 2.0 ** -LOOKS[0] <= ALPHA < 2.0 ** -(LOOKS[0] - 1)  # by one pair less it could not be
    assert len(LOOKS) * ALPHA == pytest.approx(GATE_ERROR_RATE) == 0.01


def test_pairs_on_both_sides_stay_undecided_to_the_last_one():
    pairs = [0.05 + sign * 0.01 * (1 + number) for number in range(MOST // 2) for sign in (1, -1)]
    assert decided(pairs, 0.05) == ("undecided", MOST)
    assert decided(pairs, 0.05, most=20) == ("undecided", 20)
    assert decided(pairs[:15], 0.05) is None


def test_the_most_pairs_are_the_last_look():
    pairs = [0.048, 0.049, *(0.1 + 0.001 * number for number in range(58))]  # two on the other side, by the least: p is 5 of 2^n
    assert decided(pairs, 0.05, most=12) == ("slower", 12)
    assert decided(pairs, 0.05, most=11) == ("undecided", 11)  # 5 of 2,048 is more than a sixth of 1 %
    assert decided(pairs, 0.05) == ("slower", 13)  # 12 pairs are no look of a gate that may go on


@pytest.mark.parametrize("noise", [Noise(), Noise(contaminated=0.15, drift=0.06), Noise(position=math.log(1.03))])
def test_a_revision_at_the_threshold_is_put_on_either_side_in_at_most_one_gate_of_a_hundred(noise):
    gates, threshold = 400, math.log(1.05)
    differences = simulate_pairs(np.random.default_rng(5), gates, MOST, Case("", (1.05,) * 4, noise))[:, 0]
    outcomes = [decided(list(one), threshold) for one in differences]
    most = int(binom.ppf(0.9999, gates, GATE_ERROR_RATE))  # more often only in one of 10,000 sets of such gates
    for side in ("slower", "not_slower"):
        assert sum(outcome is not None and outcome[0] == side for outcome in outcomes) <= most


def test_the_threshold_is_half_of_the_change_and_the_bad_revision_may_be_shown_to_be_beyond():
    precise = Size.of([0.1 + 0.001 * number for number in range(-6, 7)], 0.001)
    assert precise.threshold == pytest.approx(0.05)
    assert precise.is_shown
    vague = Size.of([0.1 + 0.02 * number for number in range(-6, 7)], 0.001)
    assert vague.estimate == pytest.approx(0.1)
    assert not vague.is_shown
    assert not Size.of([0.1] * 5, 0.001).is_shown  # too few for any limit


def test_the_metric_that_decides_is_the_one_whose_change_is_largest_beside_its_noise():
    small_and_precise, large_and_vague = Size(0.05, 0.005, 0.04), Size(0.2, 0.1, 0.05)
    assert most_precise([large_and_vague, small_and_precise]) == 1
    assert most_precise([Size(0.1, 0.0, 0.1), small_and_precise]) == 0
    assert most_precise([Size(-0.1, 0.01, -0.2)]) is None
    assert most_precise([]) is None

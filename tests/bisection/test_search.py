import itertools
import math

import pytest

from perfkit.bisection.search import MOST_UNDECIDED, Outcome, Search


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

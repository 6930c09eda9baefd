"""The order in which the configurations of a large space join the race."""

import itertools

import pytest

from perfkit.gate.tune.moves import MOST_MEASURED, SearchSpace

COUNTS, DELAYS, KINDS = ("1", "2", "4", "8", "16"), ("0", "100", "500", "2000"), ("a", "b", "c", "d")


def grid(keys, present=0):
    """All combinations of the values of some keys, with the present one first."""
    found = [dict(zip(keys, one, strict=True)) for one in itertools.product(*keys.values())]
    found.insert(0, found.pop(present))
    return found


VALUES = grid({"count": COUNTS, "delay": DELAYS, "kind": KINDS})
SPACE = SearchSpace(VALUES)


def number_of(**values):
    return VALUES.index(values)


def titles(numbers):
    return {tuple(VALUES[number].values()) for number in numbers}


def test_a_space_of_64_is_measured_as_a_whole_and_a_larger_one_from_a_star():
    whole = SearchSpace(grid({"count": COUNTS[:4], "delay": DELAYS, "kind": KINDS}))
    assert (len(whole), whole.first(), whole.most) == (64, tuple(range(64)), 64)
    assert whole.first(at_once=63) == (0, *whole.star), "without the time for all"
    assert len(SPACE) == 80
    others = [
        *((count, "0", "a") for count in COUNTS[1:]),
        *(("1", delay, "a") for delay in DELAYS[1:]),
        *(("1", "0", kind) for kind in KINDS[1:]),
    ]
    assert titles(SPACE.first()) == {("1", "0", "a"), *others}
    assert SPACE.first()[0] == 0
    assert {VALUES[number]["count"] for number, key in SPACE.star.items() if key == "count"} == set(COUNTS[1:])


def test_numbers_move_to_the_next_value_and_words_to_any():
    found = titles(SPACE.neighbours(number_of(count="4", delay="500", kind="b")))
    assert found == {
        ("2", "500", "b"), ("8", "500", "b"), ("4", "100", "b"), ("4", "2000", "b"), ("4", "500", "a"), ("4", "500", "c"), ("4", "500", "d"),
    }  # fmt: skip


def test_a_key_that_has_a_value_only_with_another_one_comes_with_it():
    batched = [{"batching": "on", "batching.delay": delay, "count": count} for delay in DELAYS for count in COUNTS]
    space = SearchSpace([{"batching": "off", "count": "1"}, *({"batching": "off", "count": count} for count in COUNTS[1:]), *batched])
    assert {space.values(one).get("batching.delay") for one in space.neighbours(0) if space.values(one)["batching"] == "on"} == set(DELAYS)
    on = next(number for number in range(len(space)) if space.values(number) == {"batching": "on", "batching.delay": "100", "count": "4"})
    assert {tuple(space.values(one).values()) for one in space.neighbours(on)} == {
        ("off", "4"), ("on", "0", "4"), ("on", "500", "4"), ("on", "100", "2"), ("on", "100", "8"),
    }  # fmt: skip


def test_the_neighbours_of_the_leader_join_and_first_the_best_by_forecast():
    worth = {
        "1": 0.0,
        "2": 0.1,
        "4": 0.2,
        "8": 0.3,
        "16": 0.2,
        "0": 0.0,
        "100": 0.1,
        "500": 0.2,
        "2000": 0.1,
        "a": 0.0,
        "b": 0.0,
        "c": 0.25,
        "d": 0.0,
    }
    levels = {number: sum(worth[value] for value in VALUES[number].values()) for number in SPACE.first()}
    leader = number_of(count="8", delay="0", kind="a")
    assert max(levels, key=lambda number: levels[number]) == leader
    joining = SPACE.joining(leader, levels, SPACE.first())
    assert ("8", "500", "c") in titles(joining[:4])
    assert {("8", "100", "a"), ("8", "0", "b"), ("8", "0", "c"), ("8", "0", "d")} <= titles(joining)
    assert len(joining) <= 4 + 4


def test_none_joins_once_no_neighbour_is_left_and_none_may_be_better():
    separable = {number: -0.2 * COUNTS.index(one["count"]) - 0.3 * KINDS.index(one["kind"]) for number, one in enumerate(VALUES)}
    levels = {number: separable[number] for number in sorted(separable, key=lambda number: -separable[number])[:60]}
    assert SPACE.joining(0, levels, list(levels)) == ()


def test_no_more_join_than_are_measured_in_all():
    opened = list(SPACE.first())
    while joining := SPACE.joining(opened[-1], dict.fromkeys(SPACE.first(), 0.0), opened):
        assert not set(joining) & set(opened)
        opened += joining
    assert len(opened) <= MOST_MEASURED
    assert SPACE.joining(0, {0: 0.0}, range(MOST_MEASURED)) == ()
    leader = number_of(count="4", delay="500", kind="b")
    assert len(SPACE.joining(leader, {0: 0.0}, range(MOST_MEASURED - 1))) <= 1


@pytest.mark.parametrize("count", [2, 64])
def test_nothing_joins_a_space_that_is_measured_as_a_whole(count):
    space = SearchSpace([{"count": str(number)} for number in range(count)])
    assert space.joining(0, dict.fromkeys(range(count), 0.0), range(count)) == ()


def test_without_the_time_for_all_a_space_in_which_a_key_cannot_vary_alone_is_measured_as_a_whole():
    space = SearchSpace([{"batching": "off", "count": "1"}, *({"batching": "on", "count": count} for count in COUNTS[1:])])
    assert space.first(at_once=1) == tuple(range(len(space)))


def test_a_large_space_in_which_a_key_cannot_vary_alone_begins_with_the_nearest_that_vary_it():
    others = [{"batching": "on", "count": str(count), "kind": kind} for count in range(2, 22) for kind in KINDS]
    space = SearchSpace([{"batching": "off", "count": "1", "kind": "a"}, {"batching": "off", "count": "1", "kind": "b"}, *others])
    assert [tuple(space.values(number).values()) for number in space.first()] == [
        ("off", "1", "a"), ("off", "1", "b"), *(("on", str(count), "a") for count in range(2, 22)),
    ]  # fmt: skip

"""The loads that perf_analyzer measures, and when its windows agree; the rules are those of its inference_profiler.h."""

import pytest

from perfkit.perf_analyzer.options import LoadRange, Options
from perfkit.perf_analyzer.sweep import are_stable, loads, windows_to_begin_with


def measured(options, passes):
    """The loads that are measured while `passes` says which ones are stable and below the threshold."""
    sweep, values = loads(options), []
    try:
        value = next(sweep)
        while True:
            values.append(value)
            value = sweep.send(passes(value))
    except StopIteration:
        return values


def concurrency(*numbers, **options):
    return Options("m", load_range=LoadRange(*numbers), **options)


def rates(*numbers, **options):
    return Options("m", load_mode="request_rate", load_range=LoadRange(*numbers), **options)


@pytest.mark.parametrize(
    ("options", "last_passing", "expected"),
    [
        (concurrency(1, 1, 1), 99, [1]),
        (concurrency(1, 4, 1), 99, [1, 2, 3, 4]),
        (concurrency(2, 9, 3), 99, [2, 5, 8]),
        (concurrency(1, 8, 1), 2, [1, 2, 3]),
        (concurrency(4, 2, 1), 99, [4]),
        (concurrency(1, 0, 4, is_async=True), 30, [1, 5, 9, 13, 17, 21, 25, 29, 33]),
        (concurrency(1, 0, 4), 99, [1, 5, 9, 13]),  # calls that wait need a thread each, of which there are 16
        (concurrency(1, 0, 4, max_threads=6), 99, [1, 5]),
        (rates(100, 400, 150), 999, [100, 250, 400]),
        (rates(0.5, 1.0, 0.2), 999, [0.5, 0.7, 0.9]),
    ],
)
def test_a_linear_sweep_ends_after_the_first_load_that_does_not_pass(options, last_passing, expected):
    assert measured(options, lambda value: value <= last_passing) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "last_passing", "expected"),
    [
        (concurrency(1, 8, 1, is_binary_search=True), 1, [1, 8, 4, 2]),
        (concurrency(1, 8, 1, is_binary_search=True), 5, [1, 8, 4, 6, 5]),
        (concurrency(1, 8, 1, is_binary_search=True), 0, [1]),
        (concurrency(1, 8, 1, is_binary_search=True), 99, [1, 8]),
        (rates(100, 200, 20, is_binary_search=True), 160, [100, 200, 150, 175, 162.5]),
    ],
)
def test_a_binary_search_halves_the_range_between_the_ends(options, last_passing, expected):
    assert measured(options, lambda value: value <= last_passing) == expected


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [((100, 105, 110), 10, True), ((100, 105, 111), 10, False), ((0, 0, 0), 999, False), ((1, 1, 1), 0, True)],
)
def test_windows_agree_within_the_percentage_of_the_smallest(values, percent, expected):
    assert are_stable(values, percent) is expected


@pytest.mark.parametrize(("options", "expected"), [({}, 3), ({"max_trials": 2}, 2), ({"max_trials": 1}, 1), ({"request_count": 9}, 1)])
def test_the_first_windows_are_those_that_must_agree_as_far_as_trials_allow(options, expected):
    assert windows_to_begin_with(Options("m", **options)) == expected

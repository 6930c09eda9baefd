"""Clocks compared by round trips: simulated clocks lie within the bound, whatever the delays; closed forms for symmetric ones."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.fleet.fleet_machine import MAX_DRIFT, ClockComparison, clock_error, compare_clocks
from perfkit.stats.clock_offset import ClockReading

DRIVER_NS = 10**14
US, MS, S = 10**3, 10**6, 10**9


def machine_clock(offset_ns, drift_ppm, bend_ppm=0.0, period_s=60.0):
    """A clock with a constant drift and one that swings around it, by the driver's instants."""
    turn = 2 * math.pi / (period_s * S)

    def read(at_ns):
        since = at_ns - DRIVER_NS
        return at_ns + offset_ns + round(since * drift_ppm * 1e-6 + bend_ppm * 1e-6 / turn * math.sin(turn * since))

    return read


def trips(rng, clock, at_ns, count, shortest_ns, jitter_ns, asymmetry):
    """Round trips one after the other; `asymmetry` of a trip's least time is spent on the way there, and both ways have random delays."""
    found = []
    for _ in range(count):
        there = int(shortest_ns * asymmetry + rng.exponential(jitter_ns))
        back = int(shortest_ns * (1 - asymmetry) + rng.exponential(jitter_ns))
        found.append(ClockReading(at_ns, clock(at_ns + there), at_ns + there + back))
        at_ns += there + back + int(rng.integers(0, 20 * MS))
    return found


drifts = st.floats(-50, 50)
links = st.tuples(st.sampled_from([20 * US, 100 * US, MS, 50 * MS]), st.sampled_from([0, 5 * US, MS, 20 * MS]), st.floats(0, 1))


@given(st.integers(0, 2**32), st.integers(1, 20), links, st.integers(-(10**18), 10**18), drifts, st.floats(0, 49))
def test_the_true_offset_lies_within_the_bound_of_a_comparison(seed, count, link, offset_ns, drift_ppm, bend_ppm):
    clock = machine_clock(offset_ns, drift_ppm, bend_ppm)
    found = compare_clocks(trips(np.random.default_rng(seed), clock, DRIVER_NS + seed, count, *link))
    assert abs(clock(found.at_ns) - found.at_ns - found.offset_ns) <= found.bound_ns


@given(
    seed=st.integers(0, 2**32),
    length_s=st.floats(1, 1800),
    gaps=st.integers(1, 12),
    link=links,
    drift_ppm=drifts,
    bend_ppm=st.floats(0, 49),
    period_s=st.floats(1, 3600),
)
def test_the_true_error_of_a_used_offset_is_never_above_the_bound(seed, length_s, gaps, link, drift_ppm, bend_ppm, period_s):
    rng = np.random.default_rng(seed)
    clock = machine_clock(3 * S, drift_ppm, bend_ppm, period_s)
    instants = np.linspace(DRIVER_NS, DRIVER_NS + length_s * S, gaps + 1).astype(int).tolist()
    comparisons = [compare_clocks(trips(rng, clock, at, 4, *link)) for at in instants]
    found = clock_error(comparisons[0].offset_ns, comparisons)
    times = np.linspace(comparisons[0].at_ns, comparisons[-1].at_ns, 200).astype(int).tolist()
    assert max(abs(clock(at) - at - comparisons[0].offset_ns) for at in times) <= found.bound_ns


@given(st.integers(0, 2**32), links, st.integers(-S, S), st.floats(0.01, 0.99))
def test_a_clock_that_jumps_once_is_covered_once_the_comparisons_contradict_each_other(seed, link, jump_ns, jumps_at):
    rng = np.random.default_rng(seed)
    at_jump = DRIVER_NS + int(jumps_at * 60 * S)

    def clock(at_ns):
        return at_ns + (jump_ns if at_ns >= at_jump else 0)

    comparisons = [compare_clocks(trips(rng, clock, DRIVER_NS + number * 20 * S, 3, *link)) for number in range(4)]
    found = clock_error(comparisons[0].offset_ns, comparisons)
    if abs(comparisons[-1].offset_ns - comparisons[0].offset_ns) > comparisons[0].bound_ns + comparisons[-1].bound_ns + 60 * S * MAX_DRIFT:
        assert max(abs(comparisons[0].offset_ns), abs(jump_ns - comparisons[0].offset_ns)) <= found.bound_ns


def test_a_symmetric_trip_gives_the_offset_exactly_with_half_of_the_trip_as_bound():
    found = compare_clocks([ClockReading(DRIVER_NS, DRIVER_NS + 50 * US + 7 * S, DRIVER_NS + 100 * US)])
    # 50 µs of half a trip, and 5 ns of drift in them
    assert found == ClockComparison(DRIVER_NS + 50 * US, 7 * S, 50_005)


def test_a_trip_that_is_slow_one_way_only_is_wrong_by_half_of_the_difference_at_most():
    found = compare_clocks([ClockReading(0, 90 * US, 100 * US)])
    assert found.offset_ns == 40 * US
    assert found.bound_ns == 50_005


def test_two_trips_with_delays_on_opposite_ways_give_a_better_bound_than_each():
    """The first has 10 µs there and 90 back, the second 90 there and 10 back: together they allow only 10 µs on either side."""
    found = compare_clocks([ClockReading(0, 10 * US, 100 * US), ClockReading(100 * US, 190 * US, 200 * US)])
    assert found.offset_ns == pytest.approx(0, abs=10)
    assert found.bound_ns == pytest.approx(10 * US, abs=20)


def test_a_comparison_is_made_at_the_shortest_trip_and_a_far_one_counts_less_for_the_drift():
    short, long = ClockReading(S, S + 50 * US, S + 100 * US), ClockReading(0, 500 * US, MS)
    found = compare_clocks([long, short])
    assert (found.at_ns, found.offset_ns, found.bound_ns) == (S + 50 * US, 0, 50_005)
    # the clocks may have drifted by 100 µs since the long trip, which therefore excludes nothing
    assert compare_clocks([ClockReading(0, 160 * US, 200 * US), short]) == found


def test_trips_that_contradict_each_other_are_all_covered():
    before, after = ClockReading(0, 50 * US, 100 * US), ClockReading(MS, MS + 50 * US + 20 * MS, MS + 100 * US)
    found = compare_clocks([before, after])
    assert abs(found.offset_ns - 0) <= found.bound_ns
    assert abs(found.offset_ns - 20 * MS) <= found.bound_ns
    assert found.bound_ns == pytest.approx(10 * MS + 50 * US, abs=US)


def test_the_error_between_two_comparisons_is_largest_in_their_middle_by_the_drift():
    comparisons = [ClockComparison(0, 5_000, 20_000), ClockComparison(10 * S, 5_000, 20_000)]
    found = clock_error(5_000, comparisons)
    assert found.bound_ns == 20_000 + 5 * S * MAX_DRIFT  # half of the way from each
    assert found.drift_ppm == 0
    assert clock_error(9_000, comparisons).bound_ns == found.bound_ns + 4_000


@pytest.mark.parametrize(("drift_ppm", "in_a_minute_ns"), [(0, 0), (1, 60 * US), (-1, 60 * US)])
def test_pings_each_second_for_a_minute_bound_the_error_to_half_of_a_round_trip_and_50_us_and_the_drift_since_the_first(
    drift_ppm, in_a_minute_ns
):
    clock = machine_clock(0, drift_ppm)
    trips_ns = ((at_ns, clock(at_ns + 500 * US), at_ns + MS) for at_ns in range(DRIVER_NS, DRIVER_NS + 61 * S, S))
    pings = [compare_clocks([ClockReading(*trip_ns)]) for trip_ns in trips_ns]
    found = clock_error(pings[0].offset_ns, pings)
    assert found.drift_ppm == pytest.approx(drift_ppm)
    assert found.bound_ns == pytest.approx(500 * US + 50 * US + in_a_minute_ns, abs=US)


def test_a_drift_that_the_comparisons_show_is_in_the_bound():
    found = clock_error(0, [ClockComparison(10 * S, 500_000, 1_000), ClockComparison(0, 0, 1_000)])
    assert found.drift_ppm == pytest.approx(50)
    # with 100 ppm until 7.5 s and -100 ppm from there the clock reaches 751 µs
    assert found.bound_ns == 751_000


def test_an_exact_comparison_narrows_an_inexact_one_beside_it():
    exact, inexact = ClockComparison(0, 0, 1_000), ClockComparison(S, 0, 50 * MS)
    assert clock_error(0, [exact, inexact]).bound_ns == 1_000 + 100_000


def test_single_trips_bound_the_error_as_well_as_the_comparison_of_all():
    rng = np.random.default_rng(3)
    clock = machine_clock(S, 30)
    several = [trips(rng, clock, DRIVER_NS + second * 10 * S, 8, 100 * US, MS, 0.3) for second in range(7)]
    used = compare_clocks(several[0]).offset_ns
    at_once = clock_error(used, [compare_clocks(some) for some in several])
    single = clock_error(used, [compare_clocks([trip]) for some in several for trip in some])
    assert single.bound_ns <= at_once.bound_ns + US
    assert single.drift_ppm == pytest.approx(30, abs=10)


def test_comparisons_that_contradict_each_other_are_all_covered():
    """The clock jumped by a second: between both comparisons it may have been wrong by that, and by the drift."""
    found = clock_error(0, [ClockComparison(0, 0, 1_000), ClockComparison(10 * S, S, 1_000)])
    assert found.bound_ns == S + 1_000 + 10 * S * MAX_DRIFT


def test_a_single_comparison_bounds_its_own_instant():
    assert clock_error(7, [ClockComparison(0, 5, 10)]).bound_ns == 12
    assert clock_error(7, [ClockComparison(0, 5, 10)]).drift_ppm == 0


def test_nothing_is_compared_without_a_trip_or_a_comparison():
    with pytest.raises(ValueError, match="at least one"):
        compare_clocks([])
    with pytest.raises(ValueError, match="at least one"):
        clock_error(0, [])

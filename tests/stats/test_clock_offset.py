"""The offset between two clocks: planted ones are recovered within the stated bound, contradictions answered with a reason."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from perfkit.stats.clock_offset import RESOLUTION_NS, ClockOffset, ClockReading, NoOffset, fit_offset, tie_clocks

MONOTONIC_NS = 10**14
UNIX_NS = 1_760_000_000_000_000_000


def requests(seed, count, server_clock, length_s=60.0):
    """Started, finished, and received and answered by the server's clock, of requests with random ways there and back."""
    rng = np.random.default_rng(seed)
    started = MONOTONIC_NS + np.sort(rng.integers(0, int(length_s * 1e9), count))
    received = started + 50_000 + rng.exponential(200_000, count).astype(np.int64)
    answered = received + rng.exponential(3e6, count).astype(np.int64)
    finished = answered + 30_000 + rng.exponential(200_000, count).astype(np.int64)
    return started, finished, server_clock(received), server_clock(answered)


def clock(offset_ns, drift):
    return lambda instants: instants + offset_ns + np.rint(drift * (instants - MONOTONIC_NS)).astype(np.int64)


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3, 10, 1000]), st.floats(-400e-6, 400e-6), st.integers(-(10**9), UNIX_NS))
def test_a_planted_offset_and_drift_lie_within_the_bound(seed, count, drift, offset_ns):
    server = clock(offset_ns, drift)
    started, finished, received, answered = requests(seed, count, server)
    found = fit_offset(started, finished, received, answered)
    assert isinstance(found, ClockOffset)
    at = np.linspace(started.min(), finished.max(), 50).astype(np.int64)
    assert np.abs(found.at(at) - (server(at) - at)).max() <= found.bound_ns
    assert found.bound_ns <= (finished - started).max() + 1e9 * 60 * 500e-6


def test_50_ms_and_50_ppm_are_recovered_to_less_than_the_shortest_ways():
    server = clock(50_000_000, 50e-6)
    started, finished, received, answered = requests(1, 5_000, server)
    found = fit_offset(started, finished, received, answered)
    at = np.linspace(started.min(), finished.max(), 50).astype(np.int64)
    # each way takes 50 and 30 µs at least: no method knows the offset better than to 40 µs from one end or the other
    assert 40_000 <= found.bound_ns <= 60_000
    assert np.abs(found.at(at) - (server(at) - at)).max() <= 20_000


def least(cost, rows, limits):
    """The least cost in nanoseconds, of limits in milliseconds."""
    found = linprog(cost, A_ub=rows, b_ub=limits, bounds=(None, None)).fun
    assert found is not None
    return 1e6 * found


@pytest.mark.parametrize("seed", range(5))
def test_the_bounds_are_those_of_a_linear_program_over_all_requests(seed):
    server = clock(7_000_000, -80e-6)
    started, finished, received, answered = requests(seed, 40, server)
    found = fit_offset(started, finished, received, answered)
    first, length = started.min(), float(finished.max() - started.min())
    rows = [[1 - (t - first) / length, (t - first) / length] for t in started]
    limits = list((received - started + RESOLUTION_NS) / 1e6)
    rows += [[-1 + (t - first) / length, -(t - first) / length] for t in finished]
    limits += list(-(answered - finished - RESOLUTION_NS) / 1e6)
    rows, limits = [*rows, [1, -1], [-1, 1]], [*limits, 500e-6 * length / 1e6, 500e-6 * length / 1e6]
    for end in (0, 1):
        cost = [1 - end, end]
        low, high = (sign * least([sign * one for one in cost], rows, limits) for sign in (1, -1))
        assert found.offsets_ns[end] == pytest.approx((low + high) / 2, abs=2)
        assert found.bounds_ns[end] == pytest.approx((high - low) / 2, abs=4)


def test_a_clock_that_was_set_is_answered_with_by_how_much_it_contradicts():
    started, finished, received, answered = requests(2, 2_000, clock(0, 0.0))
    step = np.where(started > np.median(started), 20_000_000, 0)
    found = fit_offset(started, finished, received + step, answered + step)
    assert isinstance(found, NoOffset)
    assert "outside of their requests by 9." in found.reason or "outside of their requests by 10." in found.reason


def test_a_server_span_longer_than_its_request_is_a_contradiction():
    one = np.array([MONOTONIC_NS])
    assert isinstance(fit_offset(one, one + 1_000_000, one, one + 1_500_000), NoOffset)
    assert isinstance(fit_offset(one, one + 1_000_000, one, one + 1_000_000), ClockOffset)


def test_an_instant_that_is_decades_off_leaves_the_clock_unknown():
    """A single damaged event of a span must not end the run: the solver gives up on numbers of such different sizes."""
    instants = [
        [1000019865331, 1000045613299, 1000125440961, 1000324656415],
        [1000019866293, 1000045613439, 1000125441095, 1000324656590],
        [1700001000019865452, 1700001000045613308, 1700001000125441070, 1700001000324656470],
        [1700001000019865551, 1700001000045613410, 4562918792968955520, 1700001000324656470],
    ]
    assert isinstance(fit_offset(*(np.array(one, np.int64) for one in instants)), NoOffset)


def test_no_request_bounds_nothing():
    nothing = np.array([], np.int64)
    assert fit_offset(nothing, nothing, nothing, nothing) == NoOffset("no traced request bounds it")


def test_clocks_of_one_machine_are_tied_by_readings_of_both():
    tied = tie_clocks([ClockReading(100, 5_150, 200), ClockReading(1_100, 6_140, 1_140)])
    assert tied == ClockOffset((100, 1_100), (5_000, 5_020), (50 + 20, 20 + 20))
    assert tied.at(np.array([0, 100, 600, 1_100, 9_999])).tolist() == [5_000, 5_000, 5_010, 5_020, 5_020]
    assert tied.bound_ns == 70


def test_unix_time_is_exact_to_the_nanosecond():
    tied = tie_clocks([ClockReading(MONOTONIC_NS, UNIX_NS + 3, MONOTONIC_NS)])
    assert tied.at(np.array([MONOTONIC_NS + 17])).tolist() == [UNIX_NS + 3 - MONOTONIC_NS]


def test_a_step_between_two_readings_widens_the_bound_of_both():
    tied = tie_clocks(
        [
            ClockReading(0, 1_000, 0),
            ClockReading(10**9, 10**9 + 5_001_000, 10**9),
            ClockReading(2 * 10**9, 2 * 10**9 + 5_001_000, 2 * 10**9),
        ]
    )
    assert tied.bounds_ns == (5_000_000, 5_000_000, 0)


def test_clocks_need_a_reading():
    with pytest.raises(ValueError, match="at least one"):
        tie_clocks([])

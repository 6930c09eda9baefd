"""Workers that stand still or start late in virtual time: the model of `benchmarks.generator_stops`."""

import re

import pytest

from benchmarks.simulated_stops import LoadModel, arrivals_ns, simulate
from perfkit.units import NS_PER_S

MS = 1_000_000
WINDOW_NS = 8 * NS_PER_S
CLOSED, OPEN = LoadModel(is_open=False, level=8), LoadModel(is_open=True, level=120)


def stopped(load, start_ms, length_ms):
    return simulate(load, seed=1, window_ns=WINDOW_NS, stops=[(start_ms * MS, (start_ms + length_ms) * MS)])[0]


def messages(found):
    return {warning.code: warning.message for warning in found.warnings}


@pytest.mark.parametrize("load", [CLOSED, OPEN, LoadModel(False, 8, 2), LoadModel(True, 120, 2)])
def test_a_worker_that_stood_still_for_three_of_eight_seconds_makes_a_point_invalid(load):
    found = stopped(load, 2000, 3000)
    assert not found.valid
    assert "generator_stopped" in messages(found)
    assert found.generator.stops.count == 1
    assert (
        found.generator.stops.total_ns == found.generator.stops.max_ns == pytest.approx(3000 * MS, abs=500 * MS)
    )  # less what the process itself computed meanwhile


def test_the_warning_says_how_long_how_many_requests_and_which_figure():
    found = stopped(CLOSED, 2000, 3000)
    said = messages(found)["generator_stopped"]
    assert "stood still for 3.00 s" in said
    assert f"touched {found.generator.stops.touched_requests} requests" in said
    without = re.search(r"Without that, the throughput would be about ([0-9.]+)/s instead of ([0-9.]+)/s", said)
    assert without is not None
    assert float(without[1]) == pytest.approx(200, rel=0.05), "two servers with 10 ms each"
    assert float(without[2]) == pytest.approx(found.throughput_per_s, rel=0.01)


@pytest.mark.parametrize("load", [CLOSED, OPEN, LoadModel(False, 8, 2)])
def test_a_short_stop_that_moved_nothing_is_reported_and_leaves_the_point_valid(load):
    quiet, found = simulate(load, seed=1, window_ns=WINDOW_NS)[0], stopped(load, 4000, 16)
    assert quiet.generator.stops.count == 0
    assert found.valid
    assert found.generator.stops.count == 1
    assert "touched" in messages(found)["generator_paused"]
    for name in ("p50", "p90", "p99"):
        low, high = quiet.intervals[name]
        assert low <= getattr(found.times, name) <= (high or 1e12)


def test_two_late_starts_among_some_150_requests_leave_the_point_valid_and_thirty_do_not():
    load, window_ns = LoadModel(is_open=True, level=40), 4 * NS_PER_S
    due_ns = arrivals_ns(load, 3, window_ns)
    few, many = (simulate(load, seed=3, window_ns=window_ns, stops=[(at_ns - 1, at_ns + 4 * MS) for at_ns in due_ns[5::step]])[0]
                 for step in (len(due_ns) // 2, 5))  # fmt: skip
    assert few.valid
    assert "late_starts" in messages(many)
    assert not many.valid


def test_while_one_of_two_workers_stands_still_the_other_one_s_requests_are_too_fast():
    """The server's throughput stays the same, so only the times show it."""
    load = LoadModel(False, 8, 2)
    quiet, found = simulate(load, seed=1, window_ns=WINDOW_NS)[0], stopped(load, 2000, 2000)
    assert found.throughput_per_s == pytest.approx(quiet.throughput_per_s, rel=0.03)
    assert found.times.p50 < 0.95 * (quiet.times.p50 or 0)
    assert not found.valid

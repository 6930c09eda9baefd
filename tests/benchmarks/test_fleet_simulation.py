"""The simulation of a fleet: its arrivals against closed forms, its comparison of recordings against differences, and a short run."""

import copy
import dataclasses
import math

import numpy as np
import pytest

from benchmarks.fleet_simulation import SHORT, measure_driver, simulate_arrivals, simulate_clocks, simulate_merging
from benchmarks.simulated_clocks import MachineClock, dispersion, gap_variation, mean_wait, superposed_arrivals
from benchmarks.simulated_fleet import (
    START_NS,
    check_frames,
    is_same,
    merge_one_by_one,
    merge_outputs,
    messages_of_second,
    packed,
    poisson_arrivals,
    record,
    simulated_replies,
    unpacked,
)
from perfkit.recorder.recording import merge
from perfkit.workers.messages import Logged

RATE_PER_S = 100_000.0
MS = 1_000_000


@pytest.fixture(scope="module")
def workers():
    """What three workers with different requests record in three seconds."""
    return [record(simulated_replies(poisson_arrivals(300, 3, seed), seed), 3, seed) for seed in range(3)]


def test_recordings_that_differ_in_one_count_are_not_the_same(workers):
    recording = workers[0].point.recording
    assert is_same(recording, unpacked(packed(workers[0].point))[0].recording)
    assert not is_same(recording, workers[1].point.recording)
    changed = copy.deepcopy(recording)
    changed.batches[0].times["service_time"].counts[3] += 1
    assert not is_same(recording, changed)
    assert not is_same(recording, dataclasses.replace(recording, finished_per_s={}))


def test_recordings_merged_one_by_one_are_those_merged_at_once(workers):
    whole = merge_one_by_one([packed(worker.point) for worker in workers])
    assert is_same(whole.recording, merge([worker.point.recording for worker in workers]))


def test_a_machine_that_merges_sends_the_intervals_of_all_its_workers(workers):
    machine = merge_outputs(workers)
    for second in range(2):
        logged, *_ = unpacked(packed(*messages_of_second([machine], second)))
        counts = [worker.intervals[second].service_time.count for worker in workers]
        assert (logged.window_start_ns, logged.interval.index) == (START_NS, second)
        assert logged.interval.service_time.count == sum(counts) > 0
        passed_on = messages_of_second(workers, second)
        assert [one.interval.service_time.count for one in passed_on if isinstance(one, Logged)] == counts


def test_a_frame_adds_a_length_and_an_authentication():
    assert check_frames([b"one", b"another"]) == 10 + 2 * (8 + 32)


@pytest.mark.parametrize("division", ["blocks", "in turn", "at random"])
def test_clocks_without_errors_leave_the_arrivals_as_they_are(division):
    constant = superposed_arrivals("constant", RATE_PER_S, 20_000, 5, 4, 0, division, 1)
    assert gap_variation(constant) == 0
    assert mean_wait(constant, RATE_PER_S) == pytest.approx(0, abs=1e-9)
    poisson = superposed_arrivals("poisson", RATE_PER_S, 200_000, 5, 4, 0, division, 1)
    assert gap_variation(poisson) == pytest.approx(1, abs=0.02)
    assert dispersion(poisson, MS) == pytest.approx(1, abs=0.2)
    assert mean_wait(poisson, RATE_PER_S) == pytest.approx(1, abs=0.1)


def test_streams_in_turn_with_large_errors_have_the_gaps_of_points_on_a_circle():
    """The gaps between m random points on a circle have a variation of sqrt((m - 1) / (m + 1))."""
    variations = [gap_variation(superposed_arrivals("constant", RATE_PER_S, 5000, 5, 4, 10 * MS, "in turn", seed)) for seed in range(200)]
    assert np.mean(np.square(variations)) == pytest.approx(4 / 6, rel=0.1)


def test_poisson_arrivals_divided_at_random_stay_poisson_whatever_the_errors():
    arrivals = superposed_arrivals("poisson", RATE_PER_S, 200_000, 5, 4, 10 * MS, "at random", 1)
    assert gap_variation(arrivals) == pytest.approx(1, abs=0.02)
    assert dispersion(arrivals, MS) == pytest.approx(1, abs=0.2)
    assert mean_wait(arrivals, RATE_PER_S) == pytest.approx(1, abs=0.1)


def test_a_swinging_clock_drifts_by_its_mean_over_a_whole_period():
    clock, start = MachineClock(5, drift_ppm=10, swing_ppm=40, period_s=60), 10**15
    assert clock.read(start) == start + 5
    assert clock.read(start + 60 * 10**9) == pytest.approx(start + 60 * 10**9 + 5 + 600_000, abs=2)
    # a quarter of a period on, the swing is at its end: 40 ppm of 60 s / 2 pi
    assert clock.read(start + 15 * 10**9) - start - 15 * 10**9 - 5 - 150_000 == pytest.approx(40e-6 * 60e9 / (2 * math.pi), abs=2)


def test_the_short_form_is_exact_and_all_bounds_hold():
    assert simulate_merging(SHORT)[1]
    lines, is_covered = simulate_clocks(SHORT)
    assert is_covered
    assert len([line for line in lines if line.startswith("| 50 ppm")]) == 4
    assert any(line.startswith("| memory, one by one") for line in measure_driver(SHORT))
    assert len(simulate_arrivals(SHORT)) > 60

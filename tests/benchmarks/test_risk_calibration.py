"""The short form of the calibration of a plan's risk."""

import math

import numpy as np
import pytest

from benchmarks.risk_calibration import RESTART_SD, draw_trial, kept_cells, server, try_plan
from benchmarks.risk_calibration_live import LIMIT_S, MEAN_S, true_capacity_per_s
from perfkit.plan.fleet_risk import ReplicaCapacity

TRIALS = 1200


def kept_shares(factor):
    """The shares kept of the demands that a plan calls 90 % safe which knows the capacity of M/M/1, times a factor, and how its starts vary."""
    simulated, random = server("M/M/1"), np.random.default_rng(8)
    elasticity = math.log(simulated.capacity_at(1.01) / simulated.capacity_at(0.99)) / math.log(1.01 / 0.99)
    replica = ReplicaCapacity((factor * 85.0,), RESTART_SD * elasticity, 1e6)
    trials = [draw_trial(replica, simulated.capacity_at, RESTART_SD, random) for _ in range(TRIALS)]
    return [
        sum(value <= 0.9 for value in values) / TRIALS for values in ([trial.one for trial in trials], [trial.fleet for trial in trials])
    ]


def test_of_demands_that_a_right_distribution_calls_90_percent_safe_90_percent_keep_the_slo():
    """1,200 trials have a standard error of 0.9 %: four of them are 3.5 %."""
    assert kept_shares(1.0) == pytest.approx([0.9, 0.9], abs=0.035)


def test_a_capacity_that_is_five_percent_too_high_is_found():
    one, fleet = kept_shares(1.05)
    assert one < 0.6
    assert fleet < 0.8


def test_the_true_capacity_of_a_start_is_that_of_the_closed_form():
    """M/M/1 at 100/s with a limit on the p99: a start that is faster by v serves 100·v - ln(100)/limit."""
    simulated = server("M/M/1")
    for speed in (0.94, 1.0, 1.06):
        assert simulated.capacity_at(speed) == pytest.approx(100 * speed - math.log(100) / simulated.limit_s, rel=0.001)
    assert true_capacity_per_s(MEAN_S) == pytest.approx(0.8 / MEAN_S)
    assert math.exp(-(1 / MEAN_S - true_capacity_per_s(MEAN_S)) * LIMIT_S) == pytest.approx(0.05)


def test_a_plan_of_a_simulated_server_is_tried_with_new_starts():
    trial = try_plan(server("M/M/1"), 0, 1, seconds=30)
    assert trial is not None
    assert 0.0 < trial.one < 1.0
    assert 0.0 < trial.fleet < 1.0
    assert kept_cells([0.4, 0.8, 0.93, 0.99]) == ["25.0%", "25.0%", "50.0%", "75.0%"]

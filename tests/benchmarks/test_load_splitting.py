"""What the rules of load balancers do, against the closed form of M/M/1 and each other."""

import math

import numpy as np
import pytest

from benchmarks.load_splitting import split_response_times
from benchmarks.simulated_queues import service_times

LOAD, REQUESTS = 15 / 19, 400_000


def p99(rule, speeds=(1.0, 1.0, 1.0, 1.0), shares=(1.0, 1.0, 1.0, 1.0), replica=None):
    times = split_response_times(
        rule, LOAD, speeds, shares, REQUESTS, lambda number, rng: service_times(1, number, rng), np.random.default_rng(3)
    )
    return float(np.quantile(np.concatenate(times) if replica is None else times[replica], 0.99))


def test_random_splitting_keeps_poisson_arrivals_at_each_replica():
    """The p99 of M/M/1 is ln(100)/(1 - ρ) mean service times."""
    assert p99("random") == pytest.approx(math.log(100) / (1 - LOAD), rel=0.05)


def test_a_replica_with_1_2_times_its_share_has_four_times_the_p99():
    even, busiest = p99("random"), p99("random", shares=(1.2, 1.0, 1.0, 0.8), replica=0)
    assert busiest / even == pytest.approx(4, rel=0.25)


def test_round_robin_and_the_fewest_in_flight_are_better_than_random():
    assert p99("round-robin") < 0.8 * p99("random")
    assert p99("least-in-flight") < 0.5 * p99("random")


def test_with_the_fewest_in_flight_the_sum_of_the_capacities_counts():
    """A replica that is 10 % slower keeps the limit on its own requests, too, if another one is faster; in turn it does not."""
    limit, speeds = p99("random"), (0.9, 1.1, 1.0, 1.0)
    assert p99("least-in-flight", speeds, replica=0) < 0.6 * limit
    assert p99("round-robin", speeds, replica=0) > limit

"""A replica's queue against an independent implementation and against closed forms."""

import math

import numpy as np
import pytest

from benchmarks import simulated_queues
from perfkit.plan.replica_queue import Limit, ServiceLaw, calibrated_law, response_times

NONE = np.zeros(0, dtype=np.int64)
EXPONENTIAL = -np.log1p(-(np.arange(2000) + 0.5) / 2000)  # quantiles, mean 1


def queue(number=5000, seed=1):
    random = np.random.default_rng(seed)
    return np.cumsum(random.exponential(1.0, number)), random.exponential(0.9, number)


@pytest.mark.parametrize("servers", [1, 3])
def test_response_times_are_those_of_an_independent_implementation(servers):
    arrivals, served = queue()
    served = served * servers
    assert response_times(arrivals, served, servers, NONE) == pytest.approx(simulated_queues.response_times(arrivals, served, servers))


@pytest.mark.parametrize("servers", [1, 2])
def test_after_a_restart_the_queue_is_empty(servers):
    arrivals, served = queue()
    served = served * servers
    parts = [response_times(arrivals[part], served[part], servers, NONE) for part in (slice(0, 1000), slice(1000, 1001), slice(1001, None))]
    together = response_times(arrivals, served, servers, np.array([0, 1000, 1001]))
    assert together == pytest.approx(np.concatenate(parts), abs=1e-6)
    assert together[1000] == pytest.approx(served[1000])


def test_the_capacity_of_an_mm1_queue_gives_back_its_service_times():
    """P[R > t] = exp(-(μ-λ)t) gives the capacity μ - ln(100)/t for a p99 of t; the law has the true mean."""
    law = calibrated_law((0.01 * EXPONENTIAL).tolist(), 100 - math.log(100) / 0.3, [Limit(0.99, 0.3)], np.random.default_rng(5))
    assert law.servers == 1
    assert float(np.mean(law.times_s)) == pytest.approx(0.01, rel=0.02)


def test_the_number_of_servers_follows_from_the_capacity():
    """The capacity of M/M/4 with a mean of 40 ms, from the closed form of its tail."""
    low, high = 0.1, 0.999
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if simulated_queues.mmc_tail(4, middle, 0.3 / 0.04) <= 0.01 else (low, middle)
    law = calibrated_law((0.04 * EXPONENTIAL).tolist(), 100 * low, [Limit(0.99, 0.3)], np.random.default_rng(5))
    assert law.servers == 4
    assert float(np.mean(law.times_s)) == pytest.approx(0.04, rel=0.02)


def test_a_replica_that_is_no_such_queue_is_refused():
    """Batches serve 5,000/s with service times of 100 ms: no queue of up to 64 servers does."""
    with pytest.raises(
        ValueError,
        match=r"no queue of up to 64 servers with the measured service times .mean 100 ms. has the measured capacity of 5,000/s",
    ):
        calibrated_law((0.1 * EXPONENTIAL).tolist(), 5000.0, [Limit(0.99, 1.0)], np.random.default_rng(5))


def test_a_law_saturates_where_its_servers_are_always_busy():
    assert ServiceLaw(4, np.array([0.01, 0.03])).saturation_per_s == pytest.approx(200)

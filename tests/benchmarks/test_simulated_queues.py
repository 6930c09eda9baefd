"""The simulated queues, against closed forms and against a recursion that is written differently."""

import math

import numpy as np
import pytest

from benchmarks.simulated_queues import (
    batched_response_times,
    gamma_arrivals,
    mg1_quantile,
    mmc_quantile,
    mmc_tail,
    mmc_wait_probability,
    poisson_arrivals,
    response_times,
    service_times,
)


def test_a_queue_of_one_server_follows_the_recursion_of_lindley() -> None:
    rng = np.random.default_rng(1)
    arrivals, served = poisson_arrivals(0.9, 500, rng), service_times(2, 1000, rng)
    wait, expected = 0.0, list[float]()
    for index in range(arrivals.size):
        if index:
            wait = max(wait + served[index - 1] - (arrivals[index] - arrivals[index - 1]), 0.0)
        expected.append(wait + served[index])
    assert response_times(arrivals, served[: arrivals.size]) == pytest.approx(expected)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (4, 0.7), (8, 0.8)])
def test_exponential_queues_have_the_tail_of_the_closed_form(servers: int, load: float) -> None:
    rng = np.random.default_rng(servers)
    arrivals = poisson_arrivals(servers * load, 400_000 / (servers * load), rng)
    times = response_times(arrivals, service_times(1, arrivals.size, rng), servers)
    quantile = float(np.quantile(times, 0.95))
    assert mmc_tail(servers, load, quantile) == pytest.approx(0.05, rel=0.1)


def test_the_tail_of_one_server_is_exponential() -> None:
    assert mmc_tail(1, 0.8, 3.0) == pytest.approx(math.exp(-0.2 * 3.0))
    assert mmc_wait_probability(1, 0.8) == pytest.approx(0.8)
    assert mmc_wait_probability(2, 0.5) == pytest.approx(1 / 3)
    assert mmc_quantile(0.99, 1, 0.8) == pytest.approx(math.log(100) / 0.2)
    assert mmc_tail(4, 0.7, mmc_quantile(0.95, 4, 0.7)) == pytest.approx(0.05)


@pytest.mark.parametrize("cv", [0.3, 1, 2])
def test_gaps_and_service_times_have_the_mean_and_the_variation_asked_for(cv: float) -> None:
    rng = np.random.default_rng(7)
    gaps, served = np.diff(gamma_arrivals(5.0, 60_000, cv, rng)), service_times(cv, 300_000, rng)
    assert [gaps.mean() * 5, gaps.std() / gaps.mean()] == pytest.approx([1, cv], rel=0.03)
    assert [served.mean(), served.std()] == pytest.approx([1, cv], rel=0.06)


def test_a_batching_server_takes_all_that_wait() -> None:
    assert batched_response_times(np.array([0.0, 0.1, 0.2, 9.0]), 8, 1.0, 0.5) == pytest.approx([1.5, 3.4, 3.3, 1.5])


def test_the_response_time_of_one_server_has_the_known_quantiles() -> None:
    assert mg1_quantile(0.99, 0.8, lambda times: np.exp(-times)) == pytest.approx(math.log(100) / 0.2, rel=1e-3)
    quantile = mg1_quantile(0.99, 0.8, lambda times: np.where(times < 1, 1.0, 0.0))
    wait = quantile - 1
    # Erlang's formula for the wait of M/D/1
    below = 0.2 * sum((0.8 * (k - wait)) ** k / math.factorial(k) * math.exp(-0.8 * (k - wait)) for k in range(math.floor(wait) + 1))
    assert 1 - below == pytest.approx(0.01, rel=2e-3)

"""The closed forms of M/M/c that live queues are compared with."""

import math
import random

import pytest

from benchmarks.live_queue import SERVICE_NS, quantile_ns
from server_stub.synthetic.service_model import Exponential, ServiceModel
from server_stub.synthetic.simulated_queue import SimulatedQueue


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.99])
def test_with_one_server_response_times_are_exponential(quantile):
    assert quantile_ns(quantile, 1) == pytest.approx(-math.log(1 - quantile) * 2 * SERVICE_NS, rel=1e-9)


def test_with_many_servers_no_request_waits():
    assert quantile_ns(0.5, 40) == pytest.approx(math.log(2) * SERVICE_NS, rel=1e-3)


@pytest.mark.parametrize("servers", [2, 4])
def test_a_simulated_queue_has_the_quantiles_of_the_closed_form(servers):
    rng, queue = random.Random(3), SimulatedQueue(ServiceModel(Exponential(round(SERVICE_NS)), servers=servers, seed=1))
    now_s, responses_ns = 0.0, []
    for _ in range(100_000):
        now_s += rng.expovariate(50 * servers)
        passage = queue.arrive(round(now_s * 1e9), 1)
        responses_ns.append(passage.departed_ns - passage.arrived_ns)
    responses_ns.sort()
    for quantile in (0.5, 0.99):
        assert responses_ns[round(quantile * len(responses_ns))] == pytest.approx(quantile_ns(quantile, servers), rel=0.04)

"""Queues that the bundled server's model `synthetic` can imitate, with the p99 that theory gives at a load of 70 %."""

import functools
import math
from typing import NamedTuple

import numpy as np

from benchmarks.simulated_queues import batched_response_times, mg1_quantile, mmc_quantile, poisson_arrivals, service_survival

LOAD = 0.7
"""The load per server at the true capacity; the SLO is the p99 there."""
QUEUES = ("exponential", "constant", "lognormal", "four_servers", "batch")


class KnownQueue(NamedTuple):
    """The declaration of a server, its true capacity, and the limit on the p99 that it follows from."""

    declaration: str
    capacity_per_s: float
    p99_ms: float


def known_queue(name: str, mean_ms: float) -> KnownQueue:
    """The queue `name` with this mean service time; raises ValueError for an unknown name.

    Each of four servers takes four times as long; a batch of n takes (1 + n/8) times as long.
    """
    mean = f"{mean_ms:g}ms"
    per_s = LOAD * 1e3 / mean_ms
    match name:
        case "exponential":
            return KnownQueue(f"service=exponential:{mean},servers=1", per_s, math.log(100) / (1 - LOAD) * mean_ms)
        case "constant":
            return KnownQueue(
                f"service=constant:{mean},servers=1", per_s, mg1_quantile(0.99, LOAD, functools.partial(service_survival, 0)) * mean_ms
            )
        case "lognormal":
            return KnownQueue(
                f"service=lognormal:{mean}:cv=2,servers=1",
                per_s,
                mg1_quantile(0.99, LOAD, functools.partial(service_survival, 2)) * mean_ms,
            )
        case "four_servers":
            return KnownQueue(f"service=exponential:{4 * mean_ms:g}ms,servers=4", per_s, mmc_quantile(0.99, 4, LOAD) * 4 * mean_ms)
        case "batch":
            rng = np.random.default_rng(0)
            times = batched_response_times(poisson_arrivals(3, 4e6 / 3, rng), 8, 1.0, 0.125)
            declaration = f"service=linear:{mean}+{mean_ms / 8:g}ms/row,servers=1,batch=upto:8"
            return KnownQueue(declaration, 3e3 / mean_ms, float(np.quantile(times, 0.99)) * mean_ms)
        case _:
            raise ValueError(f"{name!r} is not a known queue; known are {', '.join(QUEUES)}")

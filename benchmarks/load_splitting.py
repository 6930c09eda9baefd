"""The response times of replicas under the rules of load balancers, simulated in virtual time."""

import collections
import random
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.simulated_queues import Floats, poisson_arrivals, response_times

ServiceTimes = Callable[[int, np.random.Generator], Floats]
"""Draws a number of independent service times of mean 1."""


def split_response_times(
    rule: str,
    rate_per_replica: float,
    speeds: Sequence[float],
    shares: Sequence[float],
    requests: int,
    service: ServiceTimes,
    rng: np.random.Generator,
) -> list[Floats]:
    """The response times at each replica, a single server with mean service time 1/speed, under Poisson arrivals.

    `rule` is `random` (with weights `shares`, whose mean is 1), `round-robin` or `least-in-flight` (ties at random). The first tenth of
    the requests is left out.
    """
    replicas = len(speeds)
    arrivals = poisson_arrivals(rate_per_replica * replicas, requests / (rate_per_replica * replicas), rng)
    served = service(arrivals.size, rng)
    if rule == "least-in-flight":
        return _least_in_flight(arrivals, served, speeds)
    chosen = np.arange(arrivals.size) % replicas
    if rule == "random":
        chosen = rng.choice(replicas, arrivals.size, p=np.asarray(shares) / replicas)
    times = []
    for index, speed in enumerate(speeds):
        at = chosen == index
        of_replica = response_times(arrivals[at], served[at] / speed)
        times.append(of_replica[of_replica.size // 10 :])
    return times


def _least_in_flight(arrivals: Floats, served: Floats, speeds: Sequence[float]) -> list[Floats]:
    ends = [collections.deque[float]() for _ in speeds]
    times = [list[float]() for _ in speeds]
    any_of = random.Random(1).random
    for number, (arrival, service) in enumerate(zip(arrivals.tolist(), served.tolist(), strict=True)):
        for queue in ends:
            while queue and queue[0] <= arrival:
                queue.popleft()
        chosen = min(range(len(ends)), key=lambda index: (len(ends[index]), any_of()))
        queue = ends[chosen]
        end = max(arrival, queue[-1] if queue else 0.0) + service / speeds[chosen]
        queue.append(end)
        if number >= arrivals.size // 10:
            times[chosen].append(end - arrival)
    return [np.array(of_replica) for of_replica in times]

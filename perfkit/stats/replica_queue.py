"""Simulation of one replica as a queue with the measured distribution of service times."""

import dataclasses
import heapq
import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.queueing import MgcQueue
from perfkit.stats.steps import Floats
from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s

_RESTART_S = 1e6
"""A gap between arrivals that is longer than any backlog, so that the next request finds an empty queue."""
_LEAST_FACTOR, _MOST_FACTOR = 0.5, 2.0
_MOST_SERVERS = 64
_CALIBRATION_REQUESTS, _CALIBRATION_STEPS = 200_000, 24
_LAW_QUANTILES = 40


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """A limit on a percentile of the response time."""

    quantile: float
    limit_s: float

    @property
    def allowed_share(self) -> float:
        """The share of requests that may be slower."""
        return 1 - self.quantile


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ServiceLaw:
    """A first-come-first-served queue: its number of servers, and its equally likely service times."""

    servers: int
    times_s: Floats

    @property
    def saturation_per_s(self) -> float:
        """The arrival rate at which all servers are always busy."""
        return self.servers / float(np.mean(self.times_s))

    def draw(self, number: int, random: np.random.Generator) -> Floats:
        """Independent service times."""
        drawn: Floats = self.times_s[random.integers(0, len(self.times_s), number)]
        return drawn

    def stretched(self, factor: float) -> "ServiceLaw":
        """The law with all times multiplied by a factor."""
        return ServiceLaw(self.servers, self.times_s * factor)


def response_times(arrivals: Floats, served: Floats, servers: int, restarts: npt.NDArray[np.int64]) -> Floats:
    """The response times of requests served first come, first served; at each index in `restarts` all servers are idle.

    For one server this is Lindley's recursion (D. V. Lindley 1952) in closed form: the wait is the cumulative sum of service - gap, less its
    running minimum.
    """
    if not arrivals.size:
        return np.zeros(0)
    if servers == 1:
        steps = served[:-1] - np.diff(arrivals)
        steps[restarts[restarts > 0] - 1] = -_RESTART_S
        walk = np.concatenate(([0.0], np.cumsum(steps)))
        waits: Floats = walk - np.minimum.accumulate(walk)
        return waits + served
    ends, replace = list[float](), heapq.heapreplace
    edges = np.unique(np.concatenate(([0], restarts, [arrivals.size]))).tolist()
    for first, last in itertools.pairwise(edges):
        free = [-math.inf] * servers
        for arrival, service in zip(arrivals[first:last].tolist(), served[first:last].tolist(), strict=True):
            idle = free[0]
            end = (arrival if arrival > idle else idle) + service  # noqa: FURB136 - max() doubles the time of this loop
            replace(free, end)
            ends.append(end)
    return np.array(ends) - arrivals


def calibrated_law(
    times_s: Sequence[float], capacity_per_s: float, limits: Sequence[Limit], random: np.random.Generator, servers: int | None = None
) -> ServiceLaw:
    """The measured service times, multiplied by the factor that gives the simulated replica the measured capacity.

    `servers` is that of an accepted queueing model. Without one, the number of servers is that whose factor is nearest to 1 by Allen and
    Cunneen's approximation. The factor is the largest with which the limits are met at the capacity, by bisection on a simulation with
    common random numbers. Raises ValueError if the factor is outside 0.5 to 2: such a replica is not a queue with these service times.
    """
    times = np.asarray(times_s, dtype=np.float64)
    servers = servers or _fitting_servers(times, capacity_per_s, limits)
    count = _CALIBRATION_REQUESTS
    arrivals = np.cumsum(random.exponential(1 / capacity_per_s, count))
    none = np.zeros(0, dtype=np.int64)
    law = ServiceLaw(servers, times)
    drawn = law.draw(count, random)

    def is_within(factor: float) -> bool:
        if capacity_per_s >= servers / (factor * float(np.mean(times))):
            return False
        found = response_times(arrivals, drawn * factor, servers, none)
        return all(float(np.mean(found > limit.limit_s)) <= limit.allowed_share for limit in limits)

    low, high = _LEAST_FACTOR, _MOST_FACTOR
    if not is_within(low) or is_within(high):
        raise ValueError(
            f"a queue of {servers} server{'s' if servers > 1 else ''} with the measured service times (mean {format_duration_ns(NS_PER_S * float(np.mean(times)))}) "
            f"does not have the measured capacity of {format_rate_per_s(capacity_per_s)}, even if they are multiplied by {_LEAST_FACTOR:g} to {_MOST_FACTOR:g}"
        )
    for _ in range(_CALIBRATION_STEPS if servers == 1 else _CALIBRATION_STEPS // 2):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_within(middle) else (low, middle)
    return law.stretched(low)


def _fitting_servers(times: Floats, capacity_per_s: float, limits: Sequence[Limit]) -> int:
    """The number of servers with which the factor on the service times that gives the capacity is nearest to 1."""
    coarse = tuple(np.quantile(times, (np.arange(_LAW_QUANTILES) + 0.5) / _LAW_QUANTILES).tolist())
    mean_s, best = sum(coarse) / len(coarse), (math.inf, 1)
    for servers in range(1, _MOST_SERVERS + 1):
        if servers < capacity_per_s * mean_s * _LEAST_FACTOR:
            continue
        low, high = _LEAST_FACTOR, _MOST_FACTOR
        for _ in range(12):
            middle = math.sqrt(low * high)
            queue = MgcQueue(servers, tuple(time * middle for time in coarse))
            is_within = all(queue.capacity(limit.quantile, limit.limit_s) >= capacity_per_s for limit in limits)
            low, high = (middle, high) if is_within else (low, middle)
        best = min(best, (abs(math.log(low)), servers))
        if low > 1:  # more servers need longer times still
            break
    if math.isinf(best[0]):
        mean = format_duration_ns(NS_PER_S * float(np.mean(times)))
        raise ValueError(
            f"no queue of up to {_MOST_SERVERS} servers with the measured service times (mean {mean}) has the measured capacity of {format_rate_per_s(capacity_per_s)}"
        )
    return best[1]

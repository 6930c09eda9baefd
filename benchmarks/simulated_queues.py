"""Queues in virtual time: arrivals, service times and response times, and closed forms of some of their distributions."""

import bisect
import heapq
import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

Floats: TypeAlias = npt.NDArray[np.float64]


def poisson_arrivals(rate_per_s: float, length_s: float, rng: np.random.Generator) -> Floats:
    """Poisson arrivals in [0, length)."""
    return np.sort(rng.uniform(0, length_s, int(rng.poisson(rate_per_s * length_s))))


def gamma_arrivals(rate_per_s: float, length_s: float, cv: float, rng: np.random.Generator) -> Floats:
    """Arrivals in [0, length) with gamma-distributed gaps of this coefficient of variation; Poisson arrivals for 1."""
    if cv == 1:
        return poisson_arrivals(rate_per_s, length_s, rng)
    shape = 1 / cv**2
    parts, reached_s = list[Floats](), 0.0
    while reached_s < length_s:
        number = int(1.1 * rate_per_s * (length_s - reached_s) + 10 * (1 + cv))
        part = reached_s + np.cumsum(rng.gamma(shape, 1 / (rate_per_s * shape), number))
        parts.append(part)
        reached_s = float(part[-1])
    arrivals = np.concatenate(parts)
    return arrivals[: int(np.searchsorted(arrivals, length_s))]


def service_times(cv: float, number: int, rng: np.random.Generator) -> Floats:
    """Independent times of mean 1: constant (cv 0), gamma (cv below 1), exponential (cv 1) or lognormal (cv above 1)."""
    if cv == 0:
        return np.ones(number)
    if cv <= 1:
        return rng.gamma(1 / cv**2, cv**2, number)
    variance = math.log1p(cv**2)
    return rng.lognormal(-variance / 2, math.sqrt(variance), number)


def service_survival(cv: float, times: Floats) -> Floats:
    """P[service time > t] of `service_times`."""
    if cv == 0:
        return np.where(times < 1, 1.0, 0.0)
    if cv <= 1:
        return np.asarray(special.gammaincc(cv**-2, times * cv**-2), dtype=np.float64)
    variance = math.log1p(cv**2)
    return np.asarray(special.ndtr(-(np.log(np.maximum(times, 1e-300)) + variance / 2) / math.sqrt(variance)), dtype=np.float64)


def response_times(arrivals: Floats, served: Floats, servers: int = 1) -> Floats:
    """The response times under first come, first served, from idle servers; `arrivals` and `served`, the service times, are in one unit."""
    if not arrivals.size:
        return np.zeros(0)
    if servers == 1:  # Lindley's recursion in closed form: the wait is the cumulative sum of service - gap, less its running minimum
        walk = np.concatenate(([0.0], np.cumsum(served[:-1] - np.diff(arrivals))))
        return walk - np.minimum.accumulate(walk) + served
    free, ends = [0.0] * servers, list[float]()
    replace = heapq.heapreplace
    for arrival, service in zip(arrivals.tolist(), served.tolist(), strict=True):
        first = free[0]
        end = max(arrival, first) + service
        replace(free, end)
        ends.append(end)
    return np.array(ends) - arrivals


def batched_response_times(arrivals: Floats, largest: int, fixed: float, per_request: float) -> Floats:
    """The response times of a server that takes up to `largest` waiting requests at once; a batch of n takes fixed + n·per_request."""
    instants, free, first, ends, sizes = arrivals.tolist(), 0.0, 0, list[float](), list[int]()
    while first < len(instants):
        start = max(free, instants[first])
        after = bisect.bisect_right(instants, start, first, min(first + largest, len(instants)))
        free = start + fixed + per_request * (after - first)
        ends.append(free)
        sizes.append(after - first)
        first = after
    return np.repeat(np.array(ends), sizes) - arrivals


def mmc_wait_probability(servers: int, load: float) -> float:
    """Erlang's C: the share of requests that wait in M/M/c at a load per server below 1."""
    offered = servers * load
    blocked = 1.0
    for one in range(1, servers + 1):  # Erlang's B by recursion
        blocked = offered * blocked / (one + offered * blocked)
    return blocked / (1 - load * (1 - blocked))


def mmc_tail(servers: int, load: float, time: float) -> float:
    """P[response time > time] of M/M/c with mean service time 1 (D. Gross et al., *Fundamentals of Queueing Theory*, section 3.3)."""
    waits, theta = mmc_wait_probability(servers, load), servers * (1 - load)
    if abs(theta - 1) < 1e-9:
        return math.exp(-time) * (1 + waits * time)
    return math.exp(-time) + waits * (math.exp(-theta * time) - math.exp(-time)) / (1 - theta)


def mmc_quantile(quantile: float, servers: int, load: float) -> float:
    """A quantile of the response time of M/M/c with mean service time 1, by bisection of `mmc_tail`."""
    low, high = 0.0, 1e5
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if mmc_tail(servers, load, middle) > 1 - quantile else (low, middle)
    return high


def mg1_quantile(quantile: float, load: float, survival: Callable[[Floats], Floats]) -> float:
    """A quantile of the response time of M/G/1 at a load below 1; `survival(t)` is P[service time > t], for a mean of 1.

    The Pollaczek-Khinchine transform (D. Gross et al., *Fundamentals of Queueing Theory*, section 5.1.3), inverted on a grid: the wait is a
    geometric sum of residual services. Exact to about 1e-4 as long as times above 4,096 are negligible.
    """
    step, number = 2.0**-7, 2**19
    edges = survival(np.maximum((np.arange(number + 1) - 0.5) * step, 0))
    masses = (edges[:-1] + edges[1:]) * step / 2
    masses[0] /= 2  # its cell begins at 0
    residual = np.fft.rfft(masses)
    wait = (1 - load) / (1 - load * residual / residual[0].real)
    response = np.fft.irfft(wait * np.fft.rfft(edges[:-1] - edges[1:]), number)
    return float(np.searchsorted(np.cumsum(response), quantile) * step)

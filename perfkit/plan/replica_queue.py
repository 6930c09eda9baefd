"""Simulation of one replica as a queue with the measured distribution of service times, and the windows in which its requests miss the SLO."""

import dataclasses
import heapq
import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.plan.queueing import MgcQueue
from perfkit.plan.steps import Floats
from perfkit.stats.probability import binomial_limits, student_t_quantile
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


_CONFIDENCE = 0.9
_SAME_LOAD = 0.01
"""Windows are judged together only if their loads differ by at most this share."""
_CERTAIN_ERRORS, _CERTAIN_WINDOWS = 6.0, 20
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """A share with its 90 % confidence interval."""

    value: float
    low: float
    high: float


class WindowTally:
    """The requests that arrive in each window of a period, and those of them that are slower than each limit."""

    def __init__(self, windows: int, limits: Sequence[Limit]) -> None:
        self.limits = sorted(limits, key=lambda limit: limit.quantile)
        self.total = np.zeros(windows)
        self.above = np.zeros((len(limits), windows))
        self.squared_weights = np.zeros(windows)

    def add(self, windows: npt.NDArray[np.int64], times_s: Floats, weights: Floats | None = None) -> None:
        """Counts requests by the number of their window, outside of which they are left out; each stands for `weights` requests, or for itself."""
        counted = np.flatnonzero((windows >= 0) & (windows < self.total.size))
        number, of_all = windows[counted], self.total.size
        weight = None if weights is None else weights[counted]
        self.total += np.bincount(number, weight, of_all)
        self.squared_weights += np.bincount(number, None if weight is None else weight**2, of_all)
        for row, limit in enumerate(self.limits):
            slow = np.flatnonzero(times_s[counted] > limit.limit_s)
            self.above[row] += np.bincount(number[slow], None if weight is None else weight[slow], of_all)

    @property
    def simulated_share(self) -> Floats:
        """For each window, the simulated part of its requests: (Σ weights)² ÷ Σ weights², over their total (L. Kish, Survey Sampling, 1965)."""
        share: Floats = np.divide(self.total, self.squared_weights, out=np.ones_like(self.total), where=self.squared_weights > 0)
        return np.minimum(share, 1.0)

    @property
    def slow_requests(self) -> float:
        """The requests that are slower than the limit of the highest percentile."""
        return float(np.sum(self.above[-1]))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """Which windows miss the SLO."""

    missed: npt.NDArray[np.bool_]
    trials: int
    """The windows, less those whose outcome is known by that of others alone."""


def judge(tally: WindowTally, groups: npt.NDArray[np.int64] | None = None) -> Judgement:
    """The windows in which more requests are slower than a limit than it allows; those without requests do not miss the SLO.

    The windows of a group are judged as one. They count as one trial, unless they are 20 or more and further than six standard errors from
    missing the SLO or from keeping it.
    """
    windows = tally.total.size
    if groups is None:
        groups = np.arange(windows)
    total, size = np.bincount(groups, tally.total, windows), np.bincount(groups, minlength=windows)
    missed, margin = np.zeros(windows, dtype=np.bool_), np.full(windows, -np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):  # of groups without windows, or with a single one
        for limit, above in zip(tally.limits, tally.above, strict=True):
            missed |= np.bincount(groups, above, windows) > limit.allowed_share * total * (1 + _ROUNDING)
            excess = above - limit.allowed_share * tally.total
            mean = np.bincount(groups, excess, windows) / size
            variance = np.bincount(groups, (excess - mean[groups]) ** 2, windows) / (size - 1)
            margin = np.maximum(margin, mean / np.sqrt(variance / size))
        certain = (np.abs(margin) > _CERTAIN_ERRORS) & (size >= _CERTAIN_WINDOWS)
    return Judgement(missed[groups], int(np.sum(size[certain])) + int(np.count_nonzero(size[~certain])))


def pool_windows(
    load: Floats, is_steady: npt.NDArray[np.bool_], simulated_share: Floats, random: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Groups of windows in which some simulated replicas have as many requests as the whole fleet has in one window.

    With random splitting the replicas are independent queues. In windows of equal load for each replica, and steady demand and replicas, so
    are those of different windows, and the requests of n replicas in one window have the same distribution as those of m in n/m windows:
    the variance of the share of slow requests is that of the whole fleet. A window that is not steady stays alone, where a few replicas
    vary more than all; during an overload, or just after a start, most such windows are far from the limit.
    """
    groups = np.arange(load.size)
    steady = random.permutation(np.flatnonzero(is_steady))
    steady = steady[np.argsort(load[steady], kind="stable")]
    first = 0
    while first < steady.size:
        of_load = int(np.searchsorted(load[steady], load[steady[first]] * (1 + _SAME_LOAD), side="right"))
        level = steady[first:of_load]
        covered = np.cumsum(simulated_share[level])
        number = max(1, int(covered[-1] + _ROUNDING))
        which = np.minimum((covered / covered[-1] * number - _ROUNDING).astype(np.int64), number - 1)
        groups[level] = level[np.searchsorted(which, which)]
        first = of_load
    return groups


def clustered_share_interval(shares: Sequence[float], trials: int) -> Interval:
    """The mean share over periods of `trials` windows each, with its 90 % confidence interval.

    Windows of one period are correlated, so the interval is Clopper and Pearson's for the effective number of windows. That is the number
    of windows divided by the design effect (the variance between periods ÷ that of independent windows), times the squared ratio of
    Student's quantiles for windows and for periods. Source: E. L. Korn & B. I. Graubard, Survey Methodology 24 (1998). A single period
    shows no design effect: its windows count as independent.
    """
    number, mean = len(shares), sum(shares) / len(shares)
    effective, tail = float(number * trials), (1 - _CONFIDENCE) / 2
    if number > 1 and 0 < mean < 1:
        between = sum((share - mean) ** 2 for share in shares) / (number - 1) / number
        effective = min(effective, mean * (1 - mean) / between) if between else effective
        ratio = student_t_quantile(1 - tail, number * trials - 1) / student_t_quantile(1 - tail, number - 1)
        effective *= ratio**2
    return Interval(mean, *binomial_limits(mean * effective, effective, _CONFIDENCE))

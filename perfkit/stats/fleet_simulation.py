"""A fleet of replicas in virtual time: requests of a day, replicas that start and stop, and the windows in which the SLO is missed."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.autoscaling import ReplicaCourse
from perfkit.stats.distributions import student_t_quantile
from perfkit.stats.replica_queue import Limit, ServiceLaw, response_times
from perfkit.stats.steps import Floats, PeriodicSteps, Steps

REQUESTS_AT_MOST = 8_000_000
FEWEST_PERIODS, MOST_PERIODS = 4, 20
_LEAST_STRETCH, _MOST_LENGTH_S = 1.5, 20 * 86_400.0
_CONFIDENCE = 0.9

Policy = Callable[[npt.NDArray[np.int64], np.random.Generator], ReplicaCourse]
"""The replicas over time for the arrivals counted in each tick; both begin with the warm-up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sampling:
    """How much of the fleet is simulated."""

    periods: int
    """Independent days, or weeks."""
    replicas: int | None = None
    """Simulated replicas, which stand for all of them; None: every replica."""
    stretch: float = 1.0
    """Service times and limits are multiplied by this factor, and rates divided by it."""

    @property
    def is_whole(self) -> bool:
        """Whether every request of every replica is simulated."""
        return self.replicas is None and self.stretch == 1


@dataclasses.dataclass(frozen=True, slots=True)
class FleetDay:
    """The demand and what it is judged by. Rates in requests per second."""

    demand_per_s: PeriodicSteps
    law: ServiceLaw
    limits: tuple[Limit, ...]
    window_s: float = 60.0
    tick_s: float = 15.0
    warm_up_s: float = 3600.0
    """Simulated before the period, and not judged."""

    @property
    def length_s(self) -> float:
        """The length of a period."""
        return self.demand_per_s.length_s


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """A share with its 90 % interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True)
class FleetOutcome:
    """What the simulated periods show."""

    missed_time: Interval
    """The share of windows in which the SLO is missed."""
    worst_period: float
    """The largest such share of a simulated period; of a sampled fleet, which has one period, the same as the mean."""
    best_period: float
    slow_requests: float
    """The share of requests slower than the limit of the highest percentile."""
    replica_hours: float
    """Paid for, in a period."""
    fewest: int
    most: int
    ready: tuple[float, ...]
    """The mean number of ready replicas in each window."""
    always_running_share: tuple[float, ...]
    """For 1, 2, 3, … replicas, the share of time in which at least so many are running."""
    sampling: Sampling


def choose_sampling(day: FleetDay, replicas: float, requests_at_most: int = REQUESTS_AT_MOST) -> Sampling:
    """As many whole periods as the number of requests allows, at least four; otherwise one period of some replicas, stretched if need be.

    With random splitting each replica receives Poisson arrivals of its own, so that some replicas stand for all. A stretched queue has the
    same utilisation and the same share of slow requests; a backlog builds up and drains later by at most stretch times the limit.
    """
    requests = day.demand_per_s.mean * (day.length_s + day.warm_up_s)
    if requests * FEWEST_PERIODS <= requests_at_most:
        most = max(FEWEST_PERIODS, int(_MOST_LENGTH_S / day.length_s))
        return Sampling(min(MOST_PERIODS, most, int(requests_at_most / requests)))
    per_replica, at_once = requests / replicas, requests_at_most / 2  # what a single period holds in memory
    simulated = max(1, min(math.floor(at_once / per_replica), math.ceil(replicas)))
    stretch = per_replica * simulated / at_once
    return Sampling(1, simulated, stretch if stretch > _LEAST_STRETCH else 1.0)


def simulate_fleet(day: FleetDay, policy: Policy, sampling: Sampling, random: np.random.Generator) -> FleetOutcome:
    """Simulates periods of a fleet whose requests go to a replica at random.

    Arrivals are Poisson with the rate of the profile, which changes in steps. A stopped replica completes its requests. A window misses
    the SLO if more of the requests that arrive in it are slower than a limit than that limit allows; without requests it does not.
    """
    periods = [_simulate_period(day, policy, sampling, one) for one in random.spawn(sampling.periods)]
    missed = [float(np.mean(period.missed)) for period in periods]
    windows = periods[0].missed.size
    most = max(round(float(np.max(period.course.running.values))) for period in periods)
    end_s = day.warm_up_s + day.length_s
    middles = day.warm_up_s + (np.arange(windows, dtype=np.float64) + 0.5) * day.window_s
    return FleetOutcome(
        missed_time=share_interval(missed, windows),
        worst_period=max(missed),
        best_period=min(missed),
        slow_requests=sum(period.slow for period in periods) / max(sum(period.requests for period in periods), 1e-12),
        replica_hours=sum(period.course.running.integral(day.warm_up_s, end_s) for period in periods) / len(periods) / 3600,
        fewest=min(round(period.course.running.lowest(day.warm_up_s, end_s)) for period in periods),
        most=most,
        ready=tuple(np.mean([period.course.ready.at(middles) for period in periods], axis=0).tolist()),
        always_running_share=tuple(
            sum(period.course.running.share_at_least(number, day.warm_up_s, end_s) for period in periods) / len(periods)
            for number in range(1, most + 1)
        ),
        sampling=sampling,
    )


def share_interval(shares: Sequence[float], trials: int) -> Interval:
    """The mean of the shares of several periods, each of `trials` windows, with its 90 % interval.

    Clopper and Pearson's interval with the effective number of trials: windows of a period are not independent, so the number is
    divided by the variance between periods over that of independent windows, and by the squared ratio of Student's quantiles. Source: E. L.
    Korn & B. I. Graubard, Survey Methodology 24 (1998). With one period the windows are taken as independent.
    """
    from scipy.special import betaincinv

    number, mean = len(shares), sum(shares) / len(shares)
    effective, tail = float(number * trials), (1 - _CONFIDENCE) / 2
    if number > 1 and 0 < mean < 1:
        between = sum((share - mean) ** 2 for share in shares) / (number - 1) / number
        effective = min(effective, mean * (1 - mean) / between) if between else effective
        ratio = student_t_quantile(1 - tail, number * trials - 1) / student_t_quantile(1 - tail, number - 1)
        effective *= ratio**2
    missed, met = mean * effective, (1 - mean) * effective
    low = float(betaincinv(missed, met + 1, tail)) if missed else 0.0
    high = float(betaincinv(missed + 1, met, 1 - tail)) if met else 1.0
    return Interval(mean, low, high)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Period:
    missed: npt.NDArray[np.bool_]
    slow: float
    requests: float
    course: ReplicaCourse


def _simulate_period(day: FleetDay, policy: Policy, sampling: Sampling, random: np.random.Generator) -> _Period:
    end_s = day.warm_up_s + day.length_s
    ticks = np.arange(round(end_s / day.tick_s)) * day.tick_s
    counts = random.poisson(day.demand_per_s.at(ticks - day.warm_up_s + day.tick_s / 2) * day.tick_s).astype(np.int64)
    course = policy(counts, random)
    lowest = _simulated_replicas(round(float(np.max(course.ready.values))), sampling.replicas)
    if not sampling.is_whole:
        ready = course.ready.at(ticks + day.tick_s / 2)
        counts = random.poisson(counts * np.searchsorted(lowest, ready) / ready / sampling.stretch)
    arrivals = np.sort(np.repeat(ticks, counts) + random.uniform(0, day.tick_s, int(np.sum(counts))))
    replica, weights = _split(arrivals, course.ready, lowest, random)
    if lowest.size > 1:  # a replica's requests follow each other
        order = np.argsort(replica, kind="stable")
        arrivals, replica, weights = arrivals[order], replica[order], weights[order]
    restarts = _restarts(arrivals, replica, lowest, course.ready)
    served = day.law.draw(arrivals.size, random) * sampling.stretch
    times = response_times(arrivals, served, day.law.servers, restarts)
    return _judged(day, arrivals, times / sampling.stretch, weights * sampling.stretch, course)


def _simulated_replicas(most: int, simulated: int | None) -> npt.NDArray[np.int64]:
    """The replicas that are simulated, numbered from 0 in the order of starting; each stands for those up to the next one."""
    if simulated is None or simulated >= most:
        return np.arange(most)
    return np.unique(np.floor(np.arange(simulated) * most / simulated).astype(np.int64))


def _split(
    arrivals: Floats, ready: Steps, lowest: npt.NDArray[np.int64], random: np.random.Generator
) -> tuple[npt.NDArray[np.int64], Floats]:
    """The replica of each request, at random among the simulated ones that are ready, and the number of replicas that it stands for.

    The replica that was started last is stopped first, so the ready ones are always the first so many.
    """
    count = ready.at(arrivals)
    among = np.searchsorted(lowest, count)  # simulated replicas below the count
    chosen = np.minimum((random.uniform(size=arrivals.size) * among).astype(np.int64), among - 1)
    following = np.append(lowest[1:], np.iinfo(np.int64).max)
    return chosen, np.minimum(count, following[chosen]) - lowest[chosen]


def _restarts(arrivals: Floats, replica: npt.NDArray[np.int64], lowest: npt.NDArray[np.int64], ready: Steps) -> npt.NDArray[np.int64]:
    """The indices of the requests, ordered by replica, that are the first since their replica was started."""
    first = np.flatnonzero(np.diff(replica, prepend=-1))
    found = [first]
    for begin, end in itertools.pairwise([*first.tolist(), replica.size]):
        is_up = ready.values > lowest[replica[begin]]
        started_s = ready.starts_s[1:][is_up[1:] & ~is_up[:-1]]
        found.append(begin + np.searchsorted(arrivals[begin:end], started_s))
    indices = np.unique(np.concatenate(found))
    return indices[indices < replica.size]


def _judged(day: FleetDay, arrivals: Floats, times: Floats, weights: Floats, course: ReplicaCourse) -> _Period:
    windows = round(day.length_s / day.window_s)
    number = np.floor((arrivals - day.warm_up_s) / day.window_s).astype(np.int64)
    counted = (number >= 0) & (number < windows)
    number, times, weights = number[counted], times[counted], weights[counted]
    total = np.bincount(number, weights, windows)
    missed, slow = np.zeros(windows, dtype=np.bool_), 0.0
    for limit in sorted(day.limits, key=lambda limit: limit.quantile):
        above = np.bincount(number, weights * (times > limit.limit_s), windows)
        missed |= above > limit.allowed_share * total * (1 + 1e-9)
        slow = float(np.sum(above))
    return _Period(missed, slow, float(np.sum(total)), course)

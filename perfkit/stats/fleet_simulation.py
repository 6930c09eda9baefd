"""Simulation of a fleet over days or weeks: random arrivals, replicas that start and stop, and the windows that miss the SLO."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.autoscaling import ReplicaCourse
from perfkit.stats.distributions import binomial_limits, student_t_quantile
from perfkit.stats.replica_queue import Limit, ServiceLaw, response_times
from perfkit.stats.steps import Floats, PeriodicSteps, Steps

REQUESTS_AT_MOST = 8_000_000
FEWEST_PERIODS, MOST_PERIODS = 4, 20
_LEAST_STRETCH, _MOST_LENGTH_S = 1.5, 20 * 86_400.0
_CONFIDENCE = 0.9

Policy = Callable[[npt.NDArray[np.int64], np.random.Generator], ReplicaCourse]
"""Gives the replicas over time from the number of arrivals in each tick; both begin with the warm-up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sampling:
    """The part of the fleet that is simulated."""

    periods: int
    """The number of independent days, or weeks."""
    replicas: int | None = None
    """The number of simulated replicas, which represent all of them; None: every replica."""
    stretch: float = 1.0
    """The factor on service times and limits; rates are divided by it, so that fewer requests are simulated."""

    @property
    def is_whole(self) -> bool:
        """Whether every request of every replica is simulated."""
        return self.replicas is None and self.stretch == 1


@dataclasses.dataclass(frozen=True, slots=True)
class FleetDay:
    """The demand over a period, the service law of a replica, and the SLO."""

    demand_per_s: PeriodicSteps
    law: ServiceLaw
    limits: tuple[Limit, ...]
    window_s: float = 60.0
    """The SLO is judged in each window of this length."""
    tick_s: float = 15.0
    """The arrival rate is constant within a tick."""
    warm_up_s: float = 3600.0
    """The time simulated before the period and not judged."""

    @property
    def length_s(self) -> float:
        """The length of a period."""
        return self.demand_per_s.length_s


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """A share with its 90 % confidence interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True)
class FleetOutcome:
    """The result of the simulated periods."""

    missed_time: Interval
    """The share of windows in which the SLO is missed."""
    worst_period: float
    """The largest share of missed windows in one period; the same as the mean for a sampled fleet, which has one period."""
    slow_requests: float
    """The share of requests slower than the limit of the highest percentile."""
    replica_hours: float
    """The mean replica-hours paid for in a period."""
    fewest: int
    """The fewest replicas running at any time of the periods."""
    most: int
    """The most replicas running at any time of the periods."""
    ready: tuple[float, ...]
    """The number of ready replicas in the middle of each window, as a mean over the periods."""
    always_running_share: tuple[float, ...]
    """For 1, 2, 3, … replicas, the share of time in which at least that many are running."""
    sampling: Sampling


def choose_sampling(day: FleetDay, replicas: float, requests_at_most: int = REQUESTS_AT_MOST) -> Sampling:
    """The largest sample that the number of requests allows: at least four periods of all replicas, or one period of some.

    Under random splitting, each replica receives independent Poisson arrivals, so some replicas represent all. If even one replica
    receives too many requests, its queue is stretched. A stretched queue has the same utilisation and the same share of slow requests.
    Its backlog builds up and drains later, by at most `stretch` times the limit.
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
    """Simulate periods of a fleet under random splitting.

    Arrivals are Poisson with the rate of the demand. A stopped replica completes its requests. A window misses the SLO if the share of
    its arrivals slower than a limit is larger than the limit allows. A window without requests does not miss it.
    """
    periods = [_simulate_period(day, policy, sampling, one) for one in random.spawn(sampling.periods)]
    missed = [float(np.mean(period.missed)) for period in periods]
    windows = periods[0].missed.size
    end_s = day.warm_up_s + day.length_s
    running = np.concatenate([period.course.running.within(day.warm_up_s, end_s) for period in periods])
    fewest, most = round(float(running.min())), round(float(running.max()))
    middles = day.warm_up_s + (np.arange(windows, dtype=np.float64) + 0.5) * day.window_s
    return FleetOutcome(
        missed_time=clustered_share_interval(missed, windows),
        worst_period=max(missed),
        slow_requests=sum(period.slow for period in periods) / max(sum(period.requests for period in periods), 1e-12),
        replica_hours=sum(period.course.running.integral(day.warm_up_s, end_s) for period in periods) / len(periods) / 3600,
        fewest=fewest,
        most=most,
        ready=tuple(np.mean([period.course.ready.at(middles) for period in periods], axis=0).tolist()),
        always_running_share=tuple(
            sum(period.course.running.share_at_least(number, day.warm_up_s, end_s) for period in periods) / len(periods)
            for number in range(1, most + 1)
        ),
        sampling=sampling,
    )


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
    if lowest.size > 1:  # response times are computed replica by replica
        order = np.argsort(replica, kind="stable")
        arrivals, replica, weights = arrivals[order], replica[order], weights[order]
    restarts = _restarts(arrivals, replica, lowest, course.ready)
    served = day.law.draw(arrivals.size, random) * sampling.stretch
    times = response_times(arrivals, served, day.law.servers, restarts)
    return _judged(day, arrivals, times / sampling.stretch, weights * sampling.stretch, course)


def _simulated_replicas(most: int, simulated: int | None) -> npt.NDArray[np.int64]:
    """The simulated replicas, numbered from 0 in the order of starting; each represents itself and those before the next one."""
    if simulated is None or simulated >= most:
        return np.arange(most)
    return np.unique(np.floor(np.arange(simulated) * most / simulated).astype(np.int64))


def _split(
    arrivals: Floats, ready: Steps, lowest: npt.NDArray[np.int64], random: np.random.Generator
) -> tuple[npt.NDArray[np.int64], Floats]:
    """The replica of each request, drawn from the simulated ones that are ready, and the number of replicas that it represents.

    The replica started last is stopped first, so `n` ready replicas are those numbered 0 to n - 1.
    """
    count = ready.at(arrivals)
    among = np.searchsorted(lowest, count)  # simulated replicas below the count
    chosen = np.minimum((random.uniform(size=arrivals.size) * among).astype(np.int64), among - 1)
    following = np.append(lowest[1:], np.iinfo(np.int64).max)
    return chosen, np.minimum(count, following[chosen]) - lowest[chosen]


def _restarts(arrivals: Floats, replica: npt.NDArray[np.int64], lowest: npt.NDArray[np.int64], ready: Steps) -> npt.NDArray[np.int64]:
    """The indices, in requests ordered by replica, of the first request after each start of a replica."""
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

"""Simulation of a fleet over days or weeks: random arrivals, replicas that start and stop, and the windows that miss the SLO."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from perfkit.plan.replica_queue import (
    Interval,
    Limit,
    ServiceLaw,
    WindowTally,
    clustered_share_interval,
    judge,
    pool_windows,
    response_times,
)
from perfkit.plan.steps import Floats, PeriodicSteps, ReplicaCourse, Steps

FEWEST_PERIODS, MOST_PERIODS = 4, 20
_MOST_OF_MORE_PERIODS = 8_000_000
"""More than four periods are simulated up to so many requests."""
_MOST_ONE_SERVER, _MOST_SEVERAL_SERVERS = 40_000_000, 12_000_000
_AT_ONCE, _JUST_BEFORE_S = 1_000_000, 1e-6
"""Requests held in memory; before a replica that starts at the same instant."""
_MOST_LENGTH_S = 20 * 86_400.0
_QUARTERS, _STEADY_WITHIN = 4, 0.02
"""A window and the one before it are steady if the load of their quarters differs by at most this share."""

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
class FleetOutcome:
    """The result of the simulated periods."""

    missed_time: Interval
    """The share of windows in which the SLO is missed."""
    worst_period: float
    """The largest share of missed windows of any period. A sampled fleet is simulated for one period only."""
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


def requests_at_most(law: ServiceLaw) -> int:
    """The requests that are simulated in a few seconds; several servers need a loop over the requests, one does not."""
    return _MOST_ONE_SERVER if law.servers == 1 else _MOST_SEVERAL_SERVERS


def choose_sampling(day: FleetDay, replicas: float, at_most: int | None = None) -> Sampling:
    """The largest sample that the number of requests allows: four or more periods of all replicas, one of all, or one of some.

    Under random splitting, each replica receives independent Poisson arrivals, so some replicas represent all. If even one replica
    receives too many requests, its queue is stretched. A stretched queue has the same utilisation and the same share of slow requests.
    Its backlog builds up and drains later, by at most `stretch` times the limit.
    """
    at_most = requests_at_most(day.law) if at_most is None else at_most
    requests = max(day.demand_per_s.mean * (day.length_s + day.warm_up_s), 1e-9)
    if requests <= at_most:
        if requests * FEWEST_PERIODS > at_most:
            return Sampling(1)
        more = min(MOST_PERIODS, int(_MOST_LENGTH_S / day.length_s), int(_MOST_OF_MORE_PERIODS / requests))
        return Sampling(max(FEWEST_PERIODS, more))
    return Sampling(1, max(1, math.floor(at_most * replicas / requests)), max(1.0, requests / replicas / at_most))


def simulate_fleet(day: FleetDay, policy: Policy, sampling: Sampling, random: np.random.Generator) -> FleetOutcome:
    """Simulate periods of a fleet under random splitting.

    Arrivals are Poisson with the rate of the demand. A stopped replica completes its requests. A window misses the SLO if the share of
    its arrivals slower than a limit is larger than the limit allows. A window without requests does not miss it. If some replicas
    represent all, steady windows are judged together (`pool_windows`).
    """
    periods = [_simulate_period(day, policy, sampling, one) for one in random.spawn(sampling.periods)]
    missed = [period.missed for period in periods]
    windows = round(day.length_s / day.window_s)
    end_s = day.warm_up_s + day.length_s
    running = np.concatenate([period.course.running.within(day.warm_up_s, end_s) for period in periods])
    fewest, most = round(float(running.min())), round(float(running.max()))
    middles = day.warm_up_s + (np.arange(windows, dtype=np.float64) + 0.5) * day.window_s
    return FleetOutcome(
        missed_time=clustered_share_interval(missed, min(period.trials for period in periods)),
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Period:
    missed: float
    trials: int
    slow: float
    requests: float
    course: ReplicaCourse


def _simulate_period(day: FleetDay, policy: Policy, sampling: Sampling, random: np.random.Generator) -> _Period:
    ticks = np.arange(round((day.warm_up_s + day.length_s) / day.tick_s), dtype=np.float64) * day.tick_s
    counts = random.poisson(day.demand_per_s.at(ticks - day.warm_up_s + day.tick_s / 2) * day.tick_s).astype(np.int64)
    course = policy(counts, random)
    tally = _Requests(day, sampling, course.ready, _Pieces.of(ticks, day.tick_s, counts, course.ready, random), random).simulate()
    groups = None
    if not sampling.is_whole:
        load, is_steady = _loads(day, course.ready)
        groups = pool_windows(load, is_steady, tally.simulated_share, random)
    judgement = judge(tally, groups)
    return _Period(float(np.mean(judgement.missed)), judgement.trials, tally.slow_requests, float(np.sum(tally.total)), course)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """Stretches of time without a change of the ready replicas."""

    starts_s: Floats
    lengths_s: Floats
    counts: npt.NDArray[np.int64]
    """Arrivals."""
    ready: npt.NDArray[np.int64]

    @classmethod
    def of(cls, ticks: Floats, tick_s: float, counts: npt.NDArray[np.int64], ready: Steps, random: np.random.Generator) -> "_Pieces":
        """The ticks, cut where the number of ready replicas changes; arrivals of a tick are uniform in it."""
        end_s = float(ticks[-1]) + tick_s
        starts = np.union1d(ticks, ready.starts_s[(ready.starts_s > 0) & (ready.starts_s < end_s)])
        lengths = np.diff(starts, append=end_s)
        first = np.searchsorted(starts, ticks)
        after = np.append(first[1:], starts.size)
        split = np.zeros(starts.size, dtype=np.int64)
        split[first] = counts
        for tick in np.flatnonzero(after - first > 1).tolist():
            part = slice(first[tick], after[tick])
            split[part] = random.multinomial(counts[tick], lengths[part] / np.sum(lengths[part]))
        return cls(starts, lengths, split, ready.at(starts).astype(np.int64))


class _Requests:
    """The requests of a period: drawn, served and counted for some replicas, or for a part of the time, at once."""

    def __init__(self, day: FleetDay, sampling: Sampling, ready: Steps, pieces: _Pieces, random: np.random.Generator) -> None:
        self._day, self._sampling, self._ready, self._pieces, self._random = day, sampling, ready, pieces, random
        self._lowest = _simulated_replicas(round(float(np.max(ready.values))), sampling.replicas)
        self._span_s = day.warm_up_s + day.length_s + 1.0
        """By which the times of each replica are shifted against those of the one before it."""
        self._tally = WindowTally(round(day.length_s / day.window_s), day.limits)

    def simulate(self) -> WindowTally:
        """Counts the requests.

        A request goes to each of the ready replicas with the same probability, so the arrivals of a piece are split by binomial thinning: the
        replicas before have taken theirs from those that are left.
        """
        pieces, lowest, left = self._pieces, self._lowest, self._pieces.counts.copy()
        busiest = max(1.0, float(np.sum(left / np.maximum(pieces.ready, 1))) / self._sampling.stretch)
        at_once = max(1, int(_AT_ONCE / busiest))
        parts = np.array_split(np.arange(left.size), math.ceil(busiest / _AT_ONCE))
        for first in range(0, lowest.size, at_once):
            among = np.searchsorted(lowest[first : first + at_once], pieces.ready)
            without = pieces.ready * self._sampling.stretch - np.searchsorted(lowest[:first], pieces.ready)
            share = np.divide(among, without, out=np.zeros(without.size), where=among > 0)
            taken = self._random.binomial(left, np.minimum(share, 1.0))
            left -= taken
            busy_until_s = np.zeros(0)
            for part in parts:
                arrivals = self._draw(part, taken[part], among[part])
                ends_s = self._serve(arrivals, float(pieces.starts_s[part[0]]), busy_until_s, first)
                if len(parts) > 1:  # of one replica
                    busy_until_s = np.sort(ends_s)[-self._day.law.servers :]
        return self._tally

    def _draw(self, part: npt.NDArray[np.intp], taken: npt.NDArray[np.int64], among: npt.NDArray[np.intp]) -> Floats:
        """The arrivals at the replicas, ordered by replica and time."""
        place = self._random.uniform(size=int(np.sum(taken))) * np.repeat(among, taken)
        replica = np.floor(place)
        within_s = (place - replica) * np.repeat(self._pieces.lengths_s[part], taken)
        arrivals = replica * self._span_s + np.repeat(self._pieces.starts_s[part], taken) + within_s
        arrivals.sort()
        return arrivals

    def _serve(self, arrivals: Floats, start_s: float, busy_until_s: Floats, first: int) -> Floats:
        """Serves and counts the requests, and returns when each ends.

        `busy_until_s` are the latest ends of the part before, which are those at which its servers become idle if they serve first come, first
        served; their work counts as requests that arrive just before the start.
        """
        day, stretch = self._day, self._sampling.stretch
        before_s = start_s - _JUST_BEFORE_S
        work = busy_until_s[busy_until_s > start_s] - before_s
        arrivals = np.concatenate((np.full(work.size, before_s), arrivals))
        served = np.concatenate((work, day.law.draw(arrivals.size - work.size, self._random) * stretch))
        times = response_times(arrivals, served, day.law.servers, self._restarts(arrivals, first))
        ends_s = arrivals + times
        arrivals, times = arrivals[work.size :], times[work.size :] / stretch
        replica = np.floor(arrivals / self._span_s).astype(np.int64)
        instants = arrivals - replica * self._span_s
        weights = None
        if not self._sampling.is_whole:
            following = np.append(self._lowest[1:], np.iinfo(np.int64).max)
            index = first + replica
            weights = (np.minimum(self._ready.at(instants), following[index]) - self._lowest[index]) * stretch
        self._tally.add(np.floor((instants - day.warm_up_s) / day.window_s).astype(np.int64), times, weights)
        return ends_s

    def _restarts(self, arrivals: Floats, first: int) -> npt.NDArray[np.int64]:
        """The indices of the arrivals that are the first since their replica was started."""
        started = [np.zeros(0)]
        replicas = math.floor(arrivals[-1] / self._span_s) + 1 if arrivals.size else 0
        for place, number in enumerate(self._lowest[first : first + replicas].tolist()):
            is_up = self._ready.values > number
            started.append(place * self._span_s + np.append(0.0, self._ready.starts_s[1:][is_up[1:] & ~is_up[:-1]]))
        indices = np.unique(np.searchsorted(arrivals, np.concatenate(started)))
        return indices[indices < arrivals.size]


def _simulated_replicas(most: int, simulated: int | None) -> npt.NDArray[np.int64]:
    """The simulated replicas, numbered from 0 in the order of starting; each represents itself and those before the next one."""
    if simulated is None or simulated >= most:
        return np.arange(most)
    return np.unique(np.floor(np.arange(simulated) * most / simulated).astype(np.int64))


def _loads(day: FleetDay, ready: Steps) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The demand for each ready replica in the windows of the period, and whether it is steady: unchanged since the window before, and without backlog."""
    before = max(1, int(day.warm_up_s / day.window_s))
    windows = before + round(day.length_s / day.window_s)
    quarter_s = day.window_s / _QUARTERS
    instants = (np.arange(windows * _QUARTERS) + 0.5) * quarter_s - before * day.window_s
    load = day.demand_per_s.at(instants) / np.maximum(ready.at(instants + day.warm_up_s), 1)
    work = np.cumsum((load / day.law.saturation_per_s - 1) * quarter_s)
    backlog = work - np.minimum.accumulate(np.minimum(work, 0.0))
    load = load.reshape(windows, _QUARTERS)
    highest, lowest = load.max(axis=1), load.min(axis=1)
    highest, lowest = np.maximum(highest[1:], highest[:-1]), np.minimum(lowest[1:], lowest[:-1])
    has_backlog = backlog.reshape(windows, _QUARTERS).max(axis=1) > 0
    is_steady = (highest <= lowest * (1 + _STEADY_WITHIN)) & ~has_backlog[1:] & ~has_backlog[:-1]
    return load[before:].mean(axis=1), is_steady[before - 1 :]

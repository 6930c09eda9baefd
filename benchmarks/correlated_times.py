"""Series of response times in virtual time, from independent ones to those whose slow requests come in few groups.

Each series gives the arrivals and the times of several runs at once, both in seconds, of shape (runs, requests), from a number of requests and
the mean rate of their arrivals. The window begins in the stationary state, at a random phase of what is periodic.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.simulated_queues import Floats

_SETTLE = 30_000
"""The requests before the window of a queue, at a load of 0.9 and above; fewer below."""

Random = np.random.Generator
Make = Callable[[Random, int, int, float], tuple[Floats, Floats]]
"""The numbers of requests of the runs, and the rate per second."""


class TimeSeries(NamedTuple):
    """A named series."""

    name: str
    make: Make
    is_independent: bool = False
    """Whether the times of its requests are independent."""
    is_smooth: bool = True
    """Whether they have a density without gaps, so that the width of an interval is that of the density."""
    is_drifting: bool = False
    """Whether the distribution depends on the length of the window."""


def _poisson(random: Random, runs: int, count: int, rate_per_s: float) -> Floats:
    arrivals: Floats = np.cumsum(random.exponential(1 / rate_per_s, (runs, count)), axis=1)
    return arrivals


def _independent(draw: Callable[[Random, tuple[int, int]], Floats]) -> Make:
    return lambda random, runs, count, rate_per_s: (_poisson(random, runs, count, rate_per_s), draw(random, (runs, count)))


def _bimodal(random: Random, size: tuple[int, int]) -> Floats:
    return random.normal(np.where(random.random(size) < 0.2, 0.02, 0.01), 0.001)


def _one_in_a_hundred(random: Random, size: tuple[int, int]) -> Floats:
    return random.exponential(0.01, size) + np.where(random.random(size) < 0.01, 0.5, 0.0)


def _responses(arrivals: Floats, served: Floats) -> Floats:
    """The response times of one server, first come, first served, for each row: Lindley's recursion as a sum less its running minimum."""
    walk = np.cumsum(served[:, :-1] - np.diff(arrivals, axis=1), axis=1)
    walk = np.concatenate((np.zeros((len(walk), 1)), walk), axis=1)
    waits: Floats = walk - np.minimum.accumulate(walk, axis=1) + served
    return waits


def _tail(arrivals: Floats, times: Floats, count: int) -> tuple[Floats, Floats]:
    """The last requests, their arrivals counted from the one before them."""
    start = arrivals[:, -count - 1 : -count] if arrivals.shape[1] > count else np.zeros((len(arrivals), 1))
    return arrivals[:, -count:] - start, times[:, -count:]


def _settle(load: float) -> int:
    return _SETTLE if load >= 0.9 else 6000


def single_server(load: float, draw: Callable[[Random, tuple[int, int]], Floats] | None = None, batch: float = 1.0) -> Make:
    """One server; `draw` are service times of mean 1 (exponential without), and arrivals come in geometric batches of this mean size."""

    def make(random: Random, runs: int, count: int, rate_per_s: float) -> tuple[Floats, Floats]:
        size = (runs, count + _settle(load))
        gaps = random.exponential(batch / rate_per_s, size)
        if batch > 1:
            gaps[random.random(size) >= 1 / batch] = 0.0
        served = (random.exponential(1, size) if draw is None else draw(random, size)) * load / rate_per_s
        arrivals = np.cumsum(gaps, axis=1)
        return _tail(arrivals, _responses(arrivals, served), count)

    return make


def several_servers(servers: int, load: float) -> Make:
    """M/M/c: Kiefer and Wolfowitz's recursion, a step for all runs at once."""

    def make(random: Random, runs: int, count: int, rate_per_s: float) -> tuple[Floats, Floats]:
        size = (runs, count + _settle(load))
        gaps, served = random.exponential(1 / rate_per_s, size), random.exponential(servers * load / rate_per_s, size)
        work, times = np.zeros((runs, servers)), np.empty(size)
        rows = np.arange(runs)
        for index in range(size[1]):
            np.maximum(work - gaps[:, index, None], 0.0, out=work)
            first = work.argmin(axis=1)
            ends = work[rows, first] + served[:, index]
            times[:, index] = work[rows, first] = ends
        return _tail(np.cumsum(gaps, axis=1), times, count)

    return make


def modulated(low: float, high: float, sojourn_s: float) -> Make:
    """An exponential server under Poisson arrivals whose rate alternates between two loads, for exponential times of one mean (MMPP)."""

    def make(random: Random, runs: int, count: int, rate_per_s: float) -> tuple[Floats, Floats]:
        size, mean = (runs, count + _SETTLE), (low + high) / 2
        phases = int(3 * size[1] / rate_per_s / sojourn_s) + 200
        lengths = random.exponential(sojourn_s, (runs, phases))
        loads = np.where((np.arange(phases) + random.integers(0, 2, (runs, 1))) % 2, low, high) / mean
        edges = np.concatenate((np.zeros((runs, 1)), np.cumsum(lengths, axis=1)), axis=1)
        expected = np.concatenate((np.zeros((runs, 1)), np.cumsum(lengths * loads, axis=1)), axis=1)
        arrivals = np.stack(
            [np.interp(row, at, edge) for row, at, edge in zip(_poisson(random, *size, rate_per_s), expected, edges, strict=True)]
        )
        return _tail(arrivals, _responses(arrivals, random.exponential(mean / rate_per_s, size)), count)

    return make


def pausing(load: float, pause_s: float, every_s: float, *, is_periodic: bool) -> Make:
    """An exponential server that pauses, periodically or at exponential intervals, and works off what has come meanwhile."""

    def make(random: Random, runs: int, count: int, rate_per_s: float) -> tuple[Floats, Floats]:
        size = (runs, count + _settle(load))
        arrivals = _poisson(random, *size, rate_per_s)
        number = int(2 * arrivals.max() / every_s) + 20
        gaps = np.full((runs, number), every_s - pause_s) if is_periodic else random.exponential(every_s - pause_s, (runs, number))
        gaps[:, 0] *= random.random(runs) if is_periodic else 1.0
        times = np.empty(size)
        served = random.exponential(load / rate_per_s, size)
        for run in range(runs):
            starts = np.cumsum(gaps[run]) + pause_s * np.arange(number)  # of the pauses, on the clock
            clock = np.concatenate(([0.0], np.column_stack((starts, starts + pause_s)).ravel()))
            worked = np.concatenate(([0.0], np.repeat(np.cumsum(gaps[run]), 2)))
            came = np.interp(arrivals[run], clock, worked)
            ends = came + _responses(came[None], served[run][None])[0]
            times[run] = np.interp(ends, worked + np.arange(worked.size) * 1e-12, clock) - arrivals[run]
        return _tail(arrivals, np.maximum(times, 0.0), count)

    return make


def slower_at_times(on_s: float, off_s: float, factor: float) -> Make:
    """Independent exponential times, longer by a factor for `off_s` after each `on_s`."""

    def make(random: Random, runs: int, count: int, rate_per_s: float) -> tuple[Floats, Floats]:
        arrivals = _poisson(random, runs, count, rate_per_s)
        phase = (arrivals + random.uniform(0, on_s + off_s, (runs, 1))) % (on_s + off_s)
        return arrivals, random.exponential(0.01, (runs, count)) * np.where(phase < on_s, 1.0, factor)

    return make


def drifting(by: float, load: float = 0.0) -> Make:
    """Times that rise by a share over the window, of independent requests or of M/M/1 at a load that rises as much."""

    def make(random: Random, runs: int, count: int, rate_per_s: float) -> tuple[Floats, Floats]:
        rise = 1 + by * np.arange(count) / count
        if not load:
            return _poisson(random, runs, count, rate_per_s), random.exponential(0.01, (runs, count)) * rise
        size = (runs, count + _settle(load))
        served = random.exponential(load / rate_per_s, size)
        served[:, -count:] *= rise
        arrivals = _poisson(random, *size, rate_per_s)
        return _tail(arrivals, _responses(arrivals, served), count)

    return make


def _lognormal(cv: float) -> Callable[[Random, tuple[int, int]], Floats]:
    variance = math.log1p(cv**2)
    return lambda random, size: random.lognormal(-variance / 2, math.sqrt(variance), size)


SERIES = (
    TimeSeries("exponential", _independent(lambda random, size: random.exponential(0.01, size)), is_independent=True),
    TimeSeries("lognormal", _independent(lambda random, size: random.lognormal(-4.6, 1, size)), is_independent=True),
    TimeSeries("Pareto", _independent(lambda random, size: 0.01 * (1 + random.pareto(2.1, size))), is_independent=True),
    TimeSeries("bimodal", _independent(_bimodal), is_independent=True, is_smooth=False),
    TimeSeries("1 % take 0.5 s longer", _independent(_one_in_a_hundred), is_independent=True, is_smooth=False),
    TimeSeries("M/M/4, 80 %", several_servers(4, 0.8)),
    TimeSeries("M/M/1, 80 %", single_server(0.8)),
    TimeSeries("M/M/1, 90 %", single_server(0.9)),
    TimeSeries("M/D/1, 80 %", single_server(0.8, lambda _, size: np.ones(size))),
    TimeSeries("M/G/1, cv 2, 80 %", single_server(0.8, _lognormal(2.0))),
    TimeSeries("M/G/1, cv 2, 95 %", single_server(0.95, _lognormal(2.0))),
    TimeSeries("batches of 8, 70 %", single_server(0.7, batch=8.0)),
    TimeSeries("MMPP, 30 % and 110 %", modulated(0.3, 1.1, 0.1)),
    TimeSeries("pauses of 20 ms, each 0.5 s on average", pausing(0.5, 0.02, 0.5, is_periodic=False)),
    TimeSeries("slower by 3 for 0.2 s after each 1 s", slower_at_times(1.0, 0.2, 3.0)),
    TimeSeries("a stall of 0.2 s each 10 s", pausing(0.7, 0.2, 10.0, is_periodic=True)),
    TimeSeries("drift by a tenth", drifting(0.1), is_drifting=True),
    TimeSeries("M/M/1, 70 %, drift by a tenth", drifting(0.1, load=0.7), is_drifting=True),
)

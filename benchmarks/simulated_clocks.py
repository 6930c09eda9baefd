"""Arrivals of a fleet whose machines' clocks are wrong, in virtual time."""

import itertools
import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.simulated_queues import response_times
from perfkit.load.arrivals import Instants, Law, Schedule, constant_rate
from perfkit.units import NS_PER_S

_UTILIZATION = 0.8

Division = Literal["blocks", "in turn", "at random"]
DIVISIONS: dict[Division, str] = {
    "blocks": "the first machine has the first workers, the second the next ones; neighbouring arrivals come from one machine.",
    "in turn": "neighbouring workers are on different machines, and each machine gets every m-th arrival: so does perfkit.",
    "at random": "each arrival goes to a machine drawn at random, as one that draws its own arrivals would have it.",
}


def superposed_arrivals(
    law: Law, rate_per_s: float, count: int, machines: int, workers_per_machine: int, largest_error_ns: int, division: Division, seed: int
) -> Instants:
    """About `count` arrivals at the server, in order, if each machine's clock is off by up to `largest_error_ns`.

    Both ends, where some machines have not begun or have ended, are left out.
    """
    count += math.ceil(2 * largest_error_ns * rate_per_s / NS_PER_S)
    random = np.random.default_rng([seed, machines, largest_error_ns])
    chunks = Schedule(law, constant_rate(rate_per_s), (seed,)).chunks()
    arrivals = np.concatenate(list(itertools.islice(chunks, -(-count // 4096))))[:count]
    worker = np.arange(count) % (machines * workers_per_machine)
    match division:
        case "blocks":
            machine = worker // workers_per_machine
        case "in turn":
            machine = worker % machines
        case "at random":
            machine = random.integers(0, machines, count)
    errors = random.integers(-largest_error_ns, largest_error_ns, machines, endpoint=True)
    shifted = np.sort(arrivals + errors[machine])
    inside: Instants = shifted[(shifted >= arrivals[0] + largest_error_ns) & (shifted <= arrivals[-1] - largest_error_ns)]
    return inside


def gap_variation(arrivals: Instants) -> float:
    """The coefficient of variation of the gaps: 0 for constant arrivals, 1 for Poisson."""
    gaps = np.diff(arrivals)
    return float(gaps.std() / gaps.mean())


def dispersion(arrivals: Instants, window_ns: int) -> float:
    """The variance of the number of arrivals in windows, divided by its mean: 0 for constant arrivals, 1 for Poisson at every length."""
    since = arrivals - arrivals[0]
    counts: npt.NDArray[np.int64] = np.bincount(since // window_ns)[: int(since[-1] // window_ns)]
    return float(counts.var() / counts.mean())


def mean_wait(arrivals: Instants, rate_per_s: float) -> float:
    """The mean wait at one server that is busy for 80 % of the time, beside that of Poisson arrivals (Pollaczek & Khinchine)."""
    service_ns = _UTILIZATION * NS_PER_S / rate_per_s
    times = response_times((arrivals - arrivals[0]).astype(np.float64), np.full(arrivals.size, service_ns))
    return float(times.mean() - service_ns) / (service_ns * _UTILIZATION / (2 * (1 - _UTILIZATION)))

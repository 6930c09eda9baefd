"""Clocks of a fleet's machines in virtual time: what the driver learns of them by round trips, and what errors do to the arrivals."""

import dataclasses
import itertools
import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.simulated_queues import response_times
from perfkit.fleet.fleet_machine import ClockError, clock_error, compare_clocks
from perfkit.load.arrivals import Instants, Law, Schedule, constant_rate
from perfkit.stats.clock_offset import ClockReading
from perfkit.units import NS_PER_S

TRIPS = 16
_START_NS = 10**15
_INSTANTS = 100
_UTILIZATION = 0.8

Division = Literal["blocks", "in turn", "at random"]
DIVISIONS: dict[Division, str] = {
    "blocks": "the first machine has the first workers, the second the next ones; neighbouring arrivals come from one machine.",
    "in turn": "neighbouring workers are on different machines, and each machine gets every m-th arrival: so does perfkit.",
    "at random": "each arrival goes to a machine drawn at random, as one that draws its own arrivals would have it.",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A network path to a machine: the least time of a round trip, the share of it on the way there, and the mean jitter of a way."""

    shortest_ns: float
    share_there: float
    jitter_ns: float


@dataclasses.dataclass(frozen=True, slots=True)
class MachineClock:
    """A machine's clock: constant drift, and a swing around it as temperature and NTP cause it."""

    offset_ns: int
    drift_ppm: float
    swing_ppm: float = 0.0
    period_s: float = 600.0

    def read(self, at_ns: int) -> int:
        """Its reading at an instant of the driver's clock."""
        since, turn = at_ns - _START_NS, 2 * math.pi / (self.period_s * NS_PER_S)
        return at_ns + self.offset_ns + round(1e-6 * (since * self.drift_ppm + self.swing_ppm / turn * math.sin(turn * since)))


@dataclasses.dataclass(frozen=True, slots=True)
class SimulatedError:
    """What is reported of the offset that a load point used, and how wrong it really was at most."""

    reported: ClockError
    true_ns: int

    @property
    def is_covered(self) -> bool:
        """Whether the bound holds."""
        return self.true_ns <= self.reported.bound_ns


def round_trips(clock: MachineClock, link: Link, at_ns: int, count: int, random: np.random.Generator) -> list[ClockReading]:
    """Round trips one after the other."""
    trips = []
    for _ in range(count):
        there = round(link.shortest_ns * link.share_there + random.exponential(link.jitter_ns))
        back = round(link.shortest_ns * (1 - link.share_there) + random.exponential(link.jitter_ns))
        trips.append(ClockReading(at_ns, clock.read(at_ns + there), at_ns + there + back))
        at_ns += there + back
    return trips


def simulate_point(clock: MachineClock, link: Link, length_s: int, random: np.random.Generator) -> SimulatedError:
    """A load point as the driver of a fleet does it: several round trips before, which give the offset, one each second, several after."""
    trips = round_trips(clock, link, _START_NS, TRIPS, random)
    used = compare_clocks(trips).offset_ns
    for second in range(1, length_s + 1):
        trips += round_trips(clock, link, _START_NS + second * NS_PER_S, TRIPS if second == length_s else 1, random)
    reported = clock_error(used, [compare_clocks([trip]) for trip in trips])
    times = np.linspace(trips[0].after_ns, trips[-1].before_ns, _INSTANTS).astype(np.int64).tolist()
    return SimulatedError(reported, max(abs(clock.read(at) - at - used) for at in times))


def simulate_errors(shortest_ns: float, length_s: int, largest_drift_ppm: float, points: int, seed: int) -> list[SimulatedError]:
    """Load points over random links of one length: any asymmetry, jitter of up to the round trip itself, drifts of either sign."""
    random = np.random.default_rng([seed, round(shortest_ns), length_s, round(largest_drift_ppm)])
    found = []
    for _ in range(points):
        link = Link(shortest_ns, random.uniform(0, 1), shortest_ns * random.choice([0.02, 0.2, 1.0]))
        drift_ppm = random.uniform(-largest_drift_ppm, largest_drift_ppm)
        swing_ppm = random.uniform(0, largest_drift_ppm - abs(drift_ppm))
        clock = MachineClock(int(random.integers(-(10**15), 10**15)), drift_ppm, swing_ppm, random.uniform(5, 2000))
        found.append(simulate_point(clock, link, length_s, random))
    return found


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

"""Calibration of a plan's risk: the share of the demands called 90 % safe that keep the SLO.

    python -m benchmarks.risk_calibration [--plans 140] [--seed 0] [--out reports/risk-calibration.md]
    python -m benchmarks.risk_calibration --live [--plans 40] [--out reports/risk-calibration-live.md]

Four servers are simulated: M/M/1, M/M/4, lognormal service times with a coefficient of variation of 2, and batches of up to eight. The
speed of their starts varies with a standard deviation of 3 %. Each is measured as docs/concepts/planning.md proposes: eight rates of 60 s, twice, in
three starts. Each plan calls two demands 90 % safe: an exact one for one replica, and one with an uncertainty of ±20 % for eight replicas.
Each demand is tried once, with new starts of the server and a demand drawn from its distribution; whether it keeps the SLO follows from
theory, for batches from runs of four million requests. Between 85 and 95 % of all demands must keep the SLO; otherwise the exit code is 1.
It takes about 15 minutes on one free core.

`--live` makes the plans from runs against the bundled server's model `synthetic`; see benchmarks/risk_calibration_live.py.
"""

import dataclasses
import functools
import math
import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads would only wait for each other

import numpy as np

from benchmarks.plan_simulation import REPETITIONS, SHARES, Simulate, batching, lognormal, measure, mm4
from benchmarks.report import Report, program_options
from benchmarks.risk_calibration_live import calibrate_live
from benchmarks.simulated_queues import (
    Floats,
    mg1_quantile,
    mmc_quantile,
    poisson_arrivals,
    response_times,
    service_survival,
    service_times,
)
from perfkit.plan.configuration import plan_configuration
from perfkit.plan.evidence import Evidence, OpenPoint
from perfkit.plan.fleet_risk import Demand, Splitting, holding_probability
from perfkit.plan.inputs import PlanInputs
from perfkit.plan.risk import SAFE, replica_capacity
from perfkit.stats.probability import binomial_limits
from perfkit.stats.slo import SloLimits
from perfkit.units import NS_PER_S

STARTS, RESTART_SD = 3, 0.03
FLEET, UNCERTAINTY = 8, 0.2
LEVELS, LOWEST, HIGHEST = (0.5, 0.75, SAFE, 0.95), 0.85, 0.95
_REQUESTS = 4_000_000


@dataclasses.dataclass(frozen=True)
class Server:
    """A simulated server that saturates at 100/s at its mean speed, with its p99 by rate."""

    name: str
    times: Simulate
    """The response times of arrivals at the mean speed, both in seconds."""
    capacity_per_s: float
    """The true capacity at the mean speed; the limit of the SLO is the p99 there."""
    rates_per_s: Floats
    log_p99: Floats
    """The logarithm of the p99 in seconds at each of `rates_per_s`."""

    @property
    def limit_s(self) -> float:
        """The limit of the SLO on the p99."""
        return math.exp(float(np.interp(self.capacity_per_s, self.rates_per_s, self.log_p99)))

    def capacity_at(self, speed: float) -> float:
        """The true capacity of a start whose speed is this multiple of the mean one: times are divided by it, rates multiplied."""
        return speed * float(np.interp(math.log(self.limit_s * speed), self.log_p99, self.rates_per_s))


def simulated_p99_s(times: Simulate, rate_per_s: float) -> float:
    """The p99 of a long run, without its first twentieth."""
    rng = np.random.default_rng([round(10 * rate_per_s), 31])
    found = times(poisson_arrivals(rate_per_s, _REQUESTS / rate_per_s, rng), rng)
    return float(np.quantile(found[found.size // 20 :], 0.99))


def mm1(arrivals: Floats, rng: np.random.Generator) -> Floats:
    """A server with exponential service times of 10 ms on average."""
    return response_times(arrivals, 0.01 * service_times(1, arrivals.size, rng))


NAMES = ["M/M/1", "M/M/4", "lognormal", "batches"]


def server(name: str) -> Server:
    """A server by its name, one of `NAMES`."""
    rates = np.arange(56.0, 96.1, 2.0)
    if name == "lognormal":
        p99 = [0.01 * mg1_quantile(0.99, 0.01 * float(rate), functools.partial(service_survival, 2)) for rate in rates]
        return Server(name, lognormal, 75.0, rates, np.log(p99))
    if name == "batches":
        p99 = [simulated_p99_s(batching, float(rate)) for rate in rates]
        return Server(name, batching, 80.0, rates, np.log(np.maximum.accumulate(p99)))
    servers = int(name[-1])
    p99 = [0.01 * servers * mmc_quantile(0.99, servers, 0.01 * float(rate)) for rate in rates]
    return Server(name, mm1 if servers == 1 else mm4, 85.0, rates, np.log(p99))


def measure_starts(simulated: Server, seconds: float, rng: np.random.Generator) -> Evidence:
    """The measurements of three starts of different speed, at rates placed by a guess of the capacity that is up to 10 % off."""

    def times(speed: float, arrivals: Floats, rng: np.random.Generator) -> Floats:
        return simulated.times(arrivals * speed, rng) / speed

    scale, points = simulated.capacity_per_s * rng.uniform(0.9, 1.1), list[OpenPoint]()
    for start in range(STARTS):
        own = functools.partial(times, math.exp(rng.normal(0.0, RESTART_SD)))
        points += [measure(own, round(share * scale, 2), seconds, start, number, rng) for number in range(REPETITIONS) for share in SHARES]
    sources = tuple(f"start {start}" for start in range(STARTS))
    return Evidence(simulated.name, "", "http", simulated.name, 1, "", sources, tuple(points), (), ())


def try_plan(simulated: Server, seed: int, number: int, seconds: float) -> tuple[float, float] | None:
    """The plan's P[SLO holds] at the highest demand that newly started replicas really serve; None if the plan is refused.

    The demand that the plan calls p safe keeps the SLO on these replicas if and only if the value is at most p. The first value is that of one
    replica and an exact demand, the second that of eight replicas and an uncertain demand.
    """
    rng = np.random.default_rng([seed, number, NAMES.index(simulated.name)])
    inputs = PlanInputs(SloLimits({0.99: round(simulated.limit_s * NS_PER_S)}, None), (1000.0,))
    plan = plan_configuration(measure_starts(simulated, seconds, rng), inputs, rng)
    if plan.capacity is None:
        return None
    replica = replica_capacity(plan.capacity, plan.curves[plan.slo_percentile].spread)
    capacities = np.array([simulated.capacity_at(float(speed)) for speed in np.exp(rng.normal(0.0, RESTART_SD, FLEET))])
    demand = Demand.within(1.0, UNCERTAINTY)
    drawn = math.exp(rng.normal(0.0, demand.log_sd))  # the demand, divided by its median
    served = Demand(FLEET * float(capacities.min()) / drawn, demand.log_sd)
    return holding_probability(replica, Demand(float(capacities[0])), Splitting(), 1), holding_probability(
        replica, served, Splitting(), FLEET
    )


def simulate(page: Report, names: list[str], plans: int, seed: int, seconds: float) -> None:
    """Whether between 85 and 95 % of all demands called 90 % safe keep the SLO."""
    page.add(
        f"{plans} plans a server, from {STARTS} starts of {len(SHARES)} rates of {seconds:g} s, each {REPETITIONS} times; the speed of starts varies by "
        f"{RESTART_SD:.0%}. Each plan's demands are tried with new starts: one replica with an exact demand, {FLEET} replicas with a demand uncertain by "
        f"±{UNCERTAINTY:.0%}. `kept at p`: the share of the demands called p safe that keep the SLO; p is the aim.",
        "",
    )
    page.table("server", ">plans", ">refused", "demand", *(f">kept at {level:.0%}" for level in LEVELS))
    everything = list[float]()
    for name in names:
        simulated = server(name)
        made = [trial for number in range(plans) if (trial := try_plan(simulated, seed, number, seconds)) is not None]
        for place, label in enumerate(("one replica", f"{FLEET} replicas, ±{UNCERTAINTY:.0%}")):
            values = [trial[place] for trial in made]
            everything += values
            kept_at = (f"{sum(value <= level for value in values) / max(len(values), 1):.1%}" for level in LEVELS)
            page.row(name, len(made), plans - len(made), label, *kept_at)
    kept = sum(value <= SAFE for value in everything)
    low, high = binomial_limits(kept, len(everything))
    share = kept / max(len(everything), 1)
    page.add(
        "",
        f"Of {len(everything):,} demands called {SAFE:.0%} safe, {kept:,} ({share:.1%}; exact 95 % interval {low:.1%} to {high:.1%}, as if all were independent) "
        f"keep the SLO; {LOWEST:.0%} to {HIGHEST:.0%} are required.",
    )
    page.is_met = LOWEST <= share <= HIGHEST


def main() -> int:
    """Prints the tables."""
    options = program_options(
        __doc__, plans=(int, "plans a server (140), or live plans in all (40)"), seed=0, seconds=(60.0, "simulated length of a rate"), servers=NAMES,
        live=(False, "plans from runs against the bundled server"), realtime=False, at_once=10,
    )  # fmt: skip
    if options.live:
        return calibrate_live(options.out, options.plans or 40, options.seed, options.at_once, realtime=options.realtime)
    page = Report(options.out, "Calibration of a plan's risk")
    simulate(page, options.servers, options.plans or 140, options.seed, options.seconds)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

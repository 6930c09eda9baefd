"""Calibration of a plan's risk: the share of the demands called 90 % safe that keep the SLO.

    python -m benchmarks.risk_calibration [--plans 140] [--seed 0] [--out reports/risk-calibration.md]
    python -m benchmarks.risk_calibration --live [--plans 40] [--out reports/risk-calibration-live.md]

Four servers are simulated: M/M/1, M/M/4, lognormal service times with a coefficient of variation of 2, and batches of up to eight. The
speed of their starts varies with a standard deviation of 3 %. Each is measured as docs/concepts/planning.md proposes: eight rates of 60 s, twice, in
three starts. Each plan calls two demands 90 % safe: an exact one for one replica, and one with an uncertainty of ±20 % for eight replicas.
Each demand is tried once, with new starts of the server and a demand drawn from its distribution; whether it keeps the SLO follows from
theory, for batches from runs of four million requests. Between 85 and 95 % of all demands must keep the SLO; otherwise the exit code is 1.
A second table shows the response times under the rules of load balancers. It takes about 15 minutes on one free core.

`--live` makes the plans from runs against the bundled server's model `synthetic`; see benchmarks/risk_calibration_live.py.
"""

import dataclasses
import functools
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads would only wait for each other

import numpy as np

from benchmarks.known_queues import lognormal_survival
from benchmarks.load_splitting import split_response_times
from benchmarks.plan_simulation import REPETITIONS, SHARES, batching, lognormal, measure, mm4
from benchmarks.report import option_parser, table_head, table_row, write_report
from benchmarks.simulated_queues import Floats, mg1_quantile, mmc_quantile, poisson_arrivals, response_times, service_times
from perfkit.plan.configuration import plan_configuration
from perfkit.plan.evidence import Evidence, OpenPoint
from perfkit.plan.fleet_risk import Demand, ReplicaCapacity, Splitting, holding_probability
from perfkit.plan.inputs import PlanInputs
from perfkit.plan.risk import SAFE, replica_capacity
from perfkit.stats.distributions import binomial_limits
from perfkit.stats.slo import SloLimits
from perfkit.units import NS_PER_S

SECONDS, STARTS, RESTART_SD = 60.0, 3, 0.03
FLEET, UNCERTAINTY = 8, 0.2
LEVELS, LOWEST, HIGHEST = (0.5, 0.75, SAFE, 0.95), 0.85, 0.95
_REQUESTS = 4_000_000


@dataclasses.dataclass(frozen=True)
class Server:
    """A simulated server that saturates at 100/s at its mean speed, with its p99 by rate."""

    name: str
    times: Callable[[Floats, np.random.Generator], Floats]
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


def simulated_p99_s(times: Callable[[Floats, np.random.Generator], Floats], rate_per_s: float, requests: int) -> float:
    """The p99 of a long run, without its first twentieth."""
    rng = np.random.default_rng([round(10 * rate_per_s), 31])
    found = times(poisson_arrivals(rate_per_s, requests / rate_per_s, rng), rng)
    return float(np.quantile(found[found.size // 20 :], 0.99))


def mm1(arrivals: Floats, rng: np.random.Generator) -> Floats:
    """A server with exponential service times of 10 ms on average."""
    return response_times(arrivals, 0.01 * service_times(1, arrivals.size, rng))


@functools.cache
def server(name: str, requests: int = _REQUESTS) -> Server:
    """A server by its name, `M/M/1`, `M/M/4`, `lognormal` or `batches`."""
    rates = np.arange(56.0, 96.1, 2.0)
    if name == "lognormal":
        p99 = [0.01 * mg1_quantile(0.99, 0.01 * float(rate), lognormal_survival) for rate in rates]
        return Server(name, lognormal, 75.0, rates, np.log(p99))
    if name == "batches":
        p99 = [simulated_p99_s(batching, float(rate), requests) for rate in rates]
        return Server(name, batching, 80.0, rates, np.log(np.maximum.accumulate(p99)))
    servers = int(name[-1])
    p99 = [0.01 * servers * mmc_quantile(0.99, servers, 0.01 * float(rate)) for rate in rates]
    return Server(name, mm1 if servers == 1 else mm4, 85.0, rates, np.log(p99))


NAMES = ("M/M/1", "M/M/4", "lognormal", "batches")


@dataclasses.dataclass(frozen=True)
class Trial:
    """The plan's P[SLO holds] at the highest demand that newly started replicas really serve.

    The demand that the plan calls p safe keeps the SLO on these replicas if and only if the value is at most p.
    """

    one: float
    """For one replica and an exact demand."""
    fleet: float
    """For eight replicas and an uncertain demand."""


def measure_starts(simulated: Server, seconds: float, restart_sd: float, rng: np.random.Generator) -> Evidence:
    """The measurements of three starts of different speed, at rates placed by a guess of the capacity that is up to 10 % off."""
    scale, points = simulated.capacity_per_s * rng.uniform(0.9, 1.1), list[OpenPoint]()
    for start in range(STARTS):
        speed = math.exp(rng.normal(0.0, restart_sd))

        def times(arrivals: Floats, rng: np.random.Generator, speed: float = speed) -> Floats:
            return simulated.times(arrivals * speed, rng) / speed

        points += [
            measure(times, round(share * scale, 2), seconds, start, number, rng) for number in range(REPETITIONS) for share in SHARES
        ]
    sources = tuple(f"start {start}" for start in range(STARTS))
    return Evidence(simulated.name, "", "http", simulated.name, 1, "", sources, tuple(points), (), ())


def try_plan(simulated: Server, seed: int, number: int, *, seconds: float = SECONDS, restart_sd: float = RESTART_SD) -> Trial | None:
    """One plan of a simulated server, tried with newly started replicas; None if the plan is refused."""
    rng = np.random.default_rng([seed, number, NAMES.index(simulated.name)])
    measured = measure_starts(simulated, seconds, restart_sd, rng)
    inputs = PlanInputs(SloLimits({0.99: round(simulated.limit_s * NS_PER_S)}, None), (1000.0,))
    plan = plan_configuration(measured, inputs, rng)
    if plan.capacity is None:
        return None
    replica = replica_capacity(plan.capacity, plan.curves[plan.slo_percentile].spread)
    return draw_trial(replica, simulated.capacity_at, restart_sd, rng)


def draw_trial(replica: ReplicaCapacity, capacity_at: Callable[[float], float], restart_sd: float, rng: np.random.Generator) -> Trial:
    """A trial of a plan with newly started replicas and a drawn demand."""
    speeds = np.exp(rng.normal(0.0, restart_sd, FLEET))
    capacities = np.array([capacity_at(float(speed)) for speed in speeds])
    demand = Demand.within(1.0, UNCERTAINTY)
    drawn = math.exp(rng.normal(0.0, demand.log_sd))  # the demand, divided by its median
    return Trial(
        holding_probability(replica, Demand(float(capacities[0])), Splitting(), 1),
        holding_probability(replica, Demand(FLEET * float(capacities.min()) / drawn, demand.log_sd), Splitting(), FLEET),
    )


def kept_cells(values: Sequence[float]) -> list[str]:
    """The shares of the demands called 50, 75, 90 and 95 % safe that keep the SLO, from one value of `Trial` for each plan."""
    return [f"{sum(value <= level for value in values) / max(len(values), 1):.1%}" for level in LEVELS]


def splitting_rows(requests: int) -> Iterator[str]:
    """The p99 under each rule of load balancing ÷ the limit, at the rate at which random splitting reaches the limit."""
    replicas = 4
    for law, cv, rate in (("constant", 0.0, 0.8), ("exponential", 1.0, 15 / 19), ("lognormal, cv 2", 2.0, 0.75)):

        def service(number: int, rng: np.random.Generator, cv: float = cv) -> Floats:
            return service_times(cv, number, rng)

        def p99s(
            rule: str, first: float, share: float, service: Callable[[int, np.random.Generator], Floats] = service, rate: float = rate
        ) -> tuple[float, float]:
            speeds, shares = [first, 2 - first, 1.0, 1.0], [share, 2 - share, 1.0, 1.0]
            times = split_response_times(rule, rate, speeds, shares, requests, service, np.random.default_rng(17))
            return float(np.quantile(np.concatenate(times), 0.99)), float(np.quantile(times[0], 0.99))

        limit = p99s("random", 1.0, 1.0)[0]
        for label, rule, first, share in (
            ("random", "random", 1.0, 1.0), ("round robin", "round-robin", 1.0, 1.0), ("least in flight", "least-in-flight", 1.0, 1.0),
            ("least in flight, one replica 10 % slower, one 10 % faster", "least-in-flight", 0.9, 1.0),
            ("random, shares 1.2, 1, 1, 0.8", "random", 1.0, 1.2),
        ):  # fmt: skip
            whole, of_first = p99s(rule, first, share)
            yield table_row(law, label, replicas, f"{whole / limit:.2f}", f"{of_first / limit:.2f}")


def simulate(plans: int, seed: int, seconds: float, requests: int) -> tuple[list[str], bool]:
    """The report's lines, and whether between 85 and 95 % of all demands called 90 % safe keep the SLO."""
    lines = [
        "# Calibration of a plan's risk", "",
        (
            f"{plans} plans a server, from {STARTS} starts of {len(SHARES)} rates of {seconds:g} s, each {REPETITIONS} times; the speed of starts varies by {RESTART_SD:.0%}. Each plan's demands are tried "
            f"with new starts: one replica with an exact demand, {FLEET} replicas with a demand uncertain by ±{UNCERTAINTY:.0%}. `kept at p`: the share of the demands "
            "called p safe that keep the SLO; p is the aim."
        ), "",
        *table_head("server", ">plans", ">refused", "demand", *(f">kept at {level:.0%}" for level in LEVELS)),
    ]  # fmt: skip
    print("\n".join(lines), flush=True)
    everything = list[float]()
    for name in NAMES:
        simulated = server(name, requests)
        trials = [try_plan(simulated, seed, number, seconds=seconds) for number in range(plans)]
        made = [trial for trial in trials if trial is not None]
        for label, values in (
            ("one replica", [trial.one for trial in made]),
            (f"{FLEET} replicas, ±{UNCERTAINTY:.0%}", [trial.fleet for trial in made]),
        ):
            everything += values
            lines.append(table_row(name, len(made), plans - len(made), label, *kept_cells(values)))
            print(lines[-1], flush=True)
    kept = sum(value <= SAFE for value in everything)
    low, high = binomial_limits(kept, len(everything))
    share = kept / max(len(everything), 1)
    lines += [
        "", f"Of {len(everything):,} demands called {SAFE:.0%} safe, {kept:,} ({share:.1%}; exact 95 % interval {low:.1%} to {high:.1%}, as if all were independent) keep the SLO; {LOWEST:.0%} to {HIGHEST:.0%} are required.",
        "", "## What the rules of load balancers do", "",
        (
            "Replicas with one server at the rate at which random splitting just keeps a limit on the p99: the p99 of all requests and of the first replica's, divided by the limit. "
            "Within the noise of the simulation, round robin and least in flight are at least as good as the plan counts them; least in flight also with replicas of different speed, at the sum of their capacities."
        ), "",
        *table_head("service", "splitting", ">replicas", ">p99, all requests", ">p99, first replica"), *splitting_rows(requests // 4),
    ]  # fmt: skip
    return lines, LOWEST <= share <= HIGHEST


def main() -> int:
    """Prints the tables."""
    parser = option_parser(__doc__)
    parser.add_argument("--plans", type=int, help="plans a server (default 140), or live plans in all (default 40)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="simulated length of a rate (default %(default)s)")
    parser.add_argument("--live", action="store_true", help="plans from runs against the bundled server")
    parser.add_argument("--realtime", action="store_true", help="run live servers and clients at real-time priority")
    parser.add_argument(
        "--at-once", type=int, default=10, help="live plans measured at once, each with its own server (default %(default)s)"
    )
    options = parser.parse_args()
    if options.live:
        from benchmarks.risk_calibration_live import calibrate_live

        lines, is_calibrated = calibrate_live(options.plans or 40, options.seed, options.at_once, realtime=options.realtime)
    else:
        lines, is_calibrated = simulate(options.plans or 140, options.seed, options.seconds, _REQUESTS)
    write_report(options.out, lines)
    print("\n".join(lines[-14:]))
    return 0 if is_calibrated else 1


if __name__ == "__main__":
    sys.exit(main())

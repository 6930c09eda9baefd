"""The live part of `benchmarks.risk_calibration`: plans from runs against the bundled server's model `synthetic`.

Each plan comes from three starts of a server that processes one request at a time, in exponential times with a mean of 8 ms. The mean varies
between starts with a standard deviation of 3 %. Each start is measured at six Poisson rates. The SLO limits the p95, for which these short
windows have enough requests. The capacity of a start with mean m is 1/m - ln(20)/limit, by the closed form of M/M/1. The plan calls a rate
90 % safe; the true capacity is that of one more start, whose mean is drawn as well. The time that the server's front end and the kernel add
is measured first, and the declared `lead` compensates for it. With ten plans at once it takes about 20 minutes, on an idle machine or with
`--realtime`.
"""

import concurrent.futures
import math
import pathlib
import tempfile
from typing import NamedTuple

import numpy as np

from benchmarks.processes import run_perfkit, running_server
from benchmarks.report import Report, describe_machine, yes_no
from benchmarks.synthetic import measure_lead_us, open_loop, scenario
from perfkit.errors import PerfkitError
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.fleet_risk import Demand, Splitting, safe_demand_per_s
from perfkit.plan.inputs import PlanInputs
from perfkit.plan.risk import SAFE, replica_capacity
from perfkit.stats.probability import binomial_limits
from perfkit.stats.slo import SloLimits
from perfkit.units import NS_PER_S

MEAN_S, QUANTILE, CAPACITY_SHARE = 0.008, 0.95, 0.8
LIMIT_S = -math.log(1 - QUANTILE) * MEAN_S / (1 - CAPACITY_SHARE)
"""The limit on the p95, in seconds: a start with a mean of exactly 8 ms reaches it at 80 % of its saturation rate."""
SHARES = (0.3, 0.5, 0.65, 0.78, 0.88, 1.1)
"""The measured rates, as shares of the saturation rate at the declared mean."""
WINDOW_S, STARTS, RESTART_SD = 15.0, 3, 0.03


class LivePlan(NamedTuple):
    """A plan's capacity and its 90 % safe rate, 0 if it was refused, with the true capacity of a new start; all in requests per second."""

    capacity_per_s: float
    safe_per_s: float
    true_per_s: float
    refusal: str


def true_capacity_per_s(mean_s: float) -> float:
    """The rate at which the p95 of M/M/1 with this mean service time reaches the limit."""
    return 1 / mean_s + math.log(1 - QUANTILE) / LIMIT_S


def plan_live(seed: int, number: int, lead_us: int, folder: pathlib.Path, *, realtime: bool) -> LivePlan:
    """Measures three starts of a server and plans with them; then draws the mean of a new start."""
    rng = np.random.default_rng([seed, number, 7])
    means_s, load = (
        (MEAN_S * np.exp(rng.normal(0.0, RESTART_SD, STARTS + 1))).tolist(),
        open_loop(*(round(share / MEAN_S, 1) for share in SHARES)),
    )
    results = [folder / f"{number}-{start}" for start in range(STARTS)]
    for start, result in enumerate(results):
        law = f"service=exponential:{1e6 * means_s[start]:.1f}us,servers=1,lead={lead_us}us,seed={1000 * number + start}"
        with running_server("--model=synthetic", f"--synthetic={law}", "--max-connections=20000", realtime=realtime) as server:
            document = scenario(server.url(), load, WINDOW_S, seed=100 * number + start, measure={"warmup": "500ms"})
            run_perfkit(document, out=result, realtime=realtime)
    inputs = PlanInputs(SloLimits({QUANTILE: round(LIMIT_S * NS_PER_S)}, None), (10 / MEAN_S,))
    true_per_s = true_capacity_per_s(means_s[STARTS])
    try:
        chosen = plan_capacity(gather_evidence(read_sources(list(map(str, results)))), inputs).chosen
    except PerfkitError as error:
        return LivePlan(0.0, 0.0, true_per_s, str(error))
    assert chosen.capacity is not None
    replica = replica_capacity(chosen.capacity, chosen.curves[chosen.slo_percentile].spread)
    return LivePlan(chosen.capacity.per_s, safe_demand_per_s(replica, Demand(1.0), Splitting(), 1, SAFE), true_per_s, "")


def calibrate_live(out: pathlib.Path | None, plans: int, seed: int, at_once: int, *, realtime: bool) -> int:
    """Writes the report; the exit code is 0 if the exact 95 % interval of the share of rates that keep the SLO contains 90 %."""
    machine, lead_us = describe_machine(), measure_lead_us(3, realtime=realtime)
    page = Report(out, "Calibration of a plan's risk on live servers")
    page.add(
        f"{machine} `service=exponential:{1e3 * MEAN_S:g}ms,servers=1,lead={lead_us}us`; limit {1e3 * LIMIT_S:.1f} ms on the p95, which gives a capacity of "
        f"{true_capacity_per_s(MEAN_S):.0f}/s at the declared mean; {STARTS} starts a plan, {len(SHARES)} rates of {WINDOW_S:g} s each; starts vary by {RESTART_SD:.0%}; "
        f"{at_once} plans at once{', at real-time priority' if realtime else ''}.",
        "",
    )
    page.table(">plan", ">capacity, by the plan", f">called {SAFE:.0%} safe", ">true capacity of a new start", "kept", "")
    made = list[LivePlan]()
    with tempfile.TemporaryDirectory(prefix="perfkit-risk-") as name, concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        found = pool.map(lambda number: plan_live(seed, number, lead_us, pathlib.Path(name), realtime=realtime), range(plans))
        for number, one in enumerate(found):
            figures = (f"{figure:.1f}/s" for figure in one[:3])
            page.row(number, *figures, "–" if one.refusal else yes_no(one.safe_per_s <= one.true_per_s), one.refusal[:150])
            made += [] if one.refusal else [one]
    kept = sum(one.safe_per_s <= one.true_per_s for one in made)
    low, high = binomial_limits(kept, len(made))
    page.add(
        "",
        f"{kept} of {len(made)} rates called {SAFE:.0%} safe keep the SLO ({plans - len(made)} plans refused); the exact 95 % interval (Clopper and Pearson) is "
        f"{low:.1%} to {high:.1%}, which must contain {SAFE:.0%}.",
    )
    page.is_met = low <= SAFE <= high
    return page.write()

"""The recovery time of a surge beside the closed form of a draining queue, in virtual time and on live servers.

    python -m benchmarks.recovery_time [--runs 2000] [--paths 20000] [--live 20] [--realtime] [--out reports/recovery-time.md]

A queue of c servers takes `capacity` requests per second. A surge of `for` seconds adds (surge - capacity) x for requests to it, which is a wait of
that ÷ capacity. After the surge the wait shrinks by 1 - base ÷ capacity seconds per second, until it leaves the time of the SLO's percentile of the service
times within the limit: the recovery time. That is exact but for what chance adds where the queue is empty at times. The simulated mean is that of
the first arrival after the surge that waits no longer, over many paths.

Simulated runs have five surges each, and their slots go through `recovery_s` and `mean_over_repetitions`. Nominally 95 % of the intervals contain the truth:
the closed form with one server, the simulated mean with several. 19 of 20 are required, in whole twentieths: 92.5 %. Five repetitions are few for
Student's t, and with random service times the SLO is met gradually, over a tenth of a second or more, which slots of that length resolve little. The mean reported must be within 5 % of the simulated one. Live runs are those of `perfkit run` on the bundled server's model
`synthetic`, until 20 of them are valid, or 30 were made: of 20 intervals of 95 %, at least 17 must contain the truth; fewer have a probability of 1.6 %. The means of their
recovery times and of the requests left in flight must be within three standard errors of the simulated ones. A bounded queue refuses what it cannot hold: the refusals must be as many as the server
itself counts, and take less than the limit. With a timeout, the requests that found a longer wait must be as many as the closed form says, within the chance of Poisson arrivals.

It takes about a quarter of an hour. The exit code is 1 if one requirement is missed.
"""

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from benchmarks.processes import run_perfkit, running_server
from benchmarks.report import Report, describe_machine, program_options, yes_no
from benchmarks.simulated_queues import Floats
from benchmarks.synthetic import measure_lead_us, scenario
from perfkit.stats.recovery import mean_over_repetitions, recovery_s
from perfkit.stats.validity import INVALIDATING

REPETITIONS, SLOT_S, LEAD_S = 5, 0.1, 2.0
LEAST_SHARE, REQUIRED_OF_20, MEAN_WITHIN = 0.925, 17, 0.05
TIMEOUT_REPETITIONS = 25  # of 5 the standard deviation is a sixth of what is expected


class Case(NamedTuple):
    """A surge of `for_s` seconds on a queue, which is followed for `after_s`; the SLO allows `1 - quantile` of the requests to take longer than the limit."""

    base_per_s: float
    surge_per_s: float
    for_s: float
    after_s: float
    service_s: float
    limit_s: float
    servers: int = 1
    is_constant: bool = True
    quantile: float = 0.99

    @property
    def title(self) -> str:
        """The queue by Kendall's notation."""
        return f"M/{'D' if self.is_constant else 'M'}/{self.servers}"

    @property
    def capacity_per_s(self) -> float:
        """The most requests that the servers answer per second."""
        return self.servers / self.service_s

    @property
    def longest_wait_s(self) -> float:
        """The longest wait with which a request still meets the SLO."""
        return self.limit_s - (self.service_s if self.is_constant else -math.log(1 - self.quantile) * self.service_s)

    @property
    def truth_s(self) -> float:
        """The recovery time by the closed form."""
        wait_s = (self.surge_per_s - self.capacity_per_s) * self.for_s / self.capacity_per_s
        return (wait_s - self.longest_wait_s) / (1 - self.base_per_s / self.capacity_per_s)


DEFAULT = Case(100, 300, 4.0, 12.0, 0.005, 0.05)
SHORT = DEFAULT._replace(for_s=1.0, after_s=3.5)
CASES = (
    DEFAULT,
    SHORT,
    DEFAULT._replace(quantile=0.5),
    Case(160, 300, 2.0, 16.0, 0.005, 0.1),
    Case(1000, 3000, 1.0, 4.0, 0.0005, 0.01),
    Case(100, 300, 4.0, 12.0, 0.005, 0.1, is_constant=False),
    Case(100, 300, 4.0, 12.0, 0.005, 0.1, is_constant=False, quantile=0.9),
    Case(100, 300, 4.0, 12.0, 0.02, 0.2, servers=4),
    Case(100, 300, 4.0, 12.0, 0.02, 0.2, servers=4, is_constant=False),
    Case(500, 1500, 2.0, 8.0, 0.016, 0.15, servers=16, is_constant=False),
)


def surges(case: Case, count: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """The instants since the surge's end, waits and response times of each request of many surges: arrays of requests by surges.

    First come, first served, by the recursion of Kiefer and Wolfowitz; requests that a surge does not have arrive at infinity.
    """
    pieces = (
        (-LEAD_S - case.for_s, -case.for_s, case.base_per_s),
        (-case.for_s, 0.0, case.surge_per_s),
        (0.0, case.after_s, case.base_per_s),
    )
    parts = list[Floats]()
    for start_s, end_s, rate_per_s in pieces:
        numbers = random.poisson(rate_per_s * (end_s - start_s), count)
        instants = random.uniform(start_s, end_s, (int(numbers.max()), count))
        instants[np.arange(numbers.max())[:, None] >= numbers] = np.inf
        parts.append(instants)
    arrivals = np.sort(np.concatenate(parts), axis=0)
    served = np.full(arrivals.shape, case.service_s) if case.is_constant else random.exponential(case.service_s, arrivals.shape)
    free, columns, waits = np.full((case.servers, count), -np.inf), np.arange(count), np.zeros(arrivals.shape)
    for number, instants in enumerate(arrivals):
        first = free.argmin(axis=0)
        starts = np.maximum(instants, free[first, columns])
        free[first, columns] = starts + served[number]
        with np.errstate(invalid="ignore"):
            waits[number] = np.where(np.isfinite(instants), starts - instants, 0.0)
    return arrivals, waits, waits + served


def reported_s(case: Case, arrivals: Floats, times: Floats) -> list[float | None]:
    """The recovery time of each surge, as perfkit reports it from the counts of its slots."""
    edges = np.arange(round(case.after_s / SLOT_S) + 1) * SLOT_S
    found = list[float | None]()
    for instants, own in zip(arrivals.T, times.T, strict=True):
        scheduled = np.histogram(instants, edges)[0].tolist()
        beyond = np.histogram(instants[own > case.limit_s], edges)[0].tolist()
        found.append(recovery_s(scheduled, beyond, SLOT_S, 1 - case.quantile))
    return found


def simulated_mean_s(case: Case, paths: int, random: np.random.Generator) -> float:
    """The mean over many surges of the first arrival after it that waits no longer than the SLO allows."""
    arrivals, waits, _ = surges(case, paths, random)
    return float(np.where((arrivals >= 0) & (waits <= case.longest_wait_s), arrivals, np.inf).min(axis=0).mean())


def simulate(page: Report, runs: int, paths: int, seed: int) -> None:
    """The table of the simulated runs."""
    least = math.ceil(LEAST_SHARE * runs)
    page.section(
        "In virtual time",
        f"{runs:,} runs of {REPETITIONS} surges a row; at least {least:,} intervals must contain the truth, and the mean reported be within {MEAN_WITHIN:.0%} of the simulated one.",
        "",
    )
    page.table(
        "queue", ">capacity", "base, surge", "SLO", ">closed form", ">simulated mean", ">mean reported", ">not recovered", ">half-width of the intervals",
        ">contain the closed form", ">contain the simulated mean", "as required",
    )  # fmt: skip
    for number, case in enumerate(CASES):
        random = np.random.default_rng([seed, number])
        simulated = float(np.mean([simulated_mean_s(case, paths // 10, random) for _ in range(10)]))
        found = list[float | None]()
        for _ in range(10):  # each with a tenth of the surges, since they take memory
            arrivals, _, times = surges(case, runs * REPETITIONS // 10, random)
            found += reported_s(case, arrivals, times)
        groups = [found[first : first + REPETITIONS] for first in range(0, len(found), REPETITIONS)]
        whole = [[one for one in group if one is not None] for group in groups]
        intervals = [made for group in whole if len(group) == REPETITIONS and (made := mean_over_repetitions(group)) is not None]
        ends = [(one.low, one.high) for one in intervals if one.low is not None and one.high is not None]
        by_truth = [int(sum(low <= truth <= high for low, high in ends)) for truth in (case.truth_s, simulated)]
        mean_s = float(np.mean([one.value for one in intervals]))
        page.judged_row(
            by_truth[case.servers > 1] >= least and abs(mean_s / simulated - 1) <= MEAN_WITHIN, case.title, f"{case.capacity_per_s:g}/s", f"{case.base_per_s:g}/s, {case.surge_per_s:g}/s for {case.for_s:g} s",
            f"p{100 * case.quantile:g} {case.limit_s * 1e3:g} ms", f"{case.truth_s:.3f} s", f"{simulated:.3f} s", f"{mean_s:.3f} s",
            sum(one is None for one in found), f"{np.mean([high - low for low, high in ends]) / 2:.3f} s", *by_truth,
        )  # fmt: skip


def run_surge(
    number: int, case: Case, declaration: str, *, timeout_s: float = 0.0, repetitions: int = REPETITIONS, realtime: bool
) -> tuple[dict[str, Any], int]:
    """The pooled load point of a run on a server of its own, and the requests that this server has refused."""
    with running_server("--model=synthetic", f"--synthetic={declaration},seed={number}", realtime=realtime) as server:
        surge = {
            "base": case.base_per_s, "surge": case.surge_per_s, "for": f"{case.for_s:g}s", "before": "500ms", "after": f"{case.after_s:g}s"
        }  # fmt: skip
        document = scenario(
            server.url(), {"surge": surge}, 0, seed=number, slo={f"p{100 * case.quantile:g}": f"{case.limit_s * 1e3:g}ms"},
            target={"timeout": f"{timeout_s:g}s"} if timeout_s else {},
        )  # fmt: skip
        document["measure"] = {"warmup": "500ms", "repetitions": repetitions}
        result = run_perfkit(document, realtime=realtime).result
        if result is None:
            raise RuntimeError(f"run {number} has no result")
        return result["summary"][0], server.statistics("synthetic")["inference_stats"]["fail"]["count"]


def _validity(point: dict[str, Any]) -> str:
    codes = {warning["code"] for warning in point["warnings"]} & INVALIDATING
    return "yes" if point["valid"] else f"no: {', '.join(sorted(codes))}"


def measure_live(page: Report, runs: int, *, realtime: bool) -> None:
    """The tables of the live runs."""
    lead_us = measure_lead_us(3, realtime=realtime)
    declaration, truth_s, backlog = (
        f"service=constant:5ms,lead={lead_us}us",
        SHORT.truth_s,
        (SHORT.surge_per_s - SHORT.capacity_per_s) * SHORT.for_s,
    )
    page.section(
        "On live servers",
        f"`{declaration}`, {SHORT.base_per_s:g}/s with a surge of {SHORT.surge_per_s:g}/s for {SHORT.for_s:g} s, {REPETITIONS} repetitions a run"
        f"{', at real-time priority' * realtime}; closed form: {backlog:g} requests left in flight, {truth_s:.3f} s to recover.",
        "",
    )
    page.table(">run", ">left in flight", ">recovery", "95 % interval", "contains the closed form", "verdict", "valid")
    covered, valid = 0, list[tuple[float, float]]()
    for number in range(math.ceil(1.5 * runs)):
        point, _ = run_surge(number, SHORT, declaration, realtime=realtime)
        surge = point["surge"]
        left, recovery = surge["figures"]["in_flight_left"], surge["figures"].get("recovery_s")
        covers = recovery is not None and recovery["low"] <= truth_s <= recovery["high"]
        if point["valid"] and recovery is not None:
            covered += covers
            valid.append((left["value"], recovery["value"]))
        cells = ("–", "–") if recovery is None else (f"{recovery['value']:.3f} s", f"{recovery['low']:.3f} to {recovery['high']:.3f} s")
        page.row(number, f"{left['value']:.0f}", *cells, yes_no(covers), surge["verdict"], _validity(point))
        if len(valid) == runs:
            break
    required = math.floor(REQUIRED_OF_20 / 20 * len(valid))
    page.is_met &= len(valid) >= 2 and covered >= required
    page.add("", f"{covered} of the {len(valid)} intervals of valid runs contain the closed form; at least {required} are required.")
    _judge_means(page, np.array(valid))
    _measure_refused(page, declaration, realtime=realtime)
    _measure_timed_out(page, declaration, realtime=realtime)


def _judge_means(page: Report, valid: Floats) -> None:
    """The means of the valid runs beside those of simulated surges: the requests left in flight, and the recovery time."""
    if len(valid) < 2:
        return
    random = np.random.default_rng(7)
    arrivals, _, times = surges(SHORT, 8000, random)
    left = float(((arrivals < 0) & (arrivals + times > 0)).sum(axis=0).mean())
    page.add("")
    page.table("mean of valid runs", ">measured", ">simulated", ">three standard errors", "as required")
    for column, (title, expected) in enumerate((("left in flight", left), ("recovery, s", simulated_mean_s(SHORT, 8000, random)))):
        mean, error = float(valid[:, column].mean()), float(valid[:, column].std(ddof=1)) / math.sqrt(len(valid))
        page.judged_row(abs(mean - expected) <= 3 * error, title, f"{mean:.4g}", f"{expected:.4g}", f"{3 * error:.2g}")


def _measure_refused(page: Report, declaration: str, *, realtime: bool) -> None:
    waiting = 5
    point, counted = run_surge(1000, SHORT, f"{declaration},queue={waiting}", realtime=realtime)
    rejected, figures = point["requests"]["rejected"], point["surge"]["figures"]
    expected = REPETITIONS * ((SHORT.surge_per_s - SHORT.capacity_per_s) * SHORT.for_s - waiting)
    # the window leaves out the warm-up, in which the base rate hardly ever finds the queue full
    is_met = abs(rejected - counted) <= 2 and point["failure_time_ns"]["p99"] < SHORT.limit_s * 1e9
    page.section(
        "A queue that refuses", f"`{declaration},queue={waiting}`: a request that finds {waiting} waiting is refused at once. The server's count includes the warm-ups.", ""
    )  # fmt: skip
    page.table(
        ">rejected",
        ">by the server's count",
        ">without chance",
        ">failed p50",
        ">failed p99",
        ">goodput during",
        ">recovery",
        "verdict",
        "as required",
    )
    page.judged_row(
        is_met, rejected, counted, f"{expected:g}", *(f"{point['failure_time_ns'][name] / 1e6:.2f} ms" for name in ("p50", "p99")),
        f"{figures['during_per_s']['value']:.0f}/s", f"{figures['recovery_s']['value']:.3f} s" if "recovery_s" in figures else "–", point["surge"]["verdict"],
    )  # fmt: skip


def _measure_timed_out(page: Report, declaration: str, *, realtime: bool) -> None:
    timeout_s, case = 0.3, SHORT
    point, _ = run_surge(2000, case, declaration, timeout_s=timeout_s, repetitions=TIMEOUT_REPETITIONS, realtime=realtime)
    timed_out, figures = point["requests"]["timed_out"], point["surge"]["figures"]
    # the longest wait of a request that is answered in time, and when the queue is longer: it keeps the requests that have timed out
    wait_s, growth, shrinkage = (
        timeout_s - case.service_s,
        case.surge_per_s / case.capacity_per_s - 1,
        1 - case.base_per_s / case.capacity_per_s,
    )
    expected = TIMEOUT_REPETITIONS * (
        case.surge_per_s * (case.for_s - wait_s / growth) + case.base_per_s * (growth * case.for_s - wait_s) / shrinkage
    )
    sigma = _timed_out_sigma(case, wait_s) * math.sqrt(TIMEOUT_REPETITIONS)
    page.section(
        "A client with a timeout",
        f"`target.timeout: {timeout_s:g}s`, {TIMEOUT_REPETITIONS} repetitions; the server serves the requests of clients that have left, too.",
        "",
    )
    page.table(">timed out", ">closed form", ">three standard deviations of chance", ">recovery", ">closed form", "verdict", "as required")
    page.judged_row(
        abs(timed_out - expected) <= 3 * sigma, timed_out, f"{expected:.0f}", f"{3 * sigma:.0f}",
        f"{figures['recovery_s']['value']:.3f} s" if "recovery_s" in figures else "–", f"{case.truth_s:.3f} s", point["surge"]["verdict"],
    )  # fmt: skip


def _timed_out_sigma(case: Case, wait_s: float) -> float:
    """The standard deviation of the requests of a surge that wait longer, over simulated surges."""
    _, waits, _ = surges(case, 2000, np.random.default_rng(7))
    return float((waits > wait_s).sum(axis=0).std())


def main() -> int:
    """Prints the tables."""
    options = program_options(
        __doc__, out="recovery-time", runs=(2000, "simulated runs of each case"), paths=(20_000, "surges for the simulated mean"),
        live=(20, "valid live runs"), realtime=False, seed=1,
    )  # fmt: skip
    page = Report(options.out, "The recovery time of a surge")
    page.add(describe_machine())
    simulate(page, options.runs, options.paths, options.seed)
    if options.live:
        measure_live(page, options.live, realtime=options.realtime)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

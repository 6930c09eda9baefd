"""The simulation of an autoscaled fleet compared with live servers, over an hour that is compressed to four minutes.

    python -m benchmarks.autoscaling_live [--hours 3] [--seconds 60] [--realtime] [--results DIR] [--out reports/autoscaling-live.md]

1. Measure: `perfkit run` measures one replica, a bundled server whose model `synthetic` processes one request at a time in exponential times
   with a mean of 30 ms, with open loops and a closed one.
2. Plan: `perfkit.plan` gives the capacity under p95 < 200 ms, the autoscaler's target, and the distribution of the service times.
3. Predict: 200 hours of the autoscaled fleet are simulated. The 5th and 95th percentiles of their shares of windows that miss the SLO
   are the 90 % interval for one hour.
4. Live: the arrivals of an hour are drawn, and from them the autoscaler decides when replicas start and stop. Bundled servers are started and
   stopped at these instants, and each request is sent at its instant to a random ready replica. The share of windows that miss the SLO is
   compared with the interval.

The hour, the windows and all durations of the autoscaler are compressed by a factor of 15: an hour is 240 s, a window of a minute is 4 s, and a
cold start of 150 s is 10 s (the process is ready earlier; the rest stands for loading a model). Service times and rates are not compressed.
It takes 12 minutes, and 5 more for each hour. Rates are low, so that two cores are enough; on a busy machine, use `--realtime`.
The exit code is 1 if an hour lies outside the interval.
"""

import asyncio
import contextlib
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.processes import run_perfkit, running_server
from benchmarks.report import Report, describe_machine, program_options, yes_no
from benchmarks.synthetic import closed_loop, measure_lead_us, open_loop, scenario
from perfkit.api_v2.client import Client, make_client
from perfkit.clock import MonotonicClock
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.fleet_simulation import FleetDay, Sampling, simulate_fleet
from perfkit.plan.inputs import PlanInputs, parse_slo
from perfkit.plan.replica_queue import Limit, ServiceLaw, calibrated_law, response_times
from perfkit.plan.schedule import service_laws
from perfkit.plan.steps import Autoscaler, Floats, PeriodicSteps, Steps, autoscale
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.target.address import Address
from perfkit.target.started_server import bundled_server
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.options import TransportOptions
from perfkit.units import NS_PER_S

COMPRESSION = 15
HOUR_S, WARM_UP_S, WINDOW_S, SYNC_S = 3600 / COMPRESSION, 20.0, 60 / COMPRESSION, 15 / COMPRESSION
COLD_START_S, METRIC_WINDOW_S, SCALE_DOWN_DELAY_S = 150 / COMPRESSION, 60 / COMPRESSION, 300 / COMPRESSION
DEMAND_PER_S = (8, 8, 36, 36, 12, 12, 8, 8, 40, 40, 20, 8)
"""The demand in each five minutes of the hour."""
SERVICE_MS, LIMIT = 30, Limit(0.95, 0.2)
RATES = (4, 7, 10, 12, 14, 17, 20, 24)
SIMULATED_HOURS, DRAWN_CAPACITIES, HEADROOM, MOST_REPLICAS = 200, 20, 0.3, 6
DEMAND = PeriodicSteps(Steps.of([(index * HOUR_S / len(DEMAND_PER_S), rate) for index, rate in enumerate(DEMAND_PER_S)]), HOUR_S)


class ServerModel(NamedTuple):
    """One replica as measured: its capacity with the lower limit, and the distribution of its service times."""

    low_per_s: float
    capacity_per_s: float
    law: ServiceLaw
    possible_laws: tuple[ServiceLaw, ...]
    """The law for each of some equally likely capacities, from the distribution behind the capacity's interval."""

    @property
    def scaler(self) -> Autoscaler:
        """The compressed autoscaler."""
        target_per_s = (1 - HEADROOM) * self.low_per_s
        return Autoscaler(target_per_s, COLD_START_S, MOST_REPLICAS, 1, SCALE_DOWN_DELAY_S, SYNC_S, METRIC_WINDOW_S)


class DrawnHour(NamedTuple):
    """The arrivals of an hour and the replicas that serve them; instants in seconds from the start of the warm-up."""

    ready: Steps
    arrivals_s: Floats
    spans: list[tuple[int, float, float]]
    """For each start of a replica: its number, and the instants between which it takes requests."""
    span_of: npt.NDArray[np.int64]
    """For each request, the index in `spans` of the replica that serves it."""


class LiveHour(NamedTuple):
    """The measurements of a live hour."""

    drawn: DrawnHour
    missed: float
    """The share of windows that miss the SLO."""
    failed: int
    slowest_start_s: float
    latest_send_ms: float


def measure(declaration: str, seconds: float, results: pathlib.Path, *, realtime: bool) -> None:
    """Measures one replica, with open loops and a closed one; writes the results `open` and `closed`."""
    results.mkdir(parents=True, exist_ok=True)
    with running_server("--model=synthetic", f"--synthetic={declaration}", realtime=realtime) as server:
        for name, load, repetitions in (("open", open_loop(*RATES), 1), ("closed", closed_loop(1), 3)):
            document = scenario(server.url(), load, seconds, measure={"warmup": "2s", "repetitions": repetitions})
            assert run_perfkit(document, out=results / name, realtime=realtime).points


def plan_replica(results: pathlib.Path) -> ServerModel:
    """The capacity and the service law of one replica, from `perfkit.plan`."""
    (evidence,) = gather_evidence(read_sources([str(results / name) for name in ("open", "closed")]))
    inputs = PlanInputs(parse_slo([f"p95<{LIMIT.limit_s * 1e3:g}ms"]), (max(DEMAND_PER_S),), headroom=HEADROOM)
    chosen = plan_capacity([evidence], inputs).chosen
    assert chosen.capacity is not None
    laws, _, refusal = service_laws(chosen, evidence, (LIMIT,), (1 - HEADROOM) * chosen.capacity.low_per_s, np.random.default_rng(1))
    if not laws:
        raise RuntimeError(refusal)
    draws = np.quantile(chosen.capacity.draws_per_s, (np.arange(DRAWN_CAPACITIES) + 0.5) / DRAWN_CAPACITIES).tolist()
    shape, random = laws[0].times_s.tolist(), np.random.default_rng(2)
    possible = tuple(calibrated_law(shape, draw, (LIMIT,), random, laws[0].servers) for draw in draws)
    return ServerModel(chosen.capacity.low_per_s, chosen.capacity.per_s, laws[0], possible)


def initial_replicas(scaler: Autoscaler) -> int:
    """The number of replicas for the demand at the start of the warm-up."""
    return scaler.wanted(float(DEMAND.at(-WARM_UP_S)), 1)


def predict(laws: Sequence[ServiceLaw], scaler: Autoscaler) -> Floats:
    """The share of windows that miss the SLO in each simulated hour; the hours use the laws in turn."""
    days = [FleetDay(DEMAND, law, (LIMIT,), WINDOW_S, SYNC_S, WARM_UP_S) for law in laws]
    first = initial_replicas(scaler)
    return np.array([
        simulate_fleet(days[number % len(days)], lambda counts, _random: autoscale(counts, scaler, first), Sampling(1), one).missed_time.value
        for number, one in enumerate(np.random.default_rng(7).spawn(SIMULATED_HOURS))
    ])  # fmt: skip


def predict_again(laws: Sequence[ServiceLaw], hour: DrawnHour) -> Floats:
    """The share of windows that miss the SLO in each simulation of this hour's own arrivals and replicas; the laws are used in turn."""
    order = np.argsort(hour.span_of, kind="stable")
    restarts = np.flatnonzero(np.diff(hour.span_of[order], prepend=-1))
    shares, times = [], np.zeros(order.size)
    for index, random in enumerate(np.random.default_rng(8).spawn(SIMULATED_HOURS)):
        law = laws[index % len(laws)]
        times[order] = response_times(hour.arrivals_s[order], law.draw(order.size, random), law.servers, restarts)
        shares.append(missed_share(hour.arrivals_s, times))
    return np.array(shares)


class Replica:
    """A bundled server that runs between two instants, and its requests in progress."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.ready_after_s = 0.0
        self.sent: set[asyncio.Task[None]] = set()

    async def run(self, declaration: str, start_ns: int, stop_ns: int, *, realtime: bool) -> None:
        """Starts the server at one instant, and stops it at another one as soon as its requests have ended."""
        clock = MonotonicClock()
        await clock.sleep_until_ns(start_ns)
        options = {"device": "cpu", "threads": 1, "cpus": (), "synthetic": declaration}
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(bundled_server("synthetic", on_line=lambda _: None, **options))  # type: ignore[arg-type] # a mapping of options
            self.ready_after_s = server.description["ready_after_s"]
            if realtime:
                os.sched_setscheduler(int(server.description["pid"]), os.SCHED_FIFO, os.sched_param(1))
            connections = TransportOptions(timeout_ns=60 * NS_PER_S, max_connections=500)
            client = make_client(Address.parse(server.urls["http"]), connections, clock)
            stack.push_async_callback(client.aclose)
            await client.transport.open(8)
            self.client = client
            await clock.sleep_until_ns(stop_ns)
            await asyncio.gather(*self.sent)


def draw_hour(scaler: Autoscaler, seed: int) -> DrawnHour:
    """Draws the arrivals of an hour, the replicas that the autoscaler runs for them, and the replica of each request."""
    random, end_s = np.random.default_rng([seed, 99]), WARM_UP_S + HOUR_S
    ticks = np.arange(round(end_s / SYNC_S)) * SYNC_S
    counts = random.poisson(DEMAND.at(ticks - WARM_UP_S + SYNC_S / 2) * SYNC_S).astype(np.int64)
    ready = autoscale(counts, scaler, initial_replicas(scaler)).ready
    arrivals = np.sort(np.repeat(ticks, counts) + random.uniform(0, SYNC_S, int(counts.sum())))
    places = (random.uniform(size=arrivals.size) * ready.at(arrivals)).astype(np.int64)
    spans = replica_spans(ready, end_s)
    span_of = np.zeros(arrivals.size, dtype=np.int64)
    for number, (place, start_s, stop_s) in enumerate(spans):
        span_of[(places == place) & (arrivals >= start_s) & (arrivals < stop_s)] = number
    return DrawnHour(ready, arrivals, spans, span_of)


def replica_spans(ready: Steps, end_s: float) -> list[tuple[int, float, float]]:
    """For each start of a replica: its number, and the instants between which it takes requests. The replica started last is stopped first."""
    edges = [*ready.starts_s.tolist(), end_s]
    spans, since = list[tuple[int, float, float]](), dict[int, float]()
    for start_s, count in zip(edges, [*ready.values.astype(int).tolist(), 0], strict=True):
        for place in [place for place in since if place >= count]:
            spans.append((place, since.pop(place), start_s))
        for place in range(count):
            since.setdefault(place, start_s)
    return [span for span in spans if span[2] > span[1]]


async def live_hour(declaration: str, drawn: DrawnHour, seed: int, *, realtime: bool) -> LiveHour:
    """Runs the drawn hour on live servers."""
    if realtime:  # the servers start at normal priority, so that they do not delay the others
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    arrivals, clock = drawn.arrivals_s, MonotonicClock()
    begin_ns = clock.now_ns() + 12 * NS_PER_S
    replicas = [Replica() for _ in drawn.spans]
    times, delays_ms = np.full(arrivals.size, np.inf), np.zeros(arrivals.size)
    request = InferRequest("synthetic", (tensor_from_array("INPUT0", Datatype.FP32, np.ones((1, 4), dtype=np.float32)),))

    async def send(number: int, client: Client, prepared: Prepared, intended_ns: int) -> None:
        reply = await client.transport.send(prepared)
        delays_ms[number] = (reply.started_ns - intended_ns) / 1e6
        if reply.outcome is Outcome.OK:
            times[number] = (reply.finished_ns - intended_ns) / NS_PER_S

    async with asyncio.TaskGroup() as group:
        for (_, start_s, stop_s), replica in zip(drawn.spans, replicas, strict=True):
            start_ns = begin_ns + round((start_s - COLD_START_S) * NS_PER_S)
            group.create_task(replica.run(f"{declaration},seed={seed}", start_ns, begin_ns + round(stop_s * NS_PER_S), realtime=realtime))
        for number, (arrival_s, index) in enumerate(zip(arrivals.tolist(), drawn.span_of.tolist(), strict=True)):
            intended_ns = begin_ns + round(arrival_s * NS_PER_S)
            await clock.sleep_until_ns(intended_ns)
            replica = replicas[index]
            if replica.client is not None:  # a server that is not ready in time answers nothing: its requests count as slow
                task = asyncio.create_task(send(number, replica.client, replica.client.prepare(request), intended_ns))
                replica.sent.add(task)
    slowest_start_s = max(replica.ready_after_s for replica in replicas)
    return LiveHour(drawn, missed_share(arrivals, times), int(np.isinf(times).sum()), slowest_start_s, float(np.quantile(delays_ms, 0.999)))


def missed_share(arrivals: Floats, times: Floats) -> float:
    """The share of the hour's windows that miss the SLO."""
    windows = np.floor((arrivals - WARM_UP_S) / WINDOW_S).astype(np.int64)
    counted, number = windows >= 0, round(HOUR_S / WINDOW_S)
    total, slow = (np.bincount(windows[counted], weights, number) for weights in (None, times[counted] > LIMIT.limit_s))
    return float((slow > LIMIT.allowed_share * total * (1 + 1e-9)).mean())


class Prediction:
    """The shares of windows that miss the SLO in simulated hours, and the 90 % interval for one hour."""

    def __init__(self, shares: Floats) -> None:
        self.mean = shares.mean()
        self.low, self.high = np.quantile(shares, [0.05, 0.95]).tolist()

    def __str__(self) -> str:
        return f"{self.low:.1%} to {self.high:.1%}"

    def contains(self, hour: LiveHour) -> bool:
        """Whether the share of a live hour lies within the interval."""
        return bool(self.low <= hour.missed <= self.high)


def report(page: Report, server: ServerModel, hours: Sequence[LiveHour]) -> None:
    """Writes the predictions and the hours."""
    exponential = ServiceLaw(1, -SERVICE_MS / 1e3 * np.log1p(-(np.arange(5000) + 0.5) / 5000))
    true_per_s = 1e3 / SERVICE_MS - np.log(1 / LIMIT.allowed_share) / LIMIT.limit_s
    predicted = {
        "the measured law, at the estimated capacity": [server.law],
        f"the measured law, at {DRAWN_CAPACITIES} capacities drawn from the estimate's distribution": server.possible_laws,
        "the declared law": [exponential],
    }
    measured, uncertain, declared = (Prediction(predict(laws, server.scaler)) for laws in predicted.values())
    page.add(
        (f"One replica, measured: capacity {server.capacity_per_s:.1f}/s, lower limit {server.low_per_s:.1f}/s, under p95 < {LIMIT.limit_s * 1e3:.0f} ms "
         f"(truth {true_per_s:.1f}/s); simulated as {server.law.servers} server{'s' if server.law.servers > 1 else ''} with a mean of "
         f"{1e3 * server.law.times_s.mean():.1f} ms (declared: 1 and {SERVICE_MS} ms). Autoscaler's target: {server.scaler.target_per_s:.1f}/s for a replica."),
        "",
        (f"Demand in the twelve parts of the hour: {', '.join(f'{rate}/s' for rate in DEMAND_PER_S)}. Windows of {WINDOW_S:g} s, {round(HOUR_S / WINDOW_S)} "
         "an hour."),
        "",
        f"Share of windows in which the SLO is missed, of {SIMULATED_HOURS} simulated hours each:",
        "",
    )  # fmt: skip
    page.table("simulated with", ">mean", "90 % of the hours")
    for name, one in zip(predicted, (measured, uncertain, declared), strict=True):
        page.row(name, f"{one.mean:.1%}", one)
    page.add("")
    page.table(
        ">live hour", ">requests", ">failed", "replicas", ">SLO missed", "within the interval", "at the estimated capacity alone",
        "interval with the hour's own arrivals", "within", ">slowest start of a server", ">start delay, p99.9",
    )  # fmt: skip
    for number, hour in enumerate(hours, 1):
        ready, own = hour.drawn.ready.values, Prediction(predict_again(server.possible_laws, hour.drawn))
        inside = [yes_no(one.contains(hour)) for one in (uncertain, measured)]
        page.row(number, hour.drawn.arrivals_s.size, hour.failed, f"{ready.min():.0f} to {ready.max():.0f}", f"{hour.missed:.1%}", *inside,
                 own, yes_no(own.contains(hour)), f"{hour.slowest_start_s:.1f} s", f"{hour.latest_send_ms:.1f} ms")  # fmt: skip
    within = sum(uncertain.contains(hour) for hour in hours)
    page.is_met = within == len(hours)
    page.add(
        "",
        f"{within} of {len(hours)} hours are within the interval; each is expected to be with a probability of 90 %.",
        "",
        ("The capacity and the law of the service times come from the measurement of one replica; the simulation knows nothing else of the live "
         "servers. The interval includes the uncertainty of the capacity. The interval with the hour's own arrivals comes from simulations in which only the service "
         f"times and the capacity are random. Requests to a server that is not ready in time count as slow; the cold start is {COLD_START_S:g} s, so that it is ready."),
        "",
    )  # fmt: skip


def main() -> int:
    """Measures, predicts, runs the live hours, and prints the report."""
    options = program_options(
        __doc__, out="autoscaling-live", hours=(3, "live hours"), seconds=60.0, results=(pathlib.Path, "keep the measurement there, or take the one that is there"), realtime=False,
    )  # fmt: skip
    machine = describe_machine()
    declaration = f"service=exponential:{SERVICE_MS}ms,servers=1,lead={measure_lead_us(3, realtime=options.realtime)}us"
    with tempfile.TemporaryDirectory(prefix="perfkit-benchmark-") as name:
        results = options.results or pathlib.Path(name)
        is_earlier = (results / "closed" / "result.json").exists()
        if not is_earlier:
            measure(declaration, options.seconds, results, realtime=options.realtime)
        server = plan_replica(results)
    drawn = {seed: draw_hour(server.scaler, seed) for seed in range(1, options.hours + 1)}
    hours = [asyncio.run(live_hour(declaration, hour, seed, realtime=options.realtime)) for seed, hour in drawn.items()]
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    page = Report(options.out, "The autoscaling simulation against live servers")
    page.add("One hour of an autoscaled fleet, compressed to four minutes: `python -m benchmarks.autoscaling_live`.", "")
    report(page, server, hours)
    notes = ["Servers and clients ran at real-time priority."] * options.realtime + [
        "The replica was measured in an earlier run, whose results were kept."
    ] * is_earlier
    page.add(" ".join([machine, *notes]))
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

"""How closely an open loop follows its schedule: 10,000 Poisson arrivals per second to a server that does no work.

    python -m benchmarks.start_delay [--rounds 3] [--seconds 10] [--realtime] [--out reports/start-delay.md]

The start delay is started − intended. `perfkit run` is measured, and for comparison its open loop without recorder (the
difference is the cost of recording) and its pacer without requests, all at the same rate. Required: a p99 below 200 us in the
median round, and over all rounds a rate within 0.5 % of the scheduled one. --realtime gives server and clients real-time
priority, each on a CPU of its own.

Then the gaps between arrivals are tested against the exponential distribution (Kolmogorov-Smirnov), with many seeds: the
intended gaps at 10,000/s and 500/s, and at 500/s the gaps between the actual starts. At a level of 5 %, a correct distribution
is rejected for about 5 % of the seeds; the report gives the largest plausible number. The exit code is 1 if a requirement is
missed.
"""

import gc
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, kstest

from benchmarks.peers.canned import INPUTS, MODEL, VERSION, WIDTH, serving
from benchmarks.peers.server_process import PeerError
from benchmarks.processes import REALTIME, ROOT, on_cpus, run_perfkit
from benchmarks.report import Report, describe_machine, program_options, rounds_text, yes_no
from perfkit.api_v2.client import make_client
from perfkit.clock import MonotonicClock
from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.load.loop import Phases
from perfkit.load.open_loop import OpenLoop, make_pacer
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.target.address import Address
from perfkit.transport.base import Reply
from perfkit.transport.options import TransportOptions

RATE, SLOW_RATE = 10_000, 500
ALLOWED_P99_US, ALLOWED_RATE_SHARE = 200, 0.005
LEVEL, INTENDED_SEEDS, STARTED_SEEDS, STARTED_S = 0.05, 200, 10, 5
_LEAD_NS, _TIMEOUT_NS, _CONNECTIONS = 20_000_000, 10_000_000_000, 32
Nanoseconds = npt.NDArray[np.int64]
Delays = tuple[list[float], float]
"""p50, p99, p99.9 and the largest start delay of one run in microseconds, and the requests sent per second."""


async def drive(rate: float, seconds: float, seed: int, port: int) -> Nanoseconds:
    """Runs the open loop with the wire engine, or the pacer alone if the port is 0. Returns [intended, started] instants."""
    clock, schedule = MonotonicClock(), Schedule("poisson", constant_rate(rate), (seed,))
    pacer, instants = make_pacer(clock), []
    if not port:
        origin_ns, end_ns = clock.now_ns() + _LEAD_NS, round(seconds * 1e9)
        for chunk in schedule.chunks():
            for instant_ns in (chunk[chunk < end_ns] + origin_ns).tolist():
                await pacer.wait_until_ns(instant_ns)
                instants.append((instant_ns, clock.now_ns()))
            if chunk[-1] >= end_ns:
                break
    else:
        options = TransportOptions(max_connections=1024, timeout_ns=_TIMEOUT_NS)
        client = make_client(Address("http", "127.0.0.1", port), options, clock)
        zeros = np.zeros((1, WIDTH), np.int32)
        tensors = tuple(tensor_from_array(name, Datatype.INT32, zeros) for name in INPUTS)
        prepared = [client.prepare(InferRequest(MODEL, tensors, version=VERSION))]
        await client.transport.open(_CONNECTIONS)

        def record(reply: Reply) -> None:
            instants.append((reply.intended_ns, reply.started_ns))

        phases = Phases.plan(clock.now_ns() + _LEAD_NS, warmup_ns=0, window_ns=round(seconds * 1e9), requests=None, drain_ns=_TIMEOUT_NS)
        loop = OpenLoop(
            client.transport, prepared, record, lambda *_: None, arrivals=schedule.chunks(), origin_ns=phases.start_ns,
            phases=phases, clock=clock, pacer=pacer,
        )  # fmt: skip
        await loop.run()
        await client.aclose()
    pacer.close()
    return np.array(instants, dtype=np.int64).T


class LoadGenerators:
    """The load generators to measure, each run in a process of its own, which may have real-time priority."""

    def __init__(self, port: int, *, realtime: bool) -> None:
        self._port, self._realtime = port, realtime

    def drive(self, rate: float, seconds: float, seed: int, *, with_requests: bool = True) -> Nanoseconds:
        """See `drive`."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "instants.npy")
            arguments = [str(one) for one in (file, rate, seconds, seed, self._port if with_requests else 0)]
            prefix = REALTIME if self._realtime else ()
            subprocess.run([*prefix, sys.executable, "-m", "benchmarks.start_delay", "--drive", *arguments], check=True, cwd=ROOT)
            instants: Nanoseconds = np.load(file)
        return instants

    def delays(self, seconds: float, seed: int, *, with_requests: bool) -> Delays:
        """The delays of the open loop without recorder, or of the pacer alone."""
        intended_ns, started_ns = self.drive(RATE, seconds, seed, with_requests=with_requests)
        return (np.percentile(started_ns - intended_ns, (50, 99, 99.9, 100)) / 1e3).tolist(), intended_ns.size / seconds

    def perfkit_delays(self, seconds: float, seed: int) -> Delays:
        """The delays in the result of `perfkit run`."""
        scenario = {
            "target": {"url": f"http://127.0.0.1:{self._port}", "model": MODEL, "version": VERSION},
            "workload": {"seed": seed, "inputs": {name: {"generate": "zeros", "shape": [1, WIDTH]} for name in INPUTS}},
            "load": {"open": {"rate": RATE, "arrivals": "poisson"}},
            "measure": {"warmup": "1s", "duration": f"{seconds}s", "repetitions": 1},
        }
        point = run_perfkit(scenario, realtime=self._realtime).point
        return [point["start_delay_ns"][name] / 1e3 for name in ("p50", "p99", "p99_9", "max")], point["requests"]["sent"] / point[
            "duration_s"
        ]


def add_delays(page: Report, generators: LoadGenerators, rounds: int, seconds: float) -> None:
    """A line for each part in each round, and whether perfkit meets the requirements."""
    page.table("part", ">round", ">p50", ">p99", ">p99.9", ">max", ">sent", ">scheduled")
    own = list[Delays]()
    for number in range(rounds):
        own.append(generators.perfkit_delays(seconds, number))
        without_recorder, pacer = (generators.delays(seconds, number, with_requests=with_requests) for with_requests in (True, False))
        parts = {"`perfkit run`": own[-1], "open loop without recorder": without_recorder, "pacer alone": pacer}
        for name, (times_us, per_s) in parts.items():
            page.row(name, number + 1, *(f"{value:,.0f} us" for value in times_us), f"{per_s:,.0f}/s", f"{RATE:,}/s")
    p99_us, deviation = statistics.median(times_us[1] for times_us, _ in own), statistics.fmean(per_s for _, per_s in own) / RATE - 1
    is_on_time, is_on_rate = p99_us < ALLOWED_P99_US, abs(deviation) <= ALLOWED_RATE_SHARE
    page.is_met &= is_on_time and is_on_rate
    page.add(
        "",
        f"The p99 of `perfkit run` is below {ALLOWED_P99_US} us (median round): {yes_no(is_on_time)}, {p99_us:.0f} us. "
        f"Its rate is within {ALLOWED_RATE_SHARE:.1%} over all rounds: {yes_no(is_on_rate)}, {deviation:+.2%}.",
        "",
    )


def intended_gaps(rate: int, count: int, seed: int) -> npt.NDArray[np.float64]:
    """About `count` gaps between scheduled arrivals; a schedule comes in chunks of 4096."""
    chunks = Schedule("poisson", constant_rate(rate), (seed,)).chunks()
    return np.diff(np.concatenate([next(chunks) for _ in range(max(1, round(count / 4096)))])).astype(np.float64)


def add_gaps(page: Report, generators: LoadGenerators, seconds: float) -> None:
    """The tests of the gaps, and whether a correct distribution explains the number of rejections."""
    gaps = {
        f"intended, {rate:,}/s": (rate, [intended_gaps(rate, round(rate * seconds), seed) for seed in range(INTENDED_SEEDS)])
        for rate in (RATE, SLOW_RATE)
    }
    started = [generators.drive(SLOW_RATE, STARTED_S, seed)[1] for seed in range(STARTED_SEEDS)]
    gaps[f"started, {SLOW_RATE}/s"] = (SLOW_RATE, [np.diff(np.sort(instants_ns)).astype(np.float64) for instants_ns in started])
    page.table("gaps", ">gaps per seed", ">seeds", ">rejected at 5 %", ">at most", ">lowest p", ">median p")
    for name, (rate, samples) in gaps.items():
        p_values = [float(kstest(sample, "expon", args=(0, 1e9 / rate)).pvalue) for sample in samples]
        rejected, allowed = sum(p_value < LEVEL for p_value in p_values), int(binom.ppf(0.99, len(p_values), LEVEL))
        page.is_met &= rejected <= allowed
        page.row(
            name, f"{samples[0].size:,}", len(p_values), rejected, allowed, f"{min(p_values):.4f}", f"{statistics.median(p_values):.2f}"
        )
    page.add("", "A correct distribution is rejected more often than `at most` in 1 % of such series.")


def main() -> int:
    """Prints the tables; the exit code is 1 if a requirement is missed."""
    options = program_options(__doc__, rounds=3, seconds=10.0, realtime=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops the server too, as Ctrl-C does
    page, cpus = Report(options.out, "Adherence of an open loop to its schedule"), sorted(os.sched_getaffinity(0))
    page.add(
        f"{RATE:,} Poisson arrivals per second, 128 B each, to nginx answering from a file; {rounds_text(options.rounds)} of {options.seconds:g} s. "
        f"Server and client have a CPU each{', and real-time priority (SCHED_FIFO)' * options.realtime}. "
        f"Start delay: started − intended. {describe_machine()}",
        "",
    )
    try:
        with serving(cpus=cpus[:1], prefix=REALTIME if options.realtime else ()) as ports, on_cpus(cpus[-1:]):
            assert ports.http is not None
            generators = LoadGenerators(ports.http, realtime=options.realtime)
            add_delays(page, generators, options.rounds, options.seconds)
            add_gaps(page, generators, options.seconds)
    except PeerError as error:
        sys.stderr.write(f"start_delay: {error}\n")
        return 1
    return page.write()


def drive_to_file(file: str, rate: str, seconds: str, seed: str, port: str) -> int:
    """Writes the instants of a load generator in this process; returns 0."""
    import uvloop

    gc.collect()
    gc.freeze()  # as perfkit does before it sends load
    np.save(file, uvloop.run(drive(float(rate), float(seconds), int(seed), int(port))))
    return 0


if __name__ == "__main__":
    sys.exit(drive_to_file(*sys.argv[2:]) if sys.argv[1:2] == ["--drive"] else main())

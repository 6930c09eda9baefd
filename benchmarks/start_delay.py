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

import argparse
import gc
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, kstest

from benchmarks.peers.canned import INPUTS, MODEL, VERSION, WIDTH, serving
from benchmarks.peers.server_process import PeerError
from benchmarks.processes import REALTIME, ROOT, on_cpus, run_perfkit
from benchmarks.report import describe_machine, option_parser, table_head, table_row, write_report, yes_no
from perfkit.api_v2.client import make_client
from perfkit.clock import MonotonicClock
from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.load.loop import Phases
from perfkit.load.open_loop import OpenLoop
from perfkit.load.pacer import make_pacer
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


class Delays(NamedTuple):
    """The start delays of one run in microseconds, and the requests sent per second."""

    p50: float
    p99: float
    p99_9: float
    max: float
    per_s: float

    @classmethod
    def of(cls, delays_ns: Nanoseconds, per_s: float) -> "Delays":
        """Percentiles of start delays."""
        p50, p99, p99_9, largest = np.percentile(delays_ns, (50, 99, 99.9, 100)).tolist()
        return cls(p50 / 1e3, p99 / 1e3, p99_9 / 1e3, largest / 1e3, per_s)


def ks_p_value(gaps: npt.NDArray[np.float64], mean: float) -> float:
    """The p-value of the Kolmogorov-Smirnov test that gaps are exponential with that mean."""
    return float(kstest(gaps, "expon", args=(0, mean)).pvalue)


def max_rejections(tests: int) -> int:
    """The number of rejections that a correct distribution exceeds in at most 1 % of series of that many tests."""
    return int(binom.ppf(0.99, tests, LEVEL))


def gaps_of(instants_ns: Nanoseconds) -> npt.NDArray[np.float64]:
    """The gaps between instants, which may be in any order."""
    return np.diff(np.sort(instants_ns)).astype(np.float64)


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
        client = make_client(Address("http", "127.0.0.1", port), TransportOptions(max_connections=1024, timeout_ns=_TIMEOUT_NS), clock)
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
        self._port = port
        self._prefix = REALTIME if realtime else ()

    def drive(self, rate: float, seconds: float, seed: int, *, with_requests: bool) -> Nanoseconds:
        """See `drive`."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "instants.npy")
            port = self._port if with_requests else 0
            arguments = [f"--drive={file}", f"--rate={rate}", f"--seconds={seconds}", f"--seed={seed}", f"--port={port}"]
            subprocess.run([*self._prefix, sys.executable, "-m", "benchmarks.start_delay", *arguments], check=True, cwd=ROOT)
            instants: Nanoseconds = np.load(file)
        return instants

    def delays(self, seconds: float, seed: int, *, with_requests: bool) -> Delays:
        """The delays of the open loop without recorder, or of the pacer alone."""
        intended_ns, started_ns = self.drive(RATE, seconds, seed, with_requests=with_requests)
        return Delays.of(started_ns - intended_ns, intended_ns.size / seconds)

    def perfkit_delays(self, seconds: float, seed: int) -> Delays:
        """The delays in the result of `perfkit run`."""
        scenario = {
            "target": {"url": f"http://127.0.0.1:{self._port}", "model": MODEL, "version": VERSION},
            "workload": {"seed": seed, "inputs": {name: {"generate": "zeros", "shape": [1, WIDTH]} for name in INPUTS}},
            "load": {"open": {"rate": RATE, "arrivals": "poisson"}},
            "measure": {"warmup": "1s", "duration": f"{seconds}s", "repetitions": 1},
        }
        point = run_perfkit(scenario, prefix=self._prefix).point
        p50_us, p99_us, p99_9_us, max_us = (point["start_delay_ns"][name] / 1e3 for name in ("p50", "p99", "p99_9", "max"))
        return Delays(p50_us, p99_us, p99_9_us, max_us, point["requests"]["sent"] / point["duration_s"])


def delay_table(generators: LoadGenerators, rounds: int, seconds: float) -> tuple[list[str], bool]:
    """A line for each part in each round, and whether perfkit meets the requirements."""
    lines = table_head("part", ">round", ">p50", ">p99", ">p99.9", ">max", ">sent", ">scheduled")
    of_perfkit = []
    for number in range(rounds):
        parts = {
            "`perfkit run`": generators.perfkit_delays(seconds, number),
            "open loop without recorder": generators.delays(seconds, number, with_requests=True),
            "pacer alone": generators.delays(seconds, number, with_requests=False),
        }
        of_perfkit.append(parts["`perfkit run`"])
        for name, delays in parts.items():
            times = (f"{value:,.0f} us" for value in delays[:4])
            lines.append(table_row(name, number + 1, *times, f"{delays.per_s:,.0f}/s", f"{RATE:,}/s"))
    p99_us, per_s = statistics.median(delays.p99 for delays in of_perfkit), statistics.fmean(delays.per_s for delays in of_perfkit)
    deviation = per_s / RATE - 1
    is_on_time, is_on_rate = p99_us < ALLOWED_P99_US, abs(deviation) <= ALLOWED_RATE_SHARE
    verdict = (
        f"The p99 of `perfkit run` is below {ALLOWED_P99_US} us (median round): {yes_no(is_on_time)}, {p99_us:.0f} us. "
        f"Its rate is within {ALLOWED_RATE_SHARE:.1%} over all rounds: {yes_no(is_on_rate)}, {deviation:+.2%}."
    )
    return [*lines, "", verdict, ""], is_on_time and is_on_rate


def intended_gaps(rate: int, count: int, seed: int) -> npt.NDArray[np.float64]:
    """About `count` gaps between scheduled arrivals; a schedule comes in chunks of 4096."""
    chunks = Schedule("poisson", constant_rate(rate), (seed,)).chunks()
    return gaps_of(np.concatenate([next(chunks) for _ in range(max(1, round(count / 4096)))]))


def gap_table(generators: LoadGenerators, seconds: float) -> tuple[list[str], bool]:
    """The tests of the gaps, and whether a correct distribution explains the number of rejections."""
    gaps: dict[str, tuple[int, list[npt.NDArray[np.float64]]]] = {
        f"intended, {rate:,}/s": (rate, [intended_gaps(rate, round(rate * seconds), seed) for seed in range(INTENDED_SEEDS)])
        for rate in (RATE, SLOW_RATE)
    }
    started = [generators.drive(SLOW_RATE, STARTED_S, seed, with_requests=True)[1] for seed in range(STARTED_SEEDS)]
    gaps[f"started, {SLOW_RATE}/s"] = (SLOW_RATE, [gaps_of(instants) for instants in started])
    lines = table_head("gaps", ">gaps per seed", ">seeds", ">rejected at 5 %", ">at most", ">lowest p", ">median p")
    all_met = True
    for name, (rate, samples) in gaps.items():
        p_values = [ks_p_value(sample, 1e9 / rate) for sample in samples]
        rejected, allowed = sum(p_value < LEVEL for p_value in p_values), max_rejections(len(p_values))
        all_met = all_met and rejected <= allowed
        p_cells = (f"{min(p_values):.4f}", f"{statistics.median(p_values):.2f}")
        lines.append(table_row(name, f"{samples[0].size:,}", len(p_values), rejected, allowed, *p_cells))
    return [*lines, "", "A correct distribution is rejected more often than `at most` in 1 % of such series."], all_met


def main() -> int:
    """Prints the tables; the exit code is 1 if a requirement is missed."""
    parser = option_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="length of each run (default %(default)s)")
    parser.add_argument("--realtime", action="store_true", help="run server and clients at real-time priority")
    for name in ("--drive", "--rate", "--seed", "--port"):  # for the process that runs `drive`
        parser.add_argument(name, type=str if name == "--drive" else int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        import uvloop

        gc.collect()
        gc.freeze()  # as perfkit does before it sends load
        np.save(options.drive, uvloop.run(drive(options.rate, options.seconds, options.seed, options.port)))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops the server too, as Ctrl-C does
    page = [
        "# Adherence of an open loop to its schedule",
        "",
        (
            f"{RATE:,} Poisson arrivals per second, 128 B each, to nginx answering from a file; {options.rounds} rounds of {options.seconds:g} s. "
            f"Server and client have a CPU each{', and real-time priority (SCHED_FIFO)' if options.realtime else ''}. "
            f"Start delay: started − intended. {describe_machine()}"
        ),
        "",
    ]
    try:
        cpus = sorted(os.sched_getaffinity(0))
        with serving(cpus=cpus[:1], prefix=REALTIME if options.realtime else ()) as ports, on_cpus(cpus[-1:]):
            assert ports.http is not None
            generators = LoadGenerators(ports.http, realtime=options.realtime)
            delays, delays_are_met = delay_table(generators, options.rounds, options.seconds)
            print("\n".join(delays), flush=True)
            gaps, gaps_are_met = gap_table(generators, options.seconds)
            print("\n".join(gaps))
    except PeerError as error:
        sys.stderr.write(f"start_delay: {error}\n")
        return 1
    write_report(options.out, [*page, *delays, *gaps])
    return 0 if delays_are_met and gaps_are_met else 1


if __name__ == "__main__":
    sys.exit(main())

"""How well an open loop keeps to its schedule: 10,000 Poisson arrivals a second, sent to a server that does nothing.

    python benchmarks/start_delay.py [--rounds 3] [--seconds 10] [--realtime] [--out reports/start-delay.md]

The start delay is started − intended. `perfkit run` is measured as it is used; beside it its own open loop without recorder
(which tells what the recording takes) and its pacer without requests, both at the same rate. Wanted: p99 under 200 us in
the median round, and over all rounds a rate within 0.5 % of the one asked for; else the exit code is 1. --realtime runs
server and clients, each on a CPU of its own, before whatever else runs on the machine.

Then the gaps between arrivals are held against the exponential law by Kolmogorov and Smirnov's test, at many seeds: the
intended ones at 10,000/s and 500/s, and at 500/s the ones between the instants at which requests were really sent. At a
level of 5 % a right law is refused at about 5 % of the seeds; how many that may be is said.
"""

import argparse
import gc
import json
import math
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

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # the tree that this file is in, installed or not
from benchmarks.peers.canned import INPUTS, MODEL, VERSION, WIDTH, CannedError, serving
from perfkit.clock import MonotonicClock
from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.load.loop import Phases
from perfkit.load.open_loop import OpenLoop
from perfkit.load.pacer import make_pacer
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.target.address import Address
from perfkit.transport.base import Reply
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions

ROOT = pathlib.Path(__file__).parents[1]
RATE, SLOW_RATE = 10_000, 500
ALLOWED_P99_US, ALLOWED_RATE_SHARE = 200, 0.005
LEVEL, INTENDED_SEEDS, STARTED_SEEDS, STARTED_S = 0.05, 200, 10, 5
REALTIME = ("chrt", "-f", "1")
_LEAD_NS, _TIMEOUT_NS, _CONNECTIONS = 20_000_000, 10_000_000_000, 32
Nanoseconds = npt.NDArray[np.int64]


class Delays(NamedTuple):
    """The start delays of one run in microseconds, and the requests that were sent a second."""

    p50: float
    p99: float
    p99_9: float
    max: float
    per_s: float

    @classmethod
    def of(cls, delays_ns: Nanoseconds, per_s: float) -> "Delays":
        """From the delays themselves."""
        p50, p99, p99_9, most = np.percentile(delays_ns, (50, 99, 99.9, 100)).tolist()
        return cls(p50 / 1e3, p99 / 1e3, p99_9 / 1e3, most / 1e3, per_s)


def ks_p_value(gaps: npt.NDArray[np.float64], mean: float) -> float:
    """How likely exponential gaps of that mean are to lie as far from their law as these, by the asymptotic law.

    Source: M. A. Stephens, "Use of the Kolmogorov-Smirnov, Cramer-von Mises and related statistics without extensive
    tables", J. R. Stat. Soc. B 32, 1970, for the correction to small samples.
    """
    ordered, count = -np.expm1(-np.sort(gaps) / mean), gaps.size
    steps = np.arange(count + 1) / count
    distance = max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())
    scaled = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * float(distance)
    terms = np.arange(1, 101)
    chance = 2 * np.sum((-1.0) ** (terms - 1) * np.exp(-2 * (terms * scaled) ** 2))
    return float(np.clip(chance, 0.0, 1.0))


def most_alarms(tests: int) -> int:
    """The most alarms that tests of a right law give, but in 1 % of such series."""
    chance, alarms = float((1 - LEVEL) ** tests), 0
    while chance < 0.99:
        alarms += 1
        chance += math.comb(tests, alarms) * LEVEL**alarms * (1 - LEVEL) ** (tests - alarms)
    return alarms


def gaps_of(instants_ns: Nanoseconds) -> npt.NDArray[np.float64]:
    """The gaps between instants, in any order."""
    return np.diff(np.sort(instants_ns)).astype(np.float64)


async def drive(rate: float, seconds: float, seed: int, port: int) -> Nanoseconds:
    """The open loop with its wire engine: intended and started, a row each. Without a port the pacer alone."""
    clock, schedule = MonotonicClock(), Schedule("poisson", constant_rate(rate), (seed,))
    pacer, noted = make_pacer(clock), []
    if not port:
        origin_ns, end_ns = clock.now_ns() + _LEAD_NS, round(seconds * 1e9)
        for chunk in schedule.chunks():
            for instant_ns in (chunk[chunk < end_ns] + origin_ns).tolist():
                await pacer.wait_until_ns(instant_ns)
                noted.append((instant_ns, clock.now_ns()))
            if chunk[-1] >= end_ns:
                break
    else:
        transport = WireHttpTransport(
            Address("http", "127.0.0.1", port), TransportOptions(max_connections=1024, timeout_ns=_TIMEOUT_NS), clock.now_ns
        )
        zeros = np.zeros((1, WIDTH), np.int32)
        tensors = tuple(tensor_from_array(name, Datatype.INT32, zeros) for name in INPUTS)
        prepared = [transport.prepare(InferRequest(MODEL, tensors, version=VERSION))]
        await transport.open(_CONNECTIONS)

        def note(reply: Reply) -> None:
            noted.append((reply.intended_ns, reply.started_ns))

        phases = Phases.plan(clock.now_ns() + _LEAD_NS, warmup_ns=0, window_ns=round(seconds * 1e9), requests=None, drain_ns=_TIMEOUT_NS)
        loop = OpenLoop(
            transport, prepared, note, lambda _, __: None, arrivals=schedule.chunks(), origin_ns=phases.start_ns,
            phases=phases, clock=clock, pacer=pacer,
        )  # fmt: skip
        await loop.run()
        await transport.aclose()
    pacer.close()
    return np.array(noted, dtype=np.int64).T


class Bench:
    """The runs, each in a process of its own, so that it can be at real-time priority."""

    def __init__(self, port: int, *, realtime: bool) -> None:
        self._port = port
        self._prefix = REALTIME if realtime else ()

    def driven(self, rate: float, seconds: float, seed: int, *, with_requests: bool) -> Nanoseconds:
        """See `drive`."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "noted.npy")
            port = self._port if with_requests else 0
            arguments = [f"--drive={file}", f"--rate={rate}", f"--seconds={seconds}", f"--seed={seed}", f"--port={port}"]
            subprocess.run([*self._prefix, sys.executable, __file__, *arguments], check=True, cwd=ROOT)
            noted: Nanoseconds = np.load(file)
        return noted

    def delays(self, seconds: float, seed: int, *, with_requests: bool) -> Delays:
        """Of perfkit's parts, without a recorder."""
        intended_ns, started_ns = self.driven(RATE, seconds, seed, with_requests=with_requests)
        return Delays.of(started_ns - intended_ns, intended_ns.size / seconds)

    def of_perfkit(self, seconds: float, seed: int) -> Delays:
        """Of `perfkit run`, out of its result."""
        zeros = {"generate": "zeros", "shape": [1, WIDTH]}
        scenario = {
            "target": {"url": f"http://127.0.0.1:{self._port}", "model": MODEL, "version": VERSION},
            "workload": {"seed": seed, "inputs": dict.fromkeys(INPUTS, zeros)},
            "load": {"open": {"rate": RATE, "arrivals": "poisson"}},
            "measure": {"warmup": "1s", "duration": f"{seconds}s", "repetitions": 1},
        }
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "scenario.yaml")
            file.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
            command = [*self._prefix, sys.executable, "-m", "perfkit", "run", str(file), "--quiet", "--out", f"{folder}/out"]
            subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.DEVNULL)  # an invalid point has figures, too
            (point,) = json.loads(pathlib.Path(folder, "out", "result.json").read_text(encoding="utf-8"))["points"]
        times = point["start_delay_ns"]
        per_s = point["requests"]["sent"] / point["duration_s"]
        return Delays(times["p50"] / 1e3, times["p99"] / 1e3, times["p99_9"] / 1e3, times["max"] / 1e3, per_s)


def delay_table(bench: Bench, rounds: int, seconds: float) -> tuple[list[str], bool]:
    """A line for each part in each round, and whether perfkit's figures are as wanted."""
    lines = ["| what | round | p50 | p99 | p99.9 | max | sent | asked |", "|---|---:|---:|---:|---:|---:|---:|---:|"]
    whole = []
    for number in range(rounds):
        parts = {
            "`perfkit run`": bench.of_perfkit(seconds, number),
            "open loop, no recorder": bench.delays(seconds, number, with_requests=True),
            "pacer alone": bench.delays(seconds, number, with_requests=False),
        }
        whole.append(parts["`perfkit run`"])
        for name, one in parts.items():
            times = " | ".join(f"{value:,.0f} us" for value in one[:4])
            lines.append(f"| {name} | {number + 1} | {times} | {one.per_s:,.0f}/s | {RATE:,}/s |")
    p99_us, per_s = statistics.median(one.p99 for one in whole), statistics.fmean(one.per_s for one in whole)
    off = per_s / RATE - 1
    is_on_time, is_on_rate = p99_us < ALLOWED_P99_US, abs(off) <= ALLOWED_RATE_SHARE
    verdict = (
        f"`perfkit run`'s p99 under {ALLOWED_P99_US} us (median round): {'yes' if is_on_time else 'no'}, {p99_us:.0f} us. "
        f"Its rate within {ALLOWED_RATE_SHARE:.1%} over all rounds: {'yes' if is_on_rate else 'no'}, {off:+.2%}."
    )
    return [*lines, "", verdict, ""], is_on_time and is_on_rate


def gap_table(bench: Bench, seconds: float) -> tuple[list[str], bool]:
    """The tests of the gaps, and whether there are no more alarms than a right law gives."""
    p_values: dict[str, list[float]] = {}
    for rate in (RATE, SLOW_RATE):
        intended = [np.concatenate([next(chunks) for _ in range(max(1, round(rate * seconds / 4096)))])
                    for chunks in (Schedule("poisson", constant_rate(rate), (seed,)).chunks() for seed in range(INTENDED_SEEDS))]  # fmt: skip
        p_values[f"intended, {rate:,}/s, {intended[0].size - 1:,} gaps"] = [ks_p_value(gaps_of(one), 1e9 / rate) for one in intended]
    started = [bench.driven(SLOW_RATE, STARTED_S, seed, with_requests=True)[1] for seed in range(STARTED_SEEDS)]
    p_values[f"started, {SLOW_RATE}/s, about {started[0].size - 1:,} gaps"] = [ks_p_value(gaps_of(one), 1e9 / SLOW_RATE) for one in started]
    lines = ["| gaps | seeds | refused at 5 % | at most | lowest p | median p |", "|---|---:|---:|---:|---:|---:|"]
    is_right = True
    for name, found in p_values.items():
        alarms, most = sum(one < LEVEL for one in found), most_alarms(len(found))
        is_right = is_right and alarms <= most
        lines.append(f"| {name} | {len(found)} | {alarms} | {most} | {min(found):.4f} | {statistics.median(found):.2f} |")
    return [*lines, "", "A right law is refused more often than `at most` in 1 % of such series."], is_right


def main() -> int:
    """Prints the tables; 1 where a figure is not reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--realtime", action="store_true", help="run server and clients at real-time priority, before whatever else runs")
    parser.add_argument("--out", type=pathlib.Path)
    for name in ("--drive", "--rate", "--seed", "--port"):  # of the process that drives
        parser.add_argument(name, type=str if name == "--drive" else int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        import uvloop

        gc.collect()
        gc.freeze()  # as perfkit does before it sends load
        np.save(options.drive, uvloop.run(drive(options.rate, options.seconds, options.seed, options.port)))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as on Ctrl-C, so that the server ends too
    load = os.getloadavg()[0]
    try:
        cpus = sorted(os.sched_getaffinity(0))
        with serving(cpus=cpus[:1], prefix=REALTIME if options.realtime else ()) as canned:
            assert canned.http_port is not None
            os.sched_setaffinity(0, cpus[-1:])  # for the clients, which inherit it
            bench = Bench(canned.http_port, realtime=options.realtime)
            delays, are_delays_right = delay_table(bench, options.rounds, options.seconds)
            print("\n".join(delays), flush=True)
            gaps, are_gaps_right = gap_table(bench, options.seconds)
    except CannedError as error:
        sys.stderr.write(f"start_delay: {error}\n")
        return 1
    print("\n".join(gaps))
    if options.out:
        setting = (
            f"{RATE:,} Poisson arrivals a second, 128 B each, to nginx answering from a file; {options.rounds} rounds of {options.seconds:g} s. "
            f"{os.cpu_count()} CPUs shared with other work, one for the server and one for the client; load average {load:.1f} at the begin"
            f"{'; both at real-time priority (SCHED_FIFO)' if options.realtime else ''}. Start delay: started − intended."
        )
        options.out.write_text(
            "\n".join(["# How well an open loop keeps to its schedule", "", setting, "", *delays, *gaps, ""]), encoding="utf-8"
        )
    return 0 if are_delays_right and are_gaps_right else 1


if __name__ == "__main__":
    sys.exit(main())

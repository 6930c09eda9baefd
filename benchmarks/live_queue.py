"""Whether perfkit's own intervals hold the truth, live: M/M/1, or M/M/c with `--servers c`, at ρ = 0.5, run after run.

    python benchmarks/live_queue.py [--runs 20] [--seconds 120] [--servers 1] [--at-once 4] [--realtime] [--out reports/live-queue.md]

The bundled server's model `synthetic` with exponential service times of 10 ms, Poisson arrivals at 50/s for each of its
servers: with one, response times are exponential with mean 20 ms; with several, Erlang's C says how many wait. Every run has seeds of its own for arrivals
and services. Of 20 intervals of 95 % at least 17 are to hold the truth: fewer have a chance of 1.6 %. What front and
kernel add is measured first, on a server without queue, and made up for by the law's `lead`.
"""

import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
SERVICE_NS, RATE_PER_SERVER, NEEDED_OF_20 = 10e6, 50, 17
SHOWN = {"p50": 0.5, "p99": 0.99}


@contextlib.contextmanager
def serving(law: str, *, realtime: bool) -> Iterator[str]:
    """The URL of a server with that law, for the length of the block."""
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", "--model=synthetic"]
    command.append("--max-connections=60000")  # perf_analyzer opens one for every request that waits
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, f"--synthetic={law}"], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=ROOT) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["http_port"]
        if realtime:
            os.sched_setscheduler(server.pid, os.SCHED_FIFO, os.sched_param(1))
        yield f"http://127.0.0.1:{port}"
        server.stdin.close()


def measure(law: str, load: Mapping[str, Any], seed: int, seconds: int, *, realtime: bool) -> dict[str, Any]:
    """The point of one run."""
    with serving(law, realtime=realtime) as url, tempfile.TemporaryDirectory() as folder:
        scenario = {
            "target": {"url": url, "model": "synthetic"},
            "workload": {"seed": seed, "inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}},
            "load": load,
            "measure": {"warmup": "2s", "duration": f"{seconds}s", "repetitions": 1},
        }
        file = pathlib.Path(folder, "scenario.yaml")
        file.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
        command = [sys.executable, "-m", "perfkit", "run", str(file), "--quiet", "--out", f"{folder}/out"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT) as client:
            if realtime:
                os.sched_setscheduler(client.pid, os.SCHED_FIFO, os.sched_param(1))
        (point,) = json.loads(pathlib.Path(folder, "out", "result.json").read_text(encoding="utf-8"))["points"]
    assert isinstance(point, dict)
    return point


def quantile_ns(quantile: float, servers: int) -> float:
    """The response time of M/M/c at ρ = 0.5: Erlang's C waits, exponentially with rate cμ - λ, and then is served (Gross et al., 2.3)."""
    offered = servers / 2  # erlangs
    blocked = offered**servers / math.factorial(servers) * servers / (servers - offered)
    waiting = blocked / (sum(offered**k / math.factorial(k) for k in range(servers)) + blocked)
    drain = servers - offered  # the rate at which a wait ends; the unit of time is the mean service time

    def longer_than(time: float) -> float:
        served = math.exp(-time)
        both = served * (1 + time) if drain == 1 else (drain * served - math.exp(-drain * time)) / (drain - 1)
        return (1 - waiting) * served + waiting * both

    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if longer_than(middle) > 1 - quantile else (low, middle)
    return high * SERVICE_NS


def row(number: int, point: Mapping[str, Any], servers: int) -> tuple[str, dict[str, bool]]:
    """A line of the table, and which intervals hold the truth."""
    cells, holds = [], {}
    for name, quantile in SHOWN.items():
        truth_ns = quantile_ns(quantile, servers)
        low_ns, high_ns = point["intervals"][name]
        holds[name] = low_ns <= truth_ns and (high_ns is None or truth_ns <= high_ns)
        high = "open" if high_ns is None else f"{high_ns / 1e6:.1f}"
        cells.append(f"{point['response_time_ns'][name] / 1e6:.1f} | {low_ns / 1e6:.1f} to {high} | {'yes' if holds[name] else 'no'}")
    effective = ", ".join(f"{point['effective_samples'][name]:.0f}" for name in SHOWN)
    return f"| {number} | {point['requests']['ok']} | {effective} | {' | '.join(cells)} | {'yes' if point['valid'] else 'no'} |", holds


def main() -> int:
    """Prints the table; the exit code is 1 where too few intervals hold the truth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--servers", type=int, default=1, help="c of M/M/c")
    parser.add_argument("--at-once", type=int, default=4, help="runs side by side, each with its own server")
    parser.add_argument("--realtime", action="store_true", help="run servers and clients at real-time priority, before whatever else runs")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    alone = measure("service=constant:10ms", {"closed": {"concurrency": 1}}, 0, 5, realtime=options.realtime)
    lead_us = max(0, round(alone["service_time_ns"]["p50"] / 1e3 - 10_000))
    law, rate = f"service=exponential:10ms,servers={options.servers},lead={lead_us}us", RATE_PER_SERVER * options.servers
    load = {"open": {"rate": rate, "arrivals": "poisson"}}
    truth = ", ".join(f"{name} {quantile_ns(quantile, options.servers) / 1e6:.2f} ms" for name, quantile in SHOWN.items())
    lines = [
        (
            f"True: {truth}. `{law}`, {rate}/s, {options.seconds} s a run, {options.at_once} runs at once"
            f"{', at real-time priority' if options.realtime else ''}."
        ),
        "",
        "| run | requests | effective p50, p99 | p50 ms | 95 % interval | holds | p99 ms | 95 % interval | holds | valid |",
        "|---:|---:|---|---:|---|---|---:|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    held = dict.fromkeys(SHOWN, 0)
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        points = pool.map(
            lambda run: measure(f"{law},seed={1000 + run}", load, run, options.seconds, realtime=options.realtime), range(options.runs)
        )
        for number, point in enumerate(points):
            line, holds = row(number, point, options.servers)
            lines.append(line)
            print(line, flush=True)
            for name in SHOWN:
                held[name] += holds[name]
    needed = math.floor(NEEDED_OF_20 / 20 * options.runs)
    summary = ", ".join(f"{name} {count} of {options.runs}" for name, count in held.items())
    lines += ["", f"The truth lies within: {summary}; at least {needed} each are asked for."]
    print(lines[-1])
    if options.out:
        options.out.write_text(
            "\n".join([f"# perfkit's intervals on a live M/M/{options.servers} queue", "", *lines, ""]), encoding="utf-8"
        )
    return 0 if min(held.values()) >= needed else 1


if __name__ == "__main__":
    sys.exit(main())

"""Whether perfkit's own intervals hold the truth, live: M/M/1 at ρ = 0.5, run after run.

    python benchmarks/live_queue.py [--runs 20] [--seconds 120] [--at-once 4] [--realtime] [--out reports/live-queue.md]

The bundled server's model `synthetic` with one server and exponential service times of 10 ms, Poisson arrivals at 50/s:
response times are exponential with mean 20 ms, so that p is at -ln(1 - p)·20 ms. Every run has seeds of its own for arrivals
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
MEAN_NS, RATE, NEEDED_OF_20 = 20e6, 50, 17
SHOWN = {"p50": 0.5, "p99": 0.99}


@contextlib.contextmanager
def serving(law: str, *, realtime: bool) -> Iterator[str]:
    """The URL of a server with that law, for the length of the block."""
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", "--model=synthetic"]
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


def row(number: int, point: Mapping[str, Any]) -> tuple[str, dict[str, bool]]:
    """A line of the table, and which intervals hold the truth."""
    cells, holds = [], {}
    for name, quantile in SHOWN.items():
        truth_ns = -math.log(1 - quantile) * MEAN_NS
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
    parser.add_argument("--at-once", type=int, default=4, help="runs side by side, each with its own server")
    parser.add_argument("--realtime", action="store_true", help="run servers and clients at real-time priority, before whatever else runs")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    alone = measure("service=constant:10ms", {"closed": {"concurrency": 1}}, 0, 5, realtime=options.realtime)
    lead_us = max(0, round(alone["service_time_ns"]["p50"] / 1e3 - 10_000))
    law = f"service=exponential:10ms,servers=1,lead={lead_us}us"
    load = {"open": {"rate": RATE, "arrivals": "poisson"}}
    truth = ", ".join(f"{name} {-math.log(1 - quantile) * MEAN_NS / 1e6:.2f} ms" for name, quantile in SHOWN.items())
    lines = [
        (
            f"True: {truth}. `{law}`, {RATE}/s, {options.seconds} s a run, {options.at_once} runs at once"
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
            line, holds = row(number, point)
            lines.append(line)
            print(line, flush=True)
            for name in SHOWN:
                held[name] += holds[name]
    needed = math.floor(NEEDED_OF_20 / 20 * options.runs)
    summary = ", ".join(f"{name} {count} of {options.runs}" for name, count in held.items())
    lines += ["", f"The truth lies within: {summary}; at least {needed} each are asked for."]
    print(lines[-1])
    if options.out:
        options.out.write_text("\n".join(["# perfkit's intervals on a live M/M/1 queue", "", *lines, ""]), encoding="utf-8")
    return 0 if min(held.values()) >= needed else 1


if __name__ == "__main__":
    sys.exit(main())

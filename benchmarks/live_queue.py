"""Coverage of perfkit's confidence intervals on live queues: M/M/1, or M/M/c with `--servers c`, at ρ = 0.5.

    python -m benchmarks.live_queue [--runs 20] [--seconds 120] [--servers 1] [--at-once 4] [--realtime] [--out reports/live-queue.md]

The bundled server's model `synthetic` serves with exponential times of 10 ms, under Poisson arrivals at 50/s for each of its
servers. With one server, response times are exponential with mean 20 ms; with several, Erlang's C gives the share that waits.
Every run has its own seeds for arrivals and services. Of 20 intervals of 95 %, at least 17 must contain the true value; fewer
have a probability of 1.6 %. The time that the server's front end and the kernel add is measured first; the declared `lead`
compensates for it. The exit code is 1 if too few intervals contain the true value.
"""

import concurrent.futures
import math
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.processes import REALTIME, run_perfkit, running_server
from benchmarks.report import option_parser, table_head, table_row, write_report, yes_no

SERVICE_NS, RATE_PER_SERVER, REQUIRED_OF_20 = 10e6, 50, 17
QUANTILES = {"p50": 0.5, "p99": 0.99}


def measure(declaration: str, load: Mapping[str, Any], seed: int, seconds: int, *, realtime: bool) -> dict[str, Any]:
    """The load point of one run on a server of its own."""
    with running_server("--model=synthetic", f"--synthetic={declaration}", realtime=realtime) as server:
        scenario = {
            "target": {"url": server.url(), "model": "synthetic"},
            "workload": {"seed": seed, "inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}},
            "load": load,
            "measure": {"warmup": "2s", "duration": f"{seconds}s", "repetitions": 1},
        }
        return run_perfkit(scenario, prefix=REALTIME if realtime else ()).point


def measure_lead_us(seconds: int, *, realtime: bool) -> int:
    """The `lead` that compensates for the time added by the server's front end and the kernel."""
    point = measure("service=constant:10ms,lead=0us", {"closed": {"concurrency": 1}}, 0, seconds, realtime=realtime)
    return int(max(0, round(point["service_time_ns"]["p50"] / 1e3 - 10_000)))


def quantile_ns(quantile: float, servers: int) -> float:
    """A quantile of the response time of M/M/c at ρ = 0.5.

    A request waits with the probability of Erlang's C, exponentially with rate cμ - λ (Gross et al., section 2.3).
    """
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
    """A run's line of the table, and which intervals contain the true value."""
    cells: list[str] = []
    covered = {}
    for name, quantile in QUANTILES.items():
        true_ns = quantile_ns(quantile, servers)
        if name not in point["intervals"]:
            sys.exit(f"live_queue: {point['requests']['ok']} requests are too few for an interval of {name}; give more --seconds")
        low_ns, high_ns = point["intervals"][name]
        covered[name] = low_ns <= true_ns and (high_ns is None or true_ns <= high_ns)
        high = "open" if high_ns is None else f"{high_ns / 1e6:.1f}"
        cells += [f"{point['response_time_ns'][name] / 1e6:.1f}", f"{low_ns / 1e6:.1f} to {high}", yes_no(covered[name])]
    effective = ", ".join(f"{point['effective_samples'][name]:.0f}" for name in QUANTILES)
    return table_row(number, point["requests"]["ok"], effective, *cells, yes_no(point["valid"])), covered


def main() -> int:
    """Prints the table."""
    parser = option_parser(__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=120, help="window of each run (default %(default)s)")
    parser.add_argument("--servers", type=int, default=1, help="c of M/M/c")
    parser.add_argument("--at-once", type=int, default=4, help="concurrent runs, each with its own server")
    parser.add_argument("--realtime", action="store_true", help="run servers and clients at real-time priority")
    options = parser.parse_args()
    lead_us = measure_lead_us(5, realtime=options.realtime)
    declaration, rate = f"service=exponential:10ms,servers={options.servers},lead={lead_us}us", RATE_PER_SERVER * options.servers
    load = {"open": {"rate": rate, "arrivals": "poisson"}}
    truth = ", ".join(f"{name} {quantile_ns(quantile, options.servers) / 1e6:.2f} ms" for name, quantile in QUANTILES.items())
    lines = [
        f"# Coverage of perfkit's intervals on a live M/M/{options.servers} queue",
        "",
        (f"True values: {truth}. `{declaration}`, {rate}/s, {options.seconds} s per run, {options.at_once} runs at once"
        f"{', at real-time priority' if options.realtime else ''}."),
        "",
        *table_head(">run", ">requests", "effective samples of p50, p99", ">p50, ms", "95 % interval", "contains the true value",
                    ">p99, ms", "95 % interval", "contains the true value", "valid"),
    ]  # fmt: skip
    print("\n".join(lines), flush=True)
    covered = dict.fromkeys(QUANTILES, 0)
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        points = pool.map(
            lambda number: measure(f"{declaration},seed={1000 + number}", load, number, options.seconds, realtime=options.realtime),
            range(options.runs),
        )
        for number, point in enumerate(points):
            line, is_covered = row(number, point, options.servers)
            lines.append(line)
            print(line, flush=True)
            for name in QUANTILES:
                covered[name] += is_covered[name]
    required = math.floor(REQUIRED_OF_20 / 20 * options.runs)
    counts = ", ".join(f"{name} {count} of {options.runs}" for name, count in covered.items())
    lines += ["", f"Intervals that contain the true value: {counts}; at least {required} each are required."]
    print(lines[-1])
    write_report(options.out, lines)
    return 0 if min(covered.values()) >= required else 1


if __name__ == "__main__":
    sys.exit(main())

"""What tracing costs: the effect of 100 traced requests a second on the times of the others, and on the CPU time of the load generator.

    python -m benchmarks.trace_cost [--rounds 6] [--seconds 15] [--out reports/trace-cost.md]

`perfkit run` with and without `traces`, in turn, on the bundled server's `synthetic` with a service time of 1 ms; the server is the same, and
traces only what it is asked to. The load is a closed loop with think times, whose process is idle in between, so that its share of a core
tells what a request costs; its change has the rounds' range beside it. Required, for the median of the rounds, over HTTP and gRPC: p50 and p99
change by less than the width of their 95 % interval without traces, and the load-generating process needs less than 1 % of a core more. The
sampler process, which receives the spans, is stated beside it: its CPU time in a run with traces, minus that without. The exit code is 1 if a
requirement is missed.
"""

import argparse
import math
import statistics
import subprocess
import sys
import threading
from typing import Any, NamedTuple

import psutil

from benchmarks.processes import run_perfkit, running_server
from benchmarks.report import describe_machine, option_parser, publish, table_head, table_row, yes_no
from perfkit.target.command_server import free_ports

ALLOWED_CPU_SHARE = 0.01
_SERVER = ("--model", "synthetic", "--synthetic", "service=constant:1ms,servers=64")


class Run(NamedTuple):
    """One run: percentiles in microseconds with the width of their intervals, and CPU time per second of the window."""

    p50: float
    p99: float
    p50_width: float
    p99_width: float
    throughput: float
    traced: int
    driver: float
    """Of the load-generating process, as a share of a core."""
    sampler_s: float
    """Of the sampler process from its start to its end, in seconds."""


def measure(url: str, listen: str, seconds: int, *, is_traced: bool) -> Run:
    """One run of 12 requests in flight, each after a think time of 20 ms: about 550 a second."""
    samplers: dict[int, float] = {}
    scenario: dict[str, Any] = {
        "name": "trace-cost", "target": {"url": url, "model": "synthetic"}, "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
        "load": {"closed": {"concurrency": 12, "think_time": "20ms"}}, "measure": {"duration": f"{seconds}s", "repetitions": 1, "workers": 1},
    }  # fmt: skip
    if is_traced:
        scenario["traces"] = {"listen": listen, "sample": "100/s"}
    ended = threading.Event()

    def watch(process: "subprocess.Popen[bytes]") -> None:
        def note() -> None:
            while not ended.wait(0.2):
                for child in children(process.pid):
                    samplers[child.pid] = cpu_s(child) or samplers.get(child.pid, 0.0)

        threading.Thread(target=note, daemon=True).start()

    run = run_perfkit(scenario, during=watch)
    ended.set()
    point = run.point
    times, intervals = point["service_time_ns"], point["intervals"]
    p50_width, p99_width = (
        (math.inf if intervals[name][1] is None else intervals[name][1] - intervals[name][0]) / 1e3 for name in ("p50", "p99")
    )
    traced = point["breakdown"]["sampled"] if point.get("breakdown") else 0
    driver = point["generator"]["cpu_share"]
    return Run(
        times["p50"] / 1e3,
        times["p99"] / 1e3,
        p50_width,
        p99_width,
        point["throughput_per_s"],
        traced,
        driver,
        max(samplers.values(), default=0.0),
    )


def children(pid: int) -> list[psutil.Process]:
    """The processes that a run has started; none if it has ended."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def cpu_s(process: psutil.Process) -> float | None:
    """A process's CPU time so far; None if it has ended."""
    try:
        return sum(process.cpu_times()[:2])
    except psutil.NoSuchProcess:
        return None


def main(arguments: argparse.Namespace) -> int:
    """Measures, and publishes the report."""
    machine, (port,) = describe_machine(), free_ports(1)
    listen, is_met = f"127.0.0.1:{port}", True
    columns = (
        "protocol",
        ">requests/s",
        ">traced/s",
        ">p50",
        ">change",
        ">width",
        ">p99",
        ">change",
        ">width",
        ">generator",
        ">sampler",
        "met",
    )
    lines = ["# The cost of tracing", "", f"{arguments.rounds} rounds of {arguments.seconds} s; {machine}", "", *table_head(*columns)]
    with running_server(*_SERVER, "--trace-url", f"http://{listen}/v1/traces") as server:
        for protocol in ("http", "grpc"):
            pairs = []
            for number in range(arguments.rounds):
                order = (False, True) if number % 2 else (True, False)
                runs = {traced: measure(server.url(protocol), listen, arguments.seconds, is_traced=traced) for traced in order}
                pairs.append((runs[False], runs[True]))

            def median(figure: str, pairs: list[tuple[Run, Run]] = pairs) -> tuple[float, float]:
                """The figure without traces, and its change by them."""
                without = statistics.median(getattr(one, figure) for one, _ in pairs)
                return without, statistics.median(getattr(other, figure) - getattr(one, figure) for one, other in pairs)

            (p50, p50_change), (p99, p99_change), (_, driver) = median("p50"), median("p99"), median("driver")
            p50_width, p99_width = median("p50_width")[0], median("p99_width")[0]
            drivers = [other.driver - one.driver for one, other in pairs]
            holds = abs(p50_change) < p50_width and abs(p99_change) < p99_width and driver < ALLOWED_CPU_SHARE
            is_met &= holds
            traced = statistics.median(other.traced for _, other in pairs) / arguments.seconds
            lines.append(
                table_row(
                    protocol, f"{median('throughput')[0]:,.0f}", f"{traced:.0f}", f"{p50:,.0f} us", f"{p50_change:+.0f} us", f"{p50_width:.0f} us",
                    f"{p99:,.0f} us", f"{p99_change:+.0f} us", f"{p99_width:.0f} us", f"{driver:+.2%} ({min(drivers):+.2%} to {max(drivers):+.2%})",
                    f"{median('sampler_s')[1] / arguments.seconds:+.2%} of a core", yes_no(holds),
                )
            )  # fmt: skip
    return publish(arguments.out, [*lines, "", *(__doc__ or "").splitlines()[4:]], is_met=is_met)


if __name__ == "__main__":
    parser = option_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="runs of each kind (6)")
    parser.add_argument("--seconds", type=int, default=15, help="the length of each window (15)")
    sys.exit(main(parser.parse_args()))

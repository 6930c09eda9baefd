"""What tracing costs: the effect of 100 traced requests a second on the times of the others, and on the CPU time of the load generator.

    python -m benchmarks.trace_cost [--rounds 6] [--seconds 15] [--out reports/trace-cost.md]

`perfkit run` with and without `traces`, in turn, on the bundled server's `synthetic` with a service time of 1 ms; the server is the same, and
traces only what it is asked to. The load is a closed loop with think times, whose process is idle in between, so that its share of a core
tells what a request costs; its change has the rounds' range beside it. Required, for the median of the rounds, over HTTP and gRPC: p50 and p99
change by less than the width of their 95 % interval without traces, and the load-generating process needs less than 1 % of a core more. The
sampler process, which receives the spans, is stated beside it: its CPU time in a run with traces, minus that without. The exit code is 1 if a
requirement is missed.
"""

import contextlib
import math
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

import psutil

from benchmarks.processes import run_perfkit, running_server
from benchmarks.report import Report, describe_machine, program_options, rounds_text
from benchmarks.synthetic import scenario
from perfkit.target.started_server import free_ports

ALLOWED_CPU_SHARE = 0.01
_SERVER = ("--model", "synthetic", "--synthetic", "service=constant:1ms,servers=64")
_LOAD = {"closed": {"concurrency": 12, "think_time": "20ms"}}


class Run(NamedTuple):
    """One run: percentiles in microseconds with the width of their intervals, and CPU time per second of the window."""

    p50: float
    p99: float
    p50_width: float
    p99_width: float
    throughput: float
    traced: float
    driver: float
    """The CPU time of the load-generating process, as a share of a core."""
    sampler_s: float
    """The CPU time of the sampler process from its start to its end, in seconds."""


def measure(url: str, listen: str, seconds: float, *, is_traced: bool) -> Run:
    """One run of 12 requests in flight, each after a think time of 20 ms: about 550 a second."""
    cpu_s = dict[int, float]()

    def read_children(process: "subprocess.Popen[bytes]") -> None:
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    cpu_s[child.pid] = sum(child.cpu_times()[:2])
            time.sleep(0.2)

    sections: dict[str, Any] = {"traces": {"listen": listen, "sample": "100/s"}} if is_traced else {}
    point = run_perfkit(scenario(url, _LOAD, seconds, measure={"workers": 1}, **sections), during=read_children).point
    times, ends = point["service_time_ns"], (point["intervals"][name] for name in ("p50", "p99"))
    p50_width, p99_width = (math.inf if high is None else (high - low) / 1e3 for low, high in ends)
    traced, driver = point["breakdown"]["sampled"] if point.get("breakdown") else 0, point["generator"]["cpu_share"]
    sampler_s = max(cpu_s.values(), default=0.0)
    return Run(times["p50"] / 1e3, times["p99"] / 1e3, p50_width, p99_width, point["throughput_per_s"], traced, driver, sampler_s)


def main() -> int:
    """Measures, and publishes the report."""
    options = program_options(__doc__, rounds=6, seconds=15.0)
    page, listen = Report(options.out, "The cost of tracing"), f"127.0.0.1:{free_ports(1)[0]}"
    page.add(f"{rounds_text(options.rounds)} of {options.seconds:g} s; {describe_machine()}", "")
    page.table(
        "protocol", ">requests/s", ">traced/s", ">p50", ">change", ">width", ">p99", ">change", ">width", ">generator", ">sampler", "met"
    )
    with running_server(*_SERVER, "--trace-url", f"http://{listen}/v1/traces") as server:
        for protocol in ("http", "grpc"):
            runs = dict[bool, list[Run]]({False: [], True: []})
            for number in range(options.rounds):
                for is_traced in (False, True) if number % 2 else (True, False):
                    runs[is_traced].append(measure(server.url(protocol), listen, options.seconds, is_traced=is_traced))
            without = Run(*map(statistics.median, zip(*runs[False], strict=True)))
            changes = [
                Run(*(after - before for before, after in zip(*pair, strict=True))) for pair in zip(runs[False], runs[True], strict=True)
            ]
            change = Run(*map(statistics.median, zip(*changes, strict=True)))
            drivers = [one.driver for one in changes]
            holds = abs(change.p50) < without.p50_width and abs(change.p99) < without.p99_width and change.driver < ALLOWED_CPU_SHARE
            page.judged_row(
                holds, protocol, f"{without.throughput:,.0f}", f"{change.traced / options.seconds:.0f}",
                f"{without.p50:,.0f} us", f"{change.p50:+.0f} us", f"{without.p50_width:.0f} us",
                f"{without.p99:,.0f} us", f"{change.p99:+.0f} us", f"{without.p99_width:.0f} us",
                f"{change.driver:+.2%} ({min(drivers):+.2%} to {max(drivers):+.2%})", f"{change.sampler_s / options.seconds:+.2%} of a core",
            )  # fmt: skip
    page.add("", *(__doc__ or "").splitlines()[4:])
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

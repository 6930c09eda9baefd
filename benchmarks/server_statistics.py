"""Compares the server's own statistics with perfkit's figures, and measures what reading them costs.

    python -m benchmarks.server_statistics [--seconds 10] [--no-triton] [--peers FOLDER] [--out reports/server-statistics.md]

On the bundled server and on a real Triton (`benchmarks/peers/install.py` installs it), over both protocols: server and perfkit
must count the same requests, and the server's mean success time must not exceed the client's mean service time; the exit code is
1 otherwise. On the bundled server's model `synthetic`, 5 ms of queueing and 10 ms of compute are injected and must appear in
their fields. Then the same load runs with telemetry and without, and the CPU time of the sampler process is measured.
"""

import contextlib
import dataclasses
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from benchmarks.peers.install import peers_folder
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import Triton, running_triton
from benchmarks.processes import ROOT, run_perfkit
from benchmarks.report import option_parser, publish, table_head, table_row, yes_no
from perfkit.units import format_duration_ns

_LOADS: Mapping[str, Mapping[str, Any]] = {
    "closed": {"closed": {"concurrency": [1, 4, 16]}},
    "open": {"open": {"rate": [100], "arrivals": "poisson"}},
}
# every period: 20 requests 11 ms apart, which do not queue, then 75 requests 10 ms apart, each _WAIT_S before its predecessor
# ends. All busy requests wake the server in the same way, so no single late wake-up counts much; 5 ms is the mean of all 95
_DECLARATION, _PERIOD_S, _IDLE, _BUSY = "service=constant:10ms,servers=1,lead=0s", 1.0, 20, 75
_WAIT_S = 0.005 * (_IDLE + _BUSY) / _BUSY
_FIRST_BUSY_S = (_IDLE - 1) * 0.011 + 0.01 - _WAIT_S
_OFFSETS_S = (*(number * 0.011 for number in range(_IDLE)), *(_FIRST_BUSY_S + number * 0.01 for number in range(_BUSY)))
_QUEUE_NS, _COMPUTE_NS, _ALLOWED_SHARE = 5_000_000, 10_000_000, 0.02
_CPU_INTERVAL_S = 0.5


@dataclasses.dataclass(frozen=True)
class ServerPoint:
    """One load point on one server."""

    server: str
    point: Mapping[str, Any]

    @property
    def figures(self) -> Mapping[str, Any]:
        """The server's figures; empty if it gave none."""
        return self.point["server"] or {}

    @property
    def counts_agree(self) -> bool:
        """Whether server and perfkit counted the same requests."""
        return bool(self.figures) and self.figures["requests"] == self.figures["client_requests"] > 0

    @property
    def is_within_client_time(self) -> bool:
        """Whether the server's mean success time does not exceed the client's mean service time."""
        return bool(self.figures) and self.figures["success_ns"] <= self.figures["client_mean_ns"]

    def row(self) -> str:
        """The line of the table."""
        load, figures = self.point["load"], self.figures
        title = f"concurrency {load['concurrency']}" if load["kind"] == "closed" else f"{load['rate_per_s']:g}/s {load['arrivals']}"
        counts, times = ["none", ""], [""] * 4
        if figures:
            counts = [f"{figures['requests']:,}", f"{figures['client_requests']:,}"]
            names = ("queue_ns", "compute_infer_ns", "success_ns", "client_mean_ns")
            times = [format_duration_ns(figures[name]) if figures[name] else "0" for name in names]
        checks = (yes_no(self.counts_agree), yes_no(self.is_within_client_time))
        return table_row(self.server, self.point["protocol"], title, *counts, *times, *checks)


class SamplerCpu:
    """The share of a core that the sampler process takes in each run, without its start."""

    def __init__(self) -> None:
        self.shares: list[float] = []

    def follow(self, process: "subprocess.Popen[bytes]") -> None:
        """Reads the CPU time of a run's sampler process until the run ends."""
        readings: list[tuple[float, float]] = []
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(process.pid).children():
                    if "perfkit.telemetry.sampler_process" in child.cmdline():
                        used = child.cpu_times()
                        readings.append((time.monotonic(), used.user + used.system))
            time.sleep(_CPU_INTERVAL_S)
        if len(readings) > 4:  # the first readings are of a process that imports its libraries
            (first_s, first_cpu_s), (last_s, last_cpu_s) = readings[3], readings[-1]
            self.shares.append((last_cpu_s - first_cpu_s) / (last_s - first_s))


def scenario(model: str, load: Mapping[str, Any], seconds: float, **keys: Any) -> dict[str, Any]:
    """A scenario of one repetition and one worker."""
    measured = {"warmup": "1s", "duration": f"{seconds:g}s", "repetitions": 1, "workers": 1}
    if model == "synthetic":
        keys["workload"] = {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}}
    return {"target": {"model": model}, "load": dict(load), "measure": measured, **keys}


def compare(seconds: float, triton: Triton | None) -> list[ServerPoint]:
    """Every load over every protocol on every server."""
    servers: dict[str, Triton | None] = {"bundled server": None}
    if triton is not None:
        servers[f"Triton {triton.version}"] = triton
    points = []
    for name, server in servers.items():
        for protocol in ("http", "grpc"):
            for kind, load in _LOADS.items():
                print(f"{name}, {protocol}, {kind} …", file=sys.stderr)
                document = scenario("simple", load, seconds)
                document["target"] |= {"protocols": [protocol]} if server is None else {"url": server.url(protocol)}
                points += [ServerPoint(name, point) for point in run_perfkit(document).points]
    return points


def inject(seconds: float) -> list[ServerPoint]:
    """Injects a mean queue time of 5 ms and a compute time of 10 ms, over both protocols."""
    instants = (period * _PERIOD_S + offset_s for period in range(round(seconds / _PERIOD_S)) for offset_s in _OFFSETS_S)
    with tempfile.TemporaryDirectory(prefix="perfkit-statistics-") as folder:
        trace = pathlib.Path(folder, "trace.txt")
        trace.write_text("".join(f"{instant:.6f}\n" for instant in instants), encoding="ascii")
        load = {"open": {"arrivals": "trace", "trace": str(trace)}}
        document = scenario("synthetic", load, seconds, server={"synthetic": _DECLARATION})
        document["target"]["protocols"], document["measure"]["warmup"] = ["http", "grpc"], "0s"
        return [ServerPoint("synthetic", point) for point in run_perfkit(document).points]


def measure_cost(seconds: float, rounds: int) -> tuple[list[str], SamplerCpu]:
    """The p99 with telemetry and without in turn, each with its 95 % interval, and the sampler's CPU time."""
    cpu, rows = SamplerCpu(), []
    for number in range(rounds):
        for telemetry in (True, False):
            state = "on" if telemetry else "off"
            print(f"cost, round {number + 1} of {rounds}, telemetry {state} …", file=sys.stderr)
            load = {"open": {"rate": [200], "arrivals": "poisson"}}
            server = {"synthetic": "service=exponential:5ms,servers=4"}
            document = scenario("synthetic", load, seconds, telemetry=telemetry, server=server)
            point = run_perfkit(document, during=cpu.follow if telemetry else lambda _: None).point
            low, high = point["intervals"].get("p99", (None, None))
            times = [format_duration_ns(value) if value else "–" for value in (point["response_time_ns"]["p99"], low, high)]
            rows.append(table_row(number + 1, state, times[0], f"{times[1]} to {times[2]}"))
    return rows, cpu


def report(points: Sequence[ServerPoint], injected: Sequence[ServerPoint], cost_rows: Sequence[str], cpu: SamplerCpu) -> list[str]:
    """The report's lines."""
    lines = [
        "# The server's statistics compared with perfkit's figures", "",
        "Both count the requests of a whole load point, with its warm-up; times are means. The server's success time must not exceed",
        "the client's mean service time of the same requests.", "",
        *table_head("server", "protocol", "load", ">server counted", ">perfkit counted", ">queue", ">compute infer", ">success",
                    ">client's mean", "counts agree", "within client's time"),
        *(point.row() for point in points), "",
        "## 5 ms of queueing and 10 ms of compute", "",
        (f"The model `synthetic` (`{_DECLARATION}`): every {_PERIOD_S:g} s {_IDLE} requests 11 ms apart, which do not queue, and {_BUSY} "
        f"requests 10 ms apart, each {_WAIT_S * 1e3:.2f} ms before its predecessor ends: 5 ms on average over all."),
        "",
        *table_head("protocol", ">requests", ">queue", ">error", ">compute infer", ">error", "within 2 %"),
    ]  # fmt: skip
    for point in injected:
        expected_ns = {"queue_ns": _QUEUE_NS, "compute_infer_ns": _COMPUTE_NS}
        errors = [point.figures[name] / expected - 1 for name, expected in expected_ns.items()]
        times = [format_duration_ns(point.figures[name]) for name in expected_ns]
        cells = [cell for time_text, error in zip(times, errors, strict=True) for cell in (time_text, f"{error:+.2%}")]
        is_within = max(map(abs, errors)) <= _ALLOWED_SHARE
        lines.append(table_row(point.point["protocol"], f"{point.figures['requests']:,}", *cells, yes_no(is_within)))
    share = (
        f"{max(cpu.shares):.2%} of a core in the busiest of {len(cpu.shares)} runs" if cpu.shares else "unknown: the runs were too short"
    )
    return [
        *lines, "", "## Cost of reading", "",
        f"CPU time of the sampler process: {share}. It reads the load generator twice per second and the server's statistics once. No GPU.",
        "",
        "p99 of the response time at 200/s (Poisson, exponential service of 5 ms on four servers), with telemetry and without:", "",
        *table_head(">round", "telemetry", ">p99", "95 % interval"), *cost_rows,
    ]  # fmt: skip


def main() -> int:
    """Measures, and writes the report."""
    parser = option_parser(__doc__, out=ROOT / "reports" / "server-statistics.md")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each window (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of p99 with and without telemetry (default %(default)s)")
    parser.add_argument("--no-triton", action="store_true", help="measure the bundled server only")
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    options = parser.parse_args()
    note = []
    with contextlib.ExitStack() as stack:
        triton = None
        if not options.no_triton:
            try:
                triton = stack.enter_context(running_triton(peers_folder(options.peers)))
            except PeerError as error:
                note = ["", f"Triton was not measured: {error}"]
                print(note[1], file=sys.stderr)
        points = compare(options.seconds, triton)
    injected = inject(options.seconds)
    lines = [*report(points, injected, *measure_cost(options.seconds, options.rounds)), *note]
    return publish(options.out, lines, is_met=all(point.counts_agree and point.is_within_client_time for point in (*points, *injected)))


if __name__ == "__main__":
    sys.exit(main())

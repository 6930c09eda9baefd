"""Whether a run with `traces` names the cause of slow requests that was built in, on the bundled server and on Triton.

    python -m benchmarks.tail_causes [--seconds 60] [--triton] [--peers FOLDER] [--out reports/tail-causes.md]

Every request is traced, over HTTP and gRPC. Required of each case: the part that differs most between p99 and the median is the one that was
built in, as is the largest part of each of the ten slowest requests (but for one in service when a stall begins); where all requests are slow,
it is the largest part at the median. The parts of every request add up to its time. On the bundled server's
`synthetic` the queue of each request is also computed here, by the recursion of a queue with one server (D. V. Lindley, 1952) from
the instants at which requests were to be sent and their declared service times: the median difference must be at most 200 us. On Triton the
mean queue and compute of the traced requests must agree with the server's own statistics of all requests, within the 95 % interval of the
mean, widened by 50 us for the statistics' rounding and the requests before the window. The exit code is 1 if a requirement is missed.
"""

import argparse
import contextlib
import csv
import math
import pathlib
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import running_triton
from benchmarks.processes import PerfkitRun, run_perfkit
from benchmarks.report import describe_machine, option_parser, publish, table_head, table_row, yes_no
from perfkit.spans.split import PARTS
from perfkit.target.command_server import free_ports

ALLOWED_US, STATISTICS_US = 200, 50
_SLEEPING = pathlib.Path(__file__).parent / "peers/triton_sleeping_models/sleeping/1/model.py"


class Case(NamedTuple):
    """What was built in, and the part that must be named."""

    name: str
    cause: str
    rate_per_s: float
    synthetic: str = ""
    has_one_server: bool = False
    """Whether the queue of each request is computed here."""
    instances: int = 1
    """Of the Triton model."""
    settings: str = ""
    """Further lines of the Triton model's configuration."""
    slow_ms: float | None = None
    """Of a Triton model: what 2 % of the requests sleep, in place of 5 ms."""
    slows_all: bool = False
    """Whether all requests are slow, so that the cause is the largest part at the median, too."""
    exceptions_per_s: float = 0.0
    """How many of the slowest requests may have another largest part: the one in service when a stall begins pauses there."""


SYNTHETIC = (
    Case("M/M/1 at 80 %", "queue", 160, "service=exponential:5ms,lead=0s,seed=3", has_one_server=True),
    Case("a stall of 1 s in 10 s", "queue", 150, "service=constant:2ms,stall=1s/10s,drain=at-pace,lead=0s", exceptions_per_s=0.1),
    Case("2 % three times as long", "compute_infer", 100, "service=constant:10ms,servers=64,slow=3x/2%,lead=0s"),
)
TRITON = (
    Case("2 % sleep 25 ms, others 5 ms", "compute_infer", 40, instances=8, slow_ms=25),
    Case("a batch waits up to 20 ms", "queue", 50, instances=4, settings="dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 20000 }", slows_all=True),
    Case("one instance, busy", "queue", 130),
)  # fmt: skip


class Finding(NamedTuple):
    """What one run said."""

    case: Case
    protocol: str
    traced: int
    named: tuple[str, float, float]
    """The part that differs most between p99 and the median, that difference, and the one of the whole time, in milliseconds; where all
    requests are slow, the largest part at the median, and that of the whole time."""
    slowest: int
    """Of how many of the slowest requests the built-in part is the largest."""
    exceptions: int
    """How many of them may have another."""
    adds_up: bool
    difference_us: float | None = None
    """From the computed queue, or from Triton's statistics beyond the interval; the larger one of queue and compute."""

    @property
    def is_met(self) -> bool:
        """Whether all requirements hold."""
        is_close = self.difference_us is None or self.difference_us <= (ALLOWED_US if self.case.synthetic else 0)
        return self.named[0] == self.case.cause and self.slowest >= 10 - self.exceptions and self.adds_up and is_close


def measure(case: Case, scenario: Mapping[str, Any]) -> tuple[PerfkitRun, list[dict[str, int]]]:
    """A run, and its traced requests: times in nanoseconds, by the names of `traces.csv`, with the start in the window as `at_ns`."""
    with tempfile.TemporaryDirectory(prefix="perfkit-tail-") as name:
        folder = pathlib.Path(name, "out")
        load = {"open": {"rate": case.rate_per_s, "arrivals": "poisson"}}
        run = run_perfkit({"name": "tail", "load": load, **scenario}, out=folder)
        if run.result is None:
            raise SystemExit(f"{case.name}: {run.stderr}")
        with (folder / "traces.csv").open(encoding="utf-8", newline="") as stream:
            rows = [{key: int(value) for key, value in row.items() if key.endswith("_ns")} | {"at_ns": round(float(row["window_s"]) * 1e9)}
                    for row in csv.DictReader(stream) if not row["workload"]]  # fmt: skip
    return run, rows


def judge(case: Case, protocol: str, run: PerfkitRun, rows: Sequence[Mapping[str, int]], seconds: int) -> Finding:
    """What a run said, beside what was built in."""
    breakdown = next(point for point in run.points if point.get("workload") is None)["breakdown"]
    means = breakdown["p50"] if case.slows_all else breakdown["contrast"]["p99"]
    part = max(means["parts_ns"], key=lambda name: means["parts_ns"][name])
    slowest = sum(max(one["parts_ns"], key=lambda name: one["parts_ns"][name]) == case.cause for one in breakdown["slowest"])
    adds_up = all(sum(row[f"{name}_ns"] for name in PARTS) == row["total_ns"] for row in rows)
    difference_us = None
    if case.has_one_server:
        difference_us = statistics.median(abs(one) for one in queue_differences_ns(rows)) / 1e3
    elif not case.synthetic:
        difference_us = beyond_statistics_us(run, breakdown)
    named = (part, means["parts_ns"][part] / 1e6, means["total_ns"] / 1e6)
    return Finding(case, protocol, len(rows), named, slowest, math.ceil(case.exceptions_per_s * seconds), adds_up, difference_us)


def queue_differences_ns(rows: Sequence[Mapping[str, int]]) -> Iterator[int]:
    """The told queue of each request minus the computed one, of a server with one request in service, first come, first served."""
    free_ns = 0
    for row in sorted(rows, key=lambda row: row["at_ns"]):
        began_ns = max(row["at_ns"], free_ns)
        free_ns = began_ns + row["compute_infer_ns"]
        yield row["queue_ns"] - (began_ns - row["at_ns"])


def beyond_statistics_us(run: PerfkitRun, breakdown: Mapping[str, Any]) -> float:
    """How far the server's own mean queue and compute are outside of the traced requests' intervals, the larger one of both."""
    server = next(point for point in run.points if point.get("workload") is None)["server"]
    mean = breakdown["mean"]["intervals_ns"]
    beyond = list[float]()
    for own, name in (("queue_ns", "queue"), ("compute_infer_ns", "compute_infer")):
        low, high = mean[name]
        beyond.append(max(low - server[own], server[own] - high, 0) / 1e3 - STATISTICS_US)
    return max(*beyond, 0.0)


def on_synthetic(seconds: int) -> Iterator[Finding]:
    """The cases on the bundled server."""
    for case in SYNTHETIC:
        for protocol in ("http", "grpc"):
            scenario = {
                "target": {"model": "synthetic", "protocols": [protocol]}, "server": {"synthetic": case.synthetic},
                "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
                "measure": {"warmup": "0s", "duration": f"{seconds}s", "repetitions": 1}, "traces": {"share": "100%"},
            }  # fmt: skip
            yield judge(case, protocol, *measure(case, scenario), seconds)


def on_triton(seconds: int, peers: pathlib.Path) -> Iterator[Finding]:
    """The cases on a real Triton, with a model of its Python backend."""
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    with model_repository() as models, running_triton(peers, models=models, options=tracing_options(listen)) as triton:
        for number, case in enumerate(TRITON):
            for protocol in ("http", "grpc"):
                sleeping = {"MS": {"value": [5.0]}}
                scenario: dict[str, Any] = {
                    "target": {"model": f"sleeping_{number}", "url": triton.url(protocol)}, "workload": {"inputs": sleeping},
                    "measure": {"duration": f"{seconds}s", "repetitions": 1}, "traces": {"share": "100%", "listen": listen},
                }  # fmt: skip
                if case.slow_ms is not None:
                    slow = {"name": "slow", "weight": 2, "inputs": {"MS": {"value": [case.slow_ms]}}}
                    scenario["workloads"] = [{"name": "quick", "weight": 98, "inputs": sleeping}, slow]
                yield judge(case, protocol, *measure(case, scenario), seconds)


@contextlib.contextmanager
def model_repository() -> Iterator[pathlib.Path]:
    """A repository with one model for each case."""
    with tempfile.TemporaryDirectory(prefix="perfkit-models-") as name:
        for number, case in enumerate(TRITON):
            write_sleeping_model(pathlib.Path(name), f"sleeping_{number}", instances=case.instances, settings=case.settings)
        yield pathlib.Path(name)


def write_sleeping_model(repository: pathlib.Path, name: str, *, instances: int, settings: str) -> None:
    """Writes a model that sleeps as many milliseconds as its input says; `settings` are further lines of its configuration."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    shutil.copy(_SLEEPING, folder / "model.py")
    tensors = [
        f'{kind} [ {{ name: "{tensor}" data_type: TYPE_FP32 dims: [ 1 ] }} ]' for kind, tensor in (("input", "MS"), ("output", "SLEPT"))
    ]
    group = f"instance_group [ {{ kind: KIND_CPU count: {instances} }} ]"
    lines = [f'name: "{name}"', 'backend: "python"', "max_batch_size: 8", *tensors, group, settings, ""]
    (folder.parent / "config.pbtxt").write_text("\n".join(lines), encoding="utf-8")


def tracing_options(listen: str) -> list[str]:
    """The options with which Triton sends spans of requests with a `traceparent` to this host and port."""
    keys = ("mode=opentelemetry", "level=TIMESTAMPS", "rate=1000000000", f"opentelemetry,url=http://{listen}/v1/traces")
    return [part for key in (*keys, "opentelemetry,bsp_schedule_delay=500") for part in ("--trace-config", key)]


def report(findings: Sequence[Finding], machine: str, seconds: int) -> list[str]:
    """The report's lines."""
    columns = (
        "built in",
        "server",
        "protocol",
        ">traced",
        "named",
        ">its time",
        ">of",
        ">slowest ten",
        "adds up",
        ">off by",
        "met",
    )
    lines = ["# The causes of slow requests, named from traces", "", f"{seconds} s each; {machine}", "", *table_head(*columns)]
    for one in findings:
        part, difference_ms, total_ms = one.named
        off = "–" if one.difference_us is None else f"{one.difference_us:.0f} us"
        server = "synthetic" if one.case.synthetic else "Triton"
        lines.append(
            table_row(one.case.name, server, one.protocol, f"{one.traced:,}", part, f"{difference_ms:.2f} ms", f"{total_ms:.2f} ms",
                      f"{one.slowest}/10", yes_no(one.adds_up), off, yes_no(one.is_met))
        )  # fmt: skip
    return [*lines, "", *(__doc__ or "").splitlines()[4:]]


def main(arguments: argparse.Namespace) -> int:
    """Measures, and publishes the report."""
    machine, findings = describe_machine(), list(on_synthetic(arguments.seconds))
    if arguments.triton:
        findings += on_triton(arguments.seconds, peers_folder(arguments.peers))
    return publish(arguments.out, report(findings, machine, arguments.seconds), is_met=all(one.is_met for one in findings))


if __name__ == "__main__":
    parser = option_parser(__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="the length of each window (60)")
    parser.add_argument("--triton", action="store_true", help="also on a real Triton")
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    sys.exit(main(parser.parse_args()))

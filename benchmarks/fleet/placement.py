"""The same load from this machine, from machines that Dask starts, and from machines that are started by hand.

    python -m benchmarks.fleet.placement [--rounds 3] [--seconds 10] [--realtime] [--out reports/fleet-placement.md]

Every way has two worker processes, here all on one computer. Each request is traced, so that `traces.csv` has its intended instant since the start of
the window to the nanosecond. The exit code is 1 if the instants differ, or if the 95 % intervals of p50 of two ways do not overlap in a round.
Times of Dask are those of a cluster that is running already; its workers do nothing else.
"""

import contextlib
import csv
import dataclasses
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.fleet.dask_cluster import DaskCluster
from benchmarks.peers.server_process import free_ports
from benchmarks.processes import ROOT, write_scenario
from benchmarks.report import describe_machine, program_options, publish, table_head, table_row, yes_no

RATE_PER_S, WARMUP_S = 200, 2.0
SERVICE = "lognormal:5ms:cv=0.2"
_ENVIRONMENT = {**os.environ, "PERFKIT_FLEET_TOKEN": "the token of a trial on one computer"}
_ALONE, _STARTED, _KEPT, _DASK = "this machine", "workers started by hand", "workers that wait (`--keep`)", "Dask"
WAYS = (_ALONE, _STARTED, _KEPT, _DASK)


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    way: str
    instants_s: Sequence[str]
    """The intended instants of its requests, in their order."""
    p50_ms: float
    p50_low_ms: float
    p50_high_ms: float
    joined_s: float | None
    """From the moment at which the target was ready until both machines had joined; None without a fleet."""
    beside_load_s: float
    """The length of the command without warm-up and window."""
    dask_cpus: float | None
    """What Dask's own processes used of a CPU."""
    disturbances: Sequence[str]
    """The codes of its warnings."""


def scenario(seconds: float, fleet: Mapping[str, Any] | None) -> dict[str, Any]:
    """The load, on the bundled server."""
    return {
        "target": {"model": "synthetic"},
        "server": {"synthetic": f"service={SERVICE},servers=100"},
        "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
        "load": {"open": {"rate": RATE_PER_S, "arrivals": "poisson"}},
        "measure": {"warmup": f"{WARMUP_S:g}s", "duration": f"{seconds:g}s", "repetitions": 1, "workers": 1 if fleet else 2},
        "traces": {"share": "100%"},
        **({"fleet": {"workers": 2, "listen": f"127.0.0.1:{free_ports(0)[0]}", **fleet}} if fleet is not None else {}),
    }


def measure(way: str, document: Mapping[str, Any], during: Callable[[str], None] = lambda _: None) -> Measured:
    """Runs a scenario; `during` is called with each line that the command says."""
    with tempfile.TemporaryDirectory(prefix="perfkit-benchmark-") as name:
        folder, file = pathlib.Path(name, "out"), write_scenario(pathlib.Path(name), document)
        command = [sys.executable, "-m", "perfkit", "run", str(file), "--no-report", "--out", str(folder)]
        began_s, ready_s, joined_s = time.monotonic(), 0.0, None
        lines = list[str]()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT, env=_ENVIRONMENT, text=True) as process:
            assert process.stderr is not None
            for line in process.stderr:
                lines.append(line)
                during(line)
                if line.startswith("target: "):
                    ready_s = time.monotonic()
                if "has joined, 2 of 2" in line:
                    joined_s = time.monotonic() - ready_s
        wall_s = time.monotonic() - began_s
        if not (folder / "traces.csv").exists():
            raise RuntimeError(f"the run on {way} failed:\n{''.join(lines)}")
        point = json.loads((folder / "result.json").read_text(encoding="utf-8"))["summary"][0]
        with (folder / "traces.csv").open(encoding="utf-8") as stream:
            instants = sorted((row["window_s"] for row in csv.DictReader(stream)), key=float)
    low_ns, high_ns = point["intervals"]["p50"]
    load_s = point["warmup_s"] + point["duration_s"]
    codes = [warning["code"] for warning in point["warnings"]]
    return Measured(
        way, instants, point["response_time_ns"]["p50"] / 1e6, low_ns / 1e6, high_ns / 1e6, joined_s, wall_s - load_s, None, codes
    )


def measure_alone(seconds: float) -> Measured:
    """The load of two worker processes of the driver."""
    return measure(_ALONE, scenario(seconds, None))


def measure_started(seconds: float) -> Measured:
    """`perfkit worker` is started twice as soon as the driver waits."""
    document = scenario(seconds, {})
    with contextlib.ExitStack() as stack:

        def start(line: str) -> None:
            if "waiting for 2 machines" in line:
                for name in ("first", "second"):
                    stack.enter_context(_worker(document["fleet"]["listen"], name))

        return measure(_STARTED, document, start)


def measure_kept(seconds: float) -> Measured:
    """Two `perfkit worker --keep` wait for the driver."""
    document = scenario(seconds, {})
    with contextlib.ExitStack() as stack:
        for name in ("first", "second"):
            stack.enter_context(_worker(document["fleet"]["listen"], name, "--keep"))
        return measure(_KEPT, document)


def measure_on_dask(seconds: float, cluster: DaskCluster) -> Measured:
    """A Dask cluster that is running starts the machines."""
    before_s, began_s = cluster.cpu_time_s(), time.monotonic()
    measured = measure(_DASK, scenario(seconds, {"kind": "dask", "scheduler": cluster.url}))
    cpus = (cluster.cpu_time_s() - before_s) / (time.monotonic() - began_s)
    return dataclasses.replace(measured, dask_cpus=cpus)


@contextlib.contextmanager
def _worker(listen: str, name: str, *options: str) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-m", "perfkit", "worker", f"--join=tcp://{listen}", f"--name={name}", *options]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=ROOT, env=_ENVIRONMENT) as process:
        try:
            yield process
        finally:
            if options:
                process.terminate()
            process.wait(60)


def measure_rounds(rounds: int, seconds: float, cluster: DaskCluster) -> Iterator[list[Measured]]:
    """All ways in each round, another one first each time."""
    ways = (measure_alone, measure_started, measure_kept, lambda one: measure_on_dask(one, cluster))
    for first in range(rounds):
        order = [(first + place) % len(ways) for place in range(len(ways))]
        found = {place: ways[place](seconds) for place in order}
        yield [found[place] for place in range(len(ways))]


def _is_within(one: Measured, other: Measured) -> bool:
    return other.p50_low_ms <= one.p50_ms <= other.p50_high_ms


def _overlap(one: Measured, other: Measured) -> bool:
    return one.p50_low_ms <= other.p50_high_ms and other.p50_low_ms <= one.p50_high_ms


def _seconds(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def report(rounds: Sequence[Sequence[Measured]], cluster_s: float, seconds: float, machine: str) -> tuple[list[str], bool]:
    """The report's lines, and whether everything is as required."""
    everything = [one for each in rounds for one in each]
    are_identical = len({tuple(one.instants_s) for one in everything}) == 1
    pairs = [pair for each in rounds for pair in itertools.combinations(each, 2)]
    within = sum(_is_within(one, other) and _is_within(other, one) for one, other in pairs)
    overlaps = sum(itertools.starmap(_overlap, pairs))
    lines = [
        "# One load, placed in four ways",
        "",
        (
            f"Poisson arrivals at {RATE_PER_S}/s for {seconds:g} s after {WARMUP_S:g} s of warm-up, on a server with service times `{SERVICE}`; "
            f"{len(rounds)} rounds of all ways, each with two worker processes, all on one computer. {machine}"
        ),
        "",
        "## The same load",
        "",
        f"- The intended instants of all {len(everything[0].instants_s):,} requests, to the nanosecond, are the same in all {len(everything)} runs: {yes_no(are_identical)}.",
        f"- 95 % intervals of p50 overlap in {overlaps} of {len(pairs)} pairs of ways within a round; each p50 lies within the other's interval in {within}.",
        "",
        *table_head("round", "way", ">p50 ms", ">95 % interval", "warnings"),
        *(
            table_row(number, one.way, f"{one.p50_ms:.3f}", f"{one.p50_low_ms:.3f} to {one.p50_high_ms:.3f}", ", ".join(one.disturbances) or "none")
            for number, each in enumerate(rounds, 1)
            for one in each
        ),
        "",
        "## What it costs",
        "",
        "Seconds, as median (least to most). Joined: from a ready target until both machines had joined. Beside the load: the whole command without warm-up and window.",
        "",
        *table_head("way", ">joined", ">beside the load", ">more than this machine"),
    ]  # fmt: skip
    for way, runs in zip(WAYS, zip(*rounds, strict=True), strict=True):
        joined = [one.joined_s for one in runs if one.joined_s is not None]
        more = [one.beside_load_s - each[0].beside_load_s for one, each in zip(runs, rounds, strict=True)]
        lines.append(
            table_row(
                way, _seconds(joined) if joined else "–", _seconds([one.beside_load_s for one in runs]), _seconds(more) if joined else "–"
            )
        )
    cpus = [one.dask_cpus for one in everything if one.dask_cpus is not None]
    lines += [
        "",
        (
            f"The cluster itself, a scheduler and two Dask workers, was ready {cluster_s:.2f} s after its start. Its three processes, without perfkit's, used "
            f"{statistics.median(cpus):.3f} CPUs during the runs."
        ),
    ]
    return lines, are_identical and overlaps == len(pairs)


def main() -> int:
    """Prints the report."""
    options = program_options(__doc__, rounds=3, seconds=10.0, realtime=False)
    machine = describe_machine()
    if options.realtime:  # children inherit it
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        machine += " All processes of the runs had real-time priority (SCHED_RR), before those of others."
    with tempfile.TemporaryDirectory(prefix="perfkit-dask-") as folder:
        began_s = time.monotonic()
        cluster = DaskCluster(pathlib.Path(folder))
        cluster_s = time.monotonic() - began_s
        try:
            rounds = list(measure_rounds(options.rounds, options.seconds, cluster))
        finally:
            cluster.end()
    lines, is_met = report(rounds, cluster_s, options.seconds, machine)
    return publish(options.out, lines, is_met=is_met)


if __name__ == "__main__":
    sys.exit(main())

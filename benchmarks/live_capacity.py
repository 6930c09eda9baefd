"""The capacity search on live servers: queues whose capacity is known, and DenseNet against measurements made afterwards.

    python -m benchmarks.live_capacity [--queues exponential ...] [--densenet-threads 1 2] [--out reports/live-capacity.md]

**Known capacity**: the bundled server's model `synthetic` over HTTP with Poisson arrivals. The limit is the p99 at a load of 70 %, from theory
or, for batches, from a simulation of 4 million requests; so the rate of that load is the capacity. The time that the server's front end and
the kernel add is measured first, and the declared `lead` compensates for it. If perf_analyzer is installed, its `--binary-search` searches the
same servers, in steps of 5 % of the true capacity with three windows of 2 s each. Its stability limit is switched off (`-s 999`), because
with it the search never finishes. Both search from a quarter of the capacity to twice the capacity.

**DenseNet**: `densenet_onnx` with one thread and with two. The limit on the p90 is 2.5 times the service time at concurrency 1. The search's
capacity is compared with later runs at 0.9, 1.0 and 1.1 times the capacity on a restarted server: their p90 gives the rate at which
the limit is reached, with an interval. The two capacities must not differ beyond their intervals. They also disagree if the later runs
show that the lowest rate misses the SLO although the search's whole interval lies above it, or that the highest rate meets the SLO
although the whole interval lies below it.

It takes about an hour. The exit code is 1 if a search that ended with exit code 0 is wrong: the true capacity is outside its interval by
more than 5 %, or DenseNet's disagrees with the later runs.
"""

import argparse
import concurrent.futures
import contextlib
import csv
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.known_queues import QUEUES, KnownQueue, known_queue
from benchmarks.live_queue import measure_lead_us
from benchmarks.peers.install import perf_analyzer_path
from benchmarks.processes import REALTIME, run_perfkit, running_server
from benchmarks.report import describe_machine, option_parser, table_head, table_row, write_report, yes_no
from benchmarks.simulated_queues import Floats

PRECISION, TOLERANCE = "8%", 0.05
SHARES, LIMIT_FACTOR, Z_90, Z_95 = (0.9, 1.0, 1.1), 2.5, 1.6449, 1.96
ABOVE_REALTIME = ("chrt", "-f", "2")


class SearchOutcome(NamedTuple):
    """The result of one search; None for what the tool does not report."""

    capacity_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    exit_code: int
    took_s: float
    note: str


def read_search(exit_code: int, result: Mapping[str, Any] | None, stderr: str, took_s: float) -> SearchOutcome:
    """The outcome of a search from `perfkit run`: its result, or without one the last line of stderr."""
    if result is None or not result.get("search"):
        return SearchOutcome(None, None, None, exit_code, took_s, (stderr.strip().splitlines() or ["no result"])[-1])
    search = result["search"]
    invalid = sum(not probe["valid"] for probe in search["probes"])
    note = (
        f"{search['stopped_because']}, {len(search['probes'])} probes ({invalid} invalid), confirmation {search['confirmation'] or 'none'}"
    )
    if search.get("needed_s"):
        note += f", would take {search['needed_s']:.0f} s"
    return SearchOutcome(search["capacity_per_s"], search["low_per_s"], search["high_per_s"], exit_code, took_s, note)


def search_with_perfkit(queue: KnownQueue, url: str, seed: int, options: argparse.Namespace) -> SearchOutcome:
    """One `perfkit run` with a search."""
    search = {
        "slo": {"p99": f"{queue.p99_ms:.5g}ms"},
        "min_rate": queue.capacity_per_s / 4,
        "max_rate": 2 * queue.capacity_per_s,
        "precision": PRECISION,
        "budget": options.budget,
    }
    scenario: dict[str, Any] = {
        "target": {"url": url, "model": "synthetic"},
        "workload": {"seed": seed, "inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}},
        "load": {"search": search},
        "measure": {"duration": f"{options.seconds:g}s"},
    }
    start_s = time.monotonic()
    run = run_perfkit(scenario, prefix=REALTIME if options.realtime else ())
    return read_search(run.exit_code, run.result, run.stderr, time.monotonic() - start_s)


def search_with_perf_analyzer(program: pathlib.Path, queue: KnownQueue, url: str) -> SearchOutcome:
    """Searches with perf_analyzer's `--binary-search`. Its table lists only rates that met the limit; the highest is the capacity."""
    true_per_s = queue.capacity_per_s
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder, "table.csv")
        options = ["-m", "synthetic", "-i", "http", "-u", url.removeprefix("http://"), "--shape", "INPUT0:4", "--async", "--binary-search"]
        options += ["--request-rate-range", f"{true_per_s / 4:.0f}:{2 * true_per_s:.0f}:{0.05 * true_per_s:.0f}"]
        options += ["--request-distribution", "poisson", "--percentile", "99", "-l", f"{queue.p99_ms:.0f}"]
        options += ["-p", "2000", "-f", str(table), "-s", "999"]
        start_s = time.monotonic()
        ended = subprocess.run([str(program), *options], capture_output=True, text=True, check=False, timeout=1200)
        took_s = time.monotonic() - start_s
        rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines())) if table.exists() else []
    rates = [float(row["Request Rate"]) for row in rows if row.get("Request Rate")]
    note = f"{len(re.findall('Request Rate: .* inference requests', ended.stdout))} rates"
    if "not stabilizing" in ended.stdout + ended.stderr:
        note += ", not stable at some rates"
    return SearchOutcome(max(rates, default=None), None, None, ended.returncode, took_s, note)


def is_right(outcome: SearchOutcome, true_per_s: float) -> bool:
    """Whether the interval, widened by 5 %, contains the true capacity; true for exit codes above 0, which promise no capacity."""
    if outcome.exit_code:
        return True
    low, high = outcome.low_per_s or 0.0, outcome.high_per_s or math.inf
    return low * (1 - TOLERANCE) <= true_per_s <= high * (1 + TOLERANCE)


def interval(outcome: SearchOutcome) -> str:
    """The interval of a search as text, with ? for an open end."""
    low, high = (f"{rate:.4g}" if rate else "?" for rate in (outcome.low_per_s, outcome.high_per_s))
    return f"{low} to {high}" if outcome.low_per_s or outcome.high_per_s else "–"


def known_row(name: str, tool: str, queue: KnownQueue, outcome: SearchOutcome) -> str:
    """A line of the table of known queues."""
    true_per_s, reported, error, contains = queue.capacity_per_s, "–", "–", "–"
    if outcome.capacity_per_s is not None:
        reported, error = f"{outcome.capacity_per_s:.4g}/s", f"{outcome.capacity_per_s / true_per_s - 1:+.1%}"
    if outcome.low_per_s or outcome.high_per_s:
        contains = yes_no((outcome.low_per_s or 0) <= true_per_s <= (outcome.high_per_s or math.inf))
    return table_row(
        name, tool, f"{true_per_s:.4g}/s", reported, error, interval(outcome), contains, outcome.exit_code, f"{outcome.took_s:.0f} s",
        outcome.note,
    )  # fmt: skip


class HeldOut(NamedTuple):
    """A later run at one rate."""

    share: float
    """Its rate ÷ the capacity that the search found."""
    ratio: float
    """Its p90 ÷ the limit, with a 95 % interval."""
    low: float
    high: float
    requests: int
    effective: float
    """The effective samples of the p90."""
    is_valid: bool


class HeldOutCapacity(NamedTuple):
    """The rate at which the later runs reach the limit ÷ the capacity that the search found, with a 90 % interval."""

    share: float
    low: float
    high: float


def held_out_capacity(points: Sequence[HeldOut]) -> HeldOutCapacity:
    """The rate at which ln(p90 ÷ limit) crosses 0, by linear interpolation; the interval is that of 4,000 draws of the measured values."""
    shares = np.array([point.share for point in points])
    logs = np.log([point.ratio for point in points])
    errors = np.array([math.log(point.high / point.low) / (2 * Z_95) for point in points])
    rng = np.random.default_rng(0)
    crossings = [_crossing(shares, logs + errors * rng.standard_normal(len(points))) for _ in range(4000)]
    low, high = np.quantile(crossings, [0.05, 0.95])
    return HeldOutCapacity(_crossing(shares, logs), float(low), float(high))


def _crossing(shares: Floats, logs: Floats) -> float:
    """The rate at which a line through the points, made to rise, crosses 0; beyond the points the outer piece continues. Within 0.5 to 2."""
    rising = np.maximum.accumulate(logs) + 1e-9 * np.arange(logs.size)
    upper = int(np.clip(np.searchsorted(rising, 0.0), 1, logs.size - 1))
    slope = (rising[upper] - rising[upper - 1]) / (shares[upper] - shares[upper - 1])
    return float(np.clip(shares[upper] - rising[upper] / slope, 0.5, 2.0))


def agrees(outcome: SearchOutcome, points: Sequence[HeldOut], later: HeldOutCapacity) -> bool:
    """Whether the search's capacity and that of the later runs do not differ at 95 % confidence; an open end contradicts nothing."""
    capacity = outcome.capacity_per_s
    assert capacity is not None
    low, high = outcome.low_per_s or 0.0, outcome.high_per_s or math.inf
    if (points[0].low > 1 and low > points[0].share * capacity) or (points[-1].high < 1 and high < points[-1].share * capacity):
        return False
    end = high if later.share > 1 else low
    if not 0 < end < math.inf:
        return True
    errors = math.log(end / capacity) / Z_90, math.log(later.high / later.low) / (2 * Z_90)
    return abs(math.log(later.share)) <= Z_95 * math.hypot(*errors)


def shown_later(later: HeldOutCapacity, capacity_per_s: float) -> tuple[str, str]:
    """The later runs' capacity and its interval as text; outside the rates of these runs only `above` or `below`."""
    if not SHARES[0] <= later.share <= SHARES[-1]:
        side, share = ("above", SHARES[-1]) if later.share > 1 else ("below", SHARES[0])
        return f"{side} {share * capacity_per_s:.4g}/s", "–"
    return f"{later.share * capacity_per_s:.4g}/s", f"{later.low * capacity_per_s:.4g} to {later.high * capacity_per_s:.4g}"


@contextlib.contextmanager
def densenet_server(threads: int, *, realtime: bool) -> Iterator[str]:
    """The URL of a bundled server with this number of threads, each on a core of its own; `realtime` is for all its threads."""
    cpus = ",".join(map(str, range(threads)))
    with running_server("--model=densenet_onnx", f"--threads={threads}", f"--cpus={cpus}") as server:
        if realtime:
            for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
                os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(1))
        yield server.url()


def densenet_scenario(url: str, seed: int, load: Mapping[str, Any], seconds: float, repetitions: int = 1) -> dict[str, Any]:
    """A scenario for DenseNet."""
    return {
        "name": "densenet",
        "target": {"url": url, "model": "densenet_onnx"},
        "workload": {"seed": seed},
        "load": load,
        "measure": {"duration": f"{seconds:g}s", "repetitions": repetitions},
    }


class DenseNetCheck(NamedTuple):
    """A search on DenseNet, the limit on the p90, and the later runs; there are none if the search found no capacity."""

    threads: int
    limit_ms: float
    outcome: SearchOutcome
    points: list[HeldOut]
    later: HeldOutCapacity | None


def check_densenet(threads: int, options: argparse.Namespace) -> DenseNetCheck:
    """Measures the service time, searches, and measures later runs around the capacity; raises RuntimeError if they have no result."""
    probe_s, held_out_s = options.densenet_seconds
    prefix = ABOVE_REALTIME if options.realtime else ()  # the server's computation must not delay the clients
    with densenet_server(threads, realtime=options.realtime) as url:
        alone = run_perfkit(densenet_scenario(url, 0, {"closed": {"concurrency": [1]}}, 8), prefix=prefix).point
        limit_ms = round(LIMIT_FACTOR * alone["service_time_ns"]["p50"] / 1e6, 1)
        search = {"slo": {"p90": f"{limit_ms}ms"}, "precision": PRECISION, "budget": options.budget, "max_rate": alone["throughput_per_s"]}
        start_s = time.monotonic()
        run = run_perfkit(densenet_scenario(url, 1, {"search": search}, probe_s), prefix=prefix)
        outcome = read_search(run.exit_code, run.result, run.stderr, time.monotonic() - start_s)
    if outcome.capacity_per_s is None:
        return DenseNetCheck(threads, limit_ms, outcome, [], None)
    rates = [round(share * outcome.capacity_per_s, 3) for share in SHARES]
    with densenet_server(threads, realtime=options.realtime) as url:
        later = run_perfkit(densenet_scenario(url, 999, {"open": {"rate": rates}}, held_out_s / 2, repetitions=2), prefix=prefix)
    if later.result is None:
        raise RuntimeError(f"the later run ended with exit code {later.exit_code}: {later.stderr[-1000:]}")
    points = [read_held_out(share, point, limit_ms) for share, point in zip(SHARES, later.result["summary"], strict=True)]
    return DenseNetCheck(threads, limit_ms, outcome, points, held_out_capacity(points))


def read_held_out(share: float, point: Mapping[str, Any], limit_ms: float) -> HeldOut:
    """The later run of a load point; an open upper end of its interval counts as 100 times the limit."""
    low_ns, high_ns = point["intervals"].get("p90", (0.0, None))
    times, limit_ns = point["response_time_ns"], limit_ms * 1e6
    ratio = (times["p90"] or times["max"]) / limit_ns
    effective = point["effective_samples"].get("p90", 0.0)
    low, high = max(low_ns / limit_ns, 0.01), 100.0 if high_ns is None else high_ns / limit_ns
    return HeldOut(share, ratio, low, high, point["requests"]["ok"], effective, point["valid"])


def densenet_lines(checks: Sequence[DenseNetCheck], *, realtime: bool) -> list[str]:
    """The tables of the searches on DenseNet and of the later runs."""
    searches = table_head(
        ">threads", "SLO", ">capacity", "90 % interval", ">exit", ">took", "search", ">later runs", "90 % interval", "agree"
    )
    runs = table_head(">threads", ">rate ÷ capacity", ">p90 ÷ limit", "95 % interval", ">requests", ">effective samples of p90", "valid")
    for one in checks:
        capacity = "–" if one.outcome.capacity_per_s is None else f"{one.outcome.capacity_per_s:.4g}/s"
        later, later_interval, verdict = "–", "–", "–"
        if one.later is not None and one.outcome.capacity_per_s is not None:
            later, later_interval = shown_later(one.later, one.outcome.capacity_per_s)
            verdict = yes_no(agrees(one.outcome, one.points, one.later))
        searches.append(
            table_row(
                one.threads, f"p90 < {one.limit_ms:g} ms", capacity, interval(one.outcome), one.outcome.exit_code,
                f"{one.outcome.took_s:.0f} s", one.outcome.note, later, later_interval, verdict,
            )
        )  # fmt: skip
        runs += [
            table_row(
                one.threads, f"{point.share:g}", f"{point.ratio:.3f}", f"{point.low:.3f} to {point.high:.3f}", point.requests,
                f"{point.effective:.0f}", yes_no(point.is_valid),
            )
            for point in one.points
        ]  # fmt: skip
    return [
        "",
        f"## DenseNet{', at real-time priority' if realtime else ''}",
        "",
        *searches,
        "",
        "The later runs, in two windows each, on a server started again:",
        "",
        *runs,
    ]


def search_known(options: argparse.Namespace, name: str, number: int, lead_us: int) -> tuple[list[str], bool]:
    """The rows of one search on a known queue with each tool, on a server of its own, and whether perfkit's is right."""
    queue, lines, is_fine = known_queue(name, options.mean_ms), list[str](), True
    # perf_analyzer opens a connection for every waiting request
    server_options = (
        "--model=synthetic",
        "--max-connections=60000",
        f"--synthetic={queue.declaration},lead={lead_us}us,seed={100 + number}",
    )
    with running_server(*server_options, realtime=options.realtime) as server:
        outcome = search_with_perfkit(queue, server.url(), number, options)
    lines.append(known_row(name, "perfkit", queue, outcome))
    is_fine = is_right(outcome, queue.capacity_per_s)
    print(lines[-1], flush=True)
    if number == 0 and options.perf_analyzer.exists():
        with running_server(*server_options, realtime=options.realtime) as server:
            lines.append(known_row(name, "perf_analyzer", queue, search_with_perf_analyzer(options.perf_analyzer, queue, server.url())))
        print(lines[-1], flush=True)
    return lines, is_fine


def main() -> int:
    """Prints the tables."""
    parser = option_parser(__doc__)
    parser.add_argument("--queues", nargs="*", default=QUEUES, choices=QUEUES, help="queues of known capacity (default: all)")
    parser.add_argument("--searches", type=int, default=1, help="searches with perfkit per queue (default %(default)s)")
    parser.add_argument("--mean-ms", type=float, default=4.0, help="mean service time of the queues (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="length of perfkit's probes of the queues (default %(default)s)")
    parser.add_argument("--at-once", type=int, default=4, help="concurrent searches, each with its own server (default %(default)s)")
    parser.add_argument("--perf-analyzer", type=pathlib.Path, default=perf_analyzer_path())
    parser.add_argument("--realtime", action="store_true", help="run servers and clients at real-time priority, on a busy machine")
    parser.add_argument("--densenet-threads", nargs="*", type=int, default=(1, 2), help="threads of DenseNet's servers (default: 1 2)")
    parser.add_argument(
        "--densenet-seconds", type=float, nargs=2, default=(30, 150), help="of a probe, and of a later run (default: 30 150)"
    )
    parser.add_argument("--budget", default="15m", help="time for a search with perfkit (default %(default)s)")
    options = parser.parse_args()
    lines = ["# The capacity search on live servers", "", describe_machine(), ""]
    all_right = True
    if options.queues:
        lead_us = measure_lead_us(3, realtime=options.realtime)
        lines += [
            "## Known capacity",
            "",
            (
                f"Mean service time {options.mean_ms:g} ms, probes of {options.seconds:g} s at first, at most {options.budget} a search, precision {PRECISION}, lead {lead_us} us, "
                f"{options.at_once} searches at once{', at real-time priority' if options.realtime else ''}; the SLO is the p99 at the true "
                "capacity, and both search from a quarter of that to twice it."
            ),
            "",
            *table_head("server", "tool", ">true capacity", ">reported", ">error", "90 % interval", "contains it", ">exit", ">took", ""),
        ]
        print("\n".join(lines), flush=True)
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            tasks = [
                pool.submit(search_known, options, name, number, lead_us) for name in options.queues for number in range(options.searches)
            ]
            for task in tasks:
                rows, is_fine = task.result()
                lines += rows
                all_right &= is_fine
    checks = [check_densenet(threads, options) for threads in options.densenet_threads]
    if checks:
        shown = densenet_lines(checks, realtime=options.realtime)
        lines += shown
        print("\n".join(shown), flush=True)
    all_right &= all(agrees(one.outcome, one.points, one.later) for one in checks if one.later is not None and one.outcome.exit_code == 0)
    write_report(options.out, lines)
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main())

"""The capacity search on live servers with known capacity, compared with perf_analyzer's `--binary-search`.

    python -m benchmarks.live_search [--seconds 8] [--declarations exponential constant batch] [--out reports/live-search.md]

The bundled server's model `synthetic` over HTTP with Poisson arrivals, declared in three ways: one server of 2 ms, exponential
or constant, and batches of up to eight that take 2 ms plus 0.25 ms per row. The SLO is the p99 that theory gives at a chosen
capacity (for batches, a simulation of 4 million requests), so the true capacity is known. The time that the server's front end
and the kernel add is measured first; the declared `lead` compensates for it.

Both search from a quarter of the true capacity to twice it. perfkit gets a precision of 8 %. perf_analyzer gets steps of 5 % of
the true capacity and three windows of 2 s each, without its stability limit (`-s 999`), under which it never finishes.
It takes about ten minutes. The exit code is 1 if perfkit's error is above 10 %.
"""

import csv
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from benchmarks.live_queue import measure_lead_us
from benchmarks.peers.install import perf_analyzer_path
from benchmarks.processes import run_perfkit, running_server
from benchmarks.report import option_parser, table_head, table_row, write_report
from benchmarks.slo_search_simulation import batch_p99_s

MEAN_MS, MAX_ERROR, PRECISION = 2.0, 0.1, "8%"
DECLARATIONS = ("exponential", "constant", "batch")


class Queue(NamedTuple):
    """A declared server, its true capacity, and the SLO on its p99."""

    declaration: str
    capacity_per_s: float
    p99_ms: float


class SearchOutcome(NamedTuple):
    """The capacity that a tool reports (None if it reports none), its interval, its duration, and a note."""

    capacity_per_s: float | None
    interval: str
    seconds: float
    note: str


def queue_of(name: str) -> Queue:
    """The p99 of M/D/1 at a load of 0.8 is 11.356 service times; that of M/M/1 is ln(100) / (1 - load)."""
    if name == "exponential":
        return Queue(f"service=exponential:{MEAN_MS:g}ms,servers=1", 0.8e3 / MEAN_MS, math.log(100) / 0.2 * MEAN_MS)
    if name == "constant":
        return Queue(f"service=constant:{MEAN_MS:g}ms,servers=1", 0.8e3 / MEAN_MS, 11.356 * MEAN_MS)
    declaration = f"service=linear:{MEAN_MS:g}ms+{MEAN_MS / 8:g}ms/row,servers=1,batch=upto:8"
    return Queue(declaration, 3e3 / MEAN_MS, batch_p99_s(3.0, 0) * MEAN_MS)


def search_with_perfkit(queue: Queue, url: str, seconds: float) -> SearchOutcome:
    """One `perfkit run` with a search."""
    search = {
        "slo": {"p99": f"{queue.p99_ms:.4g}ms"},
        "min_rate": queue.capacity_per_s / 4,
        "max_rate": 2 * queue.capacity_per_s,
        "precision": PRECISION,
    }
    scenario: dict[str, Any] = {
        "target": {"url": url, "model": "synthetic"},
        "workload": {"inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}},
        "load": {"search": search},
        "measure": {"duration": f"{seconds:g}s"},
    }
    start_s = time.monotonic()
    run = run_perfkit(scenario)
    took_s = time.monotonic() - start_s
    if run.result is None:
        return SearchOutcome(None, "–", took_s, f"exit {run.exit_code}")
    result = run.result["search"]
    low, high = (result[name] and f"{result[name]:.0f}" for name in ("low_per_s", "high_per_s"))
    note = f"{len(result['probes'])} probes, {result['stopped_because']}, confirmation: {result['confirmation'] or 'no probe was left'}"
    return SearchOutcome(result["capacity_per_s"], f"{low or '?'} to {high or '?'}", took_s, note)


def search_with_perf_analyzer(program: pathlib.Path, queue: Queue, url: str) -> SearchOutcome:
    """One perf_analyzer with `--binary-search`: the highest rate in its table, which contains only rates within the limit."""
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
    note = f"{len(re.findall('Request Rate: .* inference requests', ended.stdout))} rates, exit {ended.returncode}"
    if "not stabilizing" in ended.stdout + ended.stderr:
        note += ", not stable at some rates"
    return SearchOutcome(max(rates, default=None), "–", took_s, note)


def show(name: str, tool: str, queue: Queue, outcome: SearchOutcome) -> str:
    """A line of the table."""
    reported, error = "–", "–"
    if outcome.capacity_per_s is not None:
        reported, error = f"{outcome.capacity_per_s:.0f}/s", f"{outcome.capacity_per_s / queue.capacity_per_s - 1:+.1%}"
    return table_row(
        name, tool, f"{queue.capacity_per_s:.0f}/s", reported, error, outcome.interval, f"{outcome.seconds:.0f} s", outcome.note
    )


def main() -> int:
    """Prints the table."""
    parser = option_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="length of perfkit's probes (default %(default)s)")
    parser.add_argument("--declarations", nargs="+", default=DECLARATIONS, choices=DECLARATIONS)
    parser.add_argument("--perf-analyzer", type=pathlib.Path, default=perf_analyzer_path())
    parser.add_argument("--realtime", action="store_true", help="run the servers at real-time priority")
    options = parser.parse_args()
    lead_us = measure_lead_us(3, realtime=options.realtime)
    lines = [
        "# The capacity search on live servers",
        "",
        (
            f"Probes of {options.seconds:g} s, precision {PRECISION}, lead {lead_us} us; the SLO is the p99 at the true capacity, and both "
            "search from a quarter of that to twice it."
        ),
        "",
        *table_head("server", "tool", ">true capacity", ">reported", ">error", "90 % interval", ">took", ""),
    ]
    print("\n".join(lines), flush=True)
    all_within = True
    for name in options.declarations:
        queue = queue_of(name)
        for tool in ("perfkit", "perf_analyzer"):
            if tool == "perf_analyzer" and not options.perf_analyzer.exists():
                continue
            declaration = f"--synthetic={queue.declaration},lead={lead_us}us"
            # perf_analyzer opens a connection for every waiting request
            with running_server("--model=synthetic", "--max-connections=60000", declaration, realtime=options.realtime) as server:
                if tool == "perfkit":
                    outcome = search_with_perfkit(queue, server.url(), options.seconds)
                    capacity_per_s = outcome.capacity_per_s
                    all_within &= capacity_per_s is not None and abs(capacity_per_s / queue.capacity_per_s - 1) <= MAX_ERROR
                else:
                    outcome = search_with_perf_analyzer(options.perf_analyzer, queue, server.url())
            lines.append(show(name, tool, queue, outcome))
            print(lines[-1], flush=True)
    write_report(options.out, lines)
    return 0 if all_within else 1


if __name__ == "__main__":
    sys.exit(main())

"""The capacity search live, on servers whose true capacity is known, beside perf_analyzer's `--binary-search`.

    python -m benchmarks.live_search [--seconds 8] [--laws exponential constant batch] [--out reports/live-search.md]

The bundled server's model `synthetic` over HTTP with Poisson arrivals. Its laws: one server of 2 ms, exponential or constant, and
batches of up to eight that take 2 ms and 0.25 ms a row. The SLO is the p99 that theory (of the batches: a simulation of 4 million
requests) gives at a capacity chosen before, so that the truth is known. What front and kernel add is made up for by the law's
`lead`, which is measured first. perf_analyzer gets the same server, SLO and percentile, Poisson arrivals, the rates from a quarter
of the truth to twice it, steps of 5 % of the truth, and windows of 2 s, of which it takes three, however they scatter (`-s 999`: within its 10 % it finds no end); perfkit the same range, and a precision of 8 %. About
ten minutes. The exit code is 1 where perfkit is off by more than 10 %.
"""

import argparse
import csv
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from benchmarks.live_queue import measure, serving
from benchmarks.slo_search_simulation import batch_p99_s

ROOT = pathlib.Path(__file__).parents[1]
PERF_ANALYZER = pathlib.Path("~/.cache/perfkit-peers/bin/perf_analyzer").expanduser()
MEAN_MS, WORST_ERROR, PRECISION = 2.0, 0.1, "8%"


class Law(NamedTuple):
    """A declared server, its capacity at the SLO, and that."""

    text: str
    capacity_per_s: float
    p99_ms: float


class Found(NamedTuple):
    """What a tool said, how long it took, and why it stopped; None where it said nothing."""

    capacity_per_s: float | None
    interval: str
    seconds: float
    note: str


def laws() -> dict[str, Law]:
    """By name; the p99 of M/D/1 at a load of 0.8 is 11.356 service times, that of M/M/1 ln 100 over 1 less the load."""
    return {
        "exponential": Law(f"service=exponential:{MEAN_MS:g}ms,servers=1", 0.8e3 / MEAN_MS, math.log(100) / 0.2 * MEAN_MS),
        "constant": Law(f"service=constant:{MEAN_MS:g}ms,servers=1", 0.8e3 / MEAN_MS, 11.356 * MEAN_MS),
        "batch": Law(
            f"service=linear:{MEAN_MS:g}ms+{MEAN_MS / 8:g}ms/row,servers=1,batch=upto:8", 3e3 / MEAN_MS, batch_p99_s(3.0, 0) * MEAN_MS
        ),
    }


def by_perfkit(law: Law, url: str, seconds: float, folder: pathlib.Path) -> Found:
    """One `perfkit run` with a search."""
    scenario: dict[str, Any] = {
        "target": {"url": url, "model": "synthetic"},
        "workload": {"inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}},
        "load": {
            "search": {
                "slo": {"p99": f"{law.p99_ms:.4g}ms"},
                "min_rate": law.capacity_per_s / 4,
                "max_rate": 2 * law.capacity_per_s,
                "precision": PRECISION,
            }
        },
        "measure": {"duration": f"{seconds:g}s"},
    }
    file = folder / "scenario.yaml"
    file.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
    began_s = time.monotonic()
    command = [sys.executable, "-m", "perfkit", "run", str(file), "--quiet", "--out", str(folder / "out")]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False, cwd=ROOT).returncode
    took_s, result = time.monotonic() - began_s, folder / "out" / "result.json"
    if not result.exists():
        return Found(None, "–", took_s, f"exit {code}")
    found = json.loads(result.read_text(encoding="utf-8"))["search"]
    low, high = (found[name] and f"{found[name]:.0f}" for name in ("low_per_s", "high_per_s"))
    note = f"{len(found['probes'])} probes, {found['stopped_because']}, confirmed: {found['confirmation'] or 'no probe was left'}"
    return Found(found["capacity_per_s"], f"{low or '?'} to {high or '?'}", took_s, note)


def by_perf_analyzer(program: pathlib.Path, law: Law, url: str, folder: pathlib.Path) -> Found:
    """One perf_analyzer with `--binary-search`; the highest rate of its table is its answer, since what is over the limit is not in it."""
    table, truth = folder / "table.csv", law.capacity_per_s
    options = ["-m", "synthetic", "-i", "http", "-u", url.removeprefix("http://"), "--shape", "INPUT0:4", "--async", "--binary-search"]
    options += ["--request-rate-range", f"{truth / 4:.0f}:{2 * truth:.0f}:{0.05 * truth:.0f}", "--request-distribution", "poisson"]
    options += ["--percentile", "99", "-l", f"{law.p99_ms:.0f}", "-p", "2000", "-f", str(table)]
    options += ["-s", "999"]  # its own limit of 10 % ends the search at the first rate: so short windows scatter more
    began_s = time.monotonic()
    ended = subprocess.run([str(program), *options], capture_output=True, text=True, check=False, timeout=1200)
    took_s = time.monotonic() - began_s
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines())) if table.exists() else []
    rates = [float(row["Request Rate"]) for row in rows if row.get("Request Rate")]
    note = f"{len(re.findall('Request Rate: .* inference requests', ended.stdout))} rates, exit {ended.returncode}"
    if "not stabilizing" in ended.stdout + ended.stderr:
        note += ", not stable at some rates"
    return Found(max(rates, default=None), "–", took_s, note)


def row(name: str, tool: str, law: Law, found: Found) -> str:
    """A line of the table."""
    if found.capacity_per_s is None:
        return f"| {name} | {tool} | {law.capacity_per_s:.0f}/s | – | – | – | {found.seconds:.0f} s | {found.note} |"
    error = found.capacity_per_s / law.capacity_per_s - 1
    said = f"{found.capacity_per_s:.0f}/s | {error:+.1%} | {found.interval}"
    return f"| {name} | {tool} | {law.capacity_per_s:.0f}/s | {said} | {found.seconds:.0f} s | {found.note} |"


def main() -> int:
    """Prints the table; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=8, help="the length of perfkit's probes")
    parser.add_argument("--laws", nargs="+", default=["exponential", "constant", "batch"], choices=("exponential", "constant", "batch"))
    parser.add_argument("--perf-analyzer", type=pathlib.Path, default=PERF_ANALYZER)
    parser.add_argument("--realtime", action="store_true", help="run the servers at real-time priority")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    alone = measure("service=constant:10ms", {"closed": {"concurrency": 1}}, 0, 3, realtime=options.realtime)
    lead_us = max(0, round(alone["service_time_ns"]["p50"] / 1e3 - 10_000))
    told = f"Probes of {options.seconds:g} s, precision {PRECISION}, lead {lead_us} us; the SLO is the p99 at the true capacity, and both search from a quarter of that to twice it."
    lines = [told, ""]
    lines += ["| law | tool | truth | said | error | 90 % interval | took | |", "|---|---|---:|---:|---:|---|---:|---|"]
    print("\n".join(lines), flush=True)
    all_hold = True
    for name in options.laws:
        law = laws()[name]
        with tempfile.TemporaryDirectory() as folder:
            with serving(f"{law.text},lead={lead_us}us", realtime=options.realtime) as url:
                found = by_perfkit(law, url, options.seconds, pathlib.Path(folder))
            all_hold &= found.capacity_per_s is not None and abs(found.capacity_per_s / law.capacity_per_s - 1) <= WORST_ERROR
            lines.append(row(name, "perfkit", law, found))
            print(lines[-1], flush=True)
            if options.perf_analyzer.exists():
                with serving(f"{law.text},lead={lead_us}us", realtime=options.realtime) as url:
                    found = by_perf_analyzer(options.perf_analyzer, law, url, pathlib.Path(folder))
                lines.append(row(name, "perf_analyzer", law, found))
                print(lines[-1], flush=True)
    if options.out:
        options.out.write_text("\n".join(["# The capacity search live", "", *lines, ""]), encoding="utf-8")
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())

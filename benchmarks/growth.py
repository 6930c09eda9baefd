"""What many connections, several workers and a long result cost.

    python -m benchmarks.growth [--rounds 2] [--before CHECKOUT] [--realtime] [--out reports/growth.md]

*Connections*: closed loops of 1,000, 5,000 and 10,000 connections on the canned nginx (`benchmarks/peers/canned.py`), beside wrk with as many
in the same round, and another checkout (`--before`). The CPU time of a request is the slope between a
short and a long run. *Workers*: `measure.workers` of 1, 2 and `auto`, which has a calibration of this machine; the server is pinned to one CPU.
*A long result*: 100 load points of 70,000 requests, and `perfkit report` on it, also by the other checkout.

Required: at most 1.4 of wrk's CPU time, 102 MiB at 5,000 and 135 MiB at 10,000 connections; one worker for `auto`; at most 0.17 s a load
point and 77 MiB for the report. The exit code is 1 if one is missed. It takes 9 minutes on two quiet CPUs, 6 without
`--before`, and needs `ulimit -n` of 12,000.
"""

import functools
import json
import math
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from benchmarks.peers.canned import scenario, serving
from benchmarks.peers.clients import MAX_RUN_S, ClientError, Load, Reported, Usage, run_measured, run_own, run_wrk
from benchmarks.peers.compare import SMALL
from benchmarks.peers.rounds import cpu_us_per_request, in_rounds
from benchmarks.peers.server_process import PeerError
from benchmarks.processes import BEFORE, BEFORE_OPTION, OWN, THIS, Checkout, on_cpus, write_scenario
from benchmarks.report import Report, describe_machine, program_options, rounds_text
from perfkit.machine.limits import raise_open_file_limit

ALLOWED_RATIO, ALLOWED_REPORT_S, ALLOWED_REPORT_MIB = 1.4, 0.17, 77.0
ALLOWED_MIB = {1000: math.inf, 5000: 102.0, 10_000: 135.0}
"""By the number of connections."""
WRK = "wrk"
_SECONDS = (1, 5)
_POINTS, _POINT_REQUESTS, _SLOTS, _FILES = 100, 70_000, 64, 12_000


class Figures(NamedTuple):
    """A client in one round; the CPU time is that of a request."""

    cpu_us: float
    per_s: float
    peak_mib: float
    workers: int


def closed_loops(port: int, connections: Sequence[int], workers: int | str, **length: object) -> dict[str, Any]:
    """A closed loop for each number of connections, with `duration` or `requests` as its length."""
    load = {"closed": {"concurrency": [*connections]}}
    return scenario(port, load, {"workers": workers, **length}, width=SMALL, max_connections=max(connections))


def measure_own(checkout: Checkout, port: int, connections: int, workers: int | str, folder: pathlib.Path) -> Figures:
    """Measures perfkit by a short and a long run; raises ClientError, also if `auto` did not use the calibration."""
    used = list[Reported]()
    for seconds in _SECONDS:
        loaded = closed_loops(port, [connections], workers, duration=f"{seconds}s")
        requests, point, usage = run_own(checkout, loaded, folder, seconds)
        used.append(Reported(requests, point["throughput_per_s"], 0, usage))
    if workers == "auto" and point["generator"]["transport_ns"] is None:
        raise ClientError("the run with `auto` workers did not use the calibration")
    return figures(OWN, used[0], used[1], point["generator"]["workers"])


def measure_wrk(port: int, connections: int, folder: pathlib.Path) -> Figures:
    """Measures wrk by a short and a long run; raises ClientError."""
    short, long = (run_wrk(Load("http", SMALL, port, connections, seconds, 0), folder) for seconds in _SECONDS)
    return figures(WRK, short, long, 1)


def figures(client: str, short: Reported, long: Reported, workers: int) -> Figures:
    """The figures of a client from its short and its long run: CPU time as the slope, throughput of the long run, and the larger memory."""
    peak_mib = max(short.usage.peak_mib, long.usage.peak_mib)
    return Figures(cpu_us_per_request(client, short, long), long.per_s, peak_mib, workers)


_Judge: TypeAlias = Callable[[float, Figures], bool]
"""Whether a ratio and the largest figures are allowed."""


def add_row(report: Report, title: str, runs: Sequence[Figures], others: Sequence[Figures], judge: _Judge | None) -> None:
    """A client's row: medians, and the ratios of its CPU time to another's in the same round."""
    of_other = [one.cpu_us / other.cpu_us for one, other in zip(runs, others, strict=True)]
    cpu_us, per_s = (statistics.median(column) for column in list(zip(*runs, strict=True))[:2])
    largest, ratio = Figures(*map(max, zip(*runs, strict=True))), statistics.median(of_other)
    cells = (
        title,
        f"{cpu_us:.1f} µs",
        f"{ratio:.2f} ({min(of_other):.2f} to {max(of_other):.2f})",
        f"{per_s:,.0f}/s",
        f"{largest.peak_mib:.0f} MiB",
        largest.workers,
    )
    if judge is None:
        report.row(*cells, "")
    else:
        report.judged_row(judge(ratio, largest), *cells)


def add_connections(report: Report, port: int, checkouts: Mapping[str, Checkout], rounds: int, folder: pathlib.Path) -> None:
    """The part on many connections; raises ClientError."""
    report.section("Connections")
    report.table("connections, client", ">CPU time of a request", ">of wrk's", ">throughput", ">largest process", ">workers", "met")
    for connections, allowed_mib in ALLOWED_MIB.items():
        runs = {WRK: functools.partial(measure_wrk, port, connections, folder)}
        runs |= {name: functools.partial(measure_own, checkout, port, connections, 1, folder) for name, checkout in checkouts.items()}
        found = in_rounds(runs, rounds, random.Random(connections))
        for name, of_client in found.items():
            judge = functools.partial(_is_small, allowed_mib) if name == OWN else None
            add_row(report, f"{connections:,}, {name}", of_client, found[WRK], judge)


def _is_small(allowed_mib: float, ratio: float, largest: Figures) -> bool:
    return ratio <= ALLOWED_RATIO and largest.peak_mib <= allowed_mib


def _is_one_worker(_ratio: float, largest: Figures) -> bool:
    return largest.workers == 1


def add_workers(report: Report, port: int, rounds: int, folder: pathlib.Path) -> None:
    """The part on several workers, which may use the server's CPU, too; raises ClientError."""
    report.section("Workers", f"{_SLOTS} connections; the server is pinned to one of the CPUs that the workers use.", "")
    os.environ["PERFKIT_CACHE_DIR"] = str(folder)
    run_measured([*THIS.perfkit, "calibrate", "--rounds", "1", "--quiet"], timeout_s=MAX_RUN_S)
    report.table("`workers`", ">CPU time of a request", ">of one worker's", ">throughput", ">largest process", ">workers", "met")
    runs = {str(one): functools.partial(measure_own, THIS, port, _SLOTS, one, folder) for one in (1, 2, "auto")}
    found = in_rounds(runs, rounds, random.Random(0))
    for name, of_one in found.items():
        add_row(report, name, of_one, found["1"], _is_one_worker if name == "auto" else None)


def add_long_results(report: Report, port: int, checkouts: Mapping[str, Checkout], folder: pathlib.Path) -> None:
    """The part on a result of many load points; raises ClientError."""
    report.section(
        "A long result",
        f"{_POINTS} load points of {_POINT_REQUESTS:,} requests, and `perfkit report` on them.",
        f"Required: at most {ALLOWED_REPORT_S:g} s a load point and {ALLOWED_REPORT_MIB:g} MiB for the report.",
        "",
    )
    report.table("client", ">run", ">run's largest process", ">report, a load point", ">report's largest process", ">page", "met")
    for name, checkout in checkouts.items():
        out = folder / name
        file = write_scenario(folder, closed_loops(port, range(_SLOTS, _SLOTS + _POINTS), 1, requests=_POINT_REQUESTS))
        words = ["run", str(file), "--quiet", "--no-report", "--out", str(out)]
        run_s, run = _timed(checkout, *words, accepted_codes=(0, 5))
        points = [point["requests"] for point in json.loads((out / "result.json").read_text(encoding="utf-8"))["points"]]
        if [(one["sent"], one["ok"]) for one in points] != [(_POINT_REQUESTS, _POINT_REQUESTS)] * _POINTS:
            raise ClientError(f"{name} did not measure what it should: {points}")
        report_s, written = _timed(checkout, "report", str(out), "--quiet")
        page_mib, point_s = (out / "report.html").stat().st_size / 2**20, report_s / _POINTS
        cells = (
            name,
            f"{run_s:.0f} s",
            f"{run.peak_mib:.0f} MiB",
            f"{point_s:.3f} s",
            f"{written.peak_mib:.0f} MiB",
            f"{page_mib:.1f} MiB",
        )
        if name == OWN:
            report.judged_row(point_s <= ALLOWED_REPORT_S and written.peak_mib <= ALLOWED_REPORT_MIB, *cells)
        else:
            report.row(*cells, "")


def _timed(checkout: Checkout, *words: str, accepted_codes: Sequence[int] = (0,)) -> tuple[float, Usage]:
    """How many seconds a command of perfkit takes, and what it uses; raises ClientError."""
    began_s = time.monotonic()
    usage = run_measured([*checkout.perfkit, *words], accepted_codes=accepted_codes, timeout_s=MAX_RUN_S * 10, cwd=checkout.folder)
    return time.monotonic() - began_s, usage


def main() -> int:
    """Measures, and writes the report."""
    options = program_options(__doc__, out="growth", rounds=2, before=BEFORE_OPTION, realtime=False)
    if options.realtime:  # which what it starts inherits, the server included
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # with SCHED_FIFO wrk never ends on one CPU
    checkouts = {OWN: THIS} if options.before is None else {OWN: THIS, BEFORE: options.before}
    limit, cpus = raise_open_file_limit(), sorted(os.sched_getaffinity(0))
    if limit < _FILES:
        sys.exit(f"growth: `ulimit -n` is {limit:,}, and {_FILES:,} are needed")
    report = Report(options.out, "The cost of many connections, several workers and a long result")
    report.add(
        f"{describe_machine()} Medians of {rounds_text(options.rounds)}, in which all run one after another, with the lowest and highest ratio."
    )
    try:
        with serving(cpus=cpus[:1]) as ports, tempfile.TemporaryDirectory(prefix="perfkit-growth-") as name:
            assert ports.http is not None
            folder = pathlib.Path(name)
            with on_cpus(cpus[1:] or cpus):
                add_connections(report, ports.http, checkouts, options.rounds, folder)
            add_workers(report, ports.http, options.rounds, folder)
            add_long_results(report, ports.http, checkouts, folder)
    except (ClientError, PeerError) as error:
        sys.exit(f"growth: {error}")
    return report.write()


if __name__ == "__main__":
    sys.exit(main())

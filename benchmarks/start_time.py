"""How long `perfkit run URL` takes: from its start to the first request, and as a whole, from its start to its last line.

    python -m benchmarks.start_time [--rounds 10] [--realtime] [--out reports/start-time.md]

The first request: a small server on the loopback, in this process, answers the metadata and notes when the first inference arrives. The clock
starts before the command is executed, so that the interpreter's own start is part of the figure. The first request is the one that perfkit sends
alone, to check the answer; the load's first request follows when the samplers run. The CPU time is that of the command up to the first request,
which other programs on the machine change less than the wall-clock time. Required: a median below 0.7 s on a quiet core.

The whole run: one load point of 2 s without warm-up against the bundled server, with all report files, over HTTP and gRPC. When the load began
and ended is in `latency.hlog`, on the wall clock. Memory is that of the largest process of the command. Required: a median of at most 3.5 s, and
75 MiB. The exit code is 1 if a requirement is missed. `--realtime` runs commands and server at real-time priority, on a machine that is busy.
"""

import csv
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import psutil

from benchmarks.processes import REALTIME, running_server
from benchmarks.report import describe_machine, option_parser, publish, table_head, table_row, yes_no
from tests.json_server import serving, v2_handler

ALLOWED_S, ALLOWED_WHOLE_S, ALLOWED_MIB = 0.7, 3.5, 75.0
_FILES = ("result.json", "latency.hlog", "telemetry.csv", "checksums.sha256", "report.html", "report.md", "plots/timeline.svg")


class Start(NamedTuple):
    """The start of one command, in seconds."""

    first_s: float
    cpu_s: float
    load_s: float
    """When the first request of the load arrived."""


class WholeRun(NamedTuple):
    """The parts of one run, in seconds, and the peak memory of its largest process."""

    to_load_s: float
    load_s: float
    to_summary_s: float
    to_exit_s: float
    peak_mib: float

    @property
    def whole_s(self) -> float:
        """From the start to the last line."""
        return self.to_load_s + self.load_s + self.to_summary_s + self.to_exit_s


def measure_start(prefix: Sequence[str] = ()) -> Start:
    """Runs `perfkit run` against a small server."""
    arrived_s: list[float] = []
    cpu_s: list[float] = []
    process: subprocess.Popen[bytes] | None = None

    def on_inference(number: int) -> None:
        if number <= 2 and process is not None:
            arrived_s.append(time.perf_counter() - began_s)
            times = psutil.Process(process.pid).cpu_times()
            cpu_s.append(times.user + times.system)

    with serving(v2_handler(on_inference)) as port, tempfile.TemporaryDirectory() as folder:
        command = [*prefix, sys.executable, "-m", "perfkit", "run", f"http://127.0.0.1:{port}", "-m", "m", "-c", "1", "--duration", "200ms"]
        began_s = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--no-report", "--quiet", "--out", f"{folder}/out"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _, errors = process.communicate(timeout=120)
    if len(arrived_s) < 2:
        raise RuntimeError(f"perfkit run sent no load: {errors.decode(errors='replace')}")
    return Start(arrived_s[0], cpu_s[0], arrived_s[1])


def measure_run(url: str, prefix: Sequence[str] = ()) -> WholeRun:
    """Runs `perfkit run` for one load point of 2 s at a server that runs."""
    settings = ("--set=measure.warmup=0s", "--set=measure.repetitions=1", "--duration=2s")
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = [*prefix, sys.executable, "-m", "perfkit", "run", url, "-m", "simple", "-c", "1", *settings, "--out", str(out)]
        began_s = time.time()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        next(line for line in process.stdout if line.strip())  # the sentence above the table
        summary_s = time.time()
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        ended_s = time.time()
        process.returncode = os.waitstatus_to_exitcode(status)
        if missing := [name for name in _FILES if not (out / name).exists()]:
            raise RuntimeError(f"perfkit run ended with {process.returncode} and without {', '.join(missing)}")
        first_s, last_s = _load_times((out / "latency.hlog").read_text())
    return WholeRun(first_s - began_s, last_s - first_s, summary_s - last_s, ended_s - summary_s, usage.ru_maxrss / 1024)


def _load_times(log: str) -> tuple[float, float]:
    """When the first interval of an HdrHistogram log begins, and when the last one ends, on the wall clock."""
    started = re.search(r"StartTime: ([\d.]+)", log)
    assert started is not None
    rows = [row for row in csv.reader(log.splitlines()) if row and row[0].startswith("Tag=")]
    return float(started[1]) + float(rows[0][1]), float(started[1]) + max(float(row[1]) + float(row[2]) for row in rows)


def run_lines(runs: Mapping[str, Sequence[WholeRun]]) -> tuple[list[str], bool]:
    """The part of the report on whole runs, by protocol, and whether their medians meet the requirements."""
    parts = {
        "start to first request of the load": [[one.to_load_s for one in own] for own in runs.values()],
        "measuring": [[one.load_s for one in own] for own in runs.values()],
        "last answer to summary": [[one.to_summary_s for one in own] for own in runs.values()],
        "summary to exit, with the report's files": [[one.to_exit_s for one in own] for own in runs.values()],
        "**start to last line**": [[one.whole_s for one in own] for own in runs.values()],
        "fastest": [[min(one.whole_s for one in own)] for own in runs.values()],
        "slowest": [[max(one.whole_s for one in own)] for own in runs.values()],
    }
    whole_s = [statistics.median(one.whole_s for one in own) for own in runs.values()]
    peak_mib = [statistics.median(one.peak_mib for one in own) for own in runs.values()]
    is_fast, is_small = max(whole_s) <= ALLOWED_WHOLE_S, max(peak_mib) <= ALLOWED_MIB
    return [
        "",
        "## From the command to its last line",
        "",
        f"One load point of 2 s on the bundled server, without warm-up, {len(next(iter(runs.values())))} times; medians.",
        "",
        *table_head("part", *(f">{protocol}" for protocol in runs)),
        *(table_row(name, *(f"{statistics.median(values_s):.2f} s" for values_s in columns)) for name, columns in parts.items()),
        table_row("largest process", *(f"{one:.1f} MiB" for one in peak_mib)),
        "",
        f"Required: at most {ALLOWED_WHOLE_S:g} s. Met: {yes_no(is_fast)}. Required: at most {ALLOWED_MIB:g} MiB. Met: {yes_no(is_small)}.",
    ], is_fast and is_small


def report_of(starts: Sequence[Start], machine: str) -> tuple[list[str], bool]:
    """The lines of the report on starts, and whether the median meets the requirement."""
    met = statistics.median(one.first_s for one in starts) < ALLOWED_S
    return [
        "# How long a run takes besides measuring",
        "",
        "## From the command to the first request",
        "",
        f"`perfkit run http://127.0.0.1:PORT -m m -c 1`, {len(starts)} times. {machine}",
        "",
        *table_head("figure", ">median", ">fastest", ">slowest"),
        _row("start to first request", [one.first_s for one in starts]),
        _row("CPU time of the command until then", [one.cpu_s for one in starts]),
        _row("start to first request of the load", [one.load_s for one in starts]),
        "",
        f"Required: a median below {ALLOWED_S:g} s on a quiet core. Met: {yes_no(met)}.",
    ], met


def _row(name: str, values_s: Sequence[float]) -> str:
    return table_row(name, *(f"{value_s:.2f} s" for value_s in (statistics.median(values_s), min(values_s), max(values_s))))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and writes the report."""
    parser = option_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how many starts, and runs over each protocol, are measured")
    parser.add_argument("--realtime", action="store_true", help="commands and server at real-time priority")
    options = parser.parse_args(arguments)
    prefix = REALTIME if options.realtime else ()
    machine = f"{describe_machine()}{' Commands and server at real-time priority.' * options.realtime}"
    measure_start(prefix)  # reads the files of the libraries from the disk, and compiles them
    lines, is_soon = report_of([measure_start(prefix) for _ in range(options.rounds)], machine)
    with running_server("--model", "simple", prefix=prefix) as server:
        urls = {"HTTP": server.url(), "gRPC": server.url("grpc")}
        runs = {protocol: [measure_run(url, prefix) for _ in range(options.rounds)] for protocol, url in urls.items()}
    further, is_met = run_lines(runs)
    return publish(options.out, [*lines, *further], is_met=is_soon and is_met)


if __name__ == "__main__":
    sys.exit(main())

"""How long `perfkit run URL` takes: from its start to the first request, and as a whole, from its start to its last line.

    python -m benchmarks.start_time [--rounds 10] [--realtime] [--out reports/start-time.md]

The first request: a small server on the loopback, in this process, answers the metadata and notes when the first inference arrives. The clock
starts before the command is executed, so that the interpreter's own start is part of the figure. The first request is the one that perfkit sends
alone, to check the answer; the load's first request follows when the samplers run. The CPU time is that of the command up to the first request,
which other programs on the machine change less than the wall-clock time. Required: a median below 0.7 s on a quiet core.

The whole run: one load point of 2 s without warm-up against the bundled server, with all report files, over HTTP and gRPC. When the load began
and ended is in `latency.hlog`, on the wall clock. Memory is that of the largest process of the command. Required: a median of at most 3.5 s, and
75 MiB. The exit code is 1 if a requirement is missed. `--realtime` runs commands and servers at real-time priority, on a machine that is busy.
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
from typing import NamedTuple

import psutil

from benchmarks.processes import running_server
from benchmarks.report import Report, describe_machine, program_options, yes_no
from tests.json_server import serving, v2_handler

ALLOWED_S, ALLOWED_WHOLE_S, ALLOWED_MIB = 0.7, 3.5, 75.0
_FILES = ("result.json", "latency.hlog", "telemetry.csv", "checksums.sha256", "report.html", "report.md", "plots/timeline.svg")


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
        return sum(self[:4])


def measure_start() -> tuple[float, float, float]:
    """Runs `perfkit run` against a small server: seconds to the first request, CPU time until then, and seconds to the load's first request."""
    arrived_s, cpu_s = list[float](), list[float]()
    process: subprocess.Popen[bytes] | None = None

    def on_inference(number: int) -> None:
        if number <= 2 and process is not None:
            arrived_s.append(time.perf_counter() - began_s)
            cpu_s.append(sum(psutil.Process(process.pid).cpu_times()[:2]))

    with serving(v2_handler(on_inference)) as port, tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "perfkit", "run", f"http://127.0.0.1:{port}", "-m", "m", "-c", "1", "--duration", "200ms"]
        command += ["--no-report", "--quiet", "--out", f"{folder}/out"]
        began_s = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, errors = process.communicate(timeout=120)
    if len(arrived_s) < 2:
        raise RuntimeError(f"perfkit run sent no load: {errors.decode(errors='replace')}")
    return arrived_s[0], cpu_s[0], arrived_s[1]


def measure_run(url: str) -> WholeRun:
    """Runs `perfkit run` for one load point of 2 s at a server that runs."""
    settings = ("--set=measure.warmup=0s", "--set=measure.repetitions=1", "--duration=2s")
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = [sys.executable, "-m", "perfkit", "run", url, "-m", "simple", "-c", "1", *settings, "--out", str(out)]
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


def main() -> int:
    """Measures, and writes the report."""
    options = program_options(__doc__, rounds=(10, "how many starts, and runs over each protocol, are measured"), realtime=False)
    if options.realtime:  # which what it starts inherits, the servers included
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    page = Report(options.out, "How long a run takes besides measuring")
    page.add(
        "## From the command to the first request",
        "",
        f"`perfkit run http://127.0.0.1:PORT -m m -c 1`, {options.rounds} times. {describe_machine()}"
        f"{' Commands and servers at real-time priority.' * options.realtime}",
        "",
    )
    measure_start()  # reads the files of the libraries from the disk, and compiles them
    starts = list(zip(*(measure_start() for _ in range(options.rounds)), strict=True))
    page.table("figure", ">median", ">fastest", ">slowest")
    for name, values in zip(
        ("start to first request", "CPU time of the command until then", "start to first request of the load"), starts, strict=True
    ):
        page.row(name, *(f"{value_s:.2f} s" for value_s in (statistics.median(values), min(values), max(values))))
    is_soon = statistics.median(starts[0]) < ALLOWED_S
    page.add("", f"Required: a median below {ALLOWED_S:g} s on a quiet core. Met: {yes_no(is_soon)}.")
    page.section(
        "From the command to its last line",
        f"One load point of 2 s on the bundled server, without warm-up, {options.rounds} times; medians.",
        "",
    )
    with running_server("--model", "simple") as server:
        runs = [[measure_run(server.url(protocol)) for _ in range(options.rounds)] for protocol in ("http", "grpc")]
    page.table("part", ">HTTP", ">gRPC")
    parts = ("start to first request of the load", "measuring", "last answer to summary", "summary to exit, with the report's files")
    for place, name in enumerate(parts):
        page.row(name, *(f"{statistics.median(one[place] for one in own):.2f} s" for own in runs))
    wholes = [[one.whole_s for one in own] for own in runs]
    for name, figure in (("**start to last line**", statistics.median), ("fastest", min), ("slowest", max)):
        page.row(name, *(f"{figure(whole):.2f} s" for whole in wholes))
    peaks = [statistics.median(one.peak_mib for one in own) for own in runs]
    page.row("largest process", *(f"{one:.1f} MiB" for one in peaks))
    is_fast, is_small = max(map(statistics.median, wholes)) <= ALLOWED_WHOLE_S, max(peaks) <= ALLOWED_MIB
    page.add(
        "",
        f"Required: at most {ALLOWED_WHOLE_S:g} s. Met: {yes_no(is_fast)}. Required: at most {ALLOWED_MIB:g} MiB. Met: {yes_no(is_small)}.",
    )
    page.is_met = is_soon and is_fast and is_small
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

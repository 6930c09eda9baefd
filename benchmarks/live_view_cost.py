"""What the live view costs: the same open loop measured on a terminal, where the run is shown live, and through a pipe.

    python -m benchmarks.live_view_cost [--rounds 4] [--seconds 15] [--out reports/live-view-cost.md]

Each round measures a bundled server twice, in alternating order. The CPU time is that of `perfkit run` with its child processes, less the
server; the difference between the two, divided by the length of the run, is the cost of the live view. Required: a median below 2 % of a
core, and for p50, p90 and p99 the median of the figures on the terminal within the 95 % interval of all figures through the pipe. That interval
is Student's, over the rounds. The exit code is 1 if a requirement is missed. Run it on a quiet machine.
"""

import contextlib
import json
import math
import os
import pathlib
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

from benchmarks.processes import ROOT, RunningServer, running_server
from benchmarks.report import Report, describe_machine, program_options, rounds_text, yes_no
from perfkit.stats.probability import student_t_quantile

ALLOWED_SHARE = 0.02
PERCENTILES = ("p50", "p90", "p99")


class Measured(NamedTuple):
    """One run: its CPU time and length in seconds, and its percentiles in milliseconds."""

    cpu_s: float
    took_s: float
    percentiles_ms: tuple[float, ...]


def measure(server: RunningServer, seconds: float, *, on_terminal: bool) -> Measured:
    """One run of `perfkit run`, on a terminal or through a pipe."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out")
        command = [sys.executable, "-m", "perfkit", "run", server.url(), "-m", "synthetic", "--shape", "INPUT0=4", "--rate", "300"]
        command += ["--duration", f"{seconds:g}s", "--set", "measure.repetitions=1", "--no-report", "--out", str(out)]
        began_s = time.perf_counter()
        ours, theirs = pty.openpty() if on_terminal else os.pipe()
        reader = threading.Thread(target=_drain, args=(ours,))
        reader.start()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment) as process:
            os.close(theirs)
            _, status, usage = os.wait4(process.pid, 0)  # with the child processes that it has waited for
            process.returncode = os.waitstatus_to_exitcode(status)
        took_s = time.perf_counter() - began_s
        reader.join()
        os.close(ours)
        times = json.loads((out / "result.json").read_text(encoding="utf-8"))["points"][0]["response_time_ns"]
    return Measured(usage.ru_utime + usage.ru_stime, took_s, tuple(times[name] / 1e6 for name in PERCENTILES))


def _drain(file: int) -> None:
    with contextlib.suppress(OSError):  # the terminal's last process has ended
        while os.read(file, 65_536):
            pass


def main() -> int:
    """Measures in alternating order and writes the report."""
    options = program_options(__doc__, out="live-view-cost", rounds=4, seconds=15.0)
    machine, runs = describe_machine(), dict[bool, list[Measured]]({True: [], False: []})
    with running_server("--model=synthetic", "--synthetic=service=lognormal:10ms:cv=0.3,servers=8") as server:
        for number in range(options.rounds):
            for on_terminal in (True, False) if number % 2 else (False, True):
                runs[on_terminal].append(measure(server, options.seconds, on_terminal=on_terminal))
    costs = [(shown.cpu_s - piped.cpu_s) / shown.took_s for shown, piped in zip(runs[True], runs[False], strict=True)]
    page = Report(options.out, "What the live view costs")
    page.is_met = statistics.median(costs) < ALLOWED_SHARE
    page.add(
        f"{rounds_text(options.rounds)} of 300 requests per second. {machine}",
        "",
        f"CPU time of the live view as a share of a core: median {statistics.median(costs):.2%}, {min(costs):.2%} to {max(costs):.2%}; "
        f"required: below {ALLOWED_SHARE:.0%}; met: {yes_no(page.is_met)}.",
        "",
    )
    page.table("percentile", ">terminal, median", ">pipe, mean", "95 % interval, pipe", "within it")
    for index, name in enumerate(PERCENTILES):
        shown, piped = ([one.percentiles_ms[index] for one in runs[on_terminal]] for on_terminal in (True, False))
        mean, median = statistics.mean(piped), statistics.median(shown)
        half = student_t_quantile(0.975, len(piped) - 1) * statistics.stdev(piped) * math.sqrt(1 + 1 / len(piped))
        cells = (f"{median:.2f} ms", f"{mean:.2f} ms", f"{mean - half:.2f} to {mean + half:.2f} ms")
        page.judged_row(abs(median - mean) <= half, name, *cells)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

"""How long a run takes to end after the second Ctrl-C, whichever of its processes is stopped (SIGSTOP).

    python -m benchmarks.second_interrupt [--trials 10] [--perfkit DIR] [--out reports/second-interrupt.md]

Each trial starts `perfkit run`, waits for its first load point, stops one child (or blocks the run's own event loop), sends
SIGINT twice, 0.3 s apart, and measures from the second signal to the end of the process. Then it looks for the children, which
must be gone, and for the load points measured before, which must be stored. `--perfkit` measures another checkout instead, by its own
.venv. A trial is given up after 20 s. Required: each trial ends within a second. The exit code is 1 if a requirement is missed.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import psutil

from benchmarks.processes import ROOT
from benchmarks.report import Report, describe_machine, program_options

_LONGEST_S, _BETWEEN_S, _REQUIRED_S = 20.0, 0.3, 1.0
_SCENARIO = """
target: {{model: simple}}
load: {{closed: {{concurrency: 2, think_time: 5ms}}}}
measure: {{warmup: 0s, duration: 300ms, repetitions: {repetitions}, workers: {workers}}}
"""
# blocks the event loop when the second load point begins
_BLOCKED = """
import sys, time
from perfkit.cli.main import main
from perfkit.report.live import LiveReport
def point_finished(self, point):
    print("[1/", file=sys.stderr, flush=True)
    time.sleep(600)
LiveReport.point_finished = point_finished
sys.exit(main(sys.argv[1:]))
"""
CASES = {
    "telemetry process": "perfkit.telemetry.sampler_process",
    "a worker of two": "perfkit.workers.worker_process",
    "bundled server": "server_stub",
    "report process": "perfkit.cli.drawing_process",
    "event loop blocked": "",
}


class Trial(NamedTuple):
    """One trial; None seconds if it was given up."""

    seconds: float | None
    children_left: int
    is_stored: bool


def trial(python: pathlib.Path, case: str, folder: pathlib.Path) -> Trial:
    """Starts a run, stops what the case names, and interrupts the run twice."""
    stopped, draws = CASES[case], case == "report process"
    scenario = folder / "scenario.yaml"
    scenario.write_text(_SCENARIO.format(repetitions=1 if draws else 500, workers=2 if "worker" in case else 1))
    code = ["-m", "perfkit"] if stopped else ["-c", _BLOCKED]
    command = [str(python), "-P", *code, "run", str(scenario), "--out", str(folder / "out"), *([] if draws else ["--no-report"])]
    seconds: float | None = None
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        while b"[1/" not in run.stderr.readline():
            pass
        process = psutil.Process(run.pid)
        if stopped:
            _child(process, stopped).suspend()
        children = process.children(recursive=True)
        run.send_signal(signal.SIGINT)
        time.sleep(_BETWEEN_S)
        begun_s = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            run.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(_LONGEST_S)
            seconds = time.monotonic() - begun_s
        if seconds is None:
            run.kill()
    left = [child for child in psutil.wait_procs(children, timeout=0.5)[1] if not _has_ended(child)]
    for child in left:
        child.kill()
    return Trial(seconds, len(left), any((folder / name / "result.json").exists() for name in ("out", "out.partial")))


def _has_ended(process: psutil.Process) -> bool:
    """Whether a process is gone, or waits for its new parent to take its exit status."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _child(process: psutil.Process, name: str) -> psutil.Process:
    while True:
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if name in child.cmdline():
                    return child


def main() -> int:
    """Runs all trials and writes the report."""
    options = program_options(__doc__, trials=(10, "of each case"), perfkit=(ROOT, "the checkout to measure"))
    python = options.perfkit.absolute() / ".venv" / "bin" / "python"
    page = Report(options.out, "From the second Ctrl-C to the end of a run")
    page.add(describe_machine(), "")
    page.table("stopped", "trials", "ended", "median", "max", "children left", "results stored", "within 1 s")
    for case in CASES:
        trials = []
        for _ in range(options.trials):
            with tempfile.TemporaryDirectory() as folder:
                trials.append(trial(python if python.exists() else pathlib.Path(sys.executable), case, pathlib.Path(folder)))
        ended = sorted(one.seconds for one in trials if one.seconds is not None)
        left, stored = sum(one.children_left for one in trials), sum(one.is_stored for one in trials)
        times = (f"{ended[len(ended) // 2]:.2f} s", f"{ended[-1]:.2f} s") if ended else ("–", "–")
        holds = len(ended) == len(trials) == stored and not left and ended[-1] <= _REQUIRED_S
        page.judged_row(holds, case, len(trials), len(ended), *times, left, stored)
    page.add(
        "", f"A trial is given up after {_LONGEST_S:.0f} s. Load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs."
    )
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

"""A long run at a constant rate: the memory of perfkit's processes, and what recovery makes of a killed run.

    python -m benchmarks.long_run [--minutes 30] [--rate 5000] [--killed-after 150] [--out reports/long-run.md]

The target is perfkit's canned server, which does the least work possible. Half-way through, the run's folder is copied as a crash would
leave it; it is recovered after the run and compared with what the complete run logged up to the same second. A second run is killed with
all its processes by SIGKILL, and recovered. The exit code is 1 if perfkit's own process grows by more than 5 % after its first minutes,
or if a figure differs.
"""

import collections
import contextlib
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from benchmarks.processes import ROOT, peak_memory_kib, running_canned_server, write_scenario
from benchmarks.report import Report, describe_machine, program_options, yes_no
from perfkit.calibration.canned_server import INPUT, MODEL
from perfkit.result.file import read_result
from perfkit.result.interval_log import read_intervals, read_window_starts
from perfkit.result.model import Point
from perfkit.result.rotating_log import log_files
from perfkit.stats.buckets import BucketCounts

_ALLOWED_GROWTH = 0.05
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}
_WORKER, _SAMPLER = "perfkit.workers.worker_process", "perfkit.telemetry.sampler_process"


@contextlib.contextmanager
def running_perfkit(folder: pathlib.Path, scenario: Mapping[str, Any]) -> Iterator["subprocess.Popen[bytes]"]:
    """A `perfkit run` that writes to `folder`; the text that it prints goes to `<folder>.txt`."""
    place = folder.with_name(f"{folder.name}-scenario")
    place.mkdir()
    command = [sys.executable, "-m", "perfkit", "run", str(write_scenario(place, scenario)), "--no-report", "--out", str(folder)]
    with folder.with_suffix(".txt").open("wb") as text, subprocess.Popen(command, stdout=text, stderr=text, cwd=ROOT) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def resident_mib(process: "subprocess.Popen[bytes]") -> dict[str, float]:
    """The resident memory of perfkit's processes by their part in the run."""
    memory = collections.Counter[str]()
    with contextlib.suppress(psutil.NoSuchProcess):
        driver = psutil.Process(process.pid)
        memory["driver"] += driver.memory_info().rss
        for child in driver.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                command = " ".join(child.cmdline())
                name = next((name for name, module in (("worker", _WORKER), ("sampler", _SAMPLER)) if module in command), None)
                if name is not None:
                    memory[name] += child.memory_info().rss
    return {name: size / 2**20 for name, size in memory.items()}


def wait_for_log(process: "subprocess.Popen[bytes]", partial: pathlib.Path) -> None:
    """Waits until a run has begun to log its load point, or has ended."""
    while process.poll() is None and not list(partial.glob("measured/*.log")):
        time.sleep(0.1)


def complete_run(folder: pathlib.Path, scenario: Mapping[str, Any], minutes: float) -> tuple[list[tuple[float, dict[str, float]]], float]:
    """Runs to the end; the memory after each minute of load, and the driver's peak. The folder at half-time is copied to `half.partial` beside it."""
    samples: list[tuple[float, dict[str, float]]] = []
    partial = folder.with_name(f"{folder.name}.partial")
    with running_perfkit(folder, scenario) as process:
        wait_for_log(process, partial)
        began_s, is_copied = time.monotonic(), False
        while process.poll() is None and (time.monotonic() - began_s) / 60 < minutes:
            due_s = began_s + 60 * (len(samples) + 1)
            if due_s > began_s + 60 * minutes - 15:  # the load is about to end
                break
            while process.poll() is None and time.monotonic() < due_s:
                time.sleep(0.2)
            minute = (time.monotonic() - began_s) / 60
            samples.append((minute, resident_mib(process)))
            print(f"{minute:.1f} min: {samples[-1][1]}", file=sys.stderr, flush=True)
            if minute >= minutes / 2 and not is_copied and list(partial.glob("measured/*.log")):
                shutil.copytree(partial, folder.with_name("half.partial"))
                is_copied = True
        peak_kib = 0
        while process.poll() is None:
            peak_kib = max(peak_kib, peak_memory_kib(process.pid))
            time.sleep(0.2)
    return samples, peak_kib / 1024


def killed_run(folder: pathlib.Path, scenario: Mapping[str, Any], seconds: float) -> None:
    """Kills a run and all its processes after so many seconds of load."""
    partial = folder.with_name(f"{folder.name}.partial")
    with running_perfkit(folder, scenario) as process:
        wait_for_log(process, partial)
        time.sleep(seconds)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
        psutil.wait_procs(children, timeout=10)


def recover(partial: pathlib.Path) -> tuple[Point, pathlib.Path, str]:
    """The recovered load point, its folder, and how the result says it ended."""
    command = [sys.executable, "-m", "perfkit", "recover", str(partial), "--no-report"]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    result, folder = read_result(partial.with_name(partial.name.removesuffix(".partial")))
    return result.points[0], folder, result.status_reason


def logged_figures(folder: pathlib.Path, seconds: float | None = None) -> dict[str, int]:
    """Count and percentiles of the response times that a log has of the first seconds of the window."""
    start_s = read_window_starts(folder)[0, 0]
    times = BucketCounts.merged(
        times
        for tag, at_s, times in read_intervals(folder)
        if tag == "p0.r0.response" and (seconds is None or at_s - start_s < seconds - 0.5)
    )
    return {"count": times.count, **dict(zip(_QUANTILES, times.values_at(list(_QUANTILES.values())), strict=True))}


def stored_figures(point: Point) -> dict[str, int]:
    """The same figures of a result's load point."""
    return {"count": point.times.count, **{name: getattr(point.times, name) for name in _QUANTILES}}


def main() -> int:
    """Prints the report."""
    options = program_options(
        __doc__,
        minutes=(30.0, "length of the first run"),
        rate=(5000.0, "requests per second"),
        killed_after=(150.0, "seconds of load of the second run"),
        keep=(pathlib.Path, "a folder for all results, which stay"),
    )
    report = Report(options.out, "A long run: memory and recovery")
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="perfkit-long-run-") as name, running_canned_server() as server:
        place = options.keep or pathlib.Path(name)
        place.mkdir(parents=True, exist_ok=True)
        scenario = {
            "name": "long-run",
            "target": {"url": server.url(), "model": MODEL},
            "workload": {"inputs": {INPUT: {"generate": "zeros", "shape": [32]}}},
            "load": {"open": {"rate": options.rate}},
            "measure": {"warmup": "1s", "duration": f"{round(options.minutes * 60)}s", "repetitions": 1},
        }
        samples, peak_mib = complete_run(place / "whole", scenario, options.minutes)
        (whole,) = read_result(place / "whole")[0].points
        half, half_folder, half_reason = recover(place / "half.partial")
        killed_run(place / "killed", scenario, options.killed_after)
        killed, killed_folder, killed_reason = recover(place / "killed.partial")
        figures = {
            "half-time copy, recovered": stored_figures(half),
            "its own log": logged_figures(half_folder),
            "complete run's log up to that second": logged_figures(place / "whole", half.duration_s),
            "killed run, recovered": stored_figures(killed),
            "the killed run's own log": logged_figures(killed_folder),
        }
        log_bytes, parts = sum(file.stat().st_size for file in log_files(place / "whole")), len(log_files(place / "whole"))
    series = tuple(half.throughput_series_per_s or ())
    is_series_equal = series == tuple(whole.throughput_series_per_s or ())[: len(series)]
    copied, copied_log, of_whole, ended, ended_log = figures.values()
    is_equal = copied == copied_log == of_whole and ended == ended_log and is_series_equal
    first_minute = min(5, len(samples) // 2)
    settled = [memory["driver"] for minute, memory in samples if minute > first_minute - 0.5 and "driver" in memory]
    growth = max(settled) / settled[0] - 1 if settled else float("inf")
    report.is_met = is_equal and growth <= _ALLOWED_GROWTH
    report.add(
        f"{options.minutes:g} minutes at {options.rate:,.0f} requests per second (Poisson) to perfkit's canned server, "
        f"one worker process. {machine}",
        f"{whole.requests.sent:,} requests were sent, {whole.requests.ok:,} answered ok, p50 {(whole.times.p50 or 0) / 1e6:.2f} ms. "
        f"The log has {log_bytes / 2**20:.1f} MiB in {parts} file{'s' * (parts > 1)}.",
        "",
        f"The load point is valid: {yes_no(whole.valid)}; its warnings: {', '.join(warning.code for warning in whole.warnings) or 'none'}.",
    )
    report.section("Resident memory of perfkit's processes, MiB")
    names = list(dict.fromkeys(name for _, memory in samples for name in memory))
    report.table(">minute", *(f">{name}" for name in names))
    for minute, memory in samples:
        report.row(f"{minute:.1f}", *(f"{memory.get(name, 0):.1f}" for name in names))
    report.add(
        "",
        f"From minute {first_minute} on, the driver's memory is at most {growth:+.1%} above "
        f"that of minute {first_minute}: within {_ALLOWED_GROWTH:.0%}: {yes_no(growth <= _ALLOWED_GROWTH)}. Its peak, in which the final result is "
        f"computed, was {peak_mib:.1f} MiB.",
    )
    report.section(
        "Recovery", f"At half-time: {half_reason}.", f"Killed by SIGKILL after {options.killed_after:g} s of load: {killed_reason}.", ""
    )
    report.table("figures of", ">response times", *(f">{name}, ns" for name in _QUANTILES))
    for name, found in figures.items():
        report.row(name, *(f"{value:,}" for value in found.values()))
    report.add(
        "",
        f"The answers of each of the {len(series):,} seconds are the same in the recovered copy and in the complete run: {yes_no(is_series_equal)}.",
        f"All figures agree: {yes_no(is_equal)}.",
    )
    return report.write()


if __name__ == "__main__":
    sys.exit(main())

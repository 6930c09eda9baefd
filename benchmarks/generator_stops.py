"""Whether a load generator that stood still, or started requests late, passes as a measurement.

    python -m benchmarks.generator_stops [--runs 216] [--seed 0] [--live 20] [--short 100] [--out reports/generator-stops.md]

In virtual time, where the same run without the stop is known: stops of 10 ms to 5 s at random instants, closed and open loop,
one and two workers. The server takes the same times in both runs, so that they differ by the stop and not by chance. A figure counts as moved if the run with the stop reports a percentile outside the interval that the run
without it reports (as wide above as below where it is open above), or a mean or throughput that differs by more than 1 % and
by more than 95 % of undisturbed runs do. Then windows of 100 to 300 requests in which a share of the arrivals is late. Then
live runs against the bundled server, stopped by SIGSTOP. No valid run may report a moved figure: otherwise the exit code is
1. The same file with the suffix .json gets every run.
"""

import collections
import concurrent.futures
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil

from benchmarks.processes import RunningServer, run_perfkit, running_server
from benchmarks.report import Report, describe_machine, program_options, yes_no
from benchmarks.simulated_stops import LoadModel, arrivals_ns, simulate
from benchmarks.synthetic import closed_loop, open_loop, scenario
from perfkit.result.distribution import QUANTILES
from perfkit.result.model import Point
from perfkit.stats.percentiles import minimum_samples
from perfkit.units import NS_PER_S

MS = 1_000_000
LENGTHS_MS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
LOADS = {
    "closed, 1 worker": LoadModel(is_open=False, level=8),
    "closed, 2 workers": LoadModel(is_open=False, level=8, workers=2),
    "open, 1 worker": LoadModel(is_open=True, level=120),
    "open, 2 workers": LoadModel(is_open=True, level=120, workers=2),
}
LATE_SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
WINDOW_NS, LEAST_SHARE, UNDISTURBED_RUNS = 10 * NS_PER_S, 0.01, 40
_UNDISTURBED_SEED = 1_000_000
_LIVE_WINDOW_S, _LIVE_LENGTHS_S = 6.0, (0.05, 0.2, 0.5, 1.0, 3.0)
# of the closed queueing network and of M/M/2: throughput per second, mean in ms
_LIVE_TRUTH = {False: (200.0, 40.0), True: (120.0, 15.6)}
_LIVE_THROUGHPUT_WITHIN, _LIVE_MEAN_WITHIN = 0.06, 0.35


@dataclasses.dataclass(frozen=True, slots=True)
class StoppedRun:
    """One run with a stop, or late starts: what was said of it, and which of its figures were moved."""

    load: str
    seed: int
    disturbed_by: float
    """The length of the stop in ms, or the share of late arrivals."""
    is_valid: bool
    codes: tuple[str, ...]
    moved: tuple[str, ...]

    @property
    def is_wrong(self) -> bool:
        """Whether it passes as a measurement although a figure was moved."""
        return self.is_valid and bool(self.moved)


class Undisturbed:
    """How much the mean and the throughput of a load differ from one undisturbed run to the next."""

    def __init__(self, load: LoadModel, window_ns: int) -> None:
        points = [simulate(load, seed=_UNDISTURBED_SEED + seed, window_ns=window_ns)[0] for seed in range(UNDISTURBED_RUNS)]
        self._reach = {name: 1.96 * float(np.std([_figure(point, name) for point in points], ddof=1)) for name in ("mean", "throughput")}

    def moved(self, quiet: Point, stopped: Point) -> tuple[str, ...]:
        """The figures that the stop moved beyond their intervals."""
        names = []
        for name in QUANTILES:
            value = getattr(stopped.times, name)
            if value is None or name not in quiet.intervals or quiet.times.count < minimum_samples(QUANTILES[name]):
                continue
            low, high = quiet.intervals[name]
            if not low <= value <= (2 * getattr(quiet.times, name) - low if high is None else high):
                names.append(name)
        for name, reach in self._reach.items():
            without = _figure(quiet, name)
            if abs(_figure(stopped, name) - without) > max(reach, LEAST_SHARE * without):
                names.append(name)
        return tuple(names)


def _figure(point: Point, name: str) -> float:
    return point.times.mean if name == "mean" else point.throughput_per_s


def stopped_runs(name: str, runs: int, first_seed: int) -> list[StoppedRun]:
    """Runs of a load in virtual time with one stop each, evenly over the lengths."""
    found, draw = [], random.Random(f"{name} {first_seed}")
    load = LOADS[name]
    undisturbed = Undisturbed(load, WINDOW_NS)
    for seed in range(first_seed, first_seed + max(runs // len(LENGTHS_MS), 1) * len(LENGTHS_MS)):
        length_ms = LENGTHS_MS[seed % len(LENGTHS_MS)]
        # also across the start and the end of the window
        start_ns = int(draw.uniform(-0.5 * length_ms * MS, WINDOW_NS))
        quiet, _ = simulate(load, seed=seed, window_ns=WINDOW_NS)
        stopped, _ = simulate(load, seed=seed, window_ns=WINDOW_NS, stops=[(start_ns, start_ns + length_ms * MS)])
        found.append(StoppedRun(name, seed, length_ms, stopped.valid, _codes(stopped), undisturbed.moved(quiet, stopped)))
    return found


def short_runs(share: float, runs: int, first_seed: int) -> list[StoppedRun]:
    """Windows of 100 to 300 requests at 30 to 50/s, a share of which is 1 to some 20 ms late because the worker did not run."""
    found, draw = [], random.Random(f"{share} {first_seed}")
    windows = [(30, 3.4), (40, 5.0), (50, 6.0)]
    undisturbed = {rate: Undisturbed(LoadModel(True, rate), int(length_s * NS_PER_S)) for rate, length_s in windows}
    for seed in range(first_seed, first_seed + runs):
        rate, length_s = windows[seed % len(windows)]
        load, window_ns = LoadModel(is_open=True, level=rate), int(length_s * NS_PER_S)
        due = arrivals_ns(load, seed, window_ns)
        stops = [(at - 1, at + int((1.2 + draw.expovariate(1 / 4)) * MS)) for at in due if draw.random() < share]
        quiet, _ = simulate(load, seed=seed, window_ns=window_ns)
        late, _ = simulate(load, seed=seed, window_ns=window_ns, stops=stops)
        found.append(StoppedRun(f"{rate}/s for {length_s} s", seed, share, late.valid, _codes(late), undisturbed[rate].moved(quiet, late)))
    return found


def simulated_runs(runs: int, short: int, first_seed: int) -> tuple[list[StoppedRun], list[StoppedRun]]:
    """All runs in virtual time: those with one stop, and the short ones with late starts."""
    with concurrent.futures.ProcessPoolExecutor() as pool:
        by_load = [pool.submit(stopped_runs, name, runs // len(LOADS), first_seed) for name in LOADS]
        by_share = [pool.submit(short_runs, share, short, first_seed) for share in LATE_SHARES]
        stopped, late = ([run for part in parts for run in part.result()] for parts in (by_load, by_share))
    print(f"in virtual time: {sum(run.is_wrong for run in (*stopped, *late))} of {len(stopped) + len(late)}", file=sys.stderr, flush=True)
    return stopped, late


def _codes(point: Point) -> tuple[str, ...]:
    return tuple(warning.code for warning in point.warnings if warning.code in {"generator_stopped", "generator_paused", "late_starts"})


def live_run(server: RunningServer, load: LoadModel, length_s: float, draw: random.Random) -> dict[str, Any]:
    """One run of perfkit against the bundled server, whose driver or first worker is stopped once at a random instant."""
    before = server.inference_count("synthetic")

    def stop(process: "subprocess.Popen[bytes]") -> None:
        while process.poll() is None and server.inference_count("synthetic") < before + 50:
            time.sleep(0.02)
        time.sleep(1.0 + draw.uniform(0, _LIVE_WINDOW_S))
        if process.poll() is not None:
            return  # `run.point` says why
        workers = [child.pid for child in psutil.Process(process.pid).children() if "perfkit.workers.worker_process" in child.cmdline()]
        pid = workers[0] if load.workers > 1 and workers else process.pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(length_s)
        os.kill(pid, signal.SIGCONT)

    loop = open_loop(load.level) if load.is_open else closed_loop(int(load.level))
    document = scenario(server.url(), loop, _LIVE_WINDOW_S, target={"timeout": "20s"}, measure={"workers": load.workers})
    run = run_perfkit(document, during=stop)
    point = run.point
    throughput, mean_ms = _LIVE_TRUTH[load.is_open]
    measured_ms = (point["response_time_ns"] or point["service_time_ns"])["mean"] / MS
    is_off = abs(point["throughput_per_s"] / throughput - 1) > _LIVE_THROUGHPUT_WITHIN or abs(measured_ms / mean_ms - 1) > _LIVE_MEAN_WITHIN
    return {
        "load": "open" if load.is_open else "closed",
        "workers": load.workers,
        "stop_s": length_s,
        "exit_code": run.exit_code,
        "valid": point["valid"],
        "warnings": [warning["code"] for warning in point["warnings"]],
        "stops": point["generator"]["stops"],
        "throughput_per_s": point["throughput_per_s"],
        "mean_ms": measured_ms,
        "is_wrong": point["valid"] and is_off,
    }


def live_runs(runs: int) -> list[dict[str, Any]]:
    """Live runs, evenly over the loads and the lengths of the stop."""
    draw, found = random.Random(20), []
    with running_server("--model=synthetic", "--synthetic=service=exponential:10ms,servers=2") as server:
        for number in range(runs):
            load = tuple(LOADS.values())[number % len(LOADS)]
            found.append(live_run(server, load, _LIVE_LENGTHS_S[number // len(LOADS) % len(_LIVE_LENGTHS_S)], draw))
            print(f"live {number + 1}/{runs}: {found[-1]}", file=sys.stderr, flush=True)
    return found


def add_table(page: Report, column: str, runs: Sequence[StoppedRun], unit: str) -> None:
    """By the size of the disturbance: how many runs are invalid and how many had a figure moved, and where the two differ."""
    page.table(f">{column}", ">runs", ">invalid", ">figure moved", ">unmoved, yet invalid", ">moved, yet valid")
    for size in sorted({run.disturbed_by for run in runs}):
        chosen = [run for run in runs if run.disturbed_by == size]
        invalid, moved = sum(not run.is_valid for run in chosen), sum(bool(run.moved) for run in chosen)
        needless, wrong = sum(not run.is_valid and not run.moved for run in chosen), sum(run.is_wrong for run in chosen)
        page.row(f"{size:.1%}" if unit == "%" else f"{size:g} {unit}", len(chosen), invalid, moved, needless, wrong)


def main() -> int:
    """Prints the report; 1 if a valid run reports a figure that was moved."""
    options = program_options(
        __doc__, out="generator-stops", runs=(216, "runs with a stop in virtual time"), seed=(0, "the first seed of the runs in virtual time"),
        short=(100, "short windows for each share of late starts"), live=(20, "live runs"),
    )  # fmt: skip
    machine = describe_machine()
    stopped, short = simulated_runs(options.runs, options.short, options.seed)
    live = live_runs(options.live)
    wrong = [run for run in (*stopped, *short) if run.is_wrong]
    number = len(wrong) + sum(run["is_wrong"] for run in live)
    reasons = collections.Counter(code for run in stopped if not run.is_valid for code in run.codes)
    page = Report(options.out, "A load generator that stands still")
    page.is_met = not number
    total = len(stopped) + len(short) + len(live)
    page.add(machine, "", f"**{number} of {total} runs are valid and report a figure that was moved beyond its interval.**")
    if wrong:
        page.add("", *(f"- {run.load}, seed {run.seed}, disturbed by {run.disturbed_by:g}: {', '.join(run.moved)}" for run in wrong))
    page.section(f"{len(stopped)} runs in virtual time, seeds from {options.seed:,} on, a window of 10 s, one stop each")
    add_table(page, "stop", stopped, "ms")
    page.add("", f"Reasons of the invalid ones: {', '.join(f'{code} {count}' for code, count in sorted(reasons.items()))}.")
    page.section(f"{len(short)} windows of 100 to 300 requests with late starts")
    add_table(page, "late", short, "%")
    page.section(f"{len(live)} live runs, a window of {_LIVE_WINDOW_S:g} s, SIGSTOP of the driver or of the first of two workers")
    page.table("load", ">workers", ">stop", ">found", ">touched", "valid", "warnings", ">throughput", ">mean")
    for one in live:
        codes = ", ".join(code for code in one["warnings"] if code.startswith(("generator", "late", "behind"))) or "none"
        found, touched = f"{one['stops']['max_ns'] / NS_PER_S:.2f} s", one["stops"]["touched_requests"]
        figures = (f"{one['throughput_per_s']:.1f}/s", f"{one['mean_ms']:.1f} ms")
        page.row(one["load"], one["workers"], f"{one['stop_s']:g} s", found, touched, yes_no(one["valid"]), codes, *figures)
    page.add("", "The truth is 200/s with a mean of 40 ms (closed, 8 in flight), and 120/s with 15.6 ms (open).")
    document = {"stopped": [dataclasses.asdict(run) for run in stopped], "short": [dataclasses.asdict(run) for run in short], "live": live}
    options.out.with_suffix(".json").write_text(json.dumps(document) + "\n", encoding="utf-8")
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

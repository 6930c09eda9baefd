"""How long `perfkit run URL` takes: from its start to the first request, and as a whole, from its start to its end, beside perf_analyzer.

    python -m benchmarks.start_time [--rounds 10] [--before CHECKOUT] [--realtime] [--out reports/start-time.md]

The first request: a small server on the loopback, in this process, answers the metadata and notes when the first inference arrives. The clock
starts before the command is executed, so that the interpreter's own start is part of the figure. The first request is the one that perfkit sends
alone, to check the answer; the load's first request follows when the samplers run. The CPU time is that of the command up to the first request,
which other programs on the machine change less than the wall-clock time. Required: a median below 0.7 s on a quiet core.

The whole run: one load point of 2 s without warm-up against the bundled server, with all report files, over HTTP and gRPC. When the load began
and ended is in `latency.hlog`, on the wall clock. CPU time is that of all processes of the command, memory that of the largest. Required: a median
of at most 2.8 s, and 75 MiB. The exit code is 1 if a requirement is missed.

In each round all programs run one after another in random order: this perfkit, with `--before` that of another checkout,
and perf_analyzer where it is installed (`benchmarks/peers/README.md`), with one measurement of 2 s. `--realtime` runs commands and servers
at real-time priority, on a machine that is busy.
"""

import csv
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import psutil

from benchmarks.peers.install import peers_folder, perf_analyzer_path
from benchmarks.processes import BEFORE, BEFORE_OPTION, OWN, ROOT, THIS, Checkout, running_server
from benchmarks.report import Report, describe_machine, program_options, rounds_text, yes_no
from tests.json_server import serving, v2_handler

ALLOWED_S, ALLOWED_WHOLE_S, ALLOWED_MIB = 0.7, 2.8, 75.0
PROTOCOLS = ("http", "grpc")
_FILES = ("result.json", "latency.hlog", "telemetry.csv", "checksums.sha256", "report.html", "report.md", "plots/timeline.svg")
_PEER = "perf_analyzer"
_COMMANDS = {"perfkit validate": ("validate", str(ROOT / "scenarios/densenet.yaml")), "perfkit run --help": ("run", "--help")}


class Start(NamedTuple):
    """The start of a run, in seconds."""

    to_first_s: float
    cpu_s: float
    """The command's CPU time until then."""
    to_load_s: float


class Used(NamedTuple):
    """What a command took: seconds, CPU seconds of all its processes, and the peak memory of the largest."""

    wall_s: float
    cpu_s: float
    peak_mib: float


class Parts(NamedTuple):
    """The parts of one run, in seconds."""

    to_load_s: float
    load_s: float
    to_summary_s: float
    to_exit_s: float


def measure_start(checkout: Checkout) -> Start:
    """Runs `perfkit run` against a small server."""
    arrived_s, cpu_s = list[float](), list[float]()
    process: subprocess.Popen[bytes] | None = None

    def on_inference(number: int) -> None:
        if number <= 2 and process is not None:
            arrived_s.append(time.perf_counter() - began_s)
            cpu_s.append(sum(psutil.Process(process.pid).cpu_times()[:2]))

    with serving(v2_handler(on_inference)) as port, tempfile.TemporaryDirectory() as folder:
        command = [*checkout.perfkit, "run", f"http://127.0.0.1:{port}", "-m", "m", "-c", "1", "--duration", "200ms"]
        command += ["--no-report", "--quiet", "--out", f"{folder}/out"]
        began_s = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=checkout.folder)
        _, errors = process.communicate(timeout=120)
    if len(arrived_s) < 2:
        raise RuntimeError(f"perfkit run sent no load: {errors.decode(errors='replace')}")
    return Start(arrived_s[0], cpu_s[0], arrived_s[1])


def measure_run(checkout: Checkout, url: str) -> tuple[Used, Parts]:
    """Runs `perfkit run` for one load point of 2 s at a server that runs."""
    settings = ("--set=measure.warmup=0s", "--set=measure.repetitions=1", "--duration=2s")
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = [*checkout.perfkit, "run", url, "-m", "simple", "-c", "1", *settings, "--out", str(out)]
        began_s = time.time()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=checkout.folder)
        assert process.stdout is not None
        next(line for line in process.stdout if line.strip())  # the sentence above the table
        summary_s = time.time()
        process.stdout.read()
        used = _used(process, began_s)
        if missing := [name for name in _FILES if not (out / name).exists()]:
            raise RuntimeError(f"perfkit run ended with {process.returncode} and without {', '.join(missing)}")
        first_s, last_s = _load_times((out / "latency.hlog").read_text())
    return used, Parts(first_s - began_s, last_s - first_s, summary_s - last_s, began_s + used.wall_s - summary_s)


def measure_command(command: Sequence[str], folder: pathlib.Path = ROOT, *, unless_says: str = "") -> Used:
    """Runs a command to its end; raises RuntimeError if it fails, unless it says the given text."""
    with tempfile.TemporaryFile() as output:
        began_s = time.time()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
        used = _used(process, began_s)
        output.seek(0)
        said = output.read().decode(errors="replace")
        if process.returncode and not (unless_says and unless_says in said):
            raise RuntimeError(f"{command[0]} ended with {process.returncode}: {said[-1000:]}")
    return used


def measure_peer(program: pathlib.Path, url: str) -> Used:
    """Runs perf_analyzer for one measurement of 2 s; it has measured, too, where it says that one is too few to be stable."""
    protocol, _, address = url.partition("://")
    options = ["-m", "simple", "-i", protocol, "-u", address, "--concurrency-range", "1"]
    return measure_command([str(program), *options, "-p", "2000", "-r", "1"], unless_says="Failed to obtain stable measurement")


def _used(process: "subprocess.Popen[str] | subprocess.Popen[bytes]", began_s: float) -> Used:
    """Waits for the end of a process."""
    _, status, usage = os.wait4(process.pid, 0)
    ended_s = time.time()
    process.returncode = os.waitstatus_to_exitcode(status)
    return Used(ended_s - began_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def _load_times(log: str) -> tuple[float, float]:
    """When the first interval of an HdrHistogram log begins, and when the last one ends, on the wall clock."""
    started = re.search(r"StartTime: ([\d.]+)", log)
    assert started is not None
    rows = [row for row in csv.reader(log.splitlines()) if row and row[0].startswith("Tag=")]
    return float(started[1]) + float(rows[0][1]), float(started[1]) + max(float(row[1]) + float(row[2]) for row in rows)


def _add_starts(page: Report, checkouts: dict[str, Checkout], rounds: int) -> None:
    """The section on the first request."""
    starts: dict[str, list[Start]] = {name: [] for name in checkouts}
    for checkout in checkouts.values():
        measure_start(checkout)  # reads the files of the libraries from the disk, and compiles them
    for _ in range(rounds):
        for name in random.sample(list(checkouts), len(checkouts)):
            starts[name].append(measure_start(checkouts[name]))
    page.table("figure", ">median", ">fastest", ">slowest")
    for name, own in starts.items():
        for title, values in zip(
            ("start to first request", "CPU time of the command until then", "start to first request of the load"),
            zip(*own, strict=True),
            strict=True,
        ):
            page.row(f"{name}: {title}" if len(starts) > 1 else title, *_three(values))
    is_soon = statistics.median(one.to_first_s for one in starts[OWN]) < ALLOWED_S
    page.is_met &= is_soon
    page.add("", f"Required: a median below {ALLOWED_S:g} s on a quiet core. Met: {yes_no(is_soon)}.")


def _add_runs(page: Report, checkouts: dict[str, Checkout], peer: pathlib.Path, rounds: int) -> None:
    """The section on the whole run."""
    used, parts = dict[tuple[str, str], list[Used]](), dict[str, list[Parts]]()

    def run(name: str, protocol: str, url: str) -> None:
        if name == _PEER:
            found = measure_peer(peer, url)
        else:
            found, own = measure_run(checkouts[name], url)
            if name == OWN:
                parts.setdefault(protocol, []).append(own)
        used.setdefault((name, protocol), []).append(found)

    names = [*checkouts, *([_PEER] if peer.exists() else [])]
    cells = [(name, protocol) for name in names for protocol in PROTOCOLS]
    with running_server("--model", "simple") as server:
        for _ in range(rounds):
            for name, protocol in random.sample(cells, len(cells)):
                run(name, protocol, server.url(protocol))
    page.table("part of the run", ">HTTP", ">gRPC")
    titles = ("start to first request of the load", "measuring", "last answer to summary", "summary to exit, with the report's files")
    for place, title in enumerate(titles):
        page.row(title, *(f"{statistics.median(one[place] for one in parts[protocol]):.2f} s" for protocol in PROTOCOLS))
    page.add("")
    page.table("program", "protocol", ">start to end", ">fastest", ">slowest", ">CPU time", ">largest process")
    for name, protocol in cells:
        own_used = used[name, protocol]
        cpu_s, peak_mib = (statistics.median(values) for values in list(zip(*own_used, strict=True))[1:])
        page.row(name, protocol, *_three([one.wall_s for one in own_used]), f"{cpu_s:.2f} s", f"{peak_mib:.1f} MiB")
    worst = [max(statistics.median(one[place] for one in used[OWN, protocol]) for protocol in PROTOCOLS) for place in (0, 2)]
    is_fast, is_small = worst[0] <= ALLOWED_WHOLE_S, worst[1] <= ALLOWED_MIB
    page.add(
        "",
        f"Required: at most {ALLOWED_WHOLE_S:g} s. Met: {yes_no(is_fast)}. Required: at most {ALLOWED_MIB:g} MiB. Met: {yes_no(is_small)}.",
    )
    page.is_met &= is_fast and is_small


def _add_commands(page: Report, checkouts: dict[str, Checkout], rounds: int) -> None:
    """The section on commands that send nothing."""
    runs: dict[tuple[str, str], Callable[[], Used]] = {}
    for title, words in _COMMANDS.items():
        for name, checkout in checkouts.items():
            runs[title, name] = lambda words=words, checkout=checkout: measure_command([*checkout.perfkit, *words], checkout.folder)  # type: ignore[misc] # mypy cannot infer the defaults
    found: dict[tuple[str, str], list[Used]] = {key: [] for key in runs}
    for _ in range(rounds):
        for key in random.sample(list(runs), len(runs)):
            found[key].append(runs[key]())
    page.table("command", "program", ">median", ">fastest", ">slowest", ">CPU time")
    for (title, name), used in found.items():
        page.row(f"`{title}`", name, *_three([one.wall_s for one in used]), f"{statistics.median(one.cpu_s for one in used):.2f} s")


def _three(values_s: Sequence[float]) -> list[str]:
    """Median, least and largest."""
    return [f"{value_s:.2f} s" for value_s in (statistics.median(values_s), min(values_s), max(values_s))]


def main() -> int:
    """Measures, and writes the report."""
    options = program_options(
        __doc__,
        rounds=(10, "how many starts, and runs over each protocol, are measured"),
        before=BEFORE_OPTION,
        peers=peers_folder(),
        realtime=False,
    )
    if options.realtime:  # which what it starts inherits, the servers included
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    checkouts = {OWN: THIS} | ({BEFORE: options.before} if options.before else {})
    page = Report(options.out, "How long a run takes besides measuring")
    page.add(
        "## From the command to the first request",
        "",
        f"`perfkit run http://127.0.0.1:PORT -m m -c 1`, {rounds_text(options.rounds)}. {describe_machine()}"
        f"{' Commands and servers at real-time priority.' * options.realtime}",
        "",
    )
    _add_starts(page, checkouts, options.rounds)
    page.section(
        "From the command to its end",
        f"One load point of 2 s on the bundled server, without warm-up, {rounds_text(options.rounds)}; medians.",
        "",
    )
    _add_runs(page, checkouts, perf_analyzer_path(options.peers), options.rounds)
    page.section("Commands that send nothing", f"{rounds_text(options.rounds)}.", "")
    _add_commands(page, checkouts, options.rounds)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

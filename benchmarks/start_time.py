"""How long `perfkit run URL` takes from its start to the arrival of the first request.

    python -m benchmarks.start_time [--rounds 10] [--out reports/start-time.md]

A small server on the loopback, in this process, answers the metadata and notes when the first inference arrives. The clock starts before the
command is executed, so that the interpreter's own start is part of the figure. The first request is the one that perfkit sends alone, to check
the answer; the load's first request follows when the samplers run. The CPU time is that of the command up to the first request, which other
programs on the machine change less than the wall-clock time. Required: a median below 0.7 s on a quiet core; the exit code is 1 if it is missed.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil

from benchmarks.report import describe_machine, option_parser, publish, table_head, table_row, yes_no
from tests.json_server import serving, v2_handler

ALLOWED_S = 0.7


class Start(NamedTuple):
    """The start of one command, in seconds."""

    first_s: float
    cpu_s: float
    load_s: float
    """When the first request of the load arrived."""


def measure_start(*arguments: str) -> Start:
    """Runs `perfkit run` with these arguments against a small server."""
    arrived_s: list[float] = []
    cpu_s: list[float] = []
    process: subprocess.Popen[bytes] | None = None

    def on_inference(number: int) -> None:
        if number <= 2 and process is not None:
            arrived_s.append(time.perf_counter() - began_s)
            times = psutil.Process(process.pid).cpu_times()
            cpu_s.append(times.user + times.system)

    with serving(v2_handler(on_inference)) as port, tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "perfkit", "run", f"http://127.0.0.1:{port}", "-m", "m", "-c", "1", "--duration", "200ms"]
        began_s = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--no-report", "--quiet", "--out", f"{folder}/out", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _, errors = process.communicate(timeout=120)
    if len(arrived_s) < 2:
        raise RuntimeError(f"perfkit run sent no load: {errors.decode(errors='replace')}")
    return Start(arrived_s[0], cpu_s[0], arrived_s[1])


def report_of(starts: Sequence[Start], machine: str) -> tuple[list[str], bool]:
    """The lines of the report, and whether the median meets the requirement."""
    met = statistics.median(one.first_s for one in starts) < ALLOWED_S
    return [
        "# From the command to the first request",
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
    parser.add_argument("--rounds", type=int, default=10, help="how many starts are measured")
    options = parser.parse_args(arguments)
    machine = describe_machine()
    measure_start()  # reads the files of the libraries from the disk, and compiles them
    lines, met = report_of([measure_start() for _ in range(options.rounds)], machine)
    return publish(options.out, lines, is_met=met)


if __name__ == "__main__":
    sys.exit(main())

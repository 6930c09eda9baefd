"""Gates on the server's CPU time for a request, beside its throughput and times: an unchanged candidate, and one with 3 % more CPU work.

    python -m benchmarks.cpu_time_gate [--pairs 12] [--window 1500ms] [--out reports/cpu-time-gate.md]

The server is the bundled one with its model `simple`, restarted for each run, over HTTP with four requests in flight. The slower
candidate keeps the CPU busy for 3 % of the CPU time of a request, as the first gate measured it. Also measured is what reading
the CPU time costs. It takes about seven minutes. No figure is required; the exit code is 1 if a gate gave none.
"""

import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.processes import ROOT, running_server, write_scenario
from benchmarks.report import describe_machine, option_parser, publish, table_head, table_row
from perfkit.gate.folder import VERDICT_FILE, read_verdict
from perfkit.gate.sentences import format_change
from perfkit.gate.verdict import Comparison
from perfkit.machine.process_tree import ProcessTree
from perfkit.report.verdict import pair_slowdowns

PLANTED_SHARE, IN_FLIGHT, READINGS, READINGS_PER_S = 0.03, 4, 2000, 50
METRICS = ("cpu_time", "throughput", "p50", "p95", "p99")


class FinishedGate(NamedTuple):
    """What a gate measured: its comparisons by metric, and how many load points a busy machine disturbed."""

    comparisons: Mapping[str, Comparison]
    pairs: int


def serve(burn_ns: int, port: str) -> None:
    """The bundled server with `simple`, which also keeps the CPU busy for so long at each request."""
    from server_stub.__main__ import main
    from server_stub.executors.array import ArrayExecutor, Arrays, Inputs

    execute = ArrayExecutor.execute

    def execute_slowly(self: ArrayExecutor, inputs: Inputs) -> Arrays:
        until_ns = time.thread_time_ns() + burn_ns
        while time.thread_time_ns() < until_ns:
            pass
        return execute(self, inputs)

    if burn_ns:  # no model of the server takes a given CPU time
        ArrayExecutor.execute = execute_slowly  # type: ignore[method-assign]
    raise SystemExit(main(["--model", "simple", "--http-port", port, "--grpc-port", "0", "--exit-with-stdin"]))


def run_gate(burn_ns: int, pairs: int, window: str, folder: pathlib.Path) -> FinishedGate:
    """One gate; only throughput decides, so that each metric's minimum detectable effect is that of a gate of it alone."""
    scenario = write_scenario(
        folder,
        {
            "name": "cpu-time-gate", "target": {"model": "simple"}, "load": {"closed": {"concurrency": IN_FLIGHT}},
            "measure": {"warmup": "500ms", "duration": window}, "gate": {"metrics": ["throughput"]},
        },
    )  # fmt: skip
    arms = [f"cmd:{shlex.join([sys.executable, '-m', 'benchmarks.cpu_time_gate'])} --serve {one} {{port}}" for one in (0, burn_ns)]
    command = [sys.executable, "-m", "perfkit", "gate", str(scenario), "--baseline", arms[0], "--candidate", arms[1]]
    command += ["--pairs", str(pairs), "--quiet", "--out", str(folder / "out")]
    subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    if not (folder / "out" / VERDICT_FILE).exists():
        raise SystemExit("the gate ended without a verdict")
    verdict = read_verdict(folder / "out")
    return FinishedGate({one.metric: one for one in verdict.comparisons}, verdict.pairs)


def cost_of_reading() -> float:
    """The share of a CPU that fifty readings a second take, of the bundled server."""
    with running_server("--model", "simple") as server:
        tree = ProcessTree(server.process.pid)
        tree.find()
        begin_ns = time.process_time_ns()
        for number in range(READINGS):
            tree.find() if number % READINGS_PER_S == 0 else tree.read()
        return (time.process_time_ns() - begin_ns) / READINGS * READINGS_PER_S / 1e9


def table(finished: FinishedGate) -> list[str]:
    """A row for each metric."""
    lines = table_head("metric", ">baseline", ">change [interval]", ">spread of the pairs", ">minimum detectable effect")
    for name in METRICS:
        if (one := finished.comparisons.get(name)) is None:
            continue
        value = one.baseline or 0.0
        shown = f"{value:,.0f}/s" if one.unit == "per_s" else f"{value / 1e6:.3f} ms"
        effect = one.minimum_detectable_effect
        spread = f"{statistics.stdev(pair_slowdowns(one)):.1%}"
        lines.append(table_row(name.replace("_", " "), shown, format_change(one), spread, "–" if effect is None else f"{effect:.1%}"))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs both gates; see the module's docstring."""
    parser = option_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--window", default="1500ms")
    options = parser.parse_args(arguments)
    loads, machine = [os.getloadavg()[0]], describe_machine()
    finished = list[FinishedGate]()
    burn_ns = 0
    for _ in range(2):
        with tempfile.TemporaryDirectory(prefix="perfkit-cpu-time-gate-") as name:
            finished.append(run_gate(burn_ns, options.pairs, options.window, pathlib.Path(name)))
        burn_ns = (
            round(PLANTED_SHARE * (finished[0].comparisons["cpu_time"].baseline or 0.0)) if "cpu_time" in finished[0].comparisons else 0
        )
        loads.append(os.getloadavg()[0])
    busy = f"{', '.join(f'{one:.1f}' for one in loads)}, where above {os.cpu_count()} others want the CPUs, too"
    lines = [
        "# CPU time of the server as a metric of the gate",
        "",
        f"Made by `python -m benchmarks.cpu_time_gate`. {machine}",
        f"Load averages at the start, between the gates and after them: {busy}.",
        "",
        f"The bundled server's `simple` over HTTP, {IN_FLIGHT} requests in flight, restarted for each run, windows of {options.window}.",
        "Spread is the standard deviation of the pairs' changes; the minimum detectable effect is that of a gate of the metric alone.",
        "",
        f"Reading the CPU time of the server fifty times a second takes {cost_of_reading():.2%} of a CPU, in a process of its own.",
        "",
        f"## Unchanged candidate, {finished[0].pairs} pairs",
        "",
        *table(finished[0]),
        "",
        f"## {burn_ns / 1000:.1f} µs more CPU work for each request, {PLANTED_SHARE:.0%} of the baseline's, {finished[1].pairs} pairs",
        "",
        *table(finished[1]),
    ]
    return publish(options.out, lines, is_met=all("cpu_time" in one.comparisons for one in finished))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), sys.argv[3])
    sys.exit(main())

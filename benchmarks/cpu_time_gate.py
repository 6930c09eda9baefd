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
import sys
import tempfile
import time

from benchmarks.processes import run_gate, running_server
from benchmarks.report import Report, describe_machine, program_options
from perfkit.gate.sentences import format_change
from perfkit.gate.verdict import Verdict
from perfkit.machine.process_tree import ProcessTree
from perfkit.report.verdict import pair_slowdowns

PLANTED_SHARE, IN_FLIGHT, READINGS, READINGS_PER_S = 0.03, 4, 2000, 50
METRICS = ("cpu_time", "throughput", "p50", "p95", "p99")


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


def gate(burn_ns: int, pairs: int, window: str) -> Verdict:
    """One gate; only throughput decides, so that each metric's minimum detectable effect is that of a gate of it alone."""
    scenario = {
        "name": "cpu-time-gate", "target": {"model": "simple"}, "load": {"closed": {"concurrency": IN_FLIGHT}},
        "measure": {"warmup": "500ms", "duration": window}, "gate": {"metrics": ["throughput"]},
    }  # fmt: skip
    arms = [f"cmd:{shlex.join([sys.executable, '-m', 'benchmarks.cpu_time_gate'])} --serve {one} {{port}}" for one in (0, burn_ns)]
    with tempfile.TemporaryDirectory(prefix="perfkit-cpu-time-gate-") as name:
        return run_gate(pathlib.Path(name), scenario, *arms, "--pairs", str(pairs), "--quiet")


def cost_of_reading() -> float:
    """The share of a CPU that fifty readings a second take, of the bundled server."""
    with running_server("--model", "simple") as server:
        tree = ProcessTree(server.process.pid)
        tree.find()
        begin_ns = time.process_time_ns()
        for number in range(READINGS):
            tree.find() if number % READINGS_PER_S == 0 else tree.read()
        return (time.process_time_ns() - begin_ns) / READINGS * READINGS_PER_S / 1e9


def add_table(page: Report, title: str, verdict: Verdict) -> None:
    """A row for each metric."""
    page.section(title)
    page.table("metric", ">baseline", ">change [interval]", ">spread of the pairs", ">minimum detectable effect")
    found = {one.metric: one for one in verdict.comparisons}
    page.is_met &= "cpu_time" in found
    for one in (found[name] for name in METRICS if name in found):
        value, effect = one.baseline or 0.0, one.minimum_detectable_effect
        shown = f"{value:,.0f}/s" if one.unit == "per_s" else f"{value / 1e6:.3f} ms"
        spread = f"{statistics.stdev(pair_slowdowns(one)):.1%}"
        page.row(one.metric.replace("_", " "), shown, format_change(one), spread, "–" if effect is None else f"{effect:.1%}")


def main() -> int:
    """Runs both gates."""
    options = program_options(__doc__, pairs=(12, "of each gate"), window=("1500ms", "length of each window"))
    loads, machine, burn_ns, verdicts = [os.getloadavg()[0]], describe_machine(), 0, list[Verdict]()
    for _ in range(2):
        verdicts.append(gate(burn_ns, options.pairs, options.window))
        burn_ns = round(PLANTED_SHARE * sum(one.baseline or 0.0 for one in verdicts[0].comparisons if one.metric == "cpu_time"))
        loads.append(os.getloadavg()[0])
    page = Report(options.out, "CPU time of the server as a metric of the gate")
    page.add(
        f"Made by `python -m benchmarks.cpu_time_gate`. {machine}",
        f"Load averages at the start, between the gates and after them: {', '.join(f'{one:.1f}' for one in loads)}, where above {os.cpu_count()} others "
        "want the CPUs, too.",
        "",
        f"The bundled server's `simple` over HTTP, {IN_FLIGHT} requests in flight, restarted for each run, windows of {options.window}.",
        "Spread is the standard deviation of the pairs' changes; the minimum detectable effect is that of a gate of the metric alone.",
        "",
        f"Reading the CPU time of the server fifty times a second takes {cost_of_reading():.2%} of a CPU, in a process of its own.",
    )
    add_table(page, f"Unchanged candidate, {verdicts[0].pairs} pairs", verdicts[0])
    planted = f"{burn_ns / 1000:.1f} µs more CPU work for each request, {PLANTED_SHARE:.0%} of the baseline's"
    add_table(page, f"{planted}, {verdicts[1].pairs} pairs", verdicts[1])
    return page.write()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), sys.argv[3])
    sys.exit(main())

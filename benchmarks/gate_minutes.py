"""How long a gate takes by default: unchanged candidates, the bundled server's model `simple`, `profile: standard`, nothing else given.

    python -m benchmarks.gate_minutes [--gates 5] [--out reports/gate-minutes.md]

Each gate is a `perfkit gate` without a window, a time or a number of pairs. The exit code is 1 if the median takes eight minutes or more, or
a gate calls the unchanged candidate regressed.
"""

import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.processes import ROOT, write_scenario
from benchmarks.report import option_parser, table_head, table_row, write_report
from perfkit.gate.folder import read_verdict
from perfkit.gate.verdict import Verdict

LIMIT_MINUTES = 8.0
SCENARIO = {
    "name": "gate-minutes",
    "target": {"model": "simple", "protocols": ["http"]},
    "workload": {"inputs": {"INPUT0": {"generate": "arange"}, "INPUT1": {"generate": "ones"}}},
    "load": {"closed": {"concurrency": 4}},
    "gate": {"profile": "standard"},
}


class TimedGate(NamedTuple):
    """A gate's verdict, and how long it took."""

    verdict: Verdict
    minutes: float


def run_gate(folder: pathlib.Path, number: int) -> TimedGate:
    """Runs one gate in a process of its own."""
    place, start_s = folder / f"gate-{number}", time.monotonic()
    server = f"cmd:{shlex.join([sys.executable, '-m', 'server_stub', '--grpc-port', '0', '--exit-with-stdin'])} --http-port {{port}}"
    command = [sys.executable, "-m", "perfkit", "gate", str(write_scenario(folder, SCENARIO)), "--baseline", server, "--candidate", server]
    subprocess.run([*command, "--out", str(place), "--format", "json"], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    return TimedGate(read_verdict(place), (time.monotonic() - start_s) / 60)


def report(gates: Sequence[TimedGate]) -> list[str]:
    """The table of gates, and the median of their minutes."""
    rows = []
    for number, (verdict, minutes) in enumerate(gates):
        timing = verdict.timing
        window = "–" if timing is None or timing.window_s is None else f"{timing.window_s:g} s"
        overhead = "–" if timing is None else f"{timing.run_overhead_s:.1f} s"
        effect = verdict.minimum_detectable_effect
        pairs = f"{verdict.pairs} ({verdict.disturbed_pairs} / {verdict.discarded_pairs})"
        rows.append(
            table_row(
                number + 1, f"{minutes:.1f}", verdict.kind, pairs, window, overhead, "–" if effect is None else f"{effect:.1%}",
                verdict.reasons[0] if verdict.reasons else "",
            )
        )  # fmt: skip
    median = statistics.median(minutes for _, minutes in gates)
    return [
        "# How long a gate takes",
        "",
        f"`python -m benchmarks.gate_minutes --gates {len(gates)}` on {len(os.sched_getaffinity(0))} CPUs: `perfkit gate` with `profile: standard`,",
        "of the bundled server's model `simple` against itself over HTTP, four requests in flight at saturation; nothing else is given.",
        "",
        f"**Median {median:.1f} minutes**, {'under' if median < LIMIT_MINUTES else 'not under'} {LIMIT_MINUTES:g}.",
        "",
        *table_head(
            ">gate", ">minutes", "verdict", ">pairs (disturbed / discarded)", ">window", ">a run beside its windows",
            ">minimum detectable effect", "reason",
        ),
        *rows,
    ]  # fmt: skip


def main() -> int:
    """Runs the gates, and writes the report."""
    parser = option_parser(__doc__, out=ROOT / "reports" / "gate-minutes.md")
    parser.add_argument("--gates", type=int, default=5)
    options = parser.parse_args()
    gates: list[TimedGate] = []
    with tempfile.TemporaryDirectory(prefix="perfkit-gates-") as folder:
        for number in range(options.gates):
            gates.append(run_gate(pathlib.Path(folder), number))
            print(f"gate {number + 1}: {gates[-1].verdict.kind} after {gates[-1].minutes:.1f} min", flush=True)
            write_report(options.out, report(gates))
    is_slow = statistics.median(minutes for _, minutes in gates) >= LIMIT_MINUTES
    return 1 if is_slow or any(gate.verdict.kind == "regressed" for gate in gates) else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Gates on real server processes: unchanged candidates, which must not regress, and candidates with 10 % more service time.

    python -m benchmarks.live_gates [--unchanged 12] [--slower 4] [--window 800ms] [--out reports/live-gates.md]

Each gate is a `perfkit gate` that restarts the bundled server, with its model `synthetic`, for each of its short runs; together
they take about 25 minutes. Verdicts are stored in a folder beside the report until all gates are complete: after an
interruption, the same command continues. The exit code is 1 if an unchanged candidate was judged regressed, or a slower one was
not.
"""

import collections
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from scipy.stats import beta

from benchmarks.processes import ROOT, write_scenario
from benchmarks.report import option_parser, table_head, table_row, write_report
from perfkit.gate.folder import VERDICT_FILE, read_verdict
from perfkit.gate.verdict import Verdict, format_change

SERVICE_US, SLOWER_FACTOR, SERVERS, IN_FLIGHT = 40_000, 1.1, 12, 24
METRICS = ("throughput", "p50", "p95", "p99")
WITHOUT_JUDGEMENT = {"invalid", "incomparable"}


class GateSpec(NamedTuple):
    """One gate; `factor` multiplies the candidate's service time."""

    number: int
    factor: float

    @property
    def name(self) -> str:
        """The name of the gate's folder."""
        return f"gate-{self.number:02}-{'unchanged' if self.factor == 1 else 'slower'}"


class FinishedGate(NamedTuple):
    """A gate's verdict, and its duration unless an earlier call ran it."""

    spec: GateSpec
    verdict: Verdict
    minutes: float | None


def plan_gates(unchanged: int, slower: int) -> list[GateSpec]:
    """All gates; those with slower candidates are spread evenly, so that a disturbance of the machine affects both kinds."""
    total = unchanged + slower
    slower_numbers = {round((number + 0.5) * total / slower) for number in range(slower)} if slower else set()
    return [GateSpec(number, SLOWER_FACTOR if number in slower_numbers else 1.0) for number in range(total)]


def upper_bound(alarms: int, gates: int, confidence: float = 0.95) -> float:
    """The upper confidence bound on the alarm rate (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934)."""
    return 1.0 if alarms >= gates else float(beta.ppf(confidence, alarms + 1, gates - alarms))


def run_gate(spec: GateSpec, folder: pathlib.Path, window: str) -> FinishedGate:
    """Runs a gate in a process of its own, unless an earlier call did."""
    place, start_s = folder / spec.name, time.monotonic()
    if (place / VERDICT_FILE).exists():
        return FinishedGate(spec, read_verdict(place), None)
    document = {
        "name": "live-gate",
        "target": {"model": "synthetic"},
        "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
        "load": {"closed": {"concurrency": IN_FLIGHT}},
        "measure": {"warmup": "200ms", "duration": window},
        "gate": {"profile": "standard"},
    }
    scenario = write_scenario(folder, document)
    targets = [_command(SERVICE_US), _command(round(SERVICE_US * spec.factor))]
    command = [sys.executable, "-m", "perfkit", "gate", scenario, "--baseline", targets[0], "--candidate", targets[1], "--out", place]
    with subprocess.Popen([*map(str, command), "--format", "json"], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)  # it stores its pairs and stops its servers
            process.wait()
            raise
    if not (place / VERDICT_FILE).exists():
        raise RuntimeError(f"{spec.name} ended with exit code {process.returncode} and no verdict")
    return FinishedGate(spec, read_verdict(place), (time.monotonic() - start_s) / 60)


def _command(service_us: int) -> str:
    law = f"service=constant:{service_us}us,servers={SERVERS}"
    words = [sys.executable, "-m", "server_stub", "--model", "synthetic", "--synthetic", law, "--grpc-port", "0", "--exit-with-stdin"]
    return f"cmd:{shlex.join(words)} --http-port {{port}}"


def report(finished: Sequence[FinishedGate], window: str) -> list[str]:
    """The table of gates, and the bound on the rate of false alarms that they give."""
    rows = []
    for spec, verdict, _ in finished:
        changes = {change.metric: format_change(change) for change in verdict.gated}
        effect = verdict.minimum_detectable_effect
        candidate = "unchanged" if spec.factor == 1 else f"+{spec.factor - 1:.0%} service time"
        cells = (verdict.kind, verdict.pairs, verdict.discarded_pairs, *(changes.get(name, "–") for name in METRICS))
        rows.append(table_row(spec.number + 1, candidate, *cells, "–" if effect is None else f"{effect:.1%}"))
    kinds = {
        factor: collections.Counter(gate.verdict.kind for gate in finished if gate.spec.factor == factor) for factor in (1.0, SLOWER_FACTOR)
    }
    counts = {factor: ", ".join(f"{count} {kind}" for kind, count in counter.items()) or "none" for factor, counter in kinds.items()}
    gates = sum(count for kind, count in kinds[1.0].items() if kind not in WITHOUT_JUDGEMENT)
    alarms = kinds[1.0]["regressed"]
    bound = "No unchanged candidate was judged, so these gates say nothing about false alarms."
    if gates:
        bound = f"{alarms} false alarms in {gates} gates: their rate is at most **{upper_bound(alarms, gates):.0%}** at 95 % confidence."
    unjudged = [f"- gate {spec.number + 1}: {verdict.reasons[0]}" for spec, verdict, _ in finished if verdict.kind in WITHOUT_JUDGEMENT]
    return [
        "# Gates on real server processes",
        "",
        "`python -m benchmarks.live_gates`: `perfkit gate` with its standard profile on the bundled server's model `synthetic`,",
        f"{SERVICE_US / 1000:g} ms of service, {SERVERS} servers, restarted for every run; windows of {window}, far shorter than in real use.",
        "",
        f"- Unchanged candidates: {counts[1.0]}.",
        f"- Candidates with {SLOWER_FACTOR - 1:.0%} more service time: {counts[SLOWER_FACTOR]}.",
        f"- {bound}",
        "  So few gates cannot prove 1 %: that figure rests on exact tests and on [the simulation](gate-simulation.md).",
        "",
        *table_head(
            ">gate", "candidate", "verdict", ">pairs", ">discarded", *(f">{name}" for name in METRICS), ">minimum detectable effect"
        ),
        *rows,
        "",
        "Changes are the candidate's, with 96.7 % intervals. *Minimum detectable effect*: the slowdown of any one metric that 9 of 10",
        "gates with the same noise would detect.",
        *(["", "Not judged:", "", *unjudged] if unjudged else []),
    ]


def main() -> int:
    """Runs the missing gates, and writes the report after each."""
    parser = option_parser(__doc__, out=ROOT / "reports" / "live-gates.md")
    parser.add_argument("--unchanged", type=int, default=12, metavar="GATES")
    parser.add_argument("--slower", type=int, default=4, metavar="GATES")
    parser.add_argument("--window", default="800ms", help="length of each measured window (default %(default)s)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = options.out.with_suffix(".partial").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    finished: list[FinishedGate] = []
    specs = plan_gates(options.unchanged, options.slower)
    for spec in specs:
        minutes = [gate.minutes for gate in finished if gate.minutes is not None]
        left = f", about {sum(minutes) / len(minutes) * (len(specs) - spec.number):.0f} min left" if minutes else ""
        print(f"{spec.name} of {len(specs)}{left}", flush=True)
        finished.append(run_gate(spec, folder, options.window))
        print(f"{spec.name}: {finished[-1].verdict.kind}", flush=True)
        write_report(folder / options.out.name, report(finished, options.window))
    write_report(options.out, report(finished, options.window))
    shutil.rmtree(folder)
    print(f"{options.out} written")
    return 1 if any((gate.verdict.kind == "regressed") is (gate.spec.factor == 1) for gate in finished) else 0


if __name__ == "__main__":
    raise SystemExit(main())

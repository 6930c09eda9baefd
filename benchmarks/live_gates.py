"""Gates on real server processes beside a busy neighbour: unchanged candidates, and candidates with planted changes.

    python -m benchmarks.live_gates [--time 6m] [--unchanged 8] [--slower 4] [--p99 2] [--errors 2] [--neighbour 30] [--out FILE]

Each gate is a `perfkit gate --time` that restarts the bundled server, with its model `synthetic`, for each run; together they
take about 100 minutes. The neighbour is a process that takes the given share of one core in bursts of 5 to 50 ms. Verdicts are stored in
a folder beside the report until all gates are complete: after an interruption, the same command continues. The exit code is 1 if an
unchanged candidate was judged regressed, or any gate invalid.
"""

import collections
import contextlib
import multiprocessing
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from scipy.stats import beta

from benchmarks.processes import ROOT, write_scenario
from benchmarks.report import option_parser, table_head, table_row, write_report
from perfkit.gate.folder import VERDICT_FILE, read_verdict
from perfkit.gate.sentences import format_change
from perfkit.gate.verdict import Verdict

BASELINE = "service=lognormal:20ms:cv=0.3,servers=8"
CANDIDATES = {
    "unchanged": BASELINE,
    "+10 % service time": "service=lognormal:22ms:cv=0.3,servers=8",
    "2 % of requests twice as long": f"{BASELINE},slow=2x/2%",
    "errors +0.5 %": f"{BASELINE},errors=0.5%:503",
}
"""The candidates' service models."""
IN_FLIGHT = 16
METRICS = ("throughput", "p50", "p95", "p99", "error_rate")
WITHOUT_JUDGEMENT = {"invalid", "incomparable", "error"}


class GateSpec(NamedTuple):
    """One gate, and the name of its candidate."""

    number: int
    candidate: str

    @property
    def name(self) -> str:
        """The name of the gate's folder."""
        return f"gate-{self.number:02}-{list(CANDIDATES).index(self.candidate)}"


class FinishedGate(NamedTuple):
    """A gate's verdict, and how long it took."""

    spec: GateSpec
    verdict: Verdict
    minutes: float


def plan_gates(counts: Sequence[int]) -> list[GateSpec]:
    """All gates, in an order in which each kind of candidate is spread over the whole time."""
    places = sorted(((number + 0.5) / count, kind) for kind, count in zip(CANDIDATES, counts, strict=True) for number in range(count))
    return [GateSpec(number, kind) for number, (_, kind) in enumerate(places)]


@contextlib.contextmanager
def neighbour(share: float) -> Iterator[None]:
    """A process that takes a share of one core in bursts, for the length of the block; none for 0."""
    if not share:
        yield
        return
    process = multiprocessing.get_context("spawn").Process(target=_burn, args=(share,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _burn(share: float) -> None:
    rng = random.Random(1)
    while True:
        burst_s = rng.uniform(0.005, 0.05)
        end_s = time.thread_time() + burst_s
        while time.thread_time() < end_s:
            pass
        time.sleep(rng.expovariate(1) * burst_s * (1 - share) / share)


def upper_bound(alarms: int, gates: int, confidence: float = 0.95) -> float:
    """The upper confidence bound on the alarm rate (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934)."""
    return 1.0 if alarms >= gates else float(beta.ppf(confidence, alarms + 1, gates - alarms))


def run_gate(spec: GateSpec, folder: pathlib.Path, time_limit: str) -> FinishedGate:
    """Runs a gate in a process of its own, unless an earlier call did."""
    place, minutes, start_s = folder / spec.name, folder / f"{spec.name}.minutes", time.monotonic()
    if minutes.exists():
        return FinishedGate(spec, read_verdict(place), float(minutes.read_text()))
    document = {
        "name": "live-gate",
        "target": {"model": "synthetic"},
        "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
        "load": {"closed": {"concurrency": IN_FLIGHT}},
        "measure": {"warmup": "500ms"},
        "gate": {"profile": "standard"},
    }
    scenario = write_scenario(folder, document)
    targets = [_command(BASELINE), _command(CANDIDATES[spec.candidate])]
    command = [sys.executable, "-m", "perfkit", "gate", scenario, "--baseline", targets[0], "--candidate", targets[1], "--time", time_limit]
    with subprocess.Popen([*map(str, command), "--out", str(place), "--format", "json"], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)  # it stores its pairs and stops its servers
            process.wait()
            raise
    if not (place / VERDICT_FILE).exists():
        raise RuntimeError(f"{spec.name} ended with exit code {process.returncode} and no verdict")
    minutes.write_text(f"{(time.monotonic() - start_s) / 60:.2f}")
    return FinishedGate(spec, read_verdict(place), float(minutes.read_text()))


def _command(law: str) -> str:
    words = [sys.executable, "-m", "server_stub", "--model", "synthetic", "--synthetic", law, "--grpc-port", "0", "--exit-with-stdin"]
    return f"cmd:{shlex.join(words)} --http-port {{port}}"


def report(finished: Sequence[FinishedGate], time_limit: str, share: float) -> list[str]:
    """The table of gates, and the bound on the rate of false alarms that they give."""
    rows = []
    for spec, verdict, minutes in finished:
        changes = {change.metric: format_change(change) for change in verdict.gated}
        effect, timing = verdict.minimum_detectable_effect, verdict.timing
        rows.append(
            table_row(
                spec.number + 1,
                spec.candidate,
                verdict.kind,
                f"{minutes:.1f}",
                f"{verdict.pairs} ({verdict.disturbed_pairs} / {verdict.discarded_pairs})",
                "–" if timing is None or timing.window_s is None else f"{timing.window_s:g} s",
                *(changes.get(name, "–") for name in METRICS),
                "–" if effect is None else f"{effect:.1%}",
            )
        )
    kinds = {name: collections.Counter(gate.verdict.kind for gate in finished if gate.spec.candidate == name) for name in CANDIDATES}
    judged = sum(count for kind, count in kinds["unchanged"].items() if kind not in WITHOUT_JUDGEMENT)
    alarms = kinds["unchanged"]["regressed"]
    bound = "No unchanged candidate was judged, so these gates say nothing about false alarms."
    if judged:
        bound = f"{alarms} false alarms in {judged} gates: their rate is at most **{upper_bound(alarms, judged):.0%}** at 95 % confidence."
    unjudged = [f"- gate {spec.number + 1}: {verdict.reasons[0]}" for spec, verdict, _ in finished if verdict.kind in WITHOUT_JUDGEMENT]
    return [
        "# Gates on real server processes, beside a busy neighbour",
        "",
        f"`python -m benchmarks.live_gates`: `perfkit gate --time {time_limit}` with its standard profile on the bundled server's model `synthetic`",
        f"(`{BASELINE}`), restarted for every run, over HTTP with {IN_FLIGHT} requests in flight at saturation. Server, load generator",
        f"and the neighbour, a process that takes {share:.0%} of a core in bursts of 5 to 50 ms, share two cores.",
        "",
        *(f"- {name}: {', '.join(f'{count} {kind}' for kind, count in counter.items()) or 'none'}." for name, counter in kinds.items()),
        f"- {bound}",
        "  So few gates cannot prove 1 %: that figure rests on exact tests and on [the simulation](gate-simulation.md).",
        "",
        *table_head(
            ">gate", "candidate", "verdict", ">minutes", ">pairs (disturbed / discarded)", ">window", *(f">{name}" for name in METRICS),
            ">minimum detectable effect",
        ),
        *rows,
        "",
        "Changes are the candidate's, with their intervals; errors in percentage points. *Minimum detectable effect*: the slowdown of",
        "any one metric that 9 of 10 gates with the same noise would detect.",
        "",
        "The model's random numbers begin anew with each start: of the few thousand requests of a run 0.10 to 0.14 % fail instead of 0.5 %, in every",
        "pair alike, so that the interval of the errors has no width.",
        *(["", "Not judged:", "", *unjudged] if unjudged else []),
    ]  # fmt: skip


def main() -> int:
    """Runs the missing gates, and writes the report after each."""
    parser = option_parser(__doc__, out=ROOT / "reports" / "live-gates.md")
    for option, default in (("--unchanged", 8), ("--slower", 4), ("--p99", 2), ("--errors", 2)):
        parser.add_argument(option, type=int, default=default, metavar="GATES")
    parser.add_argument("--time", default="6m", help="the time of each gate (default %(default)s)")
    parser.add_argument("--neighbour", type=float, default=30, metavar="PER_CENT", help="of one core (default %(default)s; 0: none)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder, share = options.out.with_suffix(".partial").resolve(), options.neighbour / 100
    folder.mkdir(parents=True, exist_ok=True)
    finished: list[FinishedGate] = []
    specs = plan_gates((options.unchanged, options.slower, options.p99, options.errors))
    with neighbour(share):
        for spec in specs:
            print(f"{spec.name}: {spec.candidate}, {spec.number + 1} of {len(specs)}", flush=True)
            finished.append(run_gate(spec, folder, options.time))
            print(f"{spec.name}: {finished[-1].verdict.kind}", flush=True)
            write_report(folder / options.out.name, report(finished, options.time, share))
    write_report(options.out, report(finished, options.time, share))
    shutil.rmtree(folder)
    print(f"{options.out} written")
    failed = {"unchanged": WITHOUT_JUDGEMENT | {"regressed"}}
    return 1 if any(gate.verdict.kind in failed.get(gate.spec.candidate, WITHOUT_JUDGEMENT) for gate in finished) else 0


if __name__ == "__main__":
    raise SystemExit(main())

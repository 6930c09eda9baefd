"""Gates on real server processes: unchanged candidates, which must not be called slower, and some with 10 % more service time.

    python -m benchmarks.live_gates [--unchanged 12] [--slower 4] [--window 800ms] [--out reports/live-gates.md]

Each gate is a `perfkit gate` that starts and restarts the bundled server with its model `synthetic`, in short runs; all together
take some 25 minutes. What is finished is kept beside the report until all is: interrupted, the same command goes on where it was.
The exit code is 1 where an unchanged candidate was called slower, or a slower one was not found.
"""

import argparse
import collections
import json
import math
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from perfkit.gate.folder import VERDICT_FILE, read_verdict
from perfkit.gate.verdict import Verdict, format_change

ROOT = pathlib.Path(__file__).parents[1]
SERVICE_US, SLOWER, SERVERS, IN_FLIGHT = 40_000, 1.1, 12, 24
METRICS = ("throughput", "p50", "p95", "p99")


class Planned(NamedTuple):
    """One gate, whose candidate takes that many times as long."""

    number: int
    slower: float

    @property
    def name(self) -> str:
        """Its folder's."""
        return f"gate-{self.number:02}-{'unchanged' if self.slower == 1 else 'slower'}"


class Finished(NamedTuple):
    """What became of it."""

    planned: Planned
    verdict: Verdict
    minutes: float | None


def plan(unchanged: int, slower: int) -> list[Planned]:
    """All gates; the slower ones stand between the others, so that a bad quarter of an hour falls on both kinds."""
    total = unchanged + slower
    places = {round((number + 0.5) * total / slower) for number in range(slower)} if slower else set()
    return [Planned(number, SLOWER if number in places else 1.0) for number in range(total)]


def upper_bound(alarms: int, gates: int, confidence: float = 0.95) -> float:
    """The largest rate that so many alarms in so many gates do not rule out (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934)."""
    if alarms >= gates:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        few = sum(math.comb(gates, k) * middle**k * (1 - middle) ** (gates - k) for k in range(alarms + 1))
        low, high = (middle, high) if few > 1 - confidence else (low, middle)
    return high


def run_gate(planned: Planned, folder: pathlib.Path, window: str) -> Finished:
    """One gate in a process of its own, or what an earlier call finished."""
    place, start_s = folder / planned.name, time.monotonic()
    if (place / VERDICT_FILE).exists():
        return Finished(planned, read_verdict(place), None)
    scenario = folder / "scenario.yaml"
    document = {
        "name": "live-gate",
        "target": {"model": "synthetic"},
        "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
        "load": {"closed": {"concurrency": IN_FLIGHT}},
        "measure": {"warmup": "200ms", "duration": window},
        "gate": {"profile": "standard"},
    }
    scenario.write_text(json.dumps(document), encoding="utf-8")  # which YAML is a superset of
    targets = [_command(SERVICE_US), _command(round(SERVICE_US * planned.slower))]
    command = [sys.executable, "-m", "perfkit", "gate", scenario, "--baseline", targets[0], "--candidate", targets[1], "--out", place]
    with subprocess.Popen([*map(str, command), "--format", "json"], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)  # it keeps its pairs, and stops its servers
            process.wait()
            raise
    if not (place / VERDICT_FILE).exists():
        raise RuntimeError(f"{planned.name} ended with exit code {process.returncode} and no verdict")
    return Finished(planned, read_verdict(place), (time.monotonic() - start_s) / 60)


def _command(service_us: int) -> str:
    law = f"service=constant:{service_us}us,servers={SERVERS}"
    words = [sys.executable, "-m", "server_stub", "--model", "synthetic", "--synthetic", law, "--grpc-port", "0", "--exit-with-stdin"]
    return f"cmd:{shlex.join(words)} --http-port {{port}}"


def report(finished: Sequence[Finished], window: str) -> str:
    """The table, and what so few gates can say."""
    rows = [
        "| gate | candidate | verdict | pairs | not used | throughput | p50 | p95 | p99 | finds |",
        "|--:|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for planned, verdict, _ in finished:
        gated = {one.metric: format_change(one) for one in verdict.gated}
        effect = verdict.minimum_detectable_effect
        cells = [str(planned.number + 1), "unchanged" if planned.slower == 1 else f"+{planned.slower - 1:.0%} service time", verdict.kind]
        cells += [str(verdict.pairs), str(verdict.discarded_pairs), *(gated.get(name, "–") for name in METRICS)]
        rows.append(f"| {' | '.join([*cells, '–' if effect is None else f'{effect:.1%}'])} |")
    kinds = {slower: collections.Counter(one.verdict.kind for one in finished if one.planned.slower == slower) for slower in (1.0, SLOWER)}
    told = [kind for kind in ("invalid", "incomparable") for _ in range(kinds[1.0][kind])]
    gates = kinds[1.0].total() - len(told)
    alarms = kinds[1.0]["regressed"]
    counted = {slower: ", ".join(f"{count} {kind}" for kind, count in counter.items()) or "none" for slower, counter in kinds.items()}
    bound = (
        f"{alarms} false alarms in {gates} gates: at 95 % confidence that bounds their rate by **{upper_bound(alarms, gates):.0%}**, and by no less."
        if gates
        else "No unchanged candidate got a verdict, so that nothing can be said of false alarms."
    )
    invalid = [
        f"- gate {one.planned.number + 1}: {one.verdict.reasons[0]}" for one in finished if one.verdict.kind in {"invalid", "incomparable"}
    ]
    return "\n".join(
        [
            "# Gates on real processes",
            "",
            "Made by `python -m benchmarks.live_gates`: `perfkit gate` with its standard profile on the bundled server's model `synthetic`,",
            f"{SERVICE_US / 1000:g} ms of service, {SERVERS} servers, restarted for every run; windows of {window}, far shorter than a gate in earnest takes.",
            "",
            f"- Unchanged candidates: {counted[1.0]}.",
            f"- Candidates with {SLOWER - 1:.0%} more service time: {counted[SLOWER]}.",
            f"- {bound}",
            "  So few gates cannot show 1 %: that figure rests on the tests' exactness and on [the simulation](gate-simulation.md).",
            "",
            *rows,
            "",
            "Changes are those of the candidate, with 96.7 % intervals; *finds*: a slowdown that 9 of 10 gates as noisy as this one would",
            "find in whichever metric it is.",
            *(["", "Without a verdict on the candidate:", "", *invalid] if invalid else []),
            "",
        ]
    )


def main() -> int:
    """Runs what is not there yet, and writes the report after every gate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--unchanged", type=int, default=12, metavar="GATES")
    parser.add_argument("--slower", type=int, default=4, metavar="GATES")
    parser.add_argument("--window", default="800ms", help="the length of every measured window (default %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("reports/live-gates.md"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = options.out.with_suffix(".partial").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    finished: list[Finished] = []
    planned = plan(options.unchanged, options.slower)
    for one in planned:
        minutes = [each.minutes for each in finished if each.minutes is not None]
        left = f", about {sum(minutes) / len(minutes) * (len(planned) - one.number):.0f} min left" if minutes else ""
        print(f"{one.name} of {len(planned)}{left}", flush=True)
        finished.append(run_gate(one, folder, options.window))
        print(f"{one.name}: {finished[-1].verdict.kind}", flush=True)
        (folder / options.out.name).write_text(report(finished, options.window), encoding="utf-8")
    options.out.write_text(report(finished, options.window), encoding="utf-8")
    shutil.rmtree(folder)
    print(f"{options.out} written")
    wrong = [one for one in finished if (one.verdict.kind == "regressed") is (one.planned.slower == 1)]
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

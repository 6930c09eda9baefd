"""How often `perfkit bisect` finds a planted regression among 32 revisions, and with how many gates and pairs.

Its search and its tests decide on simulated pairs, with the noise of `benchmarks/gate_simulation.py`.

    python -m benchmarks.bisect_simulation [--bisections 100] [--seed 8] [--out reports/bisect-simulation.md]

The exit code is 1 if more answers are wrong than the stated bound allows, or +10 % everywhere is found in fewer than 95 of 100.
"""

import collections
import pathlib
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.gate_simulation import METRICS, Noise
from benchmarks.report import Report, program_options
from tests.simulated_revisions import SimulatedRevisions, bisect, slower_from

REVISIONS, LEAST_FOUND, MOST_WRONG = 32, 0.95, 0.06


class Case(NamedTuple):
    """A planted slowdown by metric, the noise, and the share of revisions that cannot be built."""

    name: str
    slower: Mapping[str, float]
    noise: Noise = Noise()
    broken: float = 0.0


CASES = (
    Case("+20 % everywhere", dict.fromkeys(METRICS, 1.2)),
    Case("+10 % everywhere", dict.fromkeys(METRICS, 1.1)),
    Case("+10 % everywhere, 15 % of runs contaminated, drift doubled", dict.fromkeys(METRICS, 1.1), Noise(contaminated=0.15, drift=0.06)),
    Case("+10 % everywhere, one of ten revisions cannot be built", dict.fromkeys(METRICS, 1.1), broken=0.1),
    Case("+5 % everywhere", dict.fromkeys(METRICS, 1.05)),
    Case("+10 % in p99 alone", {"p99": 1.1}),
    Case("no change", {}),
)


def bisect_once(case: Case, rng: random.Random) -> tuple[str, list[int]]:
    """The kind of answer with the regression at a random position, and the pairs of each gate if there was a regression to search for."""
    first = rng.randint(1, REVISIONS)
    broken = {position: "broken" for position in range(1, REVISIONS) if rng.random() < case.broken}
    source = SimulatedRevisions(slower_from(first, REVISIONS, **case.slower), seed=rng.randrange(2**31), noise=case.noise, faults=broken)
    with tempfile.TemporaryDirectory() as folder:
        outcome = bisect(source, pathlib.Path(folder, "out"))
    right = f"Change {first}"
    if outcome.first_slower is not None:
        kind = "right" if outcome.first_slower.subject == right and case.slower else "wrong"
    elif outcome.regression is None:
        kind = "no regression"
    else:
        kind = "range" if right in [one.subject for one in outcome.suspects] or not case.slower else "wrong range"
    pairs = [] if outcome.regression is None else [outcome.regression.pairs, *(gate.pairs for gate in outcome.gates if gate.pairs)]
    return kind, pairs


def main() -> int:
    """Simulates, and writes the report."""
    options = program_options(__doc__, out="bisect-simulation", bisections=(100, "per case"), seed=8)
    page = Report(options.out, "Bisections in a simulation")
    page.add(
        f"`python -m benchmarks.bisect_simulation --bisections {options.bisections} --seed {options.seed}`: {options.bisections} bisections a case of {REVISIONS} "
        "revisions, decided by the",
        "code of `perfkit bisect`, with the regression at a random position. No server was measured: the noise is that of",
        "[the gate's simulation](gate-simulation.md).",
        "",
    )
    page.table(
        "planted", ">found", ">range that holds it", ">no regression shown", ">wrong", ">gates, mean", ">gates, most", ">pairs of a gate"
    )
    for case in CASES:
        counts, gates = collections.Counter[str](), list[list[int]]()
        for number in range(options.bisections):
            kind, pairs = bisect_once(case, random.Random(f"{options.seed} {number}"))
            counts[kind] += 1
            gates += [pairs] if pairs else []
        wrong = (counts["wrong"] + counts["wrong range"]) / options.bisections
        shares = [counts[kind] / options.bisections for kind in ("right", "range", "no regression")]
        numbers = [len(one) for one in gates]
        length = (
            (f"{statistics.mean(numbers):.1f}", max(numbers), f"{statistics.mean(map(statistics.mean, gates)):.0f}")
            if gates
            else ("–",) * 3
        )
        page.row(case.name, *(f"{share:.0%}" for share in (*shares, wrong)), *length)
        page.is_met &= wrong <= MOST_WRONG and (case is not CASES[1] or shares[0] >= LEAST_FOUND)
    page.add(
        "",
        "At most 6 % may be wrong: 1 % for each of six gates. *Range*: revisions that could not be measured or decided are left beside the change.",
        "*Gates* are those with pairs; a revision that cannot be built takes none.",
        "",
        "**All targets are met.**" if page.is_met else "**Some targets are missed.**",
    )
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

"""How often `perfkit bisect` finds a planted regression among 32 revisions, and with how many gates and pairs.

Its search and its tests decide on simulated pairs, with the noise of `benchmarks/gate_simulation.py`.

    python -m benchmarks.bisect_simulation [--bisections 100] [--seed 8] [--out reports/bisect-simulation.md]

The exit code is 1 if more answers are wrong than the stated bound allows, or +10 % everywhere is found in fewer than 95 of 100.
"""

import collections
import pathlib
import random
import statistics
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.gate_simulation import METRICS, Noise
from benchmarks.processes import ROOT
from benchmarks.report import option_parser, table_head, table_row, write_report
from tests.simulated_revisions import SimulatedRevisions, bisect, slower_from

REVISIONS, LEAST_FOUND = 32, 0.95


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


class Outcomes(NamedTuple):
    """The number of bisections by outcome, and of those that had a regression to search for the gates, and the pairs of a gate."""

    counts: collections.Counter[str]
    gates: list[int]
    pairs: list[float]


def run(case: Case, bisections: int, seed: int) -> Outcomes:
    """Bisections with the regression at random positions."""
    outcomes = Outcomes(collections.Counter(), [], [])
    for number in range(bisections):
        rng = random.Random(f"{seed} {number}")
        first = rng.randint(1, REVISIONS)
        broken = {position: "broken" for position in range(1, REVISIONS) if rng.random() < case.broken}
        source = SimulatedRevisions(
            slower_from(first, REVISIONS, **case.slower), seed=rng.randrange(2**31), noise=case.noise, faults=broken
        )
        with tempfile.TemporaryDirectory() as folder:
            outcome = bisect(source, pathlib.Path(folder, "out"))
        names = [one.subject for one in outcome.suspects]
        right = f"Change {first}"
        if outcome.first_slower is not None:
            kind = "right" if outcome.first_slower.subject == right and case.slower else "wrong"
        else:
            kind = "no regression" if outcome.regression is None else "range" if right in names or not case.slower else "wrong range"
        outcomes.counts[kind] += 1
        if outcome.regression is not None:
            measured = [gate.pairs for gate in outcome.gates if gate.pairs]
            outcomes.gates.append(1 + len(measured))
            outcomes.pairs.append(statistics.mean([outcome.regression.pairs, *measured]))
    return outcomes


def main() -> int:
    """Simulates, and writes the report."""
    parser = option_parser(__doc__, out=ROOT / "reports" / "bisect-simulation.md")
    parser.add_argument("--bisections", type=int, default=100, help="per case (default %(default)s)")
    parser.add_argument("--seed", type=int, default=8)
    options = parser.parse_args()
    rows, is_met = list[str](), True
    for case in CASES:
        counts, gates, pairs = run(case, options.bisections, options.seed)
        wrong = counts["wrong"] + counts["wrong range"]
        shares = [f"{counts[kind] / options.bisections:.0%}" for kind in ("right", "range", "no regression")]
        length = ("–", "–", "–") if not gates else (f"{statistics.mean(gates):.1f}", max(gates), f"{statistics.mean(pairs):.0f}")
        rows.append(table_row(case.name, *shares, f"{wrong / options.bisections:.0%}", *length))
        print(rows[-1], flush=True)
        is_met &= wrong <= 0.06 * options.bisections and (case.name != CASES[1].name or counts["right"] >= LEAST_FOUND * options.bisections)
    write_report(
        options.out,
        [
            "# Bisections in a simulation",
            "",
            f"`python -m benchmarks.bisect_simulation --bisections {options.bisections} --seed {options.seed}`: {options.bisections} bisections a case of {REVISIONS} revisions, decided by the",
            "code of `perfkit bisect`, with the regression at a random position. No server was measured: the noise is that of",
            "[the gate's simulation](gate-simulation.md).",
            "",
            *table_head(
                "planted",
                ">found",
                ">range that holds it",
                ">no regression shown",
                ">wrong",
                ">gates, mean",
                ">gates, most",
                ">pairs of a gate",
            ),
            *rows,
            "",
            "At most 6 % may be wrong: 1 % for each of six gates. *Range*: revisions that could not be measured or decided are left beside the change.",
            "*Gates* are those with pairs; a revision that cannot be built takes none.",
            "",
            "**All targets are met.**" if is_met else "**Some targets are missed.**",
        ],
    )
    print(f"{options.out} written")
    return 0 if is_met else 1


if __name__ == "__main__":
    raise SystemExit(main())

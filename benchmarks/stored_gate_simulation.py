"""The stored gate's rates of alarms, detections and passes: its decision rule on simulated runs.

    python -m benchmarks.stored_gate_simulation [--gates 10000] [--seed 23] [--out reports/stored-gate-simulation.md]

The runs have the noise of `benchmarks.gate_simulation`. The baseline is measured in one or several sittings, and the candidate in one of its
own; between two sittings the drift of the host loses its memory. The exit code is 1 if a target is missed.
"""

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.gate_simulation import METRICS, Noise, Outcome, few_alarms, max_alarms, pool, simulate_runs
from benchmarks.report import Report, program_options
from perfkit.gate.metrics import ERROR_RATE, ERROR_RATE_BAND, Metric
from perfkit.gate.paired import NOISE_BAND
from perfkit.gate.stored_runs import MACHINE_ALLOWANCE, RECOMMENDED_RUNS, STORED_MARGINS, detectable_shift, judge_runs, pooled_errors
from perfkit.stats.signed_rank import Array
from perfkit.stats.slo import FailedShare

REQUESTS = 10_000
"""Of each run."""
_BOUNDS = [
    *(Metric(name, "", "ns", margin).bounds for name, margin in STORED_MARGINS.items()),
    Metric(ERROR_RATE, "", "share", ERROR_RATE_BAND).bounds,
]
_GATES_AT_ONCE = 2000  # which fit into memory
_EFFECT_GATES = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Design:
    """The runs of a gate."""

    name: str
    sittings: tuple[int, ...]
    """The numbers of the baseline's runs that follow each other."""
    candidate: int
    has_own_hosts: bool = False
    """Whether every run is measured on a host of its own."""

    @property
    def baseline(self) -> int:
        """The number of the baseline's runs."""
        return sum(self.sittings)


DESIGNS = (
    Design("10 in one sitting, 5", (10,), 5),
    Design("10 in ten sittings, 5", (1,) * 10, 5),
    Design("5 in one sitting, 5", (5,), 5),
    Design("10 in one sitting, 3", (10,), 3),
    Design("10 hosts, 5 hosts", (1,) * 10, 5, has_own_hosts=True),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What must hold for every design."""

    text: str
    is_met: Callable[[Outcome], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A candidate that is slower by a factor per metric, the noise, and the target of its gates."""

    name: str
    slower: tuple[float, ...] = (1.0,) * 4
    noise: Noise = dataclasses.field(default_factory=Noise)
    failing: tuple[float, float] = (0.0, 0.0)
    """The probability that a request of the baseline and of the candidate fails."""
    failing_run: float = 0.0
    """The same in one run of twenty, of either side, besides."""
    target: Target | None = None


_PROVEN = Target("regressed: proven below 1 %", few_alarms)
_PASSES = Target("regressed: proven below 1 %; pass ≥ 50 % on one host", lambda outcome: few_alarms(outcome) and outcome.passed >= 0.5)
_RARELY_PASSES = Target("pass ≤ 5 %", lambda outcome: outcome.passed <= 0.05)
_AT_BAND = (1 + NOISE_BAND,) * 4
_CALM = Noise(drift=0.0, contaminated=0.0)
_ORDER = math.log(1.03)
_EVERYTHING = Noise(contaminated=0.15, position=_ORDER, mode=0.05)
NULLS: tuple[Case, ...] = (
    Case("unchanged", target=_PASSES),
    Case("unchanged, restarts only", noise=_CALM, target=_PROVEN),
    Case("unchanged, no contamination", noise=Noise(contaminated=0.0), target=_PROVEN),
    Case("unchanged, 15 % of runs contaminated", noise=Noise(contaminated=0.15), target=_PROVEN),
    Case("unchanged, each sitting's runs 3 % slower after its first", noise=Noise(position=_ORDER), target=_PROVEN),
    Case("unchanged, half of the restarts 10 % slower", noise=Noise(mode=0.1), target=_PROVEN),
    Case("unchanged, a fifth of the restarts 10 % slower", noise=Noise(mode=0.1, mode_share=0.2), target=_PROVEN),
    Case("unchanged, 0.05 % of requests fail, and 1 % in one run of twenty", failing=(5e-4, 5e-4), failing_run=0.01, target=_PROVEN),
    Case("all slower by the noise band of 1 %", _AT_BAND, target=_PROVEN),
    Case("the same, 15 % contaminated, 3 % slower after the first, two modes 5 % apart", _AT_BAND, _EVERYTHING, target=_PROVEN),
)
POWER: tuple[Case, ...] = (
    *(Case(f"+{percent} % everywhere", (1 + percent / 100,) * 4) for percent in (5, 10, 15, 20)),
    *(Case(f"+{percent} % in p99 alone", (1.0, 1.0, 1.0, 1 + percent / 100)) for percent in (10, 20, 30)),
    Case("0.5 % of requests fail", failing=(0.0, 0.005), target=Target("pass: none", lambda outcome: outcome.passed == 0)),
    *(
        Case(f"{name} alone at its margin (+{margin:.0%})", tuple(1 + margin if one == name else 1.0 for one in METRICS), target=_RARELY_PASSES)
        for name, margin in STORED_MARGINS.items()
    ),
)  # fmt: skip
BEYOND: tuple[Case, ...] = (Case("unchanged, drift doubled", noise=Noise(drift=0.06)),)
"""Nulls that no allowance of this size covers."""


def simulate_gates(rng: np.random.Generator, gates: int, design: Design, case: Case) -> Array:
    """Slownesses of shape [gates, metrics, runs], the baseline's runs first; the last metric is the error rate."""
    noise, sittings = case.noise, (*design.sittings, design.candidate)
    if design.has_own_hosts:
        sittings = (1,) * (design.baseline + design.candidate)
    logs = simulate_runs(rng, gates, sittings, noise)
    if design.has_own_hosts:
        logs = logs + noise.host * rng.standard_normal((gates, 1, logs.shape[-1]))
    logs = logs + noise.position * np.concatenate([np.arange(runs) > 0 for runs in sittings])
    logs[..., design.baseline :] += np.log(case.slower)[:, None]
    failing = np.repeat(case.failing, (design.baseline, design.candidate))
    failing = failing + case.failing_run * (rng.random((gates, failing.size)) < 0.05)
    return np.concatenate([logs, rng.binomial(REQUESTS, failing)[:, None] / REQUESTS], axis=1)


def judge(design: Design, values: Array) -> Outcome:
    """The outcome of gates, from their values as `simulate_gates` makes them."""
    tests = judge_runs(_BOUNDS, values[..., : design.baseline], values[..., design.baseline :])
    failed = np.rint(values[:, -1] * REQUESTS).astype(int)
    sums = np.stack([failed[:, : design.baseline].sum(-1), failed[:, design.baseline :].sum(-1)], axis=-1)
    few_errors = np.array([_few_errors(design, *pair) for pair in sums.tolist()], bool)
    regressed = tests.regressed.any(-1)
    passed = tests.passed.all(-1) & few_errors & ~regressed
    return Outcome(len(values), float(regressed.mean()), float(passed.mean()), float(design.candidate))


@functools.cache
def _few_errors(design: Design, baseline: int, candidate: int) -> bool:
    sides = ((baseline, REQUESTS * design.baseline), (candidate, REQUESTS * design.candidate))
    pooled = pooled_errors(*([(scheduled, FailedShare.of_counts(scheduled, failed, 0, 0))] for failed, scheduled in sides))
    return pooled.high is not None and pooled.high < ERROR_RATE_BAND


def run(case: Case, design: Design, gates: int, seed: Sequence[int]) -> Outcome:
    """Simulates a number of gates of a case."""
    rng, parts = np.random.default_rng(seed), []
    for start in range(0, gates, _GATES_AT_ONCE):
        part = min(_GATES_AT_ONCE, gates - start)
        parts.append(judge(design, simulate_gates(rng, part, design, case)))
    return pool(parts)


def is_met(case: Case, design: Design, outcome: Outcome) -> bool:
    """Whether the case's target is met; between hosts an unchanged candidate need not pass."""
    target = _PROVEN if design.has_own_hosts and case.target is _PASSES else case.target
    return target is None or target.is_met(outcome)


def main() -> int:
    """Simulates, and writes the report."""
    options = program_options(__doc__, out="stored-gate-simulation", gates=(10_000, "simulated gates per case"), seed=23)
    noise = Noise()
    restarts = ", ".join(f"{name} {share:.0%}" for name, share in zip(METRICS, noise.restart, strict=True))
    margins = ", ".join(f"{name} {margin:.0%}" for name, margin in STORED_MARGINS.items())
    page = Report(options.out, "The stored gate's error rates in a simulation")
    page.add(f"""\
`python -m benchmarks.stored_gate_simulation --gates {options.gates} --seed {options.seed}`: {options.gates:,} gates per cell, decided by the code of `perfkit gate` for stored
results. No server was measured: the runs are simulated. Each cell has the share of gates that call the candidate regressed, and the share
that pass it; the others are inconclusive. A column is the number of runs of the baseline, in how many sittings, and of the candidate, in
one sitting; {RECOMMENDED_RUNS[0]} and {RECOMMENDED_RUNS[1]} are recommended. In the last column every run has a host of its own.

Noise, as standard deviations on a logarithmic scale: drift {noise.drift:.0%}, AR(1) with coefficient {noise.drift_correlation:g} from run to run, independent between sittings;
restarts ({restarts}), Student's t with 5 degrees of freedom, half of it shared by the metrics; {noise.contaminated:.0%} of the runs slower
by an exponential amount with mean {noise.contamination:.0%}; hosts {noise.host:.0%}, where they differ. A run has {REQUESTS:,} requests; unless a case says so, none fails.

The machine is allowed to change by {MACHINE_ALLOWANCE:.0%} between the sittings, and a pass rules out slowdowns at the margins ({margins}) and
{100 * ERROR_RATE_BAND:g} percentage points of errors. *Proven below 1 %*: at most {max_alarms(options.gates)} alarms in {options.gates:,} gates, which at a rate of 1 % occurs in less than
one simulation of twenty.

The test is exact for exchangeable runs, whatever their distribution. A drift between the sittings makes them differ, and the allowance
covers it up to a standard deviation of about {noise.drift:.0%}: with the drift doubled it does not, and a stored gate calls more than 1 % of unchanged candidates slower.
""")
    page.table("case", *(f">{design.name}" for design in DESIGNS), "target", "")
    for number, case in enumerate((*NULLS, *BEYOND, *POWER)):
        outcomes = [run(case, design, options.gates, (options.seed, number, index)) for index, design in enumerate(DESIGNS)]
        met = all(is_met(case, design, outcome) for design, outcome in zip(DESIGNS, outcomes, strict=True))
        page.is_met &= met
        cells = (f"{outcome.regressed:.2%} · {outcome.passed:.1%}" for outcome in outcomes)
        page.row(case.name, *cells, case.target.text if case.target else "", "" if case.target is None else "met" if met else "**missed**")
    page.section("Minimum detectable effect")
    page.table("runs", "metric", ">minimum detectable effect, median of unchanged gates", ">detected by")
    for number, design in enumerate(DESIGNS[:2]):
        values = simulate_gates(np.random.default_rng((options.seed, number, 99)), _EFFECT_GATES, design, NULLS[0])
        for index, metric in enumerate(METRICS):
            effects = [detectable_shift(_BOUNDS, index, gate[: design.baseline], gate[design.baseline :]) for gate in values[:, index]]
            slower = math.exp(float(np.median([effect for effect in effects if effect is not None])))
            case = Case(metric, tuple(slower if name == metric else 1.0 for name in METRICS))
            detected = run(case, design, options.gates, (options.seed, number, index, 98)).regressed
            page.row(design.name, metric, f"{slower - 1:.1%}", f"{detected:.1%}")
    page.add("", "**All targets are met.**" if page.is_met else "**Some targets are missed.**")
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

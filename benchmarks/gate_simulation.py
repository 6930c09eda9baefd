"""The gate's rates of alarms, detections and passes: the decision rule of `perfkit gate` on simulated pairs.

    python -m benchmarks.gate_simulation [--gates 10000] [--seed 8] [--out reports/gate-simulation.md]

Every run gets, on a logarithmic scale: the host's offset; a drift that is correlated between runs (an AR(1) process); an offset of
its restarted server, half of it shared by all metrics, with the long tails of Student's t with five degrees of freedom, or with two
modes; the noise within the run that the trial's choice of a window leaves, a tenth of the variance of the restarts; and sometimes a
contamination. The order within pairs is random. Another table has unfavourable laws instead: each metric of each run has a value of its own. The exit
code is 1 if a target is missed.
"""

import dataclasses
import itertools
import math
import sys
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from benchmarks.report import Report, program_options
from perfkit.gate.metrics import MARGINS
from perfkit.gate.paired import NOISE_BAND, MetricBounds, Rule, look, minimum_detectable_effect, rule_for
from perfkit.stats.signed_rank import Array

METRICS = tuple(MARGINS)
_BOUNDS = [MetricBounds.of_ratio(NOISE_BAND, margin) for margin in MARGINS.values()]
_GATES_AT_ONCE = 2500  # which fit into memory
_EFFECT_GATES = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Noise:
    """The causes of variation between runs without a change; standard deviations on a logarithmic scale."""

    host: float = 0.08
    drift: float = 0.03
    drift_correlation: float = 0.8
    """The correlation of the drift between consecutive runs."""
    restart: tuple[float, ...] = (0.02, 0.03, 0.03, 0.06)
    within: float = 0.32
    """In pairs, the noise within a run, as a share of that of the restarts: what the trial allows where it chooses the window."""
    contaminated: float = 0.05
    """The share of runs that are slower by an exponential amount."""
    contamination: float = 0.1
    position: float = 0.0
    """How much slower the second run of every pair is."""
    mode: float = 0.0
    """How much slower a server is that restarts into the slower one of two modes."""
    mode_share: float = 0.5
    """The share of restarts into the slower mode."""


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A candidate that is slower by a factor per metric, the noise, and the target for the gates."""

    name: str
    slower: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    noise: Noise = Noise()
    target: str = ""
    is_met: Callable[["Outcome"], bool] = lambda _: True


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The shares of gates with each verdict, and the mean number of pairs."""

    gates: int
    regressed: float
    passed: float
    pairs: float
    early: float = 0.0
    """The share of gates that regressed at an early look."""

    @property
    def inconclusive(self) -> float:
        """The share with neither verdict."""
        return 1 - self.regressed - self.passed


def few_alarms(outcome: Outcome) -> bool:
    """Whether the alarms prove a rate below 1 % at 95 % confidence: at most 83 of 10,000 gates."""
    return outcome.regressed * outcome.gates <= max_alarms(outcome.gates)


def max_alarms(gates: int, rate: float = 0.01) -> int:
    """The largest number of alarms that proves a lower rate at 95 % confidence: P[Bin(gates, rate) <= k] <= 5 %; -1 if none does."""
    return int(binom.ppf(0.05, gates, rate)) - 1


_PROVEN = "regressed: at most 1 %"
_AT_BAND = (1 + NOISE_BAND,) * 4
_NO_CHANGE: tuple[Case, ...] = (
    Case("worst null: all slower by the noise band", _AT_BAND, target=_PROVEN, is_met=few_alarms),
    Case("A/A, drift doubled", noise=Noise(drift=0.06), target=_PROVEN, is_met=few_alarms),
    Case("A/A, 15 % of runs contaminated", noise=Noise(contaminated=0.15), target=_PROVEN, is_met=few_alarms),
    Case("A/A, second runs 3 % slower", noise=Noise(position=math.log(1.03)), target=_PROVEN, is_met=few_alarms),
    Case("A/A, three of ten restarts 6 % slower", noise=Noise(mode=math.log(1.06), mode_share=0.3), target=_PROVEN, is_met=few_alarms),
    Case(
        "worst null, all of these at once",
        _AT_BAND,
        Noise(drift=0.06, contaminated=0.15, position=math.log(1.03), mode=math.log(1.06), mode_share=0.3),
        _PROVEN,
        few_alarms,
    ),
)


def _few_passes(outcome: Outcome) -> bool:
    return outcome.passed <= 0.05


_AT_MARGIN = tuple(
    Case(
        f"{metric} alone at its margin (+{margin:.0%})",
        tuple(1 + margin if name == metric else 1.0 for name in METRICS),
        target="pass ≤ 5 %",
        is_met=_few_passes,
    )
    for metric, margin in MARGINS.items()
)
_QUIET = Noise(drift=0.005, restart=(0.01, 0.01, 0.01, 0.02), contaminated=0.0)
_TEN, _FIVE, _P99 = ("+10 % everywhere", (1.1,) * 4), ("+5 % everywhere", (1.05,) * 4), ("+10 % in p99 alone", (1.0, 1.0, 1.0, 1.1))
FULL: tuple[Case, ...] = (
    Case("A/A", target=f"{_PROVEN}; pass ≥ 88 %", is_met=lambda outcome: few_alarms(outcome) and outcome.passed >= 0.88),
    *_NO_CHANGE,
    Case(*_TEN, target="regressed ≥ 95 %", is_met=lambda outcome: outcome.regressed >= 0.95),
    Case(*_FIVE, target="regressed ≥ 70 %", is_met=lambda outcome: outcome.regressed >= 0.7),
    Case(*_P99, target="regressed ≥ 60 %", is_met=lambda outcome: outcome.regressed >= 0.6),
    *_AT_MARGIN,
    Case("+20 % everywhere", (1.2,) * 4),
    Case("quiet machine, A/A", noise=_QUIET, target="pass ≥ 95 %, after 9 pairs", is_met=lambda one: one.passed >= 0.95 and one.pairs <= 9),
    Case(
        "quiet machine, +20 % everywhere",
        (1.2,) * 4,
        _QUIET,
        "regressed ≥ 95 %, after 6 pairs",
        lambda outcome: outcome.regressed >= 0.95 and outcome.pairs <= 6,
    ),
)
# the same bound on false alarms; there is no target for what such a gate detects
FEW: tuple[Case, ...] = (
    Case("A/A", target=_PROVEN, is_met=few_alarms),
    *_NO_CHANGE,
    *(Case(name, slower) for name, slower in (_TEN, _FIVE, _P99)),
    *_AT_MARGIN,
)


def simulate_pairs(rng: np.random.Generator, gates: int, pairs: int, case: Case) -> Array:
    """Logarithmic differences, candidate − baseline, of shape [gates, metrics, pairs]."""
    noise = case.noise
    logs = simulate_runs(rng, gates, (2 * pairs,), noise)
    logs = logs + noise.within * np.array(noise.restart)[:, None] * rng.standard_normal(logs.shape)
    logs = logs.reshape(gates, len(METRICS), pairs, 2)
    logs[..., 1] += noise.position
    baseline_is_first = rng.random((gates, 1, pairs)) < 0.5
    candidate = np.where(baseline_is_first, logs[..., 1], logs[..., 0])
    baseline = np.where(baseline_is_first, logs[..., 0], logs[..., 1])
    return np.asarray(candidate + np.log(case.slower)[:, None] - baseline)


def simulate_runs(rng: np.random.Generator, gates: int, sittings: Sequence[int], noise: Noise) -> Array:
    """Logarithmic times of unchanged servers on one host, of shape [gates, metrics, runs], without the effect of their order.

    `sittings` are numbers of runs that follow each other; between two sittings the drift loses its memory.
    """
    runs, starts = sum(sittings), set(itertools.accumulate(sittings, initial=0))
    steps = rng.standard_normal((gates, runs))
    drift = np.zeros_like(steps)
    for run in range(runs):
        kept = 0.0 if run in starts else noise.drift_correlation
        drift[:, run] = kept * drift[:, run - 1] + math.sqrt(1 - kept**2) * steps[:, run]
    own, shared = (_long_tailed(rng, (gates, parts, runs)) for parts in (len(METRICS), 1))
    restarts = math.sqrt(0.5) * (own + shared) * np.array(noise.restart)[:, None]
    hit = rng.random((gates, 1, runs)) < noise.contaminated
    logs = noise.host * rng.standard_normal((gates, 1, 1)) + noise.drift * drift[:, None] + restarts
    logs = logs + hit * rng.exponential(noise.contamination, hit.shape)
    if noise.mode:
        logs = logs + noise.mode * (rng.random(hit.shape) < noise.mode_share)
    return np.asarray(logs)


def _long_tailed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Student's t with five degrees of freedom, scaled to unit variance."""
    return np.asarray(rng.standard_t(5, shape) / math.sqrt(5 / 3))


def judge(
    rule: Rule, differences: Array, ends: npt.NDArray[np.int64] | None = None, looks_early: npt.NDArray[np.bool_] | None = None
) -> Outcome:
    """The outcome of gates that look at the rule's numbers of pairs until they are decided; `ends` are the pairs that time allows each.

    `looks_early`, of shape [gates, pairs], says whether an early look after each pair counts.
    """
    if ends is not None:
        counts = np.unique(ends).tolist()
        parts = [judge(rule.ending_at(count), differences[ends == count]) for count in counts]
        return pool(parts)
    gates = len(differences)
    looks_early = np.ones((gates, rule.looks[-1]), bool) if looks_early is None else looks_early
    state, pairs = np.zeros(gates, int), np.full(gates, rule.looks[-1])
    for count in rule.all_looks:
        undecided = np.flatnonzero((state == 0) & (looks_early[:, count - 1] | (count not in rule.early)))
        looked = look(rule, _BOUNDS, differences[undecided, :, :count])
        state[undecided] = np.where(looked.regressed.any(-1), 1, np.where(looked.passed.all(-1), 2, 0))
        pairs[undecided[state[undecided] > 0]] = count
    early = (state == 1) & (pairs < rule.looks[0])
    return Outcome(gates, float((state == 1).mean()), float((state == 2).mean()), float(pairs.mean()), float(early.mean()))


def run(case: Case, rule: Rule, gates: int, seed: Sequence[int], *, is_timed: bool = False) -> Outcome:
    """Simulates a number of gates of a case; the time of `is_timed` ones is over after a random number of pairs."""
    rng, parts = np.random.default_rng(seed), []
    for start in range(0, gates, _GATES_AT_ONCE):
        part = min(_GATES_AT_ONCE, gates - start)
        differences = simulate_pairs(rng, part, rule.looks[-1], case)
        ends = rng.integers(rule.fewest_pairs(len(METRICS)), rule.looks[-1], part, endpoint=True) if is_timed else None
        parts.append(judge(rule, differences, ends))
    return pool(parts)


def pool(parts: Sequence[Outcome]) -> Outcome:
    """The outcome of all parts' gates."""
    gates = sum(part.gates for part in parts)

    def mean(name: str) -> float:
        return sum(float(getattr(part, name)) * part.gates for part in parts) / gates

    return Outcome(gates, mean("regressed"), mean("passed"), mean("pairs"), mean("early"))


@dataclasses.dataclass(frozen=True, slots=True)
class Law:
    """How the logarithms of a run's metrics vary, each by itself, about the noise band: values of `draw`, times `scale`."""

    name: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array]
    scale: float = 0.15
    """Larger than each margin, since only differences beyond the margins count at early looks."""
    correlation: float = 0.0
    """Between consecutive runs, of a normal law: an AR(1) process."""
    drift: float = 0.0
    """How much slower each run is than the one before."""
    position: float = 0.0
    """How much slower the second run of every pair is."""
    neighbour: float = 0.0
    """How much slower one run of each pair is, the first or the second by chance, beside a process that perfkit sees."""
    is_covered: bool = True
    """Whether early looks promise anything: not for an effect of the order beyond the margins together with modes at twice its size."""


def _modes(*shares: float, at: Sequence[float] = ()) -> Callable[[np.random.Generator, tuple[int, ...]], Array]:
    places = np.array(at or range(len(shares)), np.float64)
    return lambda rng, shape: places[rng.choice(len(shares), shape, p=np.array(shares) / sum(shares))]


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


LAWS = (
    Law("normal", _normal),
    Law("Student's t, 2 degrees of freedom", lambda rng, shape: rng.standard_t(2, shape)),
    Law("Student's t, 3 degrees of freedom", lambda rng, shape: rng.standard_t(3, shape)),
    Law("uniform", lambda rng, shape: rng.random(shape)),
    Law("log-normal, σ 1", lambda rng, shape: rng.lognormal(0, 1, shape)),
    Law("one of ten runs ten times as noisy", lambda rng, shape: rng.standard_normal(shape) * np.where(rng.random(shape) < 0.1, 10, 1)),
    *(Law(f"two modes, {share:.0%} in the slower", _modes(1 - share, share)) for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.7)),
    Law("three equal modes", _modes(1, 1, 1)),
    Law("the worst law found for [d, 2d)", _modes(0.07, 0.39, 0.44, 0.09, at=(0.573, 5.212, 13.141, 20.933)), 0.02),
    Law("normal, drift of 1 % a run", _normal, drift=0.01),
    Law("normal, drift of 10 % a run", _normal, 0.02, drift=0.1),
    Law("normal, second runs 15 % slower", _normal, 0.02, position=0.15),
    Law("two equal modes, second runs 7.5 % slower", _modes(1, 1), position=0.075, is_covered=False),
    Law("AR(1) over the runs, coefficient 0.8", _normal, correlation=0.8),
    Law("AR(1) over the runs, coefficient -0.5", _normal, correlation=-0.5),
    Law("normal, one run of each pair 15 % slower beside another process", _normal, 0.02, neighbour=0.15),
)


def simulate_law(rng: np.random.Generator, gates: int, pairs: int, law: Law) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Logarithmic differences, candidate − baseline, of shape [gates, metrics, pairs], and whether early looks count after each pair.

    They do once both orders have occurred, and unless another process was beside the candidate alone in most pairs. Every metric is slower by the noise band.
    """
    logs = law.draw(rng, (gates, len(METRICS), 2 * pairs))
    logs = logs + 1e-6 * rng.standard_normal(logs.shape)  # no ties, whose exact tests take long
    for run in range(1, 2 * pairs if law.correlation else 0):
        logs[..., run] = law.correlation * logs[..., run - 1] + math.sqrt(1 - law.correlation**2) * logs[..., run]
    logs = (law.scale * logs + law.drift * np.arange(2 * pairs)).reshape(gates, len(METRICS), pairs, 2)
    logs[..., 1] += law.position
    is_first = rng.random((gates, pairs)) < 0.5
    looks_early = ~np.logical_and.accumulate(is_first == is_first[:, :1], axis=1)
    if law.neighbour:
        is_in_second = rng.random((gates, pairs)) < 0.5
        logs[..., 0] += law.neighbour * ~is_in_second[:, None]
        logs[..., 1] += law.neighbour * is_in_second[:, None]
        looks_early &= 2 * np.cumsum(is_in_second == is_first, axis=1) <= np.arange(1, pairs + 1)
    sign = np.where(is_first, 1.0, -1.0)[:, None]
    return sign * (logs[..., 1] - logs[..., 0]) + math.log1p(NOISE_BAND), looks_early


def run_law(law: Law, rule: Rule, gates: int, seed: Sequence[int]) -> Outcome:
    """Simulates a number of gates of a law."""
    rng = np.random.default_rng(seed)
    sizes = [min(_GATES_AT_ONCE, gates - start) for start in range(0, gates, _GATES_AT_ONCE)]
    parts = []
    for size in sizes:
        differences, looks_early = simulate_law(rng, size, rule.looks[-1], law)
        parts.append(judge(rule, differences, looks_early=looks_early))
    return pool(parts)


def _add_laws(page: Report, rule: Rule, gates: int, seed: int) -> None:
    page.section("Unfavourable laws, all metrics slower by the noise band")
    page.add("Each metric varies by itself, which is the worst case for several metrics.", "")
    page.table("law of a run", ">regressed", ">at an early look", ">pass", "target", "")
    for number, law in enumerate(LAWS):
        outcome = run_law(law, rule, gates, (seed, 1, number))
        is_met = few_alarms(outcome) or not law.is_covered
        page.is_met &= is_met
        shares = (f"{share:.2%}" for share in (outcome.regressed, outcome.early, outcome.passed))
        page.row(
            law.name,
            *shares,
            _PROVEN if law.is_covered else "beyond the premise",
            ("met" if is_met else "**missed**") if law.is_covered else "",
        )


def _add_table(page: Report, title: str, cases: Sequence[Case], rule: Rule, gates: int, seed: int, *, is_timed: bool = False) -> None:
    page.section(title)
    page.table("case", ">regressed", ">at an early look", ">inconclusive", ">pass", ">mean pairs", "target", "")
    for number, case in enumerate(cases):
        outcome = run(case, rule, gates, (seed, len(rule.looks), number, is_timed), is_timed=is_timed)
        is_met = case.is_met(outcome)
        page.is_met &= is_met
        shares = (f"{share:.2%}" for share in (outcome.regressed, outcome.early, outcome.inconclusive, outcome.passed))
        page.row(case.name, *shares, f"{outcome.pairs:.1f}", case.target, "" if not case.target else "met" if is_met else "**missed**")


def _add_effects(page: Report, rules: Sequence[Rule], gates: int, seed: int) -> None:
    """How often gates detect the effect that gates report as their minimum detectable one: the median of unchanged gates."""
    page.section("Minimum detectable effect")
    page.table("decided at", "metric", ">minimum detectable effect, median of unchanged gates", ">detected by")
    for rule in rules:
        unchanged = simulate_pairs(np.random.default_rng((seed, len(rule.looks), 99)), _EFFECT_GATES, rule.looks[-1], FULL[0])
        for count, (index, metric) in itertools.product(rule.looks, enumerate(METRICS)):
            effects = [minimum_detectable_effect(rule, _BOUNDS, index, gate[index, :count].tolist()) for gate in unchanged]
            slower = math.exp(float(np.median([effect for effect in effects if effect is not None])))
            case = Case(metric, tuple(slower if name == metric else 1.0 for name in METRICS))
            detected = run(case, rule, gates, (seed, len(rule.looks), count, index)).regressed
            decided_at = f"{count} pairs{'' if len(rule.looks) > 1 else ', `--pairs 10`'}"
            page.row(decided_at, metric, f"{slower - 1:.1%}", f"{detected:.1%}")


def main() -> int:
    """Simulates, and writes the report."""
    options = program_options(__doc__, out="gate-simulation", gates=(10_000, "simulated gates per case"), seed=8)
    rule, few, noise = rule_for(len(METRICS)), rule_for(len(METRICS), 10), Noise()
    restarts = ", ".join(f"{name} {share:.0%}" for name, share in zip(METRICS, noise.restart, strict=True))
    page = Report(options.out, "The gate's error rates in a simulation")
    page.add(f"""\
`python -m benchmarks.gate_simulation --gates {options.gates} --seed {options.seed}`: {options.gates:,} gates per case, decided by the code of `perfkit gate`. No server
was measured: the runs are simulated from the noise below.

Noise, as standard deviations on a logarithmic scale: host {noise.host:.0%}; drift {noise.drift:.0%}, AR(1) with coefficient {noise.drift_correlation:g};
restarts ({restarts}), Student's t with 5 degrees of freedom, half of it shared by the metrics; within a run, a tenth of
that variance, which the trial allows where it chooses the window; {noise.contaminated:.0%} of the runs slower by an exponential amount with mean {noise.contamination:.0%}.
No request fails.

*Proven below 1 %*: at most {max_alarms(options.gates)} alarms in {options.gates:,} gates, which at a rate of 1 % occurs in less than one simulation of
twenty. The bound on false alarms at full looks, 0.75 %, needs no noise model: the tests are exact because the order of each pair is random, and
looks and metrics share it. That of early looks, 0.25 %, needs runs that vary alike and independently of each other, by whatever law; the
last table tries laws. *Quiet machine*: restarts 1 % (p99 2 %), drift 0.5 %, nothing contaminated. How often the gate detects a regression and how often it passes depends on the noise: on a noisier
machine it detects less, and its minimum detectable effect is larger.""")
    _add_table(page, f"The gate: full looks at {', '.join(map(str, rule.looks))} pairs", FULL, rule, options.gates, options.seed)
    _add_table(page, "`--pairs 10`", FEW, few, options.gates, options.seed)
    title = f"`--time`: the time is over after {rule.fewest_pairs(len(METRICS))} to {rule.looks[-1]} pairs, by chance"
    _add_table(page, title, FEW, rule, options.gates, options.seed, is_timed=True)
    _add_effects(page, [rule, few], options.gates, options.seed)
    _add_laws(page, rule, options.gates, options.seed)
    page.add("", "**All targets are met.**" if page.is_met else "**Some targets are missed.**")
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

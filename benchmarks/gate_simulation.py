"""How often the gate alarms, finds and passes, by simulation: the rule that `perfkit gate` decides by, on pairs that are made up.

    python -m benchmarks.gate_simulation [--gates 10000] [--seed 8] [--out reports/gate-simulation.md]

Every run gets, on a logarithmic scale: the host's own offset; a drift that resembles itself from run to run (an AR(1)
process); an offset of its restarted server, half of it the same for all metrics, with the long tails of Student's t with five
degrees of freedom; now and then a contamination. The pairs' order is drawn by coins. The exit code is 1 where a target is missed.
"""

import argparse
import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from perfkit.gate.metrics import MARGINS
from perfkit.stats.paired import NOISE_BAND, MetricBounds, Rule, look, minimum_detectable_effect, rule_for
from perfkit.stats.signed_rank import Array

METRICS = tuple(MARGINS)
_BOUNDS = [MetricBounds.of_ratio(NOISE_BAND, margin) for margin in MARGINS.values()]
_AT_ONCE = 2500
_SAYING = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Noise:
    """What moves a run's figures though nothing was changed; standard deviations on a logarithmic scale."""

    host: float = 0.08
    drift: float = 0.03
    drift_kept: float = 0.8
    """The part of the drift that the next run keeps."""
    restart: tuple[float, ...] = (0.02, 0.03, 0.03, 0.06)
    contaminated: float = 0.05
    """The share of runs that are slower by an exponential amount."""
    contamination: float = 0.1
    position: float = 0.0
    """How much slower the second run of every pair is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A candidate that is slower by those factors, one a metric, under some noise, and what is asked of the gates."""

    name: str
    slower: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    noise: Noise = Noise()
    target: str = ""
    is_met: Callable[["Outcome"], bool] = lambda _: True


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Shares of the gates, and the mean number of pairs."""

    gates: int
    regressed: float
    passed: float
    pairs: float

    @property
    def inconclusive(self) -> float:
        """What is neither."""
        return 1 - self.regressed - self.passed


def _few_alarms(outcome: Outcome) -> bool:
    """At most 1 %, and so few that 1 % or more would bring them in less than one simulation of twenty (10,000 gates: 83)."""
    return outcome.regressed * outcome.gates <= most_alarms(outcome.gates)


def most_alarms(gates: int, rate: float = 0.01) -> int:
    """The most alarms that prove a rate below 1 % at 95 % confidence: the largest k with P[Bin(gates, rate) <= k] <= 5 %; -1 for none."""
    log_chance, total, most = gates * math.log1p(-rate), 0.0, -1
    for k in range(gates + 1):
        total += math.exp(log_chance)
        if total > 0.05:
            break
        most = k
        log_chance += math.log((gates - k) / (k + 1)) + math.log(rate) - math.log1p(-rate)
    return most


_PROVEN = "regressed: proven below 1 %"
_AT_BAND = (1 + NOISE_BAND,) * 4
_NO_CHANGE: tuple[Case, ...] = (
    Case("worst null: all slower by the noise band", _AT_BAND, target=_PROVEN, is_met=_few_alarms),
    Case("A/A, drift doubled", noise=Noise(drift=0.06), target=_PROVEN, is_met=_few_alarms),
    Case("A/A, 15 % of runs contaminated", noise=Noise(contaminated=0.15), target=_PROVEN, is_met=_few_alarms),
    Case("A/A, second runs 3 % slower", noise=Noise(position=math.log(1.03)), target=_PROVEN, is_met=_few_alarms),
    Case("worst null, all of that at once", _AT_BAND, Noise(drift=0.06, contaminated=0.15, position=math.log(1.03)), _PROVEN, _few_alarms),
)
_AT_MARGIN = tuple(
    Case(
        f"{metric} alone at its margin (+{margin:.0%})",
        tuple(1 + margin if name == metric else 1.0 for name in METRICS),
        target="pass ≤ 5 %",
        is_met=lambda outcome: outcome.passed <= 0.05,
    )
    for metric, margin in MARGINS.items()
)
_TEN, _FIVE, _P99 = ("+10 % everywhere", (1.1,) * 4), ("+5 % everywhere", (1.05,) * 4), ("+10 % in p99 alone", (1.0, 1.0, 1.0, 1.1))
FULL: tuple[Case, ...] = (
    Case("A/A", target=f"{_PROVEN}; pass ≥ 90 %", is_met=lambda outcome: _few_alarms(outcome) and outcome.passed >= 0.9),
    *_NO_CHANGE,
    Case(*_TEN, target="regressed ≥ 95 %", is_met=lambda outcome: outcome.regressed >= 0.95),
    Case(*_FIVE, target="regressed ≥ 70 %", is_met=lambda outcome: outcome.regressed >= 0.7),
    Case(*_P99, target="regressed ≥ 60 %", is_met=lambda outcome: outcome.regressed >= 0.6),
    *_AT_MARGIN,
)
# the false alarms are bounded alike; what a quick gate finds is told, not promised
QUICK: tuple[Case, ...] = (
    Case("A/A", target=_PROVEN, is_met=_few_alarms),
    *_NO_CHANGE,
    *(Case(name, slower) for name, slower in (_TEN, _FIVE, _P99)),
    *_AT_MARGIN,
)


def simulate_pairs(rng: np.random.Generator, gates: int, pairs: int, case: Case) -> Array:
    """Differences of shape [gates, metrics, pairs]."""
    noise, runs = case.noise, 2 * pairs
    steps = rng.standard_normal((gates, runs))
    drift = np.empty_like(steps)
    drift[:, 0] = steps[:, 0]
    for run in range(1, runs):
        drift[:, run] = noise.drift_kept * drift[:, run - 1] + math.sqrt(1 - noise.drift_kept**2) * steps[:, run]
    own, shared = (_long_tailed(rng, (gates, parts, runs)) for parts in (len(METRICS), 1))
    restarts = math.sqrt(0.5) * (own + shared) * np.array(noise.restart)[:, None]
    hit = rng.random((gates, 1, runs)) < noise.contaminated
    logs = noise.host * rng.standard_normal((gates, 1, 1)) + noise.drift * drift[:, None] + restarts
    logs = (logs + hit * rng.exponential(noise.contamination, hit.shape)).reshape(gates, len(METRICS), pairs, 2)
    logs[..., 1] += noise.position
    baseline_is_first = rng.random((gates, 1, pairs)) < 0.5
    candidate = np.where(baseline_is_first, logs[..., 1], logs[..., 0])
    baseline = np.where(baseline_is_first, logs[..., 0], logs[..., 1])
    return np.asarray(candidate + np.log(case.slower)[:, None] - baseline)


def _long_tailed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Of unit variance."""
    return np.asarray(rng.standard_t(5, shape) / math.sqrt(5 / 3))


def judge(rule: Rule, differences: Array) -> Outcome:
    """What becomes of gates that look as the rule says, one after the other until something is settled."""
    gates = len(differences)
    state, pairs = np.zeros(gates, int), np.full(gates, rule.looks[-1])
    for count in rule.looks:
        going = np.flatnonzero(state == 0)
        looked = look(rule, _BOUNDS, differences[going, :, :count])
        state[going] = np.where(looked.regressed.any(-1), 1, np.where(looked.passed.all(-1), 2, 0))
        pairs[going[state[going] > 0]] = count
    return Outcome(gates, float((state == 1).mean()), float((state == 2).mean()), float(pairs.mean()))


def run(case: Case, rule: Rule, gates: int, seed: Sequence[int]) -> Outcome:
    """So many gates of a case, in parts that fit into memory."""
    rng, parts = np.random.default_rng(seed), []
    for start in range(0, gates, _AT_ONCE):
        part = min(_AT_ONCE, gates - start)
        parts.append(judge(rule, simulate_pairs(rng, part, rule.looks[-1], case)))

    def mean(name: str) -> float:
        return sum(float(getattr(part, name)) * part.gates for part in parts) / gates

    return Outcome(gates, mean("regressed"), mean("passed"), mean("pairs"))


def _table(title: str, cases: Sequence[Case], rule: Rule, gates: int, seed: int) -> tuple[list[str], bool]:
    lines = [f"## {title}", "", "| case | regressed | inconclusive | pass | mean pairs | asked | |", "|---|--:|--:|--:|--:|---|---|"]
    all_met = True
    for number, case in enumerate(cases):
        outcome = run(case, rule, gates, (seed, len(rule.looks), number))
        met = case.is_met(outcome)
        all_met &= met
        cells = [
            case.name,
            *(f"{share:.2%}" for share in (outcome.regressed, outcome.inconclusive, outcome.passed)),
            f"{outcome.pairs:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} | {case.target} | {'' if not case.target else 'met' if met else '**missed**'} |")
        print(lines[-1], flush=True)
    return [*lines, ""], all_met


def _finds_table(rules: Sequence[Rule], gates: int, seed: int) -> list[str]:
    """How often what gates say that they would find is found: the median of unchanged gates, as a slowdown of one metric."""
    lines = ["## What a gate says that it would find", ""]
    lines += ["| decided at | metric | finds, median of unchanged gates | found by |", "|---|---|--:|--:|"]
    for rule in rules:
        rng = np.random.default_rng((seed, len(rule.looks), 99))
        unchanged = simulate_pairs(rng, _SAYING, rule.looks[-1], FULL[0])
        for count in rule.looks:
            for index, metric in enumerate(METRICS):
                said = [minimum_detectable_effect(rule, _BOUNDS, index, gate[index, :count].tolist()) for gate in unchanged]
                slower = math.exp(float(np.median([one for one in said if one is not None])))
                case = Case(metric, tuple(slower if name == metric else 1.0 for name in METRICS))
                found = run(case, rule, gates, (seed, len(rule.looks), count, index)).regressed
                lines.append(f"| {count} pairs{'' if len(rule.looks) > 1 else ', `--quick`'} | {metric} | {slower - 1:.1%} | {found:.1%} |")
                print(lines[-1], flush=True)
    return [*lines, ""]


def main() -> int:
    """Writes the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gates", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("reports/gate-simulation.md"))
    options = parser.parse_args()
    rule, quick = rule_for(len(METRICS)), rule_for(len(METRICS), quick=True)
    looks = ", ".join(map(str, rule.looks))
    full_lines, full_met = _table(f"The gate: looks at {looks} pairs", FULL, rule, options.gates, options.seed)
    quick_lines, quick_met = _table(f"`--quick`: {quick.looks[0]} pairs and no more", QUICK, quick, options.gates, options.seed)
    finds = _finds_table([rule, quick], options.gates, options.seed)
    noise = Noise()
    restarts = ", ".join(f"{name} {share:.0%}" for name, share in zip(METRICS, noise.restart, strict=True))
    made = f"`python -m benchmarks.gate_simulation --gates {options.gates} --seed {options.seed}`"
    text = f"""# The gate's error rates, by simulation

Made by {made}: {options.gates:,} gates a case, decided by the code that `perfkit gate` decides by. No server was measured: the runs are
made up, from the noise below.

Noise, as standard deviations on a logarithmic scale: host {noise.host:.0%}; drift {noise.drift:.0%}, AR(1) with {noise.drift_kept:g};
restarts ({restarts}), Student's t with 5 degrees of freedom, half of it shared by the metrics; {noise.contaminated:.0%} of the runs slower
by an exponential amount, {noise.contamination:.0%} in the mean. No request fails.

*Proven below 1 %*: at most {most_alarms(options.gates)} alarms in {options.gates:,} gates, which a rate of 1 % brings in less than one
simulation of twenty. The bound itself needs no noise model: the tests are exact where the order of each pair is drawn by a coin, and looks
and metrics share the 1 %. What a gate finds, and how often it passes, does hang on the noise: on a noisier machine it finds less, and
says so, as the last table shows.

"""
    text += "\n".join(
        [*full_lines, *quick_lines, *finds, "**All targets are met.**" if full_met and quick_met else "**Some targets are missed.**", ""]
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    print(f"{options.out} written")
    return 0 if full_met and quick_met else 1


if __name__ == "__main__":
    raise SystemExit(main())

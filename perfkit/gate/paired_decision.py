"""The decision of a paired gate: from the pairs measured so far to a verdict, or to None if another pair is needed. Pure."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from perfkit.gate.accepted import lasting_load_point, with_acceptance
from perfkit.gate.fault import Fault, GeneratorLoad, first_sentence
from perfkit.gate.metrics import ERROR_RATE, ERROR_RATE_BAND, MARGINS, SECONDARY_MARGINS, Metric, build_comparison, margin_of, unit_of
from perfkit.gate.pairs import ARMS, CPU_FIGURES, FIGURES, PERCENTILES, ArmRun, Pair, RunPoint, error_rate
from perfkit.gate.verdict import MAXIMUM_EFFECT, Comparison, MetricVerdict, VerdictKind
from perfkit.history.accepted import NOTHING_ACCEPTED, AcceptedChanges
from perfkit.spans.change import PartChange, change_over_pairs, describe_change
from perfkit.stats.paired import Look, MetricBounds, Rule, decide, improvement_p, look, minimum_detectable_effect
from perfkit.stats.signed_rank import hodges_lehmann, limits

MAXIMUM_FAILED_SHARE = 0.01
MAXIMUM_DISCARDED = 4  # pairs, plus one for every three usable ones
_ALL_POINTS = "all load points"
_MOST_HIDDEN = 0.5  # of a figure
_FEW = 0.29  # of the pairs


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a gate; `reasons` are sentences."""

    kind: VerdictKind
    reasons: tuple[str, ...]
    comparisons: tuple[Comparison, ...] = ()
    parts: tuple[PartChange, ...] = ()
    """Which parts of the time changed, if the runs have traced requests."""
    fault: Fault | None = None
    """Why the gate is invalid."""


@dataclasses.dataclass(frozen=True, slots=True)
class MetricChoice:
    """Which metrics count for the verdict: those in `names`, or for None all but the secondary ones."""

    is_standard: bool = False
    """The standard profile takes throughput only from its closed loop, and percentiles only from its open loop."""
    names: tuple[str, ...] | None = None
    accepted: AcceptedChanges = NOTHING_ACCEPTED
    """The accepted changes of the scenario."""

    def gated(self, kind: Literal["closed", "open"]) -> tuple[str, ...]:
        """The metrics that count at a load point of this kind; the throughput of an open loop is given by its schedule and never counts."""
        percentiles = tuple(name for name in MARGINS if name != "throughput")
        names = percentiles if kind == "open" else ("throughput",) if self.is_standard else ("throughput", *percentiles)
        return tuple(name for name in (*names, *SECONDARY_MARGINS) if name in (names if self.names is None else self.names))

    def gated_metrics(self, load_point: str, kind: Literal["closed", "open"]) -> tuple[Metric, ...]:
        """The metrics that count at a load point."""
        return tuple(Metric(name, load_point, unit_of(name), margin_of(name)) for name in self.gated(kind))


@dataclasses.dataclass(frozen=True, slots=True)
class PairedValues:
    """One metric's values, one per arm and pair, in the order of measurement."""

    metric: Metric
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    generator_shares: tuple[float, ...] = ()
    """In each pair, the share of one of the values that may be the load generator's, the larger one; empty without disturbances."""

    @property
    def differences(self) -> list[float]:
        """How much worse the candidate was in each pair."""
        return [self.metric.difference(*values) for values in zip(self.baseline, self.candidate, strict=True)]

    @property
    def servers_differences(self) -> list[float]:
        """How much worse the candidate's server may have been in each pair: the share of the generator hides as large a share of a slowdown.

        Pairs of which more than half may be the generator's are left out: they say little about the server. Neither depends on which arm
        was disturbed, so the signs of the differences minus a margin are positive with a probability of at least ½ at that margin.
        """
        if not self.generator_shares:
            return self.differences
        return [
            one if one <= 0 or self.metric.is_share else math.log1p(math.expm1(one) / (1 - share))
            for one, share in zip(self.differences, self.generator_shares, strict=True)
            if share <= _MOST_HIDDEN
        ]


def decide_pairs(rule: Rule, pairs: Sequence[Pair], choice: MetricChoice, *, time_is_over: bool = False) -> Decision | None:
    """Decide from all pairs of one kind; None if another pair is needed.

    The gate is invalid as soon as that is certain, regressed or passed at one of the rule's looks, and inconclusive after the last one.
    If the time is over, the pairs so far are the last look, provided that they are enough for a regression to be significant.
    """
    usable = [pair for pair in pairs if pair.invalid is None]
    if time_is_over and usable and len(usable) >= rule.fewest_pairs(_count_gated(usable[0], choice)):
        rule = rule.ending_at(min(len(usable), rule.looks[-1]))
    if fault := find_fault(pairs, usable, choice):
        is_complete = bool(usable) and not _missing_metric(usable, choice)
        comparisons = compare_pairs(rule, _paired_values(usable, choice)) if is_complete else ()
        return Decision("invalid", (fault.reason,), comparisons, fault=fault)
    if len(usable) not in rule.looks:
        return None
    values = _paired_values(usable, choice)
    decided = decide(judge(rule, values))
    if decided is None and len(usable) < rule.looks[-1]:
        return None
    kind, comparisons, parts = decided or "inconclusive", compare_pairs(rule, values), changed_parts(usable)
    return Decision(kind, (*_reasons(kind, comparisons, len(usable)), *map(describe_change, parts)), comparisons, parts)


def decide_control(pairs: Sequence[Pair], count: int, choice: MetricChoice) -> Decision | None:
    """Decide from `count` control pairs, the baseline against itself; None if another pair is needed.

    A regression here is a false alarm: something favours one arm, so the gate is invalid.
    """
    decision = decide_pairs(Rule.at(count), pairs, choice)
    if decision is not None and decision.kind == "regressed":
        reason = "In the control pairs the baseline was called slower than itself: something on this machine favours one of the arms."
        return Decision("invalid", (reason, *decision.reasons[1:]), decision.comparisons, fault=Fault(code="control", reason=reason))
    return decision


def judge(rule: Rule, values: Sequence[PairedValues]) -> Look:
    """Apply the rule to the gated metrics; all values come from the same pairs, at least one.

    A disturbance of the load generator feigns no regression, but can hide one: a pass is judged by the servers' own differences.
    """
    gated = [metric_values for metric_values in values if metric_values.metric.is_gated]
    bounds = [metric_values.metric.bounds for metric_values in gated]
    looked = look(rule, bounds, np.array([metric_values.differences for metric_values in gated]))
    passed = [_passes(rule, bound, metric_values) for bound, metric_values in zip(bounds, gated, strict=True)]
    return dataclasses.replace(looked, passed=np.array(passed))


def _passes(rule: Rule, bounds: MetricBounds, values: PairedValues) -> bool:
    own = values.servers_differences
    return (
        bool(own)
        and bool(look(rule, [bounds], np.array([own])).passed[0])
        and float(hodges_lehmann(np.array(values.differences))) < bounds.margin
    )


def compare_pairs(rule: Rule, values: Sequence[PairedValues]) -> tuple[Comparison, ...]:
    """Compare each metric; the verdicts are those of `judge`."""
    looked = judge(rule, values)
    gated = [metric_values for metric_values in values if metric_values.metric.is_gated]
    bounds = [metric_values.metric.bounds for metric_values in gated]
    better = [metric_values.metric.improvement_bounds for metric_values in gated]
    improvements = improvement_p(rule, better, np.array([metric_values.differences for metric_values in gated]))
    comparisons, index = [], 0
    for metric_values in values:
        metric, differences = metric_values.metric, np.array(metric_values.differences)
        verdict: MetricVerdict = "inconclusive"
        adjusted_p = better_p = None
        # of a metric for information, as if it decided alone
        own_bounds, place = (bounds, index) if metric.is_gated else ([metric.bounds], 0)
        detectable = minimum_detectable_effect(rule, own_bounds, place, metric_values.differences)
        if metric.is_gated:
            verdict = "regressed" if looked.regressed[index] else "pass" if looked.passed[index] else "inconclusive"
            adjusted_p, better_p = float(looked.adjusted_p[index]), float(improvements[index])
            index += 1
        estimate = float(hodges_lehmann(differences))
        low = float(limits(differences, rule.pass_alpha)[0])
        high = max(float(limits(np.array(metric_values.servers_differences), rule.pass_alpha)[1]), estimate)
        comparisons.append(
            build_comparison(
                metric,
                metric_values.baseline,
                metric_values.candidate,
                difference=estimate,
                limits=(low, high),
                confidence=1 - 2 * rule.pass_alpha,
                pairs=len(differences),
                verdict=verdict,
                adjusted_p=adjusted_p,
                improvement_p=better_p,
                detectable_difference=detectable,
            )
        )
    return tuple(comparisons)


def changed_parts(pairs: Sequence[Pair]) -> tuple[PartChange, ...]:
    """Which parts of the time the candidate changed, by load point; empty without traced requests. They do not decide the verdict."""
    found = list[PartChange]()
    for index, point in enumerate(pairs[0].baseline.points if pairs else ()):
        sides = [tuple(pair.runs[arm].points[index].parts_ns for arm in ARMS) for pair in pairs]
        known = [(first, second) for first, second in sides if first is not None and second is not None]
        is_traced = any(side is not None for pair in sides for side in pair)
        found += change_over_pairs(point.load_point, known if len(known) == len(pairs) else []) if is_traced else []
    return tuple(found)


def _paired_values(pairs: Sequence[Pair], choice: MetricChoice) -> list[PairedValues]:
    """All metrics that every run of the pairs has, and the error rate."""
    values = []
    for index, point in enumerate(pairs[0].baseline.points):
        gated = choice.gated(point.kind)
        for name in (*(FIGURES if point.kind == "closed" else PERCENTILES), *CPU_FIGURES):
            columns = [tuple(value for pair in pairs if (value := pair.runs[arm].points[index].figures.get(name))) for arm in ARMS]
            if all(len(column) == len(pairs) for column in columns):  # only metrics that are not gated can be missing here
                margin = margin_of(name) if name in gated else None
                shares = _generator_shares(pairs, index, name)
                metric = Metric(name, point.load_point, unit_of(name), margin, generator_share=_usual_share(shares))
                if choice.is_standard:
                    metric = dataclasses.replace(metric, lasting_load_point=lasting_load_point(point.load_point, point.kind))
                values.append(PairedValues(with_acceptance(metric, choice.accepted), columns[0], columns[1], shares))
    rates = [tuple(error_rate([pair.runs[arm]]) for pair in pairs) for arm in ARMS]
    errors = with_acceptance(Metric(ERROR_RATE, _ALL_POINTS, "share", ERROR_RATE_BAND), choice.accepted)
    return [*values, PairedValues(errors, *rates)]


def _count_gated(pair: Pair, choice: MetricChoice) -> int:
    return sum(len(choice.gated(point.kind)) for point in pair.baseline.points)


def _generator_shares(pairs: Sequence[Pair], index: int, name: str) -> tuple[float, ...]:
    """See `PairedValues.generator_shares`."""
    shares = tuple(max(run.points[index].generator_shares.get(name, 0.0) for run in pair.runs.values()) for pair in pairs)
    return shares if any(shares) else ()


def _usual_share(shares: Sequence[float]) -> float:
    """The share that no more than 29 % of the pairs exceed: so many disturbed ones leave most of the evidence."""
    return sorted(shares)[math.ceil((1 - _FEW) * len(shares)) - 1] if shares else 0.0


def _missing_metric(pairs: Sequence[Pair], choice: MetricChoice) -> Fault | None:
    """A load point or gated metric that a run lacks."""
    expected = [(point.load_point, point.kind) for point in pairs[0].baseline.points]
    for pair in pairs:
        for arm, run in pair.runs.items():
            where = f"the {arm}'s run of pair {pair.number + 1}"
            if [(point.load_point, point.kind) for point in run.points] != expected:
                return Fault(code="missing_metric", reason=f"A load point is missing in {where}, so the runs cannot be compared.")
            for point in run.points:
                if missing := [name for name in choice.gated(point.kind) if not point.figures.get(name)]:
                    why = "it could not be measured" if missing[0] in SECONDARY_MARGINS else "too few requests"
                    reason = (
                        f"There is no {missing[0]} at {point.load_point} in {where}: {why}. Measure longer (measure.duration), "
                        "or choose other metrics (gate.metrics)."
                    )
                    return Fault(code="missing_metric", reason=reason, metric=missing[0])
    return None


def find_fault(pairs: Sequence[Pair], usable: Sequence[Pair], choice: MetricChoice) -> Fault | None:
    """Why no verdict may be given on these pairs; None if one may."""
    discarded = [(pair, cause) for pair in pairs if (cause := pair.invalid) is not None]
    if len(discarded) > MAXIMUM_DISCARDED + len(usable) // 3:
        cause = discarded[-1][1]
        reason = f"The load generator could not keep up in {len(discarded)} of {len(pairs)} pairs; in the last one: {first_sentence(cause.message)}"
        return Fault(code="generator", reason=reason, warning=cause.code, generator=generator_load([pair for pair, _ in discarded]))
    if usable and (missing := _missing_metric(usable, choice)):
        return missing
    for arm in ARMS:
        runs = [pair.runs[arm] for pair in usable]
        if (rate := error_rate(runs)) > MAXIMUM_FAILED_SHARE:
            points = [point for run in runs for point in run.points]
            failed = next((warning.message for point in points for warning in point.warnings if warning.code == "failed_requests"), "")
            limit = f"more than {MAXIMUM_FAILED_SHARE:.0%}"
            reason = f"{rate:.1%} of the {arm}'s requests failed ({limit}), so its times do not measure its speed. {failed}".rstrip()
            worst = max(usable, key=lambda pair: error_rate([pair.runs[arm]]))
            return Fault(code="failed_requests", reason=reason, run=f"{worst.number:03}-{arm}-0")
        if message := _warning_in_most(runs, "not_steady"):
            return Fault(code="not_steady", reason=f"The {arm} was not steady in most of its runs. {message}")
        if arm == "baseline" and (message := _warning_in_most(runs, "overloaded")):
            reason = (
                f"The baseline was overloaded in most of its runs, so its times are those of a growing queue: lower the rate. {message}"
            )
            return Fault(code="overloaded", reason=reason)
    return None


def generator_load(pairs: Sequence[Pair]) -> GeneratorLoad | None:
    """The mean use of the load generator's machine over all runs of the pairs; None if it is unknown."""
    points = [point for pair in pairs for run in pair.runs.values() for point in run.points]
    return GeneratorLoad.mean([point.generator for point in points if point.generator is not None])


def _warning_in_most(runs: Sequence[ArmRun], code: str) -> str:
    """The last such warning at a load point that has it in more than half of at least three runs; empty if there is none."""

    def messages(points: Sequence[RunPoint]) -> list[str]:
        return [f"{point.load_point}: {warning.message}" for point in points for warning in point.warnings if warning.code == code]

    if len(runs) < 3:
        return ""
    by_point = (messages(points) for points in zip(*(run.points for run in runs), strict=True))
    return next((found[-1] for found in by_point if len(found) > len(runs) / 2), "")


def _reasons(kind: str, comparisons: Sequence[Comparison], pairs: int) -> tuple[str, ...]:
    gated = [comparison for comparison in comparisons if comparison.gated]
    deciding = [one.reason for one in gated if kind == one.verdict != "pass"]
    improved = [one.reason for one in gated if one.outcome == "improved"]
    if kind == "pass":
        summary = f"After {pairs} pairs all {len(gated)} metrics are within their margins{f', and {len(improved)} of them improved' if improved else ''}."
    elif kind == "regressed":
        summary = f"After {pairs} pairs the candidate is worse by more than the noise band in {len(deciding)} of {len(gated)} metrics."
    else:
        summary = f"After {pairs} pairs {len(deciding)} of {len(gated)} metrics are undecided: unchanged, or worse than their margin."
    effects = [one.minimum_detectable_effect for one in gated if one.scale == "ratio" and one.minimum_detectable_effect is not None]
    if effects:
        summary += (
            f" With this noise, 9 of 10 gates would detect a slowdown of {_at_least(max(effects))} in any metric, "
            f"and of {_at_least(min(effects))} in the least noisy one."
        )
    return (summary, *deciding, *improved)


def _at_least(effect: float) -> str:
    return f"more than {MAXIMUM_EFFECT:.0%}" if effect >= MAXIMUM_EFFECT else f"{effect:.1%}"

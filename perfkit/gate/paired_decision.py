"""The decision of a paired gate: from the pairs measured so far to a verdict, or to None if another pair is needed. Pure."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from perfkit.gate.metrics import ERROR_RATE, ERROR_RATE_BAND, MARGINS, Metric, build_comparison
from perfkit.gate.pairs import ARMS, FIGURES, PERCENTILES, ArmRun, Pair, RunPoint, error_rate
from perfkit.gate.verdict import Comparison, MetricVerdict, VerdictKind
from perfkit.spans.change import PartChange, change_over_pairs, describe_change
from perfkit.stats.paired import Look, Rule, decide, look, minimum_detectable_effect
from perfkit.stats.signed_rank import hodges_lehmann, limits

MAXIMUM_FAILED_SHARE = 0.01
MAXIMUM_DISCARDED = 4  # pairs, plus one for every three usable ones
_ALL_POINTS = "all load points"


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a gate; `reasons` are sentences."""

    kind: VerdictKind
    reasons: tuple[str, ...]
    comparisons: tuple[Comparison, ...] = ()
    parts: tuple[PartChange, ...] = ()
    """Which parts of the time changed, if the runs have traced requests."""


@dataclasses.dataclass(frozen=True, slots=True)
class MetricChoice:
    """Which metrics count for the verdict: those in `names`, or all for None."""

    is_standard: bool = False
    """The standard profile takes throughput only from its closed loop, and percentiles only from its open loop."""
    names: tuple[str, ...] | None = None

    def gated(self, kind: Literal["closed", "open"]) -> tuple[str, ...]:
        """The metrics that count at a load point of this kind; the throughput of an open loop is given by its schedule and never counts."""
        percentiles = tuple(name for name in MARGINS if name != "throughput")
        names = percentiles if kind == "open" else ("throughput",) if self.is_standard else ("throughput", *percentiles)
        return tuple(name for name in names if self.names is None or name in self.names)


@dataclasses.dataclass(frozen=True, slots=True)
class PairedValues:
    """One metric's values, one per arm and pair, in the order of measurement."""

    metric: Metric
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]

    @property
    def differences(self) -> list[float]:
        """How much worse the candidate was in each pair."""
        return [self.metric.difference(*values) for values in zip(self.baseline, self.candidate, strict=True)]


def decide_pairs(rule: Rule, pairs: Sequence[Pair], choice: MetricChoice) -> Decision | None:
    """Decide from all pairs of one kind; None if another pair is needed.

    The gate is invalid as soon as that is certain, regressed or passed at one of the rule's looks, and inconclusive after the last one.
    """
    usable = [pair for pair in pairs if pair.invalid is None]
    if reason := _why_invalid(pairs, usable, choice):
        is_complete = bool(usable) and not _missing_metric(usable, choice)
        return Decision("invalid", (reason,), compare_pairs(rule, _paired_values(usable, choice)) if is_complete else ())
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
    decision = decide_pairs(Rule(looks=(count,)), pairs, choice)
    if decision is not None and decision.kind == "regressed":
        reason = "In the control pairs the baseline was called slower than itself: something on this machine favours one of the arms."
        return Decision("invalid", (reason, *decision.reasons[1:]), decision.comparisons)
    return decision


def judge(rule: Rule, values: Sequence[PairedValues]) -> Look:
    """Apply the rule to the gated metrics; all values come from the same pairs, at least one."""
    gated = [metric_values for metric_values in values if metric_values.metric.is_gated]
    bounds = [metric_values.metric.bounds for metric_values in gated]
    return look(rule, bounds, np.array([metric_values.differences for metric_values in gated]))


def compare_pairs(rule: Rule, values: Sequence[PairedValues]) -> tuple[Comparison, ...]:
    """Compare each metric; the verdicts are those of `judge`."""
    looked = judge(rule, values)
    bounds = [metric_values.metric.bounds for metric_values in values if metric_values.metric.is_gated]
    comparisons, index = [], 0
    for metric_values in values:
        metric, differences = metric_values.metric, np.array(metric_values.differences)
        verdict: MetricVerdict = "inconclusive"
        adjusted_p = detectable = None
        if metric.is_gated:
            verdict = "regressed" if looked.regressed[index] else "pass" if looked.passed[index] else "inconclusive"
            adjusted_p = float(looked.adjusted_p[index])
            detectable = minimum_detectable_effect(rule, bounds, index, metric_values.differences)
            index += 1
        low, high = limits(differences, rule.pass_alpha)
        comparisons.append(
            build_comparison(
                metric,
                metric_values.baseline,
                metric_values.candidate,
                difference=float(hodges_lehmann(differences)),
                limits=(float(low), float(high)),
                confidence=1 - 2 * rule.pass_alpha,
                pairs=len(differences),
                verdict=verdict,
                adjusted_p=adjusted_p,
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
        for name in FIGURES if point.kind == "closed" else PERCENTILES:
            columns = [tuple(value for pair in pairs if (value := pair.runs[arm].points[index].figures.get(name))) for arm in ARMS]
            if all(len(column) == len(pairs) for column in columns):  # only metrics that are not gated can be missing here
                metric = Metric(name, point.load_point, "per_s" if name == "throughput" else "ns", MARGINS[name] if name in gated else None)
                values.append(PairedValues(metric, *columns))
    rates = [tuple(error_rate([pair.runs[arm]]) for pair in pairs) for arm in ARMS]
    return [*values, PairedValues(Metric(ERROR_RATE, _ALL_POINTS, "share", ERROR_RATE_BAND), *rates)]


def _missing_metric(pairs: Sequence[Pair], choice: MetricChoice) -> str:
    """A sentence about a load point or gated metric that a run lacks; empty if none does."""
    expected = [(point.load_point, point.kind) for point in pairs[0].baseline.points]
    for pair in pairs:
        for arm, run in pair.runs.items():
            where = f"the {arm}'s run of pair {pair.number + 1}"
            if [(point.load_point, point.kind) for point in run.points] != expected:
                return f"A load point is missing in {where}, so the runs cannot be compared."
            for point in run.points:
                if missing := [name for name in choice.gated(point.kind) if not point.figures.get(name)]:
                    return (
                        f"There is no {missing[0]} at {point.load_point} in {where}: too few requests. Measure longer (measure.duration), "
                        "or choose other metrics (gate.metrics)."
                    )
    return ""


def _why_invalid(pairs: Sequence[Pair], usable: Sequence[Pair], choice: MetricChoice) -> str:
    discarded = [pair.invalid for pair in pairs if pair.invalid is not None]
    if len(discarded) > MAXIMUM_DISCARDED + len(usable) // 3:
        return f"The load generator could not keep up in {len(discarded)} of {len(pairs)} pairs; in the last one: {discarded[-1].message}"
    if usable and (missing := _missing_metric(usable, choice)):
        return missing
    for arm in ARMS:
        runs = [pair.runs[arm] for pair in usable]
        if (rate := error_rate(runs)) > MAXIMUM_FAILED_SHARE:
            points = [point for run in runs for point in run.points]
            cause = next((warning.message for point in points for warning in point.warnings if warning.code == "failed_requests"), "")
            limit = f"more than {MAXIMUM_FAILED_SHARE:.0%}"
            return f"{rate:.1%} of the {arm}'s requests failed ({limit}), so its times do not measure its speed. {cause}".rstrip()
        if message := _warning_in_most(runs, "not_steady"):
            return f"The {arm} was not steady in most of its runs. {message}"
        if arm == "baseline" and (message := _warning_in_most(runs, "overloaded")):
            return f"The baseline was overloaded in most of its runs, so its times are those of a growing queue: lower the rate. {message}"
    return ""


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
    deciding = [comparison.reason for comparison in gated if kind in {"pass", comparison.verdict}]
    if kind == "pass":
        summary = f"After {pairs} pairs all {len(gated)} metrics are within their margins."
    elif kind == "regressed":
        summary = f"After {pairs} pairs the candidate is worse by more than the noise band in {len(deciding)} of {len(gated)} metrics."
    else:
        summary = f"After {pairs} pairs {len(deciding)} of {len(gated)} metrics are undecided: unchanged, or worse than their margin."
    effects = [one.minimum_detectable_effect for one in gated if one.scale == "ratio" and one.minimum_detectable_effect is not None]
    if effects:
        summary += (
            f" With this noise, 9 of 10 gates would detect a slowdown of {max(effects):.1%} in any metric, "
            f"and of {min(effects):.1%} in the least noisy one."
        )
    return (summary, *deciding)

"""The decision of a paired gate: from the pairs measured so far to a verdict, or to None if another pair is needed. Pure.

It also says why runs or pairs allow no verdict.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.errors import MeasurementError, MeasurementWarning
from perfkit.gate.arm import Arm
from perfkit.gate.metrics import SECONDARY_MARGINS, MetricChoice, MetricTests, PairedValues, build_comparison, paired_values
from perfkit.gate.paired import Look, MetricBounds, Rule, decide, improvement_p, look, minimum_detectable_effect
from perfkit.gate.pairs import ARMS, ArmName, ArmRun, Pair, RunPoint, arm_run, failed_share
from perfkit.gate.verdict import MAXIMUM_EFFECT, Comparison, Fault, GeneratorLoad, VerdictKind
from perfkit.result.model import Result
from perfkit.scenario.model import Scenario
from perfkit.spans.change import PartChange, change_over_pairs, describe_change
from perfkit.stats.validity import COLD

MAXIMUM_FAILED_SHARE = 0.01
MAXIMUM_DISCARDED = 4  # pairs, plus one for every three usable ones


def find_fault(pairs: Sequence[Pair], usable: Sequence[Pair], choice: MetricChoice) -> Fault | None:
    """Why no verdict may be given on these pairs; None if one may."""
    discarded = [(pair, cause) for pair in pairs if (cause := pair.invalid) is not None]
    if len(discarded) > MAXIMUM_DISCARDED + len(usable) // 3:
        cause = discarded[-1][1]
        reason = f"The load generator could not keep up in {len(discarded)} of {len(pairs)} pairs; in the last one: {cause.first_sentence}"
        return Fault(code="generator", reason=reason, warning=cause.code, generator=generator_load([pair for pair, _ in discarded]))
    if usable and (missing := missing_metric(usable, choice)):
        return missing
    for arm in ARMS:
        runs = [pair.runs[arm] for pair in usable]
        if (share := failed_share(runs)).low > MAXIMUM_FAILED_SHARE:
            points = [point for run in runs for point in run.points]
            failed = next((warning.message for point in points for warning in point.warnings if warning.code == "failed_requests"), "")
            limit = f"more than {MAXIMUM_FAILED_SHARE:.0%}"
            reason = (
                f"{share.in_words(1)} of the {arm}'s requests failed ({limit}), so its times do not measure its speed. {failed}".rstrip()
            )
            worst = max(usable, key=lambda pair: failed_share([pair.runs[arm]]).estimate)
            return Fault(code="failed_requests", reason=reason, run=f"{worst.number:03}-{arm}-0")
        if found := _warning_in_most(runs, "not_steady", COLD):
            reason = f"The {arm} was not steady in most of its runs. {found.message}"
            return Fault(code="not_steady", reason=reason, warning=found.code)
        if arm == "baseline" and (found := _warning_in_most(runs, "overloaded")):
            overloaded = "The baseline was overloaded in most of its runs, so its times are those of a growing queue: lower the rate."
            return Fault(code="overloaded", reason=f"{overloaded} {found.message}", warning=found.code)
    return None


def generator_load(pairs: Sequence[Pair]) -> GeneratorLoad | None:
    """The mean use of the load generator's machine over all runs of the pairs; None if it is unknown."""
    points = [point for pair in pairs for run in pair.runs.values() for point in run.points]
    return GeneratorLoad.mean([point.generator for point in points if point.generator is not None])


def missing_metric(pairs: Sequence[Pair], choice: MetricChoice) -> Fault | None:
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


def _warning_in_most(runs: Sequence[ArmRun], *codes: str) -> MeasurementWarning | None:
    """The last of such warnings at a load point that has one in more than half of at least three runs; None if there is none."""

    def warnings(points: Sequence[RunPoint]) -> list[MeasurementWarning]:
        firsts = [next((warning for warning in point.warnings if warning.code in codes), None) for point in points]
        return [MeasurementWarning(one.code, f"{points[0].load_point}: {one.message}") for one in firsts if one is not None]

    if len(runs) < 3:
        return None
    by_point = (warnings(points) for points in zip(*(run.points for run in runs), strict=True))
    return next((found[-1] for found in by_point if len(found) > len(runs) / 2), None)


class TrialError(MeasurementError):
    """The trial could not be measured, because of a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


def why_unmeasurable(scenario: Scenario, arms: Mapping[ArmName, Arm]) -> str:
    """Why no run can have the metrics that `gate.metrics` names, as a sentence; empty if it can."""
    if not (named := _named(scenario)):
        return ""
    if any(arm.command is None for arm in arms.values()):
        return f"gate.metrics: {named[0]} is known of servers that perfkit starts; name both as cmd: targets, or leave it out"
    return (
        ""
        if scenario.telemetry
        else f"gate.metrics: {named[0]} is measured by telemetry, which the scenario turns off; remove telemetry: false"
    )


def why_unmeasured(scenario: Scenario, arm: ArmName, result: Result) -> str:
    """Why an arm's trial lacks a metric that `gate.metrics` names, as sentences; empty if it does not."""
    for point in arm_run([result]).points:
        if missing := [name for name in _named(scenario) if point.figures[name] is None]:
            notes = (result.environment.get("telemetry") or {}).get("notes") or ()
            why = " ".join(note for note in notes if note.startswith("The server's"))
            return f"gate.metrics names {missing[0]}, which the {arm}'s trial lacks at {point.load_point}; leave it out, or mend the cause. {why}".rstrip()
    return ""


def _named(scenario: Scenario) -> Sequence[str]:
    names = (scenario.gate.metrics if scenario.gate is not None else None) or ()
    return [name for name in names if name in SECONDARY_MARGINS]


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


def decide_pairs(rule: Rule, pairs: Sequence[Pair], choice: MetricChoice, *, time_is_over: bool = False) -> Decision | None:
    """Decide from all pairs of one kind; None if another pair is needed.

    The gate is invalid as soon as that is certain, regressed or passed at one of the rule's looks, and inconclusive after the last one. There
    is an early look only where `_may_look_early` says so. If the time is over, the pairs so far are the last look, provided
    that they are enough for a regression to be significant.
    """
    usable = [pair for pair in pairs if pair.invalid is None]
    if time_is_over and usable and len(usable) >= rule.fewest_pairs(_count_gated(usable[0], choice)):
        rule = rule.ending_at(min(len(usable), rule.looks[-1]))
    if fault := find_fault(pairs, usable, choice):
        is_complete = bool(usable) and not missing_metric(usable, choice)
        comparisons = compare_pairs(rule, paired_values(usable, choice)) if is_complete else ()
        return Decision("invalid", (fault.reason,), comparisons, fault=fault)
    if len(usable) not in (rule.all_looks if _may_look_early(usable) else rule.looks):
        return None
    values = paired_values(usable, choice)
    decided = decide(judge(rule, values))
    if decided is None and len(usable) < rule.looks[-1]:
        return None
    kind, comparisons, parts = decided or "inconclusive", compare_pairs(rule, values), changed_parts(usable)
    return Decision(kind, (*_reasons(kind, comparisons, len(usable)), *map(describe_change, parts)), comparisons, parts)


def _may_look_early(pairs: Sequence[Pair]) -> bool:
    """Whether early looks count: they need runs that vary alike, where full looks need only the random order.

    As long as one arm was always first, an effect of the order could feign a gross regression, and so could another process that ran
    beside the candidate alone in most pairs.
    """
    beside_candidate = sum(pair.candidate.is_disturbed and not pair.baseline.is_disturbed for pair in pairs)
    return len({pair.first for pair in pairs}) > 1 and beside_candidate <= len(pairs) / 2


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
    return bool(own) and bool(look(rule, [bounds], np.array([own]), len(values.baseline)).passed[0]) and values.estimate < bounds.margin


def compare_pairs(rule: Rule, values: Sequence[PairedValues]) -> tuple[Comparison, ...]:
    """Compare each metric; the verdicts are those of `judge`."""
    gated = [metric_values for metric_values in values if metric_values.metric.is_gated]
    bounds = [metric_values.metric.bounds for metric_values in gated]
    better = [metric_values.metric.improvement_bounds for metric_values in gated]
    improvements = improvement_p(rule, better, np.array([metric_values.differences for metric_values in gated]))
    tests = MetricTests.of_each(judge(rule, values), improvements)
    comparisons, places = [], iter(range(len(gated)))
    for metric_values in values:
        metric = metric_values.metric
        # of a metric for information, as if it decided alone
        own_bounds, place = (bounds, next(places)) if metric.is_gated else ([metric.bounds], 0)
        comparisons.append(
            build_comparison(
                metric,
                metric_values.baseline,
                metric_values.candidate,
                difference=metric_values.estimate,
                limits=metric_values.limits(functools.partial(rule.limits, pairs=len(metric_values.baseline))),
                confidence=1 - 2 * rule.limit_alpha(len(metric_values.baseline)),
                pairs=len(metric_values.baseline),
                tested=next(tests) if metric.is_gated else None,
                detectable_difference=minimum_detectable_effect(rule, own_bounds, place, metric_values.differences),
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


def _count_gated(pair: Pair, choice: MetricChoice) -> int:
    return sum(len(choice.gated(point.kind)) for point in pair.baseline.points)


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

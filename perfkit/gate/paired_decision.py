"""What the pairs of a gate so far come to. Pure: from what a gate keeps of its runs to a verdict, or to the next pair."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

from perfkit.gate.metrics import ERROR_RATE, ERROR_RATE_BAND, MARGINS, Figures, Metric, compare, judge
from perfkit.gate.pairs import FIGURES, PERCENTILES, ArmName, ArmRun, Pair
from perfkit.gate.verdict import Comparison, VerdictKind
from perfkit.stats.paired import Rule, decide

ARMS: tuple[ArmName, ...] = ("baseline", "candidate")
FAILED_SHARE = 0.01
DISCARDED = 4  # pairs that may be measured again, and one more for every three that are used
_ALL_POINTS = "all load points"


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What a gate comes to; `reasons` are sentences."""

    kind: VerdictKind
    reasons: tuple[str, ...]
    comparisons: tuple[Comparison, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class MetricChoice:
    """Which metrics have a say: those that `asked` names of those that there are, all for None."""

    is_standard: bool = False
    """The standard profile takes throughput from its closed loop alone, and percentiles from its open one."""
    asked: tuple[str, ...] | None = None

    def gated(self, kind: Literal["closed", "open"]) -> tuple[str, ...]:
        """At a load point; an open loop's throughput is its schedule's, and has none."""
        percentiles = tuple(name for name in MARGINS if name != "throughput")
        names = percentiles if kind == "open" else ("throughput",) if self.is_standard else ("throughput", *percentiles)
        return tuple(name for name in names if self.asked is None or name in self.asked)


def decide_pairs(rule: Rule, pairs: Sequence[Pair], choice: MetricChoice) -> Decision | None:
    """What all pairs of one kind come to; None where another is needed.

    Invalid is said as soon as it is plain, regressed and pass at the rule's looks, inconclusive after the last.
    """
    usable = [pair for pair in pairs if pair.invalid is None]
    if reason := _why_invalid(pairs, usable, choice):
        is_whole = bool(usable) and not _what_is_missing(usable, choice)
        return Decision("invalid", (reason,), compare(rule, _figures(usable, choice)) if is_whole else ())
    if len(usable) not in rule.looks:
        return None
    figures = _figures(usable, choice)
    decision = decide(judge(rule, figures))
    if decision is None and len(usable) < rule.looks[-1]:
        return None
    kind, comparisons = decision or "inconclusive", compare(rule, figures)
    return Decision(kind, _reasons(kind, comparisons, len(usable)), comparisons)


def decide_control(pairs: Sequence[Pair], count: int, choice: MetricChoice) -> Decision | None:
    """What so many pairs of the baseline with itself come to; None where another is needed.

    An alarm says that machine or measurement favour an arm, so that nothing that they say of a candidate can be believed.
    """
    settled = decide_pairs(Rule(looks=(count,)), pairs, choice)
    if settled is not None and settled.kind == "regressed":
        reason = "The baseline was called slower than itself in the control pairs: something favours one of the arms."
        return Decision("invalid", (reason, *settled.reasons[1:]), settled.comparisons)
    return settled


def _figures(pairs: Sequence[Pair], choice: MetricChoice) -> list[Figures]:
    made = []
    for index, point in enumerate(pairs[0].baseline.points):
        gated = choice.gated(point.kind)
        for name in FIGURES if point.kind == "closed" else PERCENTILES:
            columns = [tuple(value for pair in pairs if (value := pair.runs[arm].points[index].figures.get(name))) for arm in ARMS]
            if all(len(column) == len(pairs) for column in columns):  # what is for information may be missing
                margin = MARGINS[name] if name in gated else None
                made.append(Figures(Metric(name, point.load_point, "per_s" if name == "throughput" else "ns", margin), *columns))
    rates = [tuple(_error_rate([pair.runs[arm]]) for pair in pairs) for arm in ARMS]
    return [*made, Figures(Metric(ERROR_RATE, _ALL_POINTS, "share", ERROR_RATE_BAND), *rates)]


def _error_rate(runs: Sequence[ArmRun]) -> float:
    scheduled = sum(point.scheduled for run in runs for point in run.points)
    return sum(point.failed for run in runs for point in run.points) / scheduled if scheduled else 0.0


def _what_is_missing(pairs: Sequence[Pair], choice: MetricChoice) -> str:
    """A sentence for a metric that a run lacks: it is refused, rather than left out in silence. Empty where none is."""
    expected = [(point.load_point, point.kind) for point in pairs[0].baseline.points]
    for pair in pairs:
        for arm, run in pair.runs.items():
            if [(point.load_point, point.kind) for point in run.points] != expected:
                return f"The {arm}'s run of pair {pair.number + 1} lacks a load point that another run has: they cannot be compared."
            for point in run.points:
                for name in choice.gated(point.kind):
                    if not point.figures.get(name):
                        return (
                            f"The {arm}'s run of pair {pair.number + 1} has no {name} at {point.load_point}, since too few requests carry "
                            "it: measure longer (measure.duration), or name the metrics that shall have a say (gate.metrics)."
                        )
    return ""


def _why_invalid(pairs: Sequence[Pair], usable: Sequence[Pair], choice: MetricChoice) -> str:
    discarded = [pair.invalid for pair in pairs if pair.invalid is not None]
    if len(discarded) > DISCARDED + len(usable) // 3:
        return f"In {len(discarded)} of {len(pairs)} pairs the load generator could not keep up, last so: {discarded[-1].message}"
    if usable and (missing := _what_is_missing(usable, choice)):
        return missing
    for arm in ARMS:
        runs = [pair.runs[arm] for pair in usable]
        if (rate := _error_rate(runs)) > FAILED_SHARE:
            text = next(
                (
                    warning.message
                    for run in runs
                    for point in run.points
                    for warning in point.warnings
                    if warning.code == "failed_requests"
                ),
                "",
            )
            return (
                f"{rate:.1%} of the {arm}'s requests failed, more than {FAILED_SHARE:.0%}: the times of a server that fails are no "
                f"measure of it. {text}".rstrip()
            )
        often = functools.partial(_in_most, runs)
        if found := often("not_steady"):
            return f"The {arm} was not steady in most of its runs: {found}"
        if arm == "baseline" and (found := often("overloaded")):
            return (
                f"The baseline was overloaded in most of its runs, so that its times are those of a growing queue; lower the rate. {found}"
            )
    return ""


def _in_most(runs: Sequence[ArmRun], code: str) -> str:
    """The last such warning of a load point that has it in more than half of three runs or more; empty where none has."""
    for index in range(len(runs[0].points) if len(runs) > 2 else 0):
        found = [
            f"{run.points[index].load_point}: {warning.message}"
            for run in runs
            for warning in run.points[index].warnings
            if warning.code == code
        ]
        if len(found) > len(runs) / 2:
            return found[-1]
    return ""


def _reasons(kind: str, comparisons: Sequence[Comparison], pairs: int) -> tuple[str, ...]:
    gated = [one for one in comparisons if one.gated]
    said = [one.reason for one in gated if kind in {"pass", one.verdict}]
    if kind == "pass":
        first = f"In {pairs} pairs every metric is within its margin."
    elif kind == "regressed":
        first = f"In {pairs} pairs the candidate is slower beyond noise in {len(said)} of {len(gated)} metrics."
    else:
        first = f"{pairs} pairs do not settle it: {len(said)} of {len(gated)} metrics may be unchanged or worse than their margin."
    effects = [one.minimum_detectable_effect for one in gated if one.scale == "ratio" and one.minimum_detectable_effect is not None]
    if effects:
        first += (
            f" In 9 of 10 gates as noisy as this one a slowdown of {max(effects):.1%} would be found in whichever metric it is, "
            f"in the steadiest one of {min(effects):.1%}."
        )
    return (first, *said)

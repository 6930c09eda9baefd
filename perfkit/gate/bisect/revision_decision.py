"""The decision on one revision of a bisection: from the pairs measured so far to an answer, or to None if another pair is needed. Pure."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Literal

from perfkit.bisection.folder import Interval, Regression
from perfkit.bisection.search import ALPHA, CONFIDENCE, Size, decide, most_precise
from perfkit.gate.metrics import ERROR_RATE, Metric, MetricChoice, PairedValues, build_comparison, paired_values
from perfkit.gate.paired import Rule
from perfkit.gate.paired_decision import MAXIMUM_FAILED_SHARE, find_fault
from perfkit.gate.pairs import ARMS, Pair, failed_share
from perfkit.gate.verdict import Comparison, Verdict
from perfkit.stats.signed_rank import limits
from perfkit.units import format_signed_change


@dataclasses.dataclass(frozen=True, slots=True)
class Threshold:
    """The metric that decides, and the difference above which a revision is slower than the good one."""

    metric: Metric
    value: float
    whole: float
    """The difference of the bad revision."""
    is_shown: bool
    """Whether the first gate shows that the bad revision is beyond the threshold."""
    good: float
    """The median of the good revision's figures in the first gate."""
    comparison: Comparison
    """The comparison of the bad revision with the good one in the first gate."""
    regressed: tuple[str, ...]
    """The titles of all metrics in which it has regressed."""

    @property
    def limit(self) -> str:
        """The threshold in words: `+5.1 %`, or `+0.25 points`."""
        return change_in_words(self.metric, self.value)

    @property
    def document(self) -> Regression:
        """The regression as the bisection stores it."""
        one, scaled = self.comparison, self.metric.scaled(self.value)
        assert scaled is not None
        assert one.estimate is not None
        assert one.interval is not None
        return Regression(
            metric=one.metric,
            load_point=one.load_point,
            unit=one.unit,
            scale=one.scale,
            pairs=one.pairs,
            estimate=one.estimate,
            interval=one.interval,
            confidence=CONFIDENCE,
            threshold=scaled,
            regressed=self.regressed,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What the pairs of one revision say."""

    outcome: Literal["slower", "not_slower", "undecided", "skipped", "invalid"]
    reason: str
    """A sentence without its full stop."""
    pairs: int = 0
    comparison: Comparison | None = None


def find_threshold(verdict: Verdict) -> Threshold | None:
    """The metric in which the bad revision's change is known best, and the threshold in it; None unless the verdict is a regression."""
    rule = Rule.at(*verdict.looks)
    metrics = [Metric(one.metric, one.load_point, one.unit, one.margin) for one in verdict.gated]
    bounds = [metric.bounds for metric in metrics]
    found = list[tuple[Metric, Comparison, Size]]()
    for index, (one, metric) in enumerate(zip(verdict.gated, metrics, strict=True)):
        if verdict.kind == "regressed" and one.verdict == "regressed":
            good, bad = ([value or 0.0 for value in side] for side in (one.baseline_values, one.candidate_values))
            values = PairedValues(metric, tuple(good), tuple(bad))
            size = Size.of(values.differences, rule.first_step_alpha(bounds, index, rule.looks[0]))
            found.append((metric, _compare(values), size))
    best = most_precise([size for _, _, size in found])
    if best is None:
        return None
    metric, comparison, size = found[best]
    return Threshold(
        metric,
        size.threshold,
        size.estimate,
        size.is_shown,
        statistics.median(value or 0.0 for value in comparison.baseline_values),
        comparison,
        tuple(one.title for _, one, _ in found),
    )


def decide_revision(pairs: Sequence[Pair], threshold: Threshold, choice: MetricChoice, most_pairs: int) -> Answer | None:
    """Decide from all pairs of the good revision and another; None if another pair is needed, up to `most_pairs`."""
    usable, metric = [pair for pair in pairs if pair.invalid is None], threshold.metric
    good_failed, failed = (failed_share([pair.runs[arm] for pair in usable]) for arm in ARMS)
    if failed.low > MAXIMUM_FAILED_SHARE >= good_failed.low and metric.name != ERROR_RATE:
        return Answer("skipped", f"{failed.in_words(1)} of its requests failed, so its times do not measure its speed", len(usable))
    choice = dataclasses.replace(choice, names=(metric.name,))  # other metrics may be missing
    if fault := find_fault(pairs, usable, choice):
        return Answer("invalid", fault.reason.removesuffix("."), len(usable))
    if not usable:
        return None
    all_values = paired_values(usable, choice)
    values = next(one for one in all_values if (one.metric.name, one.metric.load_point) == (metric.name, metric.load_point))
    measurable = _measurable(values.baseline, threshold)
    outcome = decide(values.differences, threshold.value, most_pairs, measurable, values.servers_differences)
    if outcome is None:
        return None
    comparison = _compare(values)
    side = {"slower": "beyond", "not_slower": "within", "undecided": "neither shown to be beyond nor within"}[outcome]
    return Answer(
        outcome,
        f"{change_in_words(metric, values.estimate, comparison.interval)}, {side} the threshold of {threshold.limit}",
        len(usable),
        comparison,
    )


def change_in_words(metric: Metric, difference: float, interval: Interval | None = None) -> str:
    """A difference as a change of the metric, with its interval on the metric's scale: `+5.1 %`, `+0.25 points [+0.10, +0.40]`."""
    scaled = metric.scaled(difference)
    assert scaled is not None
    return format_signed_change("difference" if metric.is_share else "ratio", scaled, interval)


def _measurable(good: Sequence[float], threshold: Threshold) -> float:
    """The threshold for "not slower", lower where the good revision itself is slower than in the first gate.

    Such a disturbance adds to the figures of both revisions, so that the same absolute change is a smaller ratio.
    """
    metric = threshold.metric
    if metric.is_share:
        return threshold.value
    disturbance = metric.difference(threshold.good, statistics.median(good))
    return min(threshold.value, math.log1p(math.expm1(threshold.whole) * math.exp(-disturbance)) / 2)


def _compare(values: PairedValues) -> Comparison:
    return build_comparison(
        values.metric,
        values.baseline,
        values.candidate,
        difference=values.estimate,
        limits=values.limits(lambda differences: limits(differences, ALPHA)),
        confidence=CONFIDENCE,
        pairs=len(values.baseline),
    )

"""From the figures of the pairs to a verdict on each metric, in figures and a sentence."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Literal

import numpy as np

from perfkit.gate.verdict import MAXIMUM_EFFECT, Comparison, MetricVerdict, format_change
from perfkit.stats.detectable import minimum_detectable_difference
from perfkit.stats.paired import NOISE_BAND, Bounds, Look, Rule, look
from perfkit.stats.signed_rank import hodges_lehmann, limits

MARGINS = {"throughput": 0.05, "p50": 0.05, "p95": 0.05, "p99": 0.10}
ERROR_RATE, ERROR_RATE_BAND = "error_rate", 0.001


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """What is compared at one load point; `margin` is None where it is for information alone."""

    name: str
    load_point: str
    unit: Literal["per_s", "ns", "share"]
    margin: float | None

    @property
    def is_share(self) -> bool:
        """Whether candidate and baseline are compared by difference, since the baseline may be none at all."""
        return self.unit == "share"

    @property
    def bounds(self) -> Bounds:
        """As differences; of a share band and margin are one."""
        if self.is_share:
            return Bounds(ERROR_RATE_BAND, ERROR_RATE_BAND, is_error_rate=True)
        return Bounds.of_ratio(NOISE_BAND, self.margin or NOISE_BAND)

    def difference(self, baseline: float, candidate: float) -> float:
        """How much worse the candidate is; raises ValueError for figures that have no ratio."""
        if self.is_share:
            return candidate - baseline
        if baseline <= 0 or candidate <= 0:
            raise ValueError(f"{self.name} at {self.load_point}: there is no ratio of {candidate:g} to {baseline:g}")
        return math.log(baseline / candidate) if self.unit == "per_s" else math.log(candidate / baseline)


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """One metric's figures, one of each arm a pair, in the order of measurement."""

    metric: Metric
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]

    @property
    def differences(self) -> list[float]:
        """How much worse the candidate was in each pair."""
        return [self.metric.difference(*values) for values in zip(self.baseline, self.candidate, strict=True)]


def judge(rule: Rule, figures: Sequence[Figures]) -> Look:
    """What the rule says of the metrics that have a say; all figures are of the same pairs, at least one."""
    gated = [one for one in figures if one.metric.margin is not None]
    return look(rule, [one.metric.bounds for one in gated], np.array([one.differences for one in gated]))


def compare(rule: Rule, figures: Sequence[Figures]) -> tuple[Comparison, ...]:
    """Each metric's comparison, judged as `judge` does."""
    looked, bounds = judge(rule, figures), [one.metric.bounds for one in figures if one.metric.margin is not None]
    comparisons, index = [], 0
    for one in figures:
        if one.metric.margin is None:
            comparisons.append(_comparison(rule, one, None, None, None))
        else:
            detectable = minimum_detectable_difference(rule, bounds, index, one.differences)
            comparisons.append(_comparison(rule, one, looked, index, detectable))
            index += 1
    return tuple(comparisons)


def _comparison(rule: Rule, figures: Figures, looked: Look | None, index: int | None, detectable: float | None) -> Comparison:
    metric, differences = figures.metric, np.array(figures.differences)
    low, high = (float(limit) for limit in limits(differences, rule.limit_error))
    estimate = float(hodges_lehmann(differences))
    is_rate = metric.unit == "per_s"
    ends = (-high, -low) if is_rate else (low, high)  # larger is better: the worst end of the slowdown is the lowest of the rate
    scaled = tuple(None if math.isinf(end) else _scaled(metric, end) for end in ends)
    verdict: MetricVerdict = "inconclusive"
    if looked is not None and looked.regressed[index]:
        verdict = "regressed"
    elif looked is not None and looked.passed[index]:
        verdict = "pass"
    made = Comparison(
        metric=metric.name,
        load_point=metric.load_point,
        unit=metric.unit,
        better="higher" if is_rate else "lower",
        scale="difference" if metric.is_share else "ratio",
        gated=metric.margin is not None,
        baseline=statistics.median(figures.baseline),
        candidate=statistics.median(figures.candidate),
        estimate=_scaled(metric, -estimate if is_rate else estimate),
        interval=(scaled[0], scaled[1]),
        confidence=1 - 2 * rule.limit_error,
        pairs=len(differences),
        adjusted_p=None if looked is None else float(looked.adjusted_p[index]),
        noise_band=ERROR_RATE_BAND if metric.is_share else NOISE_BAND,
        margin=metric.margin if metric.margin is not None else NOISE_BAND,
        minimum_detectable_effect=None if detectable is None else (detectable if metric.is_share else effect_of(detectable)),
        verdict=verdict,
        reason="",
        baseline_values=figures.baseline,
        candidate_values=figures.candidate,
    )
    return made.model_copy(update={"reason": _reason(made)})


def effect_of(difference: float) -> float:
    """A difference of logarithms as a slowdown, `MAXIMUM_EFFECT` at most."""
    return MAXIMUM_EFFECT if difference > math.log1p(MAXIMUM_EFFECT) else math.expm1(difference)


def _scaled(metric: Metric, difference: float) -> float:
    return difference if metric.is_share else math.exp(difference)


def _reason(made: Comparison) -> str:
    found = f"{made.title}: {format_change(made)}"
    if not made.gated:
        return f"{found}; for information, without a say in the verdict."
    if made.verdict == "regressed":
        return f"{found}, beyond the noise band of {_amount(made, made.noise_band)} (adjusted p {made.adjusted_p:.2g})."
    margin = f"the margin of {_amount(made, made.margin)}"
    if made.verdict == "pass":
        return f"{found}: worse by less than {margin}."
    return f"{found}: neither surely beyond the noise band of {_amount(made, made.noise_band)} nor surely within {margin}."


def _amount(made: Comparison, value: float) -> str:
    return f"{100 * value:g} points" if made.scale == "difference" else f"{100 * value:g} %"

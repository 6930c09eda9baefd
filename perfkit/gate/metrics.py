"""The metrics of a gate: their margins, and the comparison of one metric from its figures."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Literal

from perfkit.gate.verdict import MAXIMUM_EFFECT, Comparison, MetricVerdict, format_change
from perfkit.stats.paired import NOISE_BAND, MetricBounds

MARGINS = {"throughput": 0.05, "p50": 0.05, "p95": 0.05, "p99": 0.10}
ERROR_RATE, ERROR_RATE_BAND = "error_rate", 0.001


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """A metric at one load point; `margin` is None if it is for information only."""

    name: str
    load_point: str
    unit: Literal["per_s", "ns", "share"]
    margin: float | None

    @property
    def is_gated(self) -> bool:
        """Whether the metric counts for the verdict."""
        return self.margin is not None

    @property
    def is_share(self) -> bool:
        """Whether candidate and baseline are compared by difference: a share of the baseline may be zero."""
        return self.unit == "share"

    @property
    def noise_band(self) -> float:
        """Changes for the worse up to this size count as no change."""
        return ERROR_RATE_BAND if self.is_share else NOISE_BAND

    @property
    def bounds(self) -> MetricBounds:
        """Noise band and margin as differences; for a share the two are equal."""
        if self.is_share:
            return MetricBounds(ERROR_RATE_BAND, ERROR_RATE_BAND, is_error_rate=True)
        return MetricBounds.of_ratio(NOISE_BAND, self.margin or NOISE_BAND)

    def difference(self, baseline: float, candidate: float) -> float:
        """How much worse the candidate is: a logarithm, or a plain difference for a share. Raises ValueError if there is no ratio."""
        if self.is_share:
            return candidate - baseline
        if baseline <= 0 or candidate <= 0:
            raise ValueError(f"{self.name} at {self.load_point}: there is no ratio of {candidate:g} to {baseline:g}")
        return math.log(baseline / candidate) if self.unit == "per_s" else math.log(candidate / baseline)

    def scaled(self, difference: float | None) -> float | None:
        """A difference as candidate ÷ baseline, or as it is for a share; None for an unbounded one."""
        if difference is None or math.isinf(difference):
            return None
        return difference if self.is_share else math.exp(-difference if self.unit == "per_s" else difference)


def build_comparison(
    metric: Metric,
    baseline_values: Sequence[float],
    candidate_values: Sequence[float],
    *,
    difference: float,
    limits: tuple[float | None, float | None] | None,
    confidence: float,
    pairs: int,
    verdict: MetricVerdict,
    adjusted_p: float | None = None,
    detectable_difference: float | None = None,
) -> Comparison:
    """The comparison of a metric; `difference`, its `limits` and `detectable_difference` are as `Metric.difference` gives them."""
    effect = detectable_difference
    if effect is not None and not metric.is_share:
        effect = MAXIMUM_EFFECT if effect > math.log1p(MAXIMUM_EFFECT) else math.expm1(effect)
    interval = None if limits is None else (metric.scaled(limits[0]), metric.scaled(limits[1]))
    if interval is not None and metric.unit == "per_s":
        interval = interval[::-1]  # the largest slowdown is the lowest rate
    comparison = Comparison(
        metric=metric.name,
        load_point=metric.load_point,
        unit=metric.unit,
        better="higher" if metric.unit == "per_s" else "lower",
        scale="difference" if metric.is_share else "ratio",
        gated=metric.is_gated,
        baseline=statistics.median(baseline_values),
        candidate=statistics.median(candidate_values),
        estimate=metric.scaled(difference),
        interval=interval,
        confidence=confidence,
        pairs=pairs,
        adjusted_p=adjusted_p,
        noise_band=metric.noise_band,
        margin=metric.noise_band if metric.margin is None else metric.margin,
        minimum_detectable_effect=effect,
        verdict=verdict,
        reason="",
        baseline_values=tuple(baseline_values),
        candidate_values=tuple(candidate_values),
    )
    return comparison.model_copy(update={"reason": f"{comparison.title}: {format_change(comparison)}{_explanation(comparison)}."})


def _explanation(comparison: Comparison) -> str:
    band, margin = (
        f"{100 * value:g} {'%' if comparison.scale == 'ratio' else 'percentage point' + 's' * (value != 0.01)}"
        for value in (comparison.noise_band, comparison.margin)
    )
    if comparison.interval is None:
        return "; the variation from run to run is unknown"
    if not comparison.gated:
        return "; for information only"
    if comparison.verdict == "regressed":
        p = "" if comparison.adjusted_p is None else f" (adjusted p {comparison.adjusted_p:.2g})"
        return f", worse by more than the noise band of {band}{p}"
    if comparison.verdict == "pass":
        return f", within the margin of {margin}"
    return f": neither a regression beyond the noise band of {band} nor a change within the margin of {margin} is shown"

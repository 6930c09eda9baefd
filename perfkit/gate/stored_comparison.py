"""The comparisons of a stored gate: runs of two servers, measured at different times, compared by Student's t. Pure."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.gate.metrics import ERROR_RATE, ERROR_RATE_BAND, Metric, build_comparison
from perfkit.gate.verdict import Comparison, MetricVerdict
from perfkit.stats.distributions import student_t_quantile, student_t_tail
from perfkit.stats.paired import FALSE_ALARM_RATE, PASS_RATE, POWER, Rule, holm
from perfkit.stats.ratio_interval import Estimate, share_difference, share_interval
from perfkit.stats.variance_components import MeanDifferenceError

ERROR_RATE_MARGIN = 0.01
# the histograms' buckets are at most 1/1024 wide: runs within one bucket still differ by its rounding
MINIMUM_VARIANCE = (1 / 1024) ** 2 / 12
_CONFIDENCE = 1 - 2 * PASS_RATE
_WIDEST_LIMIT = math.log(1000)  # a limit farther out is reported as unbounded


@dataclasses.dataclass(frozen=True, slots=True)
class RunValues:
    """One metric's values, one per run; `error`, that of the difference of the means of their logarithms, is None if unknown."""

    metric: Metric
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    error: MeanDifferenceError | None

    @property
    def shift(self) -> float:
        """How much slower the candidate is, as a logarithm."""
        return statistics.fmean(slowness(self.metric, self.candidate)) - statistics.fmean(slowness(self.metric, self.baseline))

    @property
    def p(self) -> float | None:
        """The p-value of H0 "slower by no more than the noise band"; None if the error is unknown."""
        if self.error is None:
            return None
        return student_t_tail((self.shift - self.metric.bounds.band) / self.error.error, self.error.df)


@dataclasses.dataclass(frozen=True, slots=True)
class RequestCounts:
    """Failed and scheduled requests at one load point, one pair of numbers per run."""

    load_point: str
    baseline: tuple[tuple[int, int], ...]
    candidate: tuple[tuple[int, int], ...]


def slowness(metric: Metric, values: Sequence[float]) -> list[float]:
    """Logarithms of the values, of which the larger is the worse: their differences are slowdowns."""
    return [metric.difference(1.0, value) for value in values]


def compare_runs(rule: Rule, metrics: Sequence[RunValues]) -> tuple[Comparison, ...]:
    """Compare each metric: regressed with Holm's correction over all gated ones, passed by non-inferiority."""
    p_values = [values.p if values.metric.is_gated else None for values in metrics]
    tested = [p for p in p_values if p is not None]
    adjusted = iter(np.minimum(holm(np.array(tested)) * (FALSE_ALARM_RATE / rule.time_alpha), 1.0).tolist())
    return tuple(
        _comparison(rule, values, None if p is None else next(adjusted), len(tested)) for values, p in zip(metrics, p_values, strict=True)
    )


def compare_error_rates(rule: Rule, points: Sequence[RequestCounts]) -> tuple[Comparison, ...]:
    """Compare each load point's error rate with Newcombe's limits; the requests of all runs count as independent."""
    return tuple(_error_rate(rule, counts, len(points)) for counts in points)


def control_variances(comparisons: Sequence[Comparison]) -> Mapping[tuple[str, str], tuple[float, int]]:
    """The variance of one run's logarithm and its degrees of freedom, by metric and load point, from control pairs.

    The difference of a pair has twice the variance of a run. It is taken about the pairs' mean, since a constant advantage of one arm
    is not variance.
    """
    variances: dict[tuple[str, str], tuple[float, int]] = {}
    for comparison in comparisons:
        differences = [
            math.log(candidate / baseline)
            for baseline, candidate in zip(comparison.baseline_values, comparison.candidate_values, strict=True)
            if baseline and candidate and comparison.scale == "ratio"
        ]
        if len(differences) > 1:
            variances[comparison.metric, comparison.load_point] = (statistics.variance(differences) / 2, len(differences) - 1)
    return variances


def _comparison(rule: Rule, values: RunValues, adjusted_p: float | None, tested: int) -> Comparison:
    metric, shift = values.metric, values.shift
    limits = detectable = None
    verdict: MetricVerdict = "inconclusive"
    if values.error is not None:
        error, df = values.error.error, values.error.df
        half_width = student_t_quantile(1 - PASS_RATE, df) * error
        low, high = shift - half_width, shift + half_width
        limits = (None if abs(low) > _WIDEST_LIMIT else low, None if abs(high) > _WIDEST_LIMIT else high)
        quantiles = student_t_quantile(1 - rule.time_alpha / max(tested, 1), df) + student_t_quantile(POWER, df)
        detectable = metric.bounds.band + quantiles * error
        if adjusted_p is not None and adjusted_p <= FALSE_ALARM_RATE:
            verdict = "regressed"
        elif high < metric.bounds.margin:
            verdict = "pass"
    return build_comparison(
        metric,
        values.baseline,
        values.candidate,
        difference=shift,
        limits=limits,
        confidence=_CONFIDENCE,
        pairs=rule.looks[0],
        verdict=verdict,
        adjusted_p=adjusted_p,
        detectable_difference=detectable,
    )


def _error_rate(rule: Rule, counts: RequestCounts, points: int) -> Comparison:
    sides = (counts.baseline, counts.candidate)
    strict, usual = (
        share_difference(*(_share(side, 1 - 2 * error) for side in sides)) for error in (rule.error_rate_alpha / points, PASS_RATE)
    )
    verdict: MetricVerdict = "inconclusive"
    if strict.low is not None and strict.low > ERROR_RATE_BAND:
        verdict = "regressed"
    elif usual.high is not None and usual.high < ERROR_RATE_MARGIN:
        verdict = "pass"
    comparison = build_comparison(
        Metric(ERROR_RATE, counts.load_point, "share", ERROR_RATE_MARGIN),
        *([_share([run], _CONFIDENCE).value for run in side] for side in sides),
        difference=usual.value,
        limits=(usual.low, usual.high),
        confidence=_CONFIDENCE,
        pairs=rule.looks[0],
        verdict=verdict,
    )
    pooled = zip(("baseline", "candidate"), (_share(side, _CONFIDENCE).value for side in sides), strict=True)
    return comparison.model_copy(update=dict(pooled))


def _share(runs: Sequence[tuple[int, int]], confidence: float) -> Estimate:
    """The failed share of all runs' requests, with its interval; anything from 0 to 1 without requests."""
    failed, scheduled = (sum(counts) for counts in zip(*runs, strict=True))
    return share_interval(failed, scheduled, confidence) if scheduled else Estimate(0.0, 0.0, 1.0)

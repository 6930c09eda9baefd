"""From runs of two servers, measured at different times, to a verdict on each metric: Student's t with a limit that is known beforehand."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.gate.metrics import ERROR_RATE, ERROR_RATE_BAND, Metric, effect_of
from perfkit.gate.verdict import Comparison, MetricVerdict, format_change
from perfkit.stats.distributions import student_t_quantile, student_t_tail
from perfkit.stats.paired import FALSE_ALARM_RATE, NOISE_BAND, PASS_RATE, POWER, Rule, holm
from perfkit.stats.ratio_interval import Estimate, share_difference, share_interval
from perfkit.stats.variance_components import pooled_variance, variance_components

ERROR_RATE_MARGIN = 0.01
_CONFIDENCE = 1 - 2 * PASS_RATE
# times are known to a bucket of the histograms, 1/1024 wide at most: runs that agree to the bucket differ by as much as its rounding
_LEAST_VARIANCE = (1 / 1024) ** 2 / 12
_BOUNDED = math.log(1000)  # an interval's end farther out bounds nothing


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """How the difference of two means varies though nothing changed: of logarithms, with its degrees of freedom."""

    error: float
    df: int


@dataclasses.dataclass(frozen=True, slots=True)
class RunFigures:
    """One metric's figures, one a run; `spread` is None where it is not known how such runs differ."""

    metric: Metric
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    spread: Spread | None

    @property
    def shift(self) -> float:
        """How much slower the candidate is, as a logarithm."""
        return statistics.fmean(slowness(self.metric, self.candidate)) - statistics.fmean(slowness(self.metric, self.baseline))

    @property
    def p(self) -> float | None:
        """Of H0 "slower by no more than the noise band"."""
        if self.spread is None:
            return None
        beyond = self.shift - self.metric.bounds.band
        return student_t_tail(beyond / self.spread.error, self.spread.df)


@dataclasses.dataclass(frozen=True, slots=True)
class Failures:
    """Failed and scheduled requests at one load point, a pair a run."""

    load_point: str
    baseline: tuple[tuple[int, int], ...]
    candidate: tuple[tuple[int, int], ...]


def slowness(metric: Metric, figures: Sequence[float]) -> list[float]:
    """Logarithms whose differences are slowdowns."""
    return [metric.difference(1.0, figure) for figure in figures]


def known_spread(
    baseline: Sequence[Sequence[float]],
    candidate: Sequence[Sequence[float]],
    control: tuple[float, int] | None,
    *,
    runs: tuple[int, int],
    is_one_host: bool,
) -> Spread | None:
    """The spread of the difference of two means, √(2σ_h² + σ_r²(1/n + 1/n')); None where σ_r, or σ_h where it counts, is not known.

    `baseline` and `candidate` are all runs' logarithms, a group a host; `runs` are n and n', those that the means are of. σ_r is pooled
    from both and from `control`, a variance with its degrees of freedom; σ_h is the baseline's, with as many degrees of freedom as it
    has hosts less one, and left out where both means are of one host; no less than the histograms' rounding counts as σ_r. Assumption: logarithms of runs near to normal.
    """
    base, other = variance_components(baseline), variance_components(candidate)
    within, df = pooled_variance([(base.within, base.within_df), (other.within, other.within_df), *([control] if control else [])])
    if within is None:
        return None
    square = max(within, _LEAST_VARIANCE) * (1 / runs[0] + 1 / runs[1])
    if is_one_host:
        return Spread(math.sqrt(square), df)
    return None if base.between is None else Spread(math.sqrt(2 * base.between + square), min(base.between_df, df))


def compare_runs(rule: Rule, figures: Sequence[RunFigures]) -> tuple[Comparison, ...]:
    """Each metric's comparison: regressed by Holm's correction over all that have a say, passed by non-inferiority."""
    ps = [one.p if one.metric.margin is not None else None for one in figures]
    tested = [p for p in ps if p is not None]
    adjusted = iter(np.minimum(holm(np.array(tested)) * (FALSE_ALARM_RATE / rule.times_rate), 1.0).tolist())
    return tuple(_comparison(rule, one, None if p is None else next(adjusted), len(tested)) for one, p in zip(figures, ps, strict=True))


def compare_failures(rule: Rule, points: Sequence[Failures]) -> tuple[Comparison, ...]:
    """Each load point's error rate: requests of all runs together, counted as independent, with Newcombe's limits."""
    return tuple(_error_rate(rule, one, len(points)) for one in points)


def control_variances(comparisons: Sequence[Comparison]) -> Mapping[tuple[str, str], tuple[float, int]]:
    """By metric and load point the variance of one run's logarithm, from pairs of the baseline with itself, and its degrees of freedom.

    A pair's difference has twice a run's variance. The differences' own mean is taken off, though it should be zero: what favours
    one arm is no variance.
    """
    found: dict[tuple[str, str], tuple[float, int]] = {}
    for one in comparisons:
        pairs = [
            math.log(other / base)
            for base, other in zip(one.baseline_values, one.candidate_values, strict=True)
            if base and other and one.scale == "ratio"
        ]
        if len(pairs) > 1:
            found[one.metric, one.load_point] = (statistics.variance(pairs) / 2, len(pairs) - 1)
    return found


def _comparison(rule: Rule, figures: RunFigures, adjusted_p: float | None, tested: int) -> Comparison:
    metric, spread, shift = figures.metric, figures.spread, figures.shift
    low = high = detectable = None
    verdict: MetricVerdict = "inconclusive"
    if spread is not None:
        reach = student_t_quantile(1 - PASS_RATE, spread.df) * spread.error
        low, high = shift - reach, shift + reach
        t = student_t_quantile(1 - rule.times_rate / max(tested, 1), spread.df) + student_t_quantile(POWER, spread.df)
        detectable = effect_of(metric.bounds.band + t * spread.error)
        if adjusted_p is not None and adjusted_p <= FALSE_ALARM_RATE:
            verdict = "regressed"
        elif high < metric.bounds.margin:
            verdict = "pass"
    is_rate = metric.unit == "per_s"
    ends = [
        None if end is None or abs(end) > _BOUNDED else math.exp(-end if is_rate else end)
        for end in ((high, low) if is_rate else (low, high))
    ]
    made = Comparison(
        metric=metric.name,
        load_point=metric.load_point,
        unit=metric.unit,
        better="higher" if is_rate else "lower",
        gated=metric.margin is not None,
        baseline=statistics.median(figures.baseline),
        candidate=statistics.median(figures.candidate),
        estimate=math.exp(-shift if is_rate else shift),
        interval=None if spread is None else (ends[0], ends[1]),
        confidence=_CONFIDENCE,
        pairs=rule.looks[0],
        adjusted_p=adjusted_p,
        noise_band=NOISE_BAND,
        margin=metric.margin if metric.margin is not None else NOISE_BAND,
        minimum_detectable_effect=detectable,
        verdict=verdict,
        reason="",
        baseline_values=figures.baseline,
        candidate_values=figures.candidate,
    )
    return made.model_copy(update={"reason": _reason(made, is_known=spread is not None)})


def _error_rate(rule: Rule, failures: Failures, points: int) -> Comparison:
    sides = (failures.baseline, failures.candidate)
    strict, usual = (share_difference(*(_share(side, 1 - 2 * error) for side in sides)) for error in (rule.errors_rate / points, PASS_RATE))
    verdict: MetricVerdict = "inconclusive"
    if strict.low is not None and strict.low > ERROR_RATE_BAND:
        verdict = "regressed"
    elif usual.high is not None and usual.high < ERROR_RATE_MARGIN:
        verdict = "pass"
    made = Comparison(
        metric=ERROR_RATE,
        load_point=failures.load_point,
        unit="share",
        better="lower",
        scale="difference",
        baseline=_share(sides[0], _CONFIDENCE).value,
        candidate=_share(sides[1], _CONFIDENCE).value,
        estimate=usual.value,
        interval=(usual.low, usual.high),
        confidence=_CONFIDENCE,
        pairs=rule.looks[0],
        noise_band=ERROR_RATE_BAND,
        margin=ERROR_RATE_MARGIN,
        verdict=verdict,
        reason="",
        baseline_values=tuple(_share([run], _CONFIDENCE).value for run in sides[0]),
        candidate_values=tuple(_share([run], _CONFIDENCE).value for run in sides[1]),
    )
    return made.model_copy(update={"reason": _reason(made, is_known=True)})


def _share(runs: Sequence[tuple[int, int]], confidence: float) -> Estimate:
    failed, scheduled = (sum(counts) for counts in zip(*runs, strict=True))
    return share_interval(failed, scheduled, confidence) if scheduled else Estimate(0.0, 0.0, 1.0)


def _reason(made: Comparison, *, is_known: bool) -> str:
    found = f"{made.title}: {format_change(made)}"
    if not is_known:
        return f"{found}; how such runs differ by themselves is not known."
    if not made.gated:
        return f"{found}; for information, without a say in the verdict."
    ending = {
        "regressed": f"beyond the noise band of {made.noise_band:.1%}",
        "pass": f"worse by less than the margin of {made.margin:.0%}",
        "inconclusive": f"neither surely beyond the noise band of {made.noise_band:.1%} nor surely within the margin of {made.margin:.0%}",
    }[made.verdict]
    p = "" if made.adjusted_p is None or made.verdict != "regressed" else f" (adjusted p {made.adjusted_p:.2g})"
    return f"{found}, {ending}{p}."

"""The rule by which a gate decides from stored runs of two servers, measured at different times: an exact test of sittings.

All differences are slowdowns on a logarithmic scale, or differences of a share; above 0 the candidate is worse. A sitting is what one
machine measured without a long pause, and what its runs have in common is no property of the server. So a sitting is the unit of the test where
there are enough of them; otherwise the units are runs, and the times and rates of the two sides may differ besides by what sittings differ by
(`shift_allowances`).
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from perfkit.gate.metrics import Metric, MetricTests, build_comparison
from perfkit.gate.paired import FALSE_ALARM_RATE, PASS_RATE, POWER, Look, MetricBounds
from perfkit.gate.verdict import Comparison
from perfkit.stats.probability import normal_quantile, student_t_quantile
from perfkit.stats.ratio_interval import Estimate, difference_of, share_interval
from perfkit.stats.signed_rank import Array
from perfkit.stats.slo import FailedShare

MAXIMUM_ARRANGEMENTS = 20_000
"""With more of them, `SAMPLED_ARRANGEMENTS` are drawn at random."""
SAMPLED_ARRANGEMENTS = 9_999
_LARGEST_PART = 2**20  # sums of ranks held at once, which fit into a cache


def step_down_p(values: Array, second: int) -> Array:
    """One-sided p-values of "the second sample is no larger", adjusted for the number of metrics: shape [..., metrics].

    `values` has shape [..., metrics, runs]; the last `second` runs are the second sample. The statistic of an arrangement of the runs is
    the largest rank sum over the metrics, with mean ranks for ties; p is the share of arrangements with a statistic at least as large as
    the actual one, (z + 1) / (B + 1) for B drawn ones. From the metric with the largest rank sum to that with the smallest, each is
    compared with the metrics that are left. Source: P. H. Westfall & S. S. Young, *Resampling-Based Multiple Testing*, 1993, the step-down
    maxT procedure: the probability that any metric without a shift has p <= α is at most α.

    This also holds if the second sample's values are lower than an exchangeable sample's by any amounts that are never below zero, different
    for each run and metric: no such loss in one metric makes an alarm in another likelier than α. Proof: fix the values without the losses;
    let z(L) be the data if the runs L are the second sample and so have the losses, and T(M; z) the statistic of the runs M in the data z,
    which rises with the values of M and falls with those of the other runs. Of all L that are rejected in z(L), let K have the smallest
    T(K; z(K)). For any other one, L, z(K) differs from z(L) by fewer losses in L and more outside of it, so T(L; z(K)) >= T(L; z(L)) >=
    T(K; z(K)). Each rejected L is thus one of the arrangements that count for the p of K in z(K), of which there are at most α of all.

    Raises ValueError for values that are not finite and without runs in a sample.
    """
    values = np.asarray(values, np.float64)
    if not 0 < second < values.shape[-1] or not np.isfinite(values).all():
        raise ValueError("a rank-sum test needs finite values in two samples")
    arranged = arrangements(values.shape[-1], second).T
    cases = values.reshape(-1, *values.shape[-2:])
    part = max(1, _LARGEST_PART // (values.shape[-2] * arranged.shape[-1]))
    p = [_step_down(_doubled_ranks(cases[start : start + part]), arranged) for start in range(0, len(cases), part)]
    return np.concatenate(p).reshape(values.shape[:-1]) if p else np.empty(values.shape[:-1])


def shift(first: Array, second: Array) -> Array:
    """By how much the second sample is larger: the median of all differences, shape [...] for samples [..., n] and [..., m].

    Source: J. L. Hodges and E. L. Lehmann, Ann. Math. Statist. 34, 1963.
    """
    return np.asarray(np.median(_differences(first, second), axis=-1))


def shift_limits(first: Array, second: Array, alpha: float) -> tuple[Array, Array]:
    """One-sided lower and upper confidence limits of the shift, each at level 1 - `alpha`; infinite for too few values.

    They enclose the shifts that the rank-sum test does not reject (M. Hollander and D. A. Wolfe, *Nonparametric Statistical
    Methods*, 4.3).
    """
    differences = np.sort(_differences(first, second), axis=-1)
    beyond = cut_off(np.shape(first)[-1], np.shape(second)[-1], alpha)
    if beyond == 0:
        return np.full(differences.shape[:-1], -np.inf), np.full(differences.shape[:-1], np.inf)
    return differences[..., beyond - 1], differences[..., -beyond]


@functools.cache
def cut_off(first: int, second: int, alpha: float) -> int:
    """The largest k with P[U < k] <= alpha, where U counts the differences below zero of samples without ties; 0 if even U = 0 is likelier."""
    return int((np.cumsum(_null_counts(first, second)) <= alpha * math.comb(first + second, second) * (1 + 1e-12)).sum())


@functools.cache
def arrangements(runs: int, second: int) -> NDArray[np.float32]:
    """Which runs are the second sample, as ones, shape [arrangements, runs]: the last ones first, then all others or a seeded sample.

    With a sample the test is exact over all samples; a single one, the same in every gate, moves a p-value of 1 % by about 0.1 points.
    """
    if math.comb(runs, second) <= MAXIMUM_ARRANGEMENTS:
        chosen = np.array(list(itertools.combinations(range(runs - 1, -1, -1), second)))
    else:
        rng = np.random.default_rng(0)
        drawn = rng.random((SAMPLED_ARRANGEMENTS, runs)).argpartition(second, axis=-1)[:, :second]
        chosen = np.concatenate([np.arange(runs - second, runs)[None], drawn])
    made = np.zeros((len(chosen), runs), np.float32)
    np.put_along_axis(made, chosen, 1.0, -1)
    return made


def _doubled_ranks(values: Array) -> NDArray[np.float32]:
    """Twice the mean ranks along the last axis, from 0: whole numbers, so that their sums are exact."""
    above, equal = (compare(values[..., :, None], values[..., None, :]).sum(-1) for compare in (np.greater, np.equal))
    return np.asarray(2 * above + equal - 1, np.float32)


def _step_down(ranks: NDArray[np.float32], arranged: NDArray[np.float32]) -> Array:
    """Adjusted p-values for ranks of shape [cases, metrics, runs], the actual arrangement being the first."""
    actual = ranks @ arranged[:, 0]
    order = np.argsort(-actual, axis=-1, kind="stable")
    sums = np.take_along_axis(ranks, order[..., None], 1) @ arranged
    stepped, largest = np.empty(actual.shape), np.zeros_like(sums[:, 0])
    for metric in reversed(range(actual.shape[-1])):
        np.maximum(largest, sums[:, metric], out=largest)
        stepped[:, metric] = np.count_nonzero(largest >= sums[:, metric, :1], axis=-1) / arranged.shape[-1]
    p = np.empty_like(stepped)
    np.put_along_axis(p, order, np.maximum.accumulate(stepped, axis=-1), -1)
    return p


def _differences(first: Array, second: Array) -> Array:
    """All differences, second − first, shape [..., n · m]."""
    made = np.asarray(second)[..., :, None] - np.asarray(first)[..., None, :]
    return np.asarray(made.reshape(*made.shape[:-2], -1))


def _null_counts(first: int, second: int) -> Array:
    """How many arrangements have U = 0, 1, ..., n · m: the coefficients of the Gaussian binomial.

    Source: H. B. Mann & D. R. Whitney, Ann. Math. Statist. 18, 1947.
    """
    size = first * second + 1
    counts = np.zeros(size)
    counts[0] = 1.0
    for step in range(1, second + 1):  # the product of (1 - q^(n+i)) / (1 - q^i)
        power = first + step
        if power < size:
            counts[power:] -= counts[: size - power].copy()
        for index in range(step, size):
            counts[index] += counts[index - step]
    return counts


LARGEST_SHIFT = 0.08
"""The standard deviation by which sittings are assumed to differ at most, all times and rates of one together, where too few of them show it."""
FEWEST_CANDIDATE_UNITS = 3
RECOMMENDED_SITTINGS = (10, 5)
"""The recommended numbers of sittings of the baseline and of the candidate."""
_FEWEST_ARRANGEMENTS = math.ceil(1 / FALSE_ALARM_RATE)
_SHIFT_RATE = FALSE_ALARM_RATE / 2  # for a larger shift; the other half and more is for the runs
_SIMULATED_GATES = 500


class Sittings(NamedTuple):
    """How many units each sitting has, for each side, in their order; one each where the sittings are the units."""

    baseline: tuple[int, ...]
    candidate: tuple[int, ...]

    @property
    def are_enough(self) -> bool:
        """Whether the sittings can be tested by themselves."""
        return not any(missing_units(len(self.baseline), len(self.candidate)))

    @property
    def spread(self) -> float:
        """The standard deviation of the difference of the sides' means, in that of a sitting: √(Σ (n_i/n)² + Σ (m_j/m)²)."""
        return math.sqrt(sum((size / sum(sizes)) ** 2 for sizes in self for size in sizes))

    @property
    def largest_allowance(self) -> float:
        """The slowdown up to which no regression is called, for sittings that differ by `LARGEST_SHIFT`, besides the noise band; 0 for enough of them."""
        return 0.0 if self.are_enough else math.expm1(LARGEST_SHIFT * normal_quantile(1 - _SHIFT_RATE) * self.spread)


def shift_allowances(bounds: Sequence[MetricBounds], baseline: Array, candidate: Array, sittings: Sittings, alpha: float) -> Array:
    """The differences that the sittings alone exceed with a probability of `alpha`, either way, shape [..., metrics]; none in an error rate.

    None if there are enough sittings: then they are the units, and scatter in the test by themselves. Otherwise the difference of the sides' means
    has the standard deviation s · `Sittings.spread`. s is `LARGEST_SHIFT`, with the normal quantile, or that of the means of the sittings about
    those of their sides, with Student's quantile, whichever allows less: the more sittings there are, the better they show it.
    """
    allowed = np.zeros(np.shape(baseline)[:-1])
    if sittings.are_enough:
        return allowed
    allowed += LARGEST_SHIFT * normal_quantile(1 - alpha)
    if (degrees := sum(map(len, sittings)) - 2) > 0:
        squares = sum(_scatter(np.asarray(side), sizes) for side, sizes in zip((baseline, candidate), sittings, strict=True))
        allowed = np.minimum(allowed, student_t_quantile(1 - alpha, degrees) * np.sqrt(squares / degrees))
    return np.where(_is_error_rate(bounds)[:, 0], 0.0, sittings.spread * allowed)


def _scatter(runs: Array, sizes: Sequence[int]) -> Array:
    """The squares of the means of the sittings about their mean, shape [...]."""
    means = np.add.reduceat(runs, np.cumsum([0, *sizes[:-1]]), axis=-1) / np.array(sizes)
    return np.asarray(((means - means.mean(-1, keepdims=True)) ** 2).sum(-1))


def judge_runs(bounds: Sequence[MetricBounds], baseline: Array, candidate: Array, sittings: Sittings) -> Look:
    """Tests slownesses of shape [..., metrics, units]; there must be enough units (`missing_units`).

    Regressed: the permutation test of `step_down_p` rejects H0 "worse by no more than the band and the allowance together", with one error
    rate for all metrics. Passed: the upper limit of the shift, at 95 %, and the allowance stay below the margin together. A pass needs all
    metrics, so these limits need no correction (R. L. Berger, Technometrics 24, 1982). An error rate passes here by its runs; it needs enough
    requests besides.
    """
    least = _no_change(bounds, baseline, candidate, sittings)
    values = np.concatenate([baseline, np.asarray(candidate) - least], axis=-1)
    # rates without any error stay equal: lowered by the band, they would make the opposite arrangement as extreme as a regression
    adjusted = step_down_p(np.where(_is_error_rate(bounds), np.maximum(values, 0.0), values), np.shape(candidate)[-1])
    high = shift_limits(baseline, candidate, PASS_RATE)[1] + shift_allowances(bounds, baseline, candidate, sittings, PASS_RATE)
    return Look(adjusted, adjusted <= FALSE_ALARM_RATE, high < np.array([one.margin for one in bounds]))


def improved_runs_p(bounds: Sequence[MetricBounds], baseline: Array, candidate: Array, sittings: Sittings) -> Array:
    """P-values of H0 "better by no more than the band and the allowance together", shape [..., metrics]: the mirrored test of `judge_runs`."""
    least = _no_change(bounds, baseline, candidate, sittings)
    values = -np.concatenate([baseline, candidate + least], axis=-1)
    return step_down_p(np.where(_is_error_rate(bounds), np.minimum(values, -least), values), np.shape(candidate)[-1])


def _no_change(bounds: Sequence[MetricBounds], baseline: Array, candidate: Array, sittings: Sittings) -> Array:
    """The differences that count as no change, shape [..., metrics, 1]."""
    bands = np.array([one.band for one in bounds])
    return (bands + shift_allowances(bounds, baseline, candidate, sittings, _SHIFT_RATE))[..., None]


def _is_error_rate(bounds: Sequence[MetricBounds]) -> npt.NDArray[np.bool_]:
    return np.array([[one.is_error_rate] for one in bounds])


def estimate_shift(
    bounds: MetricBounds, baseline: Sequence[float], candidate: Sequence[float], sittings: Sittings
) -> tuple[float, float, float]:
    """How much worse the candidate is, and the limits of that at 95 % each, farther out by the allowance; infinite for too few units."""
    one, other = np.asarray(baseline, np.float64), np.asarray(candidate, np.float64)
    low, high = shift_limits(one, other, PASS_RATE)
    (allowed,) = shift_allowances([bounds], one[None], other[None], sittings, PASS_RATE)
    return float(shift(one, other)), float(low - allowed), float(high + allowed)


def missing_units(baseline: int, candidate: int) -> tuple[int, int]:
    """How many more runs, or sittings, of the baseline and of the candidate a test of them needs.

    The candidate needs three, and there must be 100 ways to arrange all, since the smallest p is one of them. More of the candidate are
    asked for first, up to the recommended number.
    """
    more = max(FEWEST_CANDIDATE_UNITS, candidate)
    while math.comb(baseline + more, more) < _FEWEST_ARRANGEMENTS and more < RECOMMENDED_SITTINGS[1]:
        more += 1
    needed = baseline
    while math.comb(needed + more, more) < _FEWEST_ARRANGEMENTS:
        needed += 1
    return needed - baseline, more - candidate


def detectable_shift(
    bounds: Sequence[MetricBounds], index: int, baseline: Sequence[float], candidate: Sequence[float], sittings: Sittings
) -> float | None:
    """The difference in metric `index` alone that 90 % of gates would detect if their units are as noisy as these; None for too few.

    Gates are simulated from the residuals of both sides about their medians; √(n/(n-2)) corrects the variance that so few residuals lack.
    A gate detects a shift that exceeds band and allowance by more than its lower limit is below zero, at the first step of Bonferroni's
    correction, whichever the other metrics are; if there are too few units for that, at the smallest p that they can have, which takes all
    metrics to be worse together. Where the units are runs, the sittings are taken to be alike. This is an approximation, with a fixed seed.
    """
    one, other = np.asarray(baseline, np.float64), np.asarray(candidate, np.float64)
    if any(missing_units(one.size, other.size)):
        return None
    runs = one.size + other.size
    beyond = max(cut_off(one.size, other.size, FALSE_ALARM_RATE / len(bounds)), 1)
    residuals = np.concatenate([one - np.median(one), other - np.median(other)]) * math.sqrt(runs / (runs - 2))
    drawn = np.random.default_rng(0).choice(residuals, (_SIMULATED_GATES, runs))
    differences = (drawn[:, one.size :, None] - drawn[:, None, : one.size]).reshape(_SIMULATED_GATES, -1)
    lowest = np.partition(differences, beyond - 1, axis=-1)[:, beyond - 1]
    (least,) = _no_change([bounds[index]], one[None], other[None], sittings)[:, 0]
    return float(least - np.quantile(lowest, 1 - POWER))


STORED_MARGINS = {"throughput": 0.15, "p50": 0.15, "p95": 0.15, "p99": 0.20}
"""Slowdowns that a pass must rule out: wider than a paired gate's, since sittings differ."""
_CONFIDENCE = 1 - 2 * PASS_RATE
FailedRequests: TypeAlias = tuple[int, FailedShare]
"""Scheduled requests, and the share of them that failed."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunValues:
    """One metric's values, one for each unit of a side."""

    metric: Metric
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    requests: tuple[tuple[FailedRequests, ...], tuple[FailedRequests, ...]] | None = None
    """For an error rate: the requests behind each value, of the baseline and of the candidate."""

    @classmethod
    def of_errors(cls, metric: Metric, baseline: Sequence[FailedRequests], candidate: Sequence[FailedRequests]) -> "RunValues":
        """The error rate, from the requests of each run."""
        base, other = (tuple(share.estimate for _, share in side) for side in (baseline, candidate))
        return cls(metric, base, other, (tuple(baseline), tuple(candidate)))

    @property
    def logs(self) -> tuple[list[float], list[float]]:
        """Both sides on the scale of the tests, of which the larger is the worse."""
        origin = 0.0 if self.metric.is_share else 1.0
        baseline, candidate = ([self.metric.difference(origin, value) for value in side] for side in (self.baseline, self.candidate))
        return baseline, candidate


def compare_runs(metrics: Sequence[RunValues], sittings: Sittings) -> tuple[Comparison, ...]:
    """Compare each metric; all have the same units. With too few units none has a verdict."""
    gated = [values for values in metrics if values.metric.is_gated]
    bounds = [values.metric.bounds for values in gated]
    tests: Iterator[MetricTests] = iter(())
    if not any(missing_units(len(metrics[0].baseline), len(metrics[0].candidate))):
        baseline, candidate = (np.array(side) for side in zip(*(values.logs for values in gated), strict=True))
        improvement = improved_runs_p([values.metric.improvement_bounds for values in gated], baseline, candidate, sittings)
        tests = MetricTests.of_each(judge_runs(bounds, baseline, candidate, sittings), improvement)
    places = iter(range(len(gated)))
    return tuple(
        _comparison(values, sittings, next(tests, None), detectable_shift(bounds, next(places), *values.logs, sittings))
        if values.metric.is_gated
        else _comparison(values, sittings)
        for values in metrics
    )


def pooled_errors(baseline: Sequence[FailedRequests], candidate: Sequence[FailedRequests]) -> Estimate:
    """The difference of the failed shares of all requests, candidate − baseline, with Newcombe's limits at 95 % each."""
    return difference_of(_share(baseline), _share(candidate))


def _comparison(values: RunValues, sittings: Sittings, tested: MetricTests | None = None, detectable: float | None = None) -> Comparison:
    difference, low, high = _interval(values, sittings)
    if tested is not None and tested.verdict == "pass" and high >= values.metric.bounds.margin:  # too few requests
        tested = tested._replace(verdict="inconclusive")
    comparison = build_comparison(
        values.metric,
        values.baseline,
        values.candidate,
        difference=difference,
        limits=(low, high) if math.isfinite(low) and math.isfinite(high) else None,
        confidence=_CONFIDENCE,
        pairs=min(len(values.baseline), len(values.candidate)),
        tested=tested,
        detectable_difference=detectable,
    )
    if values.requests is None:
        return comparison
    pooled = zip(("baseline", "candidate"), (_share(side).value for side in values.requests), strict=True)
    return comparison.model_copy(update=dict(pooled))


def _interval(values: RunValues, sittings: Sittings) -> tuple[float, float, float]:
    """The shift and its limits; those of an error rate enclose Newcombe's of all requests, which few requests leave wide."""
    difference, low, high = estimate_shift(values.metric.bounds, *values.logs, sittings)
    if values.requests is None:
        return difference, low, high
    pooled = pooled_errors(*values.requests)
    assert pooled.low is not None
    assert pooled.high is not None
    return pooled.value, min(pooled.low, low), max(pooled.high, high)


def _share(runs: Sequence[FailedRequests]) -> Estimate:
    """The failed share of all runs' requests, with its interval; anything from 0 to 1 without requests."""
    scheduled = sum(number for number, _ in runs)
    return share_interval(*FailedShare.over(runs).independent(scheduled), _CONFIDENCE) if scheduled else Estimate(0.0, 0.0, 1.0)

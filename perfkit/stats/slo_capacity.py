"""Capacity: the highest arrival rate that meets a limit on a percentile, with its confidence interval."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.buckets import BucketCounts, bucket_bounds_ns
from perfkit.stats.distributions import student_t_quantile
from perfkit.stats.rate_curve import RateCurve, refit_crossing

_Numbers = npt.NDArray[np.float64]
REPLICATES = 400
CONFIDENCE = 0.9
"""The confidence of the two-sided interval, whose lower end is a one-sided 95 % limit."""


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """λ*, the highest rate that meets the SLO; plans use `low_per_s`, its 95 % lower limit."""

    per_s: float
    low_per_s: float
    high_per_s: float
    replicates: int
    is_cut: bool = False
    """Whether the lowest rate with overload or too many errors limits it, below where the curve meets the limit."""
    draws_per_s: tuple[float, ...] = dataclasses.field(default=(), repr=False, metadata={"is_stored": False})
    """The bootstrap's replicates of the capacity, ascending: its distribution, of which the interval's ends are quantiles."""


class BatchedTimes:
    """The times at one rate in batches, all repetitions together, for resampling."""

    def __init__(self, batches: Sequence[BucketCounts]) -> None:
        filled = BucketCounts.merged(batches).indices
        self._counts = np.zeros((len(batches), filled.size))
        for row, batch in enumerate(batches):
            self._counts[row, np.searchsorted(filled, batch.indices)] = batch.counts
        self._highs_ns = bucket_bounds_ns(filled)[1].astype(np.float64)

    def resampled_percentile_ns(self, quantile: float, random: np.random.Generator) -> float | None:
        """The percentile of as many batches, drawn with replacement; None if they are empty."""
        number = self._counts.shape[0]
        weights = np.bincount(random.integers(0, number, number), minlength=number) if number else np.zeros(0)
        cumulated = np.cumsum(weights @ self._counts)
        if not cumulated.size or not cumulated[-1]:
            return None
        rank = max(math.floor(quantile * cumulated[-1] + 0.5), 1)
        return float(self._highs_ns[np.searchsorted(cumulated, rank)])


def capacity_under_limit(
    curve: RateCurve,
    rates_per_s: Sequence[float],
    values_ns: Sequence[float],
    times: Sequence[BatchedTimes | None],
    quantile: float,
    limit_ns: float,
    random: np.random.Generator,
    *,
    ceiling_per_s: float = math.inf,
    replicates: int = REPLICATES,
) -> Capacity:
    """The rate at which the curve through the measured percentiles meets the limit, with an interval by the bootstrap.

    Each replicate resamples the batches at every rate, which reproduces the variation of the queue (a rate without batches, None,
    varies by the spread within runs instead). It refits the curve, and shifts the server's speed by the uncertainty of the mean over
    restarts, s_run·t/√R: a bootstrap of few restarts would understate it. A server slower by ε has a capacity lower by
    ε·(1+S)/S, S = d ln q/d ln λ. `ceiling_per_s` is a rate that fails for another reason: the capacity is at most that, and
    lower by ε for a server slower by ε.

    Sources: B. Efron & R. J. Tibshirani, *An Introduction to the Bootstrap* (1993), chapters 8 and 13; H. R. Künsch (1989) for
    blocks. Assumptions: batches longer than the correlation of the queue, and a curve of the fitted form.
    """
    rate, value = np.asarray(rates_per_s, dtype=np.float64), np.asarray(values_ns, dtype=np.float64)
    estimate = curve.crossing(limit_ns)
    if not estimate:
        return Capacity(0.0, 0.0, 0.0, 0)
    spread, replicated = curve.spread, []
    sensitivities = np.array([curve.sensitivity(one) for one in rate])
    shifts = _shuffled_t_quantiles(random, replicates, spread.run_degrees) * spread.run_sd / math.sqrt(spread.runs)
    for shift in shifts:
        resampled = value * np.exp(random.normal(0.0, spread.within_sd, rate.size) * sensitivities)
        for index, batched in enumerate(times):
            if batched is not None and (percentile_ns := batched.resampled_percentile_ns(quantile, random)):
                resampled[index] = percentile_ns
        crossing = refit_crossing(curve, rate, resampled, limit_ns)
        sensitivity = curve.sensitivity(min(max(crossing, 0.1 * estimate), curve.saturation_per_s * 0.999))
        replicated.append(min(crossing * math.exp(-shift * sensitivity / max(sensitivity - 1, 0.1)), ceiling_per_s * math.exp(-shift)))
    low, high = (float(one) for one in np.quantile(replicated, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]))
    cut = min(estimate, ceiling_per_s)
    draws = tuple(sorted(float(one) for one in replicated))
    return Capacity(cut, min(low, cut), min(max(high, cut), ceiling_per_s), replicates, is_cut=estimate > ceiling_per_s, draws_per_s=draws)


def _shuffled_t_quantiles(random: np.random.Generator, number: int, degrees: float) -> _Numbers:
    """Quantiles of Student's t at evenly spaced probabilities in random order: a sample with little noise."""
    probabilities = (np.arange(number) + 0.5) / number
    values = np.array([student_t_quantile(float(one), max(1, math.floor(degrees))) for one in probabilities])
    return random.permutation(values)

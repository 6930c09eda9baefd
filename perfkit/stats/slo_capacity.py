"""Capacity: the highest arrival rate that meets a limit on a percentile, with its interval."""

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
"""Of the two-sided interval: its lower end is a 95 % lower limit."""


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """λ*: the highest rate whose SLO holds; `low_per_s` is the 95 % lower limit that plans use."""

    per_s: float
    low_per_s: float
    high_per_s: float
    replicates: int
    is_cut: bool = False
    """Whether the lowest rate at which the target was overloaded, or its errors were too many, cut it short of the curve."""


class BatchedTimes:
    """The times at one rate, all repetitions, in batches that can be drawn again."""

    def __init__(self, batches: Sequence[BucketCounts]) -> None:
        filled = BucketCounts.merged(batches).indices
        self._counts = np.zeros((len(batches), filled.size))
        for row, batch in enumerate(batches):
            self._counts[row, np.searchsorted(filled, batch.indices)] = batch.counts
        self._highs_ns = bucket_bounds_ns(filled)[1].astype(np.float64)

    def resampled_percentile_ns(self, quantile: float, random: np.random.Generator) -> float | None:
        """The percentile of as many batches drawn with replacement; None where they are empty."""
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
    """Where the curve through the measured percentiles meets the limit, and its interval by drawing again and refitting.

    Each replicate draws the batches at every rate with replacement, which holds the luck of the queue (a rate without
    batches, None, is scattered by the spread within runs instead), refits the curve, and shifts the server's speed
    by what is not known of the restarts' mean: s_run·t/√R, so that few restarts, which a bootstrap of themselves would
    pretend to know, tell honestly. A speed lower by ε costs the capacity ε·(1+S)/S, S = d ln q/d ln λ. `ceiling_per_s` is a rate
    that is known to fail for another reason: no capacity lies above it, and for a server slower by ε it lies ε lower.

    Sources: B. Efron & R. J. Tibshirani, *An Introduction to the Bootstrap* (1993), chapters 8 and 13; H. R. Künsch (1989)
    for blocks. Assumptions: batches longer than the queue's memory; a curve of the fitted form.
    """
    rate, value = np.asarray(rates_per_s, dtype=np.float64), np.asarray(values_ns, dtype=np.float64)
    found = curve.crossing(limit_ns)
    if not found:
        return Capacity(0.0, 0.0, 0.0, 0)
    spread, drawn = curve.spread, []
    sensitivities = np.array([curve.sensitivity(one) for one in rate])
    shifts = _student_t(random, replicates, spread.run_degrees) * spread.run_sd / math.sqrt(spread.runs)
    for shift in shifts:
        again = value * np.exp(random.normal(0.0, spread.within_sd, rate.size) * sensitivities)
        for place, batched in enumerate(times):
            if batched is not None and (one := batched.resampled_percentile_ns(quantile, random)):
                again[place] = one
        crossing = refit_crossing(curve, rate, again, limit_ns)
        sensitivity = curve.sensitivity(min(max(crossing, 0.1 * found), curve.saturation_per_s * 0.999))
        drawn.append(min(crossing * math.exp(-shift * sensitivity / max(sensitivity - 1, 0.1)), ceiling_per_s * math.exp(-shift)))
    low, high = (float(one) for one in np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]))
    cut = min(found, ceiling_per_s)
    return Capacity(cut, min(low, cut), min(max(high, cut), ceiling_per_s), replicates, is_cut=found > ceiling_per_s)


def _student_t(random: np.random.Generator, number: int, degrees: float) -> _Numbers:
    """Its quantiles at evenly spread probabilities, in random order: as good as draws, and less noisy."""
    probabilities = (np.arange(number) + 0.5) / number
    values = np.array([student_t_quantile(float(one), max(1, math.floor(degrees))) for one in probabilities])
    return random.permutation(values)

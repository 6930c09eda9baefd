"""Autocorrelation of series, and autocorrelation times: how many correlated samples are worth one independent sample."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_CHANCE_CORRECTION = 2.0
_HIGHEST_LAG_1 = 0.97  # of a fitted first-order series: closer to 1, the time is dominated by noise


def lag_1_autocorrelation(series: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """The autocorrelation at lag one, in [-1, 1]; 0 for a constant series and for fewer than two values."""
    centred = _centre(series)
    sum_of_squares = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / sum_of_squares if sum_of_squares else 0.0


def autocorrelation_time(series: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """The integrated autocorrelation time 1 + 2 Σρ_k, in samples; above 0, and 1 for a constant series.

    Source: C. J. Geyer, "Practical Markov Chain Monte Carlo" (1992): the initial monotone sequence estimator, which sums pairs of
    neighbouring lags while they are positive. Assumptions: stationary and reversible; the waiting times of a queue are close
    enough. For series shorter than about 50 autocorrelation times the estimate is too small, since the series' own mean is subtracted.
    """
    count = len(series)
    if count < 4:
        return 1.0
    centred = _centre(series)
    sum_of_squares = float(centred @ centred)
    if not sum_of_squares:
        return 1.0
    total, smallest = 0.0, math.inf
    for lag in range(0, count // 2 * 2, 2):
        pair = float(centred[: count - lag] @ centred[lag:] + centred[: count - lag - 1] @ centred[lag + 1 :]) / sum_of_squares
        if pair <= 0:
            break
        smallest = min(smallest, pair)
        total += smallest
    # the first pair may be close to 0 in an alternating series; n values are never worth more than n²
    return max(2 * total - 1, 1 / count)


def first_order_time(series: Sequence[float] | npt.NDArray[np.float64], fitted: int = 1) -> float:
    """The autocorrelation time (1+ρ)/(1-ρ), at least 1, of a first-order series with this one's lag-1 autocorrelation.

    `fitted` parameters were fitted to the series and subtracted: 1 for a mean, 2 for a straight line, 3 for a parabola. ρ is corrected
    for the bias that this causes in a short series, -(k+(k+2)ρ)/n for k parameters. Sources for k = 1: F. H. C. Marriott &
    J. A. Pope, Biometrika 41 (1954), and M. G. Kendall, ibid.; larger k extend the formula. Assumption: exponentially decaying correlation.
    For fewer than 100 values it varies less than `autocorrelation_time`.
    """
    count, slope, measured = len(series), fitted + 2, lag_1_autocorrelation(series)
    if count <= 2 * slope or not measured:  # 0 means a constant series
        return 1.0
    rho = (measured + fitted / count) / (1 - slope / count)
    rho = min(max(rho, 0.0), _HIGHEST_LAG_1)
    return (1 + rho) / (1 - rho)


def variance_of_share(above: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> float:
    """The variance of the share above a threshold, Σabove/Σcounts, from at least two batches in time order.

    Source: the ratio estimator, W. G. Cochran, *Sampling Techniques*, section 6.4; batches may differ in size. Assumption:
    uncorrelated batches.
    """
    batches, total = len(counts), float(counts.sum())
    excess = above - above.sum() / total * counts
    return batches / (batches - 1) * float(excess @ excess) / total**2


def raised_for_chance(dispersion: float, count: float) -> float:
    """A dispersion of counts, as measured from `count` events, × 1 + 2/√n: from n = count ÷ dispersion clusters of them it may be low by chance."""
    return dispersion * (1 + _CHANCE_CORRECTION * math.sqrt(dispersion / count))


def _centre(series: Sequence[float] | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A series less its mean; zeros for a constant series, whose mean may differ from its values by rounding."""
    values = np.asarray(series, dtype=np.float64)
    if not values.size:
        return values
    centred = values - values.mean()
    is_constant = float(np.abs(centred).max()) <= 1e-12 * float(np.abs(values).max())
    return np.zeros_like(centred) if is_constant else centred

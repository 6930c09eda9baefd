"""How much less a correlated series says than an independent one of its length."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_HIGHEST_LAG_1 = 0.97  # of a fitted first-order series: nearer to 1 the factor is noise


def lag_1_autocorrelation(series: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """The autocorrelation at lag one, in [-1, 1]; 0 for a series that is constant or shorter than two."""
    return float(_autocorrelations(np.asarray(series, dtype=np.float64))[1]) if len(series) > 1 else 0.0


def autocorrelation_time(series: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """The integrated autocorrelation time 1 + 2 Σρ_k, in samples of the series; above 0, and 1 where it is constant.

    Source: C. J. Geyer, "Practical Markov Chain Monte Carlo" (1992): the initial monotone sequence, which sums pairs of
    neighbouring lags while they are positive. Assumption: stationary and reversible; a queue's waiting times are close
    enough to that. Below some 50 autocorrelation times it comes out too small, since the series' own mean is taken off.
    """
    if len(series) < 4:
        return 1.0
    rho = _autocorrelations(np.asarray(series, dtype=np.float64))
    pairs = rho[: rho.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    kept = np.minimum.accumulate(pairs[: ends[0]] if ends.size else pairs)
    # rho_0 + rho_1 alone may come near 0 in an alternating series; no series of n is worth more than n²
    return max(2 * float(kept.sum()) - 1, 1 / len(series))


def first_order_time(series: Sequence[float] | npt.NDArray[np.float64], fitted: int = 1) -> float:
    """The autocorrelation time (1+ρ)/(1-ρ), at least 1, of a first-order series with this one's lag-1 autocorrelation.

    `fitted` parameters were taken off the series: 1 its mean, 2 a straight line, 3 a parabola. ρ is freed of the bias this
    gives a short series, -(k+(k+2)ρ)/n for k of them. Sources: F. H. C. Marriott & J. A. Pope, Biometrika 41 (1954), M. G. Kendall, ibid.,
    for k = 1 and, from there, its pattern for more.
    Assumption: correlation that falls off exponentially. Steadier than `autocorrelation_time` for less than 100 values.
    """
    count, slope, found = len(series), fitted + 2, lag_1_autocorrelation(series)
    if count <= 2 * slope or not found:  # zero means a constant series
        return 1.0
    rho = (found + fitted / count) / (1 - slope / count)
    rho = min(max(rho, 0.0), _HIGHEST_LAG_1)
    return (1 + rho) / (1 - rho)


def indicator_time(above: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> float:
    """The integrated autocorrelation time, in requests, of "the value lies above a threshold", from batches in time order.

    `above` and `counts` have one element a batch: the requests above the threshold, and all. It is the variance of the
    share between batches over what independent requests would give, p(1-p)/N; 1 where all or none lie above, and may be
    below 1 where arrivals are more even than random. N over it is the effective sample size. Source: batch means, as in
    A. M. Law, *Simulation Modeling and Analysis*, section 9.5. Assumption: batches long enough to be uncorrelated; its own
    relative error is then √(2/(B-1)), 27 to 32 % for 20 to 30 batches. Raises ValueError for fewer than two batches.
    """
    if len(counts) < 2:
        raise ValueError(f"batch means need at least two batches, found {len(counts)}")
    total = int(counts.sum())
    share = float(above.sum()) / total if total else 0.0
    if not 0 < share < 1:
        return 1.0
    return variance_of_share(above, counts) * total / (share * (1 - share))


def variance_of_share(above: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> float:
    """The variance of the share above a threshold, Σabove/Σcounts, from at least two batches in time order.

    Source: the ratio estimator, W. G. Cochran, *Sampling Techniques*, section 6.4: batches may hold different numbers of
    requests. Assumption: uncorrelated batches.
    """
    batches, total = len(counts), float(counts.sum())
    excess = above - above.sum() / total * counts
    return batches / (batches - 1) * float(excess @ excess) / total**2


def _autocorrelations(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Those at lags 0 … n-1, each divided by n, so that they are a positive sequence; 1, 0, 0 … for a constant series."""
    centred = values - values.mean()
    # a constant series that its mean misses by rounding is constant all the same
    if float(np.abs(centred).max()) <= 1e-12 * float(np.abs(values).max()):
        return np.concatenate((np.ones(1), np.zeros(values.size - 1)))
    spectrum = np.fft.rfft(centred, 2 * values.size)
    covariances: npt.NDArray[np.float64] = np.fft.irfft(spectrum * np.conj(spectrum))[: values.size]
    covariances /= covariances[0]
    return covariances

"""Student's t, Fisher's F, and the binomial, normal and χ² distributions. SciPy is slow to import, so the first call imports it."""

import functools
import statistics

import numpy as np
import numpy.typing as npt


@functools.cache
def student_t_quantile(probability: float, degrees_of_freedom: int) -> float:
    """The t with P[T <= t] = probability.

    Raises ValueError for a probability outside (0, 1) and for less than one degree of freedom.
    """
    from scipy.special import stdtrit

    if not 0 < probability < 1 or degrees_of_freedom < 1:
        raise ValueError(f"Student's t has no quantile for probability {probability} and {degrees_of_freedom} degrees of freedom")
    return float(stdtrit(degrees_of_freedom, probability))


def student_t_tail(t: float, degrees_of_freedom: int) -> float:
    """P[T > t]; raises ValueError for less than one degree of freedom."""
    from scipy.special import stdtr

    if degrees_of_freedom < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, found {degrees_of_freedom}")
    return float(stdtr(degrees_of_freedom, -t))


def binomial_cdf(successes: int, trials: int, probability: float) -> float:
    """P[X <= successes] for X successes in independent trials of equal probability."""
    from scipy.special import betainc

    return float(betainc(trials - successes, successes + 1, 1 - probability)) if successes < trials else 1.0


def binomial_limits(successes: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided confidence interval of a probability from independent trials; (0, 1) without trials.

    Source: C. J. Clopper & E. S. Pearson, Biometrika 26 (1934). Its coverage is at least the confidence, whatever the probability.
    Numbers that are not whole are effective numbers of correlated trials; the interval is then approximate.
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(successes, trials - successes + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, trials - successes, 1 - tail)) if successes < trials else 1.0
    return low, high


def normal_quantile(probability: float) -> float:
    """The z with P[Z <= z] = probability for a standard normal Z; raises ValueError for a probability outside (0, 1)."""
    return statistics.NormalDist().inv_cdf(probability)


def normal_log_cdf(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The logarithm of P[Z <= value] of a standard normal Z for each value, accurate in both tails."""
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(values), dtype=np.float64)


def chi_square_quantiles(probabilities: npt.NDArray[np.float64], degrees_of_freedom: float) -> npt.NDArray[np.float64]:
    """The quantiles of the χ² distribution at these probabilities."""
    from scipy.special import gammaincinv

    return np.asarray(2 * gammaincinv(degrees_of_freedom / 2, probabilities), dtype=np.float64)


def f_tail(ratio: float, numerator_degrees: int, denominator_degrees: int) -> float:
    """P[F > ratio] of Fisher's F; raises ValueError for less than one degree of freedom."""
    from scipy.special import fdtrc

    if min(numerator_degrees, denominator_degrees) < 1:
        raise ValueError(f"Fisher's F needs at least one degree of freedom, found {numerator_degrees} and {denominator_degrees}")
    return float(fdtrc(numerator_degrees, denominator_degrees, ratio))

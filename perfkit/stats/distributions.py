"""Student's t, Fisher's F, and the binomial, normal and χ² distributions.

Those that every run needs do without SciPy, which is slow to import; the first call of the others imports it.
"""

import functools
import math
import statistics

import numpy as np
import numpy.typing as npt

from perfkit.stats.incomplete_beta import incomplete_beta, inverse_incomplete_beta


@functools.cache
def student_t_quantile(probability: float, degrees_of_freedom: int) -> float:
    """The t with P[T <= t] = probability.

    Raises ValueError for a probability outside (0, 1) and for less than one degree of freedom.
    """
    if not 0 < probability < 1 or degrees_of_freedom < 1:
        raise ValueError(f"Student's t has no quantile for probability {probability} and {degrees_of_freedom} degrees of freedom")
    outside = 2 * min(probability, 1 - probability)
    share = inverse_incomplete_beta(degrees_of_freedom / 2, 0.5, outside)  # degrees of freedom / (t² + degrees of freedom)
    if share < 0.5:
        ratio = (1 - share) / share
    else:  # 1 - share has more digits if it is computed by itself
        rest = inverse_incomplete_beta(0.5, degrees_of_freedom / 2, 1 - outside)
        ratio = rest / (1 - rest)
    return math.copysign(math.sqrt(degrees_of_freedom * ratio), probability - 0.5)


def student_t_tail(t: float, degrees_of_freedom: int) -> float:
    """P[T > t]; raises ValueError for less than one degree of freedom."""
    if degrees_of_freedom < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, found {degrees_of_freedom}")
    square = t * t
    outside = incomplete_beta(
        degrees_of_freedom / 2, 0.5, degrees_of_freedom / (degrees_of_freedom + square), square / (degrees_of_freedom + square)
    )
    return outside / 2 if t > 0 else 1 - outside / 2


def binomial_cdf(successes: int, trials: int, probability: float) -> float:
    """P[X <= successes] for X successes in independent trials of equal probability."""
    return incomplete_beta(trials - successes, successes + 1, 1 - probability, probability) if successes < trials else 1.0


def binomial_limits(successes: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided confidence interval of a probability from independent trials; (0, 1) without trials.

    Source: C. J. Clopper & E. S. Pearson, Biometrika 26 (1934). Its coverage is at least the confidence, whatever the probability.
    Numbers that are not whole are effective numbers of correlated trials; the interval is then approximate.
    """
    tail = (1 - confidence) / 2
    low = inverse_incomplete_beta(successes, trials - successes + 1, tail) if successes else 0.0
    high = inverse_incomplete_beta(successes + 1, trials - successes, 1 - tail) if successes < trials else 1.0
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
    if min(numerator_degrees, denominator_degrees) < 1:
        raise ValueError(f"Fisher's F needs at least one degree of freedom, found {numerator_degrees} and {denominator_degrees}")
    numerator, denominator = numerator_degrees * ratio, float(denominator_degrees)
    whole = numerator + denominator
    return incomplete_beta(denominator_degrees / 2, numerator_degrees / 2, denominator / whole, numerator / whole)

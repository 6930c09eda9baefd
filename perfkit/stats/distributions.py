"""Student's t and the binomial distribution, from SciPy, which is imported at the first call: it is slow to import."""

import functools


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
    from scipy.special import bdtr

    return float(bdtr(successes, trials, probability)) if successes < trials else 1.0


def binomial_limits(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided confidence interval of a probability from independent trials; (0, 1) without trials.

    Source: C. J. Clopper & E. S. Pearson, Biometrika 26 (1934). Its coverage is at least the confidence, whatever the probability.
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(successes, trials - successes + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, trials - successes, 1 - tail)) if successes < trials else 1.0
    return low, high

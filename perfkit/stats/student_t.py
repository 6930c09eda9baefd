"""Quantiles of Student's t distribution."""

import functools
import math
import statistics

_SERIES_UP_TO = 200  # above, the expansion is exact to ten digits and the series only slow
_TAIL_SERIES_UP_TO = 10_000


@functools.cache
def student_t_quantile(probability: float, degrees_of_freedom: int) -> float:
    """The t with P[T <= t] = probability, for whole degrees of freedom of at least 1; to about nine digits.

    Source: Abramowitz & Stegun, *Handbook of Mathematical Functions*: the finite series 26.7.3 and 26.7.4, inverted by
    bisection; above 200 degrees of freedom the expansion 26.7.5. Raises ValueError for a probability outside (0, 1) and
    for no degrees of freedom.
    """
    if not 0 < probability < 1 or degrees_of_freedom < 1:
        raise ValueError(f"no t quantile for probability {probability} and {degrees_of_freedom} degrees of freedom")
    if probability < 0.5:
        return -student_t_quantile(1 - probability, degrees_of_freedom)
    if degrees_of_freedom > _SERIES_UP_TO:
        return _expansion(statistics.NormalDist().inv_cdf(probability), degrees_of_freedom)
    # the series is in the angle whose tangent is t / sqrt(df), so bisection needs no bracket to be searched
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        if (1 + _between(middle, degrees_of_freedom)) / 2 < probability:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(degrees_of_freedom)


def student_t_tail(t: float, degrees_of_freedom: int) -> float:
    """P[T > t], to an absolute error of about 1e-12 up to 10,000 degrees of freedom; above, from the normal deviate of 26.7.8.

    Source: as for `student_t_quantile`. Raises ValueError for no degrees of freedom.
    """
    if degrees_of_freedom < 1:
        raise ValueError(f"Student's t has no {degrees_of_freedom} degrees of freedom")
    df = degrees_of_freedom
    if df > _TAIL_SERIES_UP_TO:
        deviate = t * (1 - 1 / (4 * df)) / math.sqrt(1 + t * t / (2 * df))
        return math.erfc(deviate / math.sqrt(2)) / 2
    return (1 - _between(math.atan(t / math.sqrt(df)), df)) / 2


def _between(angle: float, degrees_of_freedom: int) -> float:
    """P[-t < T < t] for t = tan(angle) sqrt(df)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees_of_freedom % 2
    term, total = (cosine, cosine) if odd else (1.0, 1.0)
    for number in range(2 if odd else 1, degrees_of_freedom - 1, 2):
        term *= cosine * cosine * number / (number + 1)
        total += term
    if not odd:
        return sine * total
    return 2 / math.pi * (angle + (sine * total if degrees_of_freedom > 1 else 0))


def _expansion(x: float, degrees_of_freedom: int) -> float:
    terms = (
        x,
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92_160,
    )
    return math.fsum(term / float(degrees_of_freedom**power) for power, term in enumerate(terms))

"""How many requests a percentile needs, and whether those measured show that a limit is met.

Source: the early-stopping criterion of MLPerf LoadGen, `early_stopping.cc`. It assumes independent requests; correlated ones
count as N divided by the autocorrelation time.
"""

import functools
import math

from perfkit.stats.probability import binomial_cdf

_CONFIDENCE, _ALLOWED_ABOVE = 0.99, 1


def minimum_samples(quantile: float, autocorrelation_time: float = 1.0) -> int:
    """The smallest n with P[Bin(n, 1 - quantile) <= 1] <= 1 %: 64 for p90, 662 for p99, 6,636 for p99.9.

    An autocorrelation time above 1, in requests, multiplies it; one below 1 does not lower it.
    """
    return math.ceil(_minimum_independent_samples(quantile) * max(autocorrelation_time, 1.0))


@functools.cache
def _minimum_independent_samples(quantile: float) -> int:
    def is_enough(count: int) -> bool:
        return binomial_cdf(_ALLOWED_ABOVE, count, 1 - quantile) <= 1 - _CONFIDENCE

    low, high = 1, 2
    while not is_enough(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def is_withheld(quantile: float, count: int) -> bool:
    """Whether a percentile has fewer than 1/(1-q) samples, so that none of them is expected to lie above it."""
    return count < round(1 / (1 - quantile), 6)


def is_limit_shown_met(quantile: float, count: int, above: int, autocorrelation_time: float = 1.0) -> bool:
    """Whether `above` of `count` requests beyond a limit show that more than the share `quantile` meets it.

    They do if so few would be seen with a chance of at most 1 % when exactly that share met it: P[Bin(n, 1 - quantile) <= t]
    <= 0.01, where n and t are `count` and `above` divided by the autocorrelation time. At a quantile of 1, one request
    above the limit is one too many.
    """
    if quantile >= 1:
        return above == 0
    time = max(autocorrelation_time, 1.0)
    return binomial_cdf(math.ceil(above / time), math.floor(count / time), 1 - quantile) <= 1 - _CONFIDENCE

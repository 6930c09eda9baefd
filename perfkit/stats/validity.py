"""When a measurement, or one of its percentiles, can be believed."""

import functools
import math

# LoadGen's early stopping: one sample above the percentile is allowed for, at 99 % confidence
_CONFIDENCE, _ALLOWED_ABOVE = 0.99, 1
BUSY_CORE_SHARE = 0.85


@functools.cache
def minimum_samples(quantile: float) -> int:
    """The smallest n for which P[Bin(n, 1 - quantile) <= 1] <= 1 %: 64 for p90, 662 for p99, 6,636 for p99.9.

    Source: MLPerf LoadGen, `early_stopping.cc`. It assumes independent samples, so it is a lower bound.
    """
    low, high = 1, 2
    while _chance_of_few(high, 1 - quantile) > 1 - _CONFIDENCE:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if _chance_of_few(middle, 1 - quantile) > 1 - _CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def is_withheld(quantile: float, count: int) -> bool:
    """Whether a percentile has fewer than 1/(1-q) samples: then none of them is expected to lie above it."""
    return count < round(1 / (1 - quantile), 6)


def is_generator_bound(cpu_share: float) -> bool:
    """Whether the generator's core was so busy that its figures are its own rather than the server's."""
    return cpu_share > BUSY_CORE_SHARE


def _chance_of_few(samples: int, chance: float) -> float:
    return sum(math.comb(samples, above) * chance**above * (1 - chance) ** (samples - above) for above in range(_ALLOWED_ABOVE + 1))

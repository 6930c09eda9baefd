"""Whether one window shows by itself that a share of the requests keeps to a limit."""

import math

_CONFIDENCE = 0.99


def keeps_to(quantile: float, count: int, above: int, autocorrelation_time: float = 1.0) -> bool:
    """Whether `above` of `count` requests beyond a limit show that more than the share `quantile` of all keeps to it.

    They do where so few would be seen with a chance of at most 1 % if exactly that share did: P[Bin(n, 1 - quantile) <= t]
    <= 0.01. Source: MLPerf LoadGen, `early_stopping.cc`, which assumes independent requests; here n and t are `count` and
    `above` over the autocorrelation time. At a quantile of 1 one above is one too many.
    """
    time = max(autocorrelation_time, 1.0)
    trials, successes = math.floor(count / time), math.ceil(above / time)
    if quantile >= 1:
        return above == 0
    return _binomial_cdf(successes, trials, 1 - quantile) <= 1 - _CONFIDENCE


def _binomial_cdf(most: int, trials: int, chance: float) -> float:
    if most >= trials:
        return 1.0
    # from the largest term down, so that those that no longer count need not be added
    total, term = 0.0, math.exp(
        math.lgamma(trials + 1) - math.lgamma(most + 1) - math.lgamma(trials - most + 1)
        + most * math.log(chance) + (trials - most) * math.log1p(-chance)
    )  # fmt: skip
    for number in range(most, -1, -1):
        total += term
        if term < 1e-18 * total and number < trials * chance:
            break
        term *= number / (trials - number + 1) * (1 - chance) / chance
    return min(total, 1.0)

"""Ranks that are shared where the data cannot tell two configurations apart."""

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np

CERTAIN = 0.95
"""The probability from which on one configuration counts as better than another."""
POWER = 0.8
"""The probability with which as much measuring as is advised tells two configurations apart."""
Z_CERTAIN, Z_POWER = statistics.NormalDist().inv_cdf(CERTAIN), statistics.NormalDist().inv_cdf(POWER)


def shared_ranks(number: int, is_better: Callable[[int, int], bool]) -> list[int]:
    """One plus the number of configurations that are certainly better, for each of `number`; `is_better(a, b)`: a is better than b.

    Configurations that nothing tells apart share a rank, and the first rank is always taken. The rule does not depend on the order,
    although "cannot be told apart" is not transitive: b may be tied with a and c while a is better than c.
    """
    return [1 + sum(is_better(other, one) for other in range(number) if other != one) for one in range(number)]


def probability_below(draws: Sequence[float], others: Sequence[float]) -> float:
    """P(X < Y) + P(X = Y)/2 for independent X and Y, given by draws; raises ValueError without any.

    Source: the statistic of H. B. Mann & D. R. Whitney, Ann. Math. Statist. 18 (1947), divided by the number of pairs.
    """
    if not draws or not others:
        raise ValueError("a probability needs draws of both")
    ordered = np.sort(np.asarray(others, dtype=np.float64))
    below = np.searchsorted(ordered, draws, side="left")
    not_above = np.searchsorted(ordered, draws, side="right")
    return float(1 - (below.mean() + not_above.mean()) / 2 / ordered.size)


def times_as_much(gap: float, standard_error: float, z: float = Z_CERTAIN) -> float:
    """How many times as much data tells a gap from zero with a probability of 80 %, at least 1; infinite for no gap.

    ((z + z₀.₈)·SE/gap)², for a gap that is as large as it seems and a standard error that falls with 1/√n; z is the quantile of the
    test. Source: the sample size of a z test, as in J. M. Bland, *An Introduction to Medical Statistics*, chapter 18.
    """
    return max(((z + Z_POWER) * standard_error / gap) ** 2, 1.0) if gap else math.inf

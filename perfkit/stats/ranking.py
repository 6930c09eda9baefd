"""Ranking of configurations, with ties where the data cannot tell them apart."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from perfkit.stats.probability import normal_quantile

CERTAIN = 0.95
"""The lowest probability with which all differences of a ranking are right."""
POWER = 0.8
"""The statistical power of the advised amount of data: the probability that it tells two configurations apart."""
Z_POWER = normal_quantile(POWER)


def pair_confidence(number: int) -> float:
    """The confidence at which each pair of `number` configurations is compared, so that all differences are right with 95 %.

    1 - 5 % ÷ the number of pairs: 95 % for two configurations, 99.89 % for ten. Source: C. E. Bonferroni's inequality, which needs no
    assumption about the dependence of the comparisons.
    """
    return 1 - (1 - CERTAIN) / max(math.comb(number, 2), 1)


def shared_ranks(number: int, is_better: Callable[[int, int], bool]) -> list[int]:
    """The rank of each of `number` configurations: one plus the number of better ones; `is_better(a, b)`: a is better than b.

    Rank 1 is always taken, and the ranks do not depend on the order of the configurations. "Cannot be told apart" is not transitive: where
    a is better than c and b is tied with both, the ranks of a, b and c are 1, 1 and 2.
    """
    return [1 + sum(is_better(other, one) for other in range(number) if other != one) for one in range(number)]


def probability_below(draws: Sequence[float], others: Sequence[float]) -> float:
    """P(X < Y) + P(X = Y)/2 of independent X and Y, estimated from draws; raises ValueError without draws.

    Source: the statistic of H. B. Mann & D. R. Whitney, Ann. Math. Statist. 18 (1947), divided by the number of pairs.
    """
    if not draws or not others:
        raise ValueError("a probability needs draws of both")
    ordered = np.sort(np.asarray(others, dtype=np.float64))
    below = np.searchsorted(ordered, draws, side="left")
    not_above = np.searchsorted(ordered, draws, side="right")
    return float(1 - (below.mean() + not_above.mean()) / 2 / ordered.size)


def sample_size_factor(gap: float, standard_error: float, z: float) -> float:
    """The factor on the amount of data with which a test tells a gap from zero with a power of 80 %; at least 1, infinite without a gap.

    ((z + z₀.₈)·SE/gap)², where z is the critical value of the test. Assumptions: the true gap is the estimated one, and the standard
    error falls with 1/√n. Source: the sample size of a z test, as in J. M. Bland, *An Introduction to Medical Statistics*, chapter 18.
    """
    return max(((z + Z_POWER) * standard_error / gap) ** 2, 1.0) if gap else math.inf

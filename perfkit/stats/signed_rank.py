"""Wilcoxon's signed-rank test, exact, and the Hodges-Lehmann estimate with its limits, for many samples at once.

Assumption: given their absolute values, the signs of the values less the tested shift are independent fair coins. In a pair
whose order was drawn by a coin they are, whatever else moved: drift, outliers and skew only make the test less sharp.
"""

import functools
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


def signed_rank_p(values: Array) -> Array:
    """One-sided p-values of "the values are no larger than zero", of shape [...] for values of shape [..., n].

    P[W >= w], W the sum of the ranks of the positive values' sizes. Ties share their mean rank and zeros take part in the
    ranking alone (J. W. Pratt, JASA 54, 1959); the distribution is that of the ranks as they are, so the test stays exact.
    Raises ValueError for no values, and for values that are not finite.
    """
    values = np.asarray(values, np.float64)
    if not values.shape[-1] or not np.isfinite(values).all():
        raise ValueError("a signed-rank test needs values, and finite ones")
    count, rows = values.shape[-1], values.reshape(-1, values.shape[-1])
    sizes = np.abs(rows)
    order = np.argsort(sizes, axis=-1)
    in_order = np.take_along_axis(sizes, order, -1)
    ranked_positive = np.take_along_axis(rows > 0, order, -1)
    p = _chance_of_at_least(count)[(ranked_positive * np.arange(1, count + 1)).sum(-1)]
    for row in np.flatnonzero((np.diff(in_order) == 0).any(-1) | (in_order[:, 0] == 0)):
        p[row] = _tied_p(in_order[row], ranked_positive[row])
    return np.asarray(p.reshape(values.shape[:-1]))


def hodges_lehmann(values: Array) -> Array:
    """The median of the means of all pairs of values, each with itself as well: shape [...] for values [..., n].

    Source: J. L. Hodges and E. L. Lehmann, Ann. Math. Statist. 34, 1963.
    """
    return np.asarray(np.median(_walsh_averages(values), axis=-1))


def limits(values: Array, error: float) -> tuple[Array, Array]:
    """One-sided lower and upper limits of the shift, each missed with chance `error` at most; infinite for too few values.

    They are what the signed-rank test does not refuse (M. Hollander and D. A. Wolfe, *Nonparametric Statistical Methods*, 3.3).
    """
    averages = np.sort(_walsh_averages(values), axis=-1)
    beyond = cut_off(np.shape(values)[-1], error)
    if beyond == 0:
        return np.full(averages.shape[:-1], -np.inf), np.full(averages.shape[:-1], np.inf)
    return averages[..., beyond - 1], averages[..., -beyond]


def lower_limit(values: Array, error: float) -> Array:
    """The lower of `limits` alone, which is quicker."""
    beyond = cut_off(np.shape(values)[-1], error)
    averages = _walsh_averages(values)
    return np.asarray(np.partition(averages, beyond - 1, axis=-1)[..., beyond - 1]) if beyond else np.full(averages.shape[:-1], -np.inf)


def cut_off(count: int, error: float) -> int:
    """The largest k with P[W < k] <= error, for so many values without ties; 0 where even the smallest W is too likely."""
    at_least = _chance_of_at_least(count)  # W is symmetric: P[W <= k] = P[W >= max - k]
    return int((at_least[::-1] <= error).sum())


@functools.cache
def _chance_of_at_least(count: int) -> Array:
    """P[W >= w] for w = 0 ... n(n+1)/2, from ranks 1 ... n."""
    return _tail(np.arange(1, count + 1))


def _tail(ranks: NDArray[np.int64]) -> Array:
    """P[W >= w] for every w up to the ranks' sum: each rank counts or not, with chance one half (polynomials multiplied out)."""
    chance = np.zeros(int(ranks.sum()) + 1)
    chance[0] = 1.0
    for rank in ranks:
        moved = np.zeros_like(chance)
        moved[rank:] = chance[: chance.size - rank]
        chance = (chance + moved) / 2
    return np.cumsum(chance[::-1])[::-1]


def _tied_p(sizes: Array, positive: NDArray[np.bool_]) -> float:
    """Of one sample whose sizes, in rising order, hold ties or zeros; ranks are doubled, so that mean ranks are whole."""
    first, last = np.searchsorted(sizes, sizes, "left"), np.searchsorted(sizes, sizes, "right")
    doubled = (first + last + 1)[sizes > 0]
    return float(_tail(doubled)[doubled[positive[sizes > 0]].sum()])


def _walsh_averages(values: Array) -> Array:
    first, second = np.triu_indices(values.shape[-1])
    return np.asarray((values[..., first] + values[..., second]) / 2)

"""Wilcoxon's signed-rank test, exact, and the Hodges-Lehmann estimate with its limits, for many samples at once.

Assumption: given their absolute values, the signs of the values minus the tested shift are independent fair coins. This holds for
pairs in random order, even with drift, outliers and skew, which only reduce the power.
"""

import functools
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


def signed_rank_p(values: Array) -> Array:
    """One-sided p-values of "the values are no larger than zero", of shape [...] for values of shape [..., n].

    P[W >= w], where W is the sum of the ranks of the absolute values of the positive values. Ties share their mean rank; zeros are
    ranked but have no sign (J. W. Pratt, JASA 54, 1959). The distribution is that of the actual ranks, so the test stays exact.
    Raises ValueError without values, and for values that are not finite.
    """
    values = np.asarray(values, np.float64)
    if not values.shape[-1] or not np.isfinite(values).all():
        raise ValueError("a signed-rank test needs finite values")
    count, rows = values.shape[-1], values.reshape(-1, values.shape[-1])
    sizes = np.abs(rows)
    order = np.argsort(sizes, axis=-1)
    in_order = np.take_along_axis(sizes, order, -1)
    ranked_positive = np.take_along_axis(rows > 0, order, -1)
    p = _upper_tail(count)[(ranked_positive * np.arange(1, count + 1)).sum(-1)]
    for row in np.flatnonzero((np.diff(in_order) == 0).any(-1) | (in_order[:, 0] == 0)):
        p[row] = _tied_p(in_order[row], ranked_positive[row])
    return np.asarray(p.reshape(values.shape[:-1]))


def hodges_lehmann(values: Array) -> Array:
    """The median of the means of all pairs of values, each value with itself included: shape [...] for values [..., n].

    Source: J. L. Hodges and E. L. Lehmann, Ann. Math. Statist. 34, 1963.
    """
    return np.asarray(np.median(_walsh_averages(values), axis=-1))


def limits(values: Array, alpha: float) -> tuple[Array, Array]:
    """One-sided lower and upper confidence limits of the shift, each at level 1 - `alpha`; infinite for too few values.

    They enclose the shifts that the signed-rank test does not reject (M. Hollander and D. A. Wolfe, *Nonparametric Statistical
    Methods*, 3.3).
    """
    averages = np.sort(_walsh_averages(values), axis=-1)
    beyond = cut_off(np.shape(values)[-1], alpha)
    if beyond == 0:
        return np.full(averages.shape[:-1], -np.inf), np.full(averages.shape[:-1], np.inf)
    return averages[..., beyond - 1], averages[..., -beyond]


def lower_limit(values: Array, alpha: float) -> Array:
    """The lower of the `limits`, faster than both."""
    beyond = cut_off(np.shape(values)[-1], alpha)
    averages = _walsh_averages(values)
    return np.asarray(np.partition(averages, beyond - 1, axis=-1)[..., beyond - 1]) if beyond else np.full(averages.shape[:-1], -np.inf)


def cut_off(count: int, alpha: float) -> int:
    """The largest k with P[W < k] <= alpha, for `count` values without ties; 0 if even W = 0 is more likely than that."""
    at_least = _upper_tail(count)  # W is symmetric: P[W <= k] = P[W >= max - k]
    return int((at_least[::-1] <= alpha).sum())


@functools.cache
def _upper_tail(count: int) -> Array:
    """P[W >= w] for w = 0 ... n(n+1)/2, from ranks 1 ... n."""
    return _tail(np.arange(1, count + 1))


def _tail(ranks: NDArray[np.int64]) -> Array:
    """P[W >= w] for every w up to the sum of the ranks: each rank counts with probability ½ (a product of polynomials)."""
    probability = np.zeros(int(ranks.sum()) + 1)
    probability[0] = 1.0
    for rank in ranks:
        shifted = np.zeros_like(probability)
        shifted[rank:] = probability[: probability.size - rank]
        probability = (probability + shifted) / 2
    return np.cumsum(probability[::-1])[::-1]


def _tied_p(sizes: Array, positive: NDArray[np.bool_]) -> float:
    """The p-value of a sample with ties or zeros, its absolute values ascending; ranks are doubled, so that mean ranks are whole."""
    first, last = np.searchsorted(sizes, sizes, "left"), np.searchsorted(sizes, sizes, "right")
    doubled = (first + last + 1)[sizes > 0]
    return float(_tail(doubled)[doubled[positive[sizes > 0]].sum()])


def _walsh_averages(values: Array) -> Array:
    first, second = np.triu_indices(values.shape[-1])
    return np.asarray((values[..., first] + values[..., second]) / 2)

"""Wilcoxon's rank-sum test of several metrics at once, exact by permutation of whole runs, and the shift of two samples with its limits.

Assumption: the runs of both samples are exchangeable if nothing but the tested shifts distinguishes them. A run's metrics may depend on
each other in any way, since they are permuted together; tails and outliers only reduce the power.
"""

import functools
import itertools
import math

import numpy as np
from numpy.typing import NDArray

from perfkit.stats.signed_rank import Array

MAXIMUM_ARRANGEMENTS = 20_000
"""With more of them, `SAMPLED_ARRANGEMENTS` are drawn at random."""
SAMPLED_ARRANGEMENTS = 9_999
_LARGEST_PART = 2**20  # sums of ranks held at once, which fit into a cache


def step_down_p(values: Array, second: int) -> Array:
    """One-sided p-values of "the second sample is no larger", adjusted for the number of metrics: shape [..., metrics].

    `values` has shape [..., metrics, runs]; the last `second` runs are the second sample. The statistic of an arrangement of the runs is
    the largest rank sum over the metrics, with mean ranks for ties; p is the share of arrangements with a statistic at least as large as
    the actual one, (z + 1) / (B + 1) for B drawn ones. From the metric with the largest rank sum to that with the smallest, each is
    compared with the metrics that are left. Source: P. H. Westfall & S. S. Young, *Resampling-Based Multiple Testing*, 1993, the step-down
    maxT procedure: the probability that any metric without a shift has p <= α is at most α.

    This also holds if the second sample's values are lower than an exchangeable sample's by any amounts that are never below zero, different
    for each run and metric: no such loss in one metric makes an alarm in another likelier than α. Proof: fix the values without the losses;
    let z(L) be the data if the runs L are the second sample and so have the losses, and T(M; z) the statistic of the runs M in the data z,
    which rises with the values of M and falls with those of the other runs. Of all L that are rejected in z(L), let K have the smallest
    T(K; z(K)). For any other one, L, z(K) differs from z(L) by fewer losses in L and more outside of it, so T(L; z(K)) >= T(L; z(L)) >=
    T(K; z(K)). Each rejected L is thus one of the arrangements that count for the p of K in z(K), of which there are at most α of all.

    Raises ValueError for values that are not finite and without runs in a sample.
    """
    values = np.asarray(values, np.float64)
    if not 0 < second < values.shape[-1] or not np.isfinite(values).all():
        raise ValueError("a rank-sum test needs finite values in two samples")
    arranged = arrangements(values.shape[-1], second).T
    cases = values.reshape(-1, *values.shape[-2:])
    part = max(1, _LARGEST_PART // (values.shape[-2] * arranged.shape[-1]))
    p = [_step_down(_doubled_ranks(cases[start : start + part]), arranged) for start in range(0, len(cases), part)]
    return np.concatenate(p).reshape(values.shape[:-1]) if p else np.empty(values.shape[:-1])


def shift(first: Array, second: Array) -> Array:
    """By how much the second sample is larger: the median of all differences, shape [...] for samples [..., n] and [..., m].

    Source: J. L. Hodges and E. L. Lehmann, Ann. Math. Statist. 34, 1963.
    """
    return np.asarray(np.median(_differences(first, second), axis=-1))


def shift_limits(first: Array, second: Array, alpha: float) -> tuple[Array, Array]:
    """One-sided lower and upper confidence limits of the shift, each at level 1 - `alpha`; infinite for too few values.

    They enclose the shifts that the rank-sum test does not reject (M. Hollander and D. A. Wolfe, *Nonparametric Statistical
    Methods*, 4.3).
    """
    differences = np.sort(_differences(first, second), axis=-1)
    beyond = cut_off(np.shape(first)[-1], np.shape(second)[-1], alpha)
    if beyond == 0:
        return np.full(differences.shape[:-1], -np.inf), np.full(differences.shape[:-1], np.inf)
    return differences[..., beyond - 1], differences[..., -beyond]


@functools.cache
def cut_off(first: int, second: int, alpha: float) -> int:
    """The largest k with P[U < k] <= alpha, where U counts the differences below zero of samples without ties; 0 if even U = 0 is likelier."""
    return int((np.cumsum(_null_counts(first, second)) <= alpha * math.comb(first + second, second) * (1 + 1e-12)).sum())


@functools.cache
def arrangements(runs: int, second: int) -> NDArray[np.float32]:
    """Which runs are the second sample, as ones, shape [arrangements, runs]: the last ones first, then all others or a seeded sample.

    With a sample the test is exact over all samples; a single one, the same in every gate, moves a p-value of 1 % by about 0.1 points.
    """
    if math.comb(runs, second) <= MAXIMUM_ARRANGEMENTS:
        chosen = np.array(list(itertools.combinations(range(runs - 1, -1, -1), second)))
    else:
        rng = np.random.default_rng(0)
        drawn = rng.random((SAMPLED_ARRANGEMENTS, runs)).argpartition(second, axis=-1)[:, :second]
        chosen = np.concatenate([np.arange(runs - second, runs)[None], drawn])
    made = np.zeros((len(chosen), runs), np.float32)
    np.put_along_axis(made, chosen, 1.0, -1)
    return made


def _doubled_ranks(values: Array) -> NDArray[np.float32]:
    """Twice the mean ranks along the last axis, from 0: whole numbers, so that their sums are exact."""
    above, equal = (compare(values[..., :, None], values[..., None, :]).sum(-1) for compare in (np.greater, np.equal))
    return np.asarray(2 * above + equal - 1, np.float32)


def _step_down(ranks: NDArray[np.float32], arranged: NDArray[np.float32]) -> Array:
    """Adjusted p-values for ranks of shape [cases, metrics, runs], the actual arrangement being the first."""
    actual = ranks @ arranged[:, 0]
    order = np.argsort(-actual, axis=-1, kind="stable")
    sums = np.take_along_axis(ranks, order[..., None], 1) @ arranged
    stepped, largest = np.empty(actual.shape), np.zeros_like(sums[:, 0])
    for metric in reversed(range(actual.shape[-1])):
        np.maximum(largest, sums[:, metric], out=largest)
        stepped[:, metric] = np.count_nonzero(largest >= sums[:, metric, :1], axis=-1) / arranged.shape[-1]
    p = np.empty_like(stepped)
    np.put_along_axis(p, order, np.maximum.accumulate(stepped, axis=-1), -1)
    return p


def _differences(first: Array, second: Array) -> Array:
    """All differences, second − first, shape [..., n · m]."""
    made = np.asarray(second)[..., :, None] - np.asarray(first)[..., None, :]
    return np.asarray(made.reshape(*made.shape[:-2], -1))


def _null_counts(first: int, second: int) -> Array:
    """How many arrangements have U = 0, 1, ..., n · m: the coefficients of the Gaussian binomial.

    Source: H. B. Mann & D. R. Whitney, Ann. Math. Statist. 18, 1947.
    """
    size = first * second + 1
    counts = np.zeros(size)
    counts[0] = 1.0
    for step in range(1, second + 1):  # the product of (1 - q^(n+i)) / (1 - q^i)
        power = first + step
        if power < size:
            counts[power:] -= counts[: size - power].copy()
        for index in range(step, size):
            counts[index] += counts[index - step]
    return counts

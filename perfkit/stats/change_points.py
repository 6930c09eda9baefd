"""Where the level of a series changed: E-divisive with a permutation test. For trends after the fact, never for a gate."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SIGNIFICANCE, PERMUTATIONS, SHORTEST = 0.01, 999, 3
_ROUNDING = 1e-9  # the same values in another order, such as the reverse, split as well, but for the rounding of sums
_Values = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class ChangePoint:
    """A step; `index` is the first value behind it."""

    index: int
    p: float
    before: float
    """The mean of the values between this step and the one before it, and after it likewise."""
    after: float


def change_points(
    values: Sequence[float],
    *,
    seed: int = 0,
    significance: float = SIGNIFICANCE,
    permutations: int = PERMUTATIONS,
    shortest: int = SHORTEST,
) -> list[ChangePoint]:
    """The steps of a series, ascending. A segment has `shortest` values at least; the same seed gives the same steps.

    Hierarchically, the split with the largest energy distance between its sides is tried, the values being permuted within
    the segments found so far; p = (z+1)/(B+1) of z permutations in B that split as well, which is never 0 and keeps a series
    without a step free of them with chance 1 - `significance`. Sources: D. S. Matteson & N. A. James, "A nonparametric approach
    for multiple change point analysis of multivariate data" (J. Am. Statist. Assoc. 109, 2014); for performance histories, with
    splits that reach to the segment's ends, D. Daly et al., "The use of change point detection to identify software performance
    regressions" (ICPE 2020). Assumption: exchangeable values between steps; a drift is split into steps.
    """
    series, random = np.asarray(values, dtype=np.float64), np.random.default_rng(seed)
    bounds, found = [0, series.size], dict[int, float]()
    while True:
        segments = list(itertools.pairwise(bounds))
        best, place = _best_split(series, segments, shortest)
        if place is None:
            break
        as_good = 0
        for _ in range(permutations):
            shuffled = np.concatenate([random.permutation(series[start:end]) for start, end in segments])
            as_good += _best_split(shuffled, segments, shortest)[0] >= best * (1 - _ROUNDING)
        p = (as_good + 1) / (permutations + 1)
        if p > significance:
            break
        found[place] = p
        bounds = sorted((*bounds, place))
    means = {start: float(series[start:end].mean()) for start, end in itertools.pairwise(bounds) if end > start}
    return [ChangePoint(place, found[place], means[bounds[bounds.index(place) - 1]], means[place]) for place in sorted(found)]


def _best_split(series: _Values, segments: Sequence[tuple[int, int]], shortest: int) -> tuple[float, int | None]:
    """The largest statistic of any split, and where it is; None where no segment can be split, or all its values are alike."""
    best, place = 0.0, None
    for start, end in segments:
        if end - start >= 2 * shortest:
            statistics = split_statistics(series[start:end])[shortest - 1 : end - start - shortest]
            index = int(statistics.argmax())
            if statistics[index] > best:
                best, place = float(statistics[index]), start + shortest + index
    return best, place


def split_statistics(values: _Values) -> _Values:
    """For each split into the first m values and the other n, m = 1 … N-1: mn/(m+n) times their energy distance.

    That is 2 E|X-Y| - E|X-X'| - E|Y-Y'|, the means within over distinct pairs, 0 where there is none.
    """
    size = values.size
    rows = np.abs(values[:, None] - values)
    inside = np.cumsum(np.cumsum(rows, axis=0), axis=1).diagonal()  # twice the sum over the pairs of the first m
    total, along = inside[-1], np.cumsum(rows.sum(axis=1))
    left = np.arange(1, size)
    right = size - left
    first, across = inside[:-1], along[:-1] - inside[:-1]
    second = total - first - 2 * across
    within = first / np.maximum(left * (left - 1), 1) + second / np.maximum(right * (right - 1), 1)
    statistics: _Values = left * right / size * (2 * across / (left * right) - within)
    return statistics

"""Steps in the level of a series: E-divisive with a permutation test. It is for trends in hindsight, not for gates."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SIGNIFICANCE, PERMUTATIONS, SHORTEST = 0.01, 999, 3
_ROUNDING = 1e-9  # a permutation that splits equally well, such as the reverse, may differ by the rounding of sums
_Values = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class ChangePoint:
    """A step; `index` is that of the first value after it."""

    index: int
    p: float
    before: float
    """The mean of the values between the previous step and this one; `after` is that up to the next step."""
    after: float


def change_points(
    values: Sequence[float],
    *,
    seed: int = 0,
    significance: float = SIGNIFICANCE,
    permutations: int = PERMUTATIONS,
    shortest: int = SHORTEST,
) -> list[ChangePoint]:
    """The steps of a series, ascending. A segment has at least `shortest` values; the same seed gives the same steps.

    Step by step, the split with the largest energy distance between its sides is tested by permuting the values within the
    segments found so far. p = (z+1)/(B+1) if z of B permutations split at least as well; it is never 0, and a series without
    a step shows none with probability 1 - `significance`. Sources: D. S. Matteson & N. A. James, "A nonparametric approach for
    multiple change point analysis of multivariate data" (J. Am. Statist. Assoc. 109, 2014); for performance histories, with splits
    that reach to the ends of the segment, D. Daly et al., "The use of change point detection to identify software performance
    regressions" (ICPE 2020). Assumption: exchangeable values between steps; a drift appears as several steps.
    """
    series, random = np.asarray(values, dtype=np.float64), np.random.default_rng(seed)
    bounds, p_values = [0, series.size], dict[int, float]()
    while True:
        segments = list(itertools.pairwise(bounds))
        best, place = _best_split(series, segments, shortest)
        if place is None:
            break
        at_least_as_good, most = 0, significance * (permutations + 1) - 1
        for _ in range(permutations):
            shuffled = np.concatenate([random.permutation(series[start:end]) for start, end in segments])
            at_least_as_good += _best_split(shuffled, segments, shortest)[0] >= best * (1 - _ROUNDING)
            if at_least_as_good > most:  # the others cannot make it significant
                break
        if at_least_as_good > most:
            break
        p_values[place] = (at_least_as_good + 1) / (permutations + 1)
        bounds = sorted((*bounds, place))
    means = {start: float(series[start:end].mean()) for start, end in itertools.pairwise(bounds) if end > start}
    return [ChangePoint(place, p_values[place], means[bounds[bounds.index(place) - 1]], means[place]) for place in sorted(p_values)]


def _best_split(series: _Values, segments: Sequence[tuple[int, int]], shortest: int) -> tuple[float, int | None]:
    """The largest statistic of all splits and its index; None if no segment can be split, or the values in each are equal."""
    best, place = 0.0, None
    for start, end in segments:
        if end - start >= 2 * shortest:
            statistics = split_statistics(series[start:end])[shortest - 1 : end - start - shortest]
            index = int(statistics.argmax())
            if statistics[index] > best:
                best, place = float(statistics[index]), start + shortest + index
    return best, place


def split_statistics(values: _Values) -> _Values:
    """mn/(m+n) times the energy distance, for each split into the first m values and the other n, m = 1 … N-1.

    The energy distance is 2 E|X-Y| - E|X-X'| - E|Y-Y'|; the means within a side are over distinct pairs, and 0 for a single value.
    """
    size = values.size
    rows = np.abs(values[:, None] - values)
    inside = 2 * np.cumsum(np.cumsum(rows, axis=1).diagonal())  # twice the sum over the pairs of the first m
    total, along = inside[-1], np.cumsum(rows.sum(axis=1))
    left = np.arange(1, size)
    right = size - left
    first, across = inside[:-1], along[:-1] - inside[:-1]
    second = total - first - 2 * across
    within = first / np.maximum(left * (left - 1), 1) + second / np.maximum(right * (right - 1), 1)
    statistics: _Values = left * right / size * (2 * across / (left * right) - within)
    return statistics

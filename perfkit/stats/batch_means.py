"""How many independent requests the requests of a window are worth for one of its figures, from the equal parts of the window.

The requests of a queue are alike while it is full: ten thousand slow requests may come from three busy periods. The variance
between parts of the window shows that, unless there are so few busy periods that the parts look alike by chance. Therefore requests count as
independent only if no test finds them correlated, at the figure itself or at figures that show correlation better; and if one does, the largest
of several estimates counts, and a figure needs more evidence before its interval is closed.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.probability import student_t_quantile

Numbers = npt.NDArray[np.float64]
_MOST_BATCHES = 64
_GROUPED, _FEWEST_GROUPS = (4, 8), 6
"""Batches are also judged in groups of so many, of which there must be so many at least."""
_FEWEST_WITH_LAGS = 10
_CHANCE = 2.6  # standard errors: 1 % of series of independent requests look correlated to both tests
_HIGHEST_LAG_1 = 0.97
_NORMAL = 1.959964
_FEWEST_BATCHES, _FEWEST_EFFECTIVE, _FEWEST_CORRELATED = 5, 20, 200


@dataclasses.dataclass(frozen=True, slots=True)
class Precision:
    """What the requests of a window are worth for one figure."""

    time: float
    """The autocorrelation time in requests, at least 1: the variance of the figure ÷ that of as many independent requests."""
    is_correlated: bool
    """Whether a test found correlation; otherwise the requests count as independent, and the time is 1 but for chance."""
    batches: float
    """The number of independent parts of the window."""

    @property
    def t(self) -> float:
        """Student's quantile for a two-sided interval of 95 %."""
        return student_t_quantile(0.975, max(int(self.batches) - 1, 2))

    @property
    def time_with_its_error(self) -> float:
        """The time, if correlated longer by as much as Student's t widens an interval: for tests without degrees of freedom."""
        return self.time * (max(self.t / _NORMAL, 1.0) ** 2 if self.is_correlated else 1.0)

    def is_enough(self, count: int) -> bool:
        """Whether so many requests give a figure an interval at all, which may be open."""
        return self.batches >= _FEWEST_BATCHES and (not self.is_correlated or count >= _FEWEST_EFFECTIVE * self.time)

    @property
    def fewest(self) -> int:
        """The effective samples that an interval with two ends needs: from few that are correlated, the time itself is too often underestimated."""
        return _FEWEST_CORRELATED if self.is_correlated else 1


class Deviations:
    """Sums over the requests of each batch of some quantities less their means: one quantity a row, the batches in the order of time."""

    def __init__(self, sums: Numbers, squares: Numbers, fourths: Numbers) -> None:
        """`squares` and `fourths` are the sums of these powers over all requests.

        The former is the variance of the total if requests are independent; its square divided by the latter is the number of requests that it rests on.
        """
        count = sums.shape[1]
        scale = np.where(squares > 0, squares, 1.0)
        between = _variance(sums) / scale
        error = np.sqrt(2 / max(count - 1, 1) + fourths / scale**2)
        known = (squares > 0) & (between > 0)
        lags = _lag_1(sums)
        self._is_correlated = known & ((between - 1 > _CHANCE * error) | ((lags + 1 / count) * math.sqrt(count) > _CHANCE))
        longest = _longest(sums)
        self._count = count
        self._independent_times = np.where(known, np.maximum(between, 1.0), 1.0)
        self._times = np.where(known, np.maximum(longest / scale, 1.0), 1.0)
        self._batches = np.where(known, count * _variance(sums) / np.where(longest > 0, longest, 1.0), count)

    def precision(self, rows: Sequence[int], own: Sequence[int]) -> Precision:
        """The precision of the figure of the rows `own`, of which the less certain one counts; `rows` are all that show its correlation."""
        if not self._is_correlated[list(rows)].any():
            return Precision(float(self._independent_times[list(own)].max()), False, float(self._count))
        largest = max(rows, key=lambda row: float(self._times[row]))
        return Precision(float(self._times[largest]), True, float(self._batches[largest]))


def joined(batches: int) -> npt.NDArray[np.intp]:
    """The starts of at most 64 equal groups of so many batches."""
    size = -(-batches // _MOST_BATCHES)
    groups = max(batches // max(size, 1), 1)
    starts: npt.NDArray[np.intp] = np.arange(groups) * batches // groups
    return starts


def reach_of_total(counts: Numbers) -> float | None:
    """Half the width of the 95 % interval of the total of what was counted in consecutive equal parts of a window; None if they are too few to tell.

    Nothing says how much the counts would vary if what is counted were independent, so that their correlation always counts.
    """
    if counts.size < _FEWEST_BATCHES:
        return None
    sums = np.add.reduceat(counts, joined(counts.size))
    sums = (sums - sums.mean())[None]
    variance = float(_longest(sums)[0])
    batches = sums.size * float(_variance(sums)[0]) / variance if variance else float(sums.size)
    precision = Precision(1.0, True, batches)
    return precision.t * math.sqrt(variance) if batches >= _FEWEST_BATCHES else None


def _variance(sums: Numbers) -> Numbers:
    """The variance of the totals of uncorrelated sums whose mean is 0."""
    count = sums.shape[1]
    variances: Numbers = np.square(sums).sum(axis=1) * (count / max(count - 1, 1))
    return variances


def _lag_1(sums: Numbers) -> Numbers:
    squares = np.square(sums).sum(axis=1)
    lags: Numbers = (sums[:, 1:] * sums[:, :-1]).sum(axis=1) / np.where(squares > 0, squares, 1.0)
    return lags


def _long_run(sums: Numbers) -> Numbers:
    """The variance of the totals of a first-order series with the correlation of the sums; see `autocorrelation.first_order_time`."""
    count = sums.shape[1]
    if count < _FEWEST_WITH_LAGS:
        return _variance(sums)
    rho = np.clip((_lag_1(sums) + 1 / count) / (1 - 3 / count), 0.0, _HIGHEST_LAG_1)
    variances: Numbers = _variance(sums) * (1 + rho) / (1 - rho)
    return variances


def _longest(sums: Numbers) -> Numbers:
    """The largest estimate of the variance of the totals: from the batches, as a first-order series, and from groups of them."""
    count, longest = sums.shape[1], _long_run(sums)
    for size in _GROUPED:
        if (groups := count // size) >= _FEWEST_GROUPS:
            longest = np.maximum(longest, _variance(np.add.reduceat(sums, np.arange(groups) * count // groups, axis=1)))
    return longest

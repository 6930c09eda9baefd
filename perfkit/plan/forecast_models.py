"""Models of daily peaks: exponential growth, linear growth, a yearly season, and level shifts.

Every model describes ln peak without the weekday pattern. Days count from the last day of the history, which is day 0. A model gives the
predictive distribution on future days, which back-testing scores, and simulated paths.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from perfkit.stats.autocorrelation import first_order_time

Numbers = npt.NDArray[np.float64]
WEEK_DAYS, WEEKDAYS_FROM, YEAR_DAYS = 7, 28, 365.25
SEASON_SD, SECOND_HARMONIC_SD = 0.15, 0.05
"""Prior standard deviations of the first and the second yearly harmonic of ln peak."""
SHIFT_SD, SHIFTS_ASSUMED = 0.2, 0.5
"""The size of a typical level shift, in ln peak, and the number of shifts assumed in addition to those found in a history."""
LARGEST_LOG = 600.0
"""The largest ln peak; larger ones are clipped, so that no exponential overflows."""
_SHORTEST_LEVEL_DAYS, _LOWEST_SHARE, _SMALLEST_VARIANCE = 7, 0.02, 1e-24


@dataclasses.dataclass(frozen=True, slots=True)
class PeakHistory:
    """Daily peaks on the scale of the models."""

    days: Numbers
    """Days relative to the last one, ascending: all but the last are negative. Gaps are allowed."""
    logs: Numbers
    """ln peak without the weekday pattern."""
    weekday_logs: Numbers
    """The weekday pattern: seven additions to ln peak; day d has number d mod 7."""
    noise_scale: float
    """The noise of a new day ÷ the scatter of these days; above 1, because the pattern was estimated from them."""

    @property
    def length_days(self) -> int:
        """From the first day to the last, both included."""
        return round(float(self.days[-1] - self.days[0])) + 1

    def weekday(self, days: Numbers) -> Numbers:
        """The weekday pattern of these days."""
        return self.weekday_logs[(days % WEEK_DAYS).astype(np.int64)]


def peak_history(days: Numbers, peaks_per_s: Numbers) -> PeakHistory:
    """The history of ascending days; from 28 days on, a weekday pattern is estimated.

    The pattern is the mean deviation of each weekday from the week around it. It is shrunk towards zero by the positive-part estimator of
    James and Stein (1961), so that chance deviations largely disappear.
    """
    back, logs = days - days[-1], np.log(peaks_per_s)
    none = np.zeros(WEEK_DAYS)
    if back.size < WEEKDAYS_FROM:
        return PeakHistory(back, logs, none, 1.0)
    slope, level = np.polyfit(back, logs, 1)
    straight = logs - slope * back - level
    sums = np.concatenate(([0.0], np.cumsum(straight)))
    first, after = np.searchsorted(back, back - 3), np.searchsorted(back, back + 3, side="right")
    is_whole = after - first >= WEEK_DAYS - 2
    deviation = (straight - (sums[after] - sums[first]) / (after - first))[is_whole]
    weekday = (back[is_whole] % WEEK_DAYS).astype(np.int64)
    counts = np.bincount(weekday, minlength=WEEK_DAYS)
    if counts.sum() < 2 * WEEK_DAYS:
        return PeakHistory(back, logs, none, 1.0)
    means = np.bincount(weekday, deviation, WEEK_DAYS) / np.maximum(counts, 1)
    means[counts > 0] -= means[counts > 0].mean()
    scatter = deviation - means[weekday]
    variance = float(scatter @ scatter) / max(scatter.size - WEEK_DAYS, 1) * WEEK_DAYS / scatter.size
    squares = float(means @ means)
    kept = max(0.0, 1 - 4 * variance / squares) if squares > 0 else 0.0
    pattern = means * kept
    return PeakHistory(back, logs - pattern[(back % WEEK_DAYS).astype(np.int64)], pattern, math.sqrt(1 + kept * WEEK_DAYS / back.size))


@dataclasses.dataclass(frozen=True, slots=True)
class Outlook:
    """The predictive distribution of ln peak without the weekday pattern: a mixture of normal distributions for each day.

    The arrays have a row for each component and a column for each day.
    """

    shares: Numbers
    """The weights of the components; they sum to 1 on each day."""
    centres: Numbers
    sds: Numbers
    """The standard deviations of the level, without the noise of the day."""
    noise_sd: float
    """The standard deviation of the noise of a day."""

    @property
    def centre(self) -> Numbers:
        """The mean of the mixture, which is close to its median."""
        centre: Numbers = (self.shares * self.centres).sum(axis=0)
        return centre

    @property
    def sd(self) -> Numbers:
        """The standard deviation of the level, over all components."""
        variance: Numbers = (self.shares * (self.sds**2 + (self.centres - self.centre) ** 2)).sum(axis=0)
        return np.sqrt(variance)


@runtime_checkable
class Fit(Protocol):
    """A model fitted to a history."""

    @property
    def residuals(self) -> Numbers:
        """The residuals of ln peak, in the order of the days."""

    def outlook(self, days: Numbers) -> Outlook:
        """The predictive distribution on these days."""

    def paths(self, days: Numbers, count: int, random: np.random.Generator) -> Numbers:
        """Simulated levels, `count` × days: ln peak without noise and weekday pattern."""


@dataclasses.dataclass(frozen=True, slots=True)
class _CurveFit:
    """A curve that is linear in its parameters; their estimates are taken as normal."""

    residuals: Numbers
    estimate: Numbers
    covariance: Numbers
    noise_sd: float
    basis: Callable[[Numbers], Numbers]
    to_log: Callable[[Numbers], Numbers]
    """Converts values of the curve to ln peak."""

    def outlook(self, days: Numbers) -> Outlook:
        design = self.basis(days)
        centre = design @ self.estimate
        sd = np.sqrt(np.einsum("ij,jk,ik->i", design, self.covariance, design))
        low, high = self.to_log(centre - sd), self.to_log(centre + sd)
        return Outlook(np.ones((1, days.size)), self.to_log(centre)[None], ((high - low) / 2)[None], self.noise_sd)

    def paths(self, days: Numbers, count: int, random: np.random.Generator) -> Numbers:
        variances, directions = np.linalg.eigh(self.covariance)  # Cholesky's factor does not exist for a singular matrix
        factor = directions * np.sqrt(np.maximum(variances, 0.0))
        drawn = self.estimate + random.standard_normal((count, self.estimate.size)) @ factor.T
        return self.to_log(drawn @ self.basis(days).T)


def _solve(design: Numbers, values: Numbers, precision: Numbers, fitted: int) -> tuple[Numbers, Numbers, Numbers, float]:
    """Least squares with prior precisions of the parameters: estimate, covariance, residuals and their standard deviation.

    The covariance counts only independent residuals: values ÷ autocorrelation time. It is multiplied by the variance of Student's t,
    ν/(ν - 2).
    """
    gram, moments = design.T @ design, design.T @ values
    estimate: Numbers = np.linalg.lstsq(design, values, rcond=None)[0].astype(np.float64)
    residuals, variance, time = _scatter(values - design @ estimate, fitted)
    if precision.any():
        estimate = np.linalg.solve(gram / (variance * time) + np.diag(precision), moments / (variance * time)).astype(np.float64)
        residuals, variance, time = _scatter(values - design @ estimate, fitted)
    degrees = max(values.size / time - fitted, 3.0)
    covariance: Numbers = np.linalg.inv(gram / (variance * time) + np.diag(precision)).astype(np.float64)
    return estimate, covariance * degrees / (degrees - 2), residuals, math.sqrt(variance)


def _scatter(residuals: Numbers, fitted: int) -> tuple[Numbers, float, float]:
    """Residuals, their variance, and their autocorrelation time in days."""
    variance = float(residuals @ residuals) / max(residuals.size - fitted, 1)
    return residuals, max(variance, _SMALLEST_VARIANCE), first_order_time(residuals, fitted=2)


def _line(days: Numbers) -> Numbers:
    return np.column_stack([np.ones_like(days), days])


def fit_exponential(history: PeakHistory) -> Fit:
    """Constant relative growth: ln peak = a + b·day."""
    estimate, covariance, residuals, sd = _solve(_line(history.days), history.logs, np.zeros(2), 2)
    return _CurveFit(residuals, estimate, covariance, sd * history.noise_scale, _line, lambda logs: np.minimum(logs, LARGEST_LOG))


def fit_linear(history: PeakHistory) -> Fit:
    """Constant absolute growth: peak = a + b·day, with noise in proportion to the level."""
    peaks, design = np.exp(history.logs), _line(history.days)
    lowest = _LOWEST_SHARE * float(peaks.mean())
    level = np.exp(design @ np.linalg.lstsq(design, history.logs, rcond=None)[0])
    for _ in range(3):
        estimate, covariance, _, _ = _solve(design / level[:, None], peaks / level, np.zeros(2), 2)
        level = np.maximum(design @ estimate, 5 * lowest)
    residuals = np.log(peaks / level)
    sd = math.sqrt(_scatter(residuals, 2)[1])
    return _CurveFit(residuals, estimate, covariance, sd * history.noise_scale, _line, lambda values: np.log(np.maximum(values, lowest)))


def _year(days: Numbers) -> Numbers:
    angle = 2 * math.pi * days / YEAR_DAYS
    return np.column_stack([np.ones_like(days), days, np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle)])


def fit_seasonal(history: PeakHistory) -> Fit:
    """Exponential growth with a yearly season of two harmonics.

    The harmonics have normal priors around zero. In a short history growth and season cannot be separated, and the priors keep that
    uncertainty. From about two years on, the history decides.
    """
    prior = np.array([0.0, 0.0, *[SEASON_SD**-2] * 2, *[SECOND_HARMONIC_SD**-2] * 2])
    estimate, covariance, residuals, sd = _solve(_year(history.days), history.logs, prior, 2)
    return _CurveFit(residuals, estimate, covariance, sd * history.noise_scale, _year, lambda logs: np.minimum(logs, LARGEST_LOG))


@dataclasses.dataclass(frozen=True, slots=True)
class _LevelFit:
    """A level that is constant between shifts, which have random times and normal sizes.

    After few shifts their rate and size are uncertain. The rate per day has a gamma distribution. The size has the Student's t that
    follows from a conjugate prior, which counts as one further shift.
    """

    residuals: Numbers
    level: float
    level_sd: float
    noise_sd: float
    shifts: Numbers
    """The sizes of the shifts in the history, in ln peak."""
    length_days: int

    @property
    def _size(self) -> tuple[float, float]:
        """The mean size of a shift, and the mean squared deviation from it."""
        number = self.shifts.size + 1
        mean = float(self.shifts.sum()) / number
        return mean, max((float(self.shifts @ self.shifts) + SHIFT_SD**2) / number - mean**2, 1e-12)

    def outlook(self, days: Numbers) -> Outlook:
        (mean, variance), number = self._size, self.shifts.size + SHIFTS_ASSUMED
        expected = number / self.length_days * days
        some = np.maximum(1 - (1 + days / self.length_days) ** -number, 1e-12)
        shifts = expected / some
        spread = (expected + expected**2 * (1 + 1 / number)) / some - shifts**2
        shifted = self.level_sd**2 + shifts * variance + shifts**2 * variance / (self.shifts.size + 1) + spread * mean**2
        centres = np.stack([np.full_like(days, self.level), self.level + shifts * mean])
        sds = np.stack([np.full_like(days, self.level_sd), np.sqrt(shifted)])
        return Outlook(np.stack([1 - some, some]), centres, sds, self.noise_sd)

    def paths(self, days: Numbers, count: int, random: np.random.Generator) -> Numbers:
        (mean, variance), seen = self._size, self.shifts.size + 1
        per_day = random.gamma(self.shifts.size + SHIFTS_ASSUMED, 1 / self.length_days, (count, 1))
        variances = variance * seen / random.chisquare(seen, (count, 1))
        means = mean + np.sqrt(variances / seen) * random.standard_normal((count, 1))
        numbers = random.poisson(per_day * np.diff(days, prepend=0.0))
        path, day = np.nonzero(numbers)
        number = numbers[path, day]
        sizes = np.zeros((count, days.size))
        sizes[path, day] = number * means[path, 0] + np.sqrt(number * variances[path, 0]) * random.standard_normal(path.size)
        level = self.level + self.level_sd * random.standard_normal((count, 1))
        return np.minimum(level + np.cumsum(sizes, axis=1), LARGEST_LOG)


def fit_level_shifts(history: PeakHistory) -> Fit:
    """A constant level with shifts, found by binary segmentation (L. Y. Vostrikova, 1981), and continued as a compound Poisson process.

    A split must lower the sum of squares by 3·ln n times the variance, which is estimated from the differences of neighbouring days.
    A growing history appears as a staircase, whose shifts continue in the same direction.
    """
    logs = history.logs
    starts = _level_starts(logs)
    bounds = [*starts, logs.size]
    means = np.array([logs[start:end].mean() for start, end in itertools.pairwise(bounds)])
    sizes = np.diff(bounds)
    residuals = logs - np.repeat(means, sizes)
    residuals, variance, time = _scatter(residuals, means.size)
    last = int(sizes[-1])
    level_sd = math.sqrt(variance * min(time, last) / last)
    noise_sd = math.sqrt(variance) * history.noise_scale
    return _LevelFit(residuals, float(means[-1]), level_sd, noise_sd, np.diff(means), history.length_days)


def _level_starts(logs: Numbers) -> list[int]:
    """The first index of each level, ascending."""
    size = logs.size
    noise = float(np.median(np.abs(np.diff(logs)))) / (0.6745 * math.sqrt(2)) if size > 1 else 0.0
    threshold = 3 * math.log(size) * max(noise, 1e-9) ** 2
    sums, starts, waiting = np.concatenate(([0.0], np.cumsum(logs - logs.mean()))), [0], [(0, size)]
    while waiting:
        start, end = waiting.pop()
        splits = np.arange(start + _SHORTEST_LEVEL_DAYS, end - _SHORTEST_LEVEL_DAYS + 1)
        if not splits.size:
            continue
        left, right = splits - start, end - splits
        difference = (sums[splits] - sums[start]) / left - (sums[end] - sums[splits]) / right
        gain = difference**2 * left * right / (end - start)
        best = int(gain.argmax())
        if gain[best] > threshold:
            starts.append(int(splits[best]))
            waiting += [(start, int(splits[best])), (int(splits[best]), end)]
    return sorted(starts)


MODELS: dict[str, Callable[[PeakHistory], Fit]] = {
    "exponential": fit_exponential,
    "linear": fit_linear,
    "seasonal": fit_seasonal,
    "level shifts": fit_level_shifts,
}

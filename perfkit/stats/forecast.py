"""Forecast of demand from daily peaks: growth, its uncertainty, and when a capacity is exhausted."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.autocorrelation import first_order_time

_Numbers = npt.NDArray[np.float64]
FEWEST_DAYS, WEEKDAYS_FROM, BLOCK_DAYS, HORIZON_DAYS, PATHS = 14, 28, 7, 5 * 365, 1000
QUANTILES = (0.1, 0.5, 0.9)


@dataclasses.dataclass(frozen=True, slots=True)
class Exhaustion:
    """Days from the last peak until a daily peak first exceeds the capacity; None beyond the horizon."""

    capacity_per_s: float
    p10_days: int | None
    """One in ten simulated paths exceeds the capacity earlier."""
    p50_days: int | None
    p90_days: int | None
    trend_days: float | None
    """From the trend alone, ln(C/Q₀)/ln(1+g); None if it does not grow."""


@dataclasses.dataclass(frozen=True, slots=True)
class Forecast:
    """A log-linear trend of daily peaks, and simulated paths of its continuation."""

    days: int
    """The length of the history, from its first to its last day."""
    level_per_s: float
    """Q₀: the trend on the last day."""
    growth_per_day: float
    """g."""
    growth_low_per_day: float
    growth_high_per_day: float
    """80 % interval."""
    residual_sd: float
    paths_per_s: npt.NDArray[np.float64] = dataclasses.field(repr=False, compare=False)
    """Paths × days, from the day after the last."""

    def fan_per_s(self, quantile: float, days: int) -> _Numbers:
        """The quantile over the paths, for each of the next `days` days."""
        fan: _Numbers = np.quantile(self.paths_per_s[:, :days], quantile, axis=0)
        return fan

    def exhaustion(self, capacity_per_s: float) -> Exhaustion:
        """When a daily peak first exceeds a capacity: the 10 %, 50 % and 90 % quantiles over the paths."""
        above = self.paths_per_s > capacity_per_s
        first = np.where(above.any(axis=1), above.argmax(axis=1) + 1.0, math.inf)
        p10, p50, p90 = (float(np.quantile(first, one, method="inverted_cdf")) for one in QUANTILES)
        trend = None
        if capacity_per_s <= self.level_per_s:
            trend = 0.0
        elif self.growth_per_day > 0:
            trend = math.log(capacity_per_s / self.level_per_s) / math.log1p(self.growth_per_day)
        days = [int(one) if math.isfinite(one) else None for one in (p10, p50, p90)]
        return Exhaustion(capacity_per_s, days[0], days[1], days[2], trend)


def fit_forecast(
    days: Sequence[int] | npt.NDArray[np.int64], peaks_per_s: Sequence[float] | _Numbers, random: np.random.Generator
) -> Forecast:
    """Fits ln peak = a + b·day by least squares, and simulates paths; `days` count from any day, may have gaps, and must not repeat.

    For each path, a and b are drawn from the t distribution of their estimates, whose variance is multiplied by the autocorrelation
    time of the residuals; from 28 days on, the means of the weekdays are subtracted from these residuals first, so that the weekly
    pattern does not count as uncertainty. Residuals are then added in blocks of seven days, which keeps weekdays and busy weeks together.

    Assumptions: growth continues at the same rate; no seasons beyond the week, no campaigns, no saturation. Beyond the length
    of the history this is extrapolation. Raises ValueError for fewer than 14 days, repeated days and peaks of 0 or less.
    """
    day, peak = np.asarray(days, dtype=np.float64), np.asarray(peaks_per_s, dtype=np.float64)
    if day.size < FEWEST_DAYS:
        raise ValueError(f"a forecast needs at least {FEWEST_DAYS} daily peaks, found {day.size}")
    if np.unique(day).size < day.size:
        raise ValueError("each day must have one peak, but a day is given twice")
    if peak.min() <= 0:
        raise ValueError(f"daily peaks must be above zero, found {peak.min():g}")
    order = np.argsort(day)
    back, logs = day[order] - day.max(), np.log(peak[order])
    design = np.column_stack([np.ones_like(back), back])
    (level, growth), *_ = np.linalg.lstsq(design, logs, rcond=None)
    residuals = logs - design @ np.array([level, growth])
    smooth, degrees = residuals, day.size - 2
    if day.size >= WEEKDAYS_FROM:
        smooth, degrees = residuals - _weekday_means(day[order], residuals), degrees - 6
    variance = float(smooth @ smooth) / degrees
    covariance = np.linalg.inv(design.T @ design) * variance * first_order_time(smooth, fitted=2)
    factor = np.linalg.cholesky(covariance + np.eye(2) * 1e-30)
    scales = np.sqrt(degrees / random.chisquare(degrees, PATHS))
    drawn = np.array([level, growth]) + (random.standard_normal((PATHS, 2)) @ factor.T) * scales[:, None]
    ahead = np.arange(1, HORIZON_DAYS + 1)
    blocks = -(-HORIZON_DAYS // BLOCK_DAYS)
    # blocks start whole weeks before the end of the history, so that weekdays match
    starts = residuals.size - BLOCK_DAYS * random.integers(1, residuals.size // BLOCK_DAYS + 1, (PATHS, blocks))
    noise = residuals[(starts[:, :, None] + np.arange(BLOCK_DAYS)).reshape(PATHS, -1)[:, :HORIZON_DAYS]]
    paths = np.exp(np.minimum(drawn[:, :1] + drawn[:, 1:] * ahead + noise, 600.0))
    low, high = np.quantile(drawn[:, 1], [0.1, 0.9])
    return Forecast(
        days=int(day.max() - day.min()),
        level_per_s=math.exp(level),
        growth_per_day=math.expm1(growth),
        growth_low_per_day=math.expm1(float(low)),
        growth_high_per_day=math.expm1(float(high)),
        residual_sd=float(residuals.std()),
        paths_per_s=paths,
    )


def _weekday_means(day: _Numbers, residuals: _Numbers) -> _Numbers:
    """The mean residual of each day's weekday."""
    weekday = (day % BLOCK_DAYS).astype(np.int64)
    sums, counts = np.bincount(weekday, residuals, BLOCK_DAYS), np.bincount(weekday, minlength=BLOCK_DAYS)
    return (sums / np.maximum(counts, 1))[weekday]

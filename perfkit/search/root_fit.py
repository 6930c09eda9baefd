"""The zero crossing of a noisy rising curve: a straight line through the points near it, with Fieller's interval."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.distributions import student_t_quantile

_WINDOWS = ((0.72, 1.14), (0.5, 1.5))
POWER = 2 / 3
_MIN_POINTS = 3
_ROUNDS = 6
_MAX_MARGIN = 1.5
_MAX_DROP = 0.95  # a root stays above 5 % of the centre, and so positive


@dataclasses.dataclass(frozen=True, slots=True)
class RootFit:
    """The crossing, its interval, and the fitted line y = `intercept` + `slope` x.

    y = (1 - exp(-p margin)) ÷ p with p = `POWER`, x = rate ÷ `centre_per_s` - 1.
    """

    root_per_s: float
    low_per_s: float
    """0 if the points give no lower bound."""
    high_per_s: float
    """Infinite if the points give no upper bound."""
    centre_per_s: float
    intercept: float
    slope: float
    points: int

    @property
    def is_bounded(self) -> bool:
        """Whether the interval has both bounds."""
        return self.low_per_s > 0 and math.isfinite(self.high_per_s)

    def is_within(self, precision: float) -> bool:
        """Whether both bounds lie within `precision` of the root, as a share of it."""
        return self.low_per_s >= self.root_per_s * (1 - precision) and self.high_per_s <= self.root_per_s * (1 + precision)


def fit_root(rates_per_s: Sequence[float], margins: Sequence[float], centre_per_s: float, confidence: float) -> RootFit | None:
    """The rate at which the margin ln(value ÷ limit) crosses zero; None if no rising line fits the points.

    The line goes through the points between 0.72 and 1.14 times the root, or between 0.5 and 1.5 times if those give no bounds,
    since such a flat curve is also less bent. Fitted against the rate is (1 - (limit ÷ value)^p) ÷ p with p = 2/3, the Box-Cox
    transform (G. E. P. Box & D. R. Cox, JRSS B 26, 1964) of value ÷ limit with λ = -p.

    Why 2/3: the percentiles of a queue grow about as 1/(1 - ρ), so their reciprocal (p = 1) falls in a straight line, and the noise
    of a window of fixed length grows likewise, so that all points weigh the same; but the reciprocal of a noisy value is biased
    upwards. The logarithm (p = 0) has a bent line, with a bias of -1 % of the root on M/M/1. 2/3 is a compromise. Weights by each
    window's own interval would favour windows whose values came out low.

    The interval is that of E. C. Fieller, JRSS B 16 (1954), with Student's t of n - 2 degrees of freedom.
    """
    narrow = _through(rates_per_s, margins, centre_per_s, confidence, _WINDOWS[0])
    if narrow is not None and narrow.is_bounded:
        return narrow
    wide = _through(rates_per_s, margins, centre_per_s, confidence, _WINDOWS[1])
    return wide if wide is not None and wide.is_bounded else narrow


def _through(
    rates_per_s: Sequence[float], margins: Sequence[float], centre_per_s: float, confidence: float, window: tuple[float, float]
) -> RootFit | None:
    """The line through the points in a window around its own root, iterated until the root no longer changes."""
    rates, near = np.asarray(rates_per_s), np.abs(margins) <= _MAX_MARGIN
    root, fit = centre_per_s, None
    for _ in range(_ROUNDS):
        inside = near & (window[0] <= rates / root) & (rates / root <= window[1])
        fit = _fit(rates[inside], np.asarray(margins)[inside], root, confidence)
        if fit is None or abs(fit.root_per_s / root - 1) < 1e-3:
            return fit
        root = fit.root_per_s
    return fit


def _fit(rates_per_s: npt.NDArray[np.float64], margins: npt.NDArray[np.float64], centre_per_s: float, confidence: float) -> RootFit | None:
    number = rates_per_s.size
    if number < _MIN_POINTS:
        return None
    x, y = rates_per_s / centre_per_s - 1, -np.expm1(-POWER * margins) / POWER
    mean_x, mean_y = float(x.mean()), float(y.mean())
    spread = float(np.square(x - mean_x).sum())
    slope = float(((x - mean_x) * (y - mean_y)).sum()) / spread if spread else 0.0
    if slope <= 0:
        return None
    variance = float(np.square(y - mean_y - slope * (x - mean_x)).sum()) / (number - 2)
    reach = student_t_quantile((1 + confidence) / 2, number - 2) ** 2 * variance
    # u = x - mean_x lies in the interval if (mean_y + slope u)² <= reach (1/n + u²/spread)
    squared, half, constant = slope**2 - reach / spread, mean_y * slope, mean_y**2 - reach / number
    discriminant = half**2 - squared * constant
    root = mean_x - mean_y / slope
    if squared > 0 and discriminant >= 0:
        low, high = (mean_x + (-half + sign * math.sqrt(discriminant)) / squared for sign in (-1, 1))
    else:  # the slope may be zero, so every rate is possible
        low, high = -math.inf, math.inf
    return RootFit(
        root_per_s=centre_per_s * (1 + max(root, -_MAX_DROP)),
        low_per_s=centre_per_s * (1 + max(low, -1.0)),
        high_per_s=centre_per_s * (1 + high),
        centre_per_s=centre_per_s,
        intercept=mean_y - slope * mean_x,
        slope=slope,
        points=number,
    )

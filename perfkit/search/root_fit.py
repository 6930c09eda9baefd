"""Where a noisy rising curve crosses zero, from a straight line through points near the crossing, with Fieller's interval."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from perfkit.stats.distributions import student_t_quantile

_WINDOWS = ((0.72, 1.14), (0.5, 1.5))
POWER = 2 / 3
_FEWEST = 3
_ROUNDS = 6
_FARTHEST = 1.5
_FURTHEST = 0.95  # of x, so that a root stays a positive rate


@dataclasses.dataclass(frozen=True, slots=True)
class RootFit:
    """The crossing and its interval, and the line: of y = (1 - exp(-p margin)) ÷ p, p = `POWER`, on x = rate ÷ `centre_per_s` - 1."""

    root_per_s: float
    low_per_s: float
    """0 where the points do not bound it below."""
    high_per_s: float
    """Infinite where they do not bound it above."""
    centre_per_s: float
    intercept: float
    slope: float
    points: int

    @property
    def is_bounded(self) -> bool:
        """Whether the interval ends on both sides."""
        return self.low_per_s > 0 and math.isfinite(self.high_per_s)

    def is_within(self, precision: float) -> bool:
        """Whether the interval lies within that share of the root on either side."""
        return self.low_per_s >= self.root_per_s * (1 - precision) and self.high_per_s <= self.root_per_s * (1 + precision)


def fit_root(rates_per_s: Sequence[float], margins: Sequence[float], centre_per_s: float, confidence: float) -> RootFit | None:
    """The rate at which the margin ln(value ÷ limit) crosses zero; None where no rising line goes through the points.

    The line goes through the points between 0.72 and 1.14 times the root, or between 0.5 and 1.5 times where those do not
    bound it: a curve so flat is less bent. Fitted is (1 - (limit ÷ value)^p) ÷ p with p = 2/3, the Box-Cox transform (G. E. P. Box &
    D. R. Cox, JRSS B 26, 1964) of value ÷ limit with λ = -p, against the rate. The percentiles of a queue rise about as 1/(1 - ρ), so
    that their reciprocal (p = 1) falls in a straight line, and the noise of a window of fixed length rises alike, so that points
    weigh the same; but the reciprocal of a noisy value is too large in the mean. Two thirds lie between it and the logarithm
    (p = 0), whose line is bent: a bias of -1 % of the root on M/M/1. Weights by each window's own interval would prefer those that came out
    low. The interval is that of E. C. Fieller, JRSS B 16 (1954), with Student's t of n - 2 degrees of freedom.
    """
    narrow = _through(rates_per_s, margins, centre_per_s, confidence, _WINDOWS[0])
    if narrow is not None and narrow.is_bounded:
        return narrow
    wide = _through(rates_per_s, margins, centre_per_s, confidence, _WINDOWS[1])
    return wide if wide is not None and wide.is_bounded else narrow


def _through(
    rates_per_s: Sequence[float], margins: Sequence[float], centre_per_s: float, confidence: float, window: tuple[float, float]
) -> RootFit | None:
    """The line through the points in a window about its own root, found in a few rounds."""
    root, found = centre_per_s, None
    for _ in range(_ROUNDS):
        near = zip(rates_per_s, margins, strict=True)
        inside = [index for index, (rate, margin) in enumerate(near) if window[0] <= rate / root <= window[1] and abs(margin) <= _FARTHEST]
        found = _fit([rates_per_s[index] for index in inside], [margins[index] for index in inside], root, confidence)
        if found is None or abs(found.root_per_s / root - 1) < 1e-3:
            return found
        root = found.root_per_s
    return found


def _fit(rates_per_s: Sequence[float], margins: Sequence[float], centre_per_s: float, confidence: float) -> RootFit | None:
    number = len(rates_per_s)
    if number < _FEWEST:
        return None
    x = np.asarray(rates_per_s) / centre_per_s - 1
    y = -np.expm1(-POWER * np.asarray(margins)) / POWER
    mean_x, mean_y = float(x.mean()), float(y.mean())
    spread = float(np.square(x - mean_x).sum())
    slope = float(((x - mean_x) * (y - mean_y)).sum()) / spread if spread else 0.0
    if slope <= 0:
        return None
    variance = float(np.square(y - mean_y - slope * (x - mean_x)).sum()) / (number - 2)
    reach = student_t_quantile((1 + confidence) / 2, number - 2) ** 2 * variance
    # u = x - mean_x is inside where (mean_y + slope u)² <= reach (1/n + u²/spread)
    squared, half, constant = slope**2 - reach / spread, mean_y * slope, mean_y**2 - reach / number
    discriminant = half**2 - squared * constant
    root = mean_x - mean_y / slope
    if squared > 0 and discriminant >= 0:
        low, high = (mean_x + (-half + sign * math.sqrt(discriminant)) / squared for sign in (-1, 1))
    else:  # the slope may be zero: every rate is possible
        low, high = -math.inf, math.inf
    return RootFit(
        root_per_s=centre_per_s * (1 + max(root, -_FURTHEST)),
        low_per_s=centre_per_s * (1 + max(low, -1.0)),
        high_per_s=centre_per_s * (1 + high),
        centre_per_s=centre_per_s,
        intercept=mean_y - slope * mean_x,
        slope=slope,
        points=number,
    )

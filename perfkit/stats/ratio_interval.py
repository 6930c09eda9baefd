"""Confidence intervals of ratios and differences of two figures, from what is known of each figure."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Self

from perfkit.stats.probability import student_t_quantile

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval; an end that the data do not bound is None."""

    value: float
    low: float | None
    high: float | None

    def scaled(self, factor: float) -> "Estimate":
        """The positive figure with an interval that reaches `factor` times as far on the logarithmic scale; an end at zero stays open."""
        low, high = (None if end is None or end <= 0 else self.value * (end / self.value) ** factor for end in (self.low, self.high))
        return Estimate(self.value, low, high)

    def no_narrower(self, reach: float) -> "Estimate":
        """The figure with an interval that reaches at least so far on both sides, down to 0; an open end stays open."""
        low = None if self.low is None else min(self.low, max(self.value - reach, 0.0))
        return Estimate(self.value, low, None if self.high is None else max(self.high, self.value + reach))


def ratio_of(base: Estimate, other: Estimate) -> Estimate:
    """The ratio other ÷ base of two independent positive figures, with its interval from those of the figures.

    MOVER on logarithms: with d = ln(other/base) the limits are d - √((ln o - ln o_low)² + (ln b_high - ln b)²) and d +
    √((ln o_high - ln o)² + (ln b - ln b_low)²), at the intervals' own confidence. Source: G. Y. Zou & A. Donner, "Construction
    of confidence limits about effect measures" (Statist. Med. 27, 2008). An end that depends on an
    open end is open. Raises ValueError for a figure of 0 or less.
    """
    if min(base.value, other.value) <= 0:
        raise ValueError(f"a ratio needs figures above zero, found {base.value:g} and {other.value:g}")
    ratio = other.value / base.value
    down, up = _reach(other.value, other.low), _reach(base.value, base.high)
    low = None if down is None or up is None else ratio * math.exp(-math.hypot(down, up))
    up, down = _reach(other.value, other.high), _reach(base.value, base.low)
    high = None if down is None or up is None else ratio * math.exp(math.hypot(down, up))
    return Estimate(ratio, low, high)


def _reach(value: float, end: float | None) -> float | None:
    return abs(math.log(end / value)) if end is not None and end > 0 else None


def geometric_mean(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The geometric mean of independent positive values with Student's interval on logarithms; open for a single value.

    Assumption: the logarithms are about normal. Raises ValueError without values, and for a value of 0 or less.
    """
    if not values or min(values) <= 0:
        raise ValueError(f"a geometric mean needs values above zero, found {list(values)}")
    logarithms = [math.log(value) for value in values]
    mean = statistics.fmean(logarithms)
    if len(values) == 1:
        return Estimate(math.exp(mean), None, None)
    return on_logarithms(math.exp(mean), statistics.stdev(logarithms) / math.sqrt(len(values)), len(values) - 1, confidence)


def on_logarithms(value: float, standard_error: float, degrees: int, confidence: float) -> Estimate:
    """A positive value with Student's interval of its logarithm."""
    reach = math.exp(student_t_quantile((1 + confidence) / 2, degrees) * standard_error)
    return Estimate(value, value / reach, value * reach)


def ratio_of_means(base: Sequence[float], other: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The ratio of the geometric means, other ÷ base, of independent values, with Welch's interval on logarithms.

    The interval is open if a side has a single value. Source: B. L. Welch, Biometrika 34 (1947), with the degrees of freedom rounded
    down. Raises ValueError as `geometric_mean` does.
    """
    ratio = geometric_mean(other).value / geometric_mean(base).value
    if min(len(base), len(other)) < 2:
        return Estimate(ratio, None, None)
    squares = _squares(base, other)
    if not sum(squares):
        return Estimate(ratio, ratio, ratio)
    return on_logarithms(ratio, math.sqrt(sum(squares)), welch_degrees(base, other), confidence)


def welch_degrees(base: Sequence[float], other: Sequence[float]) -> int:
    """The degrees of freedom of `ratio_of_means`, rounded down, of sides with two or more values above zero."""
    squares = _squares(base, other)
    if not sum(squares):
        return len(base) + len(other) - 2
    df = sum(squares) ** 2 / sum(square**2 / (len(values) - 1) for square, values in zip(squares, (base, other), strict=True))
    return max(math.floor(df), 1)


def _squares(base: Sequence[float], other: Sequence[float]) -> list[float]:
    """The squared standard error of each side's mean logarithm."""
    return [statistics.variance(map(math.log, values)) / len(values) for values in (base, other)]


@dataclasses.dataclass(frozen=True, slots=True)
class LogSample:
    """Repeated positive values: the mean and the variance of their logarithms, and their number."""

    mean: float
    variance: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Two or more values above zero; raises ValueError for others."""
        if len(values) < 2 or min(values) <= 0:
            raise ValueError(f"a scatter needs two or more values above zero, found {list(values)}")
        logarithms = [math.log(value) for value in values]
        return cls(statistics.fmean(logarithms), statistics.variance(logarithms), len(values))


@dataclasses.dataclass(frozen=True, slots=True)
class PooledScatter:
    """The variance of the logarithms of repeated values, pooled over several samples, and its degrees of freedom."""

    variance: float
    degrees: int

    @classmethod
    def of(cls, samples: Sequence[LogSample]) -> Self:
        """Pool the variances within one sample or more."""
        degrees = sum(one.count - 1 for one in samples)
        return cls(sum((one.count - 1) * one.variance for one in samples) / degrees, degrees)

    def ratio(self, base: LogSample, other: LogSample, confidence: float = CONFIDENCE) -> Estimate:
        """The ratio of the geometric means, other ÷ base, of two of the samples, with Student's interval on logarithms.

        The variance of each is its own or the pooled one, whichever is larger. The pooled one keeps three repetitions from a small variance
        by chance, and gives the degrees of freedom. A sample's own keeps one that scatters more than the others from their small variance.
        """
        square = sum(max(one.variance, self.variance) / one.count for one in (base, other))
        return on_logarithms(math.exp(other.mean - base.mean), math.sqrt(square), self.degrees, confidence)


def share_interval(hits: float, count: float, confidence: float = CONFIDENCE) -> Estimate:
    """A share with Wilson's score interval (E. B. Wilson, J. Am. Statist. Assoc. 22, 1927), for independent requests, of which there may be fractions."""
    if count <= 0 or not 0 <= hits <= count:
        raise ValueError(f"a share needs 0 <= hits <= count and count > 0, found {hits} of {count}")
    z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    share, square = hits / count, z * z
    middle = (share + square / (2 * count)) / (1 + square / count)
    reach = z * math.sqrt(share * (1 - share) / count + square / (4 * count * count)) / (1 + square / count)
    return Estimate(share, max(middle - reach, 0.0) if hits else 0.0, min(middle + reach, 1.0) if hits < count else 1.0)


def difference_of(base: Estimate, other: Estimate) -> Estimate:
    """The difference other - base of two independent figures, with its interval from those of the figures, which are closed.

    MOVER: d - √((o - o_low)² + (b_high - b)²) and d + √((o_high - o)² + (b - b_low)²), by G. Y. Zou & A. Donner as for `ratio_of`. Of shares
    with Wilson's intervals it is R. G. Newcombe's hybrid score interval (Statist. Med. 17, 1998, method 10).
    """
    assert None not in (base.low, base.high, other.low, other.high)
    difference = other.value - base.value
    low = difference - math.hypot(other.value - (other.low or 0.0), (base.high or 0.0) - base.value)
    return Estimate(difference, low, difference + math.hypot((other.high or 0.0) - other.value, base.value - (base.low or 0.0)))

"""The difference and the ratio of two medians with confidence intervals, from bucket counts."""

import dataclasses
import math
from collections.abc import Sequence

from perfkit.stats.buckets import BucketCounts
from perfkit.stats.distributions import binomial_cdf
from perfkit.stats.percentile_interval import percentile_intervals

FEWEST_VALUES = 6
"""The fewest independent values whose range is a 95 % interval of the median: 1 - 2 · 0.5⁶ = 96.9 %."""


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with the ends of its confidence interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True)
class MedianComparison:
    """How much longer the first times are than the second, at the median."""

    difference_ns: Estimate
    ratio: Estimate | None
    """None if the second median, or an end of its interval, is 0."""


def median_interval(values: BucketCounts, confidence: float = 0.95) -> Estimate | None:
    """The median of independent values with its distribution-free interval; None for fewer than 6 values at 95 %.

    The interval is that of the sign test, [x₍ᵣ₎, x₍ₙ₊₁₋ᵣ₎] with the largest r for which P[Bin(n, ½) < r] ≤ (1 - confidence)/2. Source:
    W. J. Conover, *Practical Nonparametric Statistics*, section 3.2. Its coverage is at least `confidence` for any continuous
    distribution.
    """
    count, rank = values.count, 0
    while rank < count // 2 and binomial_cdf(rank, count, 0.5) <= (1 - confidence) / 2:
        rank += 1
    if not rank:
        return None
    value, low, high = values.values_at([0.5, rank / count, (count + 1 - rank) / count])
    return Estimate(value, low, high)


def compare_medians(first: BucketCounts, second: Sequence[BucketCounts]) -> MedianComparison | None:
    """The median of `first` minus, and divided by, that of `second`, with 95 % intervals; None with too few values.

    `first` are independent values, whose interval is `median_interval`. `second` may be correlated: they come in parts that follow each
    other in time, and have the interval of `percentile_intervals`; empty parts are left out, because values that come in clusters leave
    most parts empty, which says nothing about the variance between them. The intervals are joined by the method of variance estimates
    recovery: L = d - √((m₁-l₁)² + (u₂-m₂)²), U = d + √((u₁-m₁)² + (m₂-l₂)²), for the ratio with logarithms. Source: G. Y. Zou & A. Donner,
    "Construction of confidence intervals about effect measures: a general approach", Statistics in Medicine 27 (2008). Assumption: the two
    medians are independent; where they are positively correlated, the interval is too wide.
    """
    parts = [part for part in second if part.count]
    one, other = median_interval(first), percentile_intervals(parts, (0.5,)).get(0.5)
    if one is None or other is None or other.high_ns is None:
        return None
    two = Estimate(other.value_ns, other.low_ns, other.high_ns)
    return MedianComparison(_difference(one, two), _ratio(one, two))


def _difference(one: Estimate, two: Estimate) -> Estimate:
    value = one.value - two.value
    below, above = math.hypot(one.value - one.low, two.high - two.value), math.hypot(one.high - one.value, two.value - two.low)
    return Estimate(value, value - below, value + above)


def _ratio(one: Estimate, two: Estimate) -> Estimate | None:
    if min(one.low, two.low) <= 0:
        return None
    logarithms = (Estimate(math.log(each.value), math.log(each.low), math.log(each.high)) for each in (one, two))
    difference = _difference(*logarithms)
    return Estimate(math.exp(difference.value), math.exp(difference.low), math.exp(difference.high))

"""The difference and the ratio of two medians with confidence intervals, from bucket counts."""

import dataclasses
from collections.abc import Sequence

from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import percentile_intervals
from perfkit.stats.probability import binomial_cdf
from perfkit.stats.ratio_interval import Estimate, difference_of, ratio_of


@dataclasses.dataclass(frozen=True, slots=True)
class MedianComparison:
    """How much longer the first times are than the second, at the median."""

    difference_ns: Estimate
    ratio: Estimate | None
    """None if the second median, or an end of its interval, is 0."""


def median_interval(values: BucketCounts) -> Estimate | None:
    """The median of independent values with its distribution-free 95 % interval; None for fewer than 6 values, whose range has 1 - 2 · 0.5⁶.

    The interval is that of the sign test, [x₍ᵣ₎, x₍ₙ₊₁₋ᵣ₎] with the largest r for which P[Bin(n, ½) < r] ≤ 2.5 %. Source:
    W. J. Conover, *Practical Nonparametric Statistics*, section 3.2. Its coverage is at least 95 % for any continuous
    distribution.
    """
    count, rank = values.count, 0
    while rank < count // 2 and binomial_cdf(rank, count, 0.5) <= 0.025:
        rank += 1
    if not rank:
        return None
    value, low, high = values.values_at([0.5, rank / count, (count + 1 - rank) / count])
    return Estimate(value, low, high)


def compare_medians(first: BucketCounts, second: Sequence[BucketCounts]) -> MedianComparison | None:
    """The median of `first` minus, and divided by, that of `second`, with 95 % intervals; None with too few values.

    `first` are independent values, whose interval is `median_interval`. `second` may be correlated: they come in parts that follow each
    other in time, and have the interval of `percentile_intervals`; empty parts are left out, because values that come in clusters leave
    most parts empty, which says nothing about the variance between them. The intervals are joined by `difference_of` and
    `ratio_of`. Assumption: the two medians are independent; where they are positively correlated, the interval is too wide.
    """
    parts = [part for part in second if part.count]
    one, other = median_interval(first), percentile_intervals(parts, (0.5,), are_independent=True).get(0.5)
    if one is None or other is None or other.low_ns is None or other.high_ns is None:
        return None
    two = Estimate(other.value_ns, other.low_ns, other.high_ns)
    return MedianComparison(difference_of(two, one), ratio_of(two, one) if min(one.low or 0.0, other.low_ns) > 0 else None)

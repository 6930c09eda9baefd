"""Whether a disturbance of the load generator moved a reported figure beyond what the figure's own uncertainty allows.

Each function compares a figure as reported with what it would be without the disturbance, and returns an `Effect` if it is beyond.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.autocorrelation import first_order_time
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import PercentileInterval, is_withheld, minimum_samples, percentile_intervals
from perfkit.stats.probability import binomial_limits, student_t_quantile

LEAST_SHARE = 0.01
"""A figure that moves by less than this counts as unmoved, however narrow its interval is."""
_FEWEST_KEPT = 0.5
_MARGIN = 0.5  # of an interval; the rest is for the uncertainty of the comparison itself
_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True, slots=True)
class Effect:
    """A figure that was moved: its name, its reported value, and the value without the disturbance; None if it cannot be told."""

    figure: str
    """`p50` … `p99.99`, `mean`, `throughput` or `error rate`."""
    reported: float
    without: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Alternative:
    """A way to estimate the times without the disturbance; the truth lies between the figures of `least` and of `most`."""

    least: BucketCounts
    most: BucketCounts
    batches: Sequence[BucketCounts]
    """The undisturbed times in equal parts of the window, for the confidence intervals."""


def moved_time(
    reported: BucketCounts, batches: Sequence[BucketCounts], alternatives: Sequence[Alternative], quantiles: Iterable[float]
) -> Effect | None:
    """Of the reported percentiles and the mean that were moved by more than 1 % and half their 95 % interval, the one moved most.

    `batches` are the reported times in equal parts of the window.
    A figure is unmoved if one of the alternatives shows that: each is a valid estimate, and the one with the smaller uncertainty
    decides. The interval is that of the undisturbed times around their own figure, since a disturbance widens the interval of the
    times that include it. If it is open above, or that of the reported times is, it counts as no wider above than below: the few
    samples there do not show how far it reaches. A percentile that has too few samples even if they are independent is left out.
    """
    count = reported.count
    if not count:
        return None
    shown = [quantile for quantile in quantiles if count >= minimum_samples(quantile) and not is_withheld(quantile, count)]
    known = [alternative for alternative in alternatives if alternative.least.count]
    intervals = [percentile_intervals(alternative.batches, shown, _CONFIDENCE) for alternative in known]
    shown_intervals = percentile_intervals(batches, shown, _CONFIDENCE)
    effects = []
    for quantile, value_ns in zip(shown, reported.values_at(shown), strict=True):
        is_open = quantile not in shown_intervals or shown_intervals[quantile].high_ns is None
        ranges = [
            ([times.values_at([quantile])[0] for times in (alternative.least, alternative.most)], _reach_ns(found.get(quantile), is_open))
            for alternative, found in zip(known, intervals, strict=True)
        ]
        effects.append(_effect(f"p{round(quantile * 100, 6):g}", value_ns, ranges))
    means = [
        ([times.mean_and_stddev_ns()[0] for times in (alternative.least, alternative.most)], (_mean_reach_ns(alternative.batches),) * 2)
        for alternative in known
    ]
    effects.append(_effect("mean", reported.mean_and_stddev_ns()[0], means))
    return max((effect for effect in effects if effect is not None), key=_size, default=None)


def _effect(figure: str, reported: float, ranges: Sequence[tuple[Sequence[float], tuple[float, float]]]) -> Effect | None:
    """The effect on a figure, by the bounds of each alternative and how far its interval reaches below and above."""
    least = LEAST_SHARE * reported
    for bounds, (below, above) in ranges:
        if all(-max(_MARGIN * below, least) <= reported - bound <= max(_MARGIN * above, least) for bound in bounds):
            return None
    return Effect(figure, reported, ranges[-1][0][0] if ranges else None)


def _size(effect: Effect) -> float:
    """How far a figure was moved, as a ratio; unknown counts as farthest."""
    if not effect.without or not effect.reported:
        return math.inf
    return abs(math.log(effect.reported / effect.without))


def _reach_ns(interval: PercentileInterval | None, is_open: bool) -> tuple[float, float]:
    """How far an interval reaches below and above its percentile, above no farther if it is open there; 0 without one."""
    if interval is None:
        return 0.0, 0.0
    below = interval.value_ns - interval.low_ns
    above = below if interval.high_ns is None else interval.high_ns - interval.value_ns
    return below, min(below, above) if is_open else above


def moved_rate(counts: npt.NDArray[np.int64], is_disturbed: npt.NDArray[np.bool_]) -> Effect | None:
    """The mean count of answers per interval, if it differs from that of the undisturbed intervals by more than 1 % and half its 95 % interval.

    Assumption: a stationary rate, as in a closed loop. None also if more than half of the intervals were disturbed: the mean time
    tells as much, since it is inversely proportional to the throughput of a closed loop (Little's law).
    """
    if not is_disturbed.any():
        return None
    reported, kept = float(counts.mean()), counts[~is_disturbed].astype(np.float64)
    if kept.size < max(_FEWEST_KEPT * counts.size, 3):
        return None
    mean = float(kept.mean())
    t = student_t_quantile((1 + _CONFIDENCE) / 2, kept.size - 1)
    reach = _MARGIN * t * float(kept.std(ddof=1)) * math.sqrt(first_order_time(kept) / kept.size)
    return None if abs(reported - mean) <= max(reach, LEAST_SHARE * mean) else Effect("throughput", reported, mean)


def moved_error_rate(failed: int, total: int, touched_failed: int, touched: int) -> Effect | None:
    """The share of failed requests, if the touched ones among them moved it: out of 0, or beyond the exact binomial interval of the others.

    `touched_failed` are the touched requests whose failure the disturbance may have caused.
    """
    if not touched_failed:
        return None
    others, others_failed = total - touched, failed - touched_failed
    share = failed / total
    if others_failed > 0 and others > 0 and share <= binomial_limits(min(others_failed, others), others, _CONFIDENCE)[1]:
        return None
    return Effect("error rate", share, others_failed / others if others else None)


def _mean_reach_ns(batches: Sequence[BucketCounts]) -> float:
    """Half the width of the 95 % interval of the mean of all values, from the ratio of sums and counts of the batches."""
    filled = [batch for batch in batches if batch.count]
    if len(filled) < 3:
        return 0.0
    counts = np.array([batch.count for batch in filled], dtype=np.float64)
    sums = np.array([batch.mean_and_stddev_ns()[0] * batch.count for batch in filled])
    excess = sums - sums.sum() / counts.sum() * counts
    size = len(filled)
    variance = size / (size - 1) * float(excess @ excess) / float(counts.sum()) ** 2 * first_order_time(excess)
    return student_t_quantile((1 + _CONFIDENCE) / 2, size - 1) * math.sqrt(variance)

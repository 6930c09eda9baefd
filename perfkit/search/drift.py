"""Whether the target became slower or faster during a search, by the median response times of its probes."""

import math
from collections.abc import Sequence

import numpy as np

from perfkit.result.search import SearchDrift
from perfkit.search.probes import Median, Probe
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import precision_above
from perfkit.stats.probability import normal_quantile, student_t_quantile

_NEAR, _FEWEST_PROBES = 0.25, 6
"""A drift is looked for in so many probes, whose rates differ from the capacity by at most this share."""
_SHOWN, _INTERVAL = 0.995, 0.975
"""The levels of the two-sided test with an error of 1 %, and of the 95 % interval."""
_BESIDE = (0.45, 0.5, 0.55)
_FEWEST_EFFECTIVE = 20


def median_of(intervals: Sequence[BucketCounts]) -> Median | None:
    """The median of the times in the equal parts of a window; None if they are worth fewer than 20 independent ones.

    Its error is that of the share of times above it, divided by the density there, which is that between the 45th and 55th percentiles.
    """
    times = BucketCounts.merged(intervals)
    if not times.count:
        return None
    low_ns, median_ns, high_ns = times.values_at(_BESIDE)
    effective = times.count / precision_above(intervals, median_ns, 0.5).time
    if effective < _FEWEST_EFFECTIVE or not low_ns < high_ns:
        return None
    return Median(median_ns, math.sqrt(0.25 / effective) * math.log(high_ns / low_ns) / (_BESIDE[2] - _BESIDE[0]))


def find_drift(probes: Sequence[Probe], capacity_per_s: float) -> SearchDrift | None:
    """The drift of the target's times over the probes near its capacity; None if it is not shown with an error of 1 %.

    A target whose times all become longer by the share s has at the rate r the median (1 + s) M((1 + s) r), if M is its median against the
    rate before. With b the slope of ln M against ln r, ln(median) rises by about (1 + b) s. So ln(median) is fitted by weighted least
    squares as a parabola in ln r and a straight line in time, from the middle of the first probe to that of the last; each probe counts
    by the inverse square of its median's error. Where the residuals are larger than these errors, all errors are as large as they, and the test
    of the slope in time is Student's. Medians tell a change sooner than the share beyond the limit of an SLO, which rests on few groups of
    slow requests.
    """
    near, instants_s, elapsed_s = list[Probe](), list[float](), 0.0
    for probe in probes:
        if probe.median is not None and probe.is_valid and not probe.is_overloaded and abs(probe.rate_per_s / capacity_per_s - 1) <= _NEAR:
            near.append(probe)
            instants_s.append(elapsed_s + probe.took_s / 2)
        elapsed_s += probe.took_s
    if len(near) < _FEWEST_PROBES:
        return None
    times = (np.array(instants_s) - instants_s[0]) / (instants_s[-1] - instants_s[0])
    rates = np.log([probe.rate_per_s / capacity_per_s for probe in near])
    values_ns, errors = np.transpose([probe.median for probe in near if probe.median is not None])
    terms = np.stack([np.ones(len(near)), times, rates, rates**2], axis=1) / errors[:, None]
    wanted = np.log(values_ns) / errors
    if np.linalg.matrix_rank(terms) < terms.shape[1]:
        return None
    found = np.linalg.lstsq(terms, wanted)[0]
    degrees = len(near) - terms.shape[1]
    scale = float(np.square(wanted - terms @ found).sum()) / degrees
    error = math.sqrt(max(scale, 1.0) * float(np.linalg.inv(terms.T @ terms)[1, 1]))
    shown, reach = ((student_t_quantile(level, degrees) if scale > 1 else normal_quantile(level)) * error for level in (_SHOWN, _INTERVAL))
    change, stretch = float(found[1]), 1 + max(float(found[2]), 0.0)
    if abs(change) <= shown:
        return None
    slower, low, high = (math.expm1(value / stretch) for value in (change, change - reach, change + reach))
    return SearchDrift(slower=slower, low=low, high=high, probes=len(near))

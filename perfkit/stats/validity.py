"""When a measurement, or one of its percentiles, can be believed."""

import functools
import math

from perfkit.recorder.histogram import Histogram
from perfkit.units import format_duration_ns

# LoadGen's early stopping: one sample above the percentile is allowed for, at 99 % confidence
_CONFIDENCE, _ALLOWED_ABOVE = 0.99, 1
BUSY_CORE_SHARE, SENT_SHARE = 0.85, 0.99
LAG_NS, LAG_SHARE = 1_000_000, 0.05
LATE_BURST_NS = 50_000_000


@functools.cache
def minimum_samples(quantile: float) -> int:
    """The smallest n for which P[Bin(n, 1 - quantile) <= 1] <= 1 %: 64 for p90, 662 for p99, 6,636 for p99.9.

    Source: MLPerf LoadGen, `early_stopping.cc`. It assumes independent samples, so it is a lower bound.
    """
    low, high = 1, 2
    while _chance_of_few(high, 1 - quantile) > 1 - _CONFIDENCE:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if _chance_of_few(middle, 1 - quantile) > 1 - _CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def is_withheld(quantile: float, count: int) -> bool:
    """Whether a percentile has fewer than 1/(1-q) samples: then none of them is expected to lie above it."""
    return count < round(1 / (1 - quantile), 6)


def generator_fault(*, busy_share: float, scheduled: int, unsent: int, lag: Histogram | None, response_time: Histogram | None) -> str:
    """Why the figures may be the generator's own rather than the server's; empty where they are not.

    Its core was busy for more than 85 % of the window; or, in an open loop, it never came to more than 1 % of the
    arrivals, or came to one in a hundred later than 1 ms and 5 % of the median response time.
    """
    if busy_share > BUSY_CORE_SHARE:
        return f"it kept its core {busy_share:.0%} busy, above {BUSY_CORE_SHARE:.0%}"
    if unsent > scheduled * (1 - SENT_SHARE):
        return f"it never came to {unsent:,} of {scheduled:,} arrivals"
    if lag is not None and response_time is not None and lag.count and response_time.count:
        (late_ns,), (median_ns,) = lag.values_at([0.99]), response_time.values_at([0.5])
        allowed_ns = max(LAG_NS, LAG_SHARE * median_ns)
        if late_ns > allowed_ns:
            return f"one arrival in a hundred went out {format_duration_ns(late_ns)} late or more, above {format_duration_ns(allowed_ns)}"
    return ""


def _chance_of_few(samples: int, chance: float) -> float:
    return sum(math.comb(samples, above) * chance**above * (1 - chance) ** (samples - above) for above in range(_ALLOWED_ABOVE + 1))

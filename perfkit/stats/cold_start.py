"""From which request on a server that has just started answers as it does when it is warm."""

import math
from collections.abc import Sequence

import numpy as np

_SLOW_QUANTILE = 0.975
_AHEAD, _MANY = 20, 3
FEWEST_REQUESTS = 40
"""The fewest requests whose second half has a 97.5th percentile below its maximum."""


def steady_after(times_ns: Sequence[float | None]) -> int | None:
    """The number of requests until the times are those of a warm server; None if they are not within the first half.

    The times of the second half count as those of a warm server. A request is slow if it took longer than their 97.5th percentile, or failed (None).
    The server counts as warm from the first request on that is not slow itself and has at most two slow ones among the next 19. So a single
    slow first request counts as warm-up, single slow ones later do not, and 20 quick requests in a row end the warm-up.

    Of a warm server 2.5 % of the first requests are slow, and three of twenty with probability P[Bin(20, 0.025) ≥ 3] = 1.3 %: simulated with
    200 independent times, it is said to need a warm-up in 5 % of the starts. Raises ValueError for fewer than 40 requests.
    """
    count = len(times_ns)
    if count < FEWEST_REQUESTS:
        raise ValueError(f"expected at least {FEWEST_REQUESTS} requests, found {count}")
    times = np.array([math.inf if value is None else value for value in times_ns], dtype=np.float64)
    half = count // 2
    limit = float(np.sort(times[half:])[math.ceil(_SLOW_QUANTILE * (count - half)) - 1])
    slow = (times > limit) | np.isinf(times)
    many = np.convolve(slow, np.ones(_AHEAD, dtype=np.int64), mode="valid") >= _MANY
    steady = np.flatnonzero(~slow[:half] & ~many[:half])
    return int(steady[0]) if steady.size else None

"""How exactly the figures of a configuration are known, from its windows. Pure."""

import math
from collections.abc import Sequence

from perfkit.gate.tune.folder import Window
from perfkit.gate.tune.window_times import times_of
from perfkit.stats.percentiles import percentile_intervals
from perfkit.stats.probability import student_t_quantile

_FEWEST_WINDOWS = 3


def throughput_interval_per_s(windows: Sequence[Window]) -> tuple[float, float] | None:
    """The 95 % interval of the mean throughput, weighted by the windows' lengths, by Student's t; None with fewer than three windows."""
    if len(windows) < _FEWEST_WINDOWS:
        return None
    total_s = sum(one.length_s for one in windows)
    mean = sum(one.throughput_per_s * one.length_s for one in windows) / total_s
    squares = sum((one.length_s * (one.throughput_per_s - mean)) ** 2 for one in windows)
    error = math.sqrt(squares * len(windows) / (len(windows) - 1)) / total_s
    reach = student_t_quantile(0.975, len(windows) - 1) * error
    return max(mean - reach, 0.0), mean + reach


def p99_interval_ns(windows: Sequence[Window]) -> tuple[int, int | None] | None:
    """The 95 % interval of the 99th percentile of all times, with no upper end where too few lie above it; None where nothing can be said."""
    seconds = [part for one in windows for part in times_of(one)]
    if not seconds:
        return None
    found = percentile_intervals(seconds, [0.99]).get(0.99)
    return None if found is None or found.low_ns is None else (found.low_ns, found.high_ns)

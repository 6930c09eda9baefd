"""When perf_analyzer has measured enough windows of a load. Pure."""

from collections.abc import Sequence

from perfkit.perf_analyzer.options import Options
from perfkit.perf_analyzer.sweep import STABILITY_WINDOWS, are_stable
from perfkit.perf_analyzer.windows import Window

_MS_NS = 1_000_000


def last_windows(windows: Sequence[Window]) -> Sequence[Window]:
    """Those that must agree, and that are reported."""
    return windows[-STABILITY_WINDOWS:]


def is_stable(windows: Sequence[Window], options: Options, *, checks_latency: bool = True) -> bool:
    """Whether the last three windows agree in throughput and latency; that of a number of requests always does."""
    if options.request_count:
        return True
    last = last_windows(windows)
    if len(last) < STABILITY_WINDOWS or not are_stable([window.inferences_per_s for window in last], options.stability_percent):
        return False
    return not checks_latency or are_stable([window.latency_ns(options.percentile) for window in last], options.stability_percent)


def is_over_threshold(windows: Sequence[Window], options: Options) -> bool:
    """Whether one of the last three windows reaches the latency threshold, or has no answer: further windows would change nothing."""
    last, threshold_ns = last_windows(windows), options.latency_threshold_ms * _MS_NS
    if not threshold_ns or len(last) < STABILITY_WINDOWS:
        return False
    return any(not window.requests or window.latency_ns(options.percentile) >= threshold_ns for window in last)

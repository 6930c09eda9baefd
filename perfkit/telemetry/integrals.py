"""Integrals and means over a span of time of what was sampled; pure. `times_ns` ascend; spans are nanoseconds as well."""

import bisect
import itertools
from collections.abc import Callable, Sequence

from perfkit.units import NS_PER_S

Span = tuple[int, int]
_REFRESHED_WITHIN_NS = NS_PER_S


def held_mean(times_ns: Sequence[int], values: Sequence[float], span: Span, of: Callable[[float], float] = float) -> float | None:
    """The mean over the part of the span that is covered, each value `of` its sample holding from its instant until the next one's.

    None where the span ends before the first sample.
    """
    start_ns, end_ns = span
    first = max(bisect.bisect_right(times_ns, start_ns) - 1, 0)
    total = covered_ns = 0.0
    for index in range(first, len(times_ns)):
        if times_ns[index] >= end_ns:
            break
        until_ns = min(times_ns[index + 1], end_ns) if index + 1 < len(times_ns) else end_ns
        held_ns = until_ns - max(times_ns[index], start_ns)
        total += of(values[index]) * held_ns
        covered_ns += held_ns
    return total / covered_ns if covered_ns else None


def preceding_mean(times_ns: Sequence[int], values: Sequence[float], span: Span) -> float | None:
    """The mean over the part of the span that is covered, each value being the mean since the sample before it.

    None where no two samples reach into the span.
    """
    start_ns, end_ns = span
    total = covered_ns = 0.0
    for index in range(max(bisect.bisect_right(times_ns, start_ns), 1), len(times_ns)):
        from_ns = max(times_ns[index - 1], start_ns)
        if from_ns >= end_ns:
            break
        length_ns = min(times_ns[index], end_ns) - from_ns
        total += values[index] * length_ns
        covered_ns += length_ns
    return total / covered_ns if covered_ns else None


def counter_growth(times_ns: Sequence[int], values: Sequence[float], span: Span) -> float | None:
    """By how much a counter grew over the span; None where its samples do not reach both ends, or where it went back.

    Between samples it grows on a straight line. Behind the last one it goes on as it grew in the second before that, for a
    second at most: a counter that is refreshed now and then has not stopped, one whose readings ended has.
    """
    start_ns, end_ns = span
    if len(times_ns) < 2 or times_ns[0] > start_ns or times_ns[-1] + _REFRESHED_WITHIN_NS < end_ns:
        return None
    first = bisect.bisect_right(times_ns, start_ns) - 1
    if any(later < earlier for earlier, later in itertools.pairwise(values[first:])):
        return None
    return _on_line(times_ns, values, end_ns) - _on_line(times_ns, values, start_ns)


def _on_line(times_ns: Sequence[int], values: Sequence[float], instant_ns: int) -> float:
    after = bisect.bisect_left(times_ns, instant_ns)
    if after == len(times_ns):
        before, after = min(bisect.bisect_right(times_ns, times_ns[-1] - _REFRESHED_WITHIN_NS), after - 2), after - 1
    else:
        before, after = max(after, 1) - 1, max(after, 1)
    t0, t1, v0, v1 = times_ns[before], times_ns[after], values[before], values[after]
    return v0 + (v1 - v0) * (instant_ns - t0) / (t1 - t0)


def over_s(mean_per_s: float, span: Span) -> float:
    """What a mean rate adds up to over the span: watts to joules."""
    return mean_per_s * (span[1] - span[0]) / NS_PER_S

"""The clock of a fleet's machine beside the driver's: its offset by round trips, and the error of the offset that a load point used.

Source: F. Cristian, "Probabilistic clock synchronization" (1989), and with several round trips the intersection of their intervals, as
in K. Marzullo & S. Owicki, "Maintaining the time in a distributed system" (1983) and in NTP (RFC 5905, section 11.2.1).

Assumption: the two clocks drift apart by at most `MAX_DRIFT`. Nothing is assumed about the two ways of a round trip: they may be as
unequal as they like.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from perfkit.stats.clock_offset import ClockReading

MAX_DRIFT = 100e-6
"""The largest drift between two clocks, as a fraction: that of two quartz clocks of 50 ppm each. NTP reduces it."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClockComparison:
    """The machine's clock minus the driver's at one instant; the true offset is at most `bound_ns` from `offset_ns`."""

    at_ns: int
    """On the driver's clock."""
    offset_ns: int
    bound_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class ClockError:
    """How wrong the offset was that a load point used for a machine's clock."""

    drift_ppm: float
    """The mean drift of the machine's clock against the driver's, from the first comparison to the last; 0 for a single one."""
    bound_ns: int
    """The largest possible error of the offset, from the first comparison to the last."""


def compare_clocks(trips: Sequence[ClockReading]) -> ClockComparison:
    """The offset of the machine's clock at the middle of the shortest round trip, from several within a few seconds.

    Each trip is a reading of the machine's clock between two of the driver's: when the message was sent, and when the answer was received.
    So the offset at that instant lies between other - after and other - before; the drift until the comparison's instant widens this. The
    offset is the middle of what all trips allow, and the bound half of its width. If the trips contradict each other, because the machine's clock jumped or drifted faster than
    `MAX_DRIFT`, any of them may be right: offset and bound then cover all of their intervals. Raises ValueError without a trip.
    """
    if not trips:
        raise ValueError("clocks are compared by at least one round trip")
    shortest = min(trips, key=lambda trip: trip.after_ns - trip.before_ns)
    at_ns = (shortest.before_ns + shortest.after_ns) // 2
    lows, highs = [], []
    for trip in trips:
        drift_ns = _drift_ns(max(abs(trip.before_ns - at_ns), abs(trip.after_ns - at_ns)))
        lows.append(trip.other_ns - trip.after_ns - drift_ns)
        highs.append(trip.other_ns - trip.before_ns + drift_ns)
    low, high = max(lows), min(highs)
    if low > high:
        low, high = min(lows), max(highs)
    offset_ns = (low + high) // 2
    return ClockComparison(at_ns, offset_ns, high - offset_ns)


def clock_error(used_offset_ns: int, comparisons: Sequence[ClockComparison]) -> ClockError:
    """The largest error of one offset that was used for all instants from the first comparison to the last.

    A comparison also bounds the offset at every other instant, the wider the farther away, by the drift. What all of them allow is
    largest in the middle between two neighbours. So comparisons of single round trips, however long some of these took, give a bound
    as narrow as `compare_clocks` makes of several. If comparisons contradict each other, because the machine's clock jumped or
    drifted faster than `MAX_DRIFT`, only both neighbours bound the offset between them, and the wider of their bounds counts. The
    comparisons may come in any order. Raises ValueError without one.
    """
    if not comparisons:
        raise ValueError("the error of an offset is bounded by at least one comparison of the clocks")
    ordered = sorted(comparisons, key=lambda one: one.at_ns)
    lows, highs = _allowed_ns(ordered)
    is_contradiction = any(low > high for low, high in zip(lows, highs, strict=True))
    if is_contradiction:
        lows, highs = [one.offset_ns - one.bound_ns for one in ordered], [one.offset_ns + one.bound_ns for one in ordered]
    lowest, highest = min(lows), max(highs)
    for first, second in itertools.pairwise(range(len(ordered))):
        drift_ns = _drift_ns(ordered[second].at_ns - ordered[first].at_ns)
        if is_contradiction:
            low, high = min(lows[first], lows[second]) - drift_ns, max(highs[first], highs[second]) + drift_ns
        else:  # the bound that widens after the first and the one that narrows towards the second meet there
            low, high = (lows[first] + lows[second] - drift_ns) // 2, -((-highs[first] - highs[second] - drift_ns) // 2)
        lowest, highest = min(lowest, low), max(highest, high)
    length_ns = ordered[-1].at_ns - ordered[0].at_ns
    change_ns = (lows[-1] + highs[-1] - lows[0] - highs[0]) / 2
    return ClockError(
        drift_ppm=1e6 * change_ns / length_ns if length_ns else 0.0,
        bound_ns=max(highest - used_offset_ns, used_offset_ns - lowest),
    )


def _allowed_ns(ordered: Sequence[ClockComparison]) -> tuple[list[int], list[int]]:
    """The least and the largest offset at each comparison that all comparisons allow."""
    lows, highs = [one.offset_ns - one.bound_ns for one in ordered], [one.offset_ns + one.bound_ns for one in ordered]
    forwards = list(itertools.pairwise(range(len(ordered))))
    for near, far in (*forwards, *((far, near) for near, far in reversed(forwards))):
        drift_ns = _drift_ns(ordered[far].at_ns - ordered[near].at_ns)
        lows[far], highs[far] = max(lows[far], lows[near] - drift_ns), min(highs[far], highs[near] + drift_ns)
    return lows, highs


def _drift_ns(time_ns: int) -> int:
    """How far the clocks may drift apart in a time."""
    return math.ceil(abs(time_ns) * MAX_DRIFT)

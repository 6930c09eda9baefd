"""The offset between two clocks over time, with a bound of its error."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfkit.units import format_duration_ns

FASTEST_DRIFT = 500e-6
"""The largest drift between two clocks: the frequency of a Unix clock is never adjusted by more (Linux's `adjtimex`, 500 ppm)."""
RESOLUTION_NS = 1_000
"""Both clocks are trusted to a microsecond: servers write their instants in it, or round them to it."""

Instants = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class ClockOffset:
    """The other clock minus this one, linear between known instants, in nanoseconds; before the first and after the last it is theirs."""

    instants_ns: tuple[int, ...]
    """The known instants by this clock, ascending."""
    offsets_ns: tuple[int, ...]
    bounds_ns: tuple[int, ...]
    """How far the offset may be from the true one, at each instant."""

    def at(self, instants_ns: Instants) -> Instants:
        """The offset at instants of this clock."""
        # floats hold nanoseconds of Unix time only to 256 ns
        first, since = self.offsets_ns[0], np.asarray(instants_ns, np.int64) - self.instants_ns[0]
        from_first = np.interp(since, [one - self.instants_ns[0] for one in self.instants_ns], [one - first for one in self.offsets_ns])
        return np.rint(from_first).astype(np.int64) + first

    @property
    def bound_ns(self) -> int:
        """The largest error that the offset may have at any instant from the first to the last."""
        return max(self.bounds_ns)


@dataclasses.dataclass(frozen=True, slots=True)
class NoOffset:
    """Why the offset between two clocks is unknown."""

    reason: str


class ClockReading(NamedTuple):
    """Two clocks read one after the other: the other clock between two readings of this one."""

    before_ns: int
    other_ns: int
    after_ns: int


def tie_clocks(readings: Sequence[ClockReading]) -> ClockOffset:
    """The offset between two clocks of one machine, from readings of both in the order of time.

    At a reading the offset is known to half of the time that the reading took. Between two readings it may have changed at any instant,
    so the bound of both contains the difference between them. Raises ValueError without a reading.
    """
    if not readings:
        raise ValueError("clocks are tied by at least one reading of both")
    offsets = [one.other_ns - (one.before_ns + one.after_ns) // 2 for one in readings]
    changes = [0, *(abs(later - earlier) for earlier, later in itertools.pairwise(offsets)), 0]
    bounds = [(one.after_ns - one.before_ns + 1) // 2 + max(changes[number], changes[number + 1]) for number, one in enumerate(readings)]
    return ClockOffset(tuple(one.before_ns for one in readings), tuple(offsets), tuple(bounds))


def fit_offset(started_ns: Instants, finished_ns: Instants, received_ns: Instants, answered_ns: Instants) -> ClockOffset | NoOffset:
    """The server's clock minus the client's, from requests: each was received after it was started and answered before it finished.

    So the offset is at most received - started when the request started, and at least answered - finished when it finished. Of all
    straight lines with a drift of at most 500 ppm that satisfy every request, the largest and the smallest offset at both ends of the
    time are found by linear programs; since the largest offset of a set of lines is a convex function of time, and the smallest a
    concave one, the straight lines between those ends bound the offset at every instant between. The offset is the middle of both
    bounds, and its error at most half of what is between them. Assumption: the server's clock was not set, and its drift was constant,
    to within a microsecond, while the requests ran. Source: the intersection of the bounds is K. Marzullo & S. Owicki, "Maintaining the
    time in a distributed system" (1983); with lines in place of constants, A. Duda et al., "Estimating global time in distributed
    systems" (1987), the convex hull method.
    """
    if not len(started_ns):
        return NoOffset("no traced request bounds it")
    first, last = int(started_ns.min()), int(finished_ns.max())
    length_ns = max(last - first, 1)
    base = int(received_ns[0] - started_ns[0])
    highest = _lower_hull(started_ns - first, received_ns - started_ns - base + RESOLUTION_NS)
    lowest = _lower_hull(finished_ns - first, -(answered_ns - finished_ns - base - RESOLUTION_NS))
    # a line by its offsets x and y at both ends: at instant t it is (1 - w) x + w y, with w = (t - first) / length
    rows: list[tuple[float, ...]] = [
        (sign * (1 - t / length_ns), sign * t / length_ns, limit) for sign, points in ((1, highest), (-1, lowest)) for t, limit in points
    ]
    most = FASTEST_DRIFT * length_ns
    rows += [(1, -1, most), (-1, 1, most)]
    try:
        return _offset_of_lines(rows, base, first, last)
    except ArithmeticError as error:  # instants that are years off are beyond the solver
        return NoOffset(f"the server's spans give no offset: {error}")


def _offset_of_lines(rows: Sequence[tuple[float, ...]], base: int, first: int, last: int) -> ClockOffset | NoOffset:
    """The bounds at both ends of all lines that satisfy the rows; offsets are relative to `base`."""
    contradiction_ns = _solve((0, 0, 1), [(x, y, -1, limit) for x, y, limit in rows])[2]
    if contradiction_ns > 0.5:
        by = format_duration_ns(contradiction_ns)
        return NoOffset(
            f"the server's spans lie outside of their requests by {by} or more, whatever the offset: its clock was set during the run, or"
            " several servers with different clocks sent the spans"
        )
    limits = [(x, y, limit + 0.5) for x, y, limit in rows]  # rounding may leave no line at all where one exactly satisfies all
    ends = [(_solve(end, limits)[place], _solve(tuple(-one for one in end), limits)[place]) for place, end in enumerate(((1, 0), (0, 1)))]
    offsets = tuple(base + round((low + high) / 2) for low, high in ends)
    return ClockOffset((first, last), offsets, tuple(round((high - low) / 2) + 1 for low, high in ends))


def _lower_hull(instants_ns: Instants, limits_ns: Instants) -> list[tuple[int, int]]:
    """The points (instant, limit) that a line below all of them can touch, by the monotone chain of A. M. Andrew (1979)."""
    order = np.lexsort((limits_ns, instants_ns))
    times, first = np.unique(instants_ns[order], return_index=True)
    limits, removed = limits_ns[order][first], True
    while removed:  # a point above the line between its neighbours is not touched; this leaves few for the exact chain
        steps, rises = np.diff(times).astype(float), np.diff(limits).astype(float)
        touchable = np.concatenate(([True], rises[:-1] * steps[1:] < rises[1:] * steps[:-1], [True]))[: times.size]
        removed = not touchable.all()
        times, limits = times[touchable], limits[touchable]
    hull: list[tuple[int, int]] = []
    for t, limit in zip(times.tolist(), limits.tolist(), strict=True):
        while len(hull) > 1 and (hull[-1][0] - hull[-2][0]) * (limit - hull[-2][1]) <= (hull[-1][1] - hull[-2][1]) * (t - hull[-2][0]):
            hull.pop()
        hull.append((t, limit))
    return hull


def _solve(cost: Sequence[float], rows: Sequence[tuple[float, ...]]) -> list[float]:
    """The unknowns, of any sign except the third, that make the cost least; each row ends in the limit of its sum."""
    from scipy.optimize import linprog

    # in milliseconds: the solver's tolerance is absolute
    result = linprog(
        cost,
        A_ub=[row[:-1] for row in rows],
        b_ub=[row[-1] / 1e6 for row in rows],
        bounds=[(None, None), (None, None), (0, None)][: len(cost)],
        method="highs",
    )
    if result.x is None:
        raise ArithmeticError(f"the linear program of the clock's offset has no solution: {result.message}")
    return [1e6 * float(one) for one in result.x]

"""Which parts of the time changed between two sides, with intervals: of two results, or over the pairs of a gate. Pure."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from perfkit.spans.breakdown import BANDS, FEWEST_ABOVE, Breakdown, PartMeans
from perfkit.spans.split import PARTS
from perfkit.stats.probability import student_t_quantile
from perfkit.units import format_duration_ns

PLACES = {
    "start_delay": "in the load generator's start delay", "connection_wait": "in the wait for a connection",
    "request_way": "on the way to the server", "queue": "in the server's queue", "compute_input": "in the server's input stage",
    "compute_infer": "in the inference", "compute_output": "in the server's output stage", "response_way": "on the way back",
    "remainder": "in no part that the server reports",
}  # fmt: skip
"""Each part as the place of a time in a sentence."""
FEWEST_PAIRS = 5
LEAST_NAMED = 0.2
"""The share of the largest part from which on another is named beside it."""
_MOST_NAMED = 3


@dataclasses.dataclass(frozen=True, slots=True)
class PartChange:
    """The mean parts around one percentile on one side minus those on the other, with 95 % intervals; times in nanoseconds."""

    load_point: str
    """Protocol and load in words."""
    percentile: str
    """Such as `p99`."""
    total_ns: int
    """The sum of the parts' changes."""
    parts_ns: Mapping[str, int]
    """By the name of the part; empty if there are too few samples."""
    intervals_ns: Mapping[str, tuple[int, int]]
    """The intervals of `total` and each part; empty if they are unknown."""
    problem: str = ""
    """Why there are too few samples."""


def change_between(load_point: str, first: Breakdown, second: Breakdown) -> list[PartChange]:
    """The second minus the first at p50 and the highest percentile that both have.

    A part that one side does not know belongs to the remainder on both. The intervals of the ways contain the errors of both clocks.
    The intervals are those of a difference of independent means: L = d - √((m₂-l₂)² + (u₁-m₁)²), U likewise (G. Y. Zou & A. Donner, 2008).
    """
    found, unknown = [], {*first.unknown, *second.unknown}
    clocks_ns = (first.clock_bound_ns or 0) + (second.clock_bound_ns or 0)
    for name in _percentiles([first, second]):
        one, two = getattr(first, name), getattr(second, name)
        parts = {part: 0 if part in unknown else two.parts_ns[part] - one.parts_ns[part] for part in PARTS}
        total = two.total_ns - one.total_ns
        parts["remainder"] = total - sum(parts[part] for part in PARTS if part != "remainder")
        without = {*unknown, "remainder"} if set(first.unknown) != set(second.unknown) else unknown
        intervals = {
            part: _difference(value, part, one, two)
            for part, value in {"total": total, **parts}.items()
            if part in one.intervals_ns and part in two.intervals_ns and part not in without
        }
        for part in intervals.keys() & {"request_way", "response_way"}:
            low, high = intervals[part]
            intervals[part] = (low - clocks_ns, high + clocks_ns)
        found.append(PartChange(load_point, name, total, parts, intervals))
    return found or [_too_few(load_point, "p50", f"{min(first.sampled, second.sampled):,} requests were traced")]


def change_over_pairs(
    load_point: str, pairs: Sequence[tuple[Mapping[str, Mapping[str, int]], Mapping[str, Mapping[str, int]]]]
) -> list[PartChange]:
    """The mean over pairs of the second side's parts minus the first's, by percentile; each side is the parts by percentile.

    A part that some run does not know belongs to the remainder in all, and neither of the two has an interval. The pair is the unit: the
    interval is Student's t of the pairs' differences, at p50 and the highest percentile that every run has.
    Assumption: the means of the differences are about normal.
    """
    names = [name for name in BANDS if all(name in side for pair in pairs for side in pair)]
    if not pairs or not names:
        return [_too_few(load_point, "p50", "a run has too few traced requests")]
    found = []
    for name in dict.fromkeys((names[0], names[-1])):
        known = [set(side[name]) for pair in pairs for side in pair]
        unknown = set(PARTS) - known[0].intersection(*known)
        without = {*unknown, "remainder"} if any(one != known[0] for one in known) else unknown
        values = np.array([_part_differences(first[name], second[name], unknown) for first, second in pairs], float)
        if len(values) < FEWEST_PAIRS:
            found.append(_too_few(load_point, name, f"{len(values)} pairs were measured, {FEWEST_PAIRS} are needed"))
            continue
        parts = {part: round(value) for part, value in zip(PARTS, values.mean(axis=0).tolist(), strict=True)}
        total = sum(parts.values())
        with_total = np.column_stack((values.sum(axis=1), values))
        half = student_t_quantile(0.975, len(values) - 1) * with_total.std(axis=0, ddof=1) / math.sqrt(len(values))
        ends = zip(("total", *PARTS), (total, *parts.values()), half.tolist(), strict=True)
        intervals = {part: (math.floor(value - reach), math.ceil(value + reach)) for part, value, reach in ends if part not in without}
        found.append(PartChange(load_point, name, total, parts, intervals))
    return found


def _part_differences(first: Mapping[str, int], second: Mapping[str, int], unknown: AbstractSet[str]) -> list[int]:
    """The second minus the first; what is unknown is part of the remainder."""
    parts = {part: 0 if part in unknown else second[part] - first[part] for part in PARTS}
    parts["remainder"] = sum(second.values()) - sum(first.values()) - sum(parts[part] for part in PARTS if part != "remainder")
    return list(parts.values())


def describe_change(change: PartChange) -> str:
    """A change in words: `p99: 3.10 ms longer; 3.00 ms more in the server's queue (2.80 ms to 3.20 ms)`."""
    title = f"{change.load_point}, {change.percentile}"
    if change.problem:
        return f"Which part of the time changed at {title} cannot be told: too few samples ({change.problem})."
    if not change.intervals_ns:
        return f"Which part of the time changed at {title} cannot be told: the slow requests came in too few groups."
    low, high = change.intervals_ns["total"]
    if low <= 0 <= high:
        return f"{title}: the traced requests show no change in time beyond its interval."
    clear = [
        part for part in PARTS if part in change.intervals_ns and not change.intervals_ns[part][0] <= 0 <= change.intervals_ns[part][1]
    ]
    clear.sort(key=lambda part: abs(change.parts_ns[part]), reverse=True)
    largest = abs(change.parts_ns[clear[0]]) if clear else 0
    named = [part for part in clear[:_MOST_NAMED] if abs(change.parts_ns[part]) >= LEAST_NAMED * largest]
    places = ", ".join(_place(change, part) for part in named) or "in no part for certain"
    return f"{title}: {format_duration_ns(abs(change.total_ns))} {'longer' if change.total_ns > 0 else 'shorter'}; {places}."


def _place(change: PartChange, part: str) -> str:
    value = change.parts_ns[part]
    low, high = sorted(abs(end) for end in change.intervals_ns[part])
    ends = [format_duration_ns(low), format_duration_ns(high)]
    interval = f"{ends[0]} to {ends[1]}" if ends[0] != ends[1] else f"to within {format_duration_ns(max(high - low, 1))}"
    more = "more" if value > 0 else "less"
    return f"{format_duration_ns(abs(value))} {more} {PLACES[part]} ({interval})"


def _percentiles(sides: Sequence[Breakdown]) -> Iterator[str]:
    known = [name for name in BANDS if all(getattr(side, name) is not None for side in sides)]
    yield from dict.fromkeys((known[0], known[-1])) if known else ()


def _difference(value: int, part: str, one: PartMeans, two: PartMeans) -> tuple[int, int]:
    means = [(side.total_ns if part == "total" else side.parts_ns[part], *side.intervals_ns[part]) for side in (one, two)]
    (m1, l1, u1), (m2, l2, u2) = means
    return math.floor(value - math.hypot(m2 - l2, u1 - m1)), math.ceil(value + math.hypot(u2 - m2, m1 - l1))


def _too_few(load_point: str, percentile: str, problem: str) -> PartChange:
    needed = f"; p50 needs {2 * FEWEST_ABOVE} in each" if "traced" in problem else ""
    return PartChange(load_point, percentile, 0, {}, {}, f"{problem}{needed}")

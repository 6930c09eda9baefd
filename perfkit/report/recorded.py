"""What the log and the telemetry of a result hold, in slices of time, as plots take them."""

import dataclasses
from collections.abc import Mapping, Sequence

from perfkit.recorder.histogram import Histogram
from perfkit.result.model import Point, Result
from perfkit.telemetry.series import Series


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """The times of the requests that belong to one slice of a repetition's window."""

    start_s: float
    times: Mapping[str, int]
    """Nanoseconds by name: `p50`, `p90`, `p99` as far as the samples carry them, and `max`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """What the log holds of a result; points are counted as in its summary."""

    pooled: tuple[Histogram, ...]
    """One a point of the summary: all its repetitions."""
    slices: Mapping[tuple[int, int], tuple[Slice, ...]]
    """By point and repetition, ascending."""
    slice_s: int
    telemetry: Mapping[tuple[int, int], Sequence[Series]]
    """By point and repetition; times count from the window's start."""


def repetitions_of(result: Result, point: Point) -> list[Point]:
    """The repetitions of a point of the summary, in their order."""
    some = [one for one in result.points if (one.protocol, one.load) == (point.protocol, point.load)]
    return sorted(some, key=lambda one: one.repetition or 0)

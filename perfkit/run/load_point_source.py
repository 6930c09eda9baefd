"""Who says which load point comes next: the scenario's list of them, or a search."""

from collections.abc import Sequence
from typing import Protocol

from perfkit.result.model import Point, Search
from perfkit.run.load_points import LoadPoint
from perfkit.run.summary import PointMeasurement


class LoadPointSource(Protocol):
    """Decides the load points while they are measured."""

    def next_point(self, try_ns: int) -> LoadPoint | None:
        """The next one, None for the end; `try_ns` is how long one request took by itself."""

    def measured(self, measured: PointMeasurement, found: Point, took_s: float) -> None:
        """What the last one came to."""

    def total(self) -> int:
        """How many there will be at most."""

    def outcome(self) -> Search | None:
        """What is known so far of what was searched, if anything was."""


class FixedPoints:
    """A `LoadPointSource`: load points that were known before, one after the other whatever they come to."""

    def __init__(self, points: Sequence[LoadPoint]) -> None:
        self._points, self._given = points, 0

    def next_point(self, try_ns: int) -> LoadPoint | None:
        """See `LoadPointSource.next_point`."""
        self._given += 1
        return self._points[self._given - 1] if self._given <= len(self._points) else None

    def measured(self, measured: PointMeasurement, found: Point, took_s: float) -> None:
        """See `LoadPointSource.measured`."""

    def total(self) -> int:
        """See `LoadPointSource.total`."""
        return len(self._points)

    def outcome(self) -> Search | None:
        """See `LoadPointSource.outcome`."""
        return None

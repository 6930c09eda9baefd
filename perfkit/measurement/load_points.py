"""The source of a run's load points, and their loads as results describe them."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from perfkit.load.load_plan import ClosedPlan, ColdStartPlan, IdlePlan, LoadPlan, OpenPlan, RampPlan
from perfkit.load.point import LoadPoint, load_points
from perfkit.override import override
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import SearchLoadSpec
from perfkit.units import NS_PER_S

if TYPE_CHECKING:
    from perfkit.recorder.window import Window
    from perfkit.result.load import Load
    from perfkit.result.model import Point
    from perfkit.result.search import AddedTime, Search


class LoadPointSource(Protocol):
    """Chooses the next load point."""

    def next_point(self, probe_time_ns: int) -> LoadPoint | None:
        """The next load point, or None at the end; `probe_time_ns` is the mean time between answers before the load; see `ProbeResult`."""

    def record(self, window: "Window", point: "Point", took_s: float) -> None:
        """Takes the measurement of the last load point; `took_s` includes warm-up and drain."""

    def total(self) -> int:
        """The number of load points; for a search the maximum."""

    def outcome(self) -> "Search | None":
        """The state of a search; None if the load points are fixed."""
        return None

    def add_time(self, added: "Sequence[AddedTime]") -> None:
        """Takes over the times that a search was given after it had ended; nothing if the load points are fixed."""
        return


class FixedPoints(LoadPointSource):
    """Load points that are known before the run, and further repetitions of those whose SLO verdict is open.

    `points` hold all repetitions that there may be, of which the first `repetitions` are measured in any case.
    """

    def __init__(self, points: Sequence[LoadPoint], repetitions: int) -> None:
        self._points, self._repetitions = points, repetitions
        self._given = [point for point in points if point.repetition < repetitions]
        self._taken = 0

    @override
    def next_point(self, probe_time_ns: int) -> LoadPoint | None:
        self._taken += 1
        return self._given[self._taken - 1] if self._taken <= len(self._given) else None

    @override
    def record(self, window: "Window", point: "Point", took_s: float) -> None:
        pass

    def go_on(self, undecided: "Collection[tuple[str, Load]]") -> int:
        """Doubles the repetitions of these protocols and loads, as long as there are points, and returns the number of load points added."""
        earlier, self._repetitions, self._taken = self._repetitions, 2 * self._repetitions, len(self._given)
        again = [
            point for point in self._points
            if earlier <= point.repetition < self._repetitions and not point.is_alone and protocol_and_load(point) in undecided
        ]  # fmt: skip
        self._given += (dataclasses.replace(point, number=number) for number, point in enumerate(again, len(self._given)))
        return len(again)

    @override
    def total(self) -> int:
        return len(self._given)


def load_point_source(loaded: LoadedScenario) -> LoadPointSource:
    """The source of a scenario's load points; raises ScenarioError if a trace cannot be used."""
    if isinstance(loaded.scenario.load, SearchLoadSpec):
        from perfkit.search.capacity_search import CapacitySearch  # whose fits other loads do without

        return CapacitySearch(loaded)
    measure = loaded.scenario.measure
    return FixedPoints(load_points(loaded, measure.most_times), measure.repetitions)


def protocol_and_load(point: LoadPoint) -> "tuple[str, Load]":
    """What tells a load point from the others of its repetition, as a result describes it."""
    protocols = {part.protocol for part in point.parts}
    return protocols.pop() if len(protocols) == 1 else "mixed", describe_point(point)


def describe_load(load: LoadPlan) -> "Load":
    """A load as a result describes it."""
    from perfkit.result.load import (  # only now, as below: the first request leaves earlier
        ClosedLoad,
        ColdStartLoad,
        IdleLoad,
        OpenLoad,
        RampLoad,
        SurgeLoad,
    )

    if isinstance(load, IdlePlan):
        return IdleLoad(gap_s=load.gap_ns / NS_PER_S, then=load.then)
    if isinstance(load, ColdStartPlan):
        return ColdStartLoad(by=load.by, requests=load.requests)
    if isinstance(load, RampPlan):
        return RampLoad(start=load.start, concurrency=load.concurrency, over_s=load.over_ns / NS_PER_S)
    if isinstance(load, ClosedPlan):
        return ClosedLoad(concurrency=load.concurrency)
    surge = None
    if (planned := load.surge) is not None:
        start_s, end_s = planned.start_ns / NS_PER_S, planned.end_ns / NS_PER_S
        surge = SurgeLoad(rate_per_s=planned.rate_per_s, start_s=start_s, end_s=end_s)
    return OpenLoad(
        rate_per_s=load.rate_per_s,
        arrivals=load.law,
        burstiness=load.burstiness,
        max_in_flight=load.max_in_flight,
        speed=load.speed,
        surge=surge,
    )


def describe_point(point: LoadPoint) -> "Load":
    """The load of a load point as a result describes it; of several loads side by side, the sum."""
    from perfkit.result.load import ClosedLoad, MixedLoad, OpenLoad

    loads = point.loads
    if len(loads) == 1:
        return describe_load(loads[0])
    concurrency = sum(load.concurrency for load in loads if isinstance(load, ClosedPlan))
    rate_per_s = sum(load.rate_per_s for load in loads if isinstance(load, OpenPlan))
    if not rate_per_s:
        return ClosedLoad(concurrency=concurrency)
    if concurrency:
        return MixedLoad(concurrency=concurrency, rate_per_s=rate_per_s)
    laws = {load.law for load in loads if isinstance(load, OpenPlan)}
    return OpenLoad(rate_per_s=rate_per_s, arrivals=laws.pop() if laws == {"poisson"} else "mixed")

"""The source of a run's load points, and their loads as results describe them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from perfkit.load.load_plan import ClosedPlan, ColdStartPlan, IdlePlan, LoadPlan, OpenPlan
from perfkit.load.point import LoadPoint, load_points
from perfkit.override import override
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import SearchLoadSpec
from perfkit.units import NS_PER_S

if TYPE_CHECKING:
    from perfkit.recorder.window import Window
    from perfkit.result.load import Load
    from perfkit.result.model import Point
    from perfkit.result.search import Search


class LoadPointSource(Protocol):
    """Chooses the next load point."""

    def next_point(self, probe_time_ns: int) -> LoadPoint | None:
        """The next load point, or None at the end; `probe_time_ns` is the service time of a single request on an idle target."""

    def record(self, window: "Window", point: "Point", took_s: float) -> None:
        """Takes the measurement of the last load point; `took_s` includes warm-up and drain."""

    def total(self) -> int:
        """The number of load points; for a search the maximum."""

    def outcome(self) -> "Search | None":
        """The state of a search; None if the load points are fixed."""
        return None


class FixedPoints(LoadPointSource):
    """Load points that are known before the run."""

    def __init__(self, points: Sequence[LoadPoint]) -> None:
        self._points, self._remaining = points, iter(points)

    @override
    def next_point(self, probe_time_ns: int) -> LoadPoint | None:
        return next(self._remaining, None)

    @override
    def record(self, window: "Window", point: "Point", took_s: float) -> None:
        pass

    @override
    def total(self) -> int:
        return len(self._points)


def load_point_source(loaded: LoadedScenario) -> LoadPointSource:
    """The source of a scenario's load points; raises ScenarioError if a trace cannot be used."""
    if isinstance(loaded.scenario.load, SearchLoadSpec):
        from perfkit.search.capacity_search import CapacitySearch  # whose fits other loads do without

        return CapacitySearch(loaded)
    return FixedPoints(load_points(loaded))


def describe_load(load: LoadPlan) -> "Load":
    """A load as a result describes it."""
    from perfkit.result.load import ClosedLoad, ColdStartLoad, IdleLoad, OpenLoad  # only now, as below: the first request leaves earlier

    if isinstance(load, IdlePlan):
        return IdleLoad(gap_s=load.gap_ns / NS_PER_S, then=load.then)
    if isinstance(load, ColdStartPlan):
        return ColdStartLoad(by=load.by, requests=load.requests)
    if isinstance(load, ClosedPlan):
        return ClosedLoad(concurrency=load.concurrency)
    return OpenLoad(
        rate_per_s=load.rate_per_s, arrivals=load.law, burstiness=load.burstiness, max_in_flight=load.max_in_flight, speed=load.speed
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

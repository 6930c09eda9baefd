"""The load points of a scenario: what is measured together, in which order."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from perfkit.load.arrivals import Schedule
from perfkit.load.load_plan import ClosedPlan, LoadPlan, OpenPlan
from perfkit.load.planned_loads import own_window_ns, plan_loads, plan_sequences, repeated
from perfkit.target.address import WireProtocol

if TYPE_CHECKING:
    from perfkit.scenario.file import LoadedScenario
    from perfkit.scenario.model import Scenario


@dataclasses.dataclass(frozen=True, slots=True)
class PointPart:
    """One workload in a load point: its load over one protocol."""

    protocol: WireProtocol
    load: LoadPlan
    workload: str | None = None
    """Its name; None in a scenario with a single workload."""


@dataclasses.dataclass(frozen=True)
class LoadPoint:
    """Workloads measured together in one repetition; `index` counts within a repetition, `number` within the run."""

    index: int
    parts: tuple[PointPart, ...]
    """One for each workload, at least one."""
    repetition: int
    number: int
    shared: LoadPlan | None = None
    """The load that the workloads share by their weights, of which each part has its share; None for loads of their own."""
    window_ns: int | None = None
    """None for the scenario's window."""
    overload_abort_after_ns: int | None = None
    """See `WorkerSpec`."""
    is_alone: bool = False
    """Whether the workload of a mix is measured without the others."""

    @property
    def loads(self) -> tuple[LoadPlan, ...]:
        """The loads that are sent side by side."""
        return tuple(part.load for part in self.parts) if self.shared is None else (self.shared,)

    @property
    def is_mix(self) -> bool:
        """Whether its workloads have figures of their own, besides those of the whole."""
        return not self.is_alone and self.parts[0].workload is not None

    @property
    def tag(self) -> str:
        """The tag of its histograms in the interval log."""
        return f"p{self.index}.r{self.repetition}"

    @property
    def part_tags(self) -> tuple[str, ...]:
        """The tags of the workloads of a mix; otherwise empty."""
        return tuple(f"p{self.index + place}.r{self.repetition}" for place in range(1, len(self.parts) + 1)) if self.is_mix else ()


class _Loads(NamedTuple):
    """What a load point sends, before its repetition is known."""

    shared: LoadPlan | None
    parts: tuple[PointPart, ...]
    seed: int
    """Sets the sequences of a load point apart from those of others."""


def load_points(loaded: "LoadedScenario", times: int = 1) -> list[LoadPoint]:
    """All load points of a run, one repetition after the other; none for a search, which plans each probe by itself.

    They have `times` as many repetitions as the scenario.

    After each mix come its workloads alone, with their parts of the load, if the scenario asks for that. Every load point of every
    repetition has arrivals of its own. Raises ScenarioError if a trace cannot be read, or holds fewer arrivals than `measure.requests`.
    """
    scenario, workloads = loaded.scenario, [one.scenario for one in loaded.workloads()]
    planned, points = list(_planned(loaded)), list[LoadPoint]()
    for repetition in range(times * scenario.measure.repetitions):
        index, measured_alone = 0, set[tuple[int, float]]()
        for one in planned:
            shared = None if one.shared is None else repeated(one.shared, repetition)
            parts = tuple(
                dataclasses.replace(part, load=_repeated_part(part.load, own, one.seed + place, repetition))
                for place, (part, own) in enumerate(zip(one.parts, workloads, strict=True))
            )
            lengths_ns = [own_window_ns(own, part.load) or 0 for own, part in zip(workloads, parts, strict=True)]
            window_ns = max(lengths_ns) or None  # replays are sent whole, and the longest one decides
            point = LoadPoint(index, parts, repetition, len(points), shared, window_ns)
            points.append(point)
            index += 1 + len(point.part_tags)
            for place, part in enumerate(parts if scenario.alone else ()):
                alone = _alone(part.load, scenario.weights, place)
                level = alone.concurrency if isinstance(alone, ClosedPlan) else alone.rate_per_s
                if (place, level) not in measured_alone:
                    measured_alone.add((place, level))
                    own_part = dataclasses.replace(part, load=alone)
                    points.append(LoadPoint(index, (own_part,), repetition, len(points), window_ns=window_ns, is_alone=True))
                    index += 1
    return points


def _planned(loaded: "LoadedScenario") -> Iterator[_Loads]:
    """The load points of the first repetition, without those of workloads alone."""
    scenario, workloads = loaded.scenario, loaded.workloads()
    if scenario.workloads is None:
        for protocol, (seed, load) in itertools.product(scenario.target.load_protocols, enumerate(plan_loads(loaded))):
            yield _Loads(None, (PointPart(protocol, load),), seed)
        return
    places = [(entry.name, one.scenario.target.load_protocols[0]) for entry, one in zip(scenario.workloads, workloads, strict=True)]
    together: list[tuple[LoadPlan | None, list[LoadPlan]]]
    if scenario.weights:
        together = [(load, _shares(load, scenario.weights)) for load in plan_loads(loaded)]
    else:  # with arrivals that differ from those of the others
        together = [(None, [_reseeded(plan_loads(one)[0], number) for number, one in enumerate(workloads)])]
    for shared, loads in together:
        yield _Loads(shared, tuple(PointPart(protocol, load, name) for (name, protocol), load in zip(places, loads, strict=True)), 0)


def _repeated_part(load: LoadPlan, scenario: "Scenario", seed: int, repetition: int) -> LoadPlan:
    return dataclasses.replace(repeated(load, repetition), sequences=plan_sequences(scenario, seed, repetition))


def _shares(load: LoadPlan, weights: Sequence[int]) -> list[LoadPlan]:
    """Each workload's part of a load that they share: its share of a rate; of a closed loop, the whole concurrency."""
    if isinstance(load, ClosedPlan):
        return [load for _ in weights]
    return [dataclasses.replace(load, rate_per_s=load.rate_per_s * weight / sum(weights)) for weight in weights]


def _alone(part: LoadPlan, weights: Sequence[int], number: int) -> LoadPlan:
    """The load of a workload that is measured without the others."""
    if not weights:
        return part
    share = weights[number] / sum(weights)
    if isinstance(part, ClosedPlan):
        return dataclasses.replace(part, concurrency=max(1, round(part.concurrency * share)))
    reseeded = _reseeded(part, number)
    assert isinstance(reseeded, OpenPlan)
    assert isinstance(reseeded.schedule, Schedule)
    segments = tuple(
        dataclasses.replace(one, from_per_s=one.from_per_s * share, to_per_s=one.to_per_s * share) for one in reseeded.schedule.segments
    )
    return dataclasses.replace(reseeded, schedule=dataclasses.replace(reseeded.schedule, segments=segments))


def _reseeded(load: LoadPlan, number: int) -> LoadPlan:
    if isinstance(load, OpenPlan) and isinstance(load.schedule, Schedule):
        *seed, repetition = load.schedule.seed
        return dataclasses.replace(load, schedule=dataclasses.replace(load.schedule, seed=(*seed, number + 1, repetition)))
    return load

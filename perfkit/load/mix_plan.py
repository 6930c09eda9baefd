"""The load points of a mix: all workloads together, and each alone where the scenario asks for that."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfkit.load.arrivals import Schedule
from perfkit.load.load_plan import ClosedPlan, LoadPlan, LoadPoint, OpenPlan, own_window_ns, plan_loads, plan_sequences, repeated

if TYPE_CHECKING:
    from perfkit.scenario.file import LoadedScenario


@dataclasses.dataclass(frozen=True)
class MixPoint:
    """Several workloads measured together in one repetition; `parts` are the load points of each.

    With `load` they share it by their weights, and the load of a part is its share; otherwise each part has a load of its own.
    """

    index: int
    repetition: int
    number: int
    load: LoadPlan | None
    parts: tuple[LoadPoint, ...]
    window_ns: int | None = None
    """None for the scenario's window."""

    @property
    def tag(self) -> str:
        """See `LoadPoint.tag`."""
        return f"p{self.index}.r{self.repetition}"


def mix_points(loaded: "LoadedScenario") -> list[LoadPoint | MixPoint]:
    """The load points of a mix, one repetition after the other; after each mix its workloads alone, with their parts of the load.

    Raises ScenarioError like `load_points`.
    """
    scenario, workloads = loaded.scenario, loaded.workloads()
    names = [entry.name for entry in scenario.workloads or ()]
    own = () if scenario.weights else tuple(_own_load(each, number) for number, each in enumerate(workloads))
    shared = plan_loads(loaded) if scenario.weights else [None]
    points = list[LoadPoint | MixPoint]()
    for repetition in range(scenario.measure.repetitions):
        index, measured_alone = 0, set[tuple[int, float]]()
        for load in shared:
            whole = None if load is None else repeated(load, repetition)
            loads = [repeated(each, repetition) for each in own] if load is None else _shares(repeated(load, repetition), scenario.weights)
            plans = [
                dataclasses.replace(each, sequences=plan_sequences(part.scenario, number, repetition))
                for number, (each, part) in enumerate(zip(loads, workloads, strict=True))
            ]
            protocols, number = [part.scenario.target.load_protocols[0] for part in workloads], len(points)
            lengths_ns = [own_window_ns(part.scenario, plan) or 0 for part, plan in zip(workloads, plans, strict=True)]
            window_ns = max(lengths_ns) or None  # replays are sent whole, and the longest one decides
            parts = tuple(
                LoadPoint(index + place, protocol, plan, repetition, number, window_ns, workload=name)
                for place, (name, protocol, plan) in enumerate(zip(names, protocols, plans, strict=True), 1)
            )
            points.append(MixPoint(index, repetition, number, whole, parts, window_ns))
            index += 1 + len(parts)
            for number, part in enumerate(parts if scenario.alone else ()):
                alone = _alone(part.load, scenario.weights, number)
                level = alone.concurrency if isinstance(alone, ClosedPlan) else alone.rate_per_s
                if (number, level) in measured_alone:
                    continue
                measured_alone.add((number, level))
                points.append(dataclasses.replace(part, index=index, number=len(points), load=alone, is_alone=True))
                index += 1
    return points


def _own_load(workload: "LoadedScenario", number: int) -> LoadPlan:
    """A workload's own load, with arrivals that differ from those of the others."""
    return _reseeded(plan_loads(workload)[0], number)


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

"""The counters of a model's v2 statistics from one reading to the next."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from perfkit.protocol.statistics import ModelStatistics, TotalTime

Reading: TypeAlias = Mapping[str, ModelStatistics]
"""The statistics of each version of the model since it was loaded, by version; empty if they cannot be read."""


def falls(readings: Sequence[Reading]) -> bool:
    """Whether any counter falls, or a version disappears, from one reading to the next: counts and times of every kind."""
    return any(
        version not in later or any(now < was for now, was in zip(_counters(later[version]), _counters(statistics), strict=True))
        for earlier, later in itertools.pairwise(readings)
        for version, statistics in earlier.items()
    )


def increases(before: Reading, after: Reading) -> list[ModelStatistics]:
    """The increase of the counters of each version that did anything; a version that was loaded in between counts from 0."""
    all_versions = [_increase(now, before.get(version)) for version, now in after.items()]
    return [increase for increase in all_versions if increase.executions or any(total.count for total in increase.times.values())]


def _counters(statistics: ModelStatistics) -> list[int]:
    times = (value for total in statistics.times.values() for value in (total.count, total.ns))
    return [statistics.inferences, statistics.executions, *times]


def _increase(now: ModelStatistics, was: ModelStatistics | None) -> ModelStatistics:
    if was is None:
        return now
    before = was.times
    times = {name: TotalTime(total.count - before[name].count, total.ns - before[name].ns) for name, total in now.times.items()}
    return ModelStatistics(now.version, now.inferences - was.inferences, now.executions - was.executions, **times)

"""The counters of a model's v2 statistics from one reading to the next."""

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from perfkit.errors import TargetError
from perfkit.figures.resources import ComposingModelFigures
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


ComposingCounts: TypeAlias = Mapping[str, Sequence[ModelStatistics]]
"""The increase of the counters by model, one value for each version."""


class ComposingModelsReader:
    """Reads before the first request and after the last answer, when the ensemble's own counts no longer change.

    `read` gives the statistics of each model by name. A model whose counters fell in between, or could not be read, is left out.
    """

    def __init__(self, read: Callable[[], Awaitable[Mapping[str, Sequence[ModelStatistics]]]]) -> None:
        self._read = read
        self._before: Mapping[str, Reading] = {}

    async def before(self) -> None:
        """Reads before the first request."""
        self._before = await self._readings()

    async def after(self) -> ComposingCounts:
        """Reads after the last answer, and returns the counts of the load."""
        now = await self._readings()
        both = {name: (before, now[name]) for name, before in self._before.items() if before and now.get(name)}
        return {name: increases(*readings) for name, readings in both.items() if not falls(readings)}

    async def _readings(self) -> Mapping[str, Reading]:
        try:
            return {name: {one.version: one for one in versions} for name, versions in (await self._read()).items()}
        except TargetError:
            return {}


def composing_figures(counts: ComposingCounts) -> tuple[ComposingModelFigures, ...]:
    """The figures of each model, its versions together."""
    return tuple(_figures(name, versions) for name, versions in counts.items())


def _figures(name: str, versions: Sequence[ModelStatistics]) -> ComposingModelFigures:
    total = ModelStatistics.added(versions)
    return ComposingModelFigures(
        name=name,
        versions=tuple(sorted({one.version for one in versions})),
        requests=total.success.count,
        failed=total.fail.count,
        queue_ns=total.queue.mean_ns,
        compute_input_ns=total.compute_input.mean_ns,
        compute_infer_ns=total.compute_infer.mean_ns,
        compute_output_ns=total.compute_output.mean_ns,
        executions=total.executions,
        mean_batch=total.inferences / total.executions if total.executions else None,
        success_ns=total.success.mean_ns,
    )

"""Differences of the v2 statistics of an ensemble's composing models over a load point."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from perfkit.errors import TargetError
from perfkit.figures.resources import ComposingModelFigures
from perfkit.protocol.statistics import ModelStatistics
from perfkit.telemetry.server.counters import Reading, falls, increases

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

"""Trends: one metric over many results, its steps, and the commits of the steps. Pure."""

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Sequence
from typing import Any, Literal

from perfkit.result.fingerprint import fingerprint_differences
from perfkit.stats.change_points import change_points

MAXIMUM_RESULTS = 500  # more would take the permutations minutes, and old steps are known


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One result of a history."""

    started_at: str
    commit: str
    host_id: str
    fingerprint: dict[str, Any]
    source: str
    """The path that it was added from."""


@dataclasses.dataclass(frozen=True, slots=True)
class Trend:
    """A metric at one load point of one scenario, ordered by time; the values are above zero."""

    scenario: str
    load_point: str
    metric: str
    unit: Literal["per_s", "ns"]
    entries: tuple[HistoryEntry, ...]
    values: tuple[float, ...]

    @property
    def title(self) -> str:
        """Scenario, metric and load point in words."""
        return f"{self.scenario}: {self.metric}, {self.load_point}"


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A change of level."""

    index: int
    """The index of the first result after it, among the results of the trend."""
    commit: str
    """The commit of the first result after the step; empty if unknown."""
    previous_commit: str
    """The commit of the last result before the step; the cause is one of the commits after it, up to and including `commit`."""
    started_at: str
    ratio: float
    """The geometric mean after ÷ the geometric mean before the step."""
    is_worse: bool
    """Whether the figure got worse: a time longer, or a throughput lower."""
    p: float
    """The p-value of the change, by permutation."""
    environment: tuple[str, ...]
    """Sentences about the environment's changes at the step, which may be its cause."""


def find_steps(trend: Trend, *, seed: int = 0) -> list[Step]:
    """Find the steps among a trend's last 500 values, ascending; see `change_points` for the method and its error rate."""
    skipped = max(0, len(trend.values) - MAXIMUM_RESULTS)
    changes = change_points([math.log(value) for value in trend.values[skipped:]], seed=seed)
    return [_step(trend, skipped + change.index, change.after - change.before, change.p) for change in changes]


def _step(trend: Trend, index: int, shift: float, p: float) -> Step:
    before, after = trend.entries[index - 1], trend.entries[index]
    changed = [difference.sentence for difference in fingerprint_differences(before.fingerprint, after.fingerprint)]
    if before.host_id != after.host_id:
        changed.append("it was measured on another host")
    is_worse = (shift > 0) == (trend.unit == "ns")
    return Step(index, after.commit, before.commit, after.started_at, math.exp(shift), is_worse, p, tuple(changed))


def trend_levels(trend: Trend, steps: Sequence[Step]) -> list[tuple[int, int, float]]:
    """The levels between the steps: the first index, the index behind the last one, and the geometric mean of the values there."""
    ends = (0, *(step.index for step in steps), len(trend.values))
    return [(start, end, statistics.geometric_mean(trend.values[start:end])) for start, end in itertools.pairwise(ends)]


@dataclasses.dataclass(frozen=True, slots=True)
class TrendSteps:
    """A trend's name, the number of its results, and its steps."""

    scenario: str
    load_point: str
    metric: str
    unit: Literal["per_s", "ns"]
    results: int
    """How many results the trend has."""
    steps: tuple[Step, ...]
    """Its changes of level, in the order of time."""


@dataclasses.dataclass(frozen=True, slots=True)
class StepsDocument:
    """The trends of a history and their steps, as `perfkit history steps --format json` prints them."""

    trends: tuple[TrendSteps, ...]
    """Sorted by scenario, load point and metric."""


def steps_json(trends: Sequence[tuple[Trend, Sequence[Step]]]) -> str:
    """Trends and their steps as JSON."""
    listed = tuple(
        TrendSteps(trend.scenario, trend.load_point, trend.metric, trend.unit, len(trend.values), tuple(steps)) for trend, steps in trends
    )
    return json.dumps({"schema": "perfkit.steps/1", **dataclasses.asdict(StepsDocument(listed))}, indent=1) + "\n"

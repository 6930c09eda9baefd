"""One metric over many results: its steps, and the commits that they belong to. Pure."""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any, Literal

from perfkit.result.fingerprint import fingerprint_differences
from perfkit.stats.change_points import PERMUTATIONS, SIGNIFICANCE, change_points

LONGEST = 500  # results; with more the permutations would take minutes, and the steps of long ago are known


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One result of a history."""

    started_at: str
    commit: str
    host_id: str
    fingerprint: dict[str, Any]
    source: str
    """The path that it was added from."""


@dataclasses.dataclass(frozen=True, slots=True)
class Trend:
    """A metric at one load point of one scenario, in the order of time; the values are above zero."""

    scenario: str
    load_point: str
    metric: str
    unit: Literal["per_s", "ns"]
    entries: tuple[Entry, ...]
    values: tuple[float, ...]

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"{self.scenario}: {self.metric}, {self.load_point}"


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A change of level; `index` is the first result that shows it."""

    index: int
    commit: str
    """Of the first result behind the step; empty where it does not say."""
    previous_commit: str
    """Of the last result before it: what the commits after that one, up to and with `commit`, brought."""
    started_at: str
    ratio: float
    """The level after ÷ the level before, of geometric means."""
    is_worse: bool
    p: float
    environment: tuple[str, ...]
    """Sentences: what of the environment changed at the same place and may be the cause."""


def find_steps(trend: Trend, *, seed: int = 0, significance: float = SIGNIFICANCE, permutations: int = PERMUTATIONS) -> list[Step]:
    """The steps of a trend's last 500 values, ascending; see `change_points` for the method and its error rate."""
    skipped = max(0, len(trend.values) - LONGEST)
    logarithms = [math.log(value) for value in trend.values[skipped:]]
    found = change_points(logarithms, seed=seed, significance=significance, permutations=permutations)
    return [_step(trend, skipped + one.index, one.after - one.before, one.p) for one in found]


def _step(trend: Trend, index: int, shift: float, p: float) -> Step:
    before, after = trend.entries[index - 1], trend.entries[index]
    changed = [one.sentence for one in fingerprint_differences(before.fingerprint, after.fingerprint)]
    if before.host_id != after.host_id:
        changed.append("it was measured on another host")
    return Step(
        index, after.commit, before.commit, after.started_at, math.exp(shift), (shift > 0) == (trend.unit == "ns"), p, tuple(changed)
    )


def steps_json(found: Sequence[tuple[Trend, Sequence[Step]]]) -> str:
    """Trends and their steps as JSON."""
    listed = [
        {
            **{name: getattr(trend, name) for name in ("scenario", "load_point", "metric", "unit")},
            "results": len(trend.values),
            "steps": [dataclasses.asdict(step) for step in steps],
        }
        for trend, steps in found
    ]
    return json.dumps({"schema": "perfkit.steps/1", "trends": listed}, indent=1) + "\n"

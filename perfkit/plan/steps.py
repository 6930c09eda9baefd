"""Step functions of time, such as the demand over the day and the number of replicas."""

import dataclasses
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A value that changes in steps: `values[i]` holds from `starts_s[i]` to the next start, the last one for ever."""

    starts_s: Floats
    """Ascending; the first one is the earliest instant at which the value is known."""
    values: Floats

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> "Steps":
        """From pairs of start and value; of equal starts the last one holds. Raises ValueError without pairs."""
        latest = dict(sorted(pairs, key=lambda pair: pair[0]))
        if not latest:
            raise ValueError("steps need at least one start")
        return cls(np.array(list(latest), dtype=np.float64), np.array(list(latest.values()), dtype=np.float64))

    @classmethod
    def of_changes(cls, start_s: float, value: float, changes: Iterable[tuple[float, float]]) -> "Steps":
        """From the value at `start_s`, and its changes as pairs of instant and difference."""
        ordered = sorted(changes)
        values = value + np.cumsum([difference for _, difference in ordered])
        return cls.of([(start_s, value), *zip((instant_s for instant_s, _ in ordered), values.tolist(), strict=True)])

    def at(self, instants_s: npt.ArrayLike) -> Floats:
        """The values at some instants; before the first start, the first value."""
        found = np.searchsorted(self.starts_s, np.asarray(instants_s, dtype=np.float64), side="right") - 1
        values: Floats = self.values[np.maximum(found, 0)]
        return values

    def integral(self, start_s: float, end_s: float) -> float:
        """The integral over [start, end), such as the replica-seconds of a number of replicas."""
        edges = np.concatenate(([start_s], self.starts_s[(self.starts_s > start_s) & (self.starts_s < end_s)], [end_s]))
        return float(np.sum(self.at(edges[:-1]) * np.diff(edges)))

    def mean(self, start_s: float, end_s: float) -> float:
        """The mean over [start, end)."""
        return self.integral(start_s, end_s) / (end_s - start_s)

    def within(self, start_s: float, end_s: float) -> Floats:
        """The values in [start, end), in order."""
        return self.at([start_s, *self.starts_s[(self.starts_s > start_s) & (self.starts_s < end_s)]])

    def share_at_least(self, value: float, start_s: float, end_s: float) -> float:
        """The share of [start, end) in which the value is at least `value`."""
        return Steps(self.starts_s, (self.values >= value).astype(np.float64)).mean(start_s, end_s)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PeriodicSteps:
    """Steps that repeat every day or week. The last value of a period holds until the first start in the next one."""

    steps: Steps
    length_s: float

    def at(self, instants_s: npt.ArrayLike) -> Floats:
        """The values at some instants, of any period."""
        within = np.mod(np.asarray(instants_s, dtype=np.float64), self.length_s)
        values: Floats = np.where(within < self.steps.starts_s[0], self.steps.values[-1], self.steps.at(within))
        return values

    def over(self, start_s: float, end_s: float) -> Steps:
        """The steps from one instant to another, over any number of periods."""
        first, last = int(np.floor(start_s / self.length_s)), int(np.ceil(end_s / self.length_s))
        starts = np.concatenate([self.steps.starts_s + number * self.length_s for number in range(first, last + 1)])
        inside = starts[(starts > start_s) & (starts < end_s)]
        edges = np.concatenate(([start_s], inside))
        return Steps(edges, self.at(edges))

    @property
    def mean(self) -> float:
        """The mean over a period."""
        return self.over(0.0, self.length_s).mean(0.0, self.length_s)

    @property
    def peak(self) -> float:
        """The highest value."""
        return float(np.max(self.steps.values))

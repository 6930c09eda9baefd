"""Step functions of time: the demand over the day, which is read from a file, and the number of replicas.

Replicas follow a horizontal autoscaler or a fixed schedule, with interruptions of spot replicas.
"""

import dataclasses
import math
import re
from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from perfkit.digits import whole_number
from perfkit.errors import UsageError
from perfkit.plan.input_texts import CsvRow, parse_csv

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


DAY_S, HOUR_S = 86_400.0, 3600.0
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TIME = re.compile(r"(?P<hour>\d{1,2}):(?P<minute>\d\d)")
_HIGHEST_DEMAND_PER_S, _MOST_ROWS = 1e9, 7 * 24 * 60


@dataclasses.dataclass(frozen=True, slots=True)
class DemandProfile:
    """The demand of a day, or of a week from Monday on, in inferences per second; it repeats.

    It changes in steps: the demand of a row holds until the next row's time, and that of the last row until the first one's.
    """

    rows: tuple[tuple[float, float], ...]
    """Seconds since the period's first midnight, ascending, with the demand from then on."""
    length_s: float

    @property
    def is_weekly(self) -> bool:
        """Whether the weekdays differ."""
        return self.length_s > DAY_S

    @property
    def peak_per_s(self) -> float:
        """The highest demand."""
        return max(demand for _, demand in self.rows)

    @property
    def mean_per_s(self) -> float:
        """The mean demand over the period."""
        return self.steps().mean

    def steps(self, divided_by: float = 1.0) -> PeriodicSteps:
        """The demand as a function of time, divided by a number such as the batch size."""
        starts, demands = (np.array(column) for column in zip(*self.rows, strict=True))
        return PeriodicSteps(Steps(starts, demands / divided_by), self.length_s)

    def hourly_peaks_per_s(self) -> tuple[float, ...]:
        """The highest demand in each hour of the period."""
        hours, steps = round(self.length_s / HOUR_S), self.steps()
        return tuple(float(np.max(steps.over(hour * HOUR_S, (hour + 1) * HOUR_S).values)) for hour in range(hours))


def parse_profile(text: str, name: str) -> DemandProfile:
    """Parse a CSV with the columns `hour` (0 to 23) or `time` (HH:MM), `demand_per_s` and, for a week, `weekday`; `name` is the file's.

    Raises UsageError, which names the file and the line.
    """
    table = parse_csv(text, name)
    if "demand_per_s" not in table.columns or ("hour" in table.columns) == ("time" in table.columns):
        raise UsageError(
            f"{name}: expected a header with the columns demand_per_s and either hour (0 to 23) or time (HH:MM), found {table.shown_columns}"
        )
    if len(table.rows) > _MOST_ROWS:
        raise UsageError(f"{name}: {len(table.rows):,} rows are more than the minutes of a week; give one row a minute at most")
    is_weekly = "weekday" in table.columns
    rows: dict[float, float] = {}
    for row in table.rows:
        start_s = _time_s(row) + (_weekday(row) * DAY_S if is_weekly else 0.0)
        if start_s in rows:
            raise UsageError(f"{row.place}: this time appears twice; give one row for each time{' of a weekday' if is_weekly else ''}")
        rows[start_s] = _demand_per_s(row)
    if not rows:
        raise UsageError(f"{name}: there is no row below the header; give one for each hour, such as 9,1200")
    if is_weekly and (missing := [day for number, day in enumerate(WEEKDAYS) if not any(start_s // DAY_S == number for start_s in rows)]):
        raise UsageError(f"{name}: {', '.join(missing)} has no row; give every weekday at least one, or leave out the column weekday")
    if not any(rows.values()):
        raise UsageError(f"{name}: every demand is zero; give at least one above zero")
    return DemandProfile(tuple(sorted(rows.items())), DAY_S * (len(WEEKDAYS) if is_weekly else 1))


def _time_s(row: CsvRow) -> float:
    if (digits := row.cells.get("hour")) is not None:
        if (hour := whole_number(digits, 23)) is None:
            raise UsageError(f"{row.place}: expected an hour from 0 to 23, found {row.shown('hour')}")
        return hour * HOUR_S
    match = _TIME.fullmatch(row.cells.get("time", ""))
    if not match or int(match["hour"]) > 23 or int(match["minute"]) > 59:
        raise UsageError(f"{row.place}: expected a time from 00:00 to 23:59, found {row.shown('time')}")
    return int(match["hour"]) * HOUR_S + int(match["minute"]) * 60.0


def _weekday(row: CsvRow) -> int:
    text = row.cells.get("weekday", "").lower()
    found = [number for number, day in enumerate(WEEKDAYS) if len(text) >= 3 and day.lower().startswith(text)]
    if not found:
        raise UsageError(f"{row.place}: expected a weekday such as Monday or Mon, found {row.shown('weekday')}")
    return found[0]


def _demand_per_s(row: CsvRow) -> float:
    try:
        demand_per_s = float(row.cells.get("demand_per_s", ""))
    except ValueError:
        raise UsageError(f"{row.place}: expected a number of inferences per second, found {row.shown('demand_per_s')}") from None
    if not 0 <= demand_per_s <= _HIGHEST_DEMAND_PER_S:
        found = row.cells["demand_per_s"][:50]
        raise UsageError(f"{row.place}: a demand is at least zero, and at most {_HIGHEST_DEMAND_PER_S:g}/s, found {found}")
    return demand_per_s


SYNC_S, METRIC_WINDOW_S, SCALE_DOWN_DELAY_S, TOLERANCE = 15.0, 60.0, 300.0, 0.1
"""Defaults of Kubernetes (sync period, scale-down stabilisation window, tolerance) and of Knative (metric window)."""
_MOST_STARTED_AT_ONCE = 4  # replicas per sync period, or as many as are running if that is more: Kubernetes' default scale-up policies
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class Autoscaler:
    """The settings of a horizontal autoscaler; rates in requests per second."""

    target_per_s: float
    """The target rate per replica: the target utilisation times the capacity."""
    cold_start_s: float
    """The time from the decision to start a replica until it takes requests."""
    maximum: int
    minimum: int = 1
    scale_down_delay_s: float = SCALE_DOWN_DELAY_S
    sync_s: float = SYNC_S
    metric_window_s: float = METRIC_WINDOW_S
    tolerance: float = TOLERANCE

    def clip(self, replicas: int) -> int:
        """Clip a number of replicas to the range from `minimum` to `maximum`."""
        return min(max(replicas, self.minimum), self.maximum)

    def wanted(self, rate_per_s: float, running: int) -> int:
        """The desired number of replicas: ⌈rate/target⌉, or the running number while the rate per replica is within the tolerance."""
        if abs(rate_per_s / (self.target_per_s * running) - 1) <= self.tolerance + _ROUNDING:
            return self.clip(running)
        return self.clip(math.ceil(rate_per_s / self.target_per_s * (1 - _ROUNDING)))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ReplicaCourse:
    """The number of replicas over time."""

    ready: Steps
    """Replicas that take requests."""
    running: Steps
    """Replicas that are paid for: ready or starting."""


def autoscale(counts: npt.NDArray[np.int64], settings: Autoscaler, initial: int) -> ReplicaCourse:
    """The replicas that an autoscaler runs; `counts` are the arrivals in each sync period, from instant 0.

    At the end of each sync period, the desired number of replicas follows from the mean arrival rate over the metric window
    (`Autoscaler.wanted`). Arrivals are counted because completions would hide an overload. New replicas are started at once, within
    the scale-up policies, and are ready a cold start later. Replicas are stopped only down to the highest desired number within the
    scale-down delay. Starting replicas are stopped first; a stopped replica completes its requests in progress.

    Source: Kubernetes, "Horizontal Pod Autoscaling", sections "Algorithm details" and "Stabilization window", for a metric of type
    `AverageValue`; the metric window is Knative's.
    """
    running, ready_changes, running_changes = initial, list[tuple[float, float]](), list[tuple[float, float]]()
    starting = deque[float]()
    asked = deque[tuple[float, int]]()
    window = max(1, round(settings.metric_window_s / settings.sync_s))
    total = np.concatenate(([0], np.cumsum(counts)))
    for number in range(1, len(total)):
        now_s, first = number * settings.sync_s, max(0, number - window)
        rate_per_s = float(total[number] - total[first]) / ((number - first) * settings.sync_s)
        wanted = settings.wanted(rate_per_s, running)
        asked.append((now_s, wanted))
        while asked[0][0] < now_s - settings.scale_down_delay_s:
            asked.popleft()
        while starting and starting[0] <= now_s:
            starting.popleft()
        if wanted > running:
            wanted = min(wanted, running + max(_MOST_STARTED_AT_ONCE, running))
            ready_s = now_s + settings.cold_start_s
            starting.extend([ready_s] * (wanted - running))
            ready_changes.append((ready_s, wanted - running))
        elif wanted < running:
            wanted = min(running, max(desired for _, desired in asked))
            ready_changes += [(starting.pop() if starting else now_s, -1) for _ in range(running - wanted)]
        if wanted != running:
            running_changes.append((now_s, wanted - running))
            running = wanted
    return ReplicaCourse(Steps.of_changes(0.0, initial, ready_changes), Steps.of_changes(0.0, initial, running_changes))


def scheduled(replicas: PeriodicSteps, cold_start_s: float, end_s: float, start_s: float = 0.0) -> ReplicaCourse:
    """Replicas that follow a fixed schedule: each starts one cold start before it is needed, and stops when it no longer is."""
    ready = replicas.over(start_s, end_s)
    ahead = replicas.over(start_s, end_s + cold_start_s)
    edges = np.unique(np.concatenate((ready.starts_s, ahead.starts_s - cold_start_s)))
    edges = edges[(edges >= start_s) & (edges < end_s)]
    needed = [
        float(np.max(replicas.at([edge_s, *ahead.starts_s[(ahead.starts_s > edge_s) & (ahead.starts_s <= edge_s + cold_start_s)]])))
        for edge_s in edges.tolist()
    ]
    return ReplicaCourse(ready, Steps(edges, np.array(needed)))


def interrupt(
    course: ReplicaCourse, base: int, interruptions_per_h: float, cold_start_s: float, end_s: float, random: np.random.Generator
) -> ReplicaCourse:
    """The course with random interruptions of the spot replicas, those above `base`; each lost replica is replaced at once.

    Interruptions are a Poisson process with this rate per spot replica. The replacement is ready a cold start later, and until then one
    replica fewer is ready; advance notice is not used. The cost is unchanged, because the replacement is paid for from its start.
    """
    most = float(np.max(course.ready.values)) - base
    if most <= 0 or not interruptions_per_h:
        return course
    candidates = random.uniform(0, end_s, int(random.poisson(most * interruptions_per_h * end_s / 3600)))
    spot = course.ready.at(candidates) - base
    lost_s = candidates[random.uniform(0, most, candidates.size) < spot]
    edges = np.unique(np.concatenate((course.ready.starts_s, lost_s, lost_s + cold_start_s)))
    down = np.searchsorted(np.sort(lost_s), edges, side="right") - np.searchsorted(np.sort(lost_s + cold_start_s), edges, side="right")
    planned = course.ready.at(edges)
    return ReplicaCourse(Steps(edges, np.maximum(planned - down, np.minimum(planned, base))), course.running)

"""Demand over a day or a week, from a CSV file."""

import dataclasses
import re

import numpy as np

from perfkit.errors import UsageError
from perfkit.plan.input_texts import CsvRow, parse_csv
from perfkit.plan.steps import PeriodicSteps, Steps

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
    if (hour := row.cells.get("hour")) is not None:
        if not (hour.isascii() and hour.isdecimal() and int(hour[:9]) < 24):
            raise UsageError(f"{row.place}: expected an hour from 0 to 23, found {row.shown('hour')}")
        return int(hour) * HOUR_S
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

"""Demand over a day or a week, from a CSV file."""

import csv
import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from perfkit.errors import UsageError
from perfkit.stats.steps import PeriodicSteps, Steps

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
    try:
        lines = list(csv.reader(text.lstrip("\ufeff").splitlines()))
    except csv.Error as error:
        raise UsageError(f"{name}: cannot be read as CSV: {error}") from None
    header = [cell.strip().lower() for cell in lines[0]] if lines else []
    if "demand_per_s" not in header or ("hour" in header) == ("time" in header):
        found = ", ".join(header)[:100] or "nothing"
        raise UsageError(
            f"{name}: expected a header with the columns demand_per_s and either hour (0 to 23) or time (HH:MM), found {found}"
        )
    if len(lines) > _MOST_ROWS + 1:
        raise UsageError(f"{name}: {len(lines) - 1:,} rows are more than the minutes of a week; give one row a minute at most")
    is_weekly = "weekday" in header
    rows: dict[float, float] = {}
    for number, line in enumerate(lines[1:], 2):
        if not any(cell.strip() for cell in line):
            continue
        cells, place = dict(zip(header, (cell.strip() for cell in line), strict=False)), f"{name}:{number}"
        start_s = _time_s(cells, place) + (_weekday(cells, place) * DAY_S if is_weekly else 0.0)
        if start_s in rows:
            raise UsageError(f"{place}: this time appears twice; give one row for each time{' of a weekday' if is_weekly else ''}")
        rows[start_s] = _demand_per_s(cells, place)
    if not rows:
        raise UsageError(f"{name}: there is no row below the header; give one for each hour, such as 9,1200")
    if is_weekly and (missing := [day for number, day in enumerate(WEEKDAYS) if not any(start_s // DAY_S == number for start_s in rows)]):
        raise UsageError(f"{name}: {', '.join(missing)} has no row; give every weekday at least one, or leave out the column weekday")
    if not any(rows.values()):
        raise UsageError(f"{name}: every demand is zero; give at least one above zero")
    return DemandProfile(tuple(sorted(rows.items())), DAY_S * (len(WEEKDAYS) if is_weekly else 1))


def _time_s(cells: Mapping[str, str], place: str) -> float:
    if "hour" in cells:
        if not (cells["hour"].isascii() and cells["hour"].isdecimal() and int(cells["hour"][:9]) < 24):
            raise UsageError(f"{place}: expected an hour from 0 to 23, found {cells['hour'][:50]!r}")
        return int(cells["hour"]) * HOUR_S
    match = _TIME.fullmatch(cells.get("time", ""))
    if not match or int(match["hour"]) > 23 or int(match["minute"]) > 59:
        raise UsageError(f"{place}: expected a time from 00:00 to 23:59, found {cells.get('time', '')[:50]!r}")
    return int(match["hour"]) * HOUR_S + int(match["minute"]) * 60.0


def _weekday(cells: Mapping[str, str], place: str) -> int:
    text = cells.get("weekday", "").lower()
    found = [number for number, day in enumerate(WEEKDAYS) if len(text) >= 3 and day.lower().startswith(text)]
    if not found:
        raise UsageError(f"{place}: expected a weekday such as Monday or Mon, found {cells.get('weekday', '')[:50]!r}")
    return found[0]


def _demand_per_s(cells: Mapping[str, str], place: str) -> float:
    try:
        demand_per_s = float(cells.get("demand_per_s", ""))
    except ValueError:
        raise UsageError(f"{place}: expected a number of inferences per second, found {cells.get('demand_per_s', '')[:50]!r}") from None
    if not 0 <= demand_per_s <= _HIGHEST_DEMAND_PER_S:
        raise UsageError(f"{place}: a demand is at least zero, and at most {_HIGHEST_DEMAND_PER_S:g}/s, found {cells['demand_per_s'][:50]}")
    return demand_per_s

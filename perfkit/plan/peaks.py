"""Daily peaks of the demand: read from a CSV file, and the forecast of the date on which the replicas no longer suffice."""

import re

import numpy as np

from perfkit.errors import UsageError
from perfkit.plan.csv_rows import parse_csv
from perfkit.plan.inputs import PlanInputs
from perfkit.stats.forecast import FEWEST_DAYS, Exhaustion, Forecast, fit_forecast

_FIRST_YEAR, _LAST_YEAR, _HIGHEST_PEAK_PER_S = "1970", "2199", 1e12
_DATE = re.compile(r"(?P<day>\d{4}-\d{2}-\d{2})([T ].*)?", re.ASCII)
_LEAD_TIME = re.compile(r"(?P<number>\d{1,4})\s*(?P<unit>d|w)")
_DAYS = {"d": 1, "w": 7}


def parse_peaks(text: str, name: str) -> tuple[tuple[str, float], ...]:
    """Parse a CSV of daily peaks with the columns `date` (ISO 8601) and `peak_per_s`; `name` is the file's. Raises UsageError.

    A time of day after the date is ignored, with its offset from UTC: the day is the local one, also when clocks change.
    """
    table = parse_csv(text, name)
    if not {"date", "peak_per_s"} <= set(table.columns):
        raise UsageError(f"{name}: expected a header with the columns date and peak_per_s, found {table.shown_columns}")
    peaks: dict[str, float] = {}
    for row in table.rows:
        cells = row.cells
        try:
            day, peak = _day(cells["date"]), float(cells["peak_per_s"])
        except (KeyError, ValueError):
            found = ", ".join(cells.values())[:100]
            raise UsageError(f"{row.place}: expected a date such as 2026-01-31 and a number, found {found!r}") from None
        if not 0 < peak <= _HIGHEST_PEAK_PER_S:
            raise UsageError(
                f"{row.place}: a peak must be above zero, and at most {_HIGHEST_PEAK_PER_S:g}/s, found {cells['peak_per_s'][:50]}"
            )
        if not _FIRST_YEAR <= day[:4] <= _LAST_YEAR:
            raise UsageError(f"{row.place}: a day lies in the years {_FIRST_YEAR} to {_LAST_YEAR}, found {cells['date'][:50]}")
        if day in peaks:
            raise UsageError(f"{row.place}: {day} appears twice; give one peak per day")
        peaks[day] = peak
    return tuple(sorted(peaks.items()))


def _day(text: str) -> str:
    """The date in `2026-01-31` or `2026-01-31T23:00:00+01:00`; raises ValueError, also for a month without a day."""
    match = _DATE.fullmatch(text)
    if not match:
        raise ValueError("not a date")
    return str(np.datetime64(match["day"], "D"))


def parse_lead_time_days(text: str) -> int:
    """Parse a lead time such as `6w` or `45d`, from an order until the replicas are ready; raises UsageError."""
    match = _LEAD_TIME.fullmatch(text.strip())
    if not match or not int(match["number"]):
        raise UsageError(f"--lead-time {text!r}: expected days or weeks above zero, such as 45d or 6w")
    return int(match["number"]) * _DAYS[match["unit"]]


def forecast_exhaustion(inputs: PlanInputs, capacity_per_s: float) -> tuple[Forecast | None, Exhaustion | None]:
    """The forecast of the peaks, and the date on which they exceed the capacity.

    Both are None without peaks. With too few of them there is no forecast, and the exhaustion says how many more are needed.
    """
    if not inputs.peaks:
        return None, None
    days = [int(np.datetime64(date, "D").astype(np.int64)) for date, _ in inputs.peaks]
    if (missing := FEWEST_DAYS - len(days)) > 0:
        length = days[-1] - days[0] + 1
        return None, Exhaustion(capacity_per_s, length, 0, "few_days", more_days=missing, lead_time_days=inputs.lead_time_days)
    forecast = fit_forecast(days, [peak for _, peak in inputs.peaks], np.random.default_rng([inputs.seed, 10_007]))
    return forecast, forecast.exhaustion(capacity_per_s, inputs.lead_time_days)

"""Forecast of daily peak demand: models weighted by back-testing, the day on which a capacity is exhausted, and the texts of `--peaks` and `--lead-time`."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from perfkit.errors import UsageError
from perfkit.plan.backtest import NOMINAL_COVERAGE, BackTest, back_test
from perfkit.plan.forecast_models import LARGEST_LOG, MODELS, WEEK_DAYS, Fit, Numbers, PeakHistory, peak_history
from perfkit.plan.input_texts import parse_csv
from perfkit.plan.inputs import PlanInputs
from perfkit.stats.autocorrelation import first_order_time
from perfkit.stats.probability import normal_quantile

FEWEST_DAYS, HORIZON_DAYS, PATHS = 14, 5 * 365, 400
"""The fewest peaks for a forecast; its longest reach in days; the number of simulated paths of each model."""
RELEVANT_WEIGHT = 0.1
"""Models with a smaller weight are left out of the check whether the models disagree."""
_UNLIKELY, _LIKELY = 0.1, 0.9
_Z_80 = normal_quantile(0.9)  # half the width of an 80 % interval, in standard deviations
Refusal = Literal["", "few_days", "not_described", "models_disagree", "beyond_history"]


@dataclasses.dataclass(frozen=True, slots=True)
class ModelExhaustion:
    """The exhaustion of a capacity as one model predicts it."""

    chance: float
    """The share of its paths that exceed the capacity within the reach."""
    p50_days: int | None
    """The median over its paths; None if fewer than half of them exceed the capacity within the reach."""


@dataclasses.dataclass(frozen=True, slots=True)
class Exhaustion:
    """Days from the last peak until a daily peak first exceeds a capacity; None if refused or beyond the reach."""

    capacity_per_s: float
    history_days: int
    reach_days: int
    """How far the forecast reaches: as far as the history is long, but at most five years."""
    refusal: Refusal
    """Why there is no date; empty if there is one.

    `few_days`: fewer than 14 peaks. `not_described`: even the widest intervals covered too little in the back-test. `models_disagree`: one
    relevant model almost surely exceeds the capacity within the reach, and another almost surely does not. `beyond_history`: the
    probability of exceeding it within the reach is below 10 %."""
    p10_days: int | None = None
    """The day by which one in ten simulated paths has exceeded the capacity."""
    p50_days: int | None = None
    p90_days: int | None = None
    more_days: int | None = None
    """How many more days of history a date needs; None if there is a date, or if that is unknown."""
    models: Mapping[str, ModelExhaustion] = dataclasses.field(default_factory=dict)
    lead_time_days: int | None = None
    """The time from an order until its replicas are in service."""
    order_by_days: int | None = None
    """Days from the last peak to the latest day for the order: P10 less the lead time; negative if that day has passed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Forecast:
    """Simulated paths of future daily peaks from several models, weighted by their back-test."""

    days: int
    """The length of the history, from its first day to its last, both included."""
    reach_days: int
    level_per_s: float
    """The models' weighted central estimate of the peak on the last day of the history, without the weekday pattern."""
    growth_per_day: float
    """The mean relative growth of that estimate per day, up to the reach."""
    back_test: BackTest
    fits: Mapping[str, Fit] = dataclasses.field(repr=False, compare=False, metadata={"exclude": True})
    paths_per_s: Mapping[str, Numbers] = dataclasses.field(repr=False, compare=False, metadata={"exclude": True})
    """For each model, an array of `PATHS` × days; the first day is the one after the history."""

    def fan_per_s(self, quantiles: Sequence[float], days: int) -> list[Numbers]:
        """Quantiles of the weighted paths on each of the next `days` days."""
        paths = np.concatenate([one[:, :days] for one in self.paths_per_s.values()])
        order = np.argsort(paths, axis=0)
        below = np.cumsum(self._path_weights()[order], axis=0)
        rows = [(below >= quantile * below[-1]).argmax(axis=0)[None] for quantile in quantiles]
        return [np.take_along_axis(paths, np.take_along_axis(order, row, axis=0), axis=0)[0] for row in rows]

    def exhaustion(self, capacity_per_s: float, lead_time_days: int | None = None) -> Exhaustion:
        """The day on which a daily peak first exceeds a capacity: quantiles of the weighted paths, or the reason for a refusal."""
        first_days = {name: _first_days(paths > capacity_per_s) for name, paths in self.paths_per_s.items()}
        all_days, weights = np.concatenate(list(first_days.values())), self._path_weights()
        p10_days, p50_days, p90_days = (_quantile(all_days, weights, share) for share in (0.1, 0.5, 0.9))
        models = {
            name: ModelExhaustion(float(np.isfinite(days).mean()), _quantile(days, np.ones(PATHS), 0.5))
            for name, days in first_days.items()
        }
        relevant = sorted(
            (name for name in models if self.back_test.models[name].weight >= RELEVANT_WEIGHT), key=lambda name: models[name].chance
        )
        exhaustion = Exhaustion(capacity_per_s, self.days, self.reach_days, "", models=models, lead_time_days=lead_time_days)
        if self.back_test.coverage < NOMINAL_COVERAGE:
            return dataclasses.replace(exhaustion, refusal="not_described")
        if models[relevant[0]].chance < _UNLIKELY and models[relevant[-1]].chance > _LIKELY:
            more_days = self._days_to_separate(relevant[0], relevant[-1])
            return dataclasses.replace(exhaustion, refusal="models_disagree", more_days=more_days)
        if p10_days is None:
            return dataclasses.replace(exhaustion, refusal="beyond_history", more_days=self._days_to_reach(capacity_per_s))
        order_by_days = None if lead_time_days is None else p10_days - lead_time_days
        return dataclasses.replace(exhaustion, p10_days=p10_days, p50_days=p50_days, p90_days=p90_days, order_by_days=order_by_days)

    def _path_weights(self) -> Numbers:
        return np.repeat([self.back_test.models[name].weight / PATHS for name in self.paths_per_s], PATHS)

    def _days_to_separate(self, one: str, other: str) -> int | None:
        """Days until the mean peak of a week can contradict one of two models, by their 80 % intervals; None if it never does."""
        ahead = np.arange(1.0, HORIZON_DAYS + 1)
        first, second = self.fits[one].outlook(ahead), self.fits[other].outlook(ahead)
        week_sd = max(first.noise_sd, second.noise_sd) / math.sqrt(WEEK_DAYS)
        separate = np.abs(first.centre - second.centre) > _Z_80 * np.sqrt(first.sd**2 + second.sd**2 + week_sd**2)
        return int(separate.argmax()) + 1 if separate.any() else None

    def _days_to_reach(self, capacity_per_s: float) -> int | None:
        """Days until the history is as long as the remaining time to exhaustion (the models' weighted median); None if it never is."""
        ahead = np.arange(1.0, HORIZON_DAYS + 1)
        above = np.stack([fit.outlook(ahead).centre > math.log(capacity_per_s) for fit in self.fits.values()])
        weights = np.array([self.back_test.models[name].weight for name in self.fits])
        days = _quantile(_first_days(above), weights, 0.5)
        return None if days is None else max(1, math.ceil((days - self.days) / 2))


def fit_forecast(
    days: Sequence[int] | npt.NDArray[np.int64], peaks_per_s: Sequence[float] | Numbers, random: np.random.Generator
) -> Forecast:
    """Fit and back-test all models, and simulate paths; `days` count from any day, may have gaps, and must not repeat.

    The forecast is a mixture of the models, with the weights of their back-test. A path is a draw of a model's level, plus its
    residuals in blocks of at least a week, plus the weekday pattern. If the mixture's 80 % interval covered fewer than 80 % of the
    back-tested days, the levels' distances from their common centre are multiplied by the factor that gives 80 % coverage.

    The forecast reaches as far ahead as the history is long, because no back-test reaches further. Assumptions: one of the models, or a
    mixture of them, continues to hold; no campaigns, no saturation. Raises ValueError for fewer than 14 days, repeated days and peaks
    of 0 or less.
    """
    day, peak = np.asarray(days, dtype=np.float64), np.asarray(peaks_per_s, dtype=np.float64)
    if day.size < FEWEST_DAYS:
        raise ValueError(f"a forecast needs at least {FEWEST_DAYS} daily peaks, found {day.size}")
    if np.unique(day).size < day.size:
        raise ValueError("each day must have one peak, but a day is given twice")
    if peak.min() <= 0:
        raise ValueError(f"daily peaks must be above zero, found {peak.min():g}")
    order = np.argsort(day)
    day, peak = day[order], peak[order]
    tested, history = back_test(day, peak), peak_history(day, peak)
    reach_days = min(history.length_days, HORIZON_DAYS)
    ahead = np.arange(1.0, reach_days + 1)
    fits = {name: fit(history) for name, fit in MODELS.items()}
    levels = {name: fit.paths(ahead, PATHS, random) for name, fit in fits.items()}
    if tested.widening > 1:
        centre = _weighted(tested, {name: np.median(level, axis=0) for name, level in levels.items()})
        levels = {name: centre + tested.widening * (level - centre) for name, level in levels.items()}
    weekday = history.weekday(ahead)
    paths = {}
    for name, level in levels.items():
        logs = level + _noise(fits[name].residuals, history, reach_days, random) + weekday
        paths[name] = np.exp(np.minimum(logs, LARGEST_LOG))
    ends = np.array([0.0, float(reach_days)])
    start, end = _weighted(tested, {name: fit.outlook(ends).centre for name, fit in fits.items()})
    growth = math.expm1((float(end) - float(start)) / reach_days)
    return Forecast(history.length_days, reach_days, math.exp(start), growth, tested, fits, paths)


def _weighted(tested: BackTest, values: Mapping[str, Numbers]) -> Numbers:
    mean: Numbers = np.sum([tested.models[name].weight * one for name, one in values.items()], axis=0)
    return mean


def _noise(residuals: Numbers, history: PeakHistory, days: int, random: np.random.Generator) -> Numbers:
    """The noise of the paths, `PATHS` × days: residuals in blocks of twice their autocorrelation time, at least a week.

    Each path draws from its own resampled history, because the distribution of the residuals is uncertain as well.
    """
    block = min(max(WEEK_DAYS, math.ceil(2 * first_order_time(residuals))), residuals.size // 2)
    resampled = random.integers(0, residuals.size - block + 1, (PATHS, math.ceil(residuals.size / block)))
    chosen = random.integers(0, resampled.shape[1], (PATHS, math.ceil(days / block)))
    starts = np.take_along_axis(resampled, chosen, axis=1)
    centred = (residuals - residuals.mean()) * history.noise_scale
    noise: Numbers = centred[(starts[:, :, None] + np.arange(block)).reshape(PATHS, -1)[:, :days]]
    return noise


def _first_days(is_above: npt.NDArray[np.bool_]) -> Numbers:
    """The first day, counted from 1, on which each row is true; infinite if none is."""
    return np.where(is_above.any(axis=1), is_above.argmax(axis=1) + 1.0, math.inf)


def _quantile(days: Numbers, weights: Numbers, share: float) -> int | None:
    """The weighted quantile of first days; None if it is infinite."""
    order = np.argsort(days)
    below = np.cumsum(weights[order])
    day = float(days[order][int((below >= share * below[-1]).argmax())])
    return int(day) if math.isfinite(day) else None


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

"""Forecasts of simulated histories: the share of dates of exhaustion between P10 and P90, and of peaks within the 80 % interval.

    python -m benchmarks.forecast_simulation [--histories 200] [--processes 1] [--out reports/forecast-simulation.md]

There are seven kinds of demand and histories of 30, 90, 365 and 800 days, 200 histories of each. Daily peaks scatter normally with a standard
deviation of 3 to 8 %, drawn for each history. For growing kinds, the capacity is the demand without scatter on a day that is 0.1 to
1.5 history lengths ahead; for the others it is 3 to 40 % above the last week. Up to two standard deviations of the scatter are added to
it, so that in many histories a single high peak exceeds it before the demand without scatter does. The forecast knows neither kind nor scatter.

Target: for each kind and length, at least 75 % of the dates that are given lie between P10 and P90; an open P90 contains
every later day. A refusal as "beyond the history" is right if no peak exceeds the capacity within the reach of the forecast.
It takes about ten minutes on one core. The exit code is 1 if the target is missed.
"""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.report import option_parser, percent, table_head, table_row, write_report, yes_no
from benchmarks.simulated_queues import Floats
from perfkit.plan.forecast import fit_forecast
from perfkit.plan.forecast_models import YEAR_DAYS

LENGTHS_DAYS, TARGET, FAN_AT = (30, 90, 365, 800), 0.75, (0.25, 0.5, 1.0)
AHEAD, LEVEL_PER_S = 1.5, 100.0
"""The simulated future ÷ the length of the history; the demand without scatter on the last day of the history, per second."""


def exponential(days: Floats, random: np.random.Generator) -> Floats:
    """Growth by 20 to 200 % a year, three times as fast in histories of at most 200 days."""
    return math.log1p(random.uniform(0.2, 2.0)) / 365 * (3 if days[0] > -200 else 1) * days


def linear(days: Floats, random: np.random.Generator) -> Floats:
    """Linear growth: the demand rises over the history by 30 to 90 % of its last value."""
    course: Floats = np.log(1 - random.uniform(0.3, 0.9) * days / days[0])
    return course


def weekly(days: Floats, random: np.random.Generator) -> Floats:
    """Growth by a factor of 1.2 to 4.5 a year, and a weekday pattern of 12 %."""
    pattern: Floats = random.normal(0, 0.12, 7)[(days % 7).astype(np.int64)]
    return pattern + random.uniform(0.2, 1.5) / 365 * days


def yearly(days: Floats, random: np.random.Generator) -> Floats:
    """A yearly season of 10 to 30 % with a random phase, and growth by up to 50 % a year."""
    season: Floats = random.uniform(0.1, 0.3) * np.sin(2 * math.pi * (days / YEAR_DAYS + random.uniform()))
    return season + random.uniform(0.0, 0.4) / 365 * days


def step(days: Floats, random: np.random.Generator) -> Floats:
    """Shifts of the level by 8 ± 20 %, on average every 120 days, in the history and in the future."""
    return np.cumsum((random.random(days.size) < 1 / 120) * random.normal(0.08, 0.2, days.size))


def flat(days: Floats, _: np.random.Generator) -> Floats:
    """No growth."""
    return np.zeros(days.size)


def correlated(days: Floats, random: np.random.Generator) -> Floats:
    """Growth by up to 170 % a year; the scatter of 8 % has an autocorrelation of 0.9 from day to day."""
    return random.uniform(0.0, 1.0) / 365 * days


TRUTHS: Mapping[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "exponential": exponential, "linear": linear, "weekly + growth": weekly, "yearly season": yearly, "step": step, "flat": flat,
    "AR(1) noise": correlated,
}  # fmt: skip
_GROWING = ("exponential", "linear", "weekly + growth", "AR(1) noise")


class Case(NamedTuple):
    """The peaks of a history, those that follow it, and a capacity."""

    peaks_per_s: Floats
    future_per_s: Floats
    capacity_per_s: float


def simulate(truth: str, length_days: int, seed: int) -> Case:
    """A history of `length_days` peaks with its future and its capacity."""
    random = np.random.default_rng([seed, length_days, list(TRUTHS).index(truth)])
    days = np.arange(1.0 - length_days, math.ceil(AHEAD * length_days) + 1)
    course, sd = TRUTHS[truth](days, random), random.uniform(0.03, 0.08)
    noise = random.normal(0, sd, days.size)
    if truth == "AR(1) noise":
        sd, innovations = 0.08, noise / sd
        carried = list(itertools.accumulate(innovations, lambda before, new: 0.9 * before + math.sqrt(1 - 0.81) * new))
        noise = sd * np.array(carried)
    if truth in _GROWING:
        highest = np.maximum.accumulate(course[length_days:])
        limit = max(float(highest[int(random.uniform(0.1, AHEAD) * length_days) - 1]), float(course[length_days - 1]) + 0.02)
    else:
        limit = float(course[length_days - 7 : length_days].mean()) + random.uniform(0.03, 0.4)
    peaks = LEVEL_PER_S * np.exp(course + noise)
    return Case(peaks[:length_days], peaks[length_days:], LEVEL_PER_S * math.exp(limit + random.uniform(0, 2) * sd))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One forecast compared with the simulated future."""

    refusal: str
    place: str
    """`inside` if the true date lies between P10 and P90, otherwise `early` or `late`; without a date, `early` if the refusal is wrong."""
    is_open: bool
    """Whether P90 is open."""
    ratio: float | None
    """P90 divided by P10, if it is closed."""
    in_fan: tuple[bool, ...]
    """Whether the peak lies within the 80 % interval, at each of `FAN_AT` times the reach."""
    widening: float


def forecast(truth: str, length_days: int, seed: int) -> Outcome:
    """Forecast one history and compare it with its future."""
    case = simulate(truth, length_days, seed)
    forecast = fit_forecast(range(length_days), case.peaks_per_s, np.random.default_rng([seed, 1]))
    said = forecast.exhaustion(case.capacity_per_s)
    above = case.future_per_s > case.capacity_per_s
    day = int(above.argmax()) + 1 if above.any() else math.inf
    low, high = forecast.fan_per_s((0.1, 0.9), said.reach_days)
    at = [max(0, round(share * said.reach_days) - 1) for share in FAN_AT]
    in_fan = tuple(bool(low[index] <= case.future_per_s[index] <= high[index]) for index in at)
    if said.refusal:
        place = "early" if said.refusal == "beyond_history" and day <= said.reach_days else "inside"
        return Outcome(said.refusal, place, True, None, in_fan, forecast.back_test.widening)
    assert said.p10_days is not None
    p90_days = said.p90_days or math.inf
    place = "early" if day < said.p10_days else "late" if day > p90_days else "inside"
    ratio = None if said.p90_days is None else said.p90_days / said.p10_days
    return Outcome("", place, said.p90_days is None, ratio, in_fan, forecast.back_test.widening)


@dataclasses.dataclass(frozen=True)
class Figures:
    """The forecasts of the histories of one kind and length."""

    outcomes: Sequence[Outcome]

    @property
    def dated(self) -> list[Outcome]:
        """The forecasts that gave a date."""
        return [outcome for outcome in self.outcomes if not outcome.refusal]

    @property
    def coverage(self) -> float | None:
        """The share of the true dates between P10 and P90; None if no date was given."""
        return share(outcome.place == "inside" for outcome in self.dated)

    @property
    def in_fan(self) -> tuple[float, ...]:
        """The shares of the peaks within the 80 % interval, at each of `FAN_AT` times the reach."""
        return tuple(float(np.mean([outcome.in_fan[index] for outcome in self.outcomes])) for index in range(len(FAN_AT)))

    @property
    def is_met(self) -> bool:
        """Whether the coverage reaches the target; true where no date was given."""
        return self.coverage is None or self.coverage >= TARGET

    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        refused = collections.Counter(outcome.refusal for outcome in self.outcomes)
        beyond = [outcome for outcome in self.outcomes if outcome.refusal == "beyond_history"]
        ratios = [outcome.ratio for outcome in self.dated if outcome.ratio is not None]
        return (
            f"{len(self.dated)}", f"{refused['models_disagree']}", f"{refused['not_described']}",
            f"{sum(outcome.place == 'inside' for outcome in beyond)} of {len(beyond)}", percent(self.coverage),
            percent(share(outcome.place == "early" for outcome in self.dated)), percent(share(outcome.place == "late" for outcome in self.dated)),
            percent(share(outcome.is_open for outcome in self.dated)), f"{np.median(ratios):.1f}" if ratios else "–",
            *(percent(value) for value in self.in_fan),
            f"{np.mean([outcome.widening for outcome in self.outcomes]):.2f}", yes_no(self.is_met),
        )  # fmt: skip


def summary(results: Mapping[tuple[str, int], Figures]) -> str:
    """The table in a few sentences, with the lowest coverage and the cases in which the fan is too narrow."""
    outcomes = [outcome for figures in results.values() for outcome in figures.outcomes]
    dated = [outcome for figures in results.values() for outcome in figures.dated]
    lowest = min((key for key in results if results[key].dated), key=lambda key: results[key].coverage or 0.0)
    narrow = [
        f"{truth}, {length_days} days ({', '.join(percent(value) for value in figures.in_fan)})"
        for (truth, length_days), figures in results.items()
        if min(figures.in_fan) < TARGET
    ]
    return (
        f"Of {len(outcomes)} forecasts, {percent(len(dated) / len(outcomes))} gave a date, and {percent(share(one.place == 'inside' for one in dated))} of "
        f"the dates lay between P10 and P90; the lowest share is {percent(results[lowest].coverage)} ({lowest[0]}, {lowest[1]} days). "
        f"{percent(share(one.is_open for one in dated))} of the intervals are open. "
        f"The fan contained less than {TARGET:.0%} of the peaks at one of its three days in: {'; '.join(narrow) or 'none'}."
    )


def share(holds: Iterable[bool]) -> float | None:
    """The share of true values; None without values."""
    values = list(holds)
    return sum(values) / len(values) if values else None


def main() -> int:
    """Prints the table."""
    parser = option_parser(__doc__)
    parser.add_argument("--histories", type=int, default=200, help="histories of each kind and length (default %(default)s)")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    lines, results = list[str](), dict[tuple[str, int], Figures]()

    def show(*texts: str) -> None:
        lines.extend(texts)
        print("\n".join(texts), flush=True)

    show("# Forecasts of simulated demand", "")
    show(
        f"{options.histories} histories of each kind and length; made by `python -m benchmarks.forecast_simulation`, whose docstring says how."
    )
    show("Fan: the share of the peaks at a quarter, half and all of the forecast's reach that lay within its 80 % interval. "
         "P90/P10: median of the days, where P90 is not open.", "")  # fmt: skip
    for truth, course in TRUTHS.items():
        show(f"- {truth}: {(course.__doc__ or '').strip()}")
    show("", *table_head("demand", ">days of history", ">date given", ">models disagree", ">not described", ">beyond the history, and right",
                         ">date in P10 to P90", ">earlier", ">later", ">P90 open", ">P90/P10", ">fan ¼", ">fan ½", ">fan 1", ">widened",
                         "target met"))  # fmt: skip
    with concurrent.futures.ProcessPoolExecutor(options.processes) as pool:
        for truth, length_days in itertools.product(TRUTHS, LENGTHS_DAYS):
            one = functools.partial(forecast, truth, length_days)
            result = results[truth, length_days] = Figures(list(pool.map(one, range(options.histories), chunksize=10)))
            show(table_row(truth, length_days, *result.cells()))
    show("", summary(results))
    write_report(options.out, lines)
    return 0 if all(result.is_met for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

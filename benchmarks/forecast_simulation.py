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
import functools
import itertools
import math
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.report import Report, percent, program_options, share
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


def simulate(truth: str, length_days: int, seed: int) -> tuple[Floats, Floats, float]:
    """The peaks of a history of `length_days`, those that follow it, and a capacity; all per second."""
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
    return peaks[:length_days], peaks[length_days:], LEVEL_PER_S * math.exp(limit + random.uniform(0, 2) * sd)


class Outcome(NamedTuple):
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
    peaks_per_s, future_per_s, capacity_per_s = simulate(truth, length_days, seed)
    forecast = fit_forecast(range(length_days), peaks_per_s, np.random.default_rng([seed, 1]))
    said, above = forecast.exhaustion(capacity_per_s), future_per_s > capacity_per_s
    day = int(above.argmax()) + 1 if above.any() else math.inf
    low, high = forecast.fan_per_s((0.1, 0.9), said.reach_days)
    at = [max(0, round(share * said.reach_days) - 1) for share in FAN_AT]
    in_fan = tuple(bool(low[index] <= future_per_s[index] <= high[index]) for index in at)
    if said.refusal:
        place = "early" if said.refusal == "beyond_history" and day <= said.reach_days else "inside"
        return Outcome(said.refusal, place, True, None, in_fan, forecast.back_test.widening)
    assert said.p10_days is not None
    place = "early" if day < said.p10_days else "late" if day > (said.p90_days or math.inf) else "inside"
    ratio = None if said.p90_days is None else said.p90_days / said.p10_days
    return Outcome("", place, said.p90_days is None, ratio, in_fan, forecast.back_test.widening)


def fan_shares(outcomes: list[Outcome]) -> list[float]:
    """The shares of the peaks within the 80 % interval, at each of `FAN_AT` times the reach."""
    return [float(np.mean([one.in_fan[index] for one in outcomes])) for index in range(len(FAN_AT))]


def main() -> int:
    """Prints the table."""
    options = program_options(__doc__, histories=(200, "of each kind and length"), processes=(1, "processes to simulate in"))
    page = Report(options.out, "Forecasts of simulated demand")
    page.add(
        f"{options.histories} histories of each kind and length; made by `python -m benchmarks.forecast_simulation`, whose docstring says how.",
        "Fan: the share of the peaks at a quarter, half and all of the forecast's reach that lay within its 80 % interval. "
        "P90/P10: median of the days, where P90 is not open.",
        "",
        *(f"- {truth}: {(course.__doc__ or '').strip()}" for truth, course in TRUTHS.items()),
        "",
    )
    page.table("demand", ">days of history", ">date given", ">models disagree", ">not described", ">beyond the history, and right",
               ">date in P10 to P90", ">earlier", ">later", ">P90 open", ">P90/P10", ">fan ¼", ">fan ½", ">fan 1", ">widened", "target met")  # fmt: skip
    every, coverages, narrow = list[Outcome](), dict[str, float](), list[str]()
    with concurrent.futures.ProcessPoolExecutor(options.processes) as pool:
        for truth, length_days in itertools.product(TRUTHS, LENGTHS_DAYS):
            outcomes = list(pool.map(functools.partial(forecast, truth, length_days), range(options.histories), chunksize=10))
            dated, refused = [one for one in outcomes if not one.refusal], collections.Counter(one.refusal for one in outcomes)
            places = [share(one.place == place for one in dated) for place in ("inside", "early", "late")]
            ratios, in_fan = [one.ratio for one in dated if one.ratio is not None], fan_shares(outcomes)
            right = sum(one.place == "inside" for one in outcomes if one.refusal == "beyond_history")
            page.judged_row(
                places[0] is None or places[0] >= TARGET, truth, length_days, len(dated), refused["models_disagree"], refused["not_described"],
                f"{right} of {refused['beyond_history']}", *map(percent, places), percent(share(one.is_open for one in dated)),
                f"{np.median(ratios):.1f}" if ratios else "–", *map(percent, in_fan), f"{np.mean([one.widening for one in outcomes]):.2f}",
            )  # fmt: skip
            every += outcomes
            if places[0] is not None:
                coverages[f"{truth}, {length_days} days"] = places[0]
            if min(in_fan) < TARGET:
                narrow.append(f"{truth}, {length_days} days ({', '.join(map(percent, in_fan))})")
    dated, lowest = [one for one in every if not one.refusal], min(coverages, key=lambda case: coverages[case], default="")
    page.add(
        "",
        f"Of {len(every)} forecasts, {percent(len(dated) / len(every))} gave a date, and {percent(share(one.place == 'inside' for one in dated))} of "
        f"the dates lay between P10 and P90; the lowest share is {percent(coverages.get(lowest))} ({lowest}). "
        f"{percent(share(one.is_open for one in dated))} of the intervals are open. "
        f"The fan contained less than {TARGET:.0%} of the peaks at one of its three days in: {'; '.join(narrow) or 'none'}.",
    )
    return page.write()


if __name__ == "__main__":
    sys.exit(main())

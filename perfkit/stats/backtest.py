"""Back-testing of forecast models: each forecasts the later part of a history from its earlier part, from several origins.

Source: evaluation on a rolling forecasting origin, R. J. Hyndman & G. Athanasopoulos, *Forecasting: Principles and Practice*, third
edition, section 5.10.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.stats.forecast_models import MODELS, WEEK_DAYS, YEAR_DAYS, Numbers, Outlook, peak_history

ORIGINS, FEWEST_KNOWN, NOMINAL_COVERAGE = 8, 10, 0.8
WIDENINGS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
UNSEEN_SEASON_WEIGHT = 2.0
"""The prior weight of the seasonal model, the others having 1, while the history is shorter than two years."""
OUTLIERS = 0.02
"""The share of peaks that may come from anywhere within a factor of ten, so that a single outage does not decide between models."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelScore:
    """One model's forecasts of the later parts of the history, compared with what came."""

    error: float | None
    """The mean absolute scaled error: of the median, in units of the mean absolute difference of days one week apart (R. J. Hyndman &
    A. B. Koehler, 2006). Below 1 it is better than repeating the week before; None if no peak differs from that of the week before."""
    coverage: float
    """The share of the days on which the peak was within the model's own 80 % interval."""
    log_score: float
    """The mean of the logarithm of the density that the model, with `OUTLIERS`, gave to ln peak."""
    weight: float


@dataclasses.dataclass(frozen=True, slots=True)
class BackTest:
    """The comparison of all models on one history."""

    origins: int
    """How many times the history was cut in two."""
    longest_days: int
    """The furthest day ahead that was forecast."""
    windows: float
    """How many windows of the mean length fit into the tested part without overlapping: the independent evidence for the weights."""
    models: Mapping[str, ModelScore]
    widening: float
    """The factor on the distances from the models' common centre with which the 80 % interval contains 80 % of the tested days."""
    coverage: float
    """Of the weighted models' 80 % interval, after widening; below 0.8 only if the largest factor was not enough."""
    coverage_before_widening: float


@dataclasses.dataclass(frozen=True, slots=True)
class _Window:
    """The days after one origin: what came, and how each model saw it from there."""

    days: Numbers
    """Days after the origin."""
    logs: Numbers
    """ln peak less the weekday pattern known at the origin."""
    weekday: Numbers
    outlooks: Mapping[str, Outlook]

    def absolute_errors_per_s(self, name: str) -> Numbers:
        """How far each peak was from the model's median."""
        errors: Numbers = np.abs(np.exp(self.outlooks[name].centre + self.weekday) - np.exp(self.logs + self.weekday))
        return errors


def back_test(days: Numbers, peaks_per_s: Numbers) -> BackTest:
    """Back-test all models on ascending days; needs more than `FEWEST_KNOWN` of them.

    The origins lie between a quarter of the history and its last tenth. From each, the models forecast as many days as the history was
    long there, if it goes on for so long; the plan's own forecast reaches as far as its history is long, too.

    Weights are pseudo-BMA weights (Y. Yao, A. Vehtari, D. Simpson & A. Gelman, "Using stacking to average Bayesian predictive
    distributions", 2018) of the log scores out of sample, exp(windows × mean log score). Errors of neighbouring days and of overlapping
    windows are correlated, so each separate window counts as one observation. Stacking, which maximises the score of the mixture, would
    give all weight to one of two models that two or three windows cannot tell apart.
    """
    known = _numbers_known(days.size)
    windows = [_window(days, peaks_per_s, number) for number in known]
    separate = float(days[-1] - days[known[0] - 1]) / float(np.mean([window.days[-1] for window in windows]))
    log_scores = {name: _mean(_log_density(window.outlooks[name], window.logs) for window in windows) for name in MODELS}
    weights = _weights(log_scores, separate, is_season_seen=bool(days[-1] - days[0] + 1 >= 2 * YEAR_DAYS - 1))
    scale_per_s = _weekly_difference_per_s(days, peaks_per_s)
    coverages = list[float]()
    for widening in WIDENINGS:
        coverages.append(_coverage(windows, weights, widening))
        if coverages[-1] >= NOMINAL_COVERAGE:
            break
    scores = {
        name: ModelScore(
            error=_mean(window.absolute_errors_per_s(name) for window in windows) / scale_per_s if scale_per_s else None,
            coverage=_coverage(windows, {name: 1.0}, 1.0),
            log_score=log_scores[name],
            weight=weights[name],
        )
        for name in MODELS
    }
    longest_days = round(max(float(window.days[-1]) for window in windows))
    return BackTest(len(windows), longest_days, separate, scores, WIDENINGS[len(coverages) - 1], coverages[-1], coverages[0])


def _numbers_known(size: int) -> list[int]:
    """How many peaks are known at each origin, ascending."""
    first = max(FEWEST_KNOWN, size // 4)
    last = max(first, size - max(3, size // 10))
    return sorted({round(float(known)) for known in np.linspace(first, last, ORIGINS)})


def _window(days: Numbers, peaks_per_s: Numbers, known: int) -> _Window:
    history = peak_history(days[:known], peaks_per_s[:known])
    ahead = days[known:] - days[known - 1]
    ahead = ahead[: max(1, int(np.searchsorted(ahead, history.length_days, side="right")))]
    weekday = history.weekday(ahead)
    logs = np.log(peaks_per_s[known : known + ahead.size]) - weekday
    return _Window(ahead, logs, weekday, {name: fit(history).outlook(ahead) for name, fit in MODELS.items()})


def _weights(log_scores: Mapping[str, float], windows: float, *, is_season_seen: bool) -> dict[str, float]:
    best = max(log_scores.values())
    prior = {name: UNSEEN_SEASON_WEIGHT if name == "seasonal" and not is_season_seen else 1.0 for name in log_scores}
    odds = {name: prior[name] * math.exp(windows * (score - best)) for name, score in log_scores.items()}
    return {name: one / sum(odds.values()) for name, one in odds.items()}


def _log_density(outlook: Outlook, logs: Numbers) -> Numbers:
    sds = np.hypot(outlook.sds, outlook.noise_sd)
    density = (outlook.shares * np.exp(-(((logs - outlook.centres) / sds) ** 2) / 2) / sds).sum(axis=0) / math.sqrt(2 * math.pi)
    log_density: Numbers = np.log((1 - OUTLIERS) * density + OUTLIERS / (2 * math.log(10)))
    return log_density


def _coverage(windows: Sequence[_Window], weights: Mapping[str, float], widening: float) -> float:
    """The share of the days within the 80 % interval of the weighted models, each window counting the same."""
    from scipy.special import ndtr

    inside = []
    for window in windows:
        centre = sum(weight * window.outlooks[name].centre for name, weight in weights.items())
        below = np.zeros(window.logs.size)
        for name, weight in weights.items():
            outlook = window.outlooks[name]
            centres = centre + widening * (outlook.centres - centre)
            below += weight * (outlook.shares * ndtr((window.logs - centres) / np.hypot(widening * outlook.sds, outlook.noise_sd))).sum(
                axis=0
            )
        inside.append(np.abs(below - 0.5) <= NOMINAL_COVERAGE / 2)
    return _mean(inside)


def _weekly_difference_per_s(days: Numbers, peaks_per_s: Numbers) -> float:
    """The mean absolute difference between a day's peak and that of a week before."""
    _, late, early = np.intersect1d(days, days + WEEK_DAYS, return_indices=True)
    return float(np.abs(peaks_per_s[late] - peaks_per_s[early]).mean()) if late.size else 0.0


def _mean(windows: Iterable[npt.NDArray[Any]]) -> float:
    """The mean over windows of the means over their days."""
    return float(np.mean([values.mean() for values in windows]))

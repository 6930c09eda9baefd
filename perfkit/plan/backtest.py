"""Back-testing of forecast models on a rolling origin: each forecasts the later part of a history from the earlier part.

Source: R. J. Hyndman & G. Athanasopoulos, *Forecasting: Principles and Practice*, third edition, section 5.10.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.plan.forecast_models import MODELS, WEEK_DAYS, YEAR_DAYS, Numbers, Outlook, peak_history

ORIGINS, FEWEST_KNOWN, NOMINAL_COVERAGE = 8, 10, 0.8
"""The number of origins; the fewest peaks before an origin; the nominal coverage of the interval."""
WIDENINGS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
"""The factors on the width of the interval that are tried, in this order."""
UNSEEN_SEASON_WEIGHT = 2.0
"""The prior weight of the seasonal model while the history is shorter than two years. All other prior weights are 1."""
OUTLIERS = 0.02
"""The share of peaks that the log score takes for outliers, log-uniform within a factor of ten. So a single outage does not decide
between models."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelScore:
    """The accuracy of one model's forecasts in the back-test."""

    error: float | None
    """The mean absolute scaled error of the median forecast (R. J. Hyndman & A. B. Koehler, 2006). Its unit is the mean absolute
    difference between peaks one week apart; None if that is 0."""
    coverage: float
    """The share of days whose peak was within the model's own 80 % interval."""
    log_score: float
    """The mean log predictive density of ln peak, with the share `OUTLIERS` of outliers."""
    weight: float
    """The weight in the forecast; the weights of all models sum to 1."""


@dataclasses.dataclass(frozen=True, slots=True)
class BackTest:
    """The back-test of all models on one history."""

    origins: int
    """The number of forecast origins."""
    longest_days: int
    """The longest forecast, in days."""
    windows: float
    """The number of independent test windows: the length of the tested part ÷ the mean length of a window."""
    models: Mapping[str, ModelScore]
    widening: float
    """The factor by which distances from the models' common centre are multiplied to bring the 80 % interval to 80 % coverage."""
    coverage: float
    """The coverage of the weighted models' 80 % interval after widening; below 0.8 only if the largest factor was not enough."""
    coverage_before_widening: float


@dataclasses.dataclass(frozen=True, slots=True)
class _Window:
    """The test window after one origin: the observed peaks, and each model's forecast of them."""

    days: Numbers
    """Days after the origin."""
    logs: Numbers
    """ln peak without the weekday pattern estimated at the origin."""
    weekday: Numbers
    """The weekday pattern on these days."""
    outlooks: Mapping[str, Outlook]

    def absolute_errors_per_s(self, name: str) -> Numbers:
        """The absolute error of a model's median forecast of each peak."""
        errors: Numbers = np.abs(np.exp(self.outlooks[name].centre + self.weekday) - np.exp(self.logs + self.weekday))
        return errors


def back_test(days: Numbers, peaks_per_s: Numbers) -> BackTest:
    """Back-test all models on ascending days; needs more than `FEWEST_KNOWN` of them.

    The origins lie between a quarter and nine tenths of the history. A window is as long as the history before its origin, or as long
    as the data reach. The plan's own forecast also reaches as far ahead as its history is long.

    The weights are pseudo-BMA weights of the out-of-sample log scores: prior weight × exp(windows × mean log score) (Y. Yao,
    A. Vehtari, D. Simpson & A. Gelman, "Using stacking to average Bayesian predictive distributions", 2018). Errors of neighbouring
    days and of overlapping windows are correlated, so each independent window counts as one observation. Stacking, which maximises
    the score of the mixture, is not used: with two or three windows it would give all weight to one of two similar models.
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
    """The number of peaks known at each origin, ascending."""
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
    """The coverage of the weighted models' 80 % interval; every window has the same weight."""
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
    """The mean absolute difference between peaks one week apart; 0 if no two days are."""
    _, late, early = np.intersect1d(days, days + WEEK_DAYS, return_indices=True)
    return float(np.abs(peaks_per_s[late] - peaks_per_s[early]).mean()) if late.size else 0.0


def _mean(windows: Iterable[npt.NDArray[Any]]) -> float:
    """The mean over windows of the means over their days."""
    return float(np.mean([values.mean() for values in windows]))

"""Steps in the level of a series whose noise may be correlated and which may drift slowly. Pure."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SIGNIFICANCE, SIMULATIONS, SHORTEST = 0.01, 999, 3
CORRELATION = 0.55
"""The correlation of consecutive values in simulated series without a step: the significance holds up to 0.5, with a reserve for what residuals hide."""
DRIFT = 0.03 / 60
"""The slope of a drift that is no step, a value on the logarithmic scale: 3 % in 60 results."""
_CORRELATIONS = tuple(np.arange(10) / 10)  # what the models try; a negative correlation counts as none, which is cautious
_DIGITS = 1e-9  # of values, relative: differences below that are roundings
_FIRST_SIMULATIONS = 25  # many series without a step are decided by them
_Values = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class ChangePoint:
    """A step; `index` is that of the first value after it."""

    index: int
    p: float
    before: float
    """The mean of the values between the previous step and this one; `after` is that up to the next step."""
    after: float


def change_points(
    values: Sequence[float],
    *,
    seed: int = 0,
    significance: float = SIGNIFICANCE,
    simulations: int = SIMULATIONS,
    shortest: int = SHORTEST,
) -> list[ChangePoint]:
    """The steps of a series of logarithms, ascending. A segment has at least `shortest` values; the same seed gives the same steps.

    Models with normal noise are compared, whose consecutive values are correlated, AR(1), by an amount that is fitted with the model: steps,
    and no step but a linear drift of at most `DRIFT` a value. The steps are the one that fits best, or that one with the one that
    then fits best, at a cost of 2 ln n: otherwise a level that was left and restored would be taken for correlated noise. The logarithm of the ratio of their
    likelihoods is compared with those of simulated series without a step, whose noise has the correlation `CORRELATION` and the
    innovations that the steps leave, in random order: p = (z+1)/(B+1) if z of B are at least as large. If p <= `significance`, the best step is
    known, and the same is asked of a further one.

    Sources: correlation and step fitted together, X. L. Wang, "Accounting for autocorrelation in detecting mean shifts in climate data series"
    (J. Appl. Meteorol. Climatol. 47, 2008) and F. Serinaldi & C. G. Kilsby, "The importance of prewhitening in change point analysis under
    persistence" (Stoch. Environ. Res. Risk Assess. 30, 2016); ratios of models of which none contains the other, D. R. Cox, "Tests of separate
    families of hypotheses" (4th Berkeley Symposium, 1961). How often steps are found, also where there are none:
    `benchmarks/history_simulation.py`.
    """
    series, rng = np.asarray(values, dtype=np.float64), np.random.default_rng(seed)
    found = dict[int, float]()
    while models := _models(series.size, tuple(sorted(found)), shortest):
        ratio, place, innovations = _best_step(series, models)
        p = _p(ratio, innovations, models, rng, significance, simulations)
        if p > significance:
            break
        found[place] = p
    bounds = [0, *sorted(found), series.size]
    means = [float(series[start:end].mean()) for start, end in itertools.pairwise(bounds)] if found else []
    return [ChangePoint(place, found[place], *around) for place, around in zip(sorted(found), itertools.pairwise(means), strict=True)]


class _Fit(NamedTuple):
    """The best fits, with a value for each case."""

    drifting: _Values
    """The logarithm of the likelihood without a further step, up to what is the same in all models."""
    stepping: _Values
    """The logarithm of the likelihood with one further step, or with two, for which there is a penalty."""
    first: npt.NDArray[np.int64]
    """The step that fits best, as an index of `_Model.steps`."""
    second: npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class _Model:
    """Known steps and one more, for one correlation: the rows are of whitened series, in which the noise is independent, and of unit length."""

    correlation: float
    levels: _Values
    """The levels of the segments between the known steps, orthonormal, [segments, n]."""
    drift: _Values
    """The part of a straight line that is orthogonal to the levels, [n]."""
    longest_drift: float
    """The length of the steepest drift."""
    steps: _Values
    """The part of each further step that is orthogonal to the levels, [places, n]."""
    overlaps: _Values
    """The inner products of the steps, [places, places]."""
    scales: _Values
    """The factor by which the square of a second step grows when it is scaled to unit length again; 0 where two steps are too close."""
    places: tuple[int, ...]

    def fit(self, series: _Values) -> "_Fit":
        """Fit the models to series of shape [cases, n]."""
        left = _whitened(series, self.correlation)
        left = left - left @ self.levels.T @ self.levels
        squares, drift, steps = (left**2).sum(-1), np.abs(left @ self.drift), left @ self.steps.T
        drifting = squares - drift**2 + np.maximum(drift - self.longest_drift, 0.0) ** 2
        first = np.abs(steps).argmax(-1)
        largest = np.take_along_axis(steps, first[:, None], -1)
        overlaps = self.overlaps[first]
        further = (steps - overlaps * largest) ** 2 * self.scales[first]
        one = squares - largest[:, 0] ** 2
        two = self._log_likelihood(one - further.max(-1)) - 2 * math.log(self.drift.size)
        return _Fit(self._log_likelihood(drifting), np.maximum(self._log_likelihood(one), two), first, further.argmax(-1))

    def _log_likelihood(self, squares: _Values) -> _Values:
        size = self.drift.size
        return np.asarray(0.5 * math.log(1 - self.correlation**2) - size / 2 * np.log(np.maximum(squares, size * _DIGITS**2)))


@functools.lru_cache(maxsize=3)  # 60 MB each for 500 values
def _models(size: int, known: tuple[int, ...], shortest: int) -> tuple[_Model, ...]:
    """The models of one more step than the known ones, one for each correlation; empty if there is no place for it."""
    bounds, index = [0, *known, size], np.arange(size)
    places = [place for start, end in itertools.pairwise(bounds) for place in range(start + shortest, end - shortest + 1)]
    are_apart, models = np.abs(np.subtract.outer(places, places)) >= shortest, []
    for correlation in _CORRELATIONS if places else ():
        segments = np.array([(start <= index) & (index < end) for start, end in itertools.pairwise(bounds)], float)
        levels = np.linalg.qr(_whitened(segments, correlation).T)[0].T
        rows = _whitened(np.array([DRIFT * index, *(index >= place for place in places)], float), correlation)
        rows = rows - rows @ levels.T @ levels
        lengths = np.linalg.norm(rows, axis=-1)
        rows = rows / lengths[:, None]
        overlaps = rows[1:] @ rows[1:].T
        scales = np.where(are_apart, 1 / np.maximum(1 - overlaps**2, _DIGITS), 0.0)
        models.append(_Model(correlation, levels, rows[0], float(lengths[0]), rows[1:], overlaps, scales, tuple(places)))
    return tuple(models)


def _whitened(series: _Values, correlation: float) -> _Values:
    """The innovations of AR(1) series along the last axis, the first one with their variance."""
    start = math.sqrt(1 - correlation**2) * series[..., :1]
    return np.concatenate([start, series[..., 1:] - correlation * series[..., :-1]], axis=-1)


def _best_step(series: _Values, models: Sequence[_Model]) -> tuple[float, int, _Values]:
    """The log-likelihood ratio of a further step, its index, and the innovations that are left, of noise with the correlation `CORRELATION`."""
    fits = [model.fit(series[None]) for model in models]
    model, fit = max(zip(models, fits, strict=True), key=lambda pair: float(pair[1].stepping[0]))
    white = _whitened(series, model.correlation)
    rows = np.linalg.qr(np.concatenate([model.levels, model.steps[fit.first], model.steps[fit.second]]).T)[0].T
    scale = math.sqrt((1 - CORRELATION**2) / (1 - model.correlation**2))
    ratio = float(fit.stepping[0]) - max(float(one.drifting[0]) for one in fits)
    return ratio, model.places[int(fit.first[0])], scale * (white - white @ rows.T @ rows)


def _p(
    ratio: float, innovations: _Values, models: Sequence[_Model], rng: np.random.Generator, significance: float, simulations: int
) -> float:
    """The share of simulated series without a further step whose ratio is at least as large; 1 as soon as it is above the significance."""
    at_least, done, most = 0, 0, significance * (simulations + 1) - 1
    while done < simulations:
        number = min(max(done, _FIRST_SIMULATIONS), simulations - done)
        drawn = rng.permuted(np.tile(innovations, (number, 1)), axis=-1)
        done += number
        ratios = _log_ratios(_correlated(drawn + _DIGITS * rng.standard_normal(drawn.shape)), models)
        at_least += int((ratios >= ratio).sum())
        if at_least > most:
            return 1.0
    return (at_least + 1) / (simulations + 1)


def _log_ratios(series: _Values, models: Sequence[_Model]) -> _Values:
    """The log-likelihood ratios of a further step, of series of shape [cases, n]."""
    fits = [model.fit(series) for model in models]
    return np.asarray(np.max([fit.stepping for fit in fits], axis=0) - np.max([fit.drifting for fit in fits], axis=0))


def _correlated(innovations: _Values) -> _Values:
    """AR(1) series of the correlation `CORRELATION` with these innovations: `_whitened` gives them back."""
    series = innovations.copy()
    series[:, 0] /= math.sqrt(1 - CORRELATION**2)
    for index in range(1, series.shape[-1]):
        series[:, index] += CORRELATION * series[:, index - 1]
    return series

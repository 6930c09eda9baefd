"""A forecast for configurations that were not measured, from those that were: a Gaussian process over the values of the keys. Pure.

After C. E. Rasmussen & C. K. I. Williams, *Gaussian Processes for Machine Learning* (2006). The covariance of two configurations is a mean over the keys (each
has an effect of its own) and a product over the keys (they act together); the share of both, and how far an effect reaches along a key, are those with the
highest likelihood. A forecast only chooses what is measured next; no statement rests on it.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
_REACHES, _SHARES_OF_EACH = (0.25, 0.5, 1.0), (0.3, 0.7, 0.95)
_NOISE = 1e-3
"""The variance of a measured level, as a share of the variance between configurations."""
_GAIN = 0.02
"""The smallest difference, as a logarithm, that counts as a gain."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Fit:
    """A process with given parameters, fitted to the measured configurations."""

    likelihood: float
    """The logarithm of the likelihood, without a constant term."""
    reach: float
    share: float
    root: Numbers
    """The Cholesky factor of the covariance of the measured configurations."""
    weights: Numbers
    variance: float


class Forecast:
    """The configurations of a space by number; `ranks` has the order of the values of those keys whose values are numbers."""

    def __init__(self, values: Sequence[Mapping[str, str]], ranks: Mapping[str, Mapping[str, int]]) -> None:
        self._places = [self._places_of(values, key, ranks.get(key)) for key in dict.fromkeys(key for one in values for key in one)]
        self._numbers = np.arange(len(values))

    def gains(self, levels: Mapping[int, float]) -> Numbers:
        """For each configuration, by how much it is expected to be better than the best of `levels`, beyond 2 % (expected improvement).

        `levels` has the logarithm of what each measured one is worth.
        """
        from scipy.special import ndtr  # only now: it takes 0.2 s

        measured, known = np.array(list(levels)), np.array(list(levels.values()))
        mean = known.mean()
        fits = (self._fit(measured, known - mean, reach, share) for reach, share in itertools.product(_REACHES, _SHARES_OF_EACH))
        fit = max(fits, key=lambda one: one.likelihood)
        covariance = self._covariance(self._numbers, measured, fit.reach, fit.share)
        expected = mean + covariance @ fit.weights
        explained = np.square(np.linalg.solve(fit.root, covariance.T)).sum(axis=0)
        error = np.sqrt(np.maximum(fit.variance * (1 - explained), 1e-12))
        above = expected - (known.max() + _GAIN)
        distance = above / error
        density = np.exp(-np.square(distance) / 2) / math.sqrt(2 * math.pi)
        gains: Numbers = above * ndtr(distance) + error * density
        return gains

    def _fit(self, measured: npt.NDArray[np.intp], known: Numbers, reach: float, share: float) -> "_Fit":
        covariance = self._covariance(measured, measured, reach, share) + _NOISE * np.eye(known.size)
        root = np.asarray(np.linalg.cholesky(covariance), np.float64)
        weights: Numbers = np.linalg.solve(root.T, np.linalg.solve(root, known))
        variance = max(float(known @ weights) / known.size, 1e-12)
        likelihood = -0.5 * known.size * math.log(variance) - float(np.log(np.diag(root)).sum())
        return _Fit(likelihood, reach, share, root, weights, variance)

    def _covariance(self, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp], reach: float, share: float) -> Numbers:
        squares = []
        for places in self._places:
            distances = np.abs(places[rows][:, None] - places[columns][None, :])
            squares.append(np.square(np.minimum(distances, 1.0) / reach) / 2)
        each = sum(np.exp(-one) for one in squares) / len(squares)
        together = np.exp(-sum(squares))
        covariance: Numbers = share * each + (1 - share) * together
        return covariance

    @staticmethod
    def _places_of(values: Sequence[Mapping[str, str]], key: str, ranks: Mapping[str, int] | None) -> Numbers:
        """Where each configuration lies along a key: numbers by rank between 0 and 1, and all others, also those without a value, 1 or more apart."""
        if ranks is not None:
            return np.array([ranks[one[key]] / max(len(ranks) - 1, 1) if key in one else -2.0 for one in values])
        labels = {value: float(number) for number, value in enumerate(dict.fromkeys(one.get(key) for one in values))}
        return np.array([labels[one.get(key)] for one in values])

"""A percentile of the response time as a function of the arrival rate: the curve, the spread around it, and where it meets a limit."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.probability import student_t_quantile

_Numbers = npt.NDArray[np.float64]
Model = Callable[[_Numbers], tuple[_Numbers, _Numbers]]
"""Parameters (p) → residuals (n ≥ p) and their derivatives by the parameters (n × p)."""
_INFEASIBLE = 1e9  # in place of residuals that are not finite: worse than any real ones, and MINPACK can compare it


@dataclasses.dataclass(frozen=True, slots=True)
class Minimum:
    """Where the sum of squares is least."""

    parameters: _Numbers
    residuals: _Numbers
    jacobian: _Numbers

    @property
    def sum_of_squares(self) -> float:
        """The sum of the squared residuals."""
        return float(self.residuals @ self.residuals)

    @property
    def unscaled_covariance(self) -> _Numbers:
        """(JᵀJ)⁻¹ (p × p), which times the residual variance is the parameters' covariance; a pseudoinverse without full rank."""
        inverse: _Numbers = np.linalg.pinv(self.jacobian.T @ self.jacobian).astype(np.float64)
        return inverse


def minimise(model: Model, start: _Numbers) -> Minimum:
    """The least sum of squares near `start`, by the Levenberg-Marquardt algorithm (J. J. Moré 1978)."""
    from scipy.optimize import leastsq

    def residuals(parameters: _Numbers) -> _Numbers:
        return np.nan_to_num(model(parameters)[0], nan=_INFEASIBLE, posinf=_INFEASIBLE, neginf=_INFEASIBLE)

    def derivatives(parameters: _Numbers) -> _Numbers:
        return model(parameters)[1]

    parameters, *_ = leastsq(residuals, start.tolist(), (), derivatives, full_output=True, ftol=1e-14, xtol=1e-14, gtol=0.0, maxfev=400)
    return Minimum(parameters, *model(parameters))


FEWEST_RATES = 4
ASSUMED_RUN_SD, ASSUMED_DEGREES = 0.03, 2
"""The assumed standard deviation of a server's speed between restarts, as a share, and the degrees of freedom that it counts for."""
_ROOMS = (0.02, 0.1, 0.4, 1.5, 6.0)  # start values: saturation ÷ highest rate - 1
_NEAREST, _FURTHEST_ROOM, _LEAST = 1e-3, 100.0, 1e-9
_WEIGHT_ROUNDS = 4
_STEEPEST = 50.0


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """The expected result of one measurement at a rate."""

    rate_per_s: float
    value: float
    low: float
    high: float
    confidence: float
    is_extrapolated: bool
    """Whether the rate lies outside the fitted rates."""

    @property
    def half_width(self) -> float:
        """The wider side of the interval, as a share of the value."""
        return max(self.high - self.value, self.value - self.low) / self.value


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations around the curve as shares of the server's speed, between and within runs, with degrees of freedom."""

    run_sd: float
    """The standard deviation between runs."""
    run_degrees: float
    runs: int
    within_sd: float
    """The standard deviation within a run."""
    within_degrees: float


@dataclasses.dataclass(frozen=True, slots=True)
class RateCurve:
    """q(λ) = base + rise·λ/(saturation - λ), with its uncertainty."""

    base: float
    """The value at low rates."""
    rise: float
    """How strongly the value rises towards saturation."""
    saturation_per_s: float
    """The rate at which the curve has its pole."""
    lowest_rate_per_s: float
    highest_rate_per_s: float
    spread: Spread
    covariance: tuple[tuple[float, ...], ...]
    """The covariance of ln base, ln rise and ln(saturation/highest - 1), for a residual variance of 1 per repetition."""

    def value(self, rate_per_s: float) -> float:
        """The value of the curve; infinite at and above saturation."""
        if rate_per_s >= self.saturation_per_s:
            return math.inf
        return self.base + self.rise * rate_per_s / (self.saturation_per_s - rate_per_s)

    def sensitivity(self, rate_per_s: float) -> float:
        """1 + d ln q / d ln λ: the percentage by which q grows if the server becomes one percent slower.

        A server slower by the factor f has q_f(λ) = f·q(f·λ), since both its times and its load grow.
        """
        slope = self.rise * self.saturation_per_s / (self.saturation_per_s - rate_per_s) ** 2
        return min(1 + rate_per_s * slope / self.value(rate_per_s), _STEEPEST)

    def predict(self, rate_per_s: float, confidence: float = 0.9) -> Prediction:
        """The expected result of a new run at a rate, with repetitions as long as those measured.

        ln q ± t·√(s²(1 + d ln q/d ln λ)² + variance of the curve), s² = run² (1 + 1/R) + within², with the degrees of freedom of F. E.
        Satterthwaite (1946). The variance between R runs combines the measured and an assumed one; see `fit_rate_curve`.
        Raises ValueError at and above saturation, where times grow without bound.
        """
        if not 0 < rate_per_s < self.saturation_per_s:
            raise ValueError(f"the curve is defined below {self.saturation_per_s:.4g}/s, found {rate_per_s:g}/s")
        spread, sensitivity = self.spread, self.sensitivity(rate_per_s)
        run = spread.run_sd**2 * (1 + 1 / spread.runs)
        fitted = spread.within_sd**2 * self._leverage(rate_per_s) / sensitivity**2
        within = spread.within_sd**2 + fitted
        degrees = (run + within) ** 2 / (run**2 / spread.run_degrees + within**2 / spread.within_degrees) if run + within else 1.0
        reach = student_t_quantile((1 + confidence) / 2, max(1, math.floor(degrees))) * sensitivity * math.sqrt(run + within)
        value = self.value(rate_per_s)
        return Prediction(
            rate_per_s, value, value * math.exp(-reach), value * math.exp(min(reach, 50.0)), confidence,
            not self.lowest_rate_per_s <= rate_per_s <= self.highest_rate_per_s,
        )  # fmt: skip

    def _leverage(self, rate_per_s: float) -> float:
        gradient = _gradient(np.array([rate_per_s]), self.base, self.rise, self.saturation_per_s, self.highest_rate_per_s)[0]
        return float(gradient @ np.asarray(self.covariance) @ gradient)


@dataclasses.dataclass(frozen=True, slots=True)
class Repetition:
    """A percentile of one repetition; `run` numbers the restarts of the server."""

    rate_per_s: float
    value: float
    run: int


def fit_rate_curve(rates_per_s: Sequence[float], values: Sequence[float], repetitions: Sequence[Repetition]) -> RateCurve:
    """Fits the curve to the pooled value at each rate; the spread is that of the repetitions around the curve.

    The form is exact for any percentile of M/M/1 and for the mean of M/G/1, and close for other queues that saturate. It is
    fitted by least squares of ln q with weights 1/(1 + d ln q/d ln λ)², since most differences between measurements come from the
    server's speed and from chance in its queue, and both scale with that factor. Pooled values are fitted because the percentile
    of a short window of a busy queue is more often too low than too high.

    The variance between runs, s_R², is that of their mean standardised residuals, with R-1 degrees of freedom, less what the variance
    within runs contributes to it. It is combined with an assumed standard deviation of 3 % (`ASSUMED_RUN_SD`) with 2 degrees of freedom:
    s² = (2·0.03² + (R-1)·s_R²)/(2 + R-1), the scaled inverse χ² rule. So a few similar restarts do not suggest that restarts never
    differ. The variance within runs is that of the residuals, which includes the misfit of the curve. Raises ValueError for fewer than
    4 rates, without repetitions, and for values of 0 or less.
    """
    rate, value = np.asarray(rates_per_s, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if np.unique(rate).size < FEWEST_RATES:
        raise ValueError(f"a curve needs at least {FEWEST_RATES} rates, found {np.unique(rate).size}")
    if not repetitions or min(rate.min(), value.min(), *(min(one.rate_per_s, one.value) for one in repetitions)) <= 0:
        raise ValueError("a curve needs repetitions, and rates and times above zero")
    minimum = _fit(rate, value, _starts(value))
    return _curve(minimum, rate, repetitions)


def _starts(value: _Numbers) -> list[_Numbers]:
    lowest, highest = float(value.min()), float(value.max())
    return [np.log([0.9 * lowest, max(highest - 0.9 * lowest, 0.01 * lowest) * room, room]) for room in _ROOMS]


def _fit(rate: _Numbers, value: _Numbers, starts: Sequence[_Numbers]) -> Minimum:
    """The best fit; its weights depend on the fit, so it is repeated a few times."""
    highest = float(rate.max())
    best = min((minimise(_model(rate, value, np.ones_like(rate)), start) for start in starts), key=lambda one: one.sum_of_squares)
    for _ in range(_WEIGHT_ROUNDS):
        base, rise, saturation = _curve_parameters(best.parameters, highest)
        slope = rise * saturation / (saturation - rate) ** 2
        scale = np.minimum(1 + rate * slope / (base + rise * rate / (saturation - rate)), _STEEPEST)
        best = minimise(_model(rate, value, scale), best.parameters)
    return best


def _model(rate: _Numbers, value: _Numbers, scale: _Numbers) -> Model:
    """Residuals of ln q, divided by `scale`."""
    highest, logs = float(rate.max()), np.log(value)

    def model(parameters: _Numbers) -> tuple[_Numbers, _Numbers]:
        base, rise, saturation = _curve_parameters(parameters, highest)
        curve = base + rise * rate / (saturation - rate)
        return (np.log(curve) - logs) / scale, _gradient(rate, base, rise, saturation, highest) / scale[:, None]

    return model


def _curve_parameters(parameters: _Numbers, highest: float) -> tuple[float, float, float]:
    base, rise, room = (math.exp(min(max(one, -60.0), 60.0)) for one in parameters.tolist())
    return base, max(rise, _LEAST * base), highest * (1 + min(max(room, _NEAREST), _FURTHEST_ROOM))


def _gradient(rate: _Numbers, base: float, rise: float, saturation: float, highest: float) -> _Numbers:
    """The derivatives of ln q by ln base, ln rise and ln room, one row per rate."""
    share = rate / (saturation - rate)
    curve = base + rise * share
    by_room = -rise * rate / (saturation - rate) ** 2 * (saturation - highest)
    return np.column_stack([base / curve, rise * share / curve, by_room / curve])


def _curve(minimum: Minimum, rate: _Numbers, repetitions: Sequence[Repetition]) -> RateCurve:
    highest = float(rate.max())
    base, rise, saturation = _curve_parameters(minimum.parameters, highest)
    bare = RateCurve(base, rise, saturation, float(rate.min()), highest, Spread(0.0, 1, 1, 0.0, 1), ())
    residuals = np.array([math.log(one.value / bare.value(one.rate_per_s)) / bare.sensitivity(one.rate_per_s) for one in repetitions])
    names, places = np.unique([one.run for one in repetitions], return_inverse=True)
    means = np.array([residuals[places == place].mean() for place in range(names.size)])
    inner = residuals - means[places] + means.mean()
    inner_degrees = max(residuals.size - names.size - 2, 1)
    within = math.sqrt(float(inner @ inner) / inner_degrees)
    of_means = within**2 * float(np.mean(1 / np.bincount(places)))
    between = max(float(means.var(ddof=1)) - of_means, 0.0) if names.size > 1 else 0.0
    degrees = ASSUMED_DEGREES + names.size - 1
    run_variance = (ASSUMED_DEGREES * ASSUMED_RUN_SD**2 + (names.size - 1) * between) / degrees
    return dataclasses.replace(
        bare,
        spread=Spread(math.sqrt(run_variance), degrees, names.size, within, inner_degrees),
        covariance=tuple(tuple(float(one) * rate.size / residuals.size for one in row) for row in minimum.unscaled_covariance),
    )

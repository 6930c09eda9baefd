"""The universal scalability law: throughput as a function of concurrency, and the concurrency at which it peaks."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.plan.rate_curve import Minimum, minimise
from perfkit.stats.probability import student_t_quantile
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import format_percent

_Numbers = npt.NDArray[np.float64]
FEWEST_POINTS, FEWEST_PAST_PEAK, FURTHEST, CONFIDENCE = 8, 2, 1.5, 0.95
_PEAKS = np.geomspace(1 / 1024, 64, 513)  # × the largest concurrency: candidates for the peak, for its profile
_MISFIT_ALLOWED, _MISFIT_SIGNIFICANCE = 0.05, 0.05
_NEARBY = np.exp(np.linspace(-0.3, 0.3, 61))  # × the estimated peak: more candidates


@dataclasses.dataclass(frozen=True, slots=True)
class UslPeak:
    """The concurrency N* of the highest throughput, with its profile interval, which is not symmetric."""

    concurrency: float
    low: float
    high: float
    throughput_per_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class UslFit:
    """The fitted law X(N) = λN / (1 + σ(N-1) + κN(N-1))."""

    lone_rate_per_s: Estimate
    """λ: the throughput with one request in flight."""
    contention: Estimate
    """σ: the serial share of the work."""
    coherency: Estimate
    """κ: the cost of coordination per pair of requests in flight."""
    confidence: float
    points: int
    residual_sd: float
    """The standard deviation of the residuals of ln X."""
    largest_concurrency: float
    peak: UslPeak | None
    """The concurrency of the highest throughput; null if it lies beyond what was measured."""
    peak_sentence: str
    """The peak, or why there is none."""

    def throughput_per_s(self, concurrency: float) -> float:
        """The throughput X at a concurrency."""
        n, sigma, kappa = concurrency, self.contention.value, self.coherency.value
        return self.lone_rate_per_s.value * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))

    def is_extrapolated(self, concurrency: float) -> bool:
        """Whether a concurrency is above 1.5 times the largest measured: whether the law holds there is unknown."""
        return concurrency > FURTHEST * self.largest_concurrency

    @property
    def knee(self) -> float | None:
        """The concurrency with the highest ratio of throughput to response time, X/R = X²/N; None if it is infinite (σ = κ = 0).

        N_k = [-(σ-κ) + √((σ-κ)² + 12κ(1-σ))] / (6κ), the root of d(X²/N)/dN; (1-σ)/σ for κ = 0. It is 1 for σ + κ >= 1/2, where
        X²/N never rises.
        """
        sigma, kappa = self.contention.value, self.coherency.value
        if sigma + kappa >= 1 / 2:
            return 1.0
        if kappa <= 0:
            return (1 - sigma) / sigma if sigma > 0 else None
        rise = sigma - kappa
        return (-rise + math.sqrt(rise * rise + 12 * kappa * (1 - sigma))) / (6 * kappa)


@dataclasses.dataclass(frozen=True, slots=True)
class UslRefusal:
    """The reason why the law was not fitted."""

    sentence: str


def fit_usl(
    concurrencies: Sequence[float] | _Numbers,
    throughputs_per_s: Sequence[float] | _Numbers,
) -> UslFit | UslRefusal:
    """Fits the law to the points of a closed loop, several per concurrency if wanted.

    Source: N. J. Gunther, *Guerrilla Capacity Planning* (2007), chapter 4. Nonlinear least squares of ln X, since the
    noise is a share of the throughput, with σ, κ ≥ 0. Intervals use Student's t with n-3 degrees of freedom; that of N* =
    √((1-σ)/κ) is the set of peaks whose best fit the F test does not reject (a profile; D. M. Bates & D. G. Watts 1988, chapter 6).
    Assumptions: a closed loop without think time; independent noise of equal relative size.

    The law is rejected if two conditions hold: the mean throughputs at the concurrencies deviate from it by more than 5 % (root mean
    square), and the F test for lack of fit, at 5 %, finds that the scatter of the repetitions does not explain this (N. R. Draper &
    H. Smith, *Applied Regression Analysis*, section 2.1). Without repetitions it is not rejected.

    The fit is refused for fewer than 8 points or 4 concurrencies, and if σ is significantly below 0, as with batching, where
    throughput grows faster than the requests in flight. The peak is refused if fewer than 2 points are past it, or its
    interval is open. Raises ValueError for values of 0 or less.
    """
    n, x = np.asarray(concurrencies, dtype=np.float64), np.asarray(throughputs_per_s, dtype=np.float64)
    if n.shape != x.shape or (n.size and (n.min() <= 0 or x.min() <= 0)):
        raise ValueError("concurrencies and throughputs must be pairs of values above zero")
    if n.size < FEWEST_POINTS or np.unique(n).size < 4:
        return UslRefusal(
            f"The universal scalability law needs at least {FEWEST_POINTS} points of a closed loop at 4 or more concurrencies; there are {n.size}."
        )
    minimum = _fit(n, x, (True, True))
    degrees = n.size - 3
    t = student_t_quantile((1 + CONFIDENCE) / 2, degrees)
    spread = np.sqrt(np.maximum(np.diag(minimum.unscaled_covariance), 0) * minimum.sum_of_squares / degrees)  # standard errors
    if minimum.parameters[1] + t * spread[1] < 0:
        return UslRefusal(
            "The universal scalability law is inapplicable: σ is below zero "
            f"({minimum.parameters[1]:.3g}, at most {minimum.parameters[1] + t * spread[1]:.3g}), so throughput grows faster than the requests in flight, as with batching."
        )
    if min(minimum.parameters[1:]) < 0:
        # the best fit with σ or κ fixed at 0 that keeps both at 0 or above
        edges = [_fit(n, x, free) for free in ((True, False), (False, True), (False, False))]
        minimum = min((one for one in edges if min(one.parameters[1:]) >= 0), key=lambda one: one.sum_of_squares)
    if (missed := _lack_of_fit(n, x, minimum)) > _MISFIT_ALLOWED:
        return UslRefusal(
            f"Model rejected: the universal scalability law misses the mean throughputs by {format_percent(missed)} (allowed {format_percent(_MISFIT_ALLOWED)}), beyond the scatter of the repetitions."
        )
    rate, sigma, kappa = (float(value) for value in minimum.parameters)
    residual_sd = math.sqrt(minimum.sum_of_squares / degrees)
    low, high = minimum.parameters - t * spread, minimum.parameters + t * spread
    peak, sentence = _peak(n, x, minimum, t, residual_sd)
    return UslFit(
        lone_rate_per_s=Estimate(math.exp(rate), math.exp(low[0]), math.exp(high[0])),
        contention=Estimate(sigma, max(float(low[1]), 0.0), float(high[1])),
        coherency=Estimate(kappa, max(float(low[2]), 0.0), float(high[2])),
        confidence=CONFIDENCE,
        points=n.size,
        residual_sd=residual_sd,
        largest_concurrency=float(n.max()),
        peak=peak,
        peak_sentence=sentence,
    )


def _lack_of_fit(n: _Numbers, x: _Numbers, minimum: Minimum) -> float:
    """The root mean square deviation of the mean throughputs from the law, as a share; 0 if the scatter of the repetitions explains it."""
    from scipy.special import fdtrc

    levels, places = np.unique(n, return_inverse=True)
    within_degrees, beyond_degrees = n.size - levels.size, levels.size - 3
    if min(within_degrees, beyond_degrees) < 1:
        return 0.0
    logs = np.log(x)
    within = float(((logs - (np.bincount(places, logs) / np.bincount(places))[places]) ** 2).sum())
    beyond = max(minimum.sum_of_squares - within, 0.0)
    if within and fdtrc(beyond_degrees, within_degrees, beyond / beyond_degrees / (within / within_degrees)) > _MISFIT_SIGNIFICANCE:
        return 0.0
    return math.sqrt(beyond / n.size)


def _fit(n: _Numbers, x: _Numbers, free: tuple[bool, bool]) -> Minimum:
    """Fits ln λ, σ and κ; of σ and κ, those that are not `free` are 0."""
    columns = np.array([True, *free])
    # N/X = (1 + σ(N-1) + κN(N-1)) / λ is linear: its solution is a good start
    design = np.column_stack([np.ones_like(n), n - 1, n * (n - 1)])[:, columns]
    linear, *_ = np.linalg.lstsq(design * (x / n)[:, None], np.ones_like(n), rcond=None)
    start = np.zeros(3)
    start[0] = math.log(x[np.argmin(n)] / n.min())
    if linear[0] > 0:
        start[0] = -math.log(linear[0])
        start[columns] = [start[0], *linear[1:] / linear[0]]

    def model(free_parameters: _Numbers) -> tuple[_Numbers, _Numbers]:
        parameters = np.zeros(3)
        parameters[columns] = free_parameters
        load = 1 + parameters[1] * (n - 1) + parameters[2] * n * (n - 1)
        if load.min() <= 0:
            return np.full_like(n, np.nan), np.zeros((n.size, int(columns.sum())))
        jacobian = np.column_stack([-np.ones_like(n), (n - 1) / load, n * (n - 1) / load])
        return np.log(x / n) - parameters[0] + np.log(load), jacobian[:, columns]

    minimum = minimise(model, start[columns])
    parameters = np.zeros(3)
    parameters[columns] = minimum.parameters
    return Minimum(parameters, minimum.residuals, minimum.jacobian)


def _peak(n: _Numbers, x: _Numbers, minimum: Minimum, t: float, residual_sd: float) -> tuple[UslPeak | None, str]:
    rate, sigma, kappa = (float(value) for value in minimum.parameters)
    if sigma >= 1:
        return None, f"There is no peak: the throughput does not rise with the requests in flight (σ = {sigma:.3g})."
    largest = float(n.max())
    limit = minimum.sum_of_squares + (t * residual_sd) ** 2
    peaks = _PEAKS * largest
    peaks = peaks[peaks >= 1]
    estimate = math.sqrt((1 - sigma) / kappa) if kappa > 0 else math.inf
    if math.isfinite(estimate):
        peaks = np.unique(np.concatenate([peaks, estimate * _NEARBY]))
    low, high = _ends(peaks, _profile(n, x, peaks) - limit, estimate)
    is_open = not math.isfinite(high)
    past = int(np.count_nonzero(n > estimate))
    if is_open or past < FEWEST_PAST_PEAK:
        bound = low if math.isfinite(low) else largest
        why = "its interval is open above"
        if past < FEWEST_PAST_PEAK:
            why = f"{past} of the points are past the estimated peak, and {FEWEST_PAST_PEAK} are needed"
        return None, f"Peak not observed, N* > {bound:.3g}: {why}. Measure with more requests in flight."
    throughput = math.exp(float(rate)) * estimate / (1 + sigma * (estimate - 1) + kappa * estimate * (estimate - 1))
    return UslPeak(estimate, low, high, throughput), (
        f"Throughput peaks at {throughput:,.4g}/s with {estimate:.3g} requests in flight (95 % interval {low:.3g} to {high:.3g})."
    )


def _ends(peaks: _Numbers, excess: _Numbers, estimate: float) -> tuple[float, float]:
    """Where the profile crosses its limit below and above the estimate, interpolated; infinite if it does not cross above."""
    inside = np.flatnonzero(excess <= 0)
    if not inside.size:
        return estimate, estimate
    first, last = int(inside[0]), int(inside[-1])

    def crossing(outer: int, inner: int) -> float:
        share = excess[inner] / (excess[inner] - excess[outer])
        return float(np.exp(np.log(peaks[inner]) + share * (np.log(peaks[outer]) - np.log(peaks[inner]))))

    low = crossing(first - 1, first) if first else float(peaks[0])
    high = crossing(last + 1, last) if last + 1 < peaks.size else math.inf
    return min(low, estimate), max(high, estimate)


def _profile(n: _Numbers, x: _Numbers, peaks: _Numbers) -> _Numbers:
    """The smallest sum of squares with the peak fixed at each of `peaks`, for σ in [0, 1)."""
    pairs = (n * (n - 1))[None, :] / (peaks * peaks)[:, None]
    slope = (n - 1)[None, :] - pairs  # derivative of the denominator by σ, with κ = (1-σ)/N*²
    sigma, logs = np.full(peaks.size, 0.05), np.log(x / n)[None, :]

    def residuals(load: _Numbers) -> _Numbers:
        found: _Numbers = logs + np.log(load)
        found -= found.mean(axis=1, keepdims=True)  # ln λ is their mean
        return found

    for _ in range(25):
        load = 1 + pairs + sigma[:, None] * slope
        by_sigma = slope / load
        by_sigma -= by_sigma.mean(axis=1, keepdims=True)
        step = (residuals(load) * by_sigma).sum(axis=1) / np.maximum((by_sigma * by_sigma).sum(axis=1), 1e-300)
        sigma = np.clip(sigma - step, 0.0, 0.999)
    totals: _Numbers = (residuals(1 + pairs + sigma[:, None] * slope) ** 2).sum(axis=1)
    return totals

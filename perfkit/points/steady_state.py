"""Whether a window was in steady state: how much of its start is warm-up, and whether the rest drifts."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from perfkit.stats.autocorrelation import autocorrelation_time, first_order_time
from perfkit.stats.probability import student_t_quantile

DRIFT_MARGIN, _CONFIDENCE = 0.05, 0.95
_STEEPEST = 10.0
_MEAN_OF, _FEWEST_MEANS = 5, 4
_FREE_SHARE = 1 / 10
LONGEST_SHARE = 1 / 3
"""The largest share of a series that counts as its warm-up."""
_TRUNCATION_SIGNIFICANCE = 0.01
_DRIFT_BATCHES = 20
_ROUNDING = 1e-12

Verdict = Literal["steady", "not_steady", "undetermined"]
Series = Sequence[float] | npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Truncation:
    """The number of intervals at the start of a series that are warm-up.

    `candidate` is the result of MSER-5, and `intervals` is the number to cut off. `reason` is "found" if both agree, or a shorter
    cut suffices; "insignificant" if the candidate is long but not significant, so nothing is cut; "too_long" if a
    significant warm-up is longer than a third of the series, so nothing is cut, and a longer measurement is needed;
    "too_short" for a series of fewer than 20 intervals.
    """

    candidate: int
    intervals: int
    reason: Literal["found", "insignificant", "too_long", "too_short"]


@dataclasses.dataclass(frozen=True, slots=True)
class Drift:
    """The change over the whole series as a share of its level, with a confidence interval whose ends may be infinite."""

    total: float
    low: float
    high: float
    margin: float = DRIFT_MARGIN

    @property
    def is_steady(self) -> bool:
        """Whether the series does not drift by more than the margin: the whole interval is within it."""
        return -self.margin <= self.low and self.high <= self.margin

    @property
    def is_drifting(self) -> bool:
        """Whether the series drifts: by more than the margin, and the interval excludes 0."""
        return abs(self.total) > self.margin and (self.low > 0 or self.high < 0)


@dataclasses.dataclass(frozen=True, slots=True)
class SteadyState:
    """The verdict over several series of one window; `undetermined` if noise may hide drifts as large as the margin."""

    verdict: Verdict
    warm_up_intervals: int
    """The longest truncation of the series, to be cut off all of them."""
    truncations: Mapping[str, Truncation]
    reason: str


def mser5(series: Series, significance: float = _TRUNCATION_SIGNIFICANCE) -> Truncation:
    """MSER-5's truncation of an interval series, guarded by a test for initialization bias.

    MSER-5: the Z are means of 5 intervals (the last n mod 5 intervals are left out), and d* is the d in 0 … n/2 with the
    smallest Σ_{i>d}(Z_i - Z̄_d)²/(n-d)²; it is rejected if d* > n/3, where n is the number of Z. Source: K. P. White, Simulation 69
    (1997). For fewer than 20 intervals nothing is cut, `too_short`.

    Plain MSER-5 cuts more than a tenth off 10 to 46 % of stationary series of 60 to 200 intervals (M/M/1 interval means at
    ρ = 0.8: 30 %), and off 2 to 22 % of those of 600. A candidate above a tenth therefore counts only if the test of L. Schruben,
    H. Singh & L. Tierney, Operations Research 31 (1983), √45 n^{-3/2} Σ_k (1-k/n) k (Ȳ_n - Ȳ_k)/σ, is significant at
    `significance`, two-sided. σ² is the variance of the intervals after the cut, times their autocorrelation time: the larger of the
    two estimates, with the trend removed. The degrees of freedom of t are the effective number of these intervals minus
    one. If d* > n/3, the best cut up to n/3 counts if the test shows no bias after it.

    Assumption: normal interval means whose correlation is far shorter than the window. At a nominal 1 %, simulated false
    truncations above a tenth are 0.3 to 4.4 % for 60 intervals with AR(1) φ up to 0.8 and M/M/1 interval means of 100 requests
    at ρ up to 0.8, 5.6 % at 0.9 of either; up to 3.9 % for 200 intervals in all these cases; up to 9 % for 30 intervals.
    """
    values = np.asarray(series, dtype=np.float64)
    means = _means(values)
    if means.size < _FEWEST_MEANS:
        return Truncation(candidate=0, intervals=0, reason="too_short")
    cut = _least_squared_error(means)
    candidate = cut * _MEAN_OF
    if candidate <= _FREE_SHARE * values.size:
        return Truncation(candidate=candidate, intervals=candidate, reason="found")
    if not _has_initial_bias(values, candidate, significance):
        return Truncation(candidate=candidate, intervals=0, reason="insignificant")
    if cut <= LONGEST_SHARE * means.size:
        return Truncation(candidate=candidate, intervals=candidate, reason="found")
    # noise may have lengthened a real warm-up: the best cut up to a third suffices if no bias is left after it
    shorter = _least_squared_error(means, LONGEST_SHARE) * _MEAN_OF
    rest = values[shorter:]
    if _has_initial_bias(rest, _least_squared_error(_means(rest)) * _MEAN_OF, significance):
        return Truncation(candidate=candidate, intervals=0, reason="too_long")
    return Truncation(candidate=candidate, intervals=shorter, reason="found")


def drift(series: Series, confidence: float = 0.95, margin: float = DRIFT_MARGIN) -> Drift:
    """The total drift, with its interval: the Theil–Sen slope times the length of the series, divided by the median.

    Intervals are first averaged into 20 to 39 batches, counted back from the end. The confidence interval is P. K. Sen's (JASA 63,
    1968), from Kendall's variance n(n-1)(2n+5)/18 of the concordant pairs, times the autocorrelation time of the residuals (S. Yue &
    C. Wang, Water Resources Management 18, 2004). Assumptions: an about linear trend, and correlation far shorter than
    the window. By simulation, the nominal 95 % interval excludes 0 in 2 to 6 % of stationary series of 60 to 200 intervals
    with AR(1) φ up to 0.8 or of M/M/1 at ρ = 0.8, and in up to 9 % with φ = 0.9. An end beyond the outermost slope is infinite, and
    so are both ends for fewer than three batches.
    """
    values = np.asarray(series, dtype=np.float64)
    length = max(1, values.size // _DRIFT_BATCHES)
    batches = values[values.size % length :].reshape(-1, length).mean(axis=1)
    count = batches.size
    if count < 3:
        return Drift(total=0.0, low=-math.inf, high=math.inf, margin=margin)
    first, second = np.triu_indices(count, 1)
    slopes = np.sort((batches[second] - batches[first]) / (second - first))
    slope = statistics.median(slopes.tolist())  # not NumPy's median, which loads its masked arrays
    time = _correlation_time(batches)
    spread = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(count * (count - 1) * (2 * count + 5) / 18 * time)
    below, above = math.floor((slopes.size - spread) / 2), math.ceil((slopes.size + spread) / 2)
    level = abs(statistics.median(batches.tolist())) or float(np.abs(batches).mean())
    scale = count / level if level else 0.0
    low = float(slopes[below]) * scale if below >= 0 else -math.inf
    high = float(slopes[above]) * scale if above < slopes.size else math.inf
    return Drift(total=slope * scale, low=low, high=high, margin=margin)


def judge_steady_state(series_by_name: Mapping[str, Series]) -> SteadyState:
    """The verdict over the interval series of a window, such as throughput and mean service time.

    All series have the same intervals, with one value each. The longest warm-up is cut off all of them. `not_steady`: a warm-up does
    not end within a third of the window, or a series then drifts significantly by more than the margin. `steady`: the
    intervals of all drifts are within the margin. `undetermined`: the window is too short or too noisy to tell, which is no evidence
    against the target. Significance levels are divided by the number of series (Bonferroni). Raises ValueError without series, and
    for series of different lengths.
    """
    lengths = {len(series) for series in series_by_name.values()}
    if len(lengths) != 1:
        raise ValueError(f"the series of a window must have the same length, found {sorted(lengths)}")
    number = len(series_by_name)
    truncations = {name: mser5(series, _TRUNCATION_SIGNIFICANCE / number) for name, series in series_by_name.items()}
    cut = max(truncation.intervals for truncation in truncations.values())
    each = 1 - (1 - _CONFIDENCE) / number
    drifts = {name: drift(series[cut:], each) for name, series in series_by_name.items()}
    warming = [name for name, truncation in truncations.items() if truncation.reason == "too_long"]
    drifting = [name for name, measured in drifts.items() if measured.is_drifting]
    unknown = [name for name, measured in drifts.items() if not measured.is_steady]
    verdict: Verdict
    if drifting:
        verdict, first = "not_steady", drifts[drifting[0]]
        reason = describe_drift(drifting[0], first)
    elif warming:
        verdict, reason = "not_steady", f"the warm-up of {_listed(warming)} takes more than a third of the window"
    elif unknown:
        verdict, reason = "undetermined", f"{_listed(unknown)} may drift by more than {DRIFT_MARGIN:.0%}, hidden by noise"
    else:
        verdict, reason = "steady", f"no series drifts by more than {DRIFT_MARGIN:.0%}"
    return SteadyState(verdict=verdict, warm_up_intervals=cut, truncations=truncations, reason=reason)


def describe_drift(name: str, measured: Drift) -> str:
    """A drift in words, without changes that are impossible (below -100 %) or say no more than "steep", since a line fits badly there."""
    total, low, high = (f"{change:+.1%}" if -1 <= change <= _STEEPEST else "" for change in (measured.total, measured.low, measured.high))
    if not total:
        return f"{name} {'rises' if measured.total > 0 else 'falls'} steeply over the window"
    interval = f"{low} to {high}" if low and high else f"{low} or more" if low else f"{high} or less" if high else "by a wide interval"
    return f"{name} drifts by {total} over the window ({interval})"


def _means(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    number = values.size // _MEAN_OF
    means: npt.NDArray[np.float64] = values[: number * _MEAN_OF].reshape(number, _MEAN_OF).mean(axis=1)
    return means


def _least_squared_error(means: npt.NDArray[np.float64], longest_share: float = 0.5) -> int:
    """MSER's d*; of equals, the first."""
    centred = means - means.mean()  # avoids cancellation in the sums of squares
    left = means.size - np.arange(means.size)
    sums, squares = (np.cumsum(part[::-1])[::-1] for part in (centred, centred * centred))
    errors = (squares - sums * sums / left) / (left * left)
    # for a constant series, rounding must not decide
    errors[errors < 1e-24 * float(np.square(means).max())] = 0.0
    return int(np.argmin(errors[: int(means.size * longest_share) + 1]))


def _has_initial_bias(values: npt.NDArray[np.float64], cut: int, significance: float) -> bool:
    """Schruben, Singh & Tierney's test, with the variance of the values from `cut` on."""
    count, steady = values.size, values[cut:]
    number = np.arange(1, count + 1)
    cusum = float(np.sum((1 - number / count) * (number * values.mean() - np.cumsum(values))))
    time = _correlation_time(steady)
    freedom = max(1, int(steady.size / time) - 1)
    deviation = math.sqrt(float(steady.var(ddof=1)) * time)
    limit = student_t_quantile(1 - significance / 2, freedom) * deviation * math.sqrt(count**3 / 45)
    return abs(cusum) > limit


def _correlation_time(values: npt.NDArray[np.float64]) -> float:
    """The autocorrelation time, at least 1, of the residuals of a parabola: a curved trend must not count as correlated noise."""
    if values.size <= 5:
        return 1.0
    residuals = without_parabola(values)
    if float(np.abs(residuals).max()) <= _ROUNDING * float(np.abs(values).max()):
        return 1.0
    return max(first_order_time(residuals, fitted=3), autocorrelation_time(residuals))


def without_parabola(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The residuals of at least three equidistant values from their least-squares parabola.

    About the middle a constant, the place and its square without its mean are orthogonal, so that each coefficient is a quotient of two sums;
    NumPy's general fit would load 2 MB of LAPACK into a process that needs nothing else of it.
    """
    place = np.linspace(-1, 1, values.size)
    square = place**2 - np.mean(place**2)
    residuals: npt.NDArray[np.float64] = values - values.mean()
    for term in (place, square):
        residuals -= term * (np.sum(term * residuals) / np.sum(term * term))
    return residuals


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)

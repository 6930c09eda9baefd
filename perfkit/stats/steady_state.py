"""Whether a run was steady: how much of its start is warm-up, and whether the rest drifts."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from numpy.polynomial import polynomial

from perfkit.stats.autocorrelation import autocorrelation_time, first_order_time
from perfkit.stats.distributions import student_t_quantile

DRIFT_MARGIN = 0.05
_MEAN_OF, _FEWEST_MEANS = 5, 4
_FREE_SHARE, _LONGEST_SHARE = 1 / 10, 1 / 3
_TRUNCATION_SIGNIFICANCE = 0.01
_DRIFT_BATCHES = 20
_ROUNDING = 1e-12

Verdict = Literal["steady", "not_steady", "undetermined"]
Series = Sequence[float] | npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Truncation:
    """How many intervals at the start of a series are warm-up.

    `candidate` is MSER-5's answer, `intervals` what is to be cut off. `reason`: "found" where they agree; "insignificant"
    where the candidate is long and its evidence is noise, so that nothing is cut; "too_long" where the warm-up is real and
    longer than a third of the series, so that nothing can be saved by cutting: measure longer; "too_short" for a series
    of less than 20 intervals, of which nothing can be said.
    """

    candidate: int
    intervals: int
    reason: Literal["found", "insignificant", "too_long", "too_short"]


@dataclasses.dataclass(frozen=True, slots=True)
class Drift:
    """The change over the whole series as a share of its level, with its confidence interval; ends may be infinite."""

    total: float
    low: float
    high: float
    margin: float = DRIFT_MARGIN

    @property
    def is_steady(self) -> bool:
        """Whether the series is shown not to drift: the whole interval lies within the margin."""
        return -self.margin <= self.low and self.high <= self.margin

    @property
    def is_drifting(self) -> bool:
        """Whether the series is shown to drift: by more than the margin, and the interval excludes no drift at all."""
        return abs(self.total) > self.margin and (self.low > 0 or self.high < 0)


@dataclasses.dataclass(frozen=True, slots=True)
class SteadyState:
    """The verdict over several series of one window; `undetermined` where noise hides drifts of the margin's size."""

    verdict: Verdict
    warm_up_intervals: int
    """The longest of the series' truncations: what is to be cut off all of them."""
    truncations: Mapping[str, Truncation]
    drifts: Mapping[str, Drift]
    """Of what is left behind the warm-up."""
    reason: str

    @property
    def is_steady(self) -> bool:
        """Whether every series is shown to be steady."""
        return self.verdict == "steady"


def mser5(series: Series, significance: float = _TRUNCATION_SIGNIFICANCE) -> Truncation:
    """MSER-5's truncation of an interval series, guarded by a test for initialization bias.

    MSER-5: Z are means of 5 intervals (the last n mod 5 are left out), and d* the d in 0 … n/2 with the least
    Σ_{i>d}(Z_i - Z̄_d)²/(n-d)². Source: K. P. White, Simulation 69 (1997); its rejection where d* > n/3, here of the
    number of Z. Less than 20 intervals: nothing is cut, `too_short`.

    Plain MSER-5 cuts more than a tenth off 10 to 46 % of stationary series of 60 to 200 intervals (M/M/1 interval means at
    ρ = 0.8: 30 %), and 2 to 22 % of those of 600. So a candidate above a tenth counts only where the test of L. Schruben,
    H. Singh & L. Tierney, Operations Research 31 (1983), √45 n^{-3/2} Σ_k (1-k/n) k (Ȳ_n - Ȳ_k)/σ, finds a bias at
    `significance`, two-sided. σ² is the variance of what the candidate keeps times its autocorrelation time, the larger
    of the two estimates, free of trend; t has that part's effective size less one as degrees of freedom. Where d* > n/3,
    the best cut up to n/3 counts if the test finds no bias behind it. Assumption: normal interval means, correlated over
    far less than the window. At the nominal 1 %, the measured rate of false truncations above a tenth is 0.3 to 4.4 % of
    60 intervals with AR(1) φ up to 0.8 and M/M/1 interval means of 100 requests at ρ up to 0.8, 5.6 % at 0.9 of either;
    of 200 intervals up to 3.9 % at all of these; of 30 intervals up to 9 %.
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
    if cut <= _LONGEST_SHARE * means.size:
        return Truncation(candidate=candidate, intervals=candidate, reason="found")
    # the warm-up is real, and noise may have made it long: the best cut up to a third does where it leaves no bias behind
    shorter = _least_squared_error(means, _LONGEST_SHARE) * _MEAN_OF
    rest = values[shorter:]
    if _has_initial_bias(rest, _least_squared_error(_means(rest)) * _MEAN_OF, significance):
        return Truncation(candidate=candidate, intervals=0, reason="too_long")
    return Truncation(candidate=candidate, intervals=shorter, reason="found")


def drift(series: Series, confidence: float = 0.95, margin: float = DRIFT_MARGIN) -> Drift:
    """The total drift: the Theil–Sen slope times the series' length, over the median, with its interval.

    Intervals are first averaged into 20 to 39 batches, from the end back. The confidence interval is P. K. Sen's (JASA 63,
    1968), from Kendall's variance n(n-1)(2n+5)/18 of the concordant pairs, times the autocorrelation time of what a trend
    leaves (S. Yue & C. Wang, Water Resources Management 18, 2004). Assumption: a trend near to straight, and correlation
    over far less than the window. Measured, the nominal 95 % excludes no drift in 2 to 6 % of stationary series of 60 to
    200 intervals with AR(1) φ up to 0.8 or of M/M/1 at ρ = 0.8, and in up to 9 % with φ = 0.9. Where the ranks run out,
    and below three values, an end is infinite.
    """
    values = np.asarray(series, dtype=np.float64)
    length = max(1, values.size // _DRIFT_BATCHES)
    batches = values[values.size % length :].reshape(-1, length).mean(axis=1)
    count = batches.size
    if count < 3:
        return Drift(total=0.0, low=-math.inf, high=math.inf, margin=margin)
    first, second = np.triu_indices(count, 1)
    slopes = np.sort((batches[second] - batches[first]) / (second - first))
    slope = float(np.median(slopes))
    time = _correlation_time(batches)
    spread = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(count * (count - 1) * (2 * count + 5) / 18 * time)
    below, above = math.floor((slopes.size - spread) / 2), math.ceil((slopes.size + spread) / 2)
    level = abs(float(np.median(batches))) or float(np.abs(batches).mean())
    scale = count / level if level else 0.0
    low = float(slopes[below]) * scale if below >= 0 else -math.inf
    high = float(slopes[above]) * scale if above < slopes.size else math.inf
    return Drift(total=slope * scale, low=low, high=high, margin=margin)


def judge_steady_state(series_by_name: Mapping[str, Series], confidence: float = 0.95, margin: float = DRIFT_MARGIN) -> SteadyState:
    """The verdict over a window's interval series, such as throughput, mean service time and requests in flight.

    Each has one value an interval, and all have the same intervals. The longest warm-up is cut off all. `not_steady`:
    a warm-up does not end within a third of the window, or what follows it drifts by more than the margin and that is no
    noise. `steady`: all drifts are shown to lie within the margin. Otherwise `undetermined`: the window is too short or the
    load too noisy to tell, which is no evidence against the target. Significances are divided by the number of series
    (Bonferroni). Raises ValueError for no series, and for series of different lengths.
    """
    lengths = {len(series) for series in series_by_name.values()}
    if len(lengths) != 1:
        raise ValueError(f"the series of one window have one length, found {sorted(lengths)}")
    number = len(series_by_name)
    truncations = {name: mser5(series, _TRUNCATION_SIGNIFICANCE / number) for name, series in series_by_name.items()}
    cut = max(truncation.intervals for truncation in truncations.values())
    each = 1 - (1 - confidence) / number
    drifts = {name: drift(series[cut:], each, margin) for name, series in series_by_name.items()}
    warming = [name for name, truncation in truncations.items() if truncation.reason == "too_long"]
    drifting = [name for name, found in drifts.items() if found.is_drifting]
    unknown = [name for name, found in drifts.items() if not found.is_steady]
    verdict: Verdict
    if drifting:
        found = drifts[drifting[0]]
        verdict, reason = (
            "not_steady",
            f"{drifting[0]} drifts by {found.total:+.1%} over the window ({found.low:+.1%} to {found.high:+.1%})",
        )
    elif warming:
        verdict, reason = "not_steady", f"the warm-up of {_listed(warming)} takes more than a third of the window"
    elif unknown:
        verdict, reason = "undetermined", f"{_listed(unknown)} may drift by more than {margin:.0%}: the noise hides it"
    else:
        verdict, reason = "steady", f"no series drifts by more than {margin:.0%}"
    return SteadyState(verdict=verdict, warm_up_intervals=cut, truncations=truncations, drifts=drifts, reason=reason)


def _means(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    number = values.size // _MEAN_OF
    means: npt.NDArray[np.float64] = values[: number * _MEAN_OF].reshape(number, _MEAN_OF).mean(axis=1)
    return means


def _least_squared_error(means: npt.NDArray[np.float64], longest_share: float = 0.5) -> int:
    """MSER's d*, the first of equals."""
    centred = means - means.mean()  # keeps the sums of squares from cancelling
    left = means.size - np.arange(means.size)
    sums, squares = (np.cumsum(part[::-1])[::-1] for part in (centred, centred * centred))
    errors = (squares - sums * sums / left) / (left * left)
    # rounding must not choose among the zeros of a constant series
    errors[errors < 1e-24 * float(np.square(means).max())] = 0.0
    return int(np.argmin(errors[: int(means.size * longest_share) + 1]))


def _has_initial_bias(values: npt.NDArray[np.float64], cut: int, significance: float) -> bool:
    """Schruben, Singh & Tierney's test, with the variance of the values from `cut` on."""
    count, kept = values.size, values[cut:]
    number = np.arange(1, count + 1)
    cusum = float(np.sum((1 - number / count) * (number * values.mean() - np.cumsum(values))))
    time = _correlation_time(kept)
    freedom = max(1, int(kept.size / time) - 1)
    deviation = math.sqrt(float(kept.var(ddof=1)) * time)
    limit = student_t_quantile(1 - significance / 2, freedom) * deviation * math.sqrt(count**3 / 45)
    return abs(cusum) > limit


def _correlation_time(values: npt.NDArray[np.float64]) -> float:
    """The autocorrelation time, at least 1, of what a parabola leaves: a curved trend is no noise, and must not look like some."""
    place = np.linspace(-1, 1, values.size)
    if values.size <= 5:
        return 1.0
    residuals = values - polynomial.polyval(place, polynomial.polyfit(place, values, 2))
    if float(np.abs(residuals).max()) <= _ROUNDING * float(np.abs(values).max()):
        return 1.0
    return max(first_order_time(residuals, fitted=3), autocorrelation_time(residuals))


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)

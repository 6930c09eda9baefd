"""The rate at which the share of requests beyond a limit reaches the share that the SLO allows, with a confidence interval."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from perfkit.result.search import LimitCount
from perfkit.search.share_curve import (
    LOWEST_CHANGE,
    LOWEST_NEAR,
    NEWTON_STEPS,
    SMALLEST_STEP,
    CountAt,
    ShareCurve,
    Term,
    curve_within,
)
from perfkit.stats.autocorrelation import raised_for_chance
from perfkit.stats.probability import student_t_quantile

_RANGES = ((LOWEST_NEAR, 1.2), (0.5, 1.5))  # of the crossing: further away, the curve is not straight enough
_NEAR_LOGARITHM, _SHORTEST_REACH, _LONGEST_REACH = 1.6, 0.03, 0.25
_FEWEST_POINTS, _FEWEST_NEAR = 3, 4
_FORM_ERROR, _LARGEST_SHIFT = 0.12, 0.03  # how far ln(share) may lie from the curve's form, and how far that may move the crossing
_HIGHEST_CHANGE = 1.0  # the interval is open beyond this share of the crossing
_FIRST_STEP, _STEP_FACTOR, _HALVINGS = 0.004, 1.7, 12
_LEAST_SLOPE, _LARGEST_STEP = 0.2, 5.0
_WINDOW_DEGREES = 2  # the weight of the dispersion within windows, in degrees of freedom


@dataclasses.dataclass(frozen=True, slots=True)
class Crossing:
    """The crossing, its interval, and the fitted curve: share = `floor` + exp(`intercept` + `slope` (rate ÷ `centre_per_s` - 1))."""

    rate_per_s: float
    low_per_s: float
    """0 if the probes give no lower bound."""
    high_per_s: float
    """Infinite if the probes give no upper bound."""
    centre_per_s: float
    floor: float
    """The share beyond the limit at rates far below."""
    intercept: float
    slope: float
    points: int
    effective_beyond: float
    """How many independent requests beyond the limit would determine the curve as well as all points do."""
    dispersion: float
    """The variance of a probe's count beyond the limit divided by its mean, at the crossing; from within windows and between them."""
    window_dispersion: float
    """The dispersion at the crossing from within windows alone."""
    t: float
    """The quantile of Student's distribution that the interval was computed with."""
    requests: int
    """The number of requests in the fitted probes."""
    form_shift: float
    """How far each end was moved outwards for curves of another form, as a share of the crossing; more requests do not lessen it."""

    @property
    def is_bounded(self) -> bool:
        """Whether the interval has both bounds."""
        return self.low_per_s > 0 and math.isfinite(self.high_per_s)

    @property
    def half_width(self) -> float:
        """The wider side of the interval as a share of the crossing."""
        return max(1 - self.low_per_s / self.rate_per_s, self.high_per_s / self.rate_per_s - 1)


def fit_crossing(counts: Sequence[CountAt], centre_per_s: float, confidence: float) -> Crossing | None:
    """The rate at which the share beyond a limit reaches the allowed share; None if no rising curve fits.

    The curve is share = floor + exp(a + b·rate). The floor is the share far below the crossing, where requests are slow without
    any queue. The rest is exact for M/M/1, whose response times exceed t with the probability exp(-(μ-λ)t), and nearly so in heavy traffic
    (J. F. C. Kingman 1962: exponential waits with a rate that falls linearly in λ). A share is unbiased however short its window
    is, unlike a percentile, whose short windows come out too low on a busy queue; so probes of any length add up.

    The curve is fitted by quasi-likelihood for counts (P. McCullagh & J. A. Nelder, *Generalized Linear Models*, chapter 9) to the probes
    near the crossing: those where ln(share) differs by up to 1.6 from its value there, if they are at least four. Requests are not
    independent: the variance of a count is its mean times a dispersion. The dispersion rises with the rate; its rise is fitted to the
    dispersions within the windows. Its level is that within the windows, raised by 2/√n, n the number of independent requests beyond the
    limit, because few of them may show too little by chance; or more if Pearson's χ² between the probes asks for it.

    The interval is a profile interval: the rates at which the best curve through the allowed share has a deviance of at most the least
    one plus t², Student's quantile. Its degrees of freedom are (Σn)²/Σn² - 2, which counts probes by their length, plus two for
    the dispersion within windows. A count that is a lower bound counts only against curves below it. The floor is a third
    parameter, limited by the counts at low rates: the curve is the best of five floors, and the interval covers those of all floors
    that fit. At last both ends are moved outwards, as far as an error of 12 % in the share moves the crossing, for curves of another form.
    """
    unbounded = None
    for lowest, highest in _RANGES:
        curve = curve_within(counts, centre_per_s, lowest, highest, _FEWEST_POINTS)
        if curve is None:
            continue
        reach = min(max(_NEAR_LOGARITHM / curve.slope, _SHORTEST_REACH), _LONGEST_REACH)
        nearer = curve_within(counts, curve.crossing, 1 - reach, 1 + reach, _FEWEST_NEAR)
        for each in (nearer, curve):
            if each is not None:
                found = _with_interval(each, confidence)
                if found.is_bounded:
                    return found
                unbounded = found
    return unbounded


def _through(curve: ShareCurve, root: float, slope: float) -> tuple[float, float]:
    """The least deviance of a curve that reaches the allowed share at `root`, and its slope, searched from `slope` on."""
    points, level = curve.points, curve.level
    for _ in range(NEWTON_STEPS):
        score = weight = 0.0
        for term in points.terms(level - slope * root, slope):
            score += term.gradient * (term.point.x - root)
            weight += term.information * (term.point.x - root) ** 2
        if not weight:
            break
        step = max(min(score / weight, _LARGEST_STEP), -_LARGEST_STEP)
        slope += step
        if abs(step) < 1000 * SMALLEST_STEP:
            break
    slope = max(slope, _LEAST_SLOPE)
    return points.deviance(level - slope * root, slope), slope


def _with_interval(curve: ShareCurve, confidence: float) -> Crossing:
    terms = curve.points.terms(curve.intercept, curve.slope)
    degrees = len(terms) - 2
    information = sum(term.information for term in terms)
    scale = max(_misfit(terms, degrees), raised_for_chance(1.0, information))
    counts = [term.point.counted.count for term in terms]
    long = sum(counts) ** 2 / sum(count * count for count in counts)
    t = student_t_quantile((1 + confidence) / 2, max(math.floor(long) - 2, 0) + _WINDOW_DEGREES)
    allowed = sum(term.deviance for term in terms) + scale * t * t
    possible = [other for other in curve.others if other.points.deviance(other.intercept, other.slope) <= allowed] or [curve]
    lows, highs = ([_furthest(other, allowed, sign) for other in possible] for sign in (-1, 1))
    low = None if None in lows else min(end for end in lows if end is not None)
    high = None if None in highs else max(end for end in highs if end is not None)
    shift = min(_FORM_ERROR / (curve.slope * (1 + curve.root)), _LARGEST_SHIFT)
    return Crossing(
        rate_per_s=curve.crossing,
        low_per_s=0.0 if low is None else curve.centre * (1 + low) * (1 - shift),
        high_per_s=math.inf if high is None else curve.centre * (1 + high) * (1 + shift),
        centre_per_s=curve.centre,
        floor=curve.points.floor,
        intercept=curve.intercept,
        slope=curve.slope,
        points=len(terms),
        effective_beyond=information / scale,
        dispersion=curve.dispersion_at(curve.root) * scale,
        window_dispersion=curve.dispersion_at(curve.root),
        t=t,
        requests=sum(counts),
        form_shift=shift,
    )


def _misfit(terms: Sequence[Term], degrees: int) -> float:
    """Pearson's χ² per degree of freedom, with that within windows; each probe counts by the inverse of its term's variance.

    A term has the variance 2 + 3/n if n clusters of exponentially distributed sizes are expected: a short probe far below the crossing that has one
    by chance would outweigh all others.
    """
    clusters = [term.mean * term.point.weight for term in terms]
    weights = [number / (number + 1.5) for number in clusters]
    pearson = sum(weight * term.pearson for weight, term in zip(weights, terms, strict=True))
    return (pearson + _WINDOW_DEGREES) / (sum(weights) * degrees / len(terms) + _WINDOW_DEGREES)


def _furthest(curve: ShareCurve, allowed: float, sign: int) -> float | None:
    """The end of the interval below (`sign` -1) or above (1) the crossing, as x of the curve; None if the interval is open there."""
    slope = curve.slope

    def is_possible(root: float) -> bool:
        nonlocal slope
        deviance, slope = _through(curve, root, slope)
        return deviance <= allowed

    inside, step = curve.root, _FIRST_STEP
    while True:
        outside = inside + sign * step
        if not LOWEST_CHANGE <= outside <= _HIGHEST_CHANGE:
            return None
        if not is_possible(outside):
            break
        inside, step = outside, step * _STEP_FACTOR
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if is_possible(middle) else (inside, middle)
    return inside


def dispersion_of(counts: Sequence[CountAt]) -> float:
    """The variance of a count divided by its mean, at least 1: within the windows, or between them if that is more.

    Between them, counts may differ because their rates do; what a curve that rises with the rate explains is no dispersion.
    """
    beyond = sum(one.counted.beyond for one in counts)
    if not beyond:
        return 1.0
    within = sum(one.counted.dispersion * one.counted.beyond for one in counts) / beyond
    return max(within, _between_windows(counts), 1.0)


def _between_windows(counts: Sequence[CountAt]) -> float:
    """Pearson's χ² about the best curve that never falls, per degree of freedom: 0 if the shares rise with the rate."""
    pools: list[list[LimitCount]] = []  # neighbours whose shares fall are pooled (M. Ayer et al., Ann. Math. Statist. 26, 1955)
    for _, same in itertools.groupby(sorted(counts, key=_rate), key=_rate):
        pools.append([one.counted for one in same if one.counted.count])
        while len(pools) > 1 and _share(pools[-2]) >= _share(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    terms = [(one.beyond - share * one.count) ** 2 / (share * one.count) for pool in pools if (share := _share(pool)) > 0 for one in pool]
    return sum(terms) / max(len(counts) - len(pools), 1)


def _rate(one: CountAt) -> float:
    return one.rate_per_s


def _share(pool: Sequence[LimitCount]) -> float:
    count = sum(one.count for one in pool)
    return sum(one.beyond for one in pool) / count if count else 0.0

"""The rate at which the share of requests beyond a limit reaches the share that the SLO allows, with a confidence interval."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from perfkit.stats.distributions import student_t_quantile

HIGHEST_SHARE = 0.15
"""A probe with a larger share beyond the limit is too far from the crossing."""
LOWEST_NEAR = 0.72
"""Probes below this share of the crossing tell how many requests are slow without a queue."""
_RANGES = ((LOWEST_NEAR, 1.2), (0.5, 1.5))  # of the crossing: further away, the curve is not straight enough
_NEAR_LOGARITHM, _SHORTEST_REACH, _LONGEST_REACH = 1.6, 0.03, 0.25
_FEWEST_POINTS, _FEWEST_NEAR, _ROUNDS = 3, 4, 8
_FORM_ERROR, _LARGEST_SHIFT = 0.12, 0.03  # how far ln(share) may lie from the curve's form, and how far that may move the crossing
_HIGHEST_FLOOR = 0.8  # of the allowed share
_FLOOR_ERRORS, _FLOOR_STEPS = 2.0, 4
_LOWEST_CHANGE, _HIGHEST_CHANGE = -0.8, 1.0  # the interval is open beyond these shares of the crossing
_FIRST_STEP, _STEP_FACTOR, _HALVINGS = 0.004, 1.7, 12
_LEAST_SLOPE, _FIRST_SLOPE = 0.2, 5.0
_NEWTON_STEPS, _LARGEST_STEP, _SMALLEST_STEP = 40, 5.0, 1e-6
_LEAST_MEAN = 1e-9
_CHANCE_CORRECTION = 2.0  # ÷ √n: by what share the dispersion of n clusters is raised, as it may be low by chance
_WINDOW_DEGREES = 2  # the weight of the dispersion within windows, in degrees of freedom
_STEEPEST_DISPERSION = 1.5  # its logarithm rises at most this much faster than that of the share
_MOST_CLUSTERS = 20.0


@dataclasses.dataclass(frozen=True, slots=True)
class LimitCount:
    """The requests of one probe that were beyond one limit of the SLO: slower than a percentile's limit, or failed."""

    beyond: int
    count: int
    allowed_share: float
    """The share that may be beyond the limit, such as 0.01 for a p99."""
    dispersion: float = 1.0
    """The variance of `beyond` divided by its mean, from the batches of the probe's window; 1 for independent requests. It is about the
    number of requests that exceed the limit together."""

    @property
    def margin(self) -> float:
        """ln(share beyond the limit ÷ allowed share), finite without requests beyond it; above 0 the limit is missed."""
        return math.log((self.beyond + 0.5) / (self.allowed_share * self.count + 0.5))


@dataclasses.dataclass(frozen=True, slots=True)
class CountAt:
    """The count of one probe, at its rate."""

    rate_per_s: float
    counted: LimitCount
    is_lower_bound: bool = False
    """The share would have grown with the window, because the target was overloaded or drifted: the curve may lie above it."""


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
    dispersions within the windows. Its level is that within the windows, or more if Pearson's χ² between the probes asks for it;
    it is raised by 2/√n, n the number of independent requests beyond the limit, because few of them may show too little by chance.

    The interval is a profile interval: the rates at which the best curve through the allowed share has a deviance of at most the least
    one plus t², Student's quantile. Its degrees of freedom are (Σn)²/Σn² - 2, which counts probes by their length, plus two for
    the dispersion within windows. A count that is a lower bound counts only against curves below it. The floor is a third
    parameter, limited by the counts at low rates: the curve is the best of five floors, and the interval covers those of all floors
    that fit. At last both ends are moved outwards, as far as an error of 12 % in the share moves the crossing, for curves of another form.
    """
    unbounded = None
    for lowest, highest in _RANGES:
        curve = _curve_within(counts, centre_per_s, lowest, highest, _FEWEST_POINTS)
        if curve is None:
            continue
        reach = min(max(_NEAR_LOGARITHM / curve.slope, _SHORTEST_REACH), _LONGEST_REACH)
        nearer = _curve_within(counts, curve.crossing, 1 - reach, 1 + reach, _FEWEST_NEAR)
        for each in (nearer, curve):
            if each is not None:
                found = _with_interval(each, confidence)
                if found.is_bounded:
                    return found
                unbounded = found
    return unbounded


class _Point(NamedTuple):
    """One probe that a curve goes through."""

    x: float
    """Its rate ÷ the centre, less 1."""
    counted: LimitCount
    weight: float
    """1 ÷ the dispersion at this rate."""
    is_lower_bound: bool


class _Term(NamedTuple):
    """One probe beside a curve."""

    point: _Point
    mean: float
    """The expected count."""
    rising: float
    """Its part that rises with the rate."""

    @property
    def gradient(self) -> float:
        """The derivative of the quasi-likelihood by the logarithm of the rising part."""
        return self.point.weight * (self.point.counted.beyond / self.mean - 1) * self.rising

    @property
    def information(self) -> float:
        """The Fisher information: the expected second derivative, negated."""
        return self.point.weight * self.rising**2 / self.mean

    @property
    def deviance(self) -> float:
        beyond = self.point.counted.beyond
        return 2 * self.point.weight * (self.mean - beyond + (beyond * math.log(beyond / self.mean) if beyond else 0.0))

    @property
    def pearson(self) -> float:
        return self.point.weight * (self.point.counted.beyond - self.mean) ** 2 / self.mean


class _Points(NamedTuple):
    """The probes that a curve goes through."""

    points: tuple[_Point, ...]
    floor: float

    def terms(self, intercept: float, slope: float) -> list[_Term]:
        """The probes that the curve is judged by: all but the lower bounds that it lies above."""
        found = []
        for point in self.points:
            count = point.counted.count
            rising = count * math.exp(min(intercept + slope * point.x, 0.0))
            mean = max(rising + self.floor * count, _LEAST_MEAN)
            if not (point.is_lower_bound and mean > point.counted.beyond):
                found.append(_Term(point, mean, rising))
        return found

    def deviance(self, intercept: float, slope: float) -> float:
        """The deviance of a curve, each term divided by its dispersion."""
        return sum(term.deviance for term in self.terms(intercept, slope))


@dataclasses.dataclass(frozen=True, slots=True)
class _Curve:
    points: _Points
    centre: float
    allowed: float
    intercept: float
    slope: float
    dispersion_at: Callable[[float], float]
    others: tuple["_Curve", ...] = ()
    """The curves with all floors that are possible."""

    @property
    def level(self) -> float:
        """The logarithm of the rising part at the allowed share."""
        return math.log(self.allowed - self.points.floor)

    @property
    def root(self) -> float:
        return (self.level - self.intercept) / self.slope

    @property
    def crossing(self) -> float:
        return self.centre * (1 + max(self.root, _LOWEST_CHANGE))


def _curve_within(counts: Sequence[CountAt], centre: float, lowest: float, highest: float, fewest: int) -> _Curve | None:
    """The curve through the probes in a range around its own crossing, fitted again until the crossing no longer moves."""
    found = None
    for _ in range(_ROUNDS):
        near = [
            one
            for one in counts
            if lowest <= one.rate_per_s / centre <= highest and one.counted.beyond <= HIGHEST_SHARE * one.counted.count
        ]
        below = [one for one in counts if one.rate_per_s < LOWEST_NEAR * centre]
        found = _fit(near, _floors(below), centre, fewest)
        if found is None or abs(found.crossing / centre - 1) < 1e-3:
            return found
        centre = found.crossing
    return found


def _floors(below: Sequence[CountAt]) -> tuple[float, ...]:
    """The possible shares beyond the limit at low rates, ascending, from the counts there; 0 alone without such counts.

    They range from one standard error below the share measured at low rates to two above it, because a short window there tells little.
    The counts are added up from the highest of the low rates downwards, and the lowest range on that way counts: at its lowest rates a
    server may be slower again, because it waits for batches to fill.
    """
    if not below:
        return (0.0,)
    ranges, beyond, count = list[tuple[float, float]](), 0, 0
    for one in sorted(below, key=lambda one: -one.rate_per_s):
        beyond, count = beyond + one.counted.beyond, count + one.counted.count
        if count:
            ranges.append((max(beyond - math.sqrt(beyond), 0.0) / count, (beyond + _FLOOR_ERRORS * math.sqrt(beyond + 1)) / count))
    lowest, highest = min((low for low, _ in ranges), default=0.0), min((high for _, high in ranges), default=math.inf)
    lowest, highest = (min(share, _HIGHEST_FLOOR * below[0].counted.allowed_share) for share in (lowest, highest))
    return tuple(lowest + (highest - lowest) * step / _FLOOR_STEPS for step in range(_FLOOR_STEPS + 1))


def _fit(probes: Sequence[CountAt], floors: Sequence[float], centre: float, fewest: int) -> _Curve | None:
    """The curve with the floor that fits best."""
    curves = [curve for floor in floors if (curve := _fit_above(floor, probes, centre, fewest)) is not None]
    if not curves:
        return None
    weights = curves[0].points.points  # one dispersion for all, so that their deviances can be compared
    others = []
    for curve in curves:
        points = _Points(weights, curve.points.floor)
        line = _straight_line(points)
        if line is not None and line[1] > 0:
            others.append(
                dataclasses.replace(curve, points=points, intercept=line[0], slope=line[1], dispersion_at=curves[0].dispersion_at)
            )
    best = min(others, key=lambda curve: curve.points.deviance(curve.intercept, curve.slope), default=curves[0])
    return dataclasses.replace(best, others=tuple(others))


def _fit_above(floor: float, probes: Sequence[CountAt], centre: float, fewest: int) -> _Curve | None:
    if not probes:
        return None
    curve: _Curve | None = None
    dispersion_at: Callable[[float], float] = _no_dispersion
    for _ in range(2):  # first with equal weights, which gives the slope that limits the rise of the dispersion
        at = [one.rate_per_s / centre - 1 for one in probes]
        found = tuple(_Point(x, one.counted, 1 / dispersion_at(x), one.is_lower_bound) for x, one in zip(at, probes, strict=True))
        points = _Points(found, floor)
        line = _straight_line(points)
        if line is None or line[1] <= 0:
            return None
        curve = _Curve(points, centre, probes[0].counted.allowed_share, *line, dispersion_at)
        terms = points.terms(*line)
        if len(terms) < fewest or not any(term.point.counted.beyond for term in terms):
            return None
        dispersion_at = _rising_dispersion([term.point for term in terms], curve.slope)
    return curve


def _no_dispersion(_: float) -> float:
    return 1.0


def _rising_dispersion(points: Sequence[_Point], slope: float) -> Callable[[float], float]:
    """The dispersion as an exponential function of the rate, by least squares of its logarithm, weighted by the clusters of each probe."""
    known = [(point.x, float(point.counted.beyond), max(point.counted.dispersion, 1.0)) for point in points if point.counted.beyond]
    weights = [min(beyond / dispersion, _MOST_CLUSTERS) for _, beyond, dispersion in known]
    mean_x = sum(weight * x for weight, (x, _, _) in zip(weights, known, strict=True)) / sum(weights)
    spread = sum(weight * (x - mean_x) ** 2 for weight, (x, _, _) in zip(weights, known, strict=True))
    product = sum(weight * (x - mean_x) * math.log(dispersion) for weight, (x, _, dispersion) in zip(weights, known, strict=True))
    rise = min(max(product / spread if spread else 0.0, 0.0), _STEEPEST_DISPERSION * slope)
    # the level keeps the variance of all counts together
    variance = sum(dispersion * beyond for _, beyond, dispersion in known)
    level = variance / sum(beyond * math.exp(rise * x) for x, beyond, _ in known)
    return lambda at: max(level * math.exp(rise * at), 1.0)


def _straight_line(points: _Points) -> tuple[float, float] | None:
    """The intercept and slope of the rising part's logarithm, by Fisher's scoring; None if the counts do not determine them."""
    beyond, x = sum(point.counted.beyond for point in points.points), [point.x for point in points.points]
    if not beyond or max(x) - min(x) < 1e-9:
        return None
    share = beyond / sum(point.counted.count for point in points.points)
    intercept, slope = math.log(max(share - points.floor, 0.1 * share)), _FIRST_SLOPE
    for _ in range(_NEWTON_STEPS):
        score = score_x = weight = weight_x = weight_xx = 0.0
        for term in points.terms(intercept, slope):
            at, gradient, information = term.point.x, term.gradient, term.information
            score, score_x = score + gradient, score_x + gradient * at
            weight, weight_x, weight_xx = weight + information, weight_x + information * at, weight_xx + information * at * at
        determinant = weight * weight_xx - weight_x * weight_x
        if determinant <= 1e-12 * weight * weight_xx:
            return None
        by_intercept = (weight_xx * score - weight_x * score_x) / determinant
        by_slope = (weight * score_x - weight_x * score) / determinant
        shrink = max(abs(by_intercept), abs(by_slope) / 10, 1.0)
        intercept, slope = intercept + by_intercept / shrink, slope + by_slope / shrink
        if abs(by_intercept) < _SMALLEST_STEP and abs(by_slope) < 10 * _SMALLEST_STEP:
            break
    return intercept, slope


def _through(curve: _Curve, root: float, slope: float) -> tuple[float, float]:
    """The least deviance of a curve that reaches the allowed share at `root`, and its slope, searched from `slope` on."""
    points, level = curve.points, curve.level
    for _ in range(_NEWTON_STEPS):
        score = weight = 0.0
        for term in points.terms(level - slope * root, slope):
            score += term.gradient * (term.point.x - root)
            weight += term.information * (term.point.x - root) ** 2
        if not weight:
            break
        step = max(min(score / weight, _LARGEST_STEP), -_LARGEST_STEP)
        slope += step
        if abs(step) < 1000 * _SMALLEST_STEP:
            break
    slope = max(slope, _LEAST_SLOPE)
    return points.deviance(level - slope * root, slope), slope


def _with_interval(curve: _Curve, confidence: float) -> Crossing:
    terms = curve.points.terms(curve.intercept, curve.slope)
    degrees = len(terms) - 2
    scale = max((sum(term.pearson for term in terms) + _WINDOW_DEGREES) / (degrees + _WINDOW_DEGREES), 1.0)
    information = sum(term.information for term in terms)
    scale *= 1 + _CHANCE_CORRECTION * math.sqrt(scale / information)
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
    )


def _furthest(curve: _Curve, allowed: float, sign: int) -> float | None:
    """The end of the interval below (`sign` -1) or above (1) the crossing, as x of the curve; None if the interval is open there."""
    slope = curve.slope

    def is_possible(root: float) -> bool:
        nonlocal slope
        deviance, slope = _through(curve, root, slope)
        return deviance <= allowed

    inside, step = curve.root, _FIRST_STEP
    while True:
        outside = inside + sign * step
        if not _LOWEST_CHANGE <= outside <= _HIGHEST_CHANGE:
            return None
        if not is_possible(outside):
            break
        inside, step = outside, step * _STEP_FACTOR
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if is_possible(middle) else (inside, middle)
    return inside

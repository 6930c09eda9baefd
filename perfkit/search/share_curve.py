"""The curve of the share of requests beyond a limit against the rate: counts of probes, and the fit by quasi-likelihood."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from perfkit.result.search import LimitCount

_HIGHEST_SHARE = 0.15
LOWEST_NEAR = 0.72
"""Probes below this share of the crossing tell how many requests are slow without a queue."""
LOWEST_CHANGE = -0.8
"""The lowest possible crossing, as a relative change of the centre."""
NEWTON_STEPS, SMALLEST_STEP = 40, 1e-6
"""The most steps of a fit, and the change that ends it."""
_ROUNDS = 8
_HIGHEST_FLOOR = 0.8  # of the allowed share
_FLOOR_ERRORS, _FLOOR_STEPS = 2.0, 4
_FIRST_SLOPE = 5.0
_LEAST_MEAN = 1e-9
_STEEPEST_DISPERSION = 1.5  # its logarithm rises at most this much faster than that of the share
_MOST_CLUSTERS = 20.0


def is_near(counted: LimitCount) -> bool:
    """Whether the share beyond the limit is not too far above the allowed one, by its logarithm, to tell where they are the same."""
    return counted.beyond <= min(max(0.15, 5 * counted.allowed_share), 0.9) * counted.count


@dataclasses.dataclass(frozen=True, slots=True)
class CountAt:
    """The count of one probe, at its rate."""

    rate_per_s: float
    counted: LimitCount
    is_lower_bound: bool = False
    """The share would have grown with the window, because the target was overloaded or drifted: the curve may lie above it."""


class _Point(NamedTuple):
    """One probe to which a curve is fitted."""

    x: float
    """Its rate ÷ the centre, less 1."""
    counted: LimitCount
    weight: float
    """1 ÷ the dispersion at this rate."""
    is_lower_bound: bool


class Term(NamedTuple):
    """One probe compared with a curve."""

    point: _Point
    mean: float
    """The expected count."""
    rising: float
    """The part of the mean that grows with the rate."""

    @property
    def gradient(self) -> float:
        """The derivative of the quasi-likelihood with respect to the logarithm of the rising part."""
        return self.point.weight * (self.point.counted.beyond / self.mean - 1) * self.rising

    @property
    def information(self) -> float:
        """The Fisher information: the negative of the expected second derivative."""
        return self.point.weight * self.rising**2 / self.mean

    @property
    def deviance(self) -> float:
        """The deviance, divided by the dispersion."""
        beyond = self.point.counted.beyond
        return 2 * self.point.weight * (self.mean - beyond + (beyond * math.log(beyond / self.mean) if beyond else 0.0))

    @property
    def pearson(self) -> float:
        """Its part of Pearson's χ², divided by the dispersion."""
        return self.point.weight * (self.point.counted.beyond - self.mean) ** 2 / self.mean


class _Points(NamedTuple):
    """The probes to which a curve is fitted."""

    points: tuple[_Point, ...]
    floor: float

    def terms(self, intercept: float, slope: float) -> list[Term]:
        """The probes that count for a curve: all except lower bounds that the curve exceeds."""
        found = []
        for point in self.points:
            count = point.counted.count
            rising = count * math.exp(min(intercept + slope * point.x, 0.0))
            mean = max(rising + self.floor * count, _LEAST_MEAN)
            if not (point.is_lower_bound and mean > point.counted.beyond):
                found.append(Term(point, mean, rising))
        return found

    def deviance(self, intercept: float, slope: float) -> float:
        """The deviance of a curve, each term divided by its dispersion."""
        return sum(term.deviance for term in self.terms(intercept, slope))


@dataclasses.dataclass(frozen=True, slots=True)
class ShareCurve:
    """A fitted curve: share = floor + exp(`intercept` + `slope` x), x = rate ÷ `centre` - 1."""

    points: _Points
    centre: float
    allowed: float
    intercept: float
    slope: float
    dispersion_at: Callable[[float], float]
    others: tuple["ShareCurve", ...] = ()
    """The curves fitted with each possible floor."""

    @property
    def level(self) -> float:
        """The logarithm of the rising part at the allowed share."""
        return math.log(self.allowed - self.points.floor)

    @property
    def root(self) -> float:
        """The x at which the curve reaches the allowed share."""
        return (self.level - self.intercept) / self.slope

    @property
    def crossing(self) -> float:
        """The rate per second at which the curve reaches the allowed share."""
        return self.centre * (1 + max(self.root, LOWEST_CHANGE))


def curve_within(counts: Sequence[CountAt], centre: float, lowest: float, highest: float, fewest: int) -> ShareCurve | None:
    """The curve fitted to the probes in a range around its crossing; repeated until the crossing no longer moves."""
    found = None
    for _ in range(_ROUNDS):
        near = [one for one in counts if lowest <= one.rate_per_s / centre <= highest and is_near(one.counted)]
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


def _fit(probes: Sequence[CountAt], floors: Sequence[float], centre: float, fewest: int) -> ShareCurve | None:
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


def _fit_above(floor: float, probes: Sequence[CountAt], centre: float, fewest: int) -> ShareCurve | None:
    if not probes:
        return None
    curve: ShareCurve | None = None
    dispersion_at: Callable[[float], float] = _no_dispersion
    for _ in range(2):  # first with equal weights, which gives the slope that limits the rise of the dispersion
        at = [one.rate_per_s / centre - 1 for one in probes]
        found = tuple(_Point(x, one.counted, 1 / dispersion_at(x), one.is_lower_bound) for x, one in zip(at, probes, strict=True))
        points = _Points(found, floor)
        line = _straight_line(points)
        if line is None or line[1] <= 0:
            return None
        curve = ShareCurve(points, centre, probes[0].counted.allowed_share, *line, dispersion_at)
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
    for _ in range(NEWTON_STEPS):
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
        if abs(by_intercept) < SMALLEST_STEP and abs(by_slope) < 10 * SMALLEST_STEP:
            break
    return intercept, slope

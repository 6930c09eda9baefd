"""Capacity: the highest arrival rate at which a percentile meets its limit, with the distribution of the estimate."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfkit.plan.exceedances import RateTimes, cluster_length_s
from perfkit.plan.rate_curve import Spread
from perfkit.stats.probability import normal_quantile
from perfkit.units import NS_PER_S

_Numbers = npt.NDArray[np.float64]
DRAWS = 2000
CONFIDENCE = 0.9
"""The confidence of the two-sided interval, whose lower end is a one-sided 95 % limit."""
FEWEST_CLUSTERS = 2.0
"""The fewest independent clusters of slow requests near the capacity that a plan needs."""
_NORMAL_REACH = normal_quantile((1 + CONFIDENCE) / 2)
NEAR = (0.8, 1.15)
"""The range of rates near the capacity, as shares of it."""
_POPULATION, _ROUNDS, _MOST_ROUNDS, _ENOUGH, _T_DEGREES = 5000, 6, 12, 400.0, 5
_POWER_CENTRE, _POWER_SD = 0.8, 1.0  # of the logarithm: M/D/1 (about 0.8) and four servers (about 4) lie within one standard deviation
_BELOW_SD, _ABOVE_SD = 0.02, 0.03  # how far the saturation may lie below the throughput answered, and above that under overload
_ROOM_CENTRE, _ROOM_SD, _LEAST_ROOM = math.log(0.3), 1.0, 0.02  # saturation ÷ highest throughput - 1, without an overload


class Bound(NamedTuple):
    """An upper bound of the capacity, with its relative standard error."""

    per_s: float
    error: float = 0.0
    highest_per_s: float | None = None
    """Where the bound is known only to lie between `per_s` and this rate, which may be infinite; None where it is `per_s`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity λ*, the highest rate that meets the SLO, with its 90 % interval. Plans use `low_per_s`, a 95 % lower limit."""

    per_s: float
    low_per_s: float
    """The lower limit, which is planned with."""
    high_per_s: float
    is_cut: bool = False
    """Whether a bound (overload or too many errors) limits the capacity, below the rate at which the percentile meets its limit."""
    clusters: float = math.inf
    """The number of independent clusters of slow requests measured near the capacity; a plan needs `FEWEST_CLUSTERS`. Infinite if a
    bound decides and not the percentile."""
    measured_s: float = 0.0
    """The total length of the windows at rates near the capacity."""
    needed_s: float = 0.0
    """The total length that holds `FEWEST_CLUSTERS`."""
    speed_elasticity: float = 1.0
    """The growth of the capacity, in percent, if the server becomes one percent faster."""
    draws_per_s: tuple[float, ...] = dataclasses.field(default=(), repr=False, metadata={"exclude": True})
    """Draws from the distribution of the capacity, ascending. The lower end of the interval is their quantile."""
    highest_draws_per_s: tuple[float, ...] = dataclasses.field(default=(), repr=False, metadata={"exclude": True})
    """The same if each bound is the highest that it may be; the upper end of the interval is their quantile."""

    @property
    def is_between_rates(self) -> bool:
        """Whether a bound decides that is known only to lie between two measured rates."""
        return self.is_cut and self.highest_draws_per_s != self.draws_per_s


def lowest_capacity(capacities: Sequence[Capacity]) -> Capacity:
    """The capacity under several limits at once, from that under each; raises ValueError without any.

    The estimate, the ends of the interval and each quantile of the draws are the lowest of the limits'. A quantile then lies above the
    true capacity under all limits only if that of the truly decisive limit does, so it keeps its probability however the limits depend on
    each other (R. L. Berger's intersection-union principle, Technometrics 24, 1982); the minimum of independent draws would be lower. The other facts are those of
    the limit with the lowest lower end.
    """
    estimate = min(capacities, key=lambda one: one.per_s)
    return dataclasses.replace(
        min(capacities, key=lambda one: one.low_per_s),
        per_s=estimate.per_s,
        is_cut=estimate.is_cut,
        high_per_s=min(one.high_per_s for one in capacities),
        draws_per_s=tuple(map(min, zip(*(one.draws_per_s for one in capacities), strict=True))),
        highest_draws_per_s=tuple(map(min, zip(*(one.highest_draws_per_s for one in capacities), strict=True))),
    )


class _Curves(NamedTuple):
    """Curves q(λ) = base + rise·u^power/(1 - u), u = λ/saturation: arrays with one element per curve."""

    base_ns: _Numbers
    rise_ns: _Numbers
    saturation_per_s: _Numbers
    power: _Numbers

    @classmethod
    def of(cls, parameters: _Numbers) -> "_Curves":
        return cls(*np.exp(parameters).T)

    def ln_value(self, rate_per_s: float) -> _Numbers:
        """The logarithm of q; infinite at and above saturation."""
        load = rate_per_s / self.saturation_per_s
        load_below = np.minimum(load, 1 - 1e-12)
        return np.where(load < 1, np.log(self.base_ns + self.rise_ns * load_below**self.power / (1 - load_below)), np.inf)

    def crossing(self, limit_ns: float) -> _Numbers:
        """The load u at which each curve meets the limit; 0 for a curve that is above the limit everywhere."""
        low, high = np.zeros_like(self.power), np.ones_like(self.power)
        for _ in range(40):
            middle = (low + high) / 2
            is_above = self.base_ns + self.rise_ns * middle**self.power / (1 - middle) > limit_ns
            low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
        return low

    def sensitivity(self, load: _Numbers, limit_ns: float) -> _Numbers:
        """1 + d ln q/d ln λ at the load where each curve meets the limit."""
        load = np.clip(load, 1e-6, 0.999)
        return 1 + self.rise_ns * load**self.power / (1 - load) * (self.power + load / (1 - load)) / limit_ns


class _Evidence(NamedTuple):
    times: Sequence[RateTimes]
    tail: float
    highest_throughput_per_s: float
    saturation_per_s: float | None


def capacity_under_limit(
    times: Sequence[RateTimes],
    quantile: float,
    limit_ns: float,
    spread: Spread,
    random: np.random.Generator,
    *,
    highest_throughput_per_s: float,
    saturation_per_s: float | None = None,
    bounds: Sequence[Bound] = (),
) -> Capacity:
    """The rate at which the percentile meets the limit, with the distribution of the estimate.

    Model: q(λ) = base + rise·u^k/(1 - u), u = λ/saturation. With k = 1 it is exact for every percentile of M/M/1. For other queues, k is
    the exponent of H. Sakasegawa's approximation of the wait (Annals of the Institute of Statistical Mathematics 29, 1977).

    Likelihood: the number of requests above the curve at each rate. Its expected share is 1 - `quantile` for windows of any length, up to
    a transient correction; a percentile of a short window of a busy queue, in contrast, is more often too low than too high. The deviance
    is that of a Poisson number, the number of independent clusters that the windows hold (`perfkit.plan.exceedances`). The times at
    rates where the target fell behind or was not steady are lower bounds of q.

    Prior: weak on k and on the saturation. The saturation is at least `highest_throughput_per_s`, and at most `saturation_per_s`, the
    throughput under overload, if that is known; both limits have an error of a few percent. Curves are drawn by population Monte Carlo
    (O. Cappé et al., *Journal of Computational and Graphical Statistics* 13, 2004).

    Restarts: the mean speed of the server over restarts has the error s_run·t/√R. A server slower by ε has a capacity lower by ε·(1+S)/S,
    S = d ln q/d ln λ. `bounds` are rates that fail for another reason.

    Validated by simulation in reports/plan-simulation.md. Assumptions: Poisson arrivals or smoother ones, and windows that begin soon after
    an idle queue or in steady state. Raises ValueError without times.
    """
    if not any(one.count for one in times):
        raise ValueError("a capacity needs measured times")
    found = _Evidence([one for one in times if one.count], 1 - quantile, highest_throughput_per_s, saturation_per_s)
    curves = _Curves.of(_draw_parameters(found, random))
    load = curves.crossing(limit_ns)
    sensitivity = curves.sensitivity(load, limit_ns)
    elasticity = sensitivity / np.maximum(sensitivity - 1, 0.1)
    shifts = _shuffled_t_quantiles(random, DRAWS, spread.run_degrees) * spread.run_sd / math.sqrt(spread.runs)
    unbounded = load * curves.saturation_per_s * np.exp(-shifts * elasticity)
    draws, highest_draws, most = unbounded, unbounded, math.inf
    for bound in bounds:
        factors = np.exp(bound.error * random.standard_normal(DRAWS) - shifts)
        highest_per_s = bound.per_s if bound.highest_per_s is None else bound.highest_per_s
        draws, highest_draws = np.minimum(draws, bound.per_s * factors), np.minimum(highest_draws, highest_per_s * factors)
        most = min(most, highest_per_s * math.exp(_NORMAL_REACH * bound.error))
    middle = float(np.median(unbounded))
    cut = min([middle, *(bound.per_s for bound in bounds)])
    is_bounded = float(np.quantile(unbounded, (1 - CONFIDENCE) / 2)) > cut  # then the percentile does not decide
    low, high = float(np.quantile(draws, (1 - CONFIDENCE) / 2)), float(np.quantile(highest_draws, (1 + CONFIDENCE) / 2))
    return Capacity(
        cut, min(low, cut), min(max(high, cut), most), is_cut=middle > cut,
        **({} if is_bounded else _cluster_facts(found, cut, limit_ns)), speed_elasticity=float(np.median(elasticity)),
        draws_per_s=tuple(np.sort(draws).tolist()), highest_draws_per_s=tuple(np.sort(highest_draws).tolist()),
    )  # fmt: skip


def _cluster_facts(found: _Evidence, capacity_per_s: float, limit_ns: float) -> dict[str, float]:
    near = [one for one in found.times if not one.is_lower_bound and NEAR[0] * capacity_per_s <= one.rate_per_s <= NEAR[1] * capacity_per_s]
    idle = np.array([1 - capacity_per_s / (found.saturation_per_s or max(found.highest_throughput_per_s, 1.1 * capacity_per_s))])
    limit_s = np.array([limit_ns / NS_PER_S])
    length_s = float(cluster_length_s(limit_s, found.tail, idle)[0])
    measured_s = sum(one.length_s for one in near)
    return {
        "clusters": found.tail * measured_s / length_s, "measured_s": measured_s, "needed_s": FEWEST_CLUSTERS * length_s / found.tail,
    }  # fmt: skip


def _draw_parameters(found: _Evidence, random: np.random.Generator) -> _Numbers:
    """Draws of (ln base, ln rise, ln saturation, ln power). Each round proposes from the weighted mean and covariance of the one before."""
    percentiles = np.log([one.percentile_s(found.tail) * NS_PER_S for one in found.times if not one.is_lower_bound])
    lowest, highest, throughput = float(percentiles.min()), float(percentiles.max()), math.log(found.highest_throughput_per_s)
    lower = np.array([lowest - 3, lowest - 12, throughput + math.log(0.9), math.log(0.3)])
    upper = np.array([lowest + 1, highest + 3, throughput + math.log(20), math.log(10)])
    centre, covariance = np.array([lowest - 0.3, lowest - 0.3, throughput + 0.1, 0.0]), np.diag([0.25, 1.0, 0.02, 0.25])
    size = centre.size
    for number in range(_MOST_ROUNDS):
        normal = random.standard_normal((_POPULATION, size))
        stretched = normal * np.sqrt(_T_DEGREES / random.chisquare(_T_DEGREES, _POPULATION))[:, None]
        parameters = centre + stretched @ np.linalg.cholesky(covariance + 1e-9 * np.eye(size)).T
        proposed = -(_T_DEGREES + size) / 2 * np.log1p((stretched**2).sum(axis=1) / _T_DEGREES)
        is_inside = ((parameters >= lower) & (parameters <= upper)).all(axis=1)
        logs = np.where(is_inside, _log_prior(parameters, found), -np.inf) - proposed
        logs[is_inside] += _log_likelihood(parameters[is_inside], found)
        weights = np.exp((logs - logs.max()) / max(3 - number, 1))  # flattened in the first rounds, which may be far off
        weights /= weights.sum()
        effective = 1 / float(weights @ weights)
        if number + 1 >= _ROUNDS and effective >= _ENOUGH:
            break
        centre = weights @ parameters
        deviations = parameters - centre
        covariance = 1.3 * (deviations * weights[:, None]).T @ deviations + 1e-6 * np.eye(size)
    places = np.searchsorted(np.cumsum(weights), (np.arange(DRAWS) + random.random()) / DRAWS)
    return random.permutation(parameters[np.minimum(places, _POPULATION - 1)])


def _log_prior(parameters: _Numbers, found: _Evidence) -> _Numbers:
    saturation, power = parameters[:, 2], parameters[:, 3]
    highest = math.log(found.highest_throughput_per_s)
    logs = -0.5 * ((power - _POWER_CENTRE) / _POWER_SD) ** 2 - 0.5 * (np.maximum(highest - saturation, 0) / _BELOW_SD) ** 2
    if found.saturation_per_s is not None:
        return np.asarray(logs - 0.5 * (np.maximum(saturation - math.log(found.saturation_per_s), 0) / _ABOVE_SD) ** 2)
    room = np.log(np.maximum(np.expm1(saturation - highest), _LEAST_ROOM))
    return np.asarray(logs - 0.5 * ((room - _ROOM_CENTRE) / _ROOM_SD) ** 2)


def _log_likelihood(parameters: _Numbers, found: _Evidence) -> _Numbers:
    curves = _Curves.of(parameters)
    total = np.zeros(len(parameters))
    full_per_s = found.saturation_per_s or np.maximum(curves.saturation_per_s, found.highest_throughput_per_s)
    for one in found.times:
        ln_times = curves.ln_value(one.rate_per_s)
        # limited by the measured percentile: otherwise a curve far above it makes clusters so long that no window contradicts it
        percentile_s = np.minimum(np.exp(np.minimum(ln_times, 60)) / NS_PER_S, one.percentile_s(found.tail))
        cluster_s = one.cluster_length_s(percentile_s, found.tail, np.asarray(1 - one.rate_per_s / full_per_s))
        reached = one.transient_correction(cluster_s, found.tail)
        clusters = reached * found.tail * one.length_s / cluster_s
        ratio = one.count_above(ln_times) / (reached * found.tail * one.count)
        deviance = np.where(ratio > 0, ratio * np.log(np.maximum(ratio, 1e-12)) - ratio + 1, 1.0)
        is_evidence = np.isfinite(ln_times) & ((ratio > 1) if one.is_lower_bound else True)
        total -= np.where(is_evidence, clusters * deviance, 0.0)
    return total


def _shuffled_t_quantiles(random: np.random.Generator, number: int, degrees: float) -> _Numbers:
    """Quantiles of Student's t at evenly spaced probabilities in random order: a sample with little noise."""
    from scipy.special import stdtrit

    values: _Numbers = stdtrit(max(1, math.floor(degrees)), (np.arange(number) + 0.5) / number)
    return random.permutation(values)

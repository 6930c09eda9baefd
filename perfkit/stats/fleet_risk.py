"""The probability that replicas together keep the SLO, from the distributions of their capacity and of the demand."""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from perfkit.stats.distributions import binomial_cdf, chi_square_quantiles, log_normal_cdf, normal_quantile
from perfkit.stats.load_splitting import Splitting

_Numbers = npt.NDArray[np.float64]
_SCALES, _DEMANDS, _MARGINS, _GROUPS = 40, 41, 256, 16  # points of the numerical integrals
_FAILURES, _REACH, _MARGIN = 48, 6, 12  # of the binomial: points, standard deviations, and more for small numbers
_LEAST_PER_S = 1e-12
DEMAND_CONFIDENCE = 0.9
"""The probability with which the peak demand lies within its stated uncertainty."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """The distribution of a replica's capacity: that of the mean over all starts of the server, times the factor of this start."""

    draws_per_s: tuple[float, ...]
    """Equally likely values of the mean capacity, which all replicas share: the error of its estimate."""
    restart_sd: float
    """The estimated standard deviation of ln capacity between starts; each replica has a factor of its own."""
    restart_degrees: float
    """The degrees of freedom of that estimate."""


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """A lognormal peak demand: its median, and the standard deviation of its logarithm, 0 if it is exact."""

    per_s: float
    log_sd: float = 0.0

    @classmethod
    def within(cls, per_s: float, uncertainty: float) -> "Demand":
        """The demand that lies between per_s/(1 + uncertainty) and per_s·(1 + uncertainty) with a probability of 90 %."""
        return cls(per_s, math.log1p(uncertainty) / normal_quantile((1 + DEMAND_CONFIDENCE) / 2))

    def quantile_per_s(self, probability: float) -> float:
        """The demand that is not exceeded with this probability."""
        return self.per_s * math.exp(self.log_sd * normal_quantile(probability))


def holding_probability(capacity: ReplicaCapacity, demand: Demand, splitting: Splitting, replicas: int) -> float:
    """P[each of the replicas that are up keeps the SLO at the peak demand]; 0 without replicas.

    The SLO is kept if no replica receives more than its capacity, Q·wᵢ/m ≤ C·exp(-εᵢ) for all i, so the requests of every
    replica keep it; with `splitting.is_pooled`, if the demand is at most the sum of the capacities. C is common to the replicas, εᵢ is normal
    with the estimated standard deviation, whose own error, common too, is that of s²·ν/χ²_ν; Q is lognormal. P is integrated numerically,
    without random numbers. Assumptions: the error of the mean and that of the standard deviation are independent; starts are independent.
    """
    if replicas < 1:
        return 0.0
    margins = np.log(np.maximum(np.asarray(capacity.draws_per_s), _LEAST_PER_S)) + math.log(replicas / demand.per_s)
    if demand.log_sd:
        margins = (margins[:, None] - demand.log_sd * _normal_scores(_DEMANDS)).ravel()
    if margins.size <= _MARGINS:
        return float(_probability_within(margins, capacity, splitting, replicas).mean())
    places = np.linspace(margins.min(), margins.max(), _MARGINS)
    return float(np.interp(margins, places, _probability_within(places, capacity, splitting, replicas)).mean())


def expected_over_failures(probability_of: Callable[[int], float], replicas: int, availability: float) -> float:
    """The mean of a probability over the number of replicas that are up, which is binomial: each is up with this probability, independently."""
    mean, sd = replicas * (1 - availability), math.sqrt(replicas * availability * (1 - availability))
    lowest, highest = max(0, math.floor(mean - _REACH * sd)), min(replicas, math.ceil(mean + _REACH * sd) + _MARGIN)
    step = -(-(highest - lowest + 1) // _FAILURES)  # numbers that lie close together count as their middle one
    total, before = 0.0, binomial_cdf(lowest - 1, replicas, 1 - availability) if lowest else 0.0
    for first in range(lowest, highest + 1, step):
        last = min(first + step - 1, highest)
        upto = binomial_cdf(last, replicas, 1 - availability)
        total += (upto - before) * probability_of(replicas - (first + last) // 2)
        before = upto
    return total


def safe_demand_per_s(capacity: ReplicaCapacity, demand: Demand, splitting: Splitting, replicas: int, probability: float) -> float:
    """The median of the demand at which the replicas keep the SLO with this probability, with the relative uncertainty of `demand`."""
    from scipy.optimize import brentq

    def excess(log_demand: float) -> float:
        return holding_probability(capacity, Demand(math.exp(log_demand), demand.log_sd), splitting, replicas) - probability

    middle = math.log(replicas * float(np.median(capacity.draws_per_s)))
    reach = 1.0
    while excess(middle - reach) < 0 and reach < 64:
        reach *= 2
    highest = 1.0
    while excess(middle + highest) > 0:
        highest *= 2
    return math.exp(brentq(excess, middle - reach, middle + highest, xtol=1e-6)) if reach < 64 else 0.0


def _probability_within(margins: _Numbers, capacity: ReplicaCapacity, splitting: Splitting, replicas: int) -> _Numbers:
    """P[the replicas fit] for each margin, ln(mean capacity of all ÷ demand)."""
    shares, counts = splitting.distinct_shares(replicas, _GROUPS)
    logs = np.log(shares)
    if not capacity.restart_sd:
        return np.asarray(margins >= logs.max() - 1e-12, dtype=np.float64)
    scales = capacity.restart_sd * _scale_factors(capacity.restart_degrees)
    if splitting.is_pooled:  # the mean of the factors, which is nearly normal
        log_fits = log_normal_cdf(margins / (scales[:, None] / math.sqrt(replicas)))
    else:
        terms = (count * log_normal_cdf((margins - log) / scales[:, None]) for log, count in zip(logs, counts, strict=True))
        log_fits = functools.reduce(np.add, terms)
    return np.asarray(np.exp(log_fits).mean(axis=0))


@functools.cache
def _scale_factors(degrees: float) -> _Numbers:
    """Equally likely values of √(ν/χ²_ν), the true standard deviation ÷ its estimate."""
    factors: _Numbers = np.sqrt(degrees / chi_square_quantiles((np.arange(_SCALES) + 0.5) / _SCALES, degrees))
    return factors


@functools.cache
def _normal_scores(number: int) -> _Numbers:
    """Equally likely values of a standard normal variable."""
    return np.array([normal_quantile((index + 0.5) / number) for index in range(number)])

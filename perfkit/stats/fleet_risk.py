"""The probability that a fleet keeps the SLO, from the distributions of the replicas' capacity and of the demand."""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from perfkit.stats.distributions import binomial_cdf, chi_square_quantiles, normal_log_cdf, normal_quantile
from perfkit.stats.load_splitting import Splitting

_Numbers = npt.NDArray[np.float64]
_SCALES, _DEMANDS, _MARGINS, _GROUPS = 40, 41, 256, 16  # points of the numerical integrals
_FAILURES, _REACH, _MARGIN = 48, 6, 12  # the binomial sum: most terms; half its range in standard deviations; further numbers above that
_LEAST_PER_S = 1e-12
DEMAND_CONFIDENCE = 0.9
"""The probability that the peak demand lies within its stated uncertainty."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """The distribution of a replica's capacity: the mean over all starts of the server, times a random factor for each start."""

    draws_per_s: tuple[float, ...]
    """Equally likely values of the mean capacity, which all replicas share. They differ by its estimation error."""
    restart_sd: float
    """The estimated standard deviation of ln capacity between starts. Each replica has its own factor."""
    restart_degrees: float
    """The degrees of freedom of `restart_sd`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """A lognormal peak demand: its median, and the standard deviation of its logarithm (0: known exactly)."""

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
    """The probability that all of `replicas` running replicas keep the SLO at the peak demand; 0 without replicas.

    A replica keeps the SLO if its load is within its capacity: Q·wᵢ/m ≤ C·exp(-εᵢ). With `splitting.is_pooled` it is enough that the
    demand is at most the sum of the capacities. Q is the lognormal demand, m the number of replicas, wᵢ the relative load of a replica.
    The mean capacity C is common to all replicas. The εᵢ are independent and normal, with the variance s²·ν/χ²_ν, also common to all
    replicas: s is the estimated standard deviation, ν its degrees of freedom.

    The probability is integrated numerically, without random numbers. Assumption: the errors of the mean and of the standard deviation
    are independent.
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
    """The mean of a probability over the number of running replicas; each is up with probability `availability`, independently."""
    mean, sd = replicas * (1 - availability), math.sqrt(replicas * availability * (1 - availability))
    lowest, highest = max(0, math.floor(mean - _REACH * sd)), min(replicas, math.ceil(mean + _REACH * sd) + _MARGIN)
    step = -(-(highest - lowest + 1) // _FAILURES)  # neighbouring numbers are represented by their middle one
    total, before = 0.0, binomial_cdf(lowest - 1, replicas, 1 - availability) if lowest else 0.0
    for first in range(lowest, highest + 1, step):
        last = min(first + step - 1, highest)
        upto = binomial_cdf(last, replicas, 1 - availability)
        total += (upto - before) * probability_of(replicas - (first + last) // 2)
        before = upto
    return total


def safe_demand_per_s(capacity: ReplicaCapacity, demand: Demand, splitting: Splitting, replicas: int, probability: float) -> float:
    """The median demand at which the replicas keep the SLO with this probability; it has the `log_sd` of `demand`. 0 if there is none."""
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
    """The probability that the SLO is kept, for each margin ln(m·C/Q)."""
    shares, counts = splitting.distinct_shares(replicas, _GROUPS)
    logs = np.log(shares)
    if not capacity.restart_sd:
        return np.asarray(margins >= logs.max() - 1e-12, dtype=np.float64)
    scales = capacity.restart_sd * _scale_factors(capacity.restart_degrees)
    if splitting.is_pooled:  # the mean of the factors is nearly normal
        log_fits = normal_log_cdf(margins / (scales[:, None] / math.sqrt(replicas)))
    else:
        terms = (count * normal_log_cdf((margins - log) / scales[:, None]) for log, count in zip(logs, counts, strict=True))
        log_fits = functools.reduce(np.add, terms)
    return np.asarray(np.exp(log_fits).mean(axis=0))


@functools.cache
def _scale_factors(degrees: float) -> _Numbers:
    """Equally likely values of √(ν/χ²_ν), the ratio of the true standard deviation to its estimate."""
    factors: _Numbers = np.sqrt(degrees / chi_square_quantiles((np.arange(_SCALES) + 0.5) / _SCALES, degrees))
    return factors


@functools.cache
def _normal_scores(number: int) -> _Numbers:
    """Equally likely values of a standard normal variable."""
    return np.array([normal_quantile((index + 0.5) / number) for index in range(number)])

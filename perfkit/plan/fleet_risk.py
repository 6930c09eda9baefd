"""The probability that a fleet keeps the SLO, from the distributions of the replicas' capacity and of the demand."""

import dataclasses
import enum
import functools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from perfkit.stats.probability import binomial_cdf, normal_quantile

_Numbers = npt.NDArray[np.float64]
_MOST_SHARES = 1000  # larger fleets are represented by so many replicas


class Balancing(enum.StrEnum):
    """The rule by which a load balancer chooses a replica for a request."""

    RANDOM = "random"
    ROUND_ROBIN = "round-robin"
    LEAST_IN_FLIGHT = "least-in-flight"


@dataclasses.dataclass(frozen=True, slots=True)
class Splitting:
    """The relative loads of replicas, by a rule or as measured."""

    balancing: Balancing = Balancing.RANDOM
    shares: tuple[float, ...] = ()
    """The measured relative loads, in any order: the load of each replica ÷ the mean over the replicas. Empty: equal loads by the rule."""

    @property
    def is_pooled(self) -> bool:
        """Whether slower replicas receive less, so that the sum of the capacities counts and not the slowest replica."""
        return self.balancing is Balancing.LEAST_IN_FLIGHT and not self.shares

    def shares_of(self, replicas: int) -> _Numbers:
        """The relative loads of this number of replicas, descending; their mean is 1.

        Loads measured on another number of replicas are interpolated between their ranks, and divided by their new mean. Raises
        ValueError for less than one replica.
        """
        if replicas < 1:
            raise ValueError(f"a load is split over at least one replica, found {replicas}")
        if not self.shares or replicas == 1:
            return np.ones(replicas)
        measured = np.sort(np.asarray(self.shares, dtype=np.float64))[::-1]
        shares = np.interp(np.linspace(0, measured.size - 1, replicas), np.arange(measured.size), measured)
        return shares / float(shares.mean())

    def distinct_shares(self, replicas: int, most: int) -> tuple[_Numbers, _Numbers]:
        """The distinct relative loads, ascending, and the number of replicas with each; beyond `most`, neighbours are averaged."""
        if not self.shares or replicas == 1:
            return np.ones(1), np.array([float(replicas)])
        represented = min(replicas, _MOST_SHARES)
        values, counts = np.unique(self.shares_of(represented), return_counts=True)
        if values.size > most:
            sizes = np.unique(np.geomspace(1, values.size, most + 1).astype(np.int64))  # finer where the shares are large
            parts = np.split(np.arange(values.size), values.size - sizes[-2::-1])
            means = np.array([np.average(values[part], weights=counts[part]) for part in parts])
            values, counts = means, np.array([counts[part].sum() for part in parts])
        return values, np.asarray(counts * (replicas / represented), dtype=np.float64)

    def largest_share(self, replicas: int) -> float:
        """The relative load of the busiest of this number of replicas."""
        return float(self.shares_of(min(replicas, _MOST_SHARES))[0]) if self.shares else 1.0

    @property
    def largest_measured(self) -> float:
        """The largest measured share, or 1: so many times more replicas are planned, and so much lower is the autoscaler's target."""
        return max(self.shares, default=1.0)

    def sentence(self, replicas: int) -> str:
        """What a plan of this number of replicas assumes about splitting, and what it leaves out."""
        if not self.shares:
            return _SENTENCES[self.balancing]
        measured, used = f"{self.largest_measured:.3g}", f"{self.largest_share(replicas):.3g}"
        text = (
            f"Requests are split over the replicas as measured: the largest share is {measured} times the mean, the smallest {min(self.shares):.3g} "
            "times. The replica with the largest share decides."
        )
        if used == measured:
            return text
        return (
            f"{text} The number of replicas and the autoscaler's target use {measured}; the risk of {replicas:,} replicas uses {used}, the largest share "
            "after interpolation to that number."
        )


_SENTENCES = {
    Balancing.RANDOM: (
        "Requests are split over the replicas at random, in equal shares, which keeps Poisson arrivals Poisson at each replica. A skew needs more "
        "replicas: give the measured shares with --shares."
    ),
    Balancing.ROUND_ROBIN: (
        "Requests are split over the replicas in turn, in equal shares. Each replica receives more regular arrivals than Poisson; what that gains is "
        "not counted."
    ),
    Balancing.LEAST_IN_FLIGHT: (
        "Each request goes to the replica with the fewest requests in flight, as seen by one load balancer. A slower replica receives less, so the sum of the "
        "capacities counts; the shorter waits of such a queue are not counted."
    ),
}


def normalised_shares(loads: npt.ArrayLike) -> tuple[float, ...]:
    """The relative loads of replicas: their loads, in any unit, divided by the mean.

    Raises ValueError without loads, and for loads that are not finite and above zero.
    """
    values = np.asarray(loads, dtype=np.float64)
    if not values.size or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError("the shares of the replicas must be numbers above zero")
    return tuple((values / values.mean()).tolist())


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
    from scipy.special import log_ndtr

    shares, counts = splitting.distinct_shares(replicas, _GROUPS)
    logs = np.log(shares)
    if not capacity.restart_sd:
        return np.asarray(margins >= logs.max() - 1e-12, dtype=np.float64)
    scales = capacity.restart_sd * _scale_factors(capacity.restart_degrees)
    if splitting.is_pooled:  # the mean of the factors is nearly normal
        log_fits = log_ndtr(margins / (scales[:, None] / math.sqrt(replicas)))
    else:
        terms = (count * log_ndtr((margins - log) / scales[:, None]) for log, count in zip(logs, counts, strict=True))
        log_fits = functools.reduce(np.add, terms)
    return np.asarray(np.exp(log_fits).mean(axis=0))


@functools.cache
def _scale_factors(degrees: float) -> _Numbers:
    """Equally likely values of √(ν/χ²_ν), the ratio of the true standard deviation to its estimate."""
    from scipy.special import gammaincinv

    factors: _Numbers = np.sqrt(degrees / (2 * gammaincinv(degrees / 2, (np.arange(_SCALES) + 0.5) / _SCALES)))
    return factors


@functools.cache
def _normal_scores(number: int) -> _Numbers:
    """Equally likely values of a standard normal variable."""
    return np.array([normal_quantile((index + 0.5) / number) for index in range(number)])

"""Splitting of the demand over replicas by a load balancer, and the relative load of each replica."""

import dataclasses
import enum

import numpy as np
import numpy.typing as npt

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

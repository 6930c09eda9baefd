"""From the capacity of one replica to the number of replicas, their price, their energy, and how to scale them."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from perfkit.plan.steps import Steps

HEADROOM, FAILURE_HEADROOM = 0.3, 0.1
_ROUNDING = 1e-9  # a quotient above a whole number by this share is rounded down to it


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaCount:
    """A number of replicas, and the rules that it follows from; demand and capacity are in one unit, in a plan inferences per second."""

    replicas: int
    for_headroom: int
    """⌈Q / ((1-headroom)·λ*)⌉: needed with all replicas up."""
    for_redundancy: int
    """⌈Q / ((1-failure headroom)·λ*)⌉ + k: needed with k replicas down."""
    for_zone_loss: int | None
    """Needed for the loss of a zone to leave ⌈Q / ((1-failure headroom)·λ*)⌉; None without zones."""
    demand_per_s: float
    capacity_per_s: float
    """The capacity of one replica that the plan assumes."""

    @property
    def rate_per_replica_per_s(self) -> float:
        """The rate that each replica receives when all are up."""
        return self.demand_per_s / self.replicas

    @property
    def headroom(self) -> float:
        """(capacity - demand) / capacity, of all replicas together."""
        return 1 - self.demand_per_s / (self.replicas * self.capacity_per_s)

    @property
    def reason(self) -> str:
        """The rule that requires the most replicas."""
        rules = {"headroom": self.for_headroom, "redundancy": self.for_redundancy, "zone loss": self.for_zone_loss or 0}
        return max(rules, key=lambda rule: rules[rule])


def count_replicas(
    demand_per_s: float,
    capacity_per_s: float,
    *,
    headroom: float = HEADROOM,
    failure_headroom: float = FAILURE_HEADROOM,
    redundancy: int = 0,
    zones: int = 0,
) -> ReplicaCount:
    """The number of replicas that serve a demand with headroom, with `redundancy` replicas down, and with one of `zones` zones lost.

    The default headroom of 30 % corresponds to Knative's target utilisation of 70 %; while replicas are down, it is 10 %. Replicas are
    spread evenly over the zones, so that the largest zone has ⌈n/zones⌉. Assumption: a load balancer that spreads requests evenly;
    an uneven one needs more replicas. Raises ValueError for a demand or capacity of 0 or less, a headroom outside [0, 1),
    negative redundancy, and a single zone, whose loss would leave no replica.
    """
    if not (demand_per_s > 0 and capacity_per_s > 0):
        raise ValueError(f"a demand and a capacity must be above zero, found {demand_per_s:g}/s and {capacity_per_s:g}/s")
    if not (0 <= headroom < 1 and 0 <= failure_headroom < 1):
        raise ValueError(f"a headroom must be at least 0 % and below 100 %, found {headroom:g} and {failure_headroom:g}")
    if redundancy < 0 or zones < 0 or zones == 1:
        raise ValueError(f"redundancy must be 0 or more, and zones 0 (none) or at least 2, found {redundancy} and {zones}")
    with_headroom = _whole(demand_per_s / ((1 - headroom) * capacity_per_s))
    bare = _whole(demand_per_s / ((1 - failure_headroom) * capacity_per_s))
    spread = None
    if zones:
        spread = bare + math.ceil(bare / (zones - 1))  # the smallest n with n - ⌈n/zones⌉ >= bare
    replicas = max(with_headroom, bare + redundancy, spread or 0)
    return ReplicaCount(replicas, with_headroom, bare + redundancy, spread, demand_per_s, capacity_per_s)


def cost_per_million(replicas: int, price_per_hour: float, average_demand_per_s: float) -> float:
    """The price of 10⁶ inferences, 10⁶·n·price / (3600·Q_avg), at the average demand, not the peak."""
    return 1e6 * replicas * price_per_hour / (3600 * average_demand_per_s)


@dataclasses.dataclass(frozen=True, slots=True)
class Energy:
    """Energy per inference in joules: total, and above the idle consumption."""

    gross_j: float
    """Joules per inference, with the idle consumption."""
    above_idle_j: float | None
    """None if the idle power is unknown."""


def energy_per_inference(power_w: float, inferences_per_s: float, idle_power_w: float | None = None) -> Energy:
    """Mean power divided by the inference rate: 300 W at 120/s are 2.5 J. Raises ValueError for a rate of 0 or less."""
    if not inferences_per_s > 0:
        raise ValueError(f"energy per inference needs a rate above zero, found {inferences_per_s:g}/s")
    above = None if idle_power_w is None else max(power_w - idle_power_w, 0.0) / inferences_per_s
    return Energy(power_w / inferences_per_s, above)


def target_concurrency(rate_per_s: float, mean_response_time_s: float) -> float:
    """The mean number of requests in flight at a rate, L = λ·E[R] (J. D. C. Little 1961): an autoscaler's target per replica."""
    return rate_per_s * mean_response_time_s


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedLoopBounds:
    """Upper bounds of a closed loop's throughput: X(N) ≤ min(N/R₁, X_max)."""

    lone_response_time_s: float
    highest_throughput_per_s: float

    @property
    def saturating_concurrency(self) -> float:
        """N_sat = X_max·R₁: below it, more requests in flight raise the throughput; above, they only queue."""
        return self.highest_throughput_per_s * self.lone_response_time_s

    def throughput_per_s(self, concurrency: float) -> float:
        """The upper bound at a concurrency."""
        return min(concurrency / self.lone_response_time_s, self.highest_throughput_per_s)


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedPoint:
    """A load point of a closed loop, with its mean service time."""

    concurrency: float
    throughput_per_s: float
    mean_time_s: float


def closed_loop_bounds(points: Sequence[ClosedPoint]) -> ClosedLoopBounds | None:
    """The bounds from measured points, with R₁ from those at concurrency 1; None without one.

    Source: P. J. Denning & J. P. Buzen, "The operational analysis of queueing network models" (1978).
    """
    if not points or min(point.concurrency for point in points) > 1:
        return None
    single = [point.mean_time_s for point in points if point.concurrency == 1]
    return ClosedLoopBounds(sum(single) / len(single), max(point.throughput_per_s for point in points))


def measured_knee(points: Sequence[ClosedPoint]) -> ClosedPoint | None:
    """The point with the highest ratio of throughput to response time, X/R; None without points.

    Unlike Kneedle's, this knee does not depend on the scaling of the axes.
    """
    return max(points, key=lambda point: point.throughput_per_s / point.mean_time_s, default=None)


def pareto_front(costs: Sequence[tuple[float, float]]) -> list[int]:
    """The indices, ascending, of the pairs than which no other is better in one figure and not worse in the other; of equals the first."""
    front: list[int] = []
    lowest = math.inf
    for index in sorted(range(len(costs)), key=lambda index: (*costs[index], index)):
        if costs[index][1] < lowest:
            front.append(index)
            lowest = costs[index][1]
    return sorted(front)


def _whole(quotient: float) -> int:
    return max(1, math.ceil(quotient * (1 - _ROUNDING)))


HOURS_PER_YEAR = 8760.0
"""365 days. A month is a twelfth of it, 730 hours, as cloud providers count."""


@dataclasses.dataclass(frozen=True, slots=True)
class RentedFleet:
    """The mean cost per hour of rented replicas, some of them reserved."""

    reserved: int
    """The number of reserved replicas, which are paid for at all times."""
    reserved_per_h: float
    """The cost of all reserved replicas."""
    others_per_h: float
    """The mean cost of all other replicas."""

    @property
    def per_h(self) -> float:
        """The mean total cost per hour."""
        return self.reserved_per_h + self.others_per_h


def rent(running_shares: Sequence[float], price_per_h: float, reserved_price_per_h: float | None = None) -> RentedFleet:
    """The cost of a rented fleet with the cheapest number of reserved replicas.

    `running_shares` are the shares of time in which at least 1, 2, 3, … replicas are running; they never rise. Reserving the i-th replica
    pays if the reserved price is below the on-demand price times its running share.
    """
    reserved = 0
    if reserved_price_per_h is not None:
        reserved = sum(reserved_price_per_h < price_per_h * share for share in running_shares)
    others = sum(running_shares[reserved:]) * price_per_h
    return RentedFleet(reserved, reserved * (reserved_price_per_h or 0.0), others)


def rent_with_spot(running_shares: Sequence[float], base: int, base_price_per_h: float, spot_price_per_h: float) -> RentedFleet:
    """The cost per hour of `base` replicas, paid at all times, and of spot replicas above them, paid while they run."""
    return RentedFleet(base, base * base_price_per_h, sum(running_shares[base:]) * spot_price_per_h)


@dataclasses.dataclass(frozen=True, slots=True)
class BoughtFleet:
    """The cost of a purchased fleet: linear depreciation over its lifetime, and electricity."""

    replicas: int
    purchase: float
    """The price of all replicas."""
    lifetime_h: float
    electricity_per_h: float

    @property
    def per_h(self) -> float:
        """The mean cost per hour over the lifetime."""
        return self.purchase / self.lifetime_h + self.electricity_per_h

    def break_even_h(self, rent_per_h: float) -> float | None:
        """The time after which buying has cost less than renting; None if that is beyond the lifetime."""
        saved_per_h = rent_per_h - self.electricity_per_h
        hours = self.purchase / saved_per_h if saved_per_h > 0 else math.inf
        return hours if hours <= self.lifetime_h else None


def mean_power_w(replicas: float, demand_per_s: Steps, end_s: float, rates_per_s: Sequence[float], powers_w: Sequence[float]) -> float:
    """The mean power of a fleet of constant size, in watts, from the first start of the demand to `end_s`.

    All replicas receive the same rate. The power of a replica is interpolated between the powers measured at `rates_per_s`, and constant
    outside of these.
    """
    fleet_powers_w = replicas * np.interp(demand_per_s.values / replicas, rates_per_s, powers_w)
    return Steps(demand_per_s.starts_s, fleet_powers_w).mean(float(demand_per_s.starts_s[0]), end_s)

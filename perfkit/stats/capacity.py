"""From the capacity of one replica to a fleet: how many replicas, at what price, with how much energy, scaled by what."""

import dataclasses
import math
from collections.abc import Sequence

HEADROOM, FAILURE_HEADROOM = 0.3, 0.1
_ROUNDING = 1e-9  # a quotient this much above a whole number is one


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaCount:
    """So many replicas, and what asked for them; demand and capacity in one unit, inferences a second in a plan."""

    replicas: int
    for_headroom: int
    """⌈Q / ((1-headroom)·λ*)⌉: with all of them up."""
    for_redundancy: int
    """⌈Q / ((1-failure headroom)·λ*)⌉ + k: with k of them down."""
    for_zone_loss: int | None
    """So many that a zone's loss leaves ⌈Q / ((1-failure headroom)·λ*)⌉; None without zones."""
    demand_per_s: float
    capacity_per_s: float
    """Of one replica, as planned with."""

    @property
    def rate_per_replica_per_s(self) -> float:
        """What each replica is sent when all are up."""
        return self.demand_per_s / self.replicas

    @property
    def headroom(self) -> float:
        """(capacity - demand) / capacity of the whole fleet."""
        return 1 - self.demand_per_s / (self.replicas * self.capacity_per_s)

    @property
    def reason(self) -> str:
        """Which of the three rules decided."""
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
    """How many replicas of a capacity serve a demand, with headroom, `redundancy` of them down, or one of `zones` zones lost.

    The default headroom of 30 % is Knative's target utilisation of 70 %; 10 % while replicas are down. Replicas are spread
    evenly over the zones, so that the largest holds ⌈n/zones⌉. Assumption: a balancer that spreads evenly; an uneven one
    needs more. Raises ValueError for a demand or capacity that is not above zero, a headroom outside [0, 1), negative
    redundancy, and a single zone, whose loss nothing survives.
    """
    if not (demand_per_s > 0 and capacity_per_s > 0):
        raise ValueError(f"a demand and a capacity are above zero, found {demand_per_s:g}/s and {capacity_per_s:g}/s")
    if not (0 <= headroom < 1 and 0 <= failure_headroom < 1):
        raise ValueError(f"a headroom lies between 0 % and below 100 %, found {headroom:g} and {failure_headroom:g}")
    if redundancy < 0 or zones < 0 or zones == 1:
        raise ValueError(f"redundancy is 0 or more, and zones are 0 (none) or at least 2, found {redundancy} and {zones}")
    with_headroom = _whole(demand_per_s / ((1 - headroom) * capacity_per_s))
    bare = _whole(demand_per_s / ((1 - failure_headroom) * capacity_per_s))
    spread = None
    if zones:
        spread = bare + math.ceil(bare / (zones - 1))  # the least n of which n - ⌈n/zones⌉ are left
    replicas = max(with_headroom, bare + redundancy, spread or 0)
    return ReplicaCount(replicas, with_headroom, bare + redundancy, spread, demand_per_s, capacity_per_s)


def cost_per_million(replicas: int, price_per_hour: float, average_demand_per_s: float) -> float:
    """The price of 10⁶ inferences: 10⁶·n·price / (3600·Q_avg), with the average and not the peak demand."""
    return 1e6 * replicas * price_per_hour / (3600 * average_demand_per_s)


@dataclasses.dataclass(frozen=True, slots=True)
class Energy:
    """Joules an inference: all that was drawn, and what was drawn above idle."""

    gross_j: float
    above_idle_j: float | None
    """None where the idle power is not given."""


def energy_per_inference(power_w: float, inferences_per_s: float, idle_power_w: float | None = None) -> Energy:
    """Mean power over the rate of inferences: 300 W at 120/s are 2.5 J. Raises ValueError for a rate that is not above zero."""
    if not inferences_per_s > 0:
        raise ValueError(f"energy per inference needs inferences, found {inferences_per_s:g}/s")
    above = None if idle_power_w is None else max(power_w - idle_power_w, 0.0) / inferences_per_s
    return Energy(power_w / inferences_per_s, above)


def target_concurrency(rate_per_s: float, mean_response_time_s: float) -> float:
    """Requests in flight at a rate, L = λ·E[R] (J. D. C. Little 1961): what an autoscaler holds each replica to."""
    return rate_per_s * mean_response_time_s


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedLoopBounds:
    """What a closed loop can give at most: X(N) ≤ min(N/R₁, X_max)."""

    lone_response_time_s: float
    highest_throughput_per_s: float

    @property
    def saturating_concurrency(self) -> float:
        """N_sat = X_max·R₁: below it more requests in flight help, above they only wait."""
        return self.highest_throughput_per_s * self.lone_response_time_s

    def throughput_per_s(self, concurrency: float) -> float:
        """The bound at a concurrency."""
        return min(concurrency / self.lone_response_time_s, self.highest_throughput_per_s)


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedPoint:
    """A closed loop's load point: its mean service time is its response time there."""

    concurrency: float
    throughput_per_s: float
    mean_time_s: float


def closed_loop_bounds(points: Sequence[ClosedPoint]) -> ClosedLoopBounds | None:
    """The bounds that points show, R₁ from the lowest concurrency; None without points, or with a lowest one above 1.

    Source: P. J. Denning & J. P. Buzen, "The operational analysis of queueing network models" (1978).
    """
    if not points or min(point.concurrency for point in points) > 1:
        return None
    lone = [point.mean_time_s for point in points if point.concurrency == 1]
    return ClosedLoopBounds(sum(lone) / len(lone), max(point.throughput_per_s for point in points))


def measured_knee(points: Sequence[ClosedPoint]) -> ClosedPoint | None:
    """The point of the best throughput over response time, X/R; None without points.

    Not Kneedle, whose knee depends on how the axes are scaled.
    """
    return max(points, key=lambda point: point.throughput_per_s / point.mean_time_s, default=None)


def pareto_front(costs: Sequence[tuple[float, float]]) -> list[int]:
    """The places of those pairs that no other beats in one figure without losing in the other; of equals the first. Ascending."""
    front: list[int] = []
    lowest = math.inf
    for place in sorted(range(len(costs)), key=lambda place: (*costs[place], place)):
        if costs[place][1] < lowest:
            front.append(place)
            lowest = costs[place][1]
    return sorted(front)


def _whole(quotient: float) -> int:
    return max(1, math.ceil(quotient * (1 - _ROUNDING)))

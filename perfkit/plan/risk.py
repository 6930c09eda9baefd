"""The risk of a plan: with what probability numbers of replicas keep the SLO, and what being wrong costs."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from perfkit.plan.inputs import PlanInputs
from perfkit.stats.capacity import ReplicaCount
from perfkit.stats.fleet_risk import Demand, ReplicaCapacity, holding_probability, holding_probability_with_failures, safe_demand_per_s
from perfkit.stats.rate_curve import RateCurve
from perfkit.stats.slo_capacity import Capacity

HOURS_PER_YEAR = 365 * 24
SAFE = 0.9
"""The probability for which the highest demand is given."""
_ROWS, _NEGLIGIBLE, _CERTAIN, _FURTHEST = 40, 0.01, 0.995, 4


@dataclasses.dataclass(frozen=True, slots=True)
class RiskRow:
    """A number of replicas, and the probabilities that they keep the SLO at the peak demand."""

    replicas: int
    all_up: float
    one_lost: float
    zone_lost: float | None
    """While the largest zone is lost; None without zones."""
    with_failures: float | None
    """Over the number of replicas that happen to be down; None without an availability."""
    missed_hours_per_year: float
    """Expected hours in which the SLO is missed."""
    fleet_cost_per_year: float | None
    missed_cost_per_year: float | None
    """Of the missed hours; None without a cost of an hour."""


@dataclasses.dataclass(frozen=True, slots=True)
class FleetRisk:
    """The risk of the planned number of replicas, and of others."""

    replicas: int
    demand_low_per_s: float
    demand_high_per_s: float
    """The 90 % interval of the peak demand; equal ends: it is exact."""
    peak_hours_per_year: float
    safe_demand_per_s: float
    """The peak demand (median) at which the planned replicas keep the SLO with a probability of 90 %."""
    rows: tuple[RiskRow, ...]
    """By ascending number of replicas, from one that hardly keeps the SLO to one that almost certainly does."""
    splitting: str
    largest_share: float
    """The load of the busiest replica ÷ the mean."""
    even_time_ns: float
    """The percentile that decides, at the mean rate of the planned replicas."""
    busiest_time_ns: float | None
    """The same at the replica with the largest share; None if that is saturated."""
    cheapest_replicas: int | None
    """The number in `rows` whose replicas and missed hours cost least together; None if a price is unknown."""

    def row(self, replicas: int) -> RiskRow | None:
        """The probabilities of a number of replicas; None if it is not in `rows`."""
        return next((row for row in self.rows if row.replicas == replicas), None)


def fleet_risk(
    capacity: Capacity, curve: RateCurve, fleet: ReplicaCount, price_per_hour: float | None, batch_size: int, inputs: PlanInputs
) -> FleetRisk:
    """The risk of a planned configuration, whose `curve` is that of the percentile that decides."""
    risk = inputs.risk
    demand, splitting = Demand.within(inputs.demand_per_s, risk.demand_uncertainty), risk.splitting
    replica = replica_capacity(capacity, curve, batch_size)

    def make(replicas: int) -> RiskRow:
        return _row(replica, demand, replicas, price_per_hour, inputs)

    rows = tuple(map(make, _numbers(replica, demand, fleet.replicas, inputs)))
    rate, largest = fleet.rate_per_replica_per_s / batch_size, splitting.largest_share(fleet.replicas)
    busiest_ns = curve.value(rate * largest)
    return FleetRisk(
        replicas=fleet.replicas,
        demand_low_per_s=demand.quantile_per_s(0.05),
        demand_high_per_s=demand.quantile_per_s(0.95),
        peak_hours_per_year=risk.peak_hours_per_year,
        safe_demand_per_s=safe_demand_per_s(replica, demand, splitting, fleet.replicas, SAFE),
        rows=rows,
        splitting=splitting.sentence,
        largest_share=largest,
        even_time_ns=curve.value(rate),
        busiest_time_ns=busiest_ns if math.isfinite(busiest_ns) else None,
        cheapest_replicas=_cheapest(rows),
    )


def replica_capacity(capacity: Capacity, curve: RateCurve, batch_size: int = 1) -> ReplicaCapacity:
    """The distribution of a replica's capacity, in inferences per second.

    A server slower by ε has a capacity lower by ε·(1 + S)/S, S = d ln q/d ln λ (see `perfkit.stats.slo_capacity`), so the standard
    deviation between starts is multiplied by that.
    """
    sensitivity = curve.sensitivity(min(capacity.per_s, 0.999 * curve.saturation_per_s))
    draws = tuple(batch_size * draw for draw in capacity.draws_per_s)
    return ReplicaCapacity(draws, curve.spread.run_sd * sensitivity / max(sensitivity - 1, 0.1), curve.spread.run_degrees)


def _row(replica: ReplicaCapacity, demand: Demand, replicas: int, price_per_hour: float | None, inputs: PlanInputs) -> RiskRow:
    risk = inputs.risk

    def up(number: int) -> float:
        return holding_probability(replica, demand, risk.splitting, number)

    all_up, with_failures = up(replicas), None
    if risk.availability is not None:
        with_failures = holding_probability_with_failures(replica, demand, risk.splitting, replicas, risk.availability)
    missed_hours = (1 - (all_up if with_failures is None else with_failures)) * risk.peak_hours_per_year
    return RiskRow(
        replicas=replicas,
        all_up=all_up,
        one_lost=up(replicas - 1),
        zone_lost=up(replicas - _largest_zone(replicas, inputs.zones)) if inputs.zones else None,
        with_failures=with_failures,
        missed_hours_per_year=missed_hours,
        fleet_cost_per_year=None if price_per_hour is None else replicas * price_per_hour * HOURS_PER_YEAR,
        missed_cost_per_year=None if risk.outage_cost is None else missed_hours * risk.outage_cost.per_hour,
    )


def _largest_zone(replicas: int, zones: int) -> int:
    return math.ceil(replicas / zones)


def _numbers(replica: ReplicaCapacity, demand: Demand, planned: int, inputs: PlanInputs) -> list[int]:
    """Numbers of replicas from a negligible to a nearly certain probability, with the planned one and its neighbours; at most some 40."""
    zones = inputs.zones

    def remaining(number: int) -> int:
        return number - max(1, _largest_zone(number, zones) if zones else 1)

    def keeps(number: int, probability: float) -> bool:
        return holding_probability(replica, demand, inputs.risk.splitting, number) >= probability

    furthest = _FURTHEST * planned + 2
    lowest = _first(range(1, planned), lambda number: keeps(number, _NEGLIGIBLE))
    highest = _first(range(planned + 1, furthest), lambda number: keeps(remaining(number), _CERTAIN))
    spaced = {round(number) for number in np.linspace(lowest, highest, min(_ROWS, highest - lowest + 1)).tolist()}
    return sorted(number for number in {*spaced, planned - 1, planned, planned + 1} if number > 0)


def _first(numbers: range, holds: Callable[[int], bool]) -> int:
    """The first number for which a condition holds that holds for all later ones; the end of the range if there is none."""
    low, high = numbers.start, numbers.stop
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _cheapest(rows: Sequence[RiskRow]) -> int | None:
    totals = [
        (row.fleet_cost_per_year + row.missed_cost_per_year, row.replicas)
        for row in rows
        if row.fleet_cost_per_year is not None and row.missed_cost_per_year is not None
    ]
    return min(totals)[1] if totals else None

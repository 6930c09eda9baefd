"""The risk of a plan: the probability that a number of replicas keeps the SLO, and the cost of missing it."""

import bisect
import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from perfkit.plan.capacity import HOURS_PER_YEAR, ReplicaCount
from perfkit.plan.evidence import Evidence
from perfkit.plan.fleet_risk import (
    Balancing,
    Demand,
    ReplicaCapacity,
    Splitting,
    expected_over_failures,
    holding_probability,
    safe_demand_per_s,
)
from perfkit.plan.inputs import PlanInputs
from perfkit.plan.rate_curve import RateCurve, Spread
from perfkit.plan.slo_capacity import Capacity
from perfkit.result.load import OpenLoad

SAFE = 0.9
"""The probability of keeping the SLO at the safe demand."""
LIKELY = 0.95
"""The probability of keeping the SLO with the fewest replicas that are reported."""
_ROWS, _NEGLIGIBLE, _CERTAIN, _FURTHEST = 24, 0.01, 0.995, 4


@dataclasses.dataclass(frozen=True, slots=True)
class RiskRow:
    """A number of replicas, the probabilities that it keeps the SLO at the peak demand, and its cost."""

    replicas: int
    all_up: float
    """The probability that the SLO holds with all replicas."""
    one_lost: float
    """The probability that it holds with one replica lost."""
    zone_lost: float | None
    """While the largest zone is lost; None without zones."""
    with_failures: float | None
    """The mean over the number of failed replicas; None without an availability."""
    missed_hours_per_year: float
    """The expected hours in which the SLO is missed."""
    fleet_cost_per_year: float | None
    missed_cost_per_year: float | None
    """The expected cost of the missed hours; None without an outage cost."""


@dataclasses.dataclass(frozen=True, slots=True)
class FleetRisk:
    """The risk of the planned number of replicas, and of others."""

    replicas: int
    demand_low_per_s: float
    demand_high_per_s: float
    """The 90 % interval of the peak demand; both ends are equal if it is exact."""
    hours_per_year: float
    """The hours in which the SLO can be missed: those of the demand profile, or those at the peak demand."""
    safe_demand_per_s: float
    """The peak demand (median) at which the planned replicas keep the SLO with a probability of 90 %."""
    fewest_all_up: int | None
    """The fewest replicas that keep the SLO with a probability of 95 %; None beyond four times the planned number."""
    fewest_one_lost: int | None
    """The same while one of them is down."""
    rows: tuple[RiskRow, ...]
    """By ascending number of replicas, from a negligible to a nearly certain probability of keeping the SLO."""
    splitting: str
    largest_share: float
    """The load of the busiest replica ÷ the mean."""
    even_time_ns: float
    """The percentile that decides the capacity, at a replica with the mean rate."""
    busiest_time_ns: float | None
    """The same percentile at the replica with the largest share; None if that replica is saturated."""
    cheapest_replicas: int | None
    """The number of replicas, within the range of `rows`, that costs least with its missed hours; None if a price is unknown."""

    def row(self, replicas: int) -> RiskRow | None:
        """The probabilities of a number of replicas; None if it is not in `rows`."""
        return next((row for row in self.rows if row.replicas == replicas), None)


def fleet_risk(
    capacity: Capacity, curve: RateCurve, fleet: ReplicaCount, price_per_hour: float | None, batch_size: int, inputs: PlanInputs
) -> FleetRisk:
    """The risk of a planned configuration; `curve` is that of the percentile that decides its capacity."""
    risk = inputs.risk
    demand, splitting = Demand.within(inputs.demand_per_s, risk.demand_uncertainty), risk.splitting
    replica = replica_capacity(capacity, curve.spread, batch_size)

    @functools.cache
    def holding(replicas: int, level: float = 1.0) -> float:
        return holding_probability(replica, Demand(level * demand.per_s, demand.log_sd), splitting, replicas)

    def fewest(lost: int) -> int | None:
        furthest = _FURTHEST * fleet.replicas + 2
        number = _first(range(1, furthest), lambda number: holding(number - lost) >= LIKELY)
        return number if number < furthest else None

    hours = demand_levels(inputs)

    def row_of(replicas: int) -> RiskRow:
        return _row(holding, replicas, price_per_hour, inputs, hours)

    rows = _with_cheapest([row_of(replicas) for replicas in _numbers(holding, fleet.replicas, inputs.zones)], row_of)
    rate, largest = fleet.rate_per_replica_per_s / batch_size, splitting.largest_share(fleet.replicas)
    busiest_ns = curve.value(rate * largest)
    return FleetRisk(
        replicas=fleet.replicas,
        demand_low_per_s=demand.quantile_per_s(0.05),
        demand_high_per_s=demand.quantile_per_s(0.95),
        hours_per_year=sum(hours.values()),
        safe_demand_per_s=safe_demand_per_s(replica, demand, splitting, fleet.replicas, SAFE),
        fewest_all_up=fewest(0),
        fewest_one_lost=fewest(1),
        rows=rows,
        splitting=splitting.sentence(fleet.replicas),
        largest_share=largest,
        even_time_ns=curve.value(rate),
        busiest_time_ns=busiest_ns if math.isfinite(busiest_ns) else None,
        cheapest_replicas=_cheapest(rows),
    )


def replica_capacity(capacity: Capacity, spread: Spread, batch_size: int = 1) -> ReplicaCapacity:
    """The distribution of a replica's capacity in inferences per second: the error of its mean, and the spread between restarts."""
    draws = tuple(batch_size * draw for draw in capacity.draws_per_s)
    return ReplicaCapacity(draws, spread.run_sd * capacity.speed_elasticity, spread.run_degrees)


def demand_levels(inputs: PlanInputs) -> dict[float, float]:
    """The hours of a year by relative demand (demand ÷ the profile's peak, in steps of 0.01), descending.

    Without a profile, or with given peak hours, these are the hours at the peak alone.
    """
    if inputs.day is None or inputs.risk.peak_hours_per_day is not None:
        return {1.0: 365 * (24 if inputs.risk.peak_hours_per_day is None else inputs.risk.peak_hours_per_day)}
    profile = inputs.day.profile
    levels = collections.Counter(round(hourly / profile.peak_per_s, 2) for hourly in profile.hourly_peaks_per_s())
    period_hours = sum(levels.values())
    return {level: HOURS_PER_YEAR * levels[level] / period_hours for level in sorted(levels, reverse=True) if level > 0}


def arrivals_notes(evidence: Evidence, splitting: Splitting) -> Iterator[str]:
    """A note if the measured arrivals are more regular than those that a replica will receive."""
    loads = [point.measured.load for point in evidence.open_points]
    is_regular = any(isinstance(load, OpenLoad) and (load.arrivals == "constant" or load.gap_variation < 1) for load in loads)
    if is_regular and (splitting.balancing is Balancing.RANDOM or splitting.shares):
        yield (
            "The arrivals that were measured are more regular than those of a replica to which requests are split at random: the capacity may be "
            "overestimated; measure with arrivals: poisson, or give --balancing round-robin."
        )


def _row(
    holding: Callable[..., float], replicas: int, price_per_hour: float | None, inputs: PlanInputs, hours: Mapping[float, float]
) -> RiskRow:
    risk = inputs.risk

    def expected(level: float) -> float:
        if risk.availability is None:
            return holding(replicas, level)
        return expected_over_failures(lambda up: holding(up, level), replicas, risk.availability)

    missed_hours = sum((1 - expected(level)) * of_level for level, of_level in hours.items())
    return RiskRow(
        replicas=replicas,
        all_up=holding(replicas),
        one_lost=holding(replicas - 1),
        zone_lost=holding(replicas - _largest_zone(replicas, inputs.zones)) if inputs.zones else None,
        with_failures=None if risk.availability is None else expected(1.0),
        missed_hours_per_year=missed_hours,
        fleet_cost_per_year=None if price_per_hour is None else replicas * price_per_hour * HOURS_PER_YEAR,
        missed_cost_per_year=None if risk.outage_cost is None else missed_hours * risk.outage_cost.per_hour,
    )


def _largest_zone(replicas: int, zones: int) -> int:
    return math.ceil(replicas / zones)


def _numbers(holding: Callable[[int], float], planned: int, zones: int) -> list[int]:
    """The numbers of replicas of the rows, at most 27: evenly spaced, and the planned number with its neighbours."""

    def remaining(number: int) -> int:
        return number - max(1, _largest_zone(number, zones) if zones else 1)

    furthest = _FURTHEST * planned + 2
    lowest = _first(range(1, planned), lambda number: holding(number) >= _NEGLIGIBLE)
    highest = _first(range(planned + 1, furthest), lambda number: holding(remaining(number)) >= _CERTAIN)
    spaced = {round(number) for number in np.linspace(lowest, highest, min(_ROWS, highest - lowest + 1)).tolist()}
    return sorted(number for number in {*spaced, planned - 1, planned, planned + 1} if number > 0)


def _first(numbers: range, holds: Callable[[int], bool]) -> int:
    """The first number that meets a condition that all later ones meet too; the end of the range if there is none."""
    return numbers.start + bisect.bisect_left(numbers, True, key=holds)


def _total_cost(row: RiskRow) -> float | None:
    """The cost of the replicas and of the missed hours; None if a price is unknown."""
    if row.fleet_cost_per_year is None or row.missed_cost_per_year is None:
        return None
    return row.fleet_cost_per_year + row.missed_cost_per_year


def _cheapest(rows: Sequence[RiskRow]) -> int | None:
    totals = [(total, row.replicas) for row in rows if (total := _total_cost(row)) is not None]
    return min(totals)[1] if totals else None


def _with_cheapest(rows: Sequence[RiskRow], row_of: Callable[[int], RiskRow]) -> tuple[RiskRow, ...]:
    """The rows, with that of the number of replicas that costs least, which may lie between two of them.

    Assumption: the cost is convex between the neighbours of the cheapest row.
    """
    place = next((place for place, row in enumerate(rows) if row.replicas == _cheapest(rows)), None)
    if place is None:
        return tuple(rows)
    low, high = rows[max(place - 1, 0)].replicas, rows[min(place + 1, len(rows) - 1)].replicas
    known = {row.replicas: row for row in rows}

    def total(replicas: int) -> float:
        if replicas not in known:
            known[replicas] = row_of(replicas)
        return _total_cost(known[replicas]) or 0.0

    best = _first(range(low, high), lambda replicas: total(replicas) <= total(replicas + 1))
    return tuple(sorted({*rows, known[best]}, key=lambda row: row.replicas))

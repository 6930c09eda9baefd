"""The schedule of a capacity plan as frozen values: replicas over the day, their cost, and the time in which the SLO is missed."""

import dataclasses

from perfkit.plan.fleet_simulation import Sampling
from perfkit.plan.replica_queue import Interval

FIXED, SCHEDULED, AUTOSCALED, SPOT = "fixed", "schedule by hour", "autoscaled", "autoscaled with spot"
"""The names of the ways to run the fleet."""


@dataclasses.dataclass(frozen=True, slots=True)
class FleetWay:
    """A way to run the fleet: a fixed number of replicas, a schedule by hour, an autoscaler, an autoscaler with spot replicas."""

    name: str
    fewest: int
    most: int
    replica_hours_per_day: float
    """The replica hours that are paid for; a replica is paid for from its start."""
    missed_time: Interval | None
    """The share of windows in which the SLO is missed; None without a simulation."""
    worst_period: float | None
    """The largest missed time of a simulated day or week; None if only one was simulated."""
    slow_requests: float | None
    """The share of requests slower than the limit of the highest percentile."""
    missed_time_at_low: float | None
    """The share of windows in which the SLO is missed if the capacity is only its lower limit."""
    ready: tuple[float, ...] = ()
    """The mean number of ready replicas in each quarter of an hour."""


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """The cost of a way to run the fleet with one payment option."""

    way: str
    payment: str
    reserved: int
    """Replicas that are paid for at all times."""
    cost_per_month: float
    cost_per_year: float
    break_even_months: float | None = None
    """The time after which buying has cost less; None for a bought fleet, and if it never does within the lifetime."""
    missed_time: float | None = None
    """The share of time in which the SLO is missed; None without a simulation."""
    missed_cost_per_year: float | None = None
    """Expected for that time; None without a simulation or the cost of an hour."""
    rank: int | None = None
    """By the cost in all; None if the SLO is missed in more of the time than allowed, while another way keeps to it."""

    @property
    def total_per_year(self) -> float:
        """What the replicas cost, and the time in which the SLO is missed."""
        return self.cost_per_year + (self.missed_cost_per_year or 0.0)


@dataclasses.dataclass(frozen=True, slots=True)
class HourRow:
    """An hour of the day or week: its demand, and the replicas of each way."""

    start: str
    demand_per_s: float
    """The highest demand of the hour, in inferences per second."""
    fixed: int
    scheduled: int
    autoscaled: float
    """The mean number of ready replicas."""


@dataclasses.dataclass(frozen=True, slots=True)
class SimulatedReplica:
    """The queue that stands for a replica in the simulation."""

    servers: int
    mean_service_ns: float
    factor: float
    """By which the measured service times were multiplied, so that the simulated capacity equals the measured one."""
    percentile_ns: float
    """The simulated percentile that decides the capacity, at the autoscaler's target rate."""
    fitted_ns: float
    """The same percentile on the curve through the measurements."""


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """Demand over the day: the replicas, their cost, and the share of time in which the SLO is missed."""

    cold_start_s: float
    """The time that a new replica takes to serve, in seconds."""
    cold_start_source: str
    scale_down_delay_s: float
    target_per_s: float
    """The autoscaler's target for a replica, in requests per second."""
    minimum: int
    maximum: int
    window_s: float
    """The span over which the autoscaler averages, in seconds."""
    replica: SimulatedReplica | None
    refusal: str
    """Why the time in which the SLO is missed was not simulated; empty if it was."""
    sampling: Sampling | None
    mean_power_w: float | None
    """The mean power of the bought fleet; None without a purchase."""
    ways: tuple[FleetWay, ...]
    offers: tuple[Offer, ...]
    allowed_missed_time: float | None
    """The share of time in which the SLO may be missed by an offer with a rank; None: any, as that time has a cost."""
    hours: tuple[HourRow, ...]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    """Limitations of the simulation."""

    def way(self, name: str) -> FleetWay:
        """The way of that name."""
        return next(way for way in self.ways if way.name == name)

    @property
    def recommended(self) -> Offer | None:
        """The offer of rank 1; None without prices."""
        return next((offer for offer in self.offers if offer.rank == 1), None)

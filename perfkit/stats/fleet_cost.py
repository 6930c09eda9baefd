"""The cost of a fleet: on-demand, reserved and spot prices, and buying compared with renting."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from perfkit.stats.steps import Steps

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

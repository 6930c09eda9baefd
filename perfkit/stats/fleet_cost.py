"""What a fleet costs: on-demand, reserved and spot prices, and buying against renting."""

import dataclasses
from collections.abc import Sequence

from perfkit.stats.steps import Steps

HOURS_PER_YEAR = 8760.0
"""365 days; a month is a twelfth of it, 730 hours, as cloud providers count."""


@dataclasses.dataclass(frozen=True, slots=True)
class RentedFleet:
    """The mean cost per hour of replicas that are paid for by the hour, some of them reserved."""

    reserved: int
    """Paid for at all times, whether they run or not."""
    reserved_per_h: float
    others_per_h: float

    @property
    def per_h(self) -> float:
        """The mean cost per hour."""
        return self.reserved_per_h + self.others_per_h


def rent(running_shares: Sequence[float], price_per_h: float, reserved_price_per_h: float | None = None) -> RentedFleet:
    """The cost of a fleet with as many reserved replicas as cost least.

    `running_shares` are the shares of time in which at least 1, 2, 3, … replicas are running; they never rise. The i-th replica is reserved
    where the reserved price is below the other price times its share, since it is paid for at all times.
    """
    reserved = 0
    if reserved_price_per_h is not None:
        reserved = sum(reserved_price_per_h < price_per_h * share for share in running_shares)
    others = sum(running_shares[reserved:]) * price_per_h
    return RentedFleet(reserved, reserved * (reserved_price_per_h or 0.0), others)


def rent_with_spot(running_shares: Sequence[float], base: int, base_price_per_h: float, spot_price_per_h: float) -> RentedFleet:
    """The cost of a base that is always paid for, and of spot replicas above it."""
    return RentedFleet(base, base * base_price_per_h, sum(running_shares[base:]) * spot_price_per_h)


@dataclasses.dataclass(frozen=True, slots=True)
class BoughtFleet:
    """A fleet that is bought, written off in equal parts over its lifetime, and supplied with electricity."""

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
        """The time after which the purchase has cost less than the rent; None where that is not within the lifetime."""
        saved_per_h = rent_per_h - self.electricity_per_h
        hours = self.purchase / saved_per_h if saved_per_h > 0 else float("inf")
        return hours if hours <= self.lifetime_h else None


def mean_power_w(replicas: float, demand_per_s: Steps, end_s: float, rates_per_s: Sequence[float], powers_w: Sequence[float]) -> float:
    """The mean power of a fixed fleet over a demand that it shares evenly, interpolated between the powers measured at some rates.

    Below the lowest rate and above the highest one, the power is that at these rates.
    """
    import numpy as np

    edges = np.concatenate((demand_per_s.starts_s, [end_s]))
    powers = replicas * np.interp(demand_per_s.values / replicas, rates_per_s, powers_w)
    return float(np.sum(powers * np.diff(edges)) / (edges[-1] - edges[0]))

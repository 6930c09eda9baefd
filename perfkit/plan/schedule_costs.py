"""The cost of each way to run a fleet by payment option (on demand, reserved, spot, bought), and the ranking of these offers."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.errors import UsageError
from perfkit.plan.capacity import HOURS_PER_YEAR, BoughtFleet, RentedFleet, mean_power_w, rent, rent_with_spot
from perfkit.plan.day_inputs import DayInputs
from perfkit.plan.evidence import KEPT_UP
from perfkit.plan.fleet_simulation import FleetOutcome
from perfkit.plan.model import ConfigurationPlan
from perfkit.plan.schedule_model import FIXED, SPOT, Offer

_W_PER_KW, _MONTHS = 1000.0, 12
ALLOWED_MISSED_TIME = 0.01
"""The share of time in which a way may miss the SLO, where neither it nor the cost of that time is given."""
NO_POWER = "--purchase: the results hold no power of GPUs; give the power of a replica, such as --power 700W"


def offers(chosen: ConfigurationPlan, day: DayInputs, outcomes: Mapping[str, FleetOutcome], power_w: float | None) -> tuple[Offer, ...]:
    """The cost of every way to run the fleet, for each payment option that applies; empty without prices."""
    assert chosen.fleet is not None
    price = chosen.price_per_hour
    if price is None:
        return ()
    bought = None
    if day.purchase is not None and power_w is not None:
        electricity_per_h = power_w / _W_PER_KW * day.purchase.electricity_per_kwh
        bought = BoughtFleet(chosen.fleet.replicas, chosen.fleet.replicas * day.purchase.price, day.purchase.lifetime_h, electricity_per_h)

    def offer(way: str, payment: str, rented: RentedFleet) -> Offer:
        hours = bought.break_even_h(rented.per_h) if bought else None
        per_year = rented.per_h * HOURS_PER_YEAR
        months = None if hours is None else hours / HOURS_PER_YEAR * _MONTHS
        return Offer(way, payment, rented.reserved, per_year / _MONTHS, per_year, months)

    rows = []
    for way, outcome in outcomes.items():
        shares = outcome.always_running_share
        if way == SPOT and day.spot is not None:
            base_price = min(price, day.reserved_per_hour or price)
            base = "a reserved" if base_price < price else "an on-demand"
            rows.append(offer(way, f"spot above {base} base", rent_with_spot(shares, outcome.fewest, base_price, day.spot.per_hour)))
            continue
        rows.append(offer(way, "on demand", rent(shares, price)))
        if day.reserved_per_hour is not None:
            rented = rent(shares, price, day.reserved_per_hour)
            payment = "reserved" if rented.reserved == len(shares) else "reserved and on demand"
            rows.append(offer(way, payment, rented))
    if bought is not None:
        per_year = bought.per_h * HOURS_PER_YEAR
        rows.append(Offer(FIXED, "bought", 0, per_year / _MONTHS, per_year))
    return tuple(rows)


def ranked(
    found: Sequence[Offer], missed: Mapping[str, float | None], allowed: float | None, outage_per_h: float | None
) -> tuple[Offer, ...]:
    """The offers with the time in which their way misses the SLO, its cost at `outage_per_h`, and their rank by the cost in all.

    An offer has a rank if its way misses the SLO in at most the `allowed` share of time, or if that time is unknown; if there is none, those
    that miss it least have one. None allows any share.
    """
    priced = []
    for offer in found:
        share = missed[offer.way]
        cost = None if share is None or outage_per_h is None else share * HOURS_PER_YEAR * outage_per_h
        priced.append(dataclasses.replace(offer, missed_time=share, missed_cost_per_year=cost, rank=None))
    shares = [offer.missed_time or 0.0 for offer in priced]
    limit = max(1.0 if allowed is None else allowed, min(shares, default=0.0))
    totals = sorted(offer.total_per_year for offer, share in zip(priced, shares, strict=True) if share <= limit)
    return tuple(
        dataclasses.replace(offer, rank=totals.index(offer.total_per_year) + 1) if share <= limit else offer
        for offer, share in zip(priced, shares, strict=True)
    )


def fleet_power_w(chosen: ConfigurationPlan, day: DayInputs) -> float:
    """The mean power of the fixed fleet over the profile: given, otherwise measured; raises UsageError without either."""
    assert chosen.fleet is not None
    assert day.purchase is not None
    if day.purchase.power_w is not None:
        return chosen.fleet.replicas * day.purchase.power_w
    measured = {point.rate_per_s: point.power_w for point in chosen.points if point.power_w is not None and point.state == KEPT_UP}
    idle = [point.idle_power_w for point in chosen.points if point.idle_power_w is not None]
    if not measured:
        raise UsageError(NO_POWER)
    if idle:
        measured[0.0] = min(idle)
    demand = day.profile.steps(chosen.batch_size).over(0.0, day.profile.length_s)
    rates = np.array(sorted(measured))
    return mean_power_w(chosen.fleet.replicas, demand, day.profile.length_s, rates.tolist(), [measured[rate] for rate in rates.tolist()])

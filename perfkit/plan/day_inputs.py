"""The inputs of a plan for demand over the day: the profile, the autoscaler, and the prices of several ways to pay."""

import dataclasses
import re
from collections.abc import Sequence

from perfkit.errors import UsageError
from perfkit.plan.capacity import HOURS_PER_YEAR
from perfkit.plan.input_texts import AMOUNT, Price, parse_price, parsed
from perfkit.plan.steps import SCALE_DOWN_DELAY_S, DemandProfile
from perfkit.units import NS_PER_S, parse_duration_ns, parse_share

_AMOUNT = re.compile(AMOUNT)
_LIFETIME = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>years?|y|months?|mo)")
_LONGEST_DELAY_S, _LONGEST_LIFETIME_YEARS = 3600.0, 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Spot:
    """The price of a spot replica, and how often it is interrupted."""

    per_hour: float
    interruptions_per_h: float
    """Interruptions of one replica per hour: 0.05 is one in 20 hours."""


@dataclasses.dataclass(frozen=True, slots=True)
class Purchase:
    """What a replica costs that is bought."""

    price: float
    lifetime_h: float
    electricity_per_kwh: float
    power_w: float | None
    """The power of a replica at any load; None takes the power that was measured."""


@dataclasses.dataclass(frozen=True, slots=True)
class DayInputs:
    """What a plan needs to know for a demand that changes over the day."""

    profile: DemandProfile
    cold_start_s: float | None = None
    """From the start of a replica until it takes requests; None takes the time that was measured."""
    scale_down_delay_s: float = SCALE_DOWN_DELAY_S
    """How long replicas are kept after the demand fell, in seconds."""
    minimum: int | None = None
    """The fewest replicas of the autoscaler; None: one more than the redundancy."""
    maximum: int | None = None
    """The most replicas of the autoscaler; None: as many as serve the peak."""
    reserved_per_hour: float | None = None
    spot: Spot | None = None
    purchase: Purchase | None = None
    allowed_missed_time: float | None = None
    """The share of time in which a way to run the fleet may miss the SLO, to be recommended; None: 1 %, or any if an hour of it has a cost."""


def parse_seconds(text: str, option: str) -> float:
    """Parse a duration such as `90s` or `5m`; raises UsageError."""
    duration_s = parsed(option, text, parse_duration_ns) / NS_PER_S
    if duration_s > _LONGEST_DELAY_S:
        raise UsageError(f"{option} {text!r}: at most {_LONGEST_DELAY_S / 60:g}m")
    return duration_s


def parse_allowed_missed_time(text: str) -> float:
    """Parse `0.5%`, a share of the time; raises UsageError."""
    share = parsed("--allowed-missed-time", text, parse_share)
    if "%" not in text or share >= 1:
        raise UsageError(f"--allowed-missed-time {text!r}: expected a share of the time below 100%, with its unit, such as 0.5%")
    return share


def parse_spot(price: str | None, interruptions: str | None, prices: Sequence[Price]) -> Spot | None:
    """Parse a spot price such as `$0.90/h`, and a rate of interruptions such as `5%/h`; None without both. Raises UsageError."""
    if price is None and interruptions is None:
        return None
    if price is None or interruptions is None:
        given, missing = ("--spot-price", "--spot-interruptions 5%/h") if price else ("--spot-interruptions", "--spot-price '$0.90/h'")
        raise UsageError(f"{given} needs {missing}: the risk of an interruption is part of a spot price")
    per_hour = parse_price_like("--spot-price", price, prices)
    share, _, unit = interruptions.partition("/")
    if unit.strip() not in ("h", "hour") or "%" not in share:
        raise UsageError(
            f"--spot-interruptions {interruptions!r}: expected the share of the replicas that are lost in an hour, with its unit, such as 5%/h"
        )
    return Spot(per_hour, parsed("--spot-interruptions", interruptions, parse_share, share))


def parse_purchase(
    price: str | None, lifetime: str | None, electricity: str | None, power_w: float | None, prices: Sequence[Price]
) -> Purchase | None:
    """Parse a purchase price such as `$30,000`, a lifetime such as `3y`, and `$0.25/kWh`; None without them. Raises UsageError."""
    given = {"--purchase '$30,000'": price, "--lifetime 3y": lifetime, "--electricity '$0.25/kWh'": electricity}
    if not any(given.values()):
        if power_w is not None:
            raise UsageError("--power is the power of a bought replica, and needs --purchase, --lifetime and --electricity")
        return None
    if price is None or lifetime is None or electricity is None:
        missing = " and ".join(option for option, text in given.items() if text is None)
        raise UsageError(f"buying against renting needs {missing} too")
    kwh, slash, unit = electricity.rpartition("/")
    if not slash or unit.strip().lower() != "kwh":
        raise UsageError(f"--electricity {electricity!r}: expected a price of a kilowatt hour, such as $0.25/kWh")
    bought, per_kwh = _amount("--purchase", price, "$30,000", prices), _amount("--electricity", kwh, "$0.25/kWh", prices)
    match = _LIFETIME.fullmatch(lifetime.strip())
    years = float(match["number"]) / (1 if match["unit"].startswith("y") else 12) if match else 0.0
    if not 0 < years <= _LONGEST_LIFETIME_YEARS:
        raise UsageError(f"--lifetime {lifetime!r}: expected years or months up to {_LONGEST_LIFETIME_YEARS:g} years, such as 3y or 36mo")
    return Purchase(bought, years * HOURS_PER_YEAR, per_kwh, power_w)


def parse_price_like(option: str, text: str, prices: Sequence[Price]) -> float:
    """Parse the price of a replica per hour in the currency of the other prices; raises UsageError, also without other prices."""
    price = parse_price(text, option, "the price of a replica per hour, with its unit")
    _check_currency(option, text, price.currency, prices)
    return price.per_hour


def _amount(option: str, text: str, example: str, prices: Sequence[Price]) -> float:
    match = _AMOUNT.fullmatch(text.strip())
    if not match or (match["before"] and match["after"]):
        raise UsageError(f"{option} {text!r}: expected an amount such as {example}")
    _check_currency(option, text, match["before"] or match["after"] or "", prices)
    amount = float(match["amount"].replace(",", ""))
    if not amount:
        raise UsageError(f"{option} {text!r}: an amount must be above zero")
    return amount


def _check_currency(option: str, text: str, currency: str, prices: Sequence[Price]) -> None:
    if not prices:
        raise UsageError(f"{option} {text!r}: there is nothing to compare it with; give the on-demand price too, such as --price '$2.50/h'")
    if other := [price.currency for price in prices if price.currency != currency]:
        raise UsageError(f"{option} {text!r}: the currency differs from that of --price, {other[0] or 'none'}; use one currency")

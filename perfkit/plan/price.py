"""Prices per hour: parsed from command-line texts, with their currency."""

import dataclasses
import re
from collections.abc import Sequence

from perfkit.errors import UsageError

AMOUNT = r"(?P<before>[^\d\s.,/=-]*)\s*(?P<amount>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)\s*(?P<after>[^\d\s/]*)"
"""A pattern of an amount with its currency before or after it, such as `$30,000` or `2.50 EUR`."""
_PRICE = re.compile(rf"(?:(?P<label>.+)=)?\s*{AMOUNT}\s*/\s*(?P<unit>h|hour)")


@dataclasses.dataclass(frozen=True, slots=True)
class Price:
    """A price per hour, and its currency as the user wrote it."""

    per_hour: float
    currency: str


def parse_price(text: str, option: str, meaning: str) -> Price:
    """Parse a price such as `2.50/h`, `$2.50/h` or `2.50 EUR/h`; raises UsageError, whose message says the `meaning` of the price."""
    label, price = _parse(text, option, meaning, "$2.50/h")
    if label:
        raise UsageError(f"{option} {text!r}: this price has no label; leave out {label!r}")
    return price


def parse_prices(texts: Sequence[str]) -> dict[str, Price]:
    """Parse prices of a replica such as `2.50/h` and `LABEL=$2.50/h`, by label; raises UsageError, also for contradictory ones."""
    prices: dict[str, Price] = {}
    for text in texts:
        label, price = _parse(text, "--price", "the price of a replica per hour, with its unit", "2.50/h or batch=$2.50/h")
        if prices.setdefault(label, price) != price:
            raise UsageError(f"--price: {label or 'the general price'} is {_price_text(prices[label])} and {_price_text(price)}; give one")
    if len({price.currency for price in prices.values()}) > 1:
        listed = " and ".join(sorted({_price_text(price) for price in prices.values()}))
        raise UsageError(f"--price: the prices must be in one currency, found {listed}")
    return prices


def _parse(text: str, option: str, meaning: str, example: str) -> tuple[str, Price]:
    match = _PRICE.fullmatch(text.strip())
    if not match or (match["before"] and match["after"]):
        raise UsageError(f"{option} {text!r}: expected {meaning}, such as {example}")
    price = Price(float(match["amount"].replace(",", "")), match["before"] or match["after"] or "")
    if not price.per_hour:
        raise UsageError(f"{option} {text!r}: a price must be above zero")
    return (match["label"] or "").strip(), price


def _price_text(price: Price) -> str:
    return f"{price.per_hour:g} {price.currency}/h".replace(" /", "/")

"""What a user writes in texts: prices per hour with their currency, and the rows of a CSV file with their places."""

import csv
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from perfkit.errors import UsageError

_T = TypeVar("_T")
AMOUNT = r"(?P<before>[^\d\s.,/=-]*)\s*(?P<amount>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)\s*(?P<after>[^\d\s/]*)"
"""A pattern of an amount with its currency before or after it, such as `$30,000` or `2.50 EUR`."""
_PRICE = re.compile(rf"(?:(?P<label>.+)=)?\s*{AMOUNT}\s*/\s*(?P<unit>h|hour)")


def parsed(option: str, text: str, parse: Callable[[str], _T], part: str | None = None) -> _T:
    """What `parse` makes of an option's text, or of a part of it; its ValueError as a UsageError that names the option."""
    try:
        return parse(text if part is None else part)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}") from None


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


@dataclasses.dataclass(frozen=True, slots=True)
class CsvRow:
    """A row below the header, with its cells by column."""

    place: str
    """`FILE:LINE`, the header being line 1."""
    cells: Mapping[str, str]
    """Without surrounding white space; the cells that a short row lacks are missing."""

    def shown(self, column: str) -> str:
        """The start of a cell for a message, in quotes."""
        return repr(self.cells.get(column, "")[:50])


@dataclasses.dataclass(frozen=True, slots=True)
class CsvRows:
    """The contents of a CSV file."""

    columns: tuple[str, ...]
    """In lower case; empty for an empty file."""
    rows: tuple[CsvRow, ...]
    """Without empty lines."""

    @property
    def shown_columns(self) -> str:
        """The columns for a message."""
        shown = ", ".join(self.columns)[:100] or "nothing"
        return f"{shown}; separate columns by commas" if len(self.columns) == 1 and {";", "\t"} & set(self.columns[0]) else shown


def parse_csv(text: str, name: str) -> CsvRows:
    """Parse the text of the file `name`; raises UsageError."""
    try:
        lines = list(csv.reader(text.lstrip("\ufeff").splitlines(), skipinitialspace=True))
    except csv.Error as error:
        raise UsageError(f"{name}: cannot be read as CSV: {error}") from None
    columns = tuple(cell.strip().lower() for cell in lines[0]) if lines else ()
    if twice := [column for index, column in enumerate(columns) if column and column in columns[:index]]:
        raise UsageError(f"{name}: the column {twice[0][:50]} appears twice; give it once")
    rows = (
        CsvRow(f"{name}:{number}", dict(zip(columns, (cell.strip() for cell in line), strict=False)))
        for number, line in enumerate(lines[1:], 2)
        if any(cell.strip() for cell in line)
    )
    return CsvRows(columns, tuple(rows))

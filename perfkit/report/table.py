"""A table: values by column, which Markdown, HTML, CSV and JSON show each in its way."""

import csv
import dataclasses
import io
from collections.abc import Callable
from typing import Any

from perfkit.units import format_duration_ns, format_rate_per_s

NOTHING = "–"
Format = Callable[[Any], str]


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{100 * value:.3g}%"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}%"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


FORMATS: dict[str, Format] = {
    "_ns": format_duration_ns,
    "_s": lambda value: format_duration_ns(value * 1e9),
    "_per_s": format_rate_per_s,
    "share": _share,
    "error": _signed,
    "_w": lambda value: f"{value:,.4g} W",
    "_j": lambda value: f"{value:,.3g} J",
    "cost": lambda value: f"{value:,.2f}",
    "count": lambda value: f"{value:,}",
    "number": _number,
    "yes": _yes,
    "text": str,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in CSV and JSON, its heading for people, and how its values are written for them."""

    key: str
    heading: str
    kind: str = "text"

    @property
    def is_figure(self) -> bool:
        """Whether it stands on the right."""
        return self.kind not in ("text", "yes")

    def text(self, value: Any) -> str:
        """A value for people; a dash for None."""
        return NOTHING if value is None else FORMATS[self.kind](value)


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table; `name` is its file's, `note` says what it rests on."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    shown: int | None = None
    """How many of the rows people are shown; None all of them."""

    @property
    def texts(self) -> list[list[str]]:
        """The rows as people read them."""
        return [[column.text(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows[: self.shown]]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows by key."""
        return [{column.key: value for column, value in zip(self.columns, row, strict=True)} for row in self.rows]


def csv_text(table: Table) -> str:
    """The table as CSV, with its keys for a heading; what is not known is empty."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    writer.writerows(
        [["" if value is None else f"{value:.6g}" if isinstance(value, float) else value for value in row] for row in table.rows]
    )
    return written.getvalue()


def without_empty(table: Table) -> Table:
    """The table without the columns that no row fills."""
    kept = [place for place in range(len(table.columns)) if any(row[place] is not None for row in table.rows)]
    return dataclasses.replace(
        table, columns=tuple(table.columns[place] for place in kept), rows=tuple(tuple(row[place] for place in kept) for row in table.rows)
    )

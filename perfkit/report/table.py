"""Tables: values by column, which the terminal, Markdown, HTML, CSV and JSON all render."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from perfkit.units import format_duration_ns, format_rate_per_s

if TYPE_CHECKING:
    import pandas as pd

MISSING = "–"
Kind = Literal[
    "text", "prose", "code", "yes_no", "duration_ns", "rate_per_s", "share", "error_rate", "signed_share", "power_w", "energy_j", "cost",
    "count", "number",
]  # fmt: skip
"""How a column's values are written for people; `prose` may wrap."""
Mark = Literal["", "invalid", "pass", "regressed", "inconclusive", "information"]
"""What sets a row apart; the renderers show it by colour or in italics."""


def format_error_rate(value: float) -> str:
    """A share as a percentage; a small one is told apart from none at all."""
    if 0 < value < 0.0001:
        return "<0.01%"
    return f"{value:.2%}" if value else "0"


def _format_number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


_FORMATS: dict[Kind, Callable[[Any], str]] = {
    "text": str,
    "prose": str,
    "code": str,
    "yes_no": lambda value: "yes" if value else "no",
    "duration_ns": format_duration_ns,
    "rate_per_s": format_rate_per_s,
    "share": lambda value: f"{100 * value:.3g}%",
    "error_rate": format_error_rate,
    "signed_share": lambda value: f"{100 * value:+.1f}%",
    "power_w": lambda value: f"{value:,.4g} W",
    "energy_j": lambda value: f"{value:,.3g} J",
    "cost": lambda value: f"{value:,.2f}",
    "count": lambda value: f"{value:,}",
    "number": _format_number,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A value whose text is not that of its column's kind, or that has a note (a tooltip in HTML)."""

    value: Any
    text: str | None = None
    note: str = ""


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Cell) else value


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in CSV and JSON, its heading for people, and the kind of its values."""

    key: str
    heading: str
    kind: Kind = "text"
    is_right: bool | None = None
    """Whether the values are aligned to the right; None: by the kind."""

    @property
    def is_figure(self) -> bool:
        """Whether the values are aligned to the right."""
        return self.kind not in ("text", "prose", "code", "yes_no") if self.is_right is None else self.is_right

    def cell(self, value: Any) -> Cell:
        """A value with its text for people; None becomes a dash."""
        cell = value if isinstance(value, Cell) else Cell(value)
        if cell.text is not None:
            return cell
        return dataclasses.replace(cell, text=MISSING if cell.value is None else _FORMATS[self.kind](cell.value))


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table. `name` is its file's name, `note` the caption that explains its figures."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    """Values or `Cell`s, one a column; None is a missing value."""
    note: str = ""
    marks: tuple[Mark, ...] = ()
    """One a row, or none at all."""
    shown_rows: int | None = None
    """The number of rows shown to people; None: all. CSV and JSON hold all of them."""

    @property
    def headings(self) -> list[str]:
        """The columns' headings."""
        return [column.heading for column in self.columns]

    @property
    def cells(self) -> list[tuple[Mark, list[Cell]]]:
        """The rows shown to people: the mark, and the cells with their texts."""
        marks: tuple[Mark, ...] = self.marks or tuple("" for _ in self.rows)
        rows = list(zip(marks, self.rows, strict=True))[: self.shown_rows]
        return [(mark, [column.cell(value) for column, value in zip(self.columns, row, strict=True)]) for mark, row in rows]

    @property
    def texts(self) -> list[list[str]]:
        """The texts of the rows shown to people."""
        return [[cell.text or "" for cell in cells] for _, cells in self.cells]

    @property
    def records(self) -> list[dict[str, Any]]:
        """All rows as values by key."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, map(_plain, row), strict=True)) for row in self.rows]

    def without_empty_columns(self) -> "Table":
        """The table without the columns that hold no value."""
        filled = [index for index in range(len(self.columns)) if any(_plain(row[index]) is not None for row in self.rows)]
        return dataclasses.replace(
            self,
            columns=tuple(self.columns[index] for index in filled),
            rows=tuple(tuple(row[index] for index in filled) for row in self.rows),
        )


def render_csv(table: Table, digits: int | None = None) -> str:
    """The table as CSV, with its keys as header; missing values are empty. `digits` are the significant digits of floats."""
    return _frame(table).to_csv(index=False, lineterminator="\n", float_format=None if digits is None else f"%.{digits}g")


def _frame(table: Table) -> "pd.DataFrame":
    import pandas as pd

    records = table.records
    columns = {column.key: [record[column.key] for record in records] for column in table.columns}
    return pd.DataFrame({key: pd.Series(values, dtype=_dtype(values)) for key, values in columns.items()})


def _dtype(values: list[Any]) -> str:
    """Integers stay integers beside missing values; pandas alone would make them floats."""
    types = {type(value) for value in values if value is not None}
    if types == {int}:
        return "Int64"
    return "float64" if types and types <= {int, float} else "object"

"""Tables: values by column, which the terminal, Markdown, HTML, CSV and JSON all render."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from perfkit.stats.ratio_interval import Estimate
from perfkit.text import LONGEST_SENTENCE, one_line, safe_lines
from perfkit.units import format_bytes, format_duration_ns, format_rate_per_s

MISSING = "–"
Kind = Literal[
    "text", "prose", "code", "figure", "yes_no", "duration_ns", "rate_per_s", "share", "error_rate", "signed_share", "power_w", "energy_j", "cost",
    "count", "bytes", "number",
]  # fmt: skip
"""The format of a column's values; `prose` may wrap, and `figure` is text that is aligned like a number."""
Mark = Literal["", "invalid", "pass", "regressed", "inconclusive", "improved", "information"]
"""The emphasis of a row, which the renderers show by colour or in italics."""
_WHOLE_FROM, _SMALL_COST = 1000, 0.1


def format_error_rate(value: float) -> str:
    """A share as a percentage; a small one is not rounded to zero."""
    if 0 < value < 0.0001:
        return "<0.01%"
    return f"{value:.2%}" if value else "0"


def format_cost(value: float) -> str:
    """An amount of money; without cents from 1,000 on, which would suggest a precision that no measurement has; a small one is not rounded to 0."""
    if 0 < value < _SMALL_COST:
        return f"{value:.2g}"
    return f"{value:,.{0 if value >= _WHOLE_FROM else 2}f}"


def _format_number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


_FORMATS: dict[Kind, Callable[[Any], str]] = {
    "text": str,
    "prose": str,
    "code": str,
    "figure": str,
    "yes_no": lambda value: "yes" if value else "no",
    "duration_ns": format_duration_ns,
    "rate_per_s": format_rate_per_s,
    "share": lambda value: f"{100 * value:.3g}%",
    "error_rate": format_error_rate,
    "signed_share": lambda value: f"{100 * value:+.1f}%",
    "power_w": lambda value: f"{value:,.4g} W",
    "energy_j": lambda value: f"{value:,.3g} J",
    "cost": format_cost,
    "count": lambda value: f"{value:,}",
    "bytes": format_bytes,
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


def attribute(path: str) -> Callable[[Any], Any]:
    """A function that gives an item's attribute at a dotted path; None if a part of the path is None."""
    names = path.split(".")
    return lambda item: functools.reduce(lambda part, name: None if part is None else getattr(part, name), names, item)


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in CSV and JSON, its heading for people, and the kind of its values."""

    key: str
    heading: str
    kind: Kind = "text"
    value: Callable[[Any], Any] | None = None
    """Gives the value of a row's item; None: the item's attribute of the key's name."""
    is_in_files_only: bool = False
    """Whether only CSV and JSON hold it, since another column shows its value to people."""
    is_minor: bool = False
    """Whether a page leaves it out on a narrow screen."""

    @property
    def classes(self) -> str:
        """The classes of its cells on a page."""
        return " ".join(["figure"] * self.is_figure + ["prose"] * (self.kind == "prose") + ["minor"] * self.is_minor)

    @property
    def is_figure(self) -> bool:
        """Whether the values are aligned to the right."""
        return self.kind not in ("text", "prose", "code", "yes_no")

    def value_of(self, item: Any) -> Any:
        """The value, or the `Cell`, of a row's item."""
        return getattr(item, self.key) if self.value is None else self.value(item)

    def cell(self, value: Any) -> Cell:
        """A value with its text for people, without foreign control characters; None becomes a dash."""
        cell = value if isinstance(value, Cell) else Cell(value)
        text = cell.text
        if text is None:
            text = MISSING if cell.value is None else _FORMATS[self.kind](cell.value)
        text = safe_lines(text[:LONGEST_SENTENCE]) if self.kind == "prose" else one_line(text)
        return dataclasses.replace(cell, text=text, note=one_line(cell.note))


def range_cell(values: Sequence[float]) -> Cell:
    """The range of shares or counts as a cell, `10% to 40%` or `0 to 2`, whose value is the largest."""
    show = _FORMATS["count" if isinstance(max(values), int) else "share"]
    low, high = show(min(values)), show(max(values))
    return Cell(max(values), high if low == high else f"{low} to {high}")


def interval_columns(key: str, heading: str, kind: Kind, estimate_of: Callable[[Any], Estimate | None]) -> tuple[Column, Column, Column]:
    """The columns of an estimate: one for people, `300 ms (280 ms to 340 ms)`, and the interval's ends in files only.

    `key` names the first; the others get `_low` and `_high` before its unit: `p99_ns`, `p99_low_ns`, `p99_high_ns`.
    """
    unit = next((unit for unit in ("_ns", "_j", "_bytes", "_per_s") if key.endswith(unit)), "")

    def value_of(item: Any) -> Cell | None:
        estimate = estimate_of(item)
        return None if estimate is None else Cell(estimate.value, _estimate_text(estimate, _FORMATS[kind]))

    def end_of(end: str) -> Callable[[Any], Any]:
        return lambda item: None if (estimate := estimate_of(item)) is None else getattr(estimate, end)

    low, high = (
        Column(f"{key.removesuffix(unit)}_{end}{unit}", f"{heading} {end}", kind, end_of(end), is_in_files_only=True)
        for end in ("low", "high")
    )
    return Column(key, heading, kind, value_of), low, high


def _estimate_text(estimate: Estimate, show: Callable[[float], str]) -> str:
    value, low, high = (None if one is None else show(one) for one in (estimate.value, estimate.low, estimate.high))
    if (low is None and high is None) or estimate.low == estimate.high:
        return f"{value}"
    return f"{value} ({f'{low} to {high}' if low and high else f'{low} or more' if low else f'{high} or less'})"


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
    shown_rows: tuple[int, int] | None = None
    """The slice of rows shown to people, such as (0, 10); None: all. CSV and JSON hold all of them."""

    @classmethod
    def of(
        cls, name: str, title: str, columns: Sequence[Column], items: Iterable[Any], note: str = "", marks: Iterable[Mark] = ()
    ) -> "Table":
        """A table with a row for each item."""
        rows = tuple(tuple(column.value_of(item) for column in columns) for item in items)
        return cls(name, title, tuple(columns), rows, note, tuple(marks))

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        """The columns that people see; the others are in files only."""
        return tuple(column for column in self.columns if not column.is_in_files_only)

    @property
    def headings(self) -> list[str]:
        """The columns' headings."""
        return [one_line(column.heading) for column in self.shown_columns]

    @property
    def shown_marks(self) -> Sequence[Mark]:
        """The marks of the rows shown to people."""
        marks: tuple[Mark, ...] = self.marks or tuple("" for _ in self.rows)
        return marks[slice(*(self.shown_rows or (None,)))]

    @property
    def cells(self) -> list[tuple[Mark, list[Cell]]]:
        """The rows shown to people: the mark, and the cells with their texts."""
        pairs = [zip(self.columns, row, strict=True) for row in self.rows[slice(*(self.shown_rows or (None,)))]]
        cells = [[column.cell(value) for column, value in row if not column.is_in_files_only] for row in pairs]
        return list(zip(self.shown_marks, cells, strict=True))

    @property
    def texts(self) -> list[list[str]]:
        """The texts of the rows shown to people."""
        return [[cell.text or "" for cell in cells] for _, cells in self.cells]

    @property
    def records(self) -> list[dict[str, Any]]:
        """All rows as values by key."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, map(_plain, row), strict=True)) for row in self.rows]

    def without_columns(self, *keys: str) -> "Table":
        """The table without the columns of these keys."""
        return self._of_columns([column.key not in keys for column in self.columns])

    def without_empty_columns(self, *keys: str) -> "Table":
        """The table without the columns that hold no value, except those of the given keys."""
        filled = [any(_plain(row[index]) is not None for row in self.rows) for index in range(len(self.columns))]
        return self._of_columns([is_filled or column.key in keys for column, is_filled in zip(self.columns, filled, strict=True)])

    def _of_columns(self, kept: Sequence[bool]) -> "Table":
        columns, *rows = (tuple(itertools.compress(row, kept)) for row in (self.columns, *self.rows))
        return dataclasses.replace(self, columns=columns, rows=tuple(rows))

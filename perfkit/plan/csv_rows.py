"""The rows of a CSV file that a user gives, each with its place for error messages."""

import csv
import dataclasses
from collections.abc import Mapping

from perfkit.errors import UsageError


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

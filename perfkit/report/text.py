"""Tables and messages on the terminal."""

import os
import sys
import textwrap
from typing import Literal, TextIO

import rich.box
import rich.table
from rich.console import Console
from rich.text import Text

from perfkit.report.table import Mark, Table

_STYLES: dict[Mark, str] = {
    "invalid": "red", "pass": "green", "regressed": "bold red", "inconclusive": "yellow", "information": "dim",
}  # fmt: skip
_HEADING_WIDTH, _UNLIMITED = 18, 10_000
_WIDTH = 140  # without a terminal


def render_text(table: Table) -> str:
    """The table for stdout; styles are off where stdout is no terminal or NO_COLOR is set."""
    grid = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        heading = Text(textwrap.fill(column.heading, _HEADING_WIDTH, break_long_words=False))
        justify: Literal["left", "right"] = "right" if column.is_figure else "left"
        grid.add_column(heading, justify=justify, vertical="bottom", no_wrap=True)
    for mark, cells in table.cells:
        grid.add_row(*(Text(cell.text or "") for cell in cells), style=_STYLES.get(mark))
    output = console(sys.stdout)
    output.width = _UNLIMITED  # a row that the terminal wraps is better than a figure cut off
    with output.capture() as captured:  # printing to stdout itself, Rich would end the process when the reader has left
        output.print(grid)
    lines = [line.rstrip() for line in captured.get().splitlines() if line.strip()]
    return "\n".join([*lines, *([table.note] if table.note else []), ""])


def console(stream: TextIO) -> Console:
    """A console for text that wraps."""
    width = None if stream.isatty() else _WIDTH
    return Console(file=stream, highlight=False, width=width, no_color=None, color_system=None if "NO_COLOR" in os.environ else "auto")

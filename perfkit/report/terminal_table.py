"""Tables and text that fit the width of the terminal: columns give way, figures are never cut or wrapped."""

import contextlib
import dataclasses
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

from rich.text import Text

from perfkit.report.render import render_text
from perfkit.report.table import Table
from perfkit.text.foreign import sentence

_WIDTH = 80
_NARROW, _NARROWEST = 24, 8
"""The least width of a column of text whose cells are wrapped: before columns are left out, and after."""


def terminal_width() -> int:
    """The terminal's width: the variable COLUMNS, otherwise that of stdout, of stderr, or 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal():
        return int(columns) or _WIDTH
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a stream may say that it is a terminal and have no file
            if stream.isatty():
                return os.get_terminal_size(stream.fileno()).columns or _WIDTH
    return _WIDTH


def fill(text: str, width: int, stream: TextIO | None = None) -> str:
    """Wraps text to `width` if `stream`, by default stdout, is a terminal; through a pipe it stays on one line, which `grep` can find."""
    if not (_is_terminal() if stream is None else stream.isatty()):
        return text
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)


def fits(table: Table, width: int) -> bool:
    """Whether the table's text is at most `width` characters wide with all its columns."""
    return _text_width(_rendered(dataclasses.replace(table, note=""), width, _NARROW)) <= width


def fitted_text(table: Table, width: int, gives_way: Sequence[str], elsewhere: str = "result.json and the report have them") -> str:
    """A table as text of at most `width` characters.

    First gaps and headings are made narrow, and on a terminal long texts are wrapped. Then columns are left out, and a note names them
    with `elsewhere`, which says where they are; `gives_way` has the keys of these columns in that order. Figures are never wrapped or
    shortened, so the text may still be wider.
    """
    rest, left_out = dataclasses.replace(table, note=""), list[str]()
    for key in gives_way:
        if fits(rest, width):
            break
        if (column := next((one for one in rest.columns if one.key == key), None)) is not None:
            left_out.insert(0, column.heading)
            rest = rest.without_columns(key)
    notes = table.note.splitlines()
    if left_out:
        notes.append(f"left out at {width} columns: {', '.join(left_out)}; {elsewhere}")
    return "\n".join([_rendered(rest, width, _NARROWEST).rstrip("\n"), *(fill(sentence(note), width) for note in notes), ""])


def _rendered(table: Table, width: int, narrowest: int) -> str:
    """The table's text, with cells of text wrapped to `narrowest` characters, but only as far as `width` needs it."""
    text = render_text(table)
    if _text_width(text) <= width:
        return text
    text = render_text(table, is_narrow=True)
    texts = zip(*table.texts, strict=True)
    widths = {column.key: max(map(len, cells)) for column, cells in zip(table.shown_columns, texts, strict=False) if not column.is_figure}
    wrapped: dict[str, int] = {}
    while (
        _is_terminal()
        and (excess := _text_width(text) - width) > 0
        and (wide := {key: size for key, size in widths.items() if size > narrowest})
    ):
        widest = max(wide, key=lambda key: widths[key])
        second = max((size for key, size in widths.items() if key != widest), default=0)
        widths[widest] = wrapped[widest] = max(widths[widest] - excess, min(second, widths[widest] - 1), narrowest)
        text = render_text(table, wrapped, is_narrow=True)
    return text


def _text_width(text: str) -> int:
    return max((Text.from_ansi(line).cell_len for line in text.splitlines()), default=0)


def _is_terminal() -> bool:
    return sys.stdout.isatty()

"""Tables and pages as terminal text, Markdown, HTML and CSV. Foreign text in them is sanitized here."""

import base64
import csv
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import os
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO

from perfkit.digits import whole_number
from perfkit.report.page import Block, Bullets, Code, Fact, Facts, Figure, Headline, Item, Page, Paragraph, Section
from perfkit.report.table import Column, Mark, Table
from perfkit.text import LONGEST, csv_cell, one_line, safe_lines
from perfkit.text import markdown as escape
from perfkit.units import format_confidence

if TYPE_CHECKING:
    import jinja2
    from rich.console import Console

_STYLES: dict[Mark, str] = {
    "invalid": "red", "pass": "green", "regressed": "bold red", "inconclusive": "yellow", "improved": "bold green", "information": "dim",
}  # fmt: skip
_NOT_IN_CODE = re.compile(r"[^\w.-]", re.ASCII)
_NONE = "'none'"
SCRIPTS = {name: f"templates/{name}.js" for name in ("tables", "charts", "folds", "copies")}
_HEADING_WIDTH, _UNLIMITED, _GAP = 18, 10_000, 3
_WIDTH = 140  # without a terminal


def render_text(table: Table, widths: Mapping[str, int] | None = None, *, is_narrow: bool = False) -> str:
    """The table for stdout; styles are off where stdout is no terminal or NO_COLOR is set.

    `widths` has the keys of columns whose cells are wrapped, and the width of each. A narrow table has small gaps, and headings no wider
    than the cells and their own longest word.
    """
    import rich.box  # Rich is imported only here, and below: pages do without it
    import rich.table
    from rich.align import Align
    from rich.text import Text

    grid = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, collapse_padding=is_narrow)
    laid_out = _laid_out(table, widths or {}, is_narrow)
    for column, heading, _ in laid_out:
        side: Literal["left", "right"] = "right" if column.is_figure else "left"
        grid.add_column(Align(Text(heading), side, vertical="bottom"), justify=side, no_wrap=True)
    for index, mark in enumerate(table.shown_marks):
        grid.add_row(*(Text(texts[index]) for _, _, texts in laid_out), style=_STYLES.get(mark))
    output = console(sys.stdout)
    output.width = _UNLIMITED  # a row that the terminal wraps is better than a figure cut off
    with output.capture() as captured:  # printing to stdout itself, Rich would end the process when the reader has left
        output.print(grid)
    lines = [line.rstrip() for line in captured.get().splitlines() if line.strip()]
    return "\n".join([*lines, *([safe_lines(table.note)] if table.note else []), ""])


def text_width(table: Table, widths: Mapping[str, int] | None = None, *, is_narrow: bool = False) -> int:
    """The width of the text that `render_text` makes, but its note: found by arithmetic, which takes a hundredth of its time."""
    from rich.cells import cell_len

    columns = _laid_out(table, widths or {}, is_narrow)
    widest = (max((cell_len(line) for text in (heading, *texts) for line in text.splitlines()), default=0) for _, heading, texts in columns)
    gap = _GAP - is_narrow
    return sum(gap + width for width in widest) - gap + 1 if columns else 0


def _laid_out(table: Table, widths: Mapping[str, int], is_narrow: bool) -> list[tuple[Column, str, Sequence[str]]]:
    """The columns that people see, each with its heading and its cells, in lines."""
    columns = list[tuple[Column, str, Sequence[str]]]()
    cells = zip(*table.texts, strict=True) if table.rows else itertools.repeat(())
    for column, heading, texts in zip(table.shown_columns, table.headings, cells, strict=False):
        room = widths.get(column.key) or (max(map(len, texts), default=0) if is_narrow else _HEADING_WIDTH)
        wrapped = _wrapped_heading(heading, room) if is_narrow else textwrap.fill(heading, room, break_long_words=False)
        shown = [textwrap.fill(text, widths[column.key]) for text in texts] if column.key in widths else texts
        columns.append((column, wrapped, shown))
    return columns


def _wrapped_heading(heading: str, width: int) -> str:
    """A heading in lines of at most `width` characters where it has a space, a dot or an underscore."""
    lines = [""]
    for part in re.findall(r".+?(?:[._](?=[A-Za-z])| |$)", heading):
        if lines[-1] and len(f"{lines[-1]}{part}".rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def console(stream: TextIO) -> "Console":
    """A console for text that wraps."""
    from rich.console import Console

    width = None if stream.isatty() else _WIDTH
    # Rich cannot read a size of more than 4,300 digits
    environ = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES") or whole_number(text, _UNLIMITED)}
    return Console(
        file=stream,
        highlight=False,
        force_jupyter=False,
        width=width,
        color_system=None if "NO_COLOR" in environ else "auto",
        _environ=environ,
    )


def render_markdown(page: Page) -> str:
    """The page as Markdown, without figures, facts and code, which only HTML shows."""
    lines = [f"# {escape(page.title)}", ""]
    lines += [escape(page.subtitle), ""] if page.subtitle else []
    lines += [f"> **{escape(page.banner)}**", ""] if page.banner else []
    for section in page.sections:
        lines += [f"## {escape(section.title)}", ""] if section.title else []
        for block in section.blocks:
            lines += [*_render_block(block), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def render_markdown_table(table: Table) -> str:
    """The table with its note; rows for information alone are in italics."""
    ruler = "|".join("---:" if column.is_figure else "---" for column in table.shown_columns)
    lines = [f"| {' | '.join(map(escape, table.headings))} |", f"|{ruler}|"]
    for mark, cells in table.cells:
        texts = [escape(cell.text or "") for cell in cells]
        lines.append(f"| {' | '.join(f'*{text}*' if mark == 'information' else text for text in texts)} |")
    return "\n".join([*lines, "", escape(table.note)] if table.note else lines)


def _render_block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph():
            yield f"**{escape(block.text)}**" if block.is_strong else escape(block.text)
        case Bullets():
            yield from (f"{f'{number}.' if block.is_numbered else '-'} {_render_item(item)}" for number, item in enumerate(block.items, 1))
        case Table():
            yield render_markdown_table(block)
        case Code():
            fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", block.text) or [""]))
            yield from (fence, safe_lines(block.text), fence)
        case _:
            raise TypeError(f"{type(block).__name__} has no form in Markdown")


def _render_item(item: Item) -> str:
    subject = f"**{escape(item.subject)}**: " if item.subject else ""
    code = f" (`{_NOT_IN_CODE.sub('', item.code)[:LONGEST]}`)" if item.code else ""
    return f"{subject}{escape(item.text)}{code}"


@functools.cache
def page_template() -> "jinja2.Template":
    """The template of all pages, compiled."""
    import jinja2

    loader = jinja2.FileSystemLoader(pathlib.Path(__file__).with_name("templates"))
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(kind_of=lambda block: type(block).__name__, format_confidence=format_confidence)
    return environment.get_template("page.html.j2")


def render_html(page: Page) -> str:
    """The page as one self-contained HTML document: no fonts, no network, and only its own scripts."""
    from perfkit.report.chart_svg import dark_colours, page_panels

    page = _cleaned(page)
    blocks = [block for section in page.sections for block in section.blocks]
    groups = [block.charts for block in blocks if isinstance(block, Figure)]
    panels = [page_panels(group) for group in groups]
    scripts = [_script("tables")] if any(isinstance(block, Table) for block in blocks) else []
    scripts += [_script("charts")] if groups else []
    scripts += [_script("folds")] if any(section.is_folded for section in page.sections) else []
    scripts += [_script("copies")] if any(isinstance(block, Code) and block.is_command for block in blocks) else []
    data = [
        {
            "axis": one_line(group.axis),
            "is_synchronised": group.is_synchronised,
            "windows": [[window.low, window.high, one_line(window.label) + " (not valid)" * window.is_bad] for window in group.windows],
            "panels": [panel.data for panel in drawn],
        }
        for group, drawn in zip(groups, panels, strict=True)
    ]
    return page_template().render(
        page=page, next_panels=iter(panels).__next__, dark_colours=dark_colours(groups), scripts=scripts, policy=_security_policy(scripts),
        island=_json_island(data),
    )  # fmt: skip


def _script(name: str) -> str:
    """Reads a script that pages contain."""
    return (pathlib.Path(__file__).parent / SCRIPTS[name]).read_text(encoding="utf-8").strip()


def _json_island(value: Any) -> str:
    """The value as JSON in which `<`, `>` and `&` are escaped, so that it cannot end the element around it."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _security_policy(scripts: Sequence[str]) -> str:
    """The page's Content-Security-Policy, which allows these scripts only and loads nothing."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes or _NONE}; base-uri 'none'; form-action 'none'"


def _cleaned(part: Any) -> Any:
    """A page, or a part of one, without foreign control characters and commands; a picture is cleaned where it is drawn."""
    match part:
        case str():
            return safe_lines(part)
        case tuple():
            return tuple(map(_cleaned, part))
        case Column():
            return dataclasses.replace(part, heading=safe_lines(part.heading))
        case Table():  # its cells are cleaned when they become text
            return dataclasses.replace(part, title=safe_lines(part.title), note=safe_lines(part.note), columns=_cleaned(part.columns))
        case Figure():
            return dataclasses.replace(part, title=safe_lines(part.title), caption=safe_lines(part.caption))
        case Page() | Section() | Headline() | Fact() | Paragraph() | Item() | Bullets() | Facts() | Code():
            return dataclasses.replace(part, **{field.name: _cleaned(getattr(part, field.name)) for field in dataclasses.fields(part)})
    return part


def render_csv(table: Table, digits: int) -> str:
    """The table as CSV, with its keys as header; missing values are empty. `digits` are the significant digits of floats."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(column.key for column in table.columns)
    for record in table.records:
        writer.writerow(_csv_value(column, value, digits) for column, value in zip(table.columns, record.values(), strict=True))
    return written.getvalue()


def _csv_value(column: Column, value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, str):
        return one_line(value) if column.kind == "figure" else csv_cell(value)  # perfkit's own figures may begin with a sign
    return value

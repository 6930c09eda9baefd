"""Pages and tables as GitHub Markdown."""

import re
from collections.abc import Iterator

from perfkit.report.page import Block, Bullets, Item, Page, Paragraph
from perfkit.report.table import Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|&])")


def escape(text: str) -> str:
    """The text on one line, without a meaning to Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def render_markdown(page: Page) -> str:
    """The page as Markdown. Figures, facts and code belong to HTML alone."""
    lines = [f"# {escape(page.title)}", ""]
    lines += [escape(page.subtitle), ""] if page.subtitle else []
    lines += [f"> **{escape(page.banner)}**", ""] if page.banner else []
    for section in page.sections:
        lines += [f"## {escape(section.title)}", ""] if section.title else []
        for block in section.blocks:
            lines += [*_render_block(block), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def render_table(table: Table) -> str:
    """The table with its note; rows for information alone are in italics."""
    ruler = "|".join("---:" if column.is_figure else "---" for column in table.columns)
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
            yield render_table(block)
        case _:
            raise TypeError(f"{type(block).__name__} has no form in Markdown")


def _render_item(item: Item) -> str:
    subject = f"**{escape(item.subject)}**: " if item.subject else ""
    code = f" (`{item.code.replace('`', '')}`)" if item.code else ""
    return f"{subject}{escape(item.text)}{code}"

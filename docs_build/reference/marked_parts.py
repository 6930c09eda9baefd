"""Generated parts of hand-written pages: what is between two marks."""

import re
from collections.abc import Callable, Mapping

_PART = re.compile(r"(?P<start><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end of (?P=name) -->)", re.DOTALL)


def with_parts(page: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """The page with its generated parts anew; raises KeyError for a mark without a part."""
    return _PART.sub(lambda match: f"{match['start']}\n{parts[match['name']]().strip()}\n\n{match['end']}", page)


def cell(text: str) -> str:
    """A text as a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def anchor(heading: str) -> str:
    """The anchor of a heading, without its #."""
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")

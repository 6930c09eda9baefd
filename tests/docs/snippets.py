"""Code blocks of the documentation's pages, and the command lines in them."""

import pathlib
import re
import textwrap
from collections.abc import Collection, Iterable
from typing import NamedTuple

from docs_build.repository_files import markdown_files

ROOT = pathlib.Path(__file__).parents[2]
SHELLS = ("console", "bash", "sh", "shell")
LEFT_OUT = ("CHANGELOG.md", "reports/", "THIRD_PARTY")
PAGES = [
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))),
    *(path for path in markdown_files(ROOT) if not path.startswith(LEFT_OUT)),
]
FENCE = re.compile(
    r"^(?P<indent> *)(?P<marks>`{3,})(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)(?P=marks)$", re.MULTILINE | re.DOTALL
)


class Snippet(NamedTuple):
    """A code block."""

    place: str
    """Page and line."""
    language: str
    text: str


def snippets_of(page: str, text: str, languages: Collection[str]) -> list[Snippet]:
    """The code blocks of a page's text that are in one of the languages."""
    return [
        Snippet(f"{page}:{text[: match.start()].count(chr(10)) + 1}", match["language"], textwrap.dedent(match["text"]))
        for match in FENCE.finditer(text)
        if match["language"] in languages
    ]


def snippets(*languages: str, pages: Iterable[str] = PAGES) -> list[Snippet]:
    """The code blocks of all pages that are in one of the languages."""
    return [one for page in pages for one in snippets_of(page, (ROOT / page).read_text(encoding="utf-8"), languages)]


def shell_lines(snippet: Snippet) -> list[str]:
    """The commands of a block, each on one line: what follows `$ ` in the console, or everything of a script."""
    joined = re.sub(r"\s*\\\n\s*", " ", snippet.text)
    lines = joined.splitlines()
    return [line[2:] for line in lines if line.startswith("$ ")] if snippet.language == "console" else lines

"""Where files of the repository are in the site, and links between them.

A link in a Markdown file is written for readers of the repository: it leads from that file to another file. In the site both may have
another place: the pages of `docs/` are at its top, reports in `reports/`, and any other file that is linked becomes a page in `source/`.
"""

import pathlib
import posixpath
import re
from collections.abc import Iterator

_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s#]+)(?=(?:#[^)\s]*)?\))")
_PAGES = ("*.md", "reports/*.md", "benchmarks/**/*.md", "containers/*.md", "tests/**/README.md")
"""All Markdown files of the repository outside `docs/`."""
_TOP = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_AS_THEY_ARE = {".gif", ".html", ".ipynb", ".json", ".md", ".png", ".svg"}
"""Suffixes of files that the site has as they are. All others are text, and are shown in a page."""


def markdown_files(root: pathlib.Path) -> list[str]:
    """The Markdown files outside `docs/`, as paths in the repository."""
    return sorted({path.relative_to(root).as_posix() for pattern in _PAGES for path in root.glob(pattern)})


def is_shown_as_text(path: str) -> bool:
    """Whether the site shows a file of the repository in a page of its own."""
    return posixpath.splitext(path)[1] not in _AS_THEY_ARE


def place_in_site(path: str) -> str:
    """The path in the site of a file of the repository."""
    if is_shown_as_text(path):
        return f"source/{path}.md"
    folder, _, rest = path.partition("/")
    if folder == "docs" and rest:
        return rest
    return _TOP.get(path) or (path if folder == "reports" else f"source/{path}")


def linked_files(markdown: str, path: str, root: pathlib.Path) -> Iterator[str]:
    """The files of the repository to which a Markdown file links, as paths in the repository."""
    for match in _LINK.finditer(markdown):
        linked = _linked(match["target"], path)
        if (root / linked).is_file():
            yield linked


def with_links_in_site(markdown: str, path: str, root: pathlib.Path) -> str:
    """The text of a Markdown file with its links as they are in the site. Links to what does not exist stay, for MkDocs to refuse."""
    folder = posixpath.dirname(place_in_site(path))

    def replaced(match: re.Match[str]) -> str:
        linked = _linked(match["target"], path)
        return posixpath.relpath(place_in_site(linked), folder or ".") if (root / linked).is_file() else match["target"]

    return _LINK.sub(replaced, markdown)


def as_page(path: str, text: str) -> str:
    """A page that shows a text file; the search leaves it out."""
    fence = "`" * max(4, 1 + max((len(ticks) for ticks in re.findall("`+", text)), default=0))
    language = posixpath.splitext(path)[1].removeprefix(".") or "text"
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _linked(target: str, path: str) -> str:
    """The path in the repository that a link of a file leads to; a URL stays something that no file is called."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))

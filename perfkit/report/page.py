"""Pages of reports, which Markdown and HTML render, and the writing of a report's files."""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from perfkit.errors import ResultError
from perfkit.report.chart import ChartGroup
from perfkit.report.table import Table
from perfkit.result.output_folder import write_whole


@dataclasses.dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str
    is_strong: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """An item of a list: an optional subject in bold, a sentence, an optional code behind it, and an optional link."""

    text: str
    subject: str = ""
    code: str = ""
    link: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Bullets:
    """A list of items."""

    items: tuple[Item, ...]
    is_numbered: bool = False

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Bullets":
        """A list of plain sentences."""
        return cls(tuple(map(Item, texts)))


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """Charts with their title and the sentence that says how to read them."""

    title: str
    caption: str
    charts: ChartGroup


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """Groups of names and values, side by side, each under its title."""

    groups: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """Preformatted text; of a command line, a click selects all of it, and a button copies it."""

    text: str
    is_command: bool = False


Trust = Literal["good", "open", "bad"]


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """A named figure, with its interval if it has one."""

    name: str
    figure: str
    interval: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Headline:
    """What a page is about as one large figure, how far it can be trusted, in a word or two, and a few figures beside it."""

    figure: str
    """Empty where there is none, with caption and interval."""
    caption: str
    interval: str
    word: str
    trust: Trust
    facts: tuple[Fact, ...] = ()
    confidence: float = 0.95
    """The confidence of the interval."""


Block = Headline | Paragraph | Bullets | Figure | Facts | Code | Table


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """A heading with its blocks; without a title, the blocks follow the page's heading."""

    title: str
    blocks: tuple[Block, ...]
    finding: str = ""
    """What the blocks show, in a few words beside the heading."""
    is_folded: bool = False
    """Whether a page shows the heading alone until it is opened."""


def sections_of(blocks_by_title: Mapping[str, Sequence[Block]]) -> tuple[Section, ...]:
    """A section for each title that has blocks."""
    return tuple(Section(title, tuple(blocks)) for title, blocks in blocks_by_title.items() if blocks)


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A page. The banner warns the reader before any figure; backticks in the footer mark code."""

    title: str
    sections: tuple[Section, ...]
    subtitle: str = ""
    banner: str = ""
    footer: str = ""


NEXT = "What to do next"


def next_blocks(*steps: tuple[str, str]) -> list[Block]:
    """Sentences on what to do next, each with its command, if it has one."""
    blocks = list[Block]()
    for text, command in steps:
        blocks += [Paragraph(text), *([Code(command, is_command=True)] if command else [])]
    return blocks


def write_files(texts: Mapping[pathlib.Path, str], replacing: Iterable[pathlib.Path], place: str) -> None:
    """Writes a report's files, each atomically, and deletes those of an earlier report that it lacks; raises ResultError."""
    earlier = set(replacing)
    try:
        for file, text in texts.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, text)
        for file in earlier - set(texts):
            file.unlink()
    except OSError as error:
        raise ResultError(f"{place}: the report cannot be written there: {error.strerror}") from None

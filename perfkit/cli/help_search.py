"""The search of the documentation for `perfkit help WORD`: the paragraphs, table rows and list items that are about the words."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

_HEADING = re.compile(r"^#+ (.*)$")
_LIST_ITEM = re.compile(r"^\s*([-*]|\d+\.) ")
_SEPARATOR = re.compile(r"^[\s|:-]+$")
_LEAD_CHARACTERS = 60
_MOST_LINES = 16
_NAME, _SUBJECT, _LEAD, _MENTION = 4, 3, 2, 1


@dataclasses.dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph, list item, table or table row of a page, as Markdown; a row comes with its table's head."""

    topic: str
    heading: str
    text: str
    lead: str
    """What it is about: a row's first cell, or the beginning of the text."""
    is_row: bool
    is_first: bool
    """Whether it is the first below its heading."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The passages about the words, the best first, and how many others mention them, by topic."""

    passages: tuple[Passage, ...]
    others: Mapping[str, int]


def search_topics(topics: Mapping[str, str], words: Sequence[str], most: int = 4) -> Found:
    """Looks for passages that have all of some words, whole and in any case, in Markdown texts by topic.

    A passage comes first if they are its heading, or the first cell of its row; next if they stand there; next if they stand at its beginning. What
    merely mentions them is given only if there is nothing better, and of a number, whatever is not the whole heading or cell. Of equals, the
    earlier topics are first.
    """
    patterns = [re.compile(rf"(?<![\w-]){re.escape(word)}{'s?' if word.isalpha() else ''}(?![\w-])", re.IGNORECASE) for word in words]
    scored = [
        (score, passage)
        for topic, page in topics.items()
        for passage in passages_of(topic, page)
        if (score := _score(passage, patterns, " ".join(words).casefold()))
    ]
    if all(word.isdecimal() for word in words):
        scored = [(score, passage) for score, passage in scored if score == _NAME] or scored
    best = max((score for score, _ in scored), default=0)
    shown = [passage for score, passage in sorted(scored, key=lambda one: -one[0]) if score == best or score > _MENTION][:most]
    others = dict.fromkeys(passage.topic for _, passage in scored)
    return Found(tuple(shown), {
        topic: count for topic in others if (count := sum(one.topic == topic and one not in shown for _, one in scored))
    })  # fmt: skip


def passages_of(topic: str, page: str) -> Iterator[Passage]:
    """The passages of a page, in its order; program text counts to the paragraph before it, and a row without a meaning is none."""
    heading, is_first = topic, True
    for block in _blocks(page):
        if (title := _HEADING.match(block)) is not None:
            heading, is_first = title[1].strip(), True
            continue
        lines = block.splitlines()
        if block.startswith("|") and len(lines) > 2 and _SEPARATOR.match(lines[1]):
            head = "\n".join(lines[:2])
            if is_first and len(lines) <= _MOST_LINES:
                yield Passage(topic, heading, block, "", is_row=False, is_first=True)
            for row in lines[2:]:
                first, *others = row.strip("|").split("|")
                if others and others[-1].strip():
                    yield Passage(topic, heading, f"{head}\n{row}", first, is_row=True, is_first=False)
        else:
            yield Passage(topic, heading, block, block[:_LEAD_CHARACTERS], is_row=False, is_first=is_first)
        is_first = False


def _score(passage: Passage, patterns: Sequence[re.Pattern[str]], asked: str) -> int:
    def has_all(text: str) -> bool:
        return all(pattern.search(text) for pattern in patterns)

    subject = passage.lead if passage.is_row else passage.heading * passage.is_first
    if subject.strip(" `").casefold() == asked:
        return _NAME
    if has_all(f"{passage.heading}\n{subject}" if passage.is_row and any(one.search(subject) for one in patterns) else subject):
        return _SUBJECT
    if has_all(passage.lead):
        return _LEAD
    return _MENTION if has_all(f"{passage.heading}\n{passage.text}") and any(one.search(passage.text) for one in patterns) else 0


def _blocks(page: str) -> Iterator[str]:
    """Headings, tables, list items and paragraphs, the latter two with the program text that follows them."""
    block = list[str]()
    in_program = False
    for line in [*page.splitlines(), ""]:
        if line.lstrip().startswith("```"):
            in_program = not in_program
        elif not in_program and block:
            ends = not line.strip() or _HEADING.match(line) or _LIST_ITEM.match(line)
            follows_program = not line.strip() and block[-1].endswith(":")
            if ends and not follows_program:
                yield "\n".join(block).rstrip()
                block = []
        if line.strip() or in_program or block:
            block.append(line)
    if any(line.strip() for line in block):
        yield "\n".join(block).rstrip()

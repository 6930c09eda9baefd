r"""Foreign text made harmless for each output: terminal, Markdown, XML, CSV and file names; and the standard streams that show it.

Answers of servers, metadata, names in scenarios, stored results and file names are written by others. A terminal would execute their
control characters, a CI system their workflow commands, a browser their tags. Escapes have the form `\u001b`, which JSON reads back
as the character.
"""

import os
import re
from collections.abc import Iterable
from typing import Any, TextIO, cast

LONGEST, LONGEST_SENTENCE = 300, 2_000
"""Characters shown of a name, label or cell, and of a sentence that may contain several of them."""
_MOST_LINES = 100

# C0 and C1 controls except tab and newline; soft hyphen, zero-width and bidirectional controls, line separators, tags, lone surrogates
_INVISIBLE_RANGES = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e"
    "\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff"
)
_JOINERS = "\u200c\u200d"
_INVISIBLE = re.compile(f"[{_INVISIBLE_RANGES}]")
_INVISIBLE_UNSTYLED = re.compile(rf"\x1b\[[0-9;]*m|([{_INVISIBLE_RANGES}])")
# GitHub reads `##[command]` anywhere in a line, Azure `##vso[`, TeamCity `##teamcity[`
_BRACKET_COMMAND = re.compile(r"##(?=(?:vso|teamcity)?\[)")
_COLON_COMMAND = re.compile(r"^(\s*):(?=:)", re.MULTILINE)
_MARKDOWN_SYNTAX = re.compile(r"([\\`*_\[\]<>|&~])")
_MARKDOWN_BLOCK = re.compile(r"^(?:#{1,6}(?=\s|$)|[-+](?=\s|$)|-{3,}|={1,}|:(?=:))")
_MARKDOWN_NUMBER = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_NUMBERS = re.compile(r"(?:[-+\d.,%()\s]|to|e(?=[-+\d]))*")
_NOT_IN_FILE_NAME = re.compile(r"[^\w.=-]+", re.ASCII)


def visible(text: str) -> str:
    """The text with its invisible characters as escapes, except tabs, newlines, and joiners within words and emoji."""
    return _INVISIBLE.sub(_escape, text)


def without_bracket_commands(text: str) -> str:
    """The text with neither invisible characters nor the commands that CI systems read anywhere in a line."""
    return _BRACKET_COMMAND.sub(r"#\\u0023", visible(text))


def safe_lines(text: str) -> str:
    """Text of several lines in which no character is invisible and no line is a command to a CI system."""
    return _COLON_COMMAND.sub(r"\1\\u003a", without_bracket_commands(text))


def styled_lines(text: str) -> str:
    """Text as `safe_lines` gives it, with colours and other styles (ANSI SGR sequences) kept: for text whose foreign parts are cleaned already."""
    text = _INVISIBLE_UNSTYLED.sub(lambda match: _escape(match) if match[1] else match[0], text)
    return _COLON_COMMAND.sub(r"\1\\u003a", _BRACKET_COMMAND.sub(r"#\\u0023", text))


def one_line(text: str, longest: int = LONGEST) -> str:
    """The text on one line of at most `longest` characters, for a name, a label or a cell."""
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return safe_lines(text.replace("\r\n", "\n").replace("\n", r"\n").replace("\t", " "))


def to_the_second(instant: str) -> str:
    """An instant in ISO 8601 for people: `2026-01-02 03:04:05 UTC`; other text as it is."""
    found = _INSTANT.fullmatch(instant)
    return f"{found[1]} {found[2]} {'UTC' if found[3] in ('Z', '+00:00') else found[3]}" if found else instant


def sentence(text: str) -> str:
    """The text on one line, for a sentence that contains foreign names."""
    return one_line(text, LONGEST_SENTENCE)


def bounded(text: str) -> str:
    """Lines of a message of bounded length and number: a server's words may be a megabyte."""
    lines = text.split("\n")
    kept = [line if len(line) <= LONGEST_SENTENCE else line[: LONGEST_SENTENCE - 1] + "…" for line in lines[:_MOST_LINES]]
    return "\n".join([*kept, f"… and {len(lines) - _MOST_LINES:,} more lines"] if len(lines) > _MOST_LINES else kept)


def markdown(text: str) -> str:
    """The text on one line, without a meaning to Markdown or HTML."""
    line = _MARKDOWN_SYNTAX.sub(r"\\\1", sentence(" ".join(text.split())))
    line = _MARKDOWN_BLOCK.sub(lambda match: "\\" + match[0], line)
    return _MARKDOWN_NUMBER.sub(r"\1\\\2", line)


def csv_cell(text: str) -> str:
    """The text as a cell that a spreadsheet does not take for a formula."""
    line = one_line(text)
    return f"'{line}" if line[:1] in ("=", "+", "-", "@") and not _NUMBERS.fullmatch(line) else line


def file_name(text: str) -> str:
    """A name for a file or folder made from the text, without separators."""
    return _NOT_IN_FILE_NAME.sub("-", text).strip("-.")[:80] or "unnamed"


def _joins(text: str, place: int) -> bool:
    """Whether the character at a place joins visible characters outside ASCII, as in Persian and Hindi words, and in composed emoji."""
    before, after = text[max(place - 1, 0) : place], text[place + 1 : place + 2]
    return before > "\x7f" and after > "\x7f" and not _INVISIBLE.match(before) and not _INVISIBLE.match(after)


def _escape(match: "re.Match[str]") -> str:
    if match[0] in _JOINERS and _joins(match.string, match.start()):
        return match[0]
    code = ord(match[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


class SafeStream:
    """A text stream that writes control characters and commands of CI systems as escapes.

    `write_styled` keeps colours, and `write_raw` keeps everything: both are for perfkit's own output alone.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._head: str | None = ""
        """The beginning of the current line as long as it may still become a command; otherwise None."""

    def write(self, text: str) -> int:
        """Writes text whose parts may be foreign; returns its length."""
        first, newline, rest = text.partition("\n")
        if self._head is None:  # within a line, a double colon is no command
            self._stream.write(without_bracket_commands(first) + newline + safe_lines(rest))
        elif self._head == ":" and text.startswith(":"):
            self._stream.write(r"\u003a" + safe_lines(text[1:]))
        else:
            self._stream.write(safe_lines(text))
        self._note_head(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each of the texts."""
        for line in lines:
            self.write(line)

    def write_styled(self, text: str) -> None:
        """Writes text with styles of perfkit's own; its foreign parts must be cleaned already."""
        self._stream.write(styled_lines(text))
        self._note_head(text)

    def write_raw(self, text: str) -> None:
        """Writes perfkit's own control sequences or workflow commands."""
        self._stream.write(text)
        self._note_head(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _note_head(self, text: str) -> None:
        _, newline, last = text.rpartition("\n")
        if newline or self._head is not None:
            head = (last if newline else (self._head or "") + last).lstrip()
            self._head = head if head in ("", ":") else None


def safe_stream(stream: TextIO) -> TextIO:
    """The stream as a `SafeStream`; one that is it already stays."""
    return stream if isinstance(stream, SafeStream) else cast(TextIO, SafeStream(stream))


def write_styled(stream: TextIO, text: str) -> None:
    """Writes text with styles of perfkit's own; its foreign parts must be cleaned already."""
    cast(SafeStream, safe_stream(stream)).write_styled(text)


def write_raw(stream: TextIO, text: str) -> None:
    """Writes perfkit's own control sequences or workflow commands."""
    cast(SafeStream, safe_stream(stream)).write_raw(text)


def open_standard_files() -> None:
    """Opens /dev/null in place of those that the caller has closed, for this process and its children.

    Otherwise the next file to be opened would get the number of a standard file, which libuv aborts on closing.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)


PAGE_CHARACTERS = 20_000
"""Characters of a page that are searched for words."""
# each alternative ends where the next could begin, or at the end of the text: the time is linear in any text
_MARKUP = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)|<[^<>]*>", re.DOTALL | re.IGNORECASE)


def page_words(text: str) -> str:
    """The words of an HTML or XML page, such as a proxy's error; any other text, or a page without words, as it is."""
    text = text.strip()
    if not text.startswith("<"):
        return text
    import html  # only for a message

    return " ".join(html.unescape(_MARKUP.sub(" ", text[:PAGE_CHARACTERS])).split()) or text

"""Standard output and standard error that show foreign text without executing it, and standard files that are open."""

import os
from collections.abc import Iterable
from typing import Any, TextIO, cast

from perfkit.text.foreign import safe_lines, styled_lines, without_bracket_commands


class SafeStream:
    """A text stream that writes control characters and commands of CI systems as escapes.

    `write_styled` keeps colours, and `write_raw` keeps everything: both are for perfkit's own output alone.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._head: str | None = ""
        """What the current line begins with as long as it may still become a command; otherwise None."""

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

"""A terminal whose lower lines are redrawn in place, below lines that stay.

The cursor stays below the drawn lines and is never hidden, so a killed process leaves nothing to restore. The device is opened
non-blocking: a stopped terminal (Ctrl-S) misses drawings instead of blocking the samplers. Drawing ends if the terminal is gone.
"""

import contextlib
import os
from collections.abc import Sequence

_ERASE = "\r\x1b[{}A\x1b[J"
_WIDTH, _HEIGHT = 80, 24
_MOST_UNWRITTEN_BYTES = 2**18


class Screen:
    """Draws on a terminal's file descriptor."""

    def __init__(self, file: int) -> None:
        self._file: int | None = file
        self._shown: list[int] = []  # the widths of the lines on the terminal
        self._unwritten = b""
        self._left_out = 0

    @classmethod
    def open(cls, path: str) -> "Screen | None":
        """The screen of a terminal's device; None if it cannot be opened."""
        try:
            return cls(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK))
        except OSError:
            return None

    @property
    def size(self) -> tuple[int, int]:
        """The terminal's columns and lines, read each time because the window may be resized; 80 and 24 if unknown."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                columns, lines = os.get_terminal_size(self._file)
                return columns or _WIDTH, lines or _HEIGHT
        return _WIDTH, _HEIGHT

    def draw(self, lines: Sequence[tuple[str, int]]) -> None:
        """Replaces the drawn lines; each comes with its width without styles, which must fit the terminal."""
        if self._flushed():  # otherwise the terminal is stopped, and this drawing is skipped
            self._write(self._erasure() + "".join(f"{text}\n" for text, _ in lines))
            self._shown = [width for _, width in lines]

    def print_above(self, lines: Sequence[str]) -> None:
        """Erases the drawn lines and prints lines that stay; the next drawing comes below them.

        While the terminal is stopped, lines are kept up to a limit, and the rest is counted.
        """
        if len(self._unwritten) > _MOST_UNWRITTEN_BYTES and not self._flushed():
            self._left_out += len(lines)
            return
        remark = f"(left out while the terminal was stopped: {self._left_out:,} lines)\n" if self._left_out else ""
        erasure, self._shown, self._left_out = self._erasure(), [], 0
        self._write(erasure + remark + "".join(f"{line}\n" for line in lines))

    def close(self) -> None:
        """Erases the drawn lines and closes the device."""
        self._write(self._erasure())
        self._shown = []
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _erasure(self) -> str:
        """The escape sequence that erases the drawn lines, some of which a narrower window may have wrapped."""
        columns = self.size[0]
        rows = sum(max(-(-width // columns), 1) for width in self._shown)
        return _ERASE.format(rows) if rows else ""

    def _flushed(self) -> bool:
        """Writes pending text; returns whether all of it is on the terminal."""
        if self._unwritten:
            self._write("")
        return not self._unwritten

    def _write(self, text: str) -> None:
        if self._file is None:
            return
        data = self._unwritten + text.replace("\n", "\r\n").encode(errors="replace")
        try:
            written = os.write(self._file, data) if data else 0
        except BlockingIOError:
            written = 0
        except OSError:  # the terminal is gone
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file, written = None, len(data)
        self._unwritten = data[written:]

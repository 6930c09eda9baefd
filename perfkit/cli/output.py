"""Outputs of the commands: files that options name, and stdout whose reader may leave."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator

from perfkit.errors import UsageError


def write_output(option: str, path: pathlib.Path, text: str) -> None:
    """Writes the file that an option names; raises UsageError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be written: {error.strerror}") from None


def note_unverified(paths: Iterable[pathlib.Path]) -> None:
    """Says on stderr which results have no checksums."""
    from perfkit.result.checksums import unverified_note

    for note in dict.fromkeys(map(unverified_note, paths)):
        if note:
            print(f"perfkit: note: {note}", file=sys.stderr)


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Flushes stdout after the block; drops the output if its reader has left, so that the exit code stays that of the command."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()


def discard_stdout() -> None:
    """Drops what is buffered for stdout, and all that follows."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""Reads files that others may have written, which may be devices, grow, be larger than memory, or say something else of their size."""

import errno
import io
import os
import pathlib
import stat
from collections.abc import Iterator
from typing import BinaryIO

_MIB = 2**20
LARGEST_TEXT_BYTES, LONGEST_LINE_BYTES = 16 * _MIB, 16 * _MIB
"""The largest size of a file that people write, and of a line of a longer file."""


def read_bounded(file: pathlib.Path, largest_bytes: int, *, may_be_pipe: bool = False) -> bytes:
    """The contents of a file; raises OSError, whose `strerror` says what is wrong, also for a file that is larger.

    Only a regular file is read, unless it `may_be_pipe`: then anything is that ends within the limit.
    """
    with open_input(file, may_be_pipe=may_be_pipe) as opened:
        size_bytes = os.fstat(opened.fileno()).st_size
        # first so much as it says it has, since the whole space is reserved; a file of /proc says 0
        data = opened.read(min(size_bytes, largest_bytes) + 1)
        if size_bytes < len(data) <= largest_bytes:
            data += opened.read(largest_bytes + 1 - len(data))
    if len(data) > largest_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {largest_bytes // _MIB} MiB")
    return data


def open_input(file: pathlib.Path, *, may_be_pipe: bool = False) -> io.BufferedReader:
    """A regular file, opened for reading; raises OSError, also for a device or a pipe, which may have no end."""
    try:
        if not may_be_pipe and not stat.S_ISREG(file.stat().st_mode):
            raise OSError(errno.ENXIO, "this is no regular file")
        return file.open("rb")
    except ValueError:  # a null character
        raise OSError(errno.EINVAL, "this cannot be a file's name") from None


def bounded_lines(opened: BinaryIO, longest_bytes: int = LONGEST_LINE_BYTES) -> Iterator[str]:
    """The lines of an opened file in UTF-8, without a byte order mark; raises OSError for a longer one, UnicodeDecodeError for other bytes."""
    encoding = "utf-8-sig"
    while line := opened.readline(longest_bytes + 1):
        if len(line) > longest_bytes:
            raise OSError(errno.EFBIG, f"it has a line of more than {longest_bytes // _MIB} MiB")
        yield line.decode(encoding)
        encoding = "utf-8"
